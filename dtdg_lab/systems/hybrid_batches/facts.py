"""What pictures of hybrid batches are made of: the facts of an event ``hybrid``, and what they are in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_bytes
from dtdg_lab.visualization.layout import percent, share


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """One size of batches: consecutive snapshots, and targets of a part.

    Attributes:
        snapshots: N_S.
        least_targets: N_V of the smallest part.
        most_targets: N_V of the largest part.
        given: N_S and N_V as they were set: shares up to 1, whole numbers above.
    """

    snapshots: int
    least_targets: int
    most_targets: int
    given: tuple[float, float]

    @property
    def label(self) -> str:
        """As a legend has it, such as ``20 % x 5 %``: snapshots first."""
        return " x ".join(given_words(value) for value in self.given)

    @property
    def targets(self) -> str:
        """Targets of a part, from the smallest to the largest where they differ."""
        return numbers(self.least_targets, self.most_targets)


@dataclass(frozen=True, slots=True)
class HybridFacts:
    """Batches of N_S snapshots and N_V targets a part.

    Attributes:
        sizes: of every action; one where nothing adjusts them.
        snapshots: T, of the training split.
        first: number of its first snapshot.
        nodes: N.
        candidates: of every part, nodes that may be targets.
        choice: the action in use.
        adjuster: what chooses it; ``none`` where nothing does.
        reservoir: whether batches are generated beside training.
        exchange: ``gradients`` or ``models``.
        average_every_s: seconds between two rounds of averaging models; T_mu.
        capacities: of every action and part, the most batches in the reservoir.
        load_groups: groups by load that targets are drawn from.
        cache_bytes: of all parts with their copies of neighbours; None where it was not told.
        stands_in: whether all nodes of its snapshots stand in for a batch that the reservoir does not give.
    """

    sizes: tuple[SizeFacts, ...]
    snapshots: int
    first: int
    nodes: int
    candidates: tuple[int, ...]
    choice: int
    adjuster: str
    reservoir: bool
    exchange: str
    average_every_s: float
    capacities: tuple[tuple[int, ...], ...]
    load_groups: int
    cache_bytes: float | None
    stands_in: bool = False

    @property
    def size(self) -> SizeFacts:
        """The size in use."""
        return self.sizes[self.choice]

    @property
    def adjusted(self) -> bool:
        """Whether something chooses the size."""
        return self.adjuster != "none"

    def label(self, action: int) -> str:
        """The size of an action; its number where that is not of these facts."""
        return self.sizes[action].label if 0 <= action < len(self.sizes) else f"size {action}"


def hybrid_facts(data: Mapping[str, Any]) -> HybridFacts:
    """The facts in the data of an event ``hybrid``.

    Raises:
        DataError: something is missing or does not fit.
    """
    try:
        sizes = [
            SizeFacts(int(size[0]), int(size[1]), int(size[2]), (float(given[0]), float(given[1])))
            for size, given in zip(data["sizes"], data["shares"], strict=True)
        ]
        described = data.get("cache_bytes")
        facts = HybridFacts(
            sizes=tuple(sizes),
            snapshots=int(data["snapshots"]),
            first=int(data["first"]),
            nodes=int(data["nodes"]),
            candidates=_whole(data["candidates"]),
            choice=int(data["choice"]),
            adjuster=str(data["adjuster"]),
            reservoir=bool(data["reservoir"]),
            exchange=str(data["exchange"]),
            average_every_s=float(data["average_every_s"] or 0.0),
            capacities=tuple(_whole(parts) for parts in data.get("capacities") or ()),
            load_groups=int(data["load_groups"]),
            cache_bytes=None if described is None else float(described),
            stands_in=bool(data.get("stands_in", False)),
        )
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"hybrid batches cannot be drawn from what is told of them ({error!r}): were they recorded by another "
            "version?"
        ) from error
    _check(facts)
    return facts


def _check(facts: HybridFacts) -> None:
    fit = all(1 <= size.snapshots <= facts.snapshots for size in facts.sizes) and all(
        1 <= size.least_targets <= size.most_targets <= max(facts.candidates, default=0) for size in facts.sizes
    )
    if not fit or not 0 <= facts.choice < len(facts.sizes):
        raise DataError(
            f"an event told batches of {len(facts.sizes)} sizes, number {facts.choice} in use, of {facts.snapshots} "
            f"snapshots and parts of {facts.candidates} candidates, which do not fit each other: was it recorded by "
            "another version?"
        )


def hybrid_left(data: Mapping[str, Any]) -> bool:
    """Whether an event ``hybrid`` says that the run went on with steps of another kind."""
    return "layout" in data and data["layout"] is None


def hybrid_words(facts: HybridFacts) -> str:
    """The batches in a few sentences, as a row of a table of events."""
    size, parts = facts.size, len(facts.candidates)
    least, most = min(facts.candidates), max(facts.candidates)
    text = (
        f"Batches of {size.snapshots} of {facts.snapshots} snapshots and {size.targets} of {numbers(least, most)} "
        f"nodes in each of {parts} part{'s' * (parts > 1)}"
    )
    if facts.adjusted:
        text += f", chosen by {facts.adjuster} among {len(facts.sizes)} sizes"
    if facts.reservoir:
        other = "all nodes of the same snapshots stand in" if facts.stands_in else "they are built in the step"
        text += f"; from a reservoir, and where it gives none {other}"
    else:
        text += "; built in the step"
    text += (
        f". Models are averaged every {facts.average_every_s:g} s."
        if facts.exchange == "models"
        else ". Gradients are summed in every step."
    )
    if facts.cache_bytes is not None:
        text += f" Parts with their copies of neighbours take {format_bytes(facts.cache_bytes)}."
    return text


def numbers(least: int, most: int) -> str:
    """One number, or the span of several."""
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _whole(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def given_words(value: float) -> str:
    """N_S or N_V as it was set: a share in percent, or a number."""
    if value > 1:
        return f"{value:g}"
    return percent(value) if value >= 0.1 else share(value).replace(".0 %", " %")
