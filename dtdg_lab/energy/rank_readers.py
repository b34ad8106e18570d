"""Readers of one rank: what can be measured is measured, the rest is modelled."""

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


_NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # guests are in user and nice already


class NodeShareReader:
    """Shares a node's counted joules out to this rank: idle power evenly over ranks, the rest by processor seconds.

    Of J joules in ``wall`` seconds, with n ranks on the node: ``min(J, P_idle * wall) / n`` and of what is left the
    part that this process's processor seconds are of all processors' busy seconds. The ranks' shares sum to at most
    J; the rest is what other programs drew. The joules are counted, the sharing is a model.

    Args:
        node: reads the whole node, for this rank alone: each rank has its own.
        power: ``idle_w``.
        ranks_on_node: n.
        processor: processor seconds of this process, all threads.
        node_processor: busy seconds of all processors of the node.

    Raises:
        ConfigError: n is below 1, or the reader given does not read a node.
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
            raise ConfigError(f"ranks_on_node={ranks_on_node}: at least 1.")
        if node.scope != "node":
            raise ConfigError(f"{node.name} reads one rank: only what reads a whole node can be shared out.")
        self.name = f"{node.name}{SHARE}"
        self.source: Source = node.source
        self._node, self._power, self._ranks = node, power, ranks_on_node
        self._processor, self._node_processor = processor, node_processor or _busy_s
        self._last_s, self._last_node_s = self._processor(), self._node_processor()

    def set_power(self, power: PowerModel) -> None:
        """Assume another idle power, from the next reading on."""
        self._power = power

    def read(self) -> Reading | None:
        """Read this rank's part of the node's energy since the last reading; None if unknown.

        Raises:
            NotAvailableError: the node's counter can no longer be read.
        """
        reading = self._node.read()
        if reading is None:  # processor seconds are kept for the reading that has the joules
            return None
        own_s, node_s = self._processor(), self._node_processor()
        used_s, all_s = own_s - self._last_s, node_s - self._last_node_s
        self._last_s, self._last_node_s = own_s, node_s
        idle_j = min(reading.joules, self._power.idle_w * reading.interval_s)
        # the node's seconds come in ticks of 10 ms and can lag behind this process's own
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
        gpu_busy: seconds that the GPU was busy; without it, a GPU that NVML cannot read stays unknown.
        shares: whether each rank, besides, shares the node's counter out to itself
            (:class:`~dtdg_lab.energy.monitor.NodeShareReader`), which joules by phase and rank need.
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
        node, shared = RaplReader(rapl_root), RaplReader(rapl_root)  # a reading ends the one before: each has its own
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
