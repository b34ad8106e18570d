"""Energy readers of one rank: measured where possible, else modelled."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import psutil

from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.energy.modelled import BusySeconds, ModelledGpuReader, ModelledReader
from dtdg_lab.energy.nvml import NvmlReader
from dtdg_lab.energy.rapl import POWERCAP, RaplReader
from dtdg_lab.energy.readers import Device, EnergyReader, PowerModel, Reading, Scope, Source, reading_of

SHARE = "-share"  # suffix of these readers' names; their joules are included in the node's reader


_NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # user and nice include guests


class NodeShareReader:
    """This rank's share of a node's measured joules: idle power evenly over ranks, the rest by processor seconds.

    Of J joules in ``wall`` seconds, with n ranks on the node, the share is ``min(J, P_idle * wall) / n`` plus a part of
    the rest: this process's processor seconds over all busy seconds of the node. The shares sum to at most J; other
    programs drew the rest. The joules are measured, the division is a model.

    Args:
        node: reader of the whole node, only for this rank.
        power: ``idle_w``.
        ranks_on_node: number of ranks on the node, n.
        processor: returns processor seconds of this process, all threads.
        node_processor: returns busy seconds of all processors of the node.

    Raises:
        ConfigError: n is below 1, or the reader does not read a whole node.
    """

    scope: Scope = "rank"
    device: Device = "processor"

    def __init__(
        self,
        node: EnergyReader,
        power: PowerModel,
        *,
        ranks_on_node: int,
        processor: Callable[[], float] = time.process_time,
        node_processor: Callable[[], float] | None = None,
    ) -> None:
        if ranks_on_node < 1:
            raise ConfigError(f"ranks_on_node={ranks_on_node} must be at least 1.")
        if node.scope != "node":
            raise ConfigError(f"{node.name} reads one rank. Give a reader of a whole node.")
        self.name = f"{node.name}{SHARE}"
        self.source: Source = node.source
        self._node, self._power, self._ranks = node, power, ranks_on_node
        self._processor, self._node_processor = processor, node_processor or _busy_s
        self._last_s, self._last_node_s = self._processor(), self._node_processor()

    def set_power(self, power: PowerModel) -> None:
        """Assume another idle power from the next reading on."""
        self._power = power

    def read(self) -> Reading | None:
        """Return this rank's part of the node's energy since the last reading; None if unknown.

        Raises:
            NotAvailableError: the node's counter can no longer be read.
        """
        reading = self._node.read()
        if reading is None:  # keep processor seconds for the next reading
            return None
        own_s, node_s = self._processor(), self._node_processor()
        used_s, all_s = own_s - self._last_s, node_s - self._last_node_s
        self._last_s, self._last_node_s = own_s, node_s
        idle_j = min(reading.joules, self._power.idle_w * reading.interval_s)
        # the node's seconds tick every 10 ms, and may lag behind this process's seconds
        part = used_s / max(all_s, used_s) if used_s > 0 else 0.0
        joules = idle_j / self._ranks + (reading.joules - idle_j) * part
        return reading_of(self, joules, reading.interval_s)

    def close(self) -> None:
        """Close the node's reader."""
        self._node.close()


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(getattr(times, name) for name in times._fields if name not in _NOT_BUSY))


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
    """Choose the readers of one rank, such that all ranks of a node together count the node once.

    The rank that computes on a GPU reads it, or models it if NVML cannot read it. Local rank 0 reads the processors of
    the whole node from RAPL. If RAPL cannot be read, each rank models its own share of them, also on GPU machines.

    Args:
        device: kind of device of the rank.
        local_rank: the rank's number on its node, from 0.
        local_ranks: ranks on the node.
        device_index: CUDA index or UUID of the rank's GPU; ``local_rank`` by default.
        idle_w: assumed watts of the node's idle processors, for the model.
        max_w: assumed watts of the node with all cores busy, for the model.
        gpu_idle_w: assumed watts of an idle GPU, for its model.
        gpu_max_w: assumed watts of a busy GPU; 0 for unknown, which leaves its energy unknown.
        gpu_busy: counter of the GPU's busy seconds; without it, a GPU that NVML cannot read stays unknown.
        shares: whether each rank also reads its share of the node's counter
            (:class:`~dtdg_lab.energy.rank_readers.NodeShareReader`), for joules by phase and rank.
        processor: returns processor seconds of the rank, all threads.
        rapl_root: the powercap folder.

    Returns:
        The readers, and notes on unavailable readings and their replacements.

    Raises:
        ConfigError: ``device`` or ``local_rank`` is not allowed, or the powers are inconsistent.
    """
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"device={device!r} is unknown. Choose 'cpu' or 'cuda'.")
    if not 0 <= local_rank < local_ranks:
        raise ConfigError(
            f"local_rank={local_rank} is out of range: local_ranks={local_ranks} allows 0 to {local_ranks - 1}."
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
        reader = NvmlReader(device)
    except NotAvailableError as error:
        reason = str(error)
    else:
        readers.append(reader)
        notes += [reader.note] if reader.note else []
        return
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
        node, shared = (
            RaplReader(rapl_root),
            RaplReader(rapl_root),
        )  # separate readers, since a reading ends the previous one
    except NotAvailableError as error:
        notes.append(f"processor energy is modelled from {idle_w:g} W idle and {max_w:g} W busy, not measured: {error}")
        model = ModelledReader(ranks_on_node=local_ranks, idle_w=idle_w, max_w=max_w, processor=processor)
        readers.append(model)
        return
    if node.note:
        notes.append(f"processor energy leaves out a part that cannot be read: {node.note}")
    if local_rank == 0:
        readers.append(node)
    else:
        notes.append("processor energy is read once for the node, by its local rank 0.")
    if shares:
        readers.append(NodeShareReader(shared, power, ranks_on_node=local_ranks, processor=processor))
