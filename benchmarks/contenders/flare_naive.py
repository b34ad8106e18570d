"""Decayed snapshots induced and relabelled anew in every step, beside prefixes of one numbering; for flaredtdg.py."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab.graphs.snapshot import Snapshot
    from dtdg_lab.systems.decayed_windows.window import HybridBatch, Shrinker, ShrunkenEdges, SurvivalOrder


@contextmanager
def naive_remapping(on: bool) -> Iterator[None]:
    """While it lasts, whoever asks a shrinker for edges gets them by the naive way."""
    if not on:
        yield
        return
    from dtdg_lab.systems.decayed_windows.window import Shrinker, naive_edges

    real = Shrinker.edges

    def edges(self: Shrinker, t: int, rows: int, direction: str = "in") -> ShrunkenEdges:
        order = self._order
        assert order is not None
        return naive_edges(self._snapshots[t], order.vertices[:rows], order.parts[:rows], direction)

    Shrinker.edges = edges  # type: ignore[method-assign]
    try:
        yield
    finally:
        Shrinker.edges = real  # type: ignore[method-assign]


def cut_out(
    snapshots: Sequence[Snapshot], order: SurvivalOrder, batches: Iterable[HybridBatch], *, naive: bool
) -> dict[str, Any]:
    """The edges of all decayed snapshots of an epoch, without training: seconds, most bytes of arrays, edges.

    The epoch's numbering is made first and counts in its own seconds. Memory is taken in a second pass, which
    accounting makes slow.
    """
    seconds, renumber_s, edges = _pass(snapshots, order, batches, naive=naive)
    tracemalloc.start()
    try:
        _pass(snapshots, order, batches, naive=naive)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return {"seconds": seconds, "renumber_s": renumber_s, "edges": edges, "peak_bytes": peak}


def _pass(
    snapshots: Sequence[Snapshot], order: SurvivalOrder, batches: Iterable[HybridBatch], *, naive: bool
) -> tuple[list[float], float, int]:
    from dtdg_lab.systems.decayed_windows.window import Shrinker

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
