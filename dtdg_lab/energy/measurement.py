"""What is known of the energy of one window: joules by reader, each with its source and how much of it is covered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dtdg_lab.energy.reader import Device, Scope, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderEnergy:
    """What one reader tells of a window.

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
        readers: what each of them tells, in their order.
    """

    key: str
    seconds: float
    readers: tuple[ReaderEnergy, ...]

    @property
    def joules(self) -> float | None:
        """Of all readers together, of what is covered; None where nobody knows any.

        A rank's and a whole node's joules of one kind of device are never added: where both are read, the rank's count.
        A rank's GPU and its node's processors are two devices, and both count.
        """
        known = self._counted()
        return sum(each.joules for each in known if each.joules is not None) if known else None

    @property
    def coverage(self) -> float:
        """The least coverage of the readers that count; 0 where there is none."""
        return min((each.coverage for each in _own(self.readers)), default=0.0)

    @property
    def watts(self) -> float | None:
        """Mean power of the readers that count, each over the seconds that it covers; None where nobody knows any."""
        known = [each for each in self._counted() if each.coverage > 0]
        if not known or self.seconds <= 0:
            return None
        return sum((each.joules or 0.0) / (each.coverage * self.seconds) for each in known)

    @property
    def sources(self) -> tuple[Source, ...]:
        """How the joules come about, each source once."""
        return tuple(dict.fromkeys(each.source for each in self._counted()))

    def _counted(self) -> list[ReaderEnergy]:
        return _own([each for each in self.readers if each.joules is not None])


def _own(readers: Sequence[ReaderEnergy]) -> list[ReaderEnergy]:
    """Of each kind of device the rank's readers, and the node's where the rank has none of its own."""
    own = {each.device for each in readers if each.scope == "rank"}
    return [each for each in readers if each.scope == "rank" or each.device not in own]
