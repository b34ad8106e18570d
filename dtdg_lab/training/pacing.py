"""Pacing of ranks: all ranks make every step together, or each trains at its own pace with averaged models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.distributed.averager import Averager, ControlState, Round
from dtdg_lab.distributed.gradients import Exchanged
from dtdg_lab.distributed.group import Group
from dtdg_lab.distributed.model_averaging import averager_for
from dtdg_lab.engine.strategy import Step, StepResult
from dtdg_lab.kernels.device_clock import DeviceClock
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.collective import joined_position
from dtdg_lab.training.position import Position

CONTROL_ROUND_S = 0.5  # interval of control exchanges in a pause
START = Position()
PAUSED_S = 0.005  # polling interval of averaging rounds in a pause
TakeStep = Callable[[Callable[[], int | None]], int | None]  # calls its argument, or replays, to get a step's number


class Synchronous:
    """Pacing with gradients summed over ranks in every step, and the control state piggybacked on them.

    Args:
        components: components of the run.
        newest: returns the newest control state; only rank 0's counts.
        knows_stop: returns whether this rank knows of a request to stop. The request may be newer than the control
            state that rank 0 has sent, since rank 0 may wait in the exchange.
        stop_version: returns the version of the first request to stop, the same on all ranks; 0 without one.
        start: the current control state.

    Attributes:
        synchronous: whether all ranks make every step together, so that collective work may follow any step.
        epoch_steps: steps of the current epoch, of all ranks that share them.
    """

    synchronous = True

    def __init__(
        self,
        components: RunComponents,
        newest: Callable[[], ControlState],
        *,
        knows_stop: Callable[[], bool],
        stop_version: Callable[[], int],
        start: ControlState,
    ) -> None:
        self._strategy, self._gradients = components.strategy, components.gradients
        self._newest, self._agreed = newest, start
        self._knows_stop, self._stop_version = knows_stop, stop_version
        self.epoch_steps = 1

    def steps(self, position: Position) -> Iterator[Step]:
        """Yield this rank's remaining steps of an epoch."""
        steps = self._strategy.epoch(position.epoch)
        self.epoch_steps = len(steps)
        yield from steps[position.iteration :]

    def exchange(self, result: StepResult) -> Exchanged:
        """Reduce the gradients for the update, and return the loss of all ranks.

        On a GPU the control state follows one step later, on all ranks alike.
        """
        newest = self._newest()
        exchanged = self._gradients.exchange(
            version=newest.version,
            choice=newest.choice,
            stops=self._knows_stop(),
            loss_sum=result.loss_sum,
            groups=result.groups,
        )
        if (agreed := exchanged.agreed) is not None:
            version = max(agreed.version, self._stop_version()) if agreed.stops else agreed.version
            self._agreed = ControlState(version, agreed.choice)
        return exchanged

    def agreed(self) -> ControlState:
        """Return the control state for the next step; called once after every update."""
        return self._agreed

    def pause(self, wait: Callable[[float], None]) -> ControlState:
        """Pause for a short time, and return the control state; ``wait`` returns early after a request here."""
        wait(CONTROL_ROUND_S)
        self._agreed = self._agreed._replace(version=self._gradients.agree(self._newest().version))
        return self._agreed

    def gather(self, follow: Callable[[ControlState], None]) -> None:
        """Wait until all ranks have one model and one control state; collective work may follow.

        Args:
            follow: receives every control state until then.
        """

    def joined(self, position: Position) -> Position:
        """Return the joint position of all gathered ranks, from this rank's position; collective."""
        return position

    def rounds(self) -> list[Round]:
        """Return the averaging rounds since the last call."""
        return []

    def apply_settings(self, config: RunConfig) -> None:
        """Apply changed settings."""

    def close(self, reason: str) -> None:
        """Leave because of a failure on this rank; the other ranks fail in their next collective."""


