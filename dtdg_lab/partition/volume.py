"""Cost model of snapshot parallelism: work, volume and time of a step on R ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import log2
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.message_passing import Pull, Seam, seams
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.graphs.delta import CSR32, SequenceChanges
from dtdg_lab.graphs.snapshot import Snapshot, give_up
from dtdg_lab.partition.halo import pulled_rows

# What a step of ESDG sends between the spatial and the temporal parts of layers, leg by leg, beside the paper's
# count.
#
# Every leg sends a row for each node and snapshot once. The paper counts six legs a layer: to nodes and back to
# snapshots, in forward, in the rerun and in backward. Ours are fewer, or of other widths, where :attr:`Leg.why` says
# so.


WAYS = ("forward", "rerun", "backward")
RERUN_MEMORIES = ("per_vertex", "weights_from_data", "neighbourhood")  # others need no block before to run one
_NARROW = (
    "what goes is Ã x, before its product with the layer's weights: {ours} numbers a row; the paper sends the "
    "product, of {paper}"
)
_BLOCK = "there is one block: nothing is computed again"
_LAST = "the loss is a sum over nodes, and computed where they are"
_READOUT = "pairs are scored from the readout, of {ours} numbers a row; the paper sends the embedding, of {paper}"
_SCORED_ONCE = "forward scores the last block alone: the others are scored in their rerun"
_CONSTANT = "Ã x of the data holds no parameter: nobody needs its gradient"
_KEPT = "Ã x of the data is the same in every step: it was sent in the first, and kept"
_SUMMARIES = "the paper has EvolveGCN-O only; -H reads the data, and every rank needs every snapshot's summary"


@dataclass(frozen=True, slots=True)
class AllToAllCost:
    """One redistribution of a step, or none where the paper has one.

    Attributes:
        layer: of the model, from 0.
        way: ``forward``, ``rerun`` (the same again, in all blocks but the last) or ``backward``.
        leg: ``to_vertices``, ``to_snapshots`` or ``summaries``.
        width: numbers in a row; 0 where there is no such leg.
        paper: the same as the paper counts it; 0 where it has no such leg.
        why: the reason of a difference; empty where there is none.
        only_last: whether the last block alone has it, of forward.
    """

    layer: int
    way: str
    leg: str
    width: int
    paper: int
    why: str = ""
    only_last: bool = False


def legs(
    model: str,
    features: int,
    hidden: int,
    layers: int,
    *,
    pairs: int = 0,
    blocks: int = 1,
    reuse: bool = False,
    **options: Any,
) -> tuple[AllToAllCost, ...]:
    """The legs of a step in their order, those that are not sent included.

    Args:
        model: name in the catalogue.
        features: F.
        hidden: H.
        layers: of the model.
        pairs: numbers of a node that pairs are scored from, where the task is of pairs (link prediction); 0 where the
            loss is a sum over nodes.
        blocks: nb; where there is one, nothing is computed again.
        reuse: whether Ã x of the data is kept from an earlier step (option ``halo_reuse``): it is not sent again.
        options: of the model.

    Raises:
        UnknownNameError: there is no such model.
        UnsupportedError: its memory does not run through time node by node.
        ConfigError: a size is below 1, or an option's value is not allowed.

    References: ESDG sections 4.2 (two redistributions a layer, mirrored by backward) and 3.1 (rerun).
    """
    catalogue.check_memory(model, "snapshot")
    between = seams(model, features, hidden, layers, **options)
    widths = [features, *[hidden] * (layers - 1)]
    if catalogue.entry("models", model).memory == "weights_from_data":
        return tuple(_summaries(widths, hidden, blocks))
    if not between:
        return ()
    counted = _Counted(model, tuple(widths), hidden, between, pairs, blocks, reuse)
    return tuple(leg for way in WAYS for leg in counted.of(way))


def sent(all_legs: tuple[AllToAllCost, ...]) -> tuple[AllToAllCost, ...]:
    """The legs that are sent."""
    return tuple(leg for leg in all_legs if leg.width)


def _summaries(widths: list[int], hidden: int, blocks: int) -> Iterator[AllToAllCost]:
    """A width x H summary of every snapshot and layer, to all ranks; gradients come back to the rank that made it."""
    for way in ("forward", *(["rerun"] if blocks > 1 else []), "backward"):
        layers = range(len(widths))
        for layer in reversed(layers) if way == "backward" else layers:
            yield AllToAllCost(layer, way, "summaries", widths[layer] * hidden, 0, _SUMMARIES)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Both counts of a model whose nodes run through time; names as the arguments of :func:`legs`."""

    model: str
    widths: tuple[int, ...]
    hidden: int
    between: tuple[Seam, ...]
    pairs: int
    blocks: int
    reuse: bool

    def of(self, way: str) -> Iterator[AllToAllCost]:
        if way == "backward":
            yield from self._backward()
        elif way == "rerun" and self.blocks == 1:
            for leg in self._forward(way):
                yield AllToAllCost(leg.layer, way, leg.leg, 0, leg.paper, _BLOCK)
        else:
            yield from self._forward(way)

    @property
    def _last(self) -> int:
        return len(self.between) - 1

    def _input(self, layer: int) -> int:
        """Width of what the paper sends to nodes: the input of its RNN."""
        own = self.widths[layer] if self.model == "cdgcn" else 0
        return own + (2 if self.model == "mpnn-lstm" else 1) * self.hidden

    def _forward(self, way: str) -> Iterator[AllToAllCost]:
        for layer, seam in enumerate(self.between):
            paper = self._input(layer)
            if layer == 0 and self.reuse and not seam.learned:
                yield AllToAllCost(layer, way, "to_vertices", 0, paper, _KEPT)
            else:
                yield AllToAllCost(layer, way, "to_vertices", seam.width, paper, _unlike(_NARROW, seam.width, paper))
            if layer < self._last:
                yield AllToAllCost(layer, way, "to_snapshots", self.hidden, self.hidden)
        yield self._readout(way, "to_snapshots")

    def _backward(self) -> Iterator[AllToAllCost]:
        yield self._readout("backward", "to_vertices")
        for layer in range(self._last, -1, -1):
            seam, paper = self.between[layer], self._input(layer)
            width = seam.width if seam.learned else 0
            why = _unlike(_NARROW, seam.width, paper) if seam.learned else _CONSTANT
            yield AllToAllCost(layer, "backward", "to_snapshots", width, paper, why)
            if layer:  # the gradient of a layer's input, which the layer before gives
                yield AllToAllCost(layer, "backward", "to_vertices", self.hidden, self.hidden)

    def _readout(self, way: str, leg: str) -> AllToAllCost:
        """After the last layer: embeddings to snapshots in the paper, and their gradients back."""
        why = _unlike(_READOUT, self.pairs, self.hidden) if self.pairs else _LAST
        only_last = bool(self.pairs) and way == "forward" and self.blocks > 1
        if only_last:
            why = f"{why}; {_SCORED_ONCE}" if why else _SCORED_ONCE
        return AllToAllCost(self._last, way, leg, self.pairs, self.hidden, why, only_last)


