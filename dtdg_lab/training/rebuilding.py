"""Changes of epoch settings: components are rebuilt between two epochs and continue from the state in memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.capabilities import DescribesMemory
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training.build import RunComponents, build
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.collective import attempted, share_moments
from dtdg_lab.training.control import Control
from dtdg_lab.training.coordination import RankCoordinator
from dtdg_lab.training.live_settings import merged
from dtdg_lab.training.memory import MemoryProbe
from dtdg_lab.training.plan_reports import PlanEvents, plan_events
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.requests import RequestHandler
from dtdg_lab.training.state import TrainingState

Changes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Components under changed settings.

    Attributes:
        components: the new components.
        events: events that describe their plans.
    """

    components: RunComponents
    events: PlanEvents


def rebuild(
    config: RunConfig,
    changes: Changes,
    memory: Checkpoint,
    graph: DynamicGraph,
    group: Group,
    *,
    device: str,
    previous: RunComponents,
) -> tuple[Rebuilt | None, str]:
    """Rebuild the components, or return the reason of a failure, the same on every rank; collective.

    After a failure, training continues as before. A network device shaped by netem is released first, since both
    networks need it.

    Args:
        config: the settings before the changes.
        changes: the changed settings.
        memory: checkpoint with the parameters and optimizer state to continue with.
        graph: the data.
        group: the ranks.
        device: device of this rank.
        previous: the components to replace.
    """

    def make() -> RunComponents:
        components = build(config.replace(**changes), graph, group, device=device, plan=memory.plan)
        try:
            memory.restore(components.model, components.optimizer)
        except BaseException:
            components.close()
            raise
        return components

    if previous.network is not None and previous.config["congestion_by"] == "netem":
        _, reason = attempted(previous.network.release, group, device=device)
        if reason:
            return None, reason
    components, reason = attempted(make, group, device=device)
    events: PlanEvents | None = None
    if components is not None and not reason:
        events, reason = attempted(partial(plan_events, components, group, previous), group, device=device)
    if components is None or reason:
        if components is not None:
            components.close()
        return None, reason
    return Rebuilt(components, events or []), ""


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """Outcome of the requests that waited for the end of an epoch.

    Attributes:
        rebuilt: the new components; None if nothing changes.
        changes: the applied changes.
        refused: refused requests with reasons, oldest first.
    """

    rebuilt: Rebuilt | None
    changes: Changes
    refused: list[tuple[Changes, str]]


