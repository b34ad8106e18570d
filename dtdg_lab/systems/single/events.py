"""Events of training in one process: how many snapshots share a product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_percent, format_seconds
from dtdg_lab.records.events import Event


@dataclass(frozen=True, slots=True)
class OverlapProfile(Event):
    """The number of snapshots that share one product, and the measurements behind it.

    Attributes:
        chosen: snapshots in a group; 1 is the ordinary product of each snapshot.
        sizes: the candidates.
        seconds: seconds per snapshot of each candidate, forward and backward over all aggregations that depend on
            parameters; empty if nothing was measured.
        shares: share of edges that the snapshots of a group have in common, for each candidate.
        note: reason why nothing was measured; empty otherwise.
    """

    kind: ClassVar[str] = "shared_edges"
    about: ClassVar[str] = "shared edges"
    ended: ClassVar[str] = "Snapshots share no products any more."
    chosen: int
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    shares: tuple[float, ...]
    note: str = ""

    @property
    def words(self) -> str:
        """One or two sentences on the choice and its reason."""
        how = "each snapshot has its own product" if self.chosen == 1 else f"{self.chosen} snapshots share one product"
        if self.note:
            return f"{how[0].upper()}{how[1:]}: {self.note}."
        best, unshared = self.seconds[self.sizes.index(self.chosen)], self.seconds[0]
        return (
            f"{how[0].upper()}{how[1:]}: {format_seconds(best)} forward and backward for a snapshot, "
            f"{format_seconds(unshared)} without sharing. They have "
            f"{format_percent(self.shares[self.sizes.index(self.chosen)])} of their edges in common."
        )

    def check(self) -> None:
        """Raise a DataError if the numbers of sizes, times and shares differ."""
        if not len(self.sizes) == len(self.seconds) == len(self.shares):
            raise DataError("the profile of shared edges lacks times: was it recorded by another version?")


@dataclass(frozen=True, slots=True)
class SnapshotTimes(Event):
    """Time of each training snapshot's forward pass, measured before the first step.

    Attributes:
        first: index of the first training snapshot.
        seconds: seconds of each snapshot, in order.
    """

    kind: ClassVar[str] = "snapshot_times"
    about: ClassVar[str] = "times of snapshots"
    ended: ClassVar[str] = "Snapshots are no longer trained as one batch."
    first: int
    seconds: tuple[float, ...]

    @property
    def words(self) -> str:
        """A sentence on the slowest snapshot."""
        return f"Snapshot {self.longest} takes longest: {format_percent(self.longest_share)} of all snapshots' time."

    @property
    def longest(self) -> int:
        """Index of the slowest snapshot."""
        return self.first + self.seconds.index(max(self.seconds))

    @property
    def longest_share(self) -> float:
        """Share of the slowest snapshot in the time of all."""
        return max(self.seconds) / sum(self.seconds)

    def check(self) -> None:
        """Raise a DataError if there are no times."""
        if not self.seconds or not sum(self.seconds) > 0:
            raise DataError("the event has no times of snapshots: was it recorded by another version?")