def _unlike(words: str, ours: int, paper: int) -> str:
    return words.format(ours=ours, paper=paper) if ours != paper else ""


# Rows, numbers and bytes that a step of ESDG sends from rank to rank, told before anything is sent.


Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Volume:
    """What ranks send each other in one step: for each way (L, R, R), from rank q to rank p for layer l at [l, q, p].

    Attributes:
        rows: way -> rows; legs of a way and layer together.
        numbers: way -> numbers in these rows; bytes are these times the size of one.
    """

    rows: Mapping[str, Counts]
    numbers: Mapping[str, Counts]

    def __post_init__(self) -> None:
        for counts in (*self.rows.values(), *self.numbers.values()):
            give_up(counts)

    def __add__(self, other: Volume) -> Volume:
        return Volume(
            {way: self.rows[way] + other.rows[way] for way in WAYS},
            {way: self.numbers[way] + other.numbers[way] for way in WAYS},
        )

    @property
    def total(self) -> int:
        """Numbers sent in a step, of all ranks, layers and ways."""
        return sum(int(numbers.sum()) for numbers in self.numbers.values())

    def bytes(self, itemsize: int = 4) -> dict[str, Counts]:
        """Bytes, (L, R, R) for each way; ``itemsize`` is 4 for float32, 8 for float64."""
        return {way: numbers * itemsize for way, numbers in self.numbers.items()}


