"""The user's own graph without times, as a sequence of equal snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.own import built, cut_own
from dtdg_lab.graphs.arrays import stored_once
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.given import as_vector

LEAST = 8  # snapshots: with fewer, the usual protocol leaves a part empty
_BUILT = 3  # intervals that are built, of which the first snapshot is taken


def from_static(
    src: ArrayLike,
    dst: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    features: str | ArrayLike | Mapping[Any, ArrayLike] | None = None,
    labels: ArrayLike | Mapping[Any, int] | None = None,
    snapshots: int = LEAST,
    name: str = "mine",
) -> DynamicGraph:
    """A graph that never changes, from E edges, for ``RunConfig(dataset=graph)``: T equal snapshots, held once.

    With ``labels``, 60 % of the labelled vertices train, 20 % validate and 20 % test; each part of the sequence tells
    of its own vertices. Mini-batches (:class:`dtdg_lab.batching.seed_batches.SeedBatches`) take such snapshots as one.

    Args:
        src: sources, shape (E,).
        dst: targets, shape (E,).
        weight: weights, shape (E,).
        features: a name, or numbers (N, F) in the order of the sorted ids, or a mapping from ids.
        labels: classes, shape (N,), -1 where unknown, or a mapping from ids.
        snapshots: T.
        name: what runs and reports call the graph.

    Raises:
        DataError: vectors do not fit together, hold values of the wrong kind, or there are too few snapshots.
    """
    if snapshots < LEAST:
        raise DataError(f"snapshots={snapshots}: at least {LEAST}, so that each part of a protocol has some.")
    sources, targets = as_vector(src, "src", "ids of vertices"), as_vector(dst, "dst", "ids of vertices")
    times = np.repeat(np.arange(_BUILT), len(sources))
    repeated = None if weight is None else np.tile(as_vector(weight, "weight", "numbers"), _BUILT)
    edges = cut_own(np.tile(sources, _BUILT), np.tile(targets, _BUILT), times, repeated, interval=1.0)
    once = built(edges, features, labels, name=name, source=f"given in memory ({len(sources):,} rows, without times)")
    first = once.snapshots[0]
    return DynamicGraph(
        name=once.name, snapshots=(first,) * snapshots, features=stored_once(once.features) if once.static_features
        else once.features[0], targets=np.tile(once.targets[0], (snapshots, 1)),
        persistence=np.tile(once.persistence[0], (snapshots, 1)), source=once.source, edge_life=1,
        node_ids=once.node_ids, following=(first,) * snapshots,
        classes=None if once.classes is None else once.classes[0], vertex_split=once.vertex_split,
    )  # fmt: skip
