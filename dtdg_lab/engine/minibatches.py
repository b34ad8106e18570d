"""Mini-batches of nodes and their sampled in-neighbours, fixed by seed, partition and number alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, DataError, PlanError
from dtdg_lab.core.plans import TargetBatch
from dtdg_lab.core.rng import generator, key
from dtdg_lab.graphs.snapshot import Snapshot

# A few in-neighbours of each node, drawn so that its number, the snapshot and the epoch alone decide which.


@dataclass(frozen=True, slots=True, eq=False)
class SampledEdges:
    """The edges that were drawn for k nodes.

    Attributes:
        indptr: (k + 1,) int64: the i-th node pulls from ``indices[indptr[i]:indptr[i + 1]]``.
        indices: (E,) int32, numbers in the graph, ascending within a node.
        weights: (E,) float32: an edge's own weight (1 where edges carry none), times neighbours over drawn neighbours.
            None where that is 1 for every edge.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None


def sampling_key(seed: int, epoch: int, snapshot: int, layer: int) -> int:
    """The key by which neighbours are drawn: another one for every epoch, snapshot and layer of the model."""
    return key(seed, "dynagraph/sample", epoch, snapshot, layer)


def sampled_edges(snapshot: Snapshot, rows: NDArray[np.integer], *, fanout: int, key: int) -> SampledEdges:
    """At most ``fanout`` of the in-neighbours of each node, evenly and without repetition; all where there are fewer.

    What is drawn for a node depends on its number and the key alone: not on what else is asked for, and so neither
    on parts nor on ranks. If k of c neighbours are sampled, weights are scaled by c / k. A sum over drawn neighbours is
    then on average the sum over all, whatever each is scaled by; with the degrees of the whole graph, convolutions and
    means over neighbours are so too.

    Args:
        snapshot: N nodes.
        rows: (k,) the nodes.
        fanout: the most neighbours drawn of one.
        key: see :func:`sampling_key`.

    Raises:
        PlanError: the fanout is below 1.

    References: FlareDTDG sections 2.2 and 4.1 on DynaGraph (Guan et al. 2022); Bentley, Floyd 1987 ("A sample of
    brilliance"), who draw k of c numbers with k draws.

    Differs from the paper: DynaGraph's sampling and scaling are not specified; ours are uniform and unbiased.
    """
    if fanout < 1:
        raise PlanError(f"fanout={fanout}: at least 1 neighbour of each node must be drawn.")
    vertices = rows.astype(np.int64)
    start = snapshot.indptr[vertices]
    found = snapshot.indptr[vertices + 1] - start
    drawn = np.minimum(found, fanout)
    indptr = np.concatenate([[0], np.cumsum(drawn)])
    taken = np.arange(indptr[-1]) + np.repeat(start - indptr[:-1], drawn)
    many = np.flatnonzero(found > fanout)
    if len(many):
        chosen = _chosen(vertices[many], found[many], fanout, key)
        taken[indptr[many] + np.arange(fanout)[:, np.newaxis]] = start[many] + chosen
    weights = None if snapshot.weights is None else snapshot.weights[taken]
    return SampledEdges(indptr, snapshot.indices[taken], scaled_weights(weights, found, drawn))


def scaled_weights(
    own: NDArray[np.float32] | None, found: NDArray[np.integer], drawn: NDArray[np.integer]
) -> NDArray[np.float32] | None:
    """Weights of drawn edges, (E,): an edge's own, times the neighbours found over those drawn of each node."""
    if (found <= drawn).all():
        return own
    grown = np.repeat(found / np.maximum(drawn, 1), drawn)
    return (grown if own is None else own * grown).astype(np.float32)


def _chosen(rows: NDArray[np.int64], found: NDArray[np.int64], fanout: int, key: int) -> NDArray[np.int64]:
    """For each row ``fanout`` different numbers below the number of neighbours found, ascending: (fanout, k)."""
    chosen = np.empty((fanout, len(rows)), np.int64)
    for place in range(fanout):
        last = found - fanout + place  # the highest that may be drawn; it stands in for one that has been drawn before
        number = _below(last + 1, rows, place, key)
        chosen[place] = np.where((chosen[:place] == number).any(axis=0), last, number)
    chosen.sort(axis=0)
    return chosen


