"""Decayed snapshots induced and relabelled anew in every step, beside prefixes of one numbering; for flaredtdg.py."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dtdg_lab.graphs.snapshot import Snapshot
    from dtdg_lab.systems.decayed_windows.shrinking import Shrinker, ShrunkenEdges, SurvivalOrder
    from dtdg_lab.systems.decayed_windows.window import Window


def naive_edges(snapshot: Snapshot, vertices: NDArray[np.int64], parts: NDArray[np.int32]) -> ShrunkenEdges:
    """Return the edges of a snapshot among some nodes, within one part each: the induced subgraph, relabelled.

    It reads every edge of the snapshot and sorts the end points that are left.

    Args:
        snapshot: N nodes.
        vertices: (n,) distinct ones, in the order in which they are renumbered.
        parts: (n,) the part of each.

    Returns:
        The edges; a row's columns are ordered as those of the shrinker.

    References: the variant without shrinking of FlareDTDG section 4.3 (tables 9 and 10).
    """
    from dtdg_lab.kernels.uploads import as_tensor
    from dtdg_lab.systems.decayed_windows.shrinking import ShrunkenEdges

    part = np.full(snapshot.num_nodes, -1, np.int32)
    part[vertices] = parts
    targets, sources = snapshot.rows(), snapshot.indices.astype(np.int64)
    held = (part[targets] >= 0) & (part[targets] == part[sources])
    targets, sources = targets[held], sources[held]
    weights = None if snapshot.weights is None else snapshot.weights[held]

    rows, edges = len(vertices), len(targets)
    labels, label = np.unique(np.concatenate([vertices, targets, sources]), return_inverse=True)
    number = np.empty(len(labels), np.int64)
    number[label[:rows]] = np.arange(rows)
    to, of = number[label[rows : rows + edges]], number[label[rows + edges :]]
    order = np.lexsort((sources, to))
    indptr = as_tensor(np.concatenate([[0], np.cumsum(np.bincount(to, minlength=rows))]).astype(np.int32))
    indices = as_tensor(of[order].astype(np.int32))
    # nothing is cut out of these edges again, so they need no levels
    return ShrunkenEdges(indptr, indices, None if weights is None else as_tensor(weights[order]), indices, np.empty(0))


@contextmanager
def naive_remapping(on: bool) -> Iterator[None]:
    """While it lasts, whoever asks a shrinker for edges gets them by the naive way."""
    if not on:
        yield
        return
    from dtdg_lab.systems.decayed_windows.shrinking import Shrinker

    real = Shrinker.edges

    def edges(self: Shrinker, t: int, rows: int) -> ShrunkenEdges:
        order = self._numbering.order
        return naive_edges(self._snapshots[t], order.vertices[:rows], order.parts[:rows]).on(self._device)

    Shrinker.edges = edges  # type: ignore[method-assign]
    try:
        yield
    finally:
        Shrinker.edges = real  # type: ignore[method-assign]


def cut_out(
    snapshots: Sequence[Snapshot], order: SurvivalOrder, batches: Iterable[Window], *, naive: bool
) -> dict[str, Any]:
    """The edges of all decayed snapshots of an epoch, without training: seconds, most bytes of arrays, edges.

    The epoch's numbering is made first and counts in its own seconds. Memory is taken in two more passes, which
    accounting makes slow: the most bytes of arrays, and the most of tensors, as if both came at once.
    """
    from dtdg_lab.training.memory import peak_bytes

    seconds, renumber_s, edges = _pass(snapshots, order, batches, naive=naive)
    tracemalloc.start()
    try:
        _pass(snapshots, order, batches, naive=naive)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    peak += peak_bytes(lambda: _pass(snapshots, order, batches, naive=naive) and None)
    return {"seconds": seconds, "renumber_s": renumber_s, "edges": edges, "peak_bytes": peak}


def _pass(
    snapshots: Sequence[Snapshot], order: SurvivalOrder, batches: Iterable[Window], *, naive: bool
) -> tuple[list[float], float, int]:
    from dtdg_lab.systems.decayed_windows.shrinking import Shrinker

    shrinker, edges, seconds = Shrinker(snapshots), 0, []
    began_s = time.perf_counter()
    shrinker.renumber(order)
    renumber_s = time.perf_counter() - began_s
    with naive_remapping(naive):
        for batch in batches:
            began_s, held = time.perf_counter(), []
            shrinker.keep_only(batch.decayed)
            for t, count in zip(batch.decayed, batch.counts, strict=True):
                held.append(shrinker.edges(t, int(order.rows[count])))
            seconds.append(time.perf_counter() - began_s)
            edges += sum(each.num_edges for each in held)
    return seconds, renumber_s, edges
