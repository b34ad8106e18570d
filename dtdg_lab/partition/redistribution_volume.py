"""Volume of a step of ESDG: the collectives between spatial and temporal parts of layers, compared with the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from dtdg_lab.config.model_facts import PASSES, Pull, SpatialOutput, check_memory, model_facts
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.measures import Counts
from dtdg_lab.partition.volume import Volume, empty_counts, pulled_volume, times_sent

# Every collective sends a row for each node and snapshot once. The paper counts six a layer: to nodes and back to
# snapshots, in forward, in the rerun and in backward. ``why`` explains where ours are fewer or have other widths.


_NARROW = (
    "what goes is Ã x, before its product with the layer's weights: {ours} numbers a row; the paper sends the "
    "product, of {paper}"
)
_BLOCK = "there is one block: nothing is computed again"
_LAST = "the loss is a sum over nodes, and computed where they are"
_READOUT = "pairs are scored from the readout, of {ours} numbers a row; the paper sends the embedding, of {paper}"
_SCORED_ONCE = "forward scores the last block alone: the others are scored in their rerun"
_CONSTANT = "Ã x of the data holds no parameter: no rank needs its gradient"
_KEPT = "Ã x of the data is the same in every step: it was sent in the first, and kept"
_SUMMARIES = "the paper has EvolveGCN-O only; -H reads the data, and every rank needs every snapshot's summary"
_WEIGHTS = "the paper has EvolveGCN-O only; these weights read the data, and a rank starts from those of the one before"


@dataclass(frozen=True, slots=True)
class AllToAllCost:
    """A collective of a step, ours or the paper's.

    Attributes:
        layer: layer of the model, from 0.
        pass_name: ``forward``, ``rerun`` (forward again, in all blocks but the last) or ``backward``.
        collective: ``to_vertices``, ``to_snapshots``, ``summaries`` or ``weights``.
        width: numbers in a row; 0 if we have no such collective.
        paper: the paper's width; 0 if the paper has no such collective.
        why: reason of a difference; empty if the widths are equal.
        only_last: whether only the last block has it in the forward pass.
    """

    layer: int
    pass_name: str
    collective: str
    width: int
    paper: int
    why: str = ""
    only_last: bool = False


def collectives(
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
    """Return the collectives of a step in order, including those that send nothing.

    Args:
        model: name in the catalogue.
        features: F.
        hidden: H.
        layers: layers of the model.
        pairs: outputs of a node that pairs are scored from (link prediction); 0 if the loss is a sum over nodes.
        blocks: number of blocks, nb; with one block, nothing is recomputed.
        reuse: whether Ã x of the data is cached from an earlier step (option ``halo_reuse``), and not sent again.
        options: options of the model.

    Raises:
        UnknownNameError: there is no such model.
        UnsupportedError: the model's memory does not run through time node by node.
        ConfigError: a size is below 1, or an option's value is not allowed.

    References: ESDG sections 4.2 (two redistributions a layer, mirrored by backward) and 3.1 (rerun).
    """
    check_memory(model, "snapshot", hidden=hidden, layers=layers, **options)
    facts = model_facts(model, features, hidden, layers, **options)
    widths = [features, *[hidden] * (layers - 1)]
    if facts.memory == "weights_from_data":
        summaries = [width * hidden for width in widths]
        gathered = ("weights", facts.relayed, _WEIGHTS) if facts.relayed else ("summaries", summaries, _SUMMARIES)
        return tuple(_gathered(*gathered, blocks=blocks))
    if facts.memory != "per_vertex":
        return ()
    layers_of_model = _TemporalLayers(model, tuple(widths), hidden, facts.spatial, pairs, blocks, reuse)
    return tuple(cost for pass_name in PASSES for cost in layers_of_model.collectives(pass_name))


def sent(costs: tuple[AllToAllCost, ...]) -> tuple[AllToAllCost, ...]:
    """Return the collectives that send something."""
    return tuple(cost for cost in costs if cost.width)


def _gathered(name: str, widths: Sequence[int], why: str, *, blocks: int) -> Iterator[AllToAllCost]:
    """Yield collectives from each rank to all, layer by layer; gradients return to the sender."""
    for pass_name in ("forward", *(["rerun"] if blocks > 1 else []), "backward"):
        layers = range(len(widths))
        for layer in reversed(layers) if pass_name == "backward" else layers:
            yield AllToAllCost(layer, pass_name, name, widths[layer], 0, why)


@dataclass(frozen=True, slots=True)
class _TemporalLayers:
    """Layers of a model whose nodes run through time; fields are the arguments of :func:`collectives`."""

    model: str
    widths: tuple[int, ...]
    hidden: int
    outputs: tuple[SpatialOutput, ...]
    pairs: int
    blocks: int
    reuse: bool

    def collectives(self, pass_name: str) -> Iterator[AllToAllCost]:
        if pass_name == "backward":
            yield from self._backward()
        elif pass_name == "rerun" and self.blocks == 1:
            for cost in self._forward(pass_name):
                yield AllToAllCost(cost.layer, pass_name, cost.collective, 0, cost.paper, _BLOCK)
        else:
            yield from self._forward(pass_name)

    @property
    def _last(self) -> int:
        return len(self.outputs) - 1

    def _input(self, layer: int) -> int:
        """Return the paper's width of rows to nodes: the input of its RNN."""
        skipped = self.widths[layer] if self.model == "cdgcn" else 0
        return skipped + (2 if self.model == "mpnn-lstm" else 1) * self.hidden

    def _forward(self, pass_name: str) -> Iterator[AllToAllCost]:
        for layer, output in enumerate(self.outputs):
            paper = self._input(layer)
            if layer == 0 and self.reuse and output.constant:
                yield AllToAllCost(layer, pass_name, "to_vertices", 0, paper, _KEPT)
            else:
                yield AllToAllCost(
                    layer, pass_name, "to_vertices", output.width, paper, _difference(_NARROW, output.width, paper)
                )
            if layer < self._last:
                yield AllToAllCost(layer, pass_name, "to_snapshots", self.hidden, self.hidden)
        yield self._readout(pass_name, "to_snapshots")

    def _backward(self) -> Iterator[AllToAllCost]:
        yield self._readout("backward", "to_vertices")
        for layer in range(self._last, -1, -1):
            output, paper = self.outputs[layer], self._input(layer)
            width = output.width if output.learned else 0
            why = _difference(_NARROW, output.width, paper) if output.learned else _CONSTANT
            yield AllToAllCost(layer, "backward", "to_snapshots", width, paper, why)
            if layer:  # gradient of the layer's input
                yield AllToAllCost(layer, "backward", "to_vertices", self.hidden, self.hidden)

    def _readout(self, pass_name: str, collective: str) -> AllToAllCost:
        """Return the collective after the last layer: embeddings to snapshots in the paper, and gradients back."""
        why = _difference(_READOUT, self.pairs, self.hidden) if self.pairs else _LAST
        only_last = bool(self.pairs) and pass_name == "forward" and self.blocks > 1
        if only_last:
            why = f"{why}; {_SCORED_ONCE}" if why else _SCORED_ONCE
        return AllToAllCost(self._last, pass_name, collective, self.pairs, self.hidden, why, only_last)