def _below(bounds: NDArray[np.int64], rows: NDArray[np.int64], place: int, key: int) -> NDArray[np.int64]:
    """For each row a number from 0 to below its bound, which is less than 2^31: a function of row, place and key."""
    state: NDArray[Any] = (rows.astype(np.uint64) << np.uint64(32)) + np.uint64(place)
    # SplitMix64's output function (Steele, Lea, Flood 2014), a bijection of 64-bit numbers that the key chooses
    state = state * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key & ((1 << 64) - 1))
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state = (state ^ (state >> np.uint64(31))) >> np.uint64(32)
    return ((state * bounds.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


# Mini-batches of one part's nodes, such that seed, part and number alone decide what each has.


def fanouts_of(text: str, layers: int) -> tuple[int, ...]:
    """(L,) most neighbours drawn for each layer, the first layer first; the last number holds for further layers.

    Args:
        text: whole numbers with blanks between.
        layers: L.

    Raises:
        ConfigError: something else is given, a number is below 1, or there are more numbers than layers and not two.
    """
    words = text.split()
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ConfigError(
            f"fanouts={text!r}: whole numbers of 1 or more with blanks between are needed, one for each layer, the "
            "first layer first: such as '10 25'."
        )
    numbers = [int(word) for word in words]
    if len(numbers) > max(layers, 2):
        raise ConfigError(
            f"fanouts={text!r}: {len(numbers)} numbers for {layers} layer(s). Give one for each layer, or fewer: the "
            "last one holds for further layers."
        )
    return tuple((numbers + [numbers[-1]] * layers)[:layers])


@dataclass(frozen=True, slots=True, eq=False)
class SeedBatches:
    """The mini-batches of one part: B of its trained nodes at L consecutive snapshots, in a new order every epoch.

    In an epoch every trained node is a seed once in each stretch of L snapshots, or once in all where snapshots are
    alike. Parts have as many batches as the one with the most nodes: smaller ones go round again.

    Attributes:
        seed: of the run.
        part: number of the part.
        seeds: (k,) int64, numbers in the graph of the nodes that may be trained, ascending.
        size: B; batches of fewer nodes are whole parts.
        stretches: of consecutive snapshots that a batch may have, all of one length.
        rounds: batches in which the largest part's nodes are gone through.
        alike: whether snapshots are the same: then a batch has any one stretch.

    Raises:
        DataError: the part has no node to train.
        PlanError: a number below 1, or no stretch.

    References: Hamilton, Ying, Leskovec 2017, algorithm 2 (mini-batches); DistDGL (Zheng et al. 2020) section 5 (every
    trainer has seeds of its own part, and as many batches as the others).
    """

    seed: int
    part: int
    seeds: NDArray[np.int64]
    size: int
    stretches: tuple[range, ...]
    rounds: int
    alike: bool = False

    def __post_init__(self) -> None:
        if not len(self.seeds):
            raise DataError(
                f"part {self.part} has no node whose label may be trained: its mini-batches would be empty. Choose "
                "fewer parts, or another partitioner."
            )
        if self.size < 1 or self.rounds < 1 or not self.stretches:
            raise PlanError(
                f"mini-batches of {self.size} nodes in {self.rounds} rounds of {len(self.stretches)} stretches: "
                "each must be at least 1."
            )

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        return self.rounds * (1 if self.alike else len(self.stretches))

    def batch(self, number: int) -> TargetBatch:
        """The batch of a step, counted through all epochs.

        Its targets are numbers in the graph, ascending; a batch whose part has gone round has each once.

        Raises:
            PlanError: the number is negative.
        """
        if number < 0:
            raise PlanError(f"mini-batch {number}: numbers from 0 on are needed.")
        epoch, place = divmod(number, self.per_epoch)
        turn = _turns(self.seed, self.part, epoch, self.per_epoch)[place]
        stretch, chunk = divmod(int(turn), self.rounds)
        if self.alike:
            draw = key(self.seed, "seed-batches/stretch", self.part, number)
            stretch = draw % len(self.stretches)
        order = _order(self.seed, self.part, epoch, stretch if not self.alike else 0, len(self.seeds))
        first = chunk * self.size
        places = np.arange(first, first + min(self.size, len(order))) % len(order)
        return TargetBatch(self.part, 0, number, self.stretches[stretch], np.sort(self.seeds[order[places]]))


@lru_cache(maxsize=64)
def _turns(seed: int, part: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Which batch of the epoch comes when."""
    return generator(seed, "seed-batches/turns", part, epoch).permutation(count)


@lru_cache(maxsize=64)
def _order(seed: int, part: int, epoch: int, stretch: int, count: int) -> NDArray[np.int64]:
    """The order in which a stretch goes through the part's nodes."""
    return generator(seed, "seed-batches/order", part, epoch, stretch).permutation(count)


def stretches_of(snapshots: range, length: int) -> tuple[range, ...]:
    """The training split in stretches of L consecutive snapshots; the last may overlap the one before.

    Raises:
        ConfigError: the training split is shorter.
    """
    if length > len(snapshots):
        raise ConfigError(
            f"batch_length={length} of a training split of {len(snapshots)} snapshots: at most all of them are allowed."
        )
    firsts = [*range(snapshots.start, snapshots.stop - length + 1, length)]
    if firsts[-1] + length < snapshots.stop:
        firsts.append(snapshots.stop - length)
    return tuple(range(first, first + length) for first in firsts)


def rounds_of(trained: Sequence[int], size: int) -> int:
    """Batches of B nodes in which the largest part is gone through."""
    return max(1, -(-max(trained) // size))
