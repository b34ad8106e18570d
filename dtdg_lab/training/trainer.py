"""The one loop: compute, exchange, update, agree on control, record."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.distributed.group import Group
from dtdg_lab.distributed.model_averaging import ControlState
from dtdg_lab.engine.capabilities import (
    RECORDED_PLAN,
    Adaptive,
    Decision,
    DescribesMemory,
    ObservesSteps,
    Reconfigurable,
    Replannable,
    RunsInBackground,
    ServesFeatures,
    StepOutcome,
    Tunable,
)
from dtdg_lab.engine.strategy import Step
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.records.events import (
    ControlReceived,
    Ended,
    EpochEnded,
    Event,
    Kernel,
    Paused,
    Refused,
    Resumed,
    SettingsChanged,
    Stopping,
    Unpaused,
)
from dtdg_lab.training.build import RunComponents, build
from dtdg_lab.training.checkpoint import Checkpoint, CheckpointManager, Position, not_finite
from dtdg_lab.training.collective import any_rank, as_rank_0, joined, share_moments, shared_reason
from dtdg_lab.training.interfaces import ControlSource, Recorder
from dtdg_lab.training.live_settings import (
    LiveSettings,
    PlanEvents,
    Rebuilt,
    Settled,
    check_changes,
    live_names,
    merged,
    old_values,
    plan_events,
    readable,
    rebuilt,
    settle,
)
from dtdg_lab.training.memory import probe_memory
from dtdg_lab.training.partition import split_event
from dtdg_lab.training.recording import PhaseClock, ResourceMonitor, StepRecorder
from dtdg_lab.training.replay import END, GATHER, PAUSE, STEP, RunReplay
from dtdg_lab.training.updates import AveragedUpdates, Updates, updates_for

ENDING = "The run has completed its last step and accepts no more changes. Start a new run or call run.resume(...)."


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """How training ended: ``finished`` or ``stopped``, and where."""

    state: str
    position: Position


class Trainer:
    """Trains one rank of one run from where it is to its end.

    Args:
        config: the run's settings.
        graph: the data, the same on all ranks.
        group: the processes.
        recorder: takes this rank's records.
        control: requests; only rank 0's ``latest`` counts.
        checkpoint: file of the run's last checkpoint, written by rank 0.
        resource_monitor: memory and energy of this rank.
        device: where this rank computes.
        resume: go on from the checkpoint.
        changes: live settings that differ from the checkpoint's from here on, or from ``config`` without ``resume``.
        show_progress: a progress bar over epochs, in cells and terminals.
        begin: a checkpoint of another run to begin with: its parameters, position and plan, under ``config``.
        replay: what this rank did in an earlier run with the same settings, to be repeated.

    Raises:
        LabError: the config cannot be built on this graph and machine, or the checkpoint is of other data or does not
            fit.
    """

    def __init__(
        self,
        config: RunConfig,
        graph: DynamicGraph,
        group: Group,
        *,
        recorder: Recorder,
        control: ControlSource,
        checkpoint: Path,
        resource_monitor: ResourceMonitor,
        device: str = "cpu",
        resume: bool = False,
        changes: Mapping[str, Any] = MappingProxyType({}),
        show_progress: bool = False,
        begin: Path | None = None,
        replay: RunReplay | None = None,
    ) -> None:
        self._graph, self._group, self._device = graph, group, device
        self._recorder, self._control, self._resource_monitor = recorder, control, resource_monitor
        self._show_progress, self._resumed = show_progress, resume or bool(changes)
        self._clock = PhaseClock(device)
        self._step_recorder = StepRecorder(recorder, self._clock, resource_monitor, group.rank)
        self._position, self._replay = Position(), replay
        self._evaluated_step = -1
        self._save_requested = False
        self._updates_made = self._averaged_stretches = 0
        self._branches, self._changes = begin is not None and not resume, dict(changes)
        held = checkpoint if resume else begin
        stored = None if held is None else Checkpoint.load(held, device=device)
        self._data_checked = stored is not None and stored.check_graph(graph)
        config = config if resume else check_changes(config, self._changes)
        self.live_settings = LiveSettings(config) if stored is None else self._settings_from(stored, config)
        plan = {**({} if stored is None else stored.plan), **self._recorded_plan(self._position.step)}
        self._built = build(self.live_settings.config, graph, group, device=device, plan=plan)
        try:
            if stored is not None:
                stored.restore(self._built.model, self._built.optimizer if stored.has_moments_for(config) else None)
                self._apply_settings()
            self._updates = self._made_updates()
        except BaseException:
            self._built.close()
            raise
        self._keeper = CheckpointManager(
            checkpoint, group, self._step_recorder, self._snapshot, lambda: self._updates.together
        )
        self._loss = 0.0
        self._probe_due = True  # after the first epoch of every attempt
        resource_monitor.children = self._children

    def run(self) -> TrainingOutcome:
        """Train until the last epoch or a stop request.

        Raises:
            NotFiniteError: a loss was NaN or infinite; every rank stops at the same step.
            RunStoreError: records or checkpoints can no longer be written.
        """
        try:
            return self._run()
        except BaseException as error:
            self._updates.close(f"{type(error).__name__}: {error}")
            raise
        finally:
            self._built.close()

    def _run(self) -> TrainingOutcome:
        if self._position.step == 0 or self._branches:
            self._event("parts", split_event(self._graph, self._built.split))
            self._save(meets=True)  # whatever happens from here on can be resumed
        if self._resumed:
            settings = {name: self.live_settings.config.flat[name] for name in live_names(self.live_settings.config)}
            self._write(Resumed(settings, self._changes, self._position.iteration, self._data_checked))
        threads = torch.get_num_threads()  # sums depend on them
        self._write(Kernel(self._built.sequence.backend, self._device, threads))
        self._report_plans()
        self._open()
        from tqdm.auto import tqdm

        with tqdm(total=self.live_settings.config.epochs, unit="epoch", disable=not self._show_progress) as bar:
            while not self._between_epochs():
                if self._has_epochs:
                    self._epoch()
                    bar.update(self._position.epoch - bar.n)
        self._control.refuse(ENDING)
        if not self._updates.together:
            self._gather()  # where a change after the last step has begun another stretch
            if self.live_settings.stopping:  # all ranks resume with the same step, which none has made
                self._position = as_rank_0(self._position, self._group, device=self._device)
        self._save(meets=True)
        self._write(Ended(self._snapshot().fingerprint()))
        if not self.live_settings.stopping:
            self._evaluate(("train", "validation", "test"), final=True)
        return TrainingOutcome("stopped" if self.live_settings.stopping else "finished", self._position)

    @property
    def built(self) -> RunComponents:
        """Model, optimiser and layout as they are now; a change of epoch settings replaces them."""
        return self._built

    @property
    def position(self) -> Position:
        """Epoch, iteration and step that come next."""
        return self._position

    # one epoch and one step

    def _epoch(self) -> None:
        epoch, started_s = self._position.epoch, time.perf_counter()
        is_over = True
        for work in self._works(epoch):
            self._step(work)
            self._position = Position(epoch, work.iteration + 1, self._position.step + 1)
            self._wait_while_paused()
            self._save_after_step()
            if self._position.iteration < self._steps:
                self._save_if_requested()
            if self.live_settings.stopping:
                is_over = self._position.iteration == self._steps
                break
        if is_over:
            self._position = Position(epoch + 1, 0, self._position.step)
            self._write(EpochEnded(epoch, time.perf_counter() - started_s))
            self._probe_memory_if_due()
            self._end_profiled_epoch()
            self._tune(epoch)
            due = self._position.epoch % self.live_settings.config["evaluate_every"] == 0
            if due and not self._is_last() and self._position.step != self._evaluated_step:
                self._evaluated_step = self._position.step  # other ranks may make all steps of an epoch
                self._evaluate(("train", "validation"))
            self._resource_monitor.end_epoch()
            self._keep_epoch()

    def _works(self, epoch: int) -> Iterator[Step]:
        """What this rank is to compute in the rest of an epoch.

        Where models are averaged, ranks share the steps of an epoch: ``iteration`` is a step's number among those of
        all ranks, and a rank makes those that it is given.
        """
        works = self._built.strategy.epoch(epoch)
        if not isinstance(self._updates, AveragedUpdates):
            self._steps = len(works)
            yield from works[self._position.iteration :]
            return
        self._steps = self._shared_steps
        while (number := self._given(self._updates, epoch)) is not None:
            yield replace(works[number % len(works)], iteration=number)

    def _given(self, updates: AveragedUpdates, epoch: int) -> int | None:
        if self._replay is not None:
            return self._replay.next_step(self._position.step, epoch)
        return updates.next_step(epoch, self._steps)

    def _keep_epoch(self) -> None:
        """Keep a checkpoint where one is asked for, once all that belongs to the epoch has been done."""
        every, done = self.live_settings.config["keep_every"], self._position.epoch
        if every and done % every == 0:
            self._keeper.kept(f"epoch-{done:05d}", self._built, self._current_epoch)
        self._save_if_requested()

    def _end_profiled_epoch(self) -> None:
        """Adopt another plan where the epoch asks for one; keep the old one where it cannot be made, on every rank."""
        strategy, reason = self._built.strategy, ""
        changes = strategy.epoch_changes if isinstance(strategy, Replannable) else {}
        if not changes:
            return
        try:
            if kinds := self._other_plans():
                self._report_plans(kinds)
        except PlanError as error:
            reason = str(error)
        if reason := reason or self._refused_before(changes):
            self._refused(changes, reason)

    def _tune(self, epoch: int) -> None:
        started_ns = time.time_ns()
        if not isinstance(self._built.strategy, Tunable):
            return
        tuned = self._built.strategy.tune(epoch, self.live_settings.config, self._built)
        if tuned is None:
            return
        decision, changes = tuned
        self._step_recorder.between(self._position.step, epoch, "evaluate", started_ns)  # what its trials took
        self._step_recorder.decision(Position(epoch, 0, self._position.step), decision)
        if changed := self.live_settings.apply({"set": changes}):
            self._apply_settings()
            self._record_change(changed, "step", self._position.step, by=decision.policy)

    def _between_epochs(self) -> bool:
        """Whether the run is over; before that, changes that wait for the end of an epoch are made."""
        if self._updates.together:
            if self.live_settings.stopping:
                return True
            self._rebuild_if_asked()  # before the end is looked for: it may move the end
            return self._is_over()
        if self._has_epochs and not self.live_settings.stopping and not self._waits:
            return False
        self._gather()  # every rank comes here in the end, for one of these reasons or another
        gathered = self._updates
        if self.live_settings.stopping:
            return True
        self._rebuild_if_asked()
        if not any_rank(self._has_epochs, self._group, device=self._device) and self._is_over():
            return True
        if self._updates is gathered:
            self._updates = self._made_updates()
        return False

    @property
    def _has_epochs(self) -> bool:
        return self._position.epoch < self.live_settings.config.epochs

    @property
    def _waits(self) -> bool:
        return bool(self.live_settings.requests) and not self._position.iteration

    def _is_over(self) -> bool:
        """Whether all epochs are done, and all requests since the last exchange have been received."""
        if self._has_epochs:
            return False
        self._control.refuse(ENDING)
        self._apply_up_to(self._built.gradients.agree(self._asked(END).version), END)
        self._save_if_requested()
        self._rebuild_if_asked()
        if self.live_settings.stopping or not self._has_epochs:
            return True
        self._control.refuse("")  # more epochs were asked for
        return False

    def _is_last(self) -> bool:
        return self._position.epoch >= self.live_settings.waiting.get("epochs", self.live_settings.config.epochs)

    def _step(self, work: Step) -> None:
        clock, built, cpu_s = self._clock, self._built, time.process_time()
        sent, received = self._group.bytes_sent, self._group.bytes_received
        if isinstance(built.strategy, Adaptive):
            built.strategy.on_step_start(self._position.step)
        self._follow_links(work)
        clock.start()
        built.gradients.zero()
        computed = built.strategy.compute(work, clock)
        self._slow_down()
        clock("compute")
        agreed = self._updates.exchange(computed)
        clock.exchange(agreed.wait_s)
        loss = agreed.loss_sum / max(agreed.groups, 1)
        if not abs(loss) < float("inf"):
            raise not_finite(loss, self._position, self.live_settings.config.learning_rate)
        self._loss = loss
        known_loss = loss if agreed.groups else None  # batches may be without labels
        built.optimizer.step()
        clock("update")
        word = self._updates.follow()
        if not self._updates.together:
            clock("communicate")
        self._decide(known_loss)
        self._apply_control(word, STEP)
        self._recorder.check()
        clock("control")
        moved = (self._group.bytes_sent - sent, self._group.bytes_received - received)
        energy_j = self._step_recorder.step(
            self._position,
            work,
            computed,
            loss=known_loss,
            cpu_s=time.process_time() - cpu_s,
            moved=moved,
            version=self.live_settings.version,
            strategy=built.strategy,
        )
        rows = self._step_recorder.last_rows
        if isinstance(built.strategy, ObservesSteps):
            outcome = StepOutcome(sum(clock.seconds().values()), agreed.communicate_s, energy_j, rows)
            built.strategy.on_step_end(outcome)

    def _follow_links(self, work: Step) -> None:
        """Make links as slow as they are to be in this step."""
        if self._built.network is not None:
            changed = self._built.network.follow(self._position.epoch, work.iteration / self._steps)
            if changed is not None:
                self._event("congestion", changed)

    def _decide(self, loss: float | None) -> None:
        seconds = sum(self._clock.seconds().values())
        if not self._repeats_decisions() and isinstance(self._built.strategy, Adaptive):
            self._record_decision(self._built.strategy.decide_after_step(loss, seconds))

    def _repeats_decisions(self) -> bool:
        """Whether decisions are those of the run that is replayed; those of this step are taken."""
        if self._replay is None or self._replay.decisions is None:
            return False
        strategy = self._built.strategy
        if isinstance(strategy, Adaptive) and strategy.decides:
            decision = self._replay.decided(self._position.step)
            if decision is not None:
                strategy.repeat_decision(decision.action)
            self._record_decision(decision)
        return True

    def _record_decision(self, row: Decision | None) -> None:
        if row is not None:
            self._step_recorder.decision(self._position, row)

    def _slow_down(self) -> None:
        if self.live_settings.config["slow_rank"] == self._group.rank and self.live_settings.config["slow_ms"] > 0:
            time.sleep(self.live_settings.config["slow_ms"] * 1e-3)

    def _save(self, *, meets: bool) -> None:
        self._keeper.forced(self._built, self._current_epoch, meets=meets)

    def _save_after_step(self) -> None:
        if self.live_settings.stopping:
            # else the run ends here, and saves: a signal leaves no time to do it twice
            if not self._updates.together or self._position.iteration == self._steps:
                self._save(meets=self._updates.together)
        else:
            every_s = self.live_settings.config["checkpoint_every_s"]
            self._keeper.after_step(self._built, self._loss, every_s, self._current_epoch)

    def _evaluate(self, splits: tuple[str, ...], *, final: bool = False) -> None:
        started_ns = time.time_ns()
        if final or self._updates.together:
            results = self._built.evaluator.evaluate(self._built.model, splits, final=final)
        elif self._group.rank == 0:  # the others are at other steps, and train on
            results = self._built.own_evaluator.evaluate(self._built.model, splits)
        else:
            return
        self._step_recorder.evaluations(self._position, results)
        self._step_recorder.between(self._position.step, self._current_epoch, "evaluate", started_ns)
        if not final and not self._repeats_decisions() and isinstance(self._built.strategy, Adaptive):
            losses = [of.loss for of in results if of.split == "validation"]
            self._record_decision(self._built.strategy.decide_after_evaluation(losses[0] if losses else None))

    # live settings: what is requested, agreed on, and applied at one place by all ranks

    def _asked(self, received: str = STEP) -> ControlState:
        """The newest request and size of batches; rank 0's count."""
        if self._group.rank != 0:
            return ControlState()
        version = self._control.latest()
        if self._replay is not None and self._replay.requests is not None:
            stopped = version > 0  # a replay hears of nothing else
            version = (
                len(self._replay.requests) + 1 if stopped else self._replay.version(self._next_step(received), received)
            )
        return ControlState(version, self._requested_choice)

    @property
    def _requested_choice(self) -> int:
        strategy = self._built.strategy
        return strategy.requested_choice if isinstance(strategy, Adaptive) else 0

    def _children(self) -> tuple[int, ...]:
        strategy = self._built.strategy
        return strategy.children if isinstance(strategy, ServesFeatures) else ()

    def _open(self) -> None:
        if isinstance(self._built.strategy, RunsInBackground):
            self._built.strategy.open()

    def _knows_stop(self) -> bool:
        """Return whether this rank knows of a request to stop that rank 0 may not have reported yet."""
        return self._group.rank != 0 and self._replay is None and self._control.stops()

    def _next_step(self, received: str) -> int:
        """The step that comes after the one that is being made, or after those made."""
        return self._position.step + (received == STEP)

    def _made_updates(self) -> Updates:
        """Those of a stretch that begins now; collective."""
        self._updates_made += 1
        self._began = self._position
        start = ControlState(self.live_settings.version, self._requested_choice)
        rounds = None
        if self._replay is not None:
            if isinstance(self._built.strategy, Adaptive):
                self._built.strategy.replay_draws(self._replay.drawn)
            if self._built.config["exchange"] == "models":
                self._averaged_stretches += 1
                rounds = self._replay.stretch(self._averaged_stretches)
        return updates_for(
            self._built,
            self._group,
            self._asked,
            stops=self._knows_stop,
            stop_version=self._control.stop_version,
            name=f"averaging-{self._updates_made}",
            start=start,
            step=self._position.step,
            place=(self._position.epoch, self._position.iteration),
            replay=rounds,
        )

    def _gather(self) -> None:
        """Wait for all ranks, follow words meanwhile, and be where they are together."""
        started_ns, sent, received = time.time_ns(), self._group.bytes_sent, self._group.bytes_received

        def hear(word: ControlState) -> None:
            self._apply_control(word, GATHER)
            self._recorder.check()

        self._updates.gather(hear)
        moved = (self._group.bytes_sent - sent, self._group.bytes_received - received)
        self._step_recorder.gathered(self._position, started_ns, moved)
        before, steps = self._position.epoch, self._shared_steps
        self._position = joined(self._began, self._position, self._group, steps=steps, device=self._device)
        self._began = self._position
        for epoch in range(before, self._position.epoch):  # that others ended
            self._write(EpochEnded(epoch))  # without a time: this rank made none of it, or a part

    @property
    def _shared_steps(self) -> int:
        """Steps of an epoch, by all ranks together, where models are averaged."""
        return len(self._built.strategy.epoch(self._position.epoch)) * self._group.size

    def _apply_control(self, word: ControlState, received: str) -> None:
        """Follow a word: the size of batches first, since changes may make other sizes."""
        if isinstance(self._built.strategy, Adaptive):
            self._built.strategy.receive_choice(word.choice)
        self._apply_up_to(word.version, received)
        self._step_recorder.rounds(self._position, self._updates.rounds())

    def _requested(self, version: int, received: str) -> dict[str, Any]:
        """The request of a version, logged so that the run can be replayed."""
        next_step = self._next_step(received)
        if self._replay is not None and self._replay.requests is not None:
            together = self._updates.together
            payload = dict(self._replay.payload(version, next_step, received, together=together))
        else:
            payload = dict(self._control.payload(version))
        by = payload.pop("by", None)
        if payload:
            old = old_values(self.live_settings.config, payload["set"]) if "set" in payload else None
            self._write(ControlReceived(version, payload, received, by, old), next_step)
        return payload

    def _apply_up_to(self, version: int, received: str) -> None:
        next_step = self._next_step(received)
        while self.live_settings.version < version:
            number = self.live_settings.version + 1
            payload = self._requested(number, received)
            self._save_requested = self._save_requested or bool(payload.get("keep", False))
            was_paused, config, changed, reason = self.live_settings.paused, self.live_settings.config, {}, ""
            try:
                changed = self.live_settings.apply(payload)
            except ConfigError as error:  # of settings alone: the same on every rank
                reason = str(error)
            self.live_settings.version = (
                number  # after the change: the control thread counts newer requests as not yet made
            )
            if reason:
                self._refused(payload["set"], reason)
            if changed and self._validate_settings(changed):
                self.live_settings.config = config
            elif changed:
                self._apply_settings()
                self._record_change(changed, "step", next_step)
                self._record_settings_events(changed)
            if self.live_settings.paused != was_paused:
                state = Paused if self.live_settings.paused else Unpaused
                self._write(state(self.live_settings.version), next_step)
            if payload.get("stop"):
                self._write(Stopping(self.live_settings.version), next_step)

    def _validate_settings(self, changes: dict[str, Any]) -> bool:
        """Whether batches, features or links cannot be as changes have them: then all ranks stay as they were."""
        config, built = self.live_settings.config, self._built
        reason = self._refused_before(changes)
        if built.network is not None:
            reason = reason or built.network.validate_settings(config)
        if isinstance(built.strategy, Reconfigurable):
            reason = reason or built.strategy.validate_settings(config)
            if built.strategy.fails_by_rank:
                reason = shared_reason(reason, self._group, device=self._device)
        if reason:
            self._refused(changes, reason)
        return bool(reason)

    def _refused(self, changes: dict[str, Any], reason: str) -> None:
        """Say that changes were not made, and why."""
        self._write(Refused(self.live_settings.version, changes, reason))

    def _refused_before(self, changes: dict[str, Any]) -> str:
        """Why the run that is repeated refused these changes here; empty where it made them, or none is repeated.

        Refusals are recorded at rank 0's step: while ranks are at steps of their own, only rank 0 looks them up.
        """
        if self._replay is None or (self._group.rank != 0 and not self._updates.together):
            return ""
        return self._replay.refusal(self._position.step, changes)

    def _apply_settings(self) -> None:
        if self._built.network is not None:
            self._built.network.use(self.live_settings.config)
        if isinstance(self._built.strategy, Reconfigurable):
            self._built.strategy.apply_settings(self.live_settings.config)
        self._resource_monitor.use(self.live_settings.config)
        for options in self._built.optimizer.param_groups:
            options["lr"] = self.live_settings.config.learning_rate

    def _record_settings_events(self, changes: dict[str, Any]) -> None:
        """What changes in place have made of the strategy, and of averaging."""
        if isinstance(self._updates, AveragedUpdates):
            self._updates.every(self.live_settings.config["average_every_s"])
        strategy = self._built.strategy
        for event in strategy.settings_events(changes) if isinstance(strategy, Reconfigurable) else ():
            if event.every_rank:
                self._step_recorder.own_event(self._position, event.kind, event.write())
            else:
                self._write(event)

    def _wait_while_paused(self) -> None:
        def wait(seconds: float) -> None:
            if self._group.rank == 0 and self._replay is None:
                self._control.wait(self.live_settings.version, seconds)

        while self.live_settings.paused and not self.live_settings.stopping:
            self._apply_control(self._updates.pause(wait), PAUSE)
            self._save_if_requested()
            self._recorder.check()

    def _save_if_requested(self) -> None:
        if self._save_requested:
            self._save_requested = False
            self._keeper.kept(f"step-{self._position.step:05d}", self._built, self._current_epoch)

    def _rebuild_if_asked(self) -> None:
        """Apply changes of epoch settings. A request that fails leaves the run and the other requests as they were."""
        if (
            not self.live_settings.requests or self._position.iteration
        ):  # a run resumed within an epoch ends it by its old plan
            return
        before, started_ns = self._built, time.time_ns()
        settled = self._settled(self.live_settings.requests)
        self.live_settings.requests = []
        for changes, reason in settled.refused:
            self._refused(changes, reason)
        if settled.made is not None:
            self._go_on_with(settled.made, settled.changes, started_ns)
        del before, settled
        gc.collect()  # sequences and their stores hold each other, and there may be no room for two of them

    def _settled(self, asked: list[dict[str, Any]]) -> Settled:
        """What becomes of requests: those that the run which is repeated refused are refused again."""
        reasons = [self._refused_before(changes) for changes in asked]
        if self._replay is not None:
            reasons = json.loads(self._group.broadcast_text(json.dumps(reasons)))
        refused = [(changes, why) for changes, why in zip(asked, reasons, strict=True) if why]
        tried = [changes for changes, why in zip(asked, reasons, strict=True) if not why]
        if not tried:
            return Settled(None, {}, refused)
        memory, config = replace(self._snapshot(), waiting=[]), self.live_settings.config
        at = self._position
        if self._replay is not None and not self._updates.together:  # schedules are recorded where all ranks go on
            at = as_rank_0(at, self._group, device=self._device)
        memory.plan.update(self._recorded_plan(at.step))

        def make(changes: dict[str, Any]) -> tuple[Rebuilt | None, str]:
            graph, group, before = self._graph, self._group, self._built
            return rebuilt(config, changes, memory, graph, group, device=self._device, before=before)

        found = settle(tried, partial(merged, config), make)
        return replace(found, refused=[*refused, *found.refused])

    def _recorded_plan(self, step: int) -> dict[str, Any]:
        """For a strategy's state: the plan that was made at a step of the run that is replayed."""
        if self._replay is None:
            return {}
        recorded = self._replay.plan(step, "build")
        return {} if recorded is None else {RECORDED_PLAN: recorded}

    def _other_plans(self) -> tuple[str, ...]:
        """The kinds of plans that the epoch which ended has changed: collective, or as in the run that is replayed."""
        strategy = self._built.strategy
        assert isinstance(strategy, Replannable)
        if self._replay is None or self._replay.requests is None:
            return strategy.on_epoch_end()
        recorded = self._replay.plan(self._position.step, "epoch")
        return () if recorded is None else strategy.adopt_plan(recorded)

    def _go_on_with(self, made: Rebuilt, changes: dict[str, Any], started_ns: int) -> None:
        before, self._built = self._built, made.built
        before.close()
        self.live_settings.config = made.built.config
        if not self._updates.together and made.built.config["exchange"] == "gradients":  # ranks were at own steps
            self._position = as_rank_0(self._position, self._group, device=self._device)
            share_moments(self._built.optimizer, self._group)
        self._updates = self._made_updates()
        self._apply_settings()
        self._note_rebuild(changes, made.events, started_ns)
        strategy = self._built.strategy
        if isinstance(strategy, DescribesMemory) and strategy.probes_after(before.strategy):
            self._probe_due = True
        self._probe_memory_if_due()
        self._open()

    def _note_rebuild(self, changes: dict[str, Any], events: PlanEvents, started_ns: int) -> None:
        step, epoch = self._position.step, self._position.epoch
        duration_s = (self._step_recorder.between(step, epoch, "rebuild", started_ns) - started_ns) * 1e-9
        self._record_change(changes, "epoch", step, duration_s=duration_s)
        for kind, data in events:
            self._event(kind, {**data, "rebuild_s": duration_s})

    def _snapshot(self, carried: dict[str, Any] | None = None) -> Checkpoint:
        return Checkpoint(
            self._built.model.state_dict(),
            self._built.optimizer.state_dict(),
            self._position,
            self.live_settings.config.to_json(),
            self.live_settings.requests,
            self._graph.data_hash,
            {**self._built.strategy.state_dict(), **(carried or {})},
        )

    def _settings_from(self, stored: Checkpoint, config: RunConfig) -> LiveSettings:
        """Position and settings to go on with: of a run that is resumed, or of another one that is branched from."""
        return self._branched(stored, config) if self._branches else self._settings_of(stored, self._changes)

    def _settings_of(self, stored: Checkpoint, changes: dict[str, Any]) -> LiveSettings:
        """Position and settings to go on with; within an epoch, changes of its plan wait until it is over."""
        config = RunConfig.from_json(stored.config_json)
        changed = check_changes(config, changes)
        self._position = stored.position
        waiting = _without(stored.waiting, changes)
        if self._position.iteration == 0:
            return LiveSettings(changed, requests=waiting)
        live_settings = LiveSettings(config, requests=waiting)
        live_settings.apply({"set": changes})
        return live_settings

    def _branched(self, stored: Checkpoint, config: RunConfig) -> LiveSettings:
        """Position of another run's checkpoint, settings of this run; pending changes stay unless set again."""
        self._position = stored.position
        before, reads = RunConfig.from_json(stored.config_json).flat, readable(config.system, config)
        set_anew = {name for name, value in config.flat.items() if name not in before or before[name] != value}
        unread = {name for changes in stored.waiting for name in changes if name not in reads}
        return LiveSettings(config, requests=_without(stored.waiting, set_anew | unread))

    @property
    def _current_epoch(self) -> int:
        """The epoch that what is done between steps belongs to: the one just ended where the next has not begun."""
        at_boundary = self._position.iteration == 0 and self._position.step > 0
        return self._position.epoch - at_boundary

    def _probe_memory_if_due(self) -> None:
        """Measure the memory of a step, between epochs and never before the first step, which need not wait for it."""
        if not self._probe_due or not self._position.step:
            return
        self._probe_due = False
        traced = probe_memory(self._built, device=self._device)
        self._recorder.row("memory", (self._position.step, time.time_ns(), None, None, traced.peak_bytes))
        self._event("memory_trace", traced.to_dict())
        if isinstance(self._built.strategy, DescribesMemory):
            self._report_plans(self._built.strategy.probed_plans)

    def _report_plans(self, kinds: Collection[str] | None = None) -> None:
        for kind, data in plan_events(self._built, self._group):
            if kinds is None or kind in kinds:
                self._event(kind, data)

    def _record_change(self, changes: dict[str, Any], when: str, step: int, **facts: Any) -> None:
        own_steps = None if self._updates.together else True
        changed = SettingsChanged(self.live_settings.version, changes, when, own_steps=own_steps, **facts)
        self._step_recorder.live_settings(self._position, changed, step)

    def _event(self, kind: str, data: dict[str, Any]) -> None:
        self._step_recorder.event(self._position, kind, data)

    def _write(self, event: Event, step: int | None = None) -> None:
        self._step_recorder.event(self._position, event.kind, event.write(), step)


def _without(requests: list[dict[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """Requests less some settings, and less those that are then empty."""
    kept = [{name: value for name, value in changes.items() if name not in names} for changes in requests]
    return [changes for changes in kept if changes]
