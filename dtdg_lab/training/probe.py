"""A step that nobody counts, run to see how much memory one takes."""

from __future__ import annotations

from dtdg_lab.parallel.layout import Marks
from dtdg_lab.training.build import Built
from dtdg_lab.training.memory import MemoryTrace, trace_memory


def probe_memory(built: Built, *, device: str) -> MemoryTrace:
    """Memory over the largest step of the first epoch; gradients are zero afterwards. Collective as a step is.

    What the layout takes down of it (rows sent, groups timed) is dropped: with ``halo_reuse`` the rows that are moved
    once and kept are moved here.
    """
    largest = max(built.layout.epoch(0), key=lambda work: len(work.groups))

    def step(marks: Marks) -> None:
        built.layout.compute(largest, marks)

    traced = trace_memory(step, device=device)
    built.gradients.zero()
    built.layout.rows()
    return traced