def _difference(template: str, ours: int, paper: int) -> str:
    return template.format(ours=ours, paper=paper) if ours != paper else ""


def collective_rows(
    blocks: SnapshotBlocks, name: str, *, pass_name: str = "forward", only_last: bool = False
) -> Counts:
    """Count rows from rank p to rank q of one collective in all blocks of a pass, at [p, q]: (R, R); none to itself.

    In a block, p sends to q the rows of its own snapshots and q's chunk of nodes (``to_vertices``), or of q's snapshots
    and its own chunk (``to_snapshots``). ``summaries`` are one row for each own snapshot to all ranks of the column,
    and in backward from all of them. ``weights`` are one row of each rank with a snapshot. Rows stay within a column.
    With even shares and ``row_ranks`` of 1, the total is S N (R - 1) / R in each pass except ``rerun``.

    Args:
        blocks: snapshots and nodes of each rank.
        name: ``to_vertices``, ``to_snapshots``, ``summaries`` or ``weights``.
        pass_name: ``forward``, ``backward``, or ``rerun``: all blocks but the last.
        only_last: whether only the last block has it.
    """
    ranks, last = range(blocks.ranks), blocks.blocks - 1
    passed = range(last if only_last else 0, last if pass_name == "rerun" else last + 1)
    counts = np.array([[len(blocks.own(block, rank)) for block in passed] for rank in ranks], np.int64)
    counts = counts.reshape(blocks.ranks, len(passed))  # without any block, too
    snapshots, to_all = (counts > 0 if name == "weights" else counts).sum(axis=1), name in ("summaries", "weights")
    chunk = np.array([len(blocks.chunk(rank)) for rank in ranks], np.int64)
    column = np.arange(blocks.ranks) % blocks.row_ranks
    rows = np.outer(snapshots, np.ones_like(snapshots) if to_all else chunk) * (column[:, None] == column)
    np.fill_diagonal(rows, 0)
    returns = name == "to_snapshots" or (to_all and pass_name == "backward")
    return rows.T.copy() if returns else rows


