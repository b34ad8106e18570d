"""Energy of one window by reader, and its division over phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dtdg_lab.energy.readers import Device, Scope, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderEnergy:
    """The measurement of a window by one reader.

    Attributes:
        reader: its name.
        device: what drew the joules.
        source: how they come about.
        scope: whose they are.
        joules: of the part of the window that is known; None where nothing is, never 0 for that.
        coverage: share of the window's seconds that is known, from 0 to 1.
    """

    reader: str
    device: Device
    source: Source
    scope: Scope
    joules: float | None
    coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Energy of a window, reader by reader.

    Attributes:
        key: of the window.
        seconds: it lasted.
        readers: the measurement of each, in order.
    """

    key: str
    seconds: float
    readers: tuple[ReaderEnergy, ...]

    @property
    def joules(self) -> float | None:
        """The sum over all readers, for the time that they cover; None if none is known.

        A rank's and a whole node's joules of one kind of device are never added: where both are read, the rank's count.
        A rank's GPU and its node's processors are two devices, and both count.
        """
        readers = self._counted()
        return sum(reader.joules for reader in readers if reader.joules is not None) if readers else None

    @property
    def coverage(self) -> float:
        """The least coverage of the readers that count; 0 where there is none."""
        return min((reader.coverage for reader in _own(self.readers)), default=0.0)

    @property
    def watts(self) -> float | None:
        """Mean power of the readers that count, each over the seconds that it covers; None if none is known."""
        readers = [reader for reader in self._counted() if reader.coverage > 0]
        if not readers or self.seconds <= 0:
            return None
        return sum((reader.joules or 0.0) / (reader.coverage * self.seconds) for reader in readers)

    @property
    def sources(self) -> tuple[Source, ...]:
        """How the joules come about, each source once."""
        return tuple(dict.fromkeys(reader.source for reader in self._counted()))

    def _counted(self) -> list[ReaderEnergy]:
        return _own([reader for reader in self.readers if reader.joules is not None])


def _own(readers: Sequence[ReaderEnergy]) -> list[ReaderEnergy]:
    """Return the rank's readers of each kind of device, or the node's if the rank has none of its own."""
    rank_devices = {reader.device for reader in readers if reader.scope == "rank"}
    return [reader for reader in readers if reader.scope == "rank" or reader.device not in rank_devices]


_LEAST_S = 1e-9  # of work: less is no measure to share anything out by


def shared_out(
    joules: float, seconds: Mapping[str, float], busy_s: Mapping[str, float], idle_j: float
) -> dict[str, float]:
    """Share out joules by phase: idle power by time, the rest by busy seconds; they sum to ``joules``.

    Args:
        joules: of the whole window.
        seconds: that each phase lasted, above 0 in sum.
        busy_s: of these, what the device worked; phases that are not in it did not. Where none did, all is shared out
            by time.
        idle_j: what the idle device would have drawn in the window; at most ``joules`` of it count.
    """
    worked_s = sum(busy_s.get(phase, 0.0) for phase in seconds)
    worked = worked_s > _LEAST_S
    by_time = min(idle_j, joules) if worked else joules
    joules_by_phase = spread(by_time, seconds)
    if worked:
        for phase in seconds:
            joules_by_phase[phase] += (joules - by_time) * busy_s.get(phase, 0.0) / worked_s
    return joules_by_phase


def spread(amount: float, seconds: Mapping[str, float]) -> dict[str, float]:
    """Share out an amount by time alone; return nothing if there is no time."""
    whole_s = sum(seconds.values())
    return {phase: amount * lasted_s / whole_s for phase, lasted_s in seconds.items()} if whole_s > 0 else {}
