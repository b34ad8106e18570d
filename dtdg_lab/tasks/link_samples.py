"""Samples of link prediction: some edges, random pairs without an edge, and targets to rank edges against.

Every draw is a function of (seed, snapshot). The seed depends on the edges to predict, so that equal edges give equal
pairs on every rank and in every run without storing them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.rng import generator
from dtdg_lab.graphs.snapshot import EdgeSet, Ints, Snapshot

NO_VERTEX = -1  # fills short rows of ranking candidates
_CANDIDATES_AT_ONCE = 1 << 20  # candidates drawn at once, to bound memory


@dataclass(frozen=True, slots=True, eq=False)
class LinkSamples:
    """P edges and Q pairs of different nodes without an edge, each ordered by (source, target).

    Attributes:
        src: shape (P + Q,), int32: sources, the edges' first.
        dst: shape (P + Q,), int32: targets.
        positives: P.
    """

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    positives: int


def link_samples(edges: EdgeSet, *, seed: int, t: int, share: float, negatives: int) -> LinkSamples:
    """Draw a share of the edges without repetition, and ``negatives`` times as many other pairs.

    Args:
        edges: the edges to predict, without self-loops.
        seed: seed of the data.
        t: number of the snapshot.
        share: share of the edges to draw, rounded, at least one edge if there are any (theta of ESDG).
        negatives: number of pairs for each edge, drawn uniformly without replacement from all pairs of different nodes
            without an edge; all of them if there are fewer.

    Source: ESDG section 6 (theta = 0.1, as many negatives); the seed is ours.
    """
    count = max(1, math.floor(share * len(edges) + 0.5)) if len(edges) else 0
    positives = _draw_sorted(generator(seed, "link/positives", t), len(edges), count)
    absent = _draw_sorted(generator(seed, "link/negatives", t), edges.absent, min(count * negatives, edges.absent))
    src, dst = edges.pairs(np.concatenate([edges.numbers[positives], edges.nth_absent(absent)]))
    return LinkSamples(src, dst, count)


def _draw_sorted(rng: np.random.Generator, population: int, count: int) -> NDArray[np.int64]:
    """Return ``count`` different numbers below ``population``, ascending."""
    return np.sort(rng.choice(population, count, replace=False, shuffle=False)) if count else np.zeros(0, np.int64)


def ranking_candidates(
    edges: EdgeSet, sources: NDArray[np.int32], *, seed: int, t: int, count: int
) -> NDArray[np.int32]:
    """Draw, for each source, targets that it has no edge to, itself excluded; shape (U, K), K at most ``count``.

    The M targets without an edge from a source are divided into ``count`` equal stretches from a random start, and one
    is drawn from each: all targets are equally likely, without replacement. A source with M <= ``count`` gets all M;
    the rest of its row is ``NO_VERTEX``.

    Args:
        edges: the edges to predict.
        sources: shape (U,): distinct nodes.
        seed: seed of the data.
        t: number of the snapshot.
        count: number of targets for each source.

    Source: ROLAND section 5 draws 1,000 such targets for each source; the stretches are ours.
    """
    first, available = edges.absent_from(sources)
    drawn_counts = np.minimum(available, count)
    width = int(drawn_counts.max(initial=0))
    draw = generator(seed, "link/ranking", t)
    start = (draw.random(len(sources)) * available).astype(np.int64)
    candidates = np.empty((len(sources), width), dtype=np.int32)
    step = max(1, _CANDIDATES_AT_ONCE // max(width, 1))
    for block in (slice(i, i + step) for i in range(0, len(sources), step)):
        order = _one_of_each_stretch(draw, available[block, None], drawn_counts[block, None], start[block, None], width)
        valid = np.arange(width) < drawn_counts[block, None]
        numbers = edges.nth_absent(np.where(valid, first[block, None] + order, 0))
        candidates[block] = np.where(valid, edges.pairs(numbers)[1], np.int32(NO_VERTEX))
    return candidates


def _one_of_each_stretch(
    draw: np.random.Generator, available: Ints, counts: Ints, start: Ints, width: int
) -> NDArray[np.int64]:
    """Return positions below ``available``, (rows, width): the first ``counts`` of each row are valid and distinct."""
    # integer bounds, so that neighbouring stretches share no position
    bounds = np.minimum(np.arange(width + 1), counts) * available // np.maximum(counts, 1)
    low, length = bounds[:, :-1], np.diff(bounds, axis=1)
    within = low + (draw.random(length.shape) * length).astype(np.int64)
    return np.asarray((within + start) % np.maximum(available, 1))


_SAMPLED = 4096  # sources and rows read of a snapshot, since large graphs are on disk


def edge_seed(snapshots: Iterable[Snapshot]) -> int:
    """Return a seed below 2^256 that depends on edges, but not on features, labels, weights or smoothing.

    It hashes the numbers of nodes and edges of every snapshot, and about ``_SAMPLED`` evenly spaced edges.

    Args:
        snapshots: the snapshots, read once in order.

    Source: ours.
    """
    digest = hashlib.sha256(b"dtdg-lab edges 1")
    for snapshot in snapshots:
        digest.update(f"{snapshot.num_nodes},{snapshot.num_edges};".encode())
        for array, type_ in ((snapshot.indptr, np.int64), (snapshot.indices, np.int32)):
            sample = array[:: max(1, len(array) // _SAMPLED)]
            digest.update(np.ascontiguousarray(sample, dtype=type_).tobytes())
    return int(digest.hexdigest(), 16)