def redistributed(blocks: SnapshotBlocks, collectives: Sequence[AllToAllCost], layers: int) -> Volume:
    """Count the volume of the collectives of a step.

    Args:
        blocks: snapshots and nodes of each rank.
        collectives: collectives of a step, by :func:`dtdg_lab.partition.redistribution_volume.collectives`.
        layers: number of layers, L.
    """
    rows, numbers = empty_counts(layers, blocks.ranks), empty_counts(layers, blocks.ranks)
    for cost in collectives:
        if cost.width:
            moved = collective_rows(blocks, cost.collective, pass_name=cost.pass_name, only_last=cost.only_last)
            rows[cost.pass_name][cost.layer] += moved
            numbers[cost.pass_name][cost.layer] += moved * cost.width
    return Volume(rows, numbers)


def pulled_by_groups(
    snapshots: Sequence[Snapshot], blocks: SnapshotBlocks, pulls: Sequence[Pull], *, rerun: bool, reuse: bool = False
) -> Volume:
    """Count the halo rows within groups of ranks that split each snapshot by rows; none if ``row_ranks`` is 1.

    Rows that ``top`` gathers are not counted.

    Args:
        snapshots: all snapshots of the graph; those of ``blocks`` are counted.
        blocks: snapshots and rows of each rank.
        pulls: pulls of the model.
        rerun: whether backward repeats a block's pulls.
        reuse: whether pulls of the data alone are cached from an earlier step.
    """
    size = blocks.row_ranks
    layers = 1 + max((pull.layer for pull in pulls), default=0)
    rows, numbers = empty_counts(layers, blocks.ranks), empty_counts(layers, blocks.ranks)
    if size == 1:
        return Volume(rows, numbers)
    owner = np.concatenate([np.full(len(blocks.rows(rank)), rank, np.int32) for rank in range(size)])
    for group in range(blocks.groups):
        shares = [blocks.own(block, group * size) for block in range(blocks.blocks)]
        of_group = [snapshots[t] for share in shares for t in share]
        again = len(of_group) - len(shares[-1]) if rerun else 0
        times = partial(times_sent, snapshots=len(of_group), rerun_before=again, reuse=reuse)
        volume = pulled_volume(of_group, Partition(owner, size), pulls, times)
        ranks = slice(group * size, (group + 1) * size)
        for pass_name in PASSES:
            rows[pass_name][:, ranks, ranks] += volume.rows[pass_name]
            numbers[pass_name][:, ranks, ranks] += volume.numbers[pass_name]
    return Volume(rows, numbers)


# ESDG section 6.3, Figures 5 and 7: speed-ups of 128 GPUs over 1; strong (False) is the best of all graphs and models
PAPER_SPEEDUPS: Mapping[bool, Mapping[str, float]] = MappingProxyType(
    {
        False: MappingProxyType({"cdgcn": 30.0, "tmgcn": 30.0, "evolvegcn-o": 30.0}),
        True: MappingProxyType({"cdgcn": 79.0, "tmgcn": 125.0, "evolvegcn-o": 260.0}),
    }
)
