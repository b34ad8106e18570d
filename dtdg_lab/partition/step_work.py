"""What each rank has to do in one step of ESDG: edges, rows and snapshots to pass over, bytes to send and to bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.graphs.difference_sizes import SequenceChanges
from dtdg_lab.graphs.transfer_formats import CSR32
from dtdg_lab.partition.snapshot_legs import RERUN_MEMORIES, Leg, legs, sent
from dtdg_lab.partition.snapshot_volume import redistributed

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class StepWork:
    """One step of R ranks. A pass is forward, its rerun, or backward; what is passed over thrice counts thrice.

    Attributes:
        nodes: N.
        edges: of the S snapshots trained, once.
        passes: (R, 5): edges of own snapshots; rows of these and of own vertices through time; own snapshots; snapshots
            that run through time one after another, on however many ranks; the same where there are several ranks, for
            these run their vertices in pieces, so that pieces can travel.
        sent: (R, R) bytes from rank to rank.
        exchanges: of rows, and one of gradients; 0 on one rank.
        brought: (R, 3): snapshots brought, bytes of these, and bytes they would take whole.
    """

    nodes: int
    edges: int
    passes: Numbers
    sent: Numbers
    exchanges: int
    brought: Numbers

    @property
    def ranks(self) -> int:
        """R."""
        return len(self.sent)


@dataclass(frozen=True, slots=True)
class StepSettings:
    """What a step computes, whatever the graph and the ranks; names as the options of a run.

    Attributes:
        model: name in the catalogue.
        features: F.
        hidden: H.
        layers: of the model.
        pairs: numbers of a vertex that pairs are scored from; 0 where the loss is a sum over vertices.
        blocks: nb.
        difference: whether graphs are brought as differences.
        reuse: whether rows of the data alone are kept from step to step.
        itemsize: bytes of a number.
        options: of the model.
    """

    model: str
    features: int
    hidden: int
    layers: int
    pairs: int = 0
    blocks: int = 1
    difference: bool = True
    reuse: bool = False
    itemsize: int = 4
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def work(self, changes: SequenceChanges, ranks: int) -> StepWork:
        """What R ranks do in a step.

        Args:
            changes: of the S snapshots trained.
            ranks: R, at most N; each has whole snapshots.

        Raises:
            PlanError: the ranks or blocks do not fit the graph.
            UnsupportedError: the model's memory cannot be divided by snapshots.
        """
        plan = SnapshotBlocks(range(len(changes.edges)), self.blocks, ranks, changes.nodes)
        some = sent(
            legs(
                self.model, self.features, self.hidden, self.layers, pairs=self.pairs, blocks=self.blocks,
                reuse=self.reuse, **self.options,
            )
        )  # fmt: skip
        memory = catalogue.entry("models", self.model).memory
        moved = redistributed(plan, some, self.layers).bytes(self.itemsize)
        return StepWork(
            nodes=changes.nodes, edges=int(changes.edges.sum()), passes=_passes(plan, changes, memory),
            sent=sum((each.sum(axis=0) for each in moved.values()), np.zeros((ranks, ranks))),
            exchanges=_exchanges(some, self.blocks) + 1 if ranks > 1 else 0,
            brought=_brought(plan, changes, memory, difference=self.difference),
        )  # fmt: skip


def scaled(changes: SequenceChanges, factor: float) -> SequenceChanges:
    """The sequence with ``factor`` times the vertices and edges, of equal density and overlap.

    Raises:
        PlanError: the factor leaves no vertex.
    """
    nodes = round(changes.nodes * factor)
    if nodes < 1:
        raise PlanError(f"{changes.nodes} vertices times {factor:g} leaves none: give a larger factor.")
    edges, leaving, arriving = (
        np.rint(each * factor).astype(np.int64) for each in (changes.edges, changes.leaving, changes.arriving)
    )
    return replace(changes, nodes=nodes, edges=edges, leaving=leaving, arriving=arriving)


def _repeats(plan: SnapshotBlocks, memory: str | None) -> list[int]:
    """How often each block runs forward: twice where it is computed again."""
    again = memory in RERUN_MEMORIES
    return [1 + (again and block < plan.blocks - 1) for block in range(plan.blocks)]


def _passes(plan: SnapshotBlocks, changes: SequenceChanges, memory: str | None) -> Numbers:
    found = np.zeros((plan.ranks, 5))
    for block, forward in enumerate(_repeats(plan, memory)):
        times, length = forward + 1, len(plan.block(block))
        for rank in range(plan.ranks):
            own = plan.own(block, rank)
            through = len(plan.chunk(rank)) * length if memory == "per_vertex" else 0
            rows = len(own) * len(plan.rows(rank)) + through
            edges = int(changes.edges[own.start : own.stop].sum())
            found[rank] += np.array([edges, rows, len(own), length, length * (plan.ranks > 1)]) * times
    return found


def _exchanges(some: tuple[Leg, ...], blocks: int) -> int:
    """Exchanges of rows in a step that overlaps none with computing: one for each leg and block."""
    many = {"forward": blocks, "rerun": blocks - 1, "backward": blocks}
    return sum(1 if leg.only_last else many[leg.way] for leg in some)


def _brought(plan: SnapshotBlocks, changes: SequenceChanges, memory: str | None, *, difference: bool) -> Numbers:
    """Nothing with one block, which stays; else every block for forward, and again for its rerun."""
    found = np.zeros((plan.ranks, 3))
    if plan.blocks == 1:
        return found
    for block, forward in enumerate(_repeats(plan, memory)):
        for rank in range(plan.ranks):
            own = plan.own(block, rank)
            less, whole = changes.brought(CSR32, [own])
            found[rank] += np.array([len(own), less if difference else whole, whole]) * forward
    return found
