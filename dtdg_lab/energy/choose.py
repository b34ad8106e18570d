"""Which energy readers a rank has: what can be measured is, the rest is modelled, and the notes say which."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.energy.modelled import ModelledReader
from dtdg_lab.energy.modelled_gpu import BusySeconds, ModelledGpuReader
from dtdg_lab.energy.node_share import NodeShareReader
from dtdg_lab.energy.nvml import NvmlReader
from dtdg_lab.energy.power_model import PowerModel
from dtdg_lab.energy.rapl import POWERCAP, RaplReader
from dtdg_lab.energy.reader import EnergyReader

_Chosen = tuple[list[EnergyReader], list[str]]  # readers and notes


def readers_for(
    device: Literal["cpu", "cuda"],
    *,
    local_rank: int,
    local_ranks: int,
    device_index: int | str | None = None,
    idle_w: float,
    max_w: float,
    gpu_idle_w: float = 0.0,
    gpu_max_w: float = 0.0,
    gpu_busy: BusySeconds | None = None,
    shares: bool = False,
    processor: Callable[[], float] = time.process_time,
    rapl_root: Path | str = POWERCAP,
) -> tuple[list[EnergyReader], list[str]]:
    """The readers of one rank, such that all ranks of a node together count the node once.

    A GPU is read by the rank that computes on it, and modelled where NVML gives nothing. The processors are read from
    RAPL by local rank 0 alone, for the whole node; where RAPL cannot be read, each rank models its own share of them,
    on GPU machines as well.

    Args:
        device: where the rank computes.
        local_rank: the rank's number on its node, from 0.
        local_ranks: ranks on the node.
        device_index: CUDA index or UUID of the rank's GPU; ``local_rank`` by default.
        idle_w: assumed watts of the node's idle processors, for the model.
        max_w: assumed watts of the node with all cores busy, for the model.
        gpu_idle_w: assumed watts of an idle GPU, for its model.
        gpu_max_w: assumed watts of a busy GPU; 0 where not known, which leaves its energy unknown.
        gpu_busy: tells its model how long the GPU was busy; without it, a GPU that NVML cannot read stays unknown.
        shares: whether each rank, besides, shares the node's counter out to itself
            (:class:`~dtdg_lab.energy.node_share.NodeShareReader`), which joules by phase and rank need.
        processor: processor seconds of the rank, all threads.
        rapl_root: the powercap folder.

    Returns:
        The readers, and notes on what could not be read and what is done instead.

    Raises:
        ConfigError: ``device`` or ``local_rank`` is not one of those allowed, or the powers make no sense.
    """
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"device={device!r}: energy is read for 'cpu' or 'cuda'.")
    if not 0 <= local_rank < local_ranks:
        raise ConfigError(
            f"local_rank={local_rank} of local_ranks={local_ranks}: a number from 0 to {local_ranks - 1}."
        )
    power = PowerModel(idle_w=idle_w, max_w=max_w, gpu_idle_w=gpu_idle_w, gpu_max_w=gpu_max_w)
    readers: list[EnergyReader] = []
    notes: list[str] = []
    if device == "cuda":
        _add_gpu(local_rank if device_index is None else device_index, power, gpu_busy, to=(readers, notes))
    _add_processors(
        power, local_rank, local_ranks, shares=shares, processor=processor, rapl_root=rapl_root, to=(readers, notes)
    )
    return readers, notes


def _add_gpu(device: int | str, power: PowerModel, busy: BusySeconds | None, *, to: _Chosen) -> None:
    readers, notes = to
    try:
        readers.append(NvmlReader(device))
        return
    except NotAvailableError as error:
        reason = str(error)
    if busy is not None:
        readers.append(ModelledGpuReader(power, busy))
    if busy is None or not power.gpu_max_w:
        notes.append(f"GPU energy is unknown: {reason}")
        return
    idle_w, max_w = power.gpu_idle_w, power.gpu_max_w
    notes.append(f"GPU energy is modelled from {idle_w:g} W idle and {max_w:g} W busy, not measured: {reason}")


def _add_processors(
    power: PowerModel,
    local_rank: int,
    local_ranks: int,
    *,
    shares: bool,
    processor: Callable[[], float],
    rapl_root: Path | str,
    to: _Chosen,
) -> None:
    readers, notes = to
    idle_w, max_w = power.idle_w, power.max_w
    try:
        node = RaplReader(rapl_root)
    except NotAvailableError as error:
        notes.append(f"processor energy is modelled from {idle_w:g} W idle and {max_w:g} W busy, not measured: {error}")
        model = ModelledReader(ranks_on_node=local_ranks, idle_w=idle_w, max_w=max_w, processor=processor)
        readers.append(model)
        return
    if local_rank == 0:
        readers.append(node)
    else:
        notes.append("processor energy is read once for the node, by its local rank 0.")
    if shares:
        own = RaplReader(rapl_root) if local_rank == 0 else node
        readers.append(NodeShareReader(own, power, ranks_on_node=local_ranks, processor=processor))
