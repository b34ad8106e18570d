"""Interface of model averagers, their control state and recorded rounds, and the averager of a single rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from dtdg_lab.config.record_tables import MAX_CONTROL_VERSION
from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.distributed.shared_steps import SharedSteps

MAX_CHOICE = 2**20  # well below 2^24, up to which a float32 slot holds every integer exactly


class ControlState(NamedTuple):
    """Control state that rank 0 distributes: the newest version of requests, and the batch-size choice."""

    version: int = 0
    choice: int = 0


NO_CONTROL = ControlState()  # before any request


@dataclass(frozen=True, slots=True)
class Round:
    """One averaging round of this rank: an event that an averager can replay.

    Attributes:
        number: number of the averager's round, from 1; 0 for its final round.
        joined_step: steps of this rank when it contributed its model.
        applied_step: steps of this rank when it applied the mean.
        weight: weight of this rank's model; 0 if it did not count, or the models were not averaged.
        version: version of the round's control state.
        choice: batch-size choice of the round's control state.
        gathered: whether the mean arrived while this rank waited for all ranks to finish.
    """

    number: int
    joined_step: int
    applied_step: int
    weight: float = 1.0
    version: int = 0
    choice: int = 0
    gathered: bool = False

    @property
    def staleness(self) -> int:
        """Steps between contributing the model and applying the mean."""
        return self.applied_step - self.joined_step

    @property
    def control_state(self) -> ControlState:
        """The control state of this round."""
        return ControlState(self.version, self.choice)

    @property
    def is_last(self) -> bool:
        """Whether this is the final round of its averager."""
        return self.number == 0


def check_times(every_s: float, limit_s: float = 1.0) -> None:
    """Check the period and the time limit.

    Raises:
        ConfigError: the period is below 0 s, or the limit is not above 0 s.
    """
    if not 0 <= every_s < float("inf") or not limit_s > 0:
        raise ConfigError(
            f"every_s={every_s:g}, limit_s={limit_s:g}: every_s must be finite and at least 0 (0 averages after every "
            "step), and limit_s must be above 0."
        )


def checked_control(newest_state: Callable[[], ControlState]) -> ControlState:
    """Return rank 0's control state, validated for its slots in the buffer.

    Raises:
        ControlError: a version or choice is out of bounds.
    """
    control_state = newest_state()
    if not 0 <= control_state.version <= MAX_CONTROL_VERSION or not 0 <= control_state.choice <= MAX_CHOICE:
        raise ControlError(
            f"version {control_state.version}, choice {control_state.choice}: a round carries versions from 0 to "
            f"{MAX_CONTROL_VERSION} and choices from 0 to {MAX_CHOICE}. Start a new run, or resume this one."
        )
    return control_state


def does_not_fit(event: Round, step: int) -> ConfigError:
    """Return the error for a replayed round that does not fit a step."""
    return ConfigError(
        f"replay: round {event.number or '0 (final)'} was joined at step {event.joined_step} with weight "
        f"{event.weight:g} and applied at step {event.applied_step}, which does not fit step {step}. Replay the rounds "
        "of one averager and one rank, with the settings, data and ranks of their run."
    )


class Averager:
    """Averages the models of ranks that train at their own pace, and distributes the control state.

    As a context manager it calls ``finish``, or ``close`` after an error.

    Args:
        every_s: seconds between two rounds (T_mu); 0 averages after every step.
        newest_state: returns the newest control state; called on rank 0 only.
        start: the current control state of all ranks.
        step: steps that this rank has made before.
        replay: the ``rounds`` of an earlier run of this rank, to be repeated at the recorded steps.
        steps: steps of an epoch, shared by all ranks.

    Attributes:
        every_s: seconds between two rounds (T_mu), at least 0; 0 averages after every step. It may be set during the
            run; rank 0's value applies.
        agreed: control state of the newest applied round. All ranks see the same control states in the same order, at
            different times; versions may be skipped.
        rounds: rounds applied since the last call of :meth:`taken`, oldest first.
        step: this rank's steps so far.
        scale: factor of this rank's learning rate in the next step, at most 1; below 1 only with weights ``share``.
        bytes_sent: bytes this rank sent for averaging.
    """

    def __init__(
        self,
        *,
        every_s: float,
        newest_state: Callable[[], ControlState],
        start: ControlState,
        step: int,
        replay: Sequence[Round] | None,
        steps: SharedSteps,
    ) -> None:
        self.every_s = every_s
        self.agreed, self.step, self.scale, self.bytes_sent = start, step, 1.0, 0
        self.rounds: list[Round] = []
        self._newest_state, self._steps = newest_state, steps
        self._replay = None if replay is None else list(replay)
        self._number = 0
        self._last_round_s = time.monotonic()
        self._finished = False

    @property
    def every_s(self) -> float:
        """Seconds between two rounds, T_mu; rank 0's value reaches the other ranks with the next round."""
        return self._every_s

    @every_s.setter
    def every_s(self, seconds: float) -> None:
        """Set the period."""
        check_times(seconds)
        self._every_s = seconds

    def control(self) -> None:
        """Serve the averaging after a step; returns at once unless ``every_s`` is 0 or rounds are replayed.

        Raises:
            OtherRankError: a rank died or failed.
        """
        self.step += 1
        self.idle()

    def idle(self) -> None:
        """Serve the averaging while no step is taken, as in a pause; call it every few milliseconds.

        Raises:
            OtherRankError: a rank died or failed.
        """
        raise NotImplementedError

    def next_step(self, epoch: int, steps: int) -> int | None:
        """Take the number of this rank's next step of an epoch; None if all ``steps`` are taken.

        All ranks share the steps of an epoch; a faster rank takes more of them.

        Raises:
            OtherRankError: the store that counts them is gone.
        """
        return self._steps.take(epoch, steps)

    def applied_rounds(self) -> list[Round]:
        """Return and clear the rounds applied since the last call, oldest first."""
        rounds, self.rounds = self.rounds, []
        return rounds

    def finish(self, received: Callable[[], None] = lambda: None) -> None:
        """Wait until all ranks have called it; all then have the same model and control state.

        Meanwhile this rank serves rounds and calls ``received`` after each. A second call does nothing.

        Raises:
            OtherRankError: a rank died or failed.
        """
        raise NotImplementedError

    def close(self, reason: str = "") -> None:
        """Leave without finishing; a reason is reported to the other ranks as a failure."""
        self._finished = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self.close(f"{type(error).__name__}: {error}")


