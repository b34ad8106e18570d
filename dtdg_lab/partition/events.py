"""Events of partitions and of time blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.model_facts import PASSES
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_percent, format_seconds, join_words
from dtdg_lab.records.events import Event, reading_event

if TYPE_CHECKING:
    from dtdg_lab.core.plans import SnapshotBlocks

Matrix = NDArray[np.float64]
ALWAYS = ("forward", "backward")  # passes of every step; ``rerun`` needs several time blocks
MAPS = ("edges", "halo", "replicated")
SHARES = ("cut", "halo", "replicated")


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionFacts(Event):
    """Partition of N nodes into P parts, measured over T snapshots that are binned into K columns.

    Attributes:
        partitioner: name of the partitioner.
        made_by: description of the partitioner and its settings.
        parts: number of parts, P.
        ranks: number of processes that execute the parts, R; 0 without a run.
        layout: ``halo_vertex`` or ``cached_vertex``; empty without a run.
        seconds: seconds of making the partition.
        rebuild_s: seconds of the whole change during a run; None at a run's start.
        measures: output of ``PartitionMeasures.to_dict``.
        predicted: pass -> (L, R, R) bytes from rank to rank in a step, or in the mean step of the run's epochs where
            steps differ (part to part without ranks); empty without a prediction.
    """

    kind: ClassVar[str] = "partition"
    about: ClassVar[str] = "a partition"
    ended: ClassVar[str] = "no partition from here on"
    partitioner: str
    made_by: str = ""
    parts: int
    ranks: int = 0
    layout: str = ""
    seconds: float
    rebuild_s: float | None = None
    measures: Mapping[str, Any]
    predicted: Mapping[str, Matrix] = field(default_factory=dict)

    @classmethod
    def entries(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the data with predictions in the order of the passes."""
        predicted = data.get("predicted") or {}
        return {**data, "predicted": {name: predicted[name] for name in PASSES if name in predicted}}

    def check(self) -> None:
        """Raise a DataError if a measure is missing."""
        with reading_event(self.about):
            for name in ("bounds", "maps", "vertices", "load", "memory", "shares", "totals", "imbalance"):
                getattr(self, name)

    @property
    def words(self) -> str:
        """One sentence on cut edges, rows received and rows replicated."""
        cache = "a cache would hold" if self.exchanges else "the caches hold"
        return (
            f"{self.label[:1].upper()}{self.label[1:]} ({self.making_words}): {format_percent(self.shares['cut'])} of "
            f"the edges are cut, {format_percent(self.shares['halo'])} of the rows read come from other parts; {cache} "
            f"{format_percent(self.shares['replicated'])} copies."
        )

    @property
    def making_words(self) -> str:
        """Time of making the partition, and of changing to it in the middle of a run."""
        text = f"made in {format_seconds(self.seconds)}"
        return text if self.rebuild_s is None else f"{text}, the change took {format_seconds(self.rebuild_s)}"

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """Bounds of the columns, (K + 1,): column k shows snapshots bounds[k] to bounds[k + 1] - 1."""
        return np.asarray(self.measures["bins"], np.int64)

    @cached_property
    def maps(self) -> Mapping[str, Matrix]:
        """Means per snapshot of ``edges`` into own nodes, ``halo`` rows received, ``replicated`` rows; (P, K) each."""
        return {name: self._vector(name) for name in MAPS}

    @cached_property
    def vertices(self) -> Matrix:
        """Number of nodes of each part, (P,)."""
        return self._vector("owned")

    @cached_property
    def load(self) -> Matrix:
        """Walks of up to D hops into each part's nodes, as in DynaHB; (P,)."""
        return self._vector("load")

    @cached_property
    def memory(self) -> Mapping[str, Matrix]:
        """Memory of each part by layout, (P,) bytes each."""
        return {"halo_vertex": self._vector("halo_bytes"), "cached_vertex": self._vector("cached_bytes")}

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of ``cut`` edges in all edges, ``halo`` rows in rows read, ``replicated`` rows in rows held."""
        return {name: float(self.measures[f"{name}_share"]) for name in SHARES}

    @property
    def totals(self) -> Mapping[str, float]:
        """``cut_edges``, ``all_edges``, ``halo`` and ``replicated`` rows, summed over snapshots and parts."""
        return self.measures["totals"]

    @property
    def imbalance(self) -> Mapping[str, float]:
        """Largest part over the mean, for ``vertices``, ``edges`` and ``load``."""
        return self.measures["imbalance"]

    def _vector(self, name: str) -> Matrix:
        return np.asarray(self.measures[name], np.float64)

    @property
    def label(self) -> str:
        """Name in titles, such as ``metis, 4 parts``."""
        return f"{self.partitioner}, {self.parts} part{'s' if self.parts > 1 else ''}"

    @property
    def exchanges(self) -> bool:
        """True if ranks exchange rows, or would."""
        return self.layout != "cached_vertex"

    @property
    def layout_key(self) -> tuple[object, ...]:
        """Key of the partition and its execution, for comparison."""
        arrays = (self.vertices, *self.maps.values(), *self.predicted.values())
        names = (self.partitioner, self.parts, self.ranks, self.layout, *self.predicted)
        return (*names, *(values.tolist() for values in arrays))


Span = tuple[int, int]  # start and stop
AllToAllPhase = tuple[int, str, str, int]  # layer, pass, collective, numbers a row


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BlockFacts(Event):
    """T snapshots in nb time blocks on R ranks; groups of G ranks split each snapshot by rows.

    The last four sequences are empty for the layout ``halo_vertex``.

    Attributes:
        layout: ``snapshot``, or ``halo_vertex``, whose ranks have all snapshots of their own nodes.
        ranks: R.
        row_ranks: G.
        nodes: N.
        blocks: nb.
        requested: configured number of blocks; 0 for the fewest that fit the memory.
        bounds: (nb + 1,) block b has snapshots bounds[b] to bounds[b + 1] - 1.
        predicted: pass -> (L, R, R) bytes from rank to rank in a step; without ``rerun`` if nothing is recomputed.
        note: uneven shares, and the reason of the number of blocks.
        own: [block][rank] snapshots whose spatial part the rank computes.
        rows: [rank] nodes whose rows of these snapshots it computes.
        chunks: [rank] nodes that it runs through all snapshots of a block.
        collectives: collectives of a step, in order.
    """

    kind: ClassVar[str] = "blocks"
    about: ClassVar[str] = "time blocks"
    ended: ClassVar[str] = "no blocks of time from here on"
    layout: str
    ranks: int
    row_ranks: int = 1
    nodes: int
    blocks: int
    requested: int
    bounds: NDArray[np.int64]
    own: tuple[tuple[Span, ...], ...] = ()
    rows: tuple[Span, ...] = ()
    chunks: tuple[Span, ...] = ()
    predicted: Mapping[str, Matrix] = field(default_factory=dict)
    collectives: tuple[AllToAllPhase, ...] = ()
    note: str = ""

    @classmethod
    def of(cls, plan: SnapshotBlocks, layout: str, **facts: Any) -> BlockFacts:
        """Return the event of a plan, with further fields."""
        redistributes, blocks = layout == "snapshot", range(plan.blocks)
        ranks = range(plan.ranks if redistributes else 0)
        return cls(
            layout=layout,
            ranks=plan.ranks,
            row_ranks=plan.row_ranks if redistributes else 1,
            nodes=plan.nodes,
            blocks=plan.blocks,
            bounds=np.array([plan.snapshots.start, *(plan.block(b).stop for b in blocks)]),
            own=tuple(tuple(_ends(plan.own(b, rank)) for rank in ranks) for b in blocks) if redistributes else (),
            rows=tuple(_ends(plan.rows(rank)) for rank in ranks),
            chunks=tuple(_ends(plan.chunk(rank)) for rank in ranks),
            **facts,
        )

    @property
    def words(self) -> str:
        """One or two sentences on the blocks and their collectives, for a table of events."""
        choice = "as set" if self.requested else "the fewest that fit the memory"
        text = f"{self.label} ({self.note.rstrip('.') or choice})."
        if not self.sends:
            return f"{text} Ranks send each other gradients of the model, and no rows."
        counts = {pass_name: sum(sent[1] == pass_name for sent in self.collectives) for pass_name in PASSES}
        collectives = [f"{count} {pass_name}" for pass_name, count in counts.items() if count]
        return f"{text} Collectives of a step, over its layers: {join_words(collectives)}." if collectives else text

    @classmethod
    def entries(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the data with predictions in the order of the passes, without a rerun that sends nothing."""
        predicted = data.get("predicted") or {}
        sent_bytes = {name: np.asarray(predicted[name], np.float64) for name in PASSES if name in predicted}
        return {
            **data,
            "predicted": {
                name: sent for name, sent in sent_bytes.items() if sent.size and (name in ALWAYS or sent.any())
            },
        }

    def check(self) -> None:
        """Raise a DataError if the spans do not fit the blocks and ranks."""
        counts = {"own": len(self.own) if self.redistributes else self.blocks, "bounds": len(self.bounds) - 1}
        fit = set(counts.values()) == {self.blocks} and (np.diff(self.bounds) > 0).all() and self.blocks > 0
        by_rank = [self.rows, self.chunks, *self.own] if self.redistributes else []
        shapes = [sent.shape[1:] == (self.ranks, self.ranks) for sent in self.predicted.values()]
        if not (fit and all(len(spans) == self.ranks for spans in by_rank) and all(shapes)):
            raise DataError(
                f"an event has {self.blocks} blocks on {self.ranks} ranks with bounds {self.bounds.tolist()[:8]}, "
                f"which do not fit each other: was it recorded by another version?"
            )

    @property
    def snapshots(self) -> int:
        """Number of snapshots, T."""
        return int(self.bounds[-1] - self.bounds[0])

    @property
    def label(self) -> str:
        """Name in titles, such as ``4 blocks of 12 to 13 snapshots on 2 ranks``."""
        sizes = np.diff(self.bounds)
        low, high = int(sizes.min()), int(sizes.max())
        size = f"{low}" if low == high else f"{low} to {high}"
        text = f"{self.blocks:,} block{_plural(self.blocks)} of {size} snapshot{_plural(high)}"
        text += f" on {self.ranks} rank{_plural(self.ranks)}"
        return text if self.row_ranks == 1 else f"{text}, {self.row_ranks} to a snapshot"

    @property
    def redistributes(self) -> bool:
        """True if ranks compute whole snapshots first, then nodes through time."""
        return self.layout == "snapshot"

    @property
    def sends(self) -> bool:
        """True if ranks send each other more than gradients of the model."""
        return any(sent.any() for sent in self.predicted.values())


def _plural(count: int) -> str:
    return "" if count == 1 else "s"


def _ends(part: range) -> Span:
    return part.start, part.stop
