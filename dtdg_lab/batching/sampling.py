"""A few in-neighbours of each vertex, drawn so that its number, the snapshot and the epoch alone decide which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.streams import key
from dtdg_lab.graphs.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class SampledEdges:
    """The edges that were drawn for k vertices.

    Attributes:
        indptr: (k + 1,) int64: the i-th vertex pulls from ``indices[indptr[i]:indptr[i + 1]]``.
        indices: (E,) int32, numbers in the graph, ascending within a vertex.
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
    """At most ``fanout`` of the in-neighbours of each vertex, evenly and without repetition; all where there are fewer.

    What is drawn for a vertex depends on its number and the key alone: not on what else is asked for, and so neither
    on parts nor on ranks. With c neighbours of which k are drawn, weights grow by c / k. A sum over drawn neighbours is
    then on average the sum over all, whatever each is scaled by; with the degrees of the whole graph, convolutions and
    means over neighbours are so too.

    Args:
        snapshot: N vertices.
        rows: (k,) the vertices.
        fanout: the most neighbours drawn of one.
        key: see :func:`sampling_key`.

    Raises:
        PlanError: the fanout is below 1.

    References: FlareDTDG sections 2.2 and 4.1 on DynaGraph (Guan et al. 2022); Bentley, Floyd 1987 ("A sample of
    brilliance"), who draw k of c numbers with k draws.

    Differs from the paper: how DynaGraph draws and scales is not told; even draws and unbiased sums are ours.
    """
    if fanout < 1:
        raise PlanError(f"fanout={fanout}: at least 1 neighbour of each vertex must be drawn.")
    vertices = rows.astype(np.int64)
    start = snapshot.indptr[vertices]
    found = snapshot.indptr[vertices + 1] - start
    drawn = np.minimum(found, fanout)
    indptr = np.concatenate([[0], np.cumsum(drawn)])
    taken = np.arange(indptr[-1]) + np.repeat(start - indptr[:-1], drawn)
    many = np.flatnonzero(found > fanout)
    weights = snapshot.weights
    if len(many):
        chosen = _chosen(vertices[many], found[many], fanout, key)
        taken[indptr[many] + np.arange(fanout)[:, np.newaxis]] = start[many] + chosen
    weights = None if weights is None else weights[taken]
    if len(many):
        grown = np.repeat(found / np.maximum(drawn, 1), drawn)
        weights = (grown if weights is None else weights * grown).astype(np.float32)
    return SampledEdges(indptr, snapshot.indices[taken], weights)


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