def apply_requests(
    requests: Sequence[Changes],
    merge: Callable[[Sequence[Changes]], Changes],
    make: Callable[[Changes], tuple[Rebuilt | None, str]],
) -> RequestOutcome:
    """Apply the requests together, or as many of them as possible; collective if ``make`` is.

    If they fail together, each is tried on top of the accepted ones, oldest first. A refused request is tried again
    after others have been accepted, which may make it possible.

    Args:
        requests: one or more requests.
        merge: merges the changes of several requests.
        make: returns the components under changed settings, or the reason of a failure.
    """
    merged_changes = merge(requests)
    rebuilt, reason = make(merged_changes)
    if rebuilt is not None:
        return RequestOutcome(rebuilt, merged_changes, [])
    if len(requests) == 1:
        return RequestOutcome(None, {}, [(requests[0], reason)])
    failed, accepted = [(merged_changes, reason)], [False] * len(requests)
    reasons, settings, changed = [""] * len(requests), dict[str, Any](), True
    while changed:
        changed = False
        for index in range(len(requests)):
            if accepted[index]:
                continue
            trial = merge([request for i, request in enumerate(requests) if accepted[i] or i == index])
            known_reasons = [why for changes, why in failed if changes == trial]
            if known_reasons:
                reasons[index] = reasons[index] or known_reasons[0]
                continue
            if trial != settings:
                if rebuilt is not None:
                    rebuilt.components.close()  # memory may not hold both
                rebuilt, reason = make(trial)
                if rebuilt is None:
                    failed, reasons[index] = [*failed, (trial, reason)], reason
                    continue
            accepted[index], settings, changed = True, trial, True
    if settings and rebuilt is None:  # closed for a later trial that failed
        rebuilt, reason = make(settings)
        if rebuilt is None:
            return RequestOutcome(None, {}, [(request, reasons[i] or reason) for i, request in enumerate(requests)])
    refused = [(request, reasons[i]) for i, request in enumerate(requests) if not accepted[i]]
    return RequestOutcome(rebuilt, settings, refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilder:
    """Rebuilds the components between two epochs if requests change epoch settings.

    Attributes:
        state: training state of this rank.
        control: refusals and plans to repeat.
        requests: refuses and records changes.
        coordinator: paces the ranks.
        recorder: writes records.
        memory_probe: measures memory again if it may have changed.
    """

    state: TrainingState
    control: Control
    requests: RequestHandler
    coordinator: RankCoordinator
    recorder: StepRecorder
    memory_probe: MemoryProbe

    def rebuild_if_requested(self) -> bool:
        """Apply changes of epoch settings, and return True if components were replaced; collective.

        A failed request does not affect the run or other requests. A run resumed within an epoch finishes it under the
        old settings.
        """
        state = self.state
        if not state.settings.requests or state.position.iteration:
            return False
        started_ns = time.time_ns()
        outcome = self._settle(state.settings.requests)
        state.settings.requests = []
        for changes, reason in outcome.refused:
            self.requests.refuse(changes, reason)
        is_replaced = outcome.rebuilt is not None
        if outcome.rebuilt is not None:
            self._replace(outcome.rebuilt, outcome.changes, started_ns)
        del outcome
        gc.collect()  # sequences are in reference cycles, and memory may not hold two of them
        return is_replaced

    def _settle(self, requests: list[Changes]) -> RequestOutcome:
        """Apply or refuse requests; a replay refuses the same ones as the recorded run."""
        state, synchronous = self.state, self.state.synchronous
        reasons = self.control.refusals(state.position.step, requests, synchronous=synchronous)
        refused = [(changes, reason) for changes, reason in zip(requests, reasons, strict=True) if reason]
        allowed = [changes for changes, reason in zip(requests, reasons, strict=True) if not reason]
        if not allowed:
            return RequestOutcome(None, {}, refused)
        config, memory = state.config, replace(state.checkpoint(), waiting=[])
        memory.plan.update(self.control.recorded_plan(state.position, synchronous=synchronous))

        def make(changes: Changes) -> tuple[Rebuilt | None, str]:
            graph, group, previous = state.graph, state.group, state.components
            return rebuild(config, changes, memory, graph, group, device=state.device, previous=previous)

        outcome = apply_requests(allowed, partial(merged, config), make)
        return replace(outcome, refused=[*refused, *outcome.refused])

    def _replace(self, rebuilt: Rebuilt, changes: Changes, started_ns: int) -> None:
        state, was_synchronous = self.state, self.state.synchronous
        previous, state.components = state.components, rebuilt.components
        previous.close()
        self.recorder.newest = None  # its seconds and loss say nothing about the new strategy
        state.settings.config = rebuilt.components.config
        if state.synchronous and not was_synchronous:  # ranks were at different steps
            self.coordinator.join_rank_0()
            share_moments(state.components.optimizer, state.group)
        self.coordinator.begin_interval()
        state.apply_settings()
        self._record(changes, rebuilt.events, started_ns)
        if rebuilt.components.compute != previous.compute:
            self.recorder.write(state.position, rebuilt.components.compute.event(state.device))
        if isinstance(state.strategy, DescribesMemory) and state.strategy.probes_after(previous.strategy):
            self.memory_probe.is_due = True
        self.memory_probe.run_if_due()
        state.open()

    def _record(self, changes: Changes, events: PlanEvents, started_ns: int) -> None:
        step, epoch = self.state.position.step, self.state.position.epoch
        duration_s = (self.recorder.between(step, epoch, "rebuild", started_ns) - started_ns) * 1e-9
        self.requests.record_change(changes, "epoch", step, duration_s=duration_s)
        for kind, data in events:
            self.recorder.event(self.state.position, kind, {**data, "rebuild_s": duration_s})
