"""Agreement of ranks on requests and choices, at a common step or when all ranks gather."""

from __future__ import annotations

import time
from collections.abc import Callable

from dtdg_lab.distributed.averager import ControlState
from dtdg_lab.engine.capabilities import Adaptive
from dtdg_lab.records.events import EpochEnded
from dtdg_lab.training.collective import position_of_rank_0
from dtdg_lab.training.control import END, GATHER, PAUSE, STEP, Control
from dtdg_lab.training.pacing import Pacing, pacing_for
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.requests import RequestHandler
from dtdg_lab.training.state import TrainingState


class RankCoordinator:
    """Distributes rank 0's control state and applies it on every rank; its constructor is collective.

    Args:
        state: training state of this rank.
        control: requests and choices.
        requests: applies requests.
        recorder: writes records.

    Attributes:
        pacing: pacing of the current interval.
    """

    def __init__(
        self, state: TrainingState, control: Control, requests: RequestHandler, recorder: StepRecorder
    ) -> None:
        self._state, self._control, self._requests, self._recorder = state, control, requests, recorder
        self._intervals = 0
        self.pacing = self._begin_interval()

    def begin_interval(self) -> None:
        """Begin an interval; collective. All ranks must have the same model."""
        self.pacing = self._begin_interval()

    def follow_step(self, control_state: ControlState) -> None:
        """Apply the control state agreed on in a step."""
        self._follow(control_state, STEP)

    def pause(self) -> None:
        """Pause for a short time, and apply requests that arrive meanwhile."""

        def wait(seconds: float) -> None:
            self._control.wait(self._state.settings.version, seconds)

        self._follow(self.pacing.pause(wait), PAUSE)

    def gather(self) -> None:
        """Wait for all ranks, apply control states meanwhile, and take the joint position."""
        state, group = self._state, self._state.group
        started_ns, sent, received = time.time_ns(), group.bytes_sent, group.bytes_received

        def follow(control_state: ControlState) -> None:
            self._follow(control_state, GATHER)
            self._recorder.check()

        self.pacing.gather(follow)
        traffic = (group.bytes_sent - sent, group.bytes_received - received)
        self._recorder.gathered(state.position, started_ns, traffic)
        first_epoch, state.position = state.position.epoch, self.pacing.joined(state.position)
        for epoch in range(first_epoch, state.position.epoch):  # other ranks ended it: this rank has no duration
            self._recorder.write(state.position, EpochEnded(epoch))

    def receive_last_requests(self) -> None:
        """Apply all requests since the last exchange, after the last epoch; collective."""
        agreed = self._state.components.gradients.agree(self._newest(END).version)
        self._requests.apply_up_to(agreed, END)

    def join_rank_0(self) -> None:
        """Take rank 0's epoch and iteration, and the largest step of any rank; collective."""
        state = self._state
        state.position = position_of_rank_0(state.position, state.group, device=state.device)

    def _begin_interval(self) -> Pacing:
        state, control = self._state, self._control
        self._intervals += 1
        if isinstance(state.strategy, Adaptive) and control.batches is not None:
            state.strategy.replay_draws(control.batches)

        def take_step(take: Callable[[], int | None]) -> int | None:
            return control.next_step(state.position.step, state.position.epoch, take)

        pacing = pacing_for(
            state.components,
            state.group,
            self._newest,
            name=f"averaging-{self._intervals}",
            start=state.control_state,
            position=state.position,
            knows_stop=control.knows_stop,
            stop_version=control.stop_version,
            rounds=None if state.synchronous else control.rounds(),
            take_step=take_step,
        )
        pacing.apply_settings(state.config)  # which may have changed since the components were built
        return pacing

    def _newest(self, received_at: str = STEP) -> ControlState:
        """Return the newest control state; only rank 0's counts."""
        state = self._state
        if state.group.rank != 0:
            return ControlState()
        # the step at which ranks follow: on a GPU one later
        steps = (1 + (state.synchronous and state.group.device_clock.is_late)) if received_at == STEP else 0
        version = self._control.newest(state.position.step + steps, received_at)
        return ControlState(version, state.requested_choice)

    def _follow(self, control_state: ControlState, received_at: str) -> None:
        """Apply a control state: the batch size first, since changed settings may change it."""
        state = self._state
        if isinstance(state.strategy, Adaptive):
            state.strategy.receive_choice(control_state.choice)
        self._requests.apply_up_to(control_state.version, received_at)
        self.pacing.apply_settings(state.config)
        self._recorder.rounds(state.position, self.pacing.rounds())
