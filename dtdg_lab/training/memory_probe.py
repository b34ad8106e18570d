"""Measurement of the memory of a step of a run that is under way."""

from __future__ import annotations

from dtdg_lab.engine.capabilities import DescribesMemory
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.memory import MemoryTrace, trace_memory
from dtdg_lab.training.plan_reports import report_plans
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.state import TrainingState


class MemoryProbe:
    """Measures the memory of a step between epochs, never before the first step, which need not wait for it.

    Args:
        state: of this rank.
        recorder: writes records.

    Attributes:
        is_due: whether memory is measured at the end of this epoch, as at the end of the first one of every attempt.
    """

    def __init__(self, state: TrainingState, recorder: StepRecorder) -> None:
        self._state, self._recorder = state, recorder
        self.is_due = True

    def run_if_due(self) -> None:
        """Measure and record the memory of the largest step, if that is due; collective."""
        state = self._state
        if not self.is_due or not state.position.step:
            return
        self.is_due = False
        trace = largest_trace(state.components, device=state.device)
        self._recorder.memory(state.position, trace.peak_bytes)
        self._recorder.event(state.position, "memory_trace", trace.to_dict())
        if isinstance(state.strategy, DescribesMemory):
            report_plans(state, self._recorder, state.strategy.probed_plans)


def largest_trace(components: RunComponents, *, device: str) -> MemoryTrace:
    """Return the memory over the largest step of a strategy; gradients are zero afterwards. Collective as steps are."""
    traces = []
    for step in components.strategy.probe_steps():
        traces.append(trace_memory(step, device=device))
        components.gradients.zero()
    components.gradients.zero()  # the strategy may have computed more by itself
    return max(traces, key=lambda trace: trace.peak_bytes)
