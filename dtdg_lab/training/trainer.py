"""The one loop: compute, exchange, update, agree on control, record."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.records import TABLES
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.strategy import Step
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.decayed_windows import training as windowed
from dtdg_lab.systems.hybrid_batches.policies import BatchDecision
from dtdg_lab.training.build import RunComponents, build, own_defaults
from dtdg_lab.training.checkpoint import Checkpoint, Position
from dtdg_lab.training.checkpoint_manager import CheckpointManager, not_finite
from dtdg_lab.training.collective import any_rank, as_rank_0
from dtdg_lab.training.interfaces import ControlSource, Recorder
from dtdg_lab.training.live_run import LiveTraining
from dtdg_lab.training.live_settings import LiveSettings, live_names
from dtdg_lab.training.partition import split_event
from dtdg_lab.training.phase_clock import PhaseClock
from dtdg_lab.training.plan_events import KINDS
from dtdg_lab.training.recording import ResourceMonitor, StepRecorder
from dtdg_lab.training.replay import END, STEP, RunReplay
from dtdg_lab.training.updates import AveragedUpdates

ACTION = TABLES["decisions"].index("action") - 2  # in a row that is without step and epoch
ENDING = "the run is ending: its last step is made. run.resume() or a new run takes changes."


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """How training ended: ``finished`` or ``stopped``, and where."""

    state: str
    position: Position


class Trainer(LiveTraining):
    """Trains one rank of one run from where it is to its end.

    Args:
        config: the run's settings.
        graph: the data, the same on all ranks.
        group: the processes.
        recorder: takes this rank's records.
        control: requests; only rank 0's ``latest`` counts.
        checkpoint: file of the run's last checkpoint, written by rank 0.
        vitals: memory and energy of this rank.
        device: where this rank computes.
        resume: go on from the checkpoint.
        changes: live settings that differ from the checkpoint's from here on.
        show_progress: a progress bar over epochs, in cells and terminals.
        begin: a checkpoint of another run to begin with: its parameters, position and plan, under ``config``.
        replay: what this rank did in an earlier run with the same settings, to be repeated.

    Raises:
        LabError: the config cannot be built on this graph and machine, or the checkpoint is of other data or does not
            fit.
    """

    @own_defaults()
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
        self._show_progress, self._resumed = show_progress, resume
        self._clock = PhaseClock(device)
        self._step_recorder = StepRecorder(recorder, self._clock, resource_monitor, group.rank)
        self._position, self._replay = Position(), replay
        self._evaluated_step = -1
        self._branches, self._changes = begin is not None and not resume, dict(changes)
        held = checkpoint if resume else begin
        stored = None if held is None else Checkpoint.load(held, device=device)
        self._data_checked = stored is not None and stored.check_graph(graph)
        self.live_settings = LiveSettings(config) if stored is None else self._knobs_from(stored, config)
        plan = {**({} if stored is None else stored.plan), **self._recorded_schedule(self._position.step)}
        self._built = build(self.live_settings.config, graph, group, device=device, plan=plan)
        try:
            self._row_memory = windowed.measure(self._built, group, device=device)
            if stored is not None:
                stored.restore(self._built.model, self._built.optimizer if stored.has_moments_for(config) else None)
                self._apply_settings()
                windowed.put_back(self._built, plan, device=device)
            self._updates = self._made_updates()
        except BaseException:
            self._built.close()
            raise
        self._keeper = CheckpointManager(checkpoint, group, self._step_recorder, self._snapshot)
        self._loss = 0.0
        resource_monitor.children = lambda: self._built.remote.children if self._built.remote is not None else ()

    @own_defaults()
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
            if not self._position.iteration:  # else steps hand on a state that a probe would leave out
                self._probe_memory()
            self._save(force=True)  # whatever happens from here on can be resumed
        if self._resumed:
            settings = {name: self.live_settings.config.flat[name] for name in live_names(self.live_settings.config)}
            described = {"settings": settings, "changes": self._changes, "iteration": self._position.iteration}
            described["data_checked"] = self._data_checked
            self._event("resumed", described)
        threads = torch.get_num_threads()  # sums depend on them
        self._event("kernel", {"backend": self._built.sequence.backend, "device": self._device, "threads": threads})
        self._report(*KINDS)
        if self._built.hybrid is not None:
            self._built.hybrid.open()
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
        self._save(force=True)
        self._event("ended", {"parameters": self._snapshot().fingerprint()})
        if not self.live_settings.stopping:
            self._evaluate(("train", "validation", "test"), final=True)
        return TrainingOutcome("stopped" if self.live_settings.stopping else "finished", self._position)

    @property
    def built(self) -> RunComponents:
        """Model, optimiser and layout as they are now; an epoch knob replaces them."""
        return self._built

    # one epoch and one step

    def _epoch(self) -> None:
        epoch, started_s = self._position.epoch, time.perf_counter()
        is_over = True
        for work in self._works(epoch):
            self._step(work)
            self._position = Position(epoch, work.iteration + 1, self._position.step + 1)
            self._wait_while_paused()
            self._save(force=self.live_settings.stopping)
            if self._position.iteration < self._steps:
                self._save_if_requested()
            if self.live_settings.stopping:
                is_over = self._position.iteration == self._steps
                break
        if is_over:
            self._position = Position(epoch + 1, 0, self._position.step)
            self._event("epoch", {"epoch": epoch, "time_s": time.perf_counter() - started_s})
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
        works = self._built.layout.epoch(epoch)
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
        """Go on by another schedule where there is one; by the old one where the scheduler fails, on every rank."""
        changes, reason = {"group_times": self.live_settings.config["group_times"]}, ""
        try:
            if self._other_schedule():
                self._report("schedule")
        except PlanError as error:
            reason = str(error)
        if reason := reason or self._refused_before(changes):
            self._refused(changes, reason)

    def _tune(self, epoch: int) -> None:
        started_ns = time.time_ns()
        decision = windowed.tuned(self._built, self.live_settings.config, epoch, self._row_memory)
        if decision is None:
            return
        self._step_recorder.between(self._position.step, epoch, "evaluate", started_ns)  # what its trials took
        self._step_recorder.decision(Position(epoch, 0, self._position.step), decision.row)
        if changed := self.live_settings.apply({"set": decision.changes}):
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
        """Whether all epochs are done, once what was asked for since the last exchange has been heard as well."""
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
        choice = 0 if built.hybrid is None else built.hybrid.choice
        if built.hybrid is not None:
            built.hybrid.begin(self._position.step)
        self._follow_links(work)
        clock.start()
        built.gradients.zero()
        computed = built.layout.compute(work, clock)
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
        self._decide(known_loss, choice)
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
            layout=built.layout,
        )
        if built.remote is not None:
            built.remote.stepped(sum(clock.seconds().values()), energy_j)
        if built.scheduling is not None:
            built.scheduling.observe(self._step_recorder.last_rows.get("groups", ()), agreed.communicate_s)

    def _follow_links(self, work: Step) -> None:
        """Make links as slow as they are to be in this step."""
        if self._built.network is not None:
            changed = self._built.network.follow(self._position.epoch, work.iteration / self._steps)
            if changed is not None:
                self._event("congestion", changed)

    def _decide(self, loss: float | None, choice: int) -> None:
        if self._built.hybrid is not None:
            seconds = sum(self._clock.seconds().values())
            if not self._decided_before():
                self._note_decision(self._built.hybrid.after_step(loss, seconds, choice))

    def _decided_before(self) -> bool:
        """Whether decisions are those of the run that is repeated; those of this step are made."""
        if self._replay is None or self._replay.decisions is None:
            return False
        hybrid = self._built.hybrid
        if hybrid is not None and hybrid.adjuster is not None:
            for row in self._replay.decided(self._position.step):
                hybrid.repeat(row[ACTION])
                self._step_recorder.decision(self._position, row)
        return True

    def _note_decision(self, decision: BatchDecision | None) -> None:
        if decision is not None:
            self._step_recorder.decision(self._position, decision.row)

    def _slow_down(self) -> None:
        if self.live_settings.config["slow_rank"] == self._group.rank and self.live_settings.config["slow_ms"] > 0:
            time.sleep(self.live_settings.config["slow_ms"] * 1e-3)

    def _save(self, *, force: bool) -> None:
        if force:
            self._keeper.forced(self._built, self._current_epoch)
        else:
            every_s = self.live_settings.config["checkpoint_every_s"]
            self._keeper.after_step(self._built, self._loss, every_s, self._current_epoch)

    def _evaluate(self, splits: tuple[str, ...], *, final: bool = False) -> None:
        started_ns = time.time_ns()
        if final or self._updates.together:
            results = self._built.evaluator.evaluate(self._built.model, splits, final=final)
        elif self._group.rank == 0 and self._built.alone is not None:  # the others are at other steps, and go on
            results = self._built.alone.evaluate(self._built.model, splits)
        else:
            return
        self._step_recorder.evaluations(self._position, results)
        self._step_recorder.between(self._position.step, self._current_epoch, "evaluate", started_ns)
        if self._built.hybrid is not None and not final and not self._decided_before():
            losses = [of.loss for of in results if of.split == "validation"]
            self._note_decision(self._built.hybrid.after_evaluation(losses[0] if losses else None))
