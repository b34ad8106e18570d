"""Events that describe the plans of a strategy, on rank 0."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dtdg_lab.distributed.group import Group
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.state import TrainingState

PlanEvents = list[tuple[str, dict[str, Any]]]  # kind and data


def plan_events(components: RunComponents, group: Group, previous: RunComponents | None = None) -> PlanEvents:
    """Return events that describe the plans in use, on rank 0; none on other ranks.

    Args:
        components: components in use.
        group: the ranks.
        previous: replaced components. An empty event ends each kind of plan that ``components`` lacks.
    """
    if group.rank != 0:
        return []
    strategy = components.strategy
    ended = (
        () if previous is None else [kind for kind in previous.strategy.plan_kinds if kind not in strategy.plan_kinds]
    )
    events = [(event.kind, event.write()) for event in strategy.plan_events()]
    return [*events, *((kind, {"layout": None}) for kind in ended)]


def report_plans(state: TrainingState, recorder: StepRecorder, kinds: Collection[str] | None = None) -> None:
    """Record the plans in use, of all kinds or of some."""
    for kind, data in plan_events(state.components, state.group):
        if kinds is None or kind in kinds:
            recorder.event(state.position, kind, data)
