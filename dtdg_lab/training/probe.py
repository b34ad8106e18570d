"""A step that nobody counts, run to see how much memory one takes."""

from __future__ import annotations

from functools import partial

from dtdg_lab.systems.decayed_windows.strategy import DecayedWindowStrategy
from dtdg_lab.systems.feature_cache.strategy import RemoteFeatureStrategy
from dtdg_lab.systems.hybrid_batches.strategy import NEW, SNAPSHOT, HybridBatchStrategy
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.memory import MemoryTrace, trace_memory


def probe_memory(built: RunComponents, *, device: str) -> MemoryTrace:
    """Memory over the largest step of the first epoch, of windows over the worst of all lengths; collective as steps.

    Gradients are zero afterwards.

    What the layout takes down of it (rows sent, groups timed) is dropped: with ``halo_reuse`` the rows that are moved
    once and kept are moved here.
    """
    layout = built.layout
    if isinstance(layout, HybridBatchStrategy):
        return _probed_batches(built, layout, device=device)
    if isinstance(layout, RemoteFeatureStrategy):
        traced = trace_memory(layout.tried, device=device)
        built.gradients.zero()
        return traced
    if isinstance(
        layout, DecayedWindowStrategy
    ):  # the worst need not be the longest, and no epoch need have all lengths
        return _probed_windows(built, layout, device=device)
    largest = max(layout.epoch(0), key=lambda work: (len(work.groups), work.snapshots))
    traced = trace_memory(partial(layout.compute, largest), device=device)
    built.gradients.zero()
    layout.rows()
    return traced


def _probed_windows(built: RunComponents, layout: DecayedWindowStrategy, *, device: str) -> MemoryTrace:
    traces = []
    for work in layout.by_length():
        layout.forget()
        traces.append(trace_memory(partial(layout.tried, work), device=device))
    built.gradients.zero()
    layout.forget()
    return max(traces, key=lambda traced: traced.peak_bytes)


def _probed_batches(built: RunComponents, layout: HybridBatchStrategy, *, device: str) -> MemoryTrace:
    """Memory over the largest batches there may be: all nodes where these may stand in for a batch."""
    traced = trace_memory(partial(layout.tried, SNAPSHOT if layout.stands_in else NEW), device=device)
    built.gradients.zero()
    return traced