def leg_rows(blocks: SnapshotBlocks, leg: str, *, way: str = "forward", only_last: bool = False) -> Counts:
    """Rows from rank p to rank q of one leg in all blocks of a way, at [p, q]: (R, R); none to itself.

    In a block p sends q the rows of its own snapshots and of q's chunk of nodes (``to_vertices``), or those of q's
    snapshots and of its own chunk (``to_snapshots``); ``summaries`` are one row for each own snapshot, to all of the
    column, and on the way back from all of them. Rows stay within a column. Over all pairs that is S N (R - 1) / R in
    each way but ``rerun``, where all shares are even and ``row_ranks`` is 1.

    Args:
        blocks: who has which snapshots and nodes.
        leg: ``to_vertices``, ``to_snapshots`` or ``summaries``.
        way: ``forward``, ``backward``, or ``rerun``: all blocks but the last.
        only_last: whether the last block alone has it.
    """
    ranks, last = range(blocks.ranks), blocks.blocks - 1
    ran = range(last if only_last else 0, last if way == "rerun" else last + 1)
    own = np.array([sum(len(blocks.own(block, rank)) for block in ran) for rank in ranks], np.int64)
    chunk = np.array([len(blocks.chunk(rank)) for rank in ranks], np.int64)
    column = np.arange(blocks.ranks) % blocks.row_ranks
    rows = np.outer(own, np.ones_like(own) if leg == "summaries" else chunk) * (column[:, None] == column)
    np.fill_diagonal(rows, 0)
    back = leg == "to_snapshots" or (leg == "summaries" and way == "backward")
    return rows.T.copy() if back else rows


def redistributed(blocks: SnapshotBlocks, legs: Sequence[AllToAllCost], layers: int) -> Volume:
    """Volume of the legs of a step.

    Args:
        blocks: who has which snapshots and nodes.
        legs: of a step, by :func:`dtdg_lab.partition.volume.legs`.
        layers: L.
    """
    rows, numbers = _none(layers, blocks.ranks), _none(layers, blocks.ranks)
    for leg in legs:
        if leg.width:
            moved = leg_rows(blocks, leg.leg, way=leg.way, only_last=leg.only_last)
            rows[leg.way][leg.layer] += moved
            numbers[leg.way][leg.layer] += moved * leg.width
    return Volume(rows, numbers)


def pulled_by_groups(
    snapshots: Sequence[Snapshot], blocks: SnapshotBlocks, pulls: Sequence[Pull], *, rerun: bool, reuse: bool = False
) -> Volume:
    """Volume of the pulls in a hybrid, whose groups of ranks split each snapshot by rows: halo rows of a group.

    What ``top`` gathers is not in it, as nowhere. None where ``row_ranks`` is 1.

    Args:
        snapshots: of the graph, by number; those of ``blocks`` are counted.
        blocks: who has which snapshots and rows.
        pulls: of the model.
        rerun: whether a block's pulls are repeated on the way back.
        reuse: whether pulls of the data alone are kept from an earlier step.
    """
    layers, split = 1 + max(pull.layer for pull in pulls), blocks.row_ranks
    rows, numbers = _none(layers, blocks.ranks), _none(layers, blocks.ranks)
    if split == 1:
        return Volume(rows, numbers)
    owner = np.concatenate([np.full(len(blocks.rows(rank)), rank, np.int32) for rank in range(split)])
    times = [snapshots[t] for t in blocks.snapshots]
    of_way = {pull.way: pulled_rows(times, Partition(owner, split), pull.way) for pull in pulls if pull.way != "top"}
    last = len(times) - len(blocks.block(blocks.blocks - 1))
    for pull in pulls:
        if pull.way == "top":
            continue
        per_snapshot = of_way[pull.way]
        ahead = pull.learned or not reuse
        for way, wanted, stop in (
            ("forward", ahead, len(times)),
            ("rerun", ahead and rerun, last),
            ("backward", pull.learned, len(times)),
        ):
            if wanted:
                moved = _placed(per_snapshot, blocks, stop)
                moved = moved.T if way == "backward" else moved
                rows[way][pull.layer] += moved
                numbers[way][pull.layer] += moved * pull.width
    return Volume(rows, numbers)