class Averaged(Synchronous):
    """Pacing with local gradients in each step, and periodic averaging of models and control state.

    Ranks share the steps of an epoch. ``iteration`` numbers the steps of all ranks, and each rank takes some of them.

    Args:
        components: components of the run.
        averager: averager of the ranks.
        group: the ranks.
        start: start position of all ranks.
        take_step: takes this rank's next step of an epoch.
    """

    synchronous = False

    def __init__(
        self,
        components: RunComponents,
        averager: Averager,
        *,
        group: Group,
        start: Position,
        take_step: TakeStep,
    ) -> None:
        self._strategy, self._gradients = components.strategy, components.gradients
        self._optimizer, self._learning_rate = components.optimizer, components.config.learning_rate
        self._averager, self._group, self._start, self._take_step = averager, group, start, take_step
        self.epoch_steps = 1

    def steps(self, position: Position) -> Iterator[Step]:
        """Yield the steps of an epoch that this rank takes, until all are taken."""
        steps = self._strategy.epoch(position.epoch)
        self.epoch_steps = len(steps) * self._group.size

        def take() -> int | None:
            return self._averager.next_step(position.epoch, self.epoch_steps)

        while (number := self._take_step(take)) is not None:
            yield replace(steps[number % len(steps)], iteration=number)

    def exchange(self, result: StepResult) -> Exchanged:
        """Average the gradients of this rank's groups, and scale the learning rate of their update."""
        self._gradients.divide(result.groups)
        for options in self._optimizer.param_groups:
            options["lr"] = self._learning_rate * self._averager.scale
        loss_sum = read_loss(result, self._group.device_clock)
        return Exchanged(None, lambda: (loss_sum(), result.groups))

    def agreed(self) -> ControlState:
        """Serve averaging rounds, and return the control state of the newest round."""
        self._averager.control()
        return self._averager.agreed

    def pause(self, wait: Callable[[float], None]) -> ControlState:
        """Serve rounds without a step."""
        time.sleep(PAUSED_S)
        self._averager.idle()
        return self._averager.agreed

    def gather(self, follow: Callable[[ControlState], None]) -> None:
        """Serve averaging rounds until all ranks gather; a second call does nothing."""
        self._averager.finish(lambda: follow(self._averager.agreed))

    def joined(self, position: Position) -> Position:
        """Return epoch and iteration after the steps of all ranks, and this rank's own step; collective."""
        steps = len(self._strategy.epoch(position.epoch)) * self._group.size
        device = str(self._gradients.gradients.device)
        self._start = joined_position(self._start, position, self._group, steps=steps, device=device)
        return self._start

    def rounds(self) -> list[Round]:
        """Return the rounds applied since the last call."""
        return self._averager.applied_rounds()

    def apply_settings(self, config: RunConfig) -> None:
        """Set the averaging period and the learning rate."""
        self._averager.every_s, self._learning_rate = config["average_every_s"], config.learning_rate

    def close(self, reason: str) -> None:
        """Leave, and report the reason to the other ranks."""
        self._averager.close(reason)


Pacing = Synchronous | Averaged


def read_loss(result: StepResult, clock: DeviceClock) -> Callable[[], float]:
    """Return a function that returns a step's sum of losses; on a GPU it may wait for the device."""
    if not isinstance(result.loss_sum, Tensor):
        return partial(float, result.loss_sum)
    read = clock.read_back(result.loss_sum)
    return lambda: float(read())


def pacing_for(
    components: RunComponents,
    group: Group,
    newest: Callable[[], ControlState],
    *,
    name: str,
    start: ControlState,
    position: Position = START,
    knows_stop: Callable[[], bool] = bool,
    stop_version: Callable[[], int] = int,
    rounds: Sequence[Round] | None = None,
    take_step: TakeStep = lambda take: take(),
) -> Pacing:
    """Return the configured pacing for a new interval; collective.

    Args:
        components: components of the run.
        group: the ranks.
        newest: returns the newest control state; only rank 0's counts.
        name: name of the averager, unique for every interval.
        start: the current control state.
        position: start position of the interval.
        knows_stop: returns whether this rank knows of a request to stop; never by default.
        stop_version: returns the version of the first request to stop; 0 without one.
        rounds: averaging rounds of an earlier run of this rank, to repeat.
        take_step: takes this rank's next step of a shared epoch.
    """
    if components.config["exchange"] == "gradients":
        return Synchronous(components, newest, knows_stop=knows_stop, stop_version=stop_version, start=start)
    averager = averager_for(
        group,
        [parameter.data for parameter in components.model.parameters()],
        every_s=components.config["average_every_s"],
        newest_state=newest,
        name=name,
        start=start,
        step=position.step,
        replay=rounds,
        position=(position.epoch, position.iteration),
        share=components.strategy.share,
        weights=components.config["average_weights"],
    )
    return Averaged(components, averager, group=group, start=position, take_step=take_step)