class SingleProcessAverager(Averager):
    """Averager of a single rank, which needs no torch.distributed.

    The mean of one model is that model, so parameters do not change and nothing is sent. A round is joined and
    applied at the same step: every ``every_s`` seconds, and at once after a new version.

    Args:
        every_s: seconds between two rounds (T_mu); 0 averages after every step.
        newest_state: returns the newest control state.
        start: the current control state.
        step: steps taken before.
        replay: the ``rounds`` of an earlier run; their control states are applied at the recorded steps.
        position: the current epoch, and the number of its steps made before.

    Raises:
        ConfigError: a time is out of bounds, or the replay does not fit the steps.
    """

    def __init__(
        self,
        *,
        every_s: float,
        newest_state: Callable[[], ControlState],
        start: ControlState = NO_CONTROL,
        step: int = 0,
        replay: Sequence[Round] | None = None,
        position: tuple[int, int] = (0, 0),
    ) -> None:
        steps = SharedSteps(self._add, ranks=1, first=position)
        super().__init__(every_s=every_s, newest_state=newest_state, start=start, step=step, replay=replay, steps=steps)
        self._counted: dict[str, int] = {}
        if self._replay is not None:
            self._follow(self._replay)

    def idle(self) -> None:
        """Apply the control state without a step, if a round is due."""
        if self._replay is not None:
            self._follow(self._replay)
            return
        now_s, control_state = time.monotonic(), checked_control(self._newest_state)
        if control_state.version > self.agreed.version or now_s >= self._last_round_s + self.every_s:
            self._last_round_s = now_s
            self._apply_control(control_state)

    def finish(self, received: Callable[[], None] = lambda: None) -> None:
        """Apply the last control state and call ``received``; a second call does nothing."""
        if self._finished:
            return
        self._finished = True
        if self._replay is None:
            control_state = checked_control(self._newest_state)
        else:
            self._follow(self._replay)
            if self._replay and not self._replay[0].is_last:
                raise does_not_fit(self._replay[0], self.step)
            control_state = self._replay.pop(0).control_state if self._replay else self.agreed
        self._apply_control(control_state, last=True)
        received()

    def _apply_control(self, control_state: ControlState, *, last: bool = False) -> None:
        self._number = 0 if last else self._number + 1
        self.agreed = control_state
        self.rounds.append(Round(self._number, self.step, self.step, 1.0, *control_state, gathered=last))

    def _add(self, counter: str, amount: int) -> int:
        self._counted[counter] = self._counted.get(counter, 0) + amount
        return self._counted[counter]

    def _follow(self, replay: list[Round]) -> None:
        """Apply the control states of the recorded rounds of this step."""
        while replay and not replay[0].is_last and replay[0].joined_step <= self.step:
            if (replay[0].joined_step, replay[0].applied_step) != (self.step, self.step):
                raise does_not_fit(replay[0], self.step)
            self._apply_control(replay.pop(0).control_state)
