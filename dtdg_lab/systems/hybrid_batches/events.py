"""Events of hybrid batches: the sizes of a run's batches and how they are made, and empty reservoirs."""

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
    """One size of batches: a number of consecutive snapshots and of targets of a part.

    Attributes:
        snapshots: N_S.
        least_targets: N_V of the smallest part.
        most_targets: N_V of the largest part.
        shares: N_S and N_V as set: shares up to 1, whole numbers above.
    """

    snapshots: int
    least_targets: int
    most_targets: int
    shares: tuple[float, float]

    @property
    def name(self) -> str:
        """The name in charts, such as ``20% × 5%``: snapshots first."""
        return size_name(*self.shares)

    @property
    def targets(self) -> str:
        """Number of targets, or the range from the smallest to the largest part."""
        return numbers(self.least_targets, self.most_targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridFacts(Event):
    """The batches of a run: N_S snapshots and N_V targets per part.

    Attributes:
        sizes: sizes of all actions; one without a controller.
        snapshots: T, of the training split.
        first: index of its first snapshot.
        nodes: N.
        candidates: number of possible targets of each part.
        choice: the action in use.
        batch_policy: the controller; ``none`` without one.
        reservoir: True if batches are generated beside training.
        stands_in: True if a snapshot batch (all nodes) replaces a batch that the reservoir lacks.
        generators: ``threads`` or ``processes``.
        exchange: ``gradients`` or ``models``.
        average_every_s: T_mu, seconds between two rounds of averaging models.
        capacities: maximum number of batches in the reservoir, by action and part.
        load_groups: number of load groups that targets are drawn from.
        deviation: relative deviation of a batch's loss from that of its targets in the whole graph; None if unknown.
        cache_bytes: bytes of all parts with their copies of neighbours; None if unknown.
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
        """Return the name of an action's size; its number if these facts lack it."""
        return self.sizes[action].name if 0 <= action < len(self.sizes) else f"size {action}"

    @property
    def words(self) -> str:
        """A few sentences on the batches, for the table of events."""
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
        """Return the entries with each size as a mapping."""
        names = ("snapshots", "least_targets", "most_targets")
        pairs = zip(data["sizes"], data["shares"], strict=True)
        sizes = [{**dict(zip(names, size, strict=True)), "shares": shares} for size, shares in pairs]
        return {**data, "sizes": sizes}

    def check(self) -> None:
        """Raise a DataError if the sizes contradict the snapshots or candidates."""
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
    """The reservoirs of a rank cannot hold any batch of some size."""

    kind: ClassVar[str] = "empty reservoir"
    every_rank: ClassVar[bool] = True
    reason: str

    @property
    def words(self) -> str:
        """The reason."""
        return self.reason


def numbers(low: int, high: int) -> str:
    """Return one number, or the range of several."""
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@lru_cache(maxsize=1024)
def size_name(snapshots: float, nodes: float) -> str:
    """Return the name of a size, such as ``20% × 5%``: snapshots first."""
    return f"{amount_text(snapshots)} × {amount_text(nodes)}"


def amount_text(value: float) -> str:
    """Return N_S or N_V as set: a share in percent, or a number."""
    return f"{value:g}" if value > 1 else f"{100 * value:.3g}%"


def span_text(low: int, high: int) -> str:
    """Return one number, or the range of several, such as ``95–96``."""
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
