"""The training loop of one rank: compute, exchange, update, follow requests, record."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tqdm.auto import tqdm

from dtdg_lab.engine.capabilities import Adaptive
from dtdg_lab.engine.strategy import Step
from dtdg_lab.records.events import Ended, EpochEnded, Resumed
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.checkpointing import CheckpointManager
from dtdg_lab.training.clock import PhaseClock, seconds_by_phase
from dtdg_lab.training.collective import any_rank
from dtdg_lab.training.control import Control
from dtdg_lab.training.coordination import RankCoordinator
from dtdg_lab.training.epoch_end import Decisions, EpochEnd, EvaluationRunner
from dtdg_lab.training.live_settings import LiveSettings
from dtdg_lab.training.pacing import read_loss
from dtdg_lab.training.partition import split_event
from dtdg_lab.training.plan_reports import report_plans
from dtdg_lab.training.position import Position
from dtdg_lab.training.rebuilding import Rebuilder
from dtdg_lab.training.recording import FinishedStep, StepLoss, StepRecorder
from dtdg_lab.training.state import TrainingState

RUN_IS_OVER = (
    "The run has completed its last step and accepts no more changes. Start a new run or call run.resume(...)."
)


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """Outcome of training: ``finished`` or ``stopped``, and the position."""

    state: str
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """Trains one rank of a run from its position to the end.

    In outline::

        save a first checkpoint
        until the run is over:
            for each step of the epoch:
                compute, exchange gradients, update
                follow requests, decide, record
                wait while paused, save
            measure memory, adopt a new plan, tune, evaluate
            rebuild if requests change epoch settings
        save the last checkpoint
        evaluate all splits

    Attributes:
        state: training state of this rank, shared by all objects below.
        control: requests and choices.
        clock: clock of a step's phases.
        recorder: writes records.
        coordinator: paces the ranks, and distributes requests.
        rebuilder: applies changes of epoch settings.
        checkpoints: writes checkpoints.
        decisions: decisions of a batch-size controller.
        evaluation: evaluations of the run.
        epoch_end: work at the end of an epoch.
        resumed: event of a resumed run; None for a new one.
        saves_start: whether to save a checkpoint of the start, for a new run.
        show_progress: whether to show a progress bar over epochs, in cells and terminals.
    """

    state: TrainingState
    control: Control
    clock: PhaseClock
    recorder: StepRecorder
    coordinator: RankCoordinator
    rebuilder: Rebuilder
    checkpoints: CheckpointManager
    decisions: Decisions
    evaluation: EvaluationRunner
    epoch_end: EpochEnd
    resumed: Resumed | None
    saves_start: bool
    show_progress: bool

    @property
    def components(self) -> RunComponents:
        """Model, optimizer, strategy and so on; a change of epoch settings replaces them."""
        return self.state.components

    @property
    def live_settings(self) -> LiveSettings:
        """The current settings and the waiting requests."""
        return self.state.settings

    @property
    def position(self) -> Position:
        """The next epoch, iteration and step."""
        return self.state.position

    def run(self) -> TrainingOutcome:
        """Train until the last epoch or a stop request.

        Raises:
            NotFiniteError: a loss was NaN or infinite; every rank stops at the same step.
            RunStoreError: records or checkpoints can no longer be written.
        """
        try:
            self._begin()
            with tqdm(total=self.state.config.epochs, unit="epoch", disable=not self.show_progress) as bar:
                while self._prepare_epoch():
                    if self.state.has_epochs:
                        self._train_epoch()
                        bar.update(self.state.position.epoch - bar.n)
            return self._end()
        except BaseException as error:
            self.coordinator.pacing.close(f"{type(error).__name__}: {error}")
            raise
        finally:
            self.state.components.close()

    def _begin(self) -> None:
        state, recorder = self.state, self.recorder
        if self.saves_start:
            recorder.event(state.position, "parts", split_event(state.graph, state.components.split))
            self.checkpoints.save(together=True)  # so that the run can be resumed from here
        if self.resumed is not None:
            recorder.write(state.position, self.resumed)
        recorder.write(state.position, state.components.compute.event(state.device))
        report_plans(state, recorder)
        state.open()

    def _train_epoch(self) -> None:
        state, pacing = self.state, self.coordinator.pacing
        epoch, started_s = state.position.epoch, time.perf_counter()
        for step in pacing.steps(state.position):
            self._train_step(step)
            state.position = Position(epoch, step.iteration + 1, state.position.step + 1)
            is_epoch_over = state.position.iteration == pacing.epoch_steps
            self._wait_while_paused()
            self._save_after_step(is_epoch_over)
            if not is_epoch_over:
                self.checkpoints.keep_if_requested()
            if state.settings.stopping:
                if not is_epoch_over:
                    return  # the stop cuts the epoch short
                break
        self.recorder.settle()
        self.clock.device_clock.align()
        state.position = Position(epoch + 1, 0, state.position.step)
        self.recorder.write(state.position, EpochEnded(epoch, time.perf_counter() - started_s))
        self.epoch_end.run(epoch)
        self.checkpoints.keep_epoch()

    def _train_step(self, step: Step) -> None:
        """Make one step. The host runs ahead of a GPU, and reads what it needs to know one step later."""
        state, clock, group = self.state, self.clock, self.state.group
        components, position, pacing = state.components, state.position, self.coordinator.pacing
        self._prepare(step)
        sent, received, started_cpu_s = group.bytes_sent, group.bytes_received, time.process_time()
        clock.start()
        components.gradients.zero()
        result = components.strategy.compute(step, clock)
        self._slow_down()
        clock("compute")
        self.recorder.check_exchanges()  # the sum below would wait for an exchange that does not fit
        exchanged = pacing.exchange(result)
        clock.exchange(exchanged.times)
        loss = StepLoss(exchanged.sums, position, state.config.learning_rate)
        own_loss = read_loss(result, clock.device_clock)
        if not clock.is_late:
            loss.read()  # an update by a loss that is not finite would spoil the model
        components.optimizer.step()
        clock("update")
        control_state = pacing.agreed()
        if not pacing.synchronous:
            clock("communicate")  # averaging is served in agreed()
        self._decide(loss)
        self.coordinator.follow_step(control_state)
        self.recorder.check()
        clock("control")
        self.recorder.step(
            FinishedStep(
                position=position,
                step=step,
                result=result,
                own_loss=own_loss,
                loss=loss,
                exchanged=exchanged,
                phases=clock.phases,
                cpu_s=time.process_time() - started_cpu_s,
                energy=state.resource_monitor.step_energy(position.step),
                traffic=(group.bytes_sent - sent, group.bytes_received - received),
                version=state.settings.version,
                strategy=components.strategy,
                rows=components.strategy.rows(),
            )
        )

    def _decide(self, loss: StepLoss) -> None:
        """Let a batch-size controller decide from this step's loss and seconds; on a GPU from the last step's."""
        if not self.clock.is_late:
            seconds = seconds_by_phase(self.clock.intervals())
            self.decisions.after_step(loss.read(), sum(seconds.values()))
            return
        self.recorder.settle()
        if (last := self.recorder.newest) is not None:
            self.decisions.after_step(last.loss, last.seconds, steps_ago=1)

    def _prepare(self, step: Step) -> None:
        """Announce the step to the strategy, and update the emulated network."""
        state, components = self.state, self.state.components
        if isinstance(components.strategy, Adaptive):
            components.strategy.on_step_start(state.position.step)
        if components.network is not None:
            progress = step.iteration / self.coordinator.pacing.epoch_steps
            changed = components.network.follow(state.position.epoch, progress)
            if changed is not None:
                self.recorder.event(state.position, "congestion", changed)

    def _slow_down(self) -> None:
        config, clock = self.state.config, self.clock.device_clock
        if config["slow_rank"] == self.state.group.rank and config["slow_ms"] > 0:
            clock.ns(clock.stamp())  # else a GPU would work on while the host sleeps
            time.sleep(config["slow_ms"] * 1e-3)

    def _wait_while_paused(self) -> None:
        settings = self.state.settings
        if settings.paused:
            self.recorder.settle()
        while settings.paused and not settings.stopping:
            self.coordinator.pause()
            self.checkpoints.keep_if_requested()
            self.recorder.check()

    def _save_after_step(self, is_epoch_over: bool) -> None:
        if not self.state.settings.stopping:
            self.checkpoints.after_step(self.recorder.newest)
        elif not self.state.synchronous or is_epoch_over:
            # a synchronous stop within an epoch is saved by _end alone: a signal leaves no time to save twice
            self.checkpoints.save(together=self.state.synchronous)

    def _prepare_epoch(self) -> bool:
        """Apply changes that wait for the end of an epoch, and return True unless the run is over."""
        state = self.state  # no variable for pacing: it would keep replaced components in memory
        if self.coordinator.pacing.synchronous:
            if state.settings.stopping:
                return False
            self.rebuilder.rebuild_if_requested()  # first, because it may change the number of epochs
            return state.has_epochs or self._add_epochs_if_requested()
        has_requests = bool(state.settings.requests) and not state.position.iteration
        if state.has_epochs and not state.settings.stopping and not has_requests:
            return True
        self.coordinator.gather()  # every rank comes here, each for one of these reasons
        if state.settings.stopping:
            return False
        is_replaced = self.rebuilder.rebuild_if_requested()
        if not any_rank(state.has_epochs, state.group, device=state.device) and not self._add_epochs_if_requested():
            return False
        if not is_replaced:
            self.coordinator.begin_interval()
        return True

    def _add_epochs_if_requested(self) -> bool:
        """Apply the last requests of a run without further epochs, and return True if they add epochs."""
        state = self.state
        self.control.refuse_requests(RUN_IS_OVER)
        self.coordinator.receive_last_requests()
        self.checkpoints.keep_if_requested()
        self.rebuilder.rebuild_if_requested()
        if state.settings.stopping or not state.has_epochs:
            return False
        self.control.refuse_requests("")  # accept requests again
        return True

    def _end(self) -> TrainingOutcome:
        state = self.state
        self.control.refuse_requests(RUN_IS_OVER)
        if not state.synchronous:
            self.coordinator.gather()  # a change after the last step may have begun another interval
            if state.settings.stopping:  # all ranks resume at the same new step
                self.coordinator.join_rank_0()
        self.checkpoints.save(together=True)
        self.recorder.write(state.position, Ended(state.checkpoint().fingerprint()))
        if state.settings.stopping:
            return TrainingOutcome("stopped", state.position)
        self.evaluation.finish()
        return TrainingOutcome("finished", state.position)