def between_parts(
    snapshots: Sequence[Snapshot],
    partition: Partition,
    pulls: Sequence[Pull],
    *,
    rerun_before: int = 0,
    reuse: bool = False,
) -> Volume:
    """Volume of a step where ranks own nodes and exchange halo rows: what hypergraph node partition sends.

    Args:
        snapshots: those trained.
        partition: of their nodes into R parts, one for each rank.
        pulls: of the model.
        rerun_before: how many of the snapshots, from the first, are pulled again on the way back: those of all blocks
            of time but the last; 0 where there is one block, or nothing to rerun. Where there are some, gradients of
            states go back to the first block's beginning too, which one block does without.
        reuse: whether pulls of the data alone are kept from an earlier step.
    """
    layers = 1 + max(pull.layer for pull in pulls)
    rows, numbers = _none(layers, partition.parts), _none(layers, partition.parts)
    of_way = {pull.way: pulled_rows(snapshots, partition, pull.way) for pull in pulls if pull.way != "top"}
    for pull in pulls:
        if pull.way == "top":
            continue
        every = of_way[pull.way]
        moved = {
            "forward": every.sum(axis=0) * (pull.learned or not reuse),
            "rerun": every[:rerun_before].sum(axis=0) * (pull.learned or not reuse),
            "backward": every[0 if pull.at_first or rerun_before else 1 :].sum(axis=0).T * pull.learned,
        }
        for way, sent in moved.items():
            rows[way][pull.layer] += sent
            numbers[way][pull.layer] += sent * pull.width
    return Volume(rows, numbers)


def _placed(of_snapshots: Counts, blocks: SnapshotBlocks, stop: int) -> Counts:
    """Rows between the G shares of each of the first ``stop`` snapshots, between the ranks that have them: (R, R)."""
    split, first = blocks.row_ranks, blocks.snapshots.start
    moved = np.zeros((blocks.ranks, blocks.ranks), np.int64)
    for block in range(blocks.blocks):
        for group in range(blocks.groups):
            own = blocks.own(block, group * split)
            some = of_snapshots[own.start - first : min(own.stop - first, stop)].sum(axis=0)
            moved[group * split : (group + 1) * split, group * split : (group + 1) * split] += some
    return moved


def _none(layers: int, ranks: int) -> dict[str, Counts]:
    return {way: np.zeros((layers, ranks, ranks), np.int64) for way in WAYS}


