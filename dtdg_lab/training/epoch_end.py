"""Work at the end of an epoch: new plans, tuning, evaluation; and decisions of a batch-size controller."""

from __future__ import annotations

import math
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.errors import PlanError
from dtdg_lab.engine.capabilities import Adaptive, Replannable, Tunable
from dtdg_lab.tasks.base import Scores
from dtdg_lab.training.best_model import BestModel, parameters_of_rank_0
from dtdg_lab.training.control import Control
from dtdg_lab.training.evaluation import Evaluator
from dtdg_lab.training.memory import MemoryProbe
from dtdg_lab.training.plan_reports import report_plans
from dtdg_lab.training.position import Position
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.requests import RequestHandler
from dtdg_lab.training.state import TrainingState
from dtdg_lab.training.work_reports import WorkReports


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
            self._run()

    def finish(self) -> None:
        """Evaluate all splits after the last step; collective.

        With ``test_model="best"`` the test split is evaluated with the parameters of the lowest validation loss, which
        rank 0 kept. The model keeps its last parameters.
        """
        state, components, started_ns = self._state, self._state.components, time.time_ns()
        if state.config["test_model"] == "last":
            results = self._evaluate(components.evaluator, ("train", "validation", "test"), final=True)
            self._recorder.evaluations(state.position, results)
        else:
            results = self._evaluate(components.evaluator, ("train", "validation"))
            self._recorder.evaluations(state.position, results)
            self._keep_if_best(results)
            with parameters_of_rank_0(components.model, state.best, state.group):
                results = self._evaluate(components.evaluator, ("test",), final=True)
            self._recorder.evaluations(state.position if state.best is None else state.best.position, results)
        self._recorder.between(state.position.step, state.position.current_epoch, "evaluate", started_ns)

    def _run(self) -> None:
        """Evaluate the training and validation splits, and let a batch-size controller decide."""
        state, components, started_ns = self._state, self._state.components, time.time_ns()
        if state.synchronous:
            results = self._evaluate(components.evaluator, ("train", "validation"))
        elif state.group.rank == 0:  # the others are at other steps, and train on
            results = self._evaluate(components.own_evaluator, ("train", "validation"))
        else:
            return
        self._recorder.evaluations(state.position, results)
        self._recorder.between(state.position.step, state.position.current_epoch, "evaluate", started_ns)
        self._keep_if_best(results)
        self._decisions.after_evaluation(_validation_loss(results))

    def _evaluate(self, evaluator: Evaluator, splits: tuple[str, ...], *, final: bool = False) -> list[Scores]:
        with closing(WorkReports(self._recorder, self._state.position, "Evaluating")) as progress:
            return evaluator.evaluate(self._state.components.model, splits, final=final, progress=progress)

    def _keep_if_best(self, results: list[Scores]) -> None:
        """Keep a copy of the model on rank 0 if its validation loss is the lowest of the run."""
        state, loss = self._state, _validation_loss(results)
        if state.config["test_model"] == "last" or state.group.rank != 0 or loss is None or not math.isfinite(loss):
            return
        if state.best is None or loss < state.best.loss:
            state.best = BestModel.of(state.components.model, loss, state.position)


def _validation_loss(results: list[Scores]) -> float | None:
    return next((scores.loss for scores in results if scores.split == "validation"), None)


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
