"""Events of hybrid batches: their sizes and how they come about, and reservoirs that hold none of some size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_bytes
from dtdg_lab.records.events import Event


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """One size of batches: consecutive snapshots, and targets of a part.

    Attributes:
        snapshots: N_S.
        least_targets: N_V of the smallest part.
        most_targets: N_V of the largest part.
        shares: N_S and N_V as they were set: shares up to 1, whole numbers above.
    """

    snapshots: int
    least_targets: int
    most_targets: int
    shares: tuple[float, float]

    @property
    def name(self) -> str:
        """As charts have it, such as ``20% × 5%``: snapshots first."""
        return size_name(*self.shares)

    @property
    def targets(self) -> str:
        """Targets of a part, from the smallest to the largest where they differ."""
        return numbers(self.least_targets, self.most_targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridFacts(Event):
    """Batches of N_S snapshots and N_V targets a part.

    Attributes:
        sizes: of every action; one where nothing adjusts them.
        snapshots: T, of the training split.
        first: number of its first snapshot.
        nodes: N.
        candidates: of every part, nodes that may be targets.
        choice: the action in use.
        batch_policy: what chooses it; ``none`` where nothing does.
        reservoir: True if batches are generated beside training.
        stands_in: True if all nodes of its snapshots stand in for a batch that the reservoir does not give.
        generators: what generates them, ``threads`` or ``processes``.
        exchange: ``gradients`` or ``models``.
        average_every_s: seconds between two rounds of averaging models; T_mu.
        capacities: of every action and part, the most batches in the reservoir.
        load_groups: groups by load that targets are drawn from.
        deviation: how far a batch's loss was from that of its targets in the whole graph; None where unknown.
        cache_bytes: of all parts with their copies of neighbours; None where unknown.
    """

    kind: ClassVar[str] = "hybrid"
    about: ClassVar[str] = "hybrid batches"
    ended: ClassVar[str] = "no hybrid batches from here on"
    sizes: tuple[SizeFacts, ...]
    snapshots: int
    first: int
    nodes: int
    candidates: tuple[int, ...]
    choice: int
    batch_policy: str
    reservoir: bool
    stands_in: bool = False
    generators: str = "threads"
    exchange: str
    average_every_s: float = 0.0
    capacities: tuple[tuple[int, ...], ...] = ()
    load_groups: int
    deviation: float | None
    cache_bytes: float | None

    @property
    def size(self) -> SizeFacts:
        """The size in use."""
        return self.sizes[self.choice]

    @property
    def is_controlled(self) -> bool:
        """True if a controller chooses the size."""
        return self.batch_policy != "none"

    def name(self, action: int) -> str:
        """Name of the size of an action; its number where that is not of these facts."""
        return self.sizes[action].name if 0 <= action < len(self.sizes) else f"size {action}"

    @property
    def words(self) -> str:
        """The batches in a few sentences, as a row of a table of events."""
        size, parts = self.size, len(self.candidates)
        smallest, largest = min(self.candidates), max(self.candidates)
        text = (
            f"Batches of {size.snapshots} of {self.snapshots} snapshots and {size.targets} of "
            f"{numbers(smallest, largest)} "
            f"nodes in each of {parts} part{'s' * (parts > 1)}"
        )
        if self.is_controlled:
            text += f", chosen by {self.batch_policy} among {len(self.sizes)} sizes"
        if self.reservoir:
            fallback = (
                "all nodes of the same snapshots are used instead" if self.stands_in else "they are built in the step"
            )
            text += f"; from a reservoir, and where it gives none {fallback}"
        else:
            text += "; built in the step"
        text += (
            f". Models are averaged every {self.average_every_s:g} s."
            if self.exchange == "models"
            else ". Gradients are summed in every step."
        )
        if self.cache_bytes is not None:
            text += f" Parts with their copies of neighbours take {format_bytes(self.cache_bytes)}."
        return text

    def write(self) -> dict[str, Any]:
        """Return the data as recorded."""
        data = Event.write(self)
        del data["sizes"]
        sizes = [[size.snapshots, size.least_targets, size.most_targets] for size in self.sizes]
        return {"sizes": sizes, "shares": [list(size.shares) for size in self.sizes], **data}

    @classmethod
    def entries(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return each size with its values."""
        names = ("snapshots", "least_targets", "most_targets")
        pairs = zip(data["sizes"], data["shares"], strict=True)
        sizes = [{**dict(zip(names, size, strict=True)), "shares": shares} for size, shares in pairs]
        return {**data, "sizes": sizes}

    def check(self) -> None:
        """Raise a DataError if its sizes are not of its snapshots and candidates."""
        fit = all(1 <= size.snapshots <= self.snapshots for size in self.sizes) and all(
            1 <= size.least_targets <= size.most_targets <= max(self.candidates, default=0) for size in self.sizes
        )
        if not fit or not 0 <= self.choice < len(self.sizes):
            raise DataError(
                f"an event has batches of {len(self.sizes)} sizes, number {self.choice} in use, of {self.snapshots} "
                f"snapshots and parts of {self.candidates} candidates, which do not fit each other: was it recorded "
                "by another version?"
            )


@dataclass(frozen=True, slots=True)
class EmptyReservoir(Event):
    """The reservoirs of a rank hold nothing of some size."""

    kind: ClassVar[str] = "empty reservoir"
    every_rank: ClassVar[bool] = True
    reason: str

    @property
    def words(self) -> str:
        """Why."""
        return self.reason


def numbers(low: int, high: int) -> str:
    """One number, or the span of several."""
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@lru_cache(maxsize=1024)
def size_name(snapshots: float, nodes: float) -> str:
    """Return the name of a size, such as ``20% × 5%``: snapshots first."""
    return f"{amount_text(snapshots)} × {amount_text(nodes)}"


def amount_text(value: float) -> str:
    """Return N_S or N_V as it was set: a share in percent, or a number."""
    return f"{value:g}" if value > 1 else f"{100 * value:.3g}%"


def span_text(low: int, high: int) -> str:
    """Return one number, or the span of several, such as ``95–96``."""
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