# What each rank has to do in one step of ESDG: edges, rows and snapshots to pass over, bytes to send and to bring.


Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class StepWork:
    """One step of R ranks. A pass is forward, its rerun, or backward; what is passed over thrice counts thrice.

    Attributes:
        nodes: N.
        edges: of the S snapshots trained, once.
        passes: (R, 5): edges of own snapshots; rows of these and of own nodes through time; own snapshots; snapshots
            that run through time one after another, on however many ranks; the same where there are several ranks, for
            these run their nodes in pieces, so that pieces can travel.
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
        pairs: numbers of a node that pairs are scored from; 0 where the loss is a sum over nodes.
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
                self.model,
                self.features,
                self.hidden,
                self.layers,
                pairs=self.pairs,
                blocks=self.blocks,
                reuse=self.reuse,
                **self.options,
            )
        )
        memory = catalogue.entry("models", self.model).memory
        moved = redistributed(plan, some, self.layers).bytes(self.itemsize)
        return StepWork(
            nodes=changes.nodes,
            edges=int(changes.edges.sum()),
            passes=_passes(plan, changes, memory),
            sent=sum((each.sum(axis=0) for each in moved.values()), np.zeros((ranks, ranks))),
            exchanges=_exchanges(some, self.blocks) + 1 if ranks > 1 else 0,
            brought=_brought(plan, changes, memory, difference=self.difference),
        )


def scaled(changes: SequenceChanges, factor: float) -> SequenceChanges:
    """The sequence with ``factor`` times the nodes and edges, of equal density and overlap.

    Raises:
        PlanError: the factor leaves no node.
    """
    nodes = round(changes.nodes * factor)
    if nodes < 1:
        raise PlanError(f"{changes.nodes} nodes times {factor:g} leaves none: give a larger factor.")
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


def _exchanges(some: tuple[AllToAllCost, ...], blocks: int) -> int:
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


# Seconds of a step of ESDG by number of ranks: fitted to measured steps, then told for more ranks than are here.
#
# Each part has its own few rates, none negative, found by least squares of relative residuals:
#
# - compute: seconds an edge, a row, an own snapshot, and a snapshot run through time, which does not shrink with
# ranks
#   and costs more as soon as there are several;
# - transfer: seconds a snapshot brought, a byte of it, and a byte it takes whole (unpacking);
# - communicate: seconds an exchange, times log2 R, and a byte of the busiest rank; over nodes, what a node sends or
# gets
#   goes through its link besides. That the first grows with log2 R is assumed: two ranks cannot tell.
#
# A step is the slowest rank's compute and transfer, then communicate; nothing is hidden, and waiting is what ranks
# differ
# by. References: ESDG section 6.3, which tells these three parts apart (Figures 5 and 7); the model is ours.


PARTS = ("compute", "communicate", "transfer")
_OF_RANKS = ("compute_s", "transfer_s")


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """How ranks are connected.

    Attributes:
        per_node: ranks of a node.
        node_bytes_s: bytes a second through a node's link, each way, shared by its ranks. The default is the paper's
            two links of 100 Gb/s.
        rank_bytes_s: bytes a second between ranks of a node; as measured where None.
        message_s: seconds of an exchange between two ranks, beside its bytes; as measured where None.

    Raises:
        PlanError: a number is not above 0.
    """

    per_node: int = 8
    node_bytes_s: float = 25e9
    rank_bytes_s: float | None = None
    message_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("per_node", "node_bytes_s", "rank_bytes_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise PlanError(f"{name}={value}: a number above 0 is needed.")
        if self.message_s is not None and not self.message_s >= 0:
            raise PlanError(f"message_s={self.message_s}: seconds of at least 0 are needed.")

    def moved(self, sent: Numbers) -> tuple[float, float]:
        """Bytes that the busiest rank sends or gets within its node, and the busiest node through its link.

        Args:
            sent: (R, R) bytes from rank to rank.
        """
        node = np.arange(len(sent)) // self.per_node
        apart = node[:, None] != node
        within = np.where(apart, 0.0, sent)
        between = np.zeros((node[-1] + 1, node[-1] + 1))
        np.add.at(between, (node[:, None], node[None, :]), np.where(apart, sent, 0.0))
        return _busiest(within), _busiest(between)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredStep:
    """Seconds of a step that was run, medians over steps.

    Attributes:
        name: what tables call it.
        work: of the step.
        compute_s: (R,) of each rank, by the wall clock or by its processor.
        transfer_s: (R,) the same.
        communicate_s: from the last rank's arrival to the end of exchanges, summed; None where ranks shared cores, so
            that no wall time is worth telling.
        step_s: wall time of the whole step, with all else; None likewise.
    """

    name: str
    work: StepWork
    compute_s: Numbers
    transfer_s: Numbers
    communicate_s: float | None = None
    step_s: float | None = None

    @property
    def ranks(self) -> int:
        """R."""
        return self.work.ranks

    @property
    def time(self) -> PredictedStepTime:
        """Its parts, of the slowest rank; communicate is 0 where it is not known."""
        slowest = int(np.argmax(self.compute_s + self.transfer_s))
        return PredictedStepTime(
            float(self.compute_s[slowest]), self.communicate_s or 0.0, float(self.transfer_s[slowest])
        )


@dataclass(frozen=True, slots=True)
class PredictedStepTime:
    """Seconds of a step by its parts."""

    compute_s: float
    communicate_s: float
    transfer_s: float

    @property
    def total_s(self) -> float:
        """Of all parts."""
        return self.compute_s + self.communicate_s + self.transfer_s


@dataclass(frozen=True, slots=True, eq=False)
class ScalingModel:
    """Rates of a machine and a model; see the head of this file.

    Attributes:
        compute: (5,) seconds of a unit of each column of ``StepWork.passes``.
        transfer: (3,) seconds of a unit of each column of ``StepWork.brought``; None where no step brought anything.
        message_s: seconds of an exchange between two ranks, beside its bytes; None where none was measured.
        byte_s: seconds of a byte between two ranks; None likewise.
    """

    compute: Numbers
    transfer: Numbers | None
    message_s: float | None
    byte_s: float | None

    def predict(self, work: StepWork, network: NetworkCosts | None = None) -> PredictedStepTime:
        """Seconds of a step.

        Raises:
            PlanError: a part of the step was never measured, and the network does not tell it.
        """
        compute, transfer = work.passes @ self.compute, np.zeros(work.ranks)
        if work.brought.any():
            if self.transfer is None:
                raise PlanError(
                    "graphs are brought in this step, and were in none that was measured: measure a run with two "
                    "blocks of time or more (blocks=2), or ask for one block."
                )
            transfer = work.brought @ self.transfer
        slowest = int(np.argmax(compute + transfer))
        exchanged = self._exchanged(work, network or NetworkCosts()) if work.exchanges else 0.0
        return PredictedStepTime(float(compute[slowest]), exchanged, float(transfer[slowest]))

    def _exchanged(self, work: StepWork, network: NetworkCosts) -> float:
        message_s = self.message_s if network.message_s is None else network.message_s
        byte_s = self.byte_s if network.rank_bytes_s is None else 1 / network.rank_bytes_s
        if message_s is None or byte_s is None:
            raise PlanError(
                f"what {work.ranks} ranks exchange takes time, and no run of two ranks or more was measured: measure "
                "one, or give rank_bytes_s and message_s."
            )
        within, between = network.moved(work.sent)
        return message_s * _messages(work) + byte_s * within + between / network.node_bytes_s


def fit_scaling(steps: Sequence[MeasuredStep]) -> ScalingModel:
    """The rates that fit measured steps best.

    Ranks of a step whose exchanges were timed are taken to be on one node.

    Raises:
        PlanError: no step is given.
    """
    if not steps:
        raise PlanError("no step was measured: nothing can be fitted.")
    passes, brought = (np.concatenate([getattr(step.work, name) for step in steps]) for name in ("passes", "brought"))
    compute_s, transfer_s = (np.concatenate([getattr(step, name) for step in steps]) for name in _OF_RANKS)
    compute = _non_negative(passes, compute_s)
    here = brought.any(axis=1)
    transfer = _non_negative(brought[here], transfer_s[here]) if here.any() else None
    timed = [step for step in steps if step.communicate_s is not None and step.work.exchanges]
    if not timed:
        return ScalingModel(compute, transfer, None, None)
    moved = np.array([(_messages(step.work), _busiest(step.work.sent)) for step in timed])
    message_s, byte_s = _non_negative(moved, np.array([step.communicate_s for step in timed], float))
    return ScalingModel(compute, transfer, float(message_s), float(byte_s))


def _messages(work: StepWork) -> float:
    """Exchanges, each as often as its latency counts."""
    return work.exchanges * log2(work.ranks)


def _busiest(sent: Numbers) -> float:
    """Most that one of them sends, or gets."""
    return float(max(sent.sum(axis=0).max(), sent.sum(axis=1).max()))


def _non_negative(rows: Numbers, seconds: Numbers) -> Numbers:
    """X >= 0 for which ``rows @ x`` comes nearest to ``seconds``, in relative terms: the best of all supports.

    Where several do as well, as where columns are multiples of each other, it is one with fewest rates.
    """
    above = seconds > 0
    rows, seconds = rows[above], seconds[above]
    best, least = np.zeros(rows.shape[1]), np.inf
    if not len(rows):
        return best
    left = rows / seconds[:, None]
    scale = np.abs(left).max(axis=0)
    scale[scale == 0] = 1.0
    for count in range(1, rows.shape[1] + 1):
        for support in combinations(range(rows.shape[1]), count):
            part = np.linalg.lstsq((left / scale)[:, support], np.ones(len(left)), rcond=1e-9)[0]
            rest = float(np.square((left / scale)[:, support] @ part - 1).sum())
            if (part >= 0).all() and rest < least * (1 - 1e-6) - 1e-18:
                best, least = np.zeros(rows.shape[1]), rest
                best[list(support)] = part
    return best / scale
