"""What the pictures of blocks of time are made of: the facts of an event ``blocks``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.views.layout import join_words
from dtdg_lab.views.ways import ALWAYS, WAYS, Matrix

Span = tuple[int, int]  # first, and one past the last
Leg = tuple[int, str, str, int]  # layer, way, leg, numbers a row


@dataclass(frozen=True, slots=True, eq=False)
class BlockFacts:
    """T snapshots in nb blocks of time on R ranks, G of which split each snapshot by rows.

    Attributes:
        layout: ``snapshot``, or ``halo_vertex``, whose ranks have all snapshots of their own vertices.
        ranks: R.
        row_ranks: G.
        nodes: N.
        blocks: nb.
        asked: blocks asked for; 0 took the fewest that fit the memory.
        bounds: (nb + 1,) block b has snapshots bounds[b] to bounds[b + 1] - 1.
        own: [block][rank] snapshots whose spatial part the rank computes; of the layout ``snapshot`` alone.
        rows: [rank] vertices whose rows of these snapshots it computes; of that layout alone.
        chunks: [rank] vertices that it runs through all snapshots of a block; of that layout alone.
        predicted: way -> (L, R, R) bytes from one rank to another in a step; without ``rerun`` where there is none.
        legs: what is sent in a step.
        note: why there are so many blocks.
    """

    layout: str
    ranks: int
    row_ranks: int
    nodes: int
    blocks: int
    asked: int
    bounds: NDArray[np.int64]
    own: tuple[tuple[Span, ...], ...]
    rows: tuple[Span, ...]
    chunks: tuple[Span, ...]
    predicted: Mapping[str, Matrix]
    legs: tuple[Leg, ...]
    note: str

    @property
    def snapshots(self) -> int:
        """T."""
        return int(self.bounds[-1] - self.bounds[0])

    @property
    def label(self) -> str:
        """Its name in titles, such as ``4 blocks of 12 to 13 snapshots on 2 ranks``."""
        sizes = np.diff(self.bounds)
        low, high = int(sizes.min()), int(sizes.max())
        size = f"{low}" if low == high else f"{low} to {high}"
        text = (
            f"{self.blocks:,} block{_s(self.blocks)} of {size} snapshot{_s(high)} on {self.ranks} rank{_s(self.ranks)}"
        )
        return text if self.row_ranks == 1 else f"{text}, {self.row_ranks} to a snapshot"

    @property
    def redistributes(self) -> bool:
        """Whether ranks compute whole snapshots first and then vertices through time."""
        return self.layout == "snapshot"

    @property
    def sends(self) -> bool:
        """Whether ranks send each other rows, or anything else but gradients of the model."""
        return any(each.any() for each in self.predicted.values())

    def same(self, other: BlockFacts) -> bool:
        """Whether it is the same plan."""
        mine, theirs = (
            (f.layout, f.ranks, f.row_ranks, f.nodes, f.asked, f.bounds.tolist(), f.own, f.legs, f.predicted.keys())
            for f in (self, other)
        )
        return mine == theirs and all(
            np.array_equal(each, other.predicted[way]) for way, each in self.predicted.items()
        )


def block_facts(data: Mapping[str, Any]) -> BlockFacts:
    """The facts in the data of an event ``blocks``.

    Raises:
        DataError: something is missing or does not fit.
    """
    try:
        predicted = {way: np.asarray((data.get("predicted") or {}).get(way, ()), np.float64) for way in WAYS}
        facts = BlockFacts(
            layout=str(data["layout"]),
            ranks=int(data["ranks"]),
            row_ranks=int(data.get("row_ranks") or 1),
            nodes=int(data["nodes"]),
            blocks=int(data["blocks"]),
            asked=int(data["asked"]),
            bounds=np.asarray(data["bounds"], np.int64),
            own=tuple(_spans(block) for block in data.get("own") or ()),
            rows=_spans(data.get("rows") or ()),
            chunks=_spans(data.get("chunks") or ()),
            predicted={way: each for way, each in predicted.items() if each.size and (way in ALWAYS or each.any())},
            legs=tuple(
                (int(layer), str(way), str(leg), int(width)) for layer, way, leg, width in data.get("legs") or ()
            ),
            note=str(data.get("note") or ""),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"blocks of time cannot be drawn from what is told of them ({error!r}): were they recorded by another "
            "version?"
        ) from error
    _check(facts)
    return facts


def _check(facts: BlockFacts) -> None:
    counts = {"own": len(facts.own) if facts.redistributes else facts.blocks, "bounds": len(facts.bounds) - 1}
    fit = set(counts.values()) == {facts.blocks} and (np.diff(facts.bounds) > 0).all() and facts.blocks > 0
    by_rank = [facts.rows, facts.chunks, *facts.own] if facts.redistributes else []
    shapes = [each.shape[1:] == (facts.ranks, facts.ranks) for each in facts.predicted.values()]
    if not (fit and all(len(each) == facts.ranks for each in by_rank) and all(shapes)):
        raise DataError(
            f"an event told {facts.blocks} blocks on {facts.ranks} ranks with bounds {facts.bounds.tolist()[:8]}, "
            f"which do not fit each other: was it recorded by another version?"
        )


def blocks_left(data: Mapping[str, Any]) -> bool:
    """Whether an event ``blocks`` says that the run went on in a layout without blocks of time."""
    return "layout" in data and data["layout"] is None


def blocks_words(facts: BlockFacts) -> str:
    """Blocks and what is sent between them in a sentence or two, as a row of a table of events."""
    how = "as set" if facts.asked else "the fewest that fit the memory"
    text = f"{facts.label} ({facts.note.rstrip('.') or how})."
    if not facts.sends:
        return f"{text} Ranks send each other gradients of the model, and no rows."
    counts = {way: sum(leg[1] == way for leg in facts.legs) for way in WAYS}
    told = [f"{count} {way}" for way, count in counts.items() if count]
    return f"{text} Legs of a step, over its layers: {join_words(told)}." if told else text


def _spans(pairs: Sequence[Sequence[Any]]) -> tuple[Span, ...]:
    return tuple((int(start), int(stop)) for start, stop in pairs)


def _s(count: int) -> str:
    return "" if count == 1 else "s"
