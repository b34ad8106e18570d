"""Rows, numbers and bytes that a step of ESDG sends from rank to rank, told before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.model_pulls import Pull
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.pulled_rows import pulled_rows
from dtdg_lab.partition.snapshot_legs import WAYS, Leg

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

    In a block p sends q the rows of its own snapshots and of q's chunk of vertices (``to_vertices``), or those of q's
    snapshots and of its own chunk (``to_snapshots``); ``summaries`` are one row for each own snapshot, to all of the
    column, and on the way back from all of them. Rows stay within a column. Over all pairs that is S N (R - 1) / R in
    each way but ``rerun``, where all shares are even and ``row_ranks`` is 1.

    Args:
        blocks: who has which snapshots and vertices.
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


def redistributed(blocks: SnapshotBlocks, legs: Sequence[Leg], layers: int) -> Volume:
    """Volume of the legs of a step.

    Args:
        blocks: who has which snapshots and vertices.
        legs: of a step, by :func:`dtdg_lab.partition.snapshot_legs.legs`.
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
            ("forward", ahead, len(times)), ("rerun", ahead and rerun, last), ("backward", pull.learned, len(times)),
        ):  # fmt: skip
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
    """Volume of a step where ranks own vertices and exchange halo rows: what hypergraph vertex partition sends.

    Args:
        snapshots: those trained.
        partition: of their vertices into R parts, one for each rank.
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
