"""A rank's share of the joules that a whole node's counter shows."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.energy.power_model import PowerModel
from dtdg_lab.energy.reader import Device, EnergyReader, Reading, Scope, Source

SHARE = "-share"  # ends the names of these readers, which tell again joules that the node's reader has
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
        """This rank's part of the node's energy since the last reading; None where that is unknown.

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
        return Reading(
            joules=joules,
            interval_s=reading.interval_s,
            watts=joules / reading.interval_s,
            source=self.source,
            reader=self.name,
            scope=self.scope,
            device=self.device,
        )

    def close(self) -> None:
        """Close the node's reader."""
        self._node.close()


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(getattr(times, name) for name in times._fields if name not in _NOT_BUSY))
