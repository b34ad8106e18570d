"""Work at the end of an epoch: new plans, tuning, evaluation; and decisions of a batch-size controller."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.errors import PlanError
from dtdg_lab.engine.capabilities import Adaptive, Replannable, Tunable
from dtdg_lab.training.control import Control
from dtdg_lab.training.memory import MemoryProbe
from dtdg_lab.training.plan_reports import report_plans
from dtdg_lab.training.position import Position
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.requests import RequestHandler
from dtdg_lab.training.state import TrainingState


class Decisions:
    """Decisions of a batch-size controller, made during training or replayed.

    Args:
        state: training state of this rank.
        control: decisions to repeat.
        recorder: writes records.
    """

    def __init__(self, state: TrainingState, control: Control, recorder: StepRecorder) -> None:
        self._state, self._control, self._recorder = state, control, recorder

    def after_step(self, loss: float | None, seconds: float, *, steps_ago: int = 0) -> None:
        """Decide by the loss and the seconds of a step, if a decision is due; ``steps_ago`` steps were made since."""
        strategy = self._state.strategy
        if isinstance(strategy, Adaptive) and not self._repeated(strategy):
            self._recorder.decision(
                self._state.position, strategy.decide_after_step(loss, seconds, steps_ago=steps_ago)
            )

    def after_evaluation(self, validation_loss: float | None) -> None:
        """Decide after an evaluation of the validation split, if a decision is due."""
        strategy = self._state.strategy
        if isinstance(strategy, Adaptive) and not self._repeated(strategy):
            self._recorder.decision(self._state.position, strategy.decide_after_evaluation(validation_loss))

    def _repeated(self, strategy: Adaptive) -> bool:
        """Make the recorded decision, if any; return True if decisions are repeated."""
        if self._control.repeats_decisions and strategy.decides:
            decision = self._control.decision(self._state.position.step)
            if decision is not None:
                strategy.repeat_decision(decision.action)
            self._recorder.decision(self._state.position, decision)
        return self._control.repeats_decisions


class EvaluationRunner:
    """Evaluations of a run, on all ranks together, or on rank 0 while the others train on.

    Args:
        state: training state of this rank.
        decisions: made after an evaluation.
        recorder: writes records.
    """

    def __init__(self, state: TrainingState, decisions: Decisions, recorder: StepRecorder) -> None:
        self._state, self._decisions, self._recorder = state, decisions, recorder
        self._evaluated_step = -1

    def run_if_due(self) -> None:
        """Evaluate the training and validation splits at the end of an epoch, if the settings ask for it."""
        state, position = self._state, self._state.position
        due = position.epoch % state.config["evaluate_every"] == 0
        if due and not state.is_last_epoch_over and position.step != self._evaluated_step:
            self._evaluated_step = position.step  # other ranks may make all steps of an epoch
            self.run(("train", "validation"))

    def run(self, splits: tuple[str, ...], *, final: bool = False) -> None:
        """Evaluate splits of the sequence, and let a batch-size controller decide unless the run is over."""
        state, components, started_ns = self._state, self._state.components, time.time_ns()
        if final or state.synchronous:
            results = components.evaluator.evaluate(components.model, splits, final=final)
        elif state.group.rank == 0:  # the others are at other steps, and train on
            results = components.own_evaluator.evaluate(components.model, splits)
        else:
            return
        self._recorder.evaluations(state.position, results)
        self._recorder.between(state.position.step, state.position.current_epoch, "evaluate", started_ns)
        if not final:
            losses = [scores.loss for scores in results if scores.split == "validation"]
            self._decisions.after_evaluation(losses[0] if losses else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """Work at the end of an epoch.

    Attributes:
        state: training state of this rank.
        control: plans to repeat.
        requests: refuses and records changes.
        recorder: writes records.
        memory_probe: measures the memory of a step.
        evaluation: evaluates the run.
    """

    state: TrainingState
    control: Control
    requests: RequestHandler
    recorder: StepRecorder
    memory_probe: MemoryProbe
    evaluation: EvaluationRunner

    def run(self, epoch: int) -> None:
        """Measure memory, adopt a new plan, tune settings and evaluate, each if due; collective."""
        self.memory_probe.run_if_due()
        self._replan()
        self._tune(epoch)
        self.evaluation.run_if_due()
        self.state.resource_monitor.end_epoch()

    def _replan(self) -> None:
        """Adopt a new plan if the epoch asks for one; if it cannot be built, all ranks keep the old one."""
        strategy, reason = self.state.strategy, ""
        if not isinstance(strategy, Replannable) or not (changes := strategy.epoch_changes):
            return
        try:
            if kinds := self.control.end_epoch(strategy, self.state.position.step):
                report_plans(self.state, self.recorder, kinds)
        except PlanError as error:
            reason = str(error)
        if reason := reason or self.requests.repeated_refusal(changes):
            self.requests.refuse(changes, reason)

    def _tune(self, epoch: int) -> None:
        state, started_ns = self.state, time.time_ns()
        if not isinstance(state.strategy, Tunable):
            return
        tuned = state.strategy.tune(epoch, state.config, state.components)
        if tuned is None:
            return
        decision, changes = tuned
        self.recorder.between(state.position.step, epoch, "evaluate", started_ns)  # of its trials
        self.recorder.decision(Position(epoch, 0, state.position.step), decision)
        if changed := state.settings.apply({"set": changes}):
            state.apply_settings()
            self._record_tuning(changed, decision.policy)

    def _record_tuning(self, changes: dict[str, Any], policy: str) -> None:
        self.requests.record_change(changes, "step", self.state.position.step, by=policy)
