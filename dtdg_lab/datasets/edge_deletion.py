"""A static graph made dynamic: every snapshot holds a random part of the edges, and its size follows a growth curve.

Source: DyGNeX section 5.1 ("randomly deleting some of the edges from the static graph", after Fu et al. 2023, BLAD) and
appendix E; Cora-T and Pubmed-T of DynaHB (table 1) are made so, with 50 snapshots.

Ours, where the papers say nothing: the parts are nested, so an edge that is there once stays; the two directions of an
undirected edge come together; vertices, their features, classes and split never change; the last snapshot holds all
edges. Differs from DyGNeX: its curve is that of Stackoverflow, which it does not print, and vertices are not deleted
(of its three graphs it does that to two); one without an edge so far is simply alone. Differs from DynaHB: Cora-T has
0.05 million vertices there, Cora 2,708, and Pubmed-T 0.39 million for 19,717: twenty times as many, unexplained.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.streams import key
from dtdg_lab.datasets.generators.counts import growing_counts
from dtdg_lab.datasets.generators.settings import checked_settings
from dtdg_lab.datasets.tables import StaticTable
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.keys import distinct, keys_of, sources, targets
from dtdg_lab.graphs.snapshot import Snapshot

VERSION = 1  # raise it when the same table and settings give other snapshots


@checked_settings
def grow(
    table: StaticTable, *, seed: int, snapshots: int, growth: float, growth_curve: str = "linear", noise: float = 0.0
) -> IntervalStream:
    """B = ``snapshots`` base intervals over the table's N vertices; duplicates are merged, self loops kept.

    Memory: 8 bytes for each of the table's E edges as long as the intervals are used, 50 for a moment here, and one
    snapshot at a time; never B times E.

    Args:
        table: the static graph.
        seed: seed of the random stream.
        snapshots: B.
        growth: edges of the last interval, which are all, over those of the first.
        growth_curve: ``linear``, ``exponential`` or ``logistic``.
        noise: standard deviation of the number of edges around the curve, relative. Where it would make the number
            fall, the number stays, because edges stay.

    Raises:
        ConfigError: a setting is out of its bounds.
    """
    if not 0 <= noise <= 1:
        raise ConfigError(f"noise={noise}; a share of the number of edges, from 0 to 1, is allowed.")
    keys = distinct(np.sort(keys_of(table.src, table.dst)))
    counts = growing_counts(
        (seed, "edge_deletion/counts"), len(keys), snapshots=snapshots, growth=growth, growth_curve=growth_curve,
        noise=noise,
    )  # fmt: skip
    counts = np.maximum.accumulate(counts).clip(max=len(keys))
    counts[-1] = len(keys)
    born = _born(_draws_of_pairs(seed, keys), counts)
    in_degree = np.bincount(targets(keys), minlength=table.num_nodes)
    return IntervalStream(
        num_intervals=snapshots, num_nodes=table.num_nodes, weighted=False, rows=len(table.src),
        make=partial(_snapshots, in_degree, sources(keys), born, snapshots), node_ids=table.node_ids,
        features=table.features, classes=table.classes, vertex_split=table.vertex_split,
    )  # fmt: skip


def _draws_of_pairs(seed: int, keys: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A random number for every edge, equal for both directions of a pair and for no two pairs; shape (E,).

    SplitMix64's mixing of pair and seed (Steele, Lea, Flood 2014), twice: a draw that is a function of the pair needs
    no table of pairs.
    """
    src, dst = sources(keys), targets(keys)
    draws = keys_of(np.maximum(src, dst), np.minimum(src, dst)).view(np.uint64)
    del src, dst
    both = key(seed, "edge_deletion/edges")
    for half in (both & (2**64 - 1), both >> 64):
        draws ^= np.uint64(half)
        draws ^= draws >> np.uint64(30)
        draws *= np.uint64(0xBF58476D1CE4E5B9)
        draws ^= draws >> np.uint64(27)
        draws *= np.uint64(0x94D049BB133111EB)
        draws ^= draws >> np.uint64(31)
    return draws


def _born(draws: NDArray[np.uint64], counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """The first interval of every edge, shape (E,); ``counts[t]`` are born by t, or one more to complete a pair."""
    limits = np.sort(draws)[counts - 1]
    return np.searchsorted(limits, draws).astype(np.int32)


def _snapshots(
    in_degree: NDArray[np.int64], src: NDArray[np.int32], born: NDArray[np.int32], snapshots: int
) -> Iterator[Snapshot]:
    occupied = in_degree > 0
    starts = (np.cumsum(in_degree) - in_degree)[occupied]  # where the edges into each vertex that has some begin
    for interval in range(snapshots):
        there = born <= interval
        indptr = np.zeros(len(in_degree) + 1, dtype=np.int64)
        indptr[1:][occupied] = np.add.reduceat(there, starts, dtype=np.int64)
        np.cumsum(indptr, out=indptr)
        yield Snapshot.trusted(give_up(indptr), give_up(src[there]))
