"""What link prediction is asked about: some edges, random pairs that are none, and targets to rank edges against.

Every draw is a function of (seed, snapshot): the seed is made of the edges to be predicted, so that the same edges give
the same pairs on every rank and in every run, and nothing needs to be stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.rng import generator
from dtdg_lab.graphs.snapshot import EdgeSet, Ints

NO_VERTEX = -1  # fills rows of ranking candidates that have fewer than the others
_BLOCK = 1 << 20  # candidates drawn at once, so that little memory is needed beside them


@dataclass(frozen=True, slots=True, eq=False)
class LinkSamples:
    """P edges and Q pairs of different nodes that are no edges, each in the order of (source, target).

    Attributes:
        src: shape (P + Q,), int32: sources, the edges' first.
        dst: shape (P + Q,), int32: targets.
        positives: P.
    """

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    positives: int


def link_samples(edges: EdgeSet, *, seed: int, t: int, share: float, negatives: int) -> LinkSamples:
    """A share of the edges, drawn without repetition, and ``negatives`` as many other pairs.

    Args:
        edges: the edges to be predicted; self loops are none.
        seed: of the data.
        t: number of the snapshot.
        share: share of the edges that are taken, rounded, at least 1 where there are edges (theta of ESDG).
        negatives: pairs for each edge taken, out of all pairs of different nodes that are no edges, all equally
            likely and none twice; all of them where there are fewer.

    Source: ESDG section 6 (theta = 0.1, as many negatives); the seed is ours.
    """
    count = max(1, math.floor(share * len(edges) + 0.5)) if len(edges) else 0
    draw = generator(seed, "link/positives", t)
    chosen = np.sort(draw.choice(len(edges), count, replace=False, shuffle=False)) if count else np.zeros(0, np.int64)
    wanted = min(count * negatives, edges.absent)
    draw = generator(seed, "link/negatives", t)
    order = np.sort(draw.choice(edges.absent, wanted, replace=False, shuffle=False)) if wanted else chosen[:0]
    src, dst = edges.pairs(np.concatenate([edges.numbers[chosen], edges.nth_absent(order)]))
    return LinkSamples(src, dst, count)


def ranking_candidates(
    edges: EdgeSet, sources: NDArray[np.int32], *, seed: int, t: int, count: int
) -> NDArray[np.int32]:
    """For each source, targets that it has no edge to, itself excluded; shape (U, K), K at most ``count``.

    The M targets without an edge from a source are divided into ``count`` equal stretches from a random start, and one
    is drawn from each: every target is equally likely, and none comes twice. A source with M <= ``count`` gets all M;
    the rest of its row is ``NO_VERTEX``.

    Args:
        edges: the edges to be predicted.
        sources: shape (U,): distinct nodes.
        seed: of the data.
        t: number of the snapshot.
        count: targets wanted for each source.

    Source: ROLAND section 5 draws 1,000 such targets for each source; the stretches are ours.
    """
    first, available = edges.absent_from(sources)
    taken = np.minimum(available, count)
    width = int(taken.max(initial=0))
    draw = generator(seed, "link/ranking", t)
    start = (draw.random(len(sources)) * available).astype(np.int64)
    found = np.empty((len(sources), width), dtype=np.int32)
    step = max(1, _BLOCK // max(width, 1))
    for block in (slice(i, i + step) for i in range(0, len(sources), step)):
        order = _one_of_each_stretch(draw, available[block, None], taken[block, None], start[block, None], width)
        valid = np.arange(width) < taken[block, None]
        numbers = edges.nth_absent(np.where(valid, first[block, None] + order, 0))
        found[block] = np.where(valid, edges.pairs(numbers)[1], np.int32(NO_VERTEX))
    return found


def _one_of_each_stretch(
    draw: np.random.Generator, available: Ints, taken: Ints, start: Ints, width: int
) -> NDArray[np.int64]:
    """Places among ``available`` ones, (rows, width): the first ``taken`` of each row count and are all different."""
    # bounds by whole numbers, so that neighbouring stretches share no place
    bounds = np.minimum(np.arange(width + 1), taken) * available // np.maximum(taken, 1)
    low, length = bounds[:, :-1], np.diff(bounds, axis=1)
    within = low + (draw.random(length.shape) * length).astype(np.int64)
    return np.asarray((within + start) % np.maximum(available, 1))
