"""Pacing of ranks: all make every step together, or each at its own pace with averaged models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.distributed.averager import Averager, ControlState, Round
from dtdg_lab.distributed.gradients import Exchanged
from dtdg_lab.distributed.group import Group
from dtdg_lab.distributed.model_averaging import averager_for
from dtdg_lab.engine.strategy import Step, StepResult
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.collective import joined_position
from dtdg_lab.training.position import Position

CONTROL_ROUND_S = 0.5  # a paused job meets this often
START = Position()
PAUSED_S = 0.005  # between two looks at rounds of averaging

TakeStep = Callable[[Callable[[], int | None]], int | None]  # given how to take a step, the step's number


class Synchronous:
    """Gradients are summed over ranks in every step, and the control state is piggybacked on them.

    Args:
        components: what trains.
        newest: returns the newest control state; rank 0's counts.
        knows_stop: returns whether this rank knows of a request to stop. It may be newer than rank 0's control state,
            which rank 0 reports as it comes to the exchange, where it may wait for others.
        stop_version: returns the version of the first request to stop, the same on all ranks; 0 without one.
        start: the control state that applies already.

    Attributes:
        synchronous: whether all ranks make every step together, so that collective work may follow any step.
        epoch_steps: steps of the present epoch, by all ranks that share them.
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
        """Yield this rank's steps of the rest of an epoch."""
        steps = self._strategy.epoch(position.epoch)
        self.epoch_steps = len(steps)
        yield from steps[position.iteration :]

    def exchange(self, result: StepResult) -> Exchanged:
        """Turn the gradients into those of the update; return the loss that all ranks agree on."""
        newest = self._newest()
        exchanged = self._gradients.exchange(
            version=newest.version,
            choice=newest.choice,
            stops=self._knows_stop(),
            loss_sum=result.loss_sum,
            groups=result.groups,
        )
        version = max(exchanged.version, self._stop_version()) if exchanged.stops else exchanged.version
        self._agreed = ControlState(version, exchanged.choice)
        return exchanged

    def agreed(self) -> ControlState:
        """Return the control state to be followed from the next step on; asked once after every update."""
        return self._agreed

    def pause(self, wait: Callable[[float], None]) -> ControlState:
        """Pause for a while, and return the control state; ``wait`` returns early after a request on this rank."""
        wait(CONTROL_ROUND_S)
        self._agreed = self._agreed._replace(version=self._gradients.agree(self._newest().version))
        return self._agreed

    def gather(self, follow: Callable[[ControlState], None]) -> None:
        """Wait until all ranks have one model and one control state; collective work may follow.

        Args:
            follow: receives every control state until then.
        """

    def joined(self, position: Position) -> Position:
        """Return where all ranks are that have gathered, from this rank's position; collective."""
        return position

    def rounds(self) -> list[Round]:
        """Return and forget the rounds of averaging."""
        return []

    def apply_settings(self, config: RunConfig) -> None:
        """Follow changed settings."""

    def close(self, reason: str) -> None:
        """Leave because of a failure here; the others find out from the collective that fails."""


class Averaged(Synchronous):
    """Each rank updates by its own gradients; models are averaged now and then, with the control state.

    Ranks share the steps of an epoch: ``iteration`` is a step's number among those of all ranks, and a rank makes those
    that it takes.

    Args:
        components: what trains.
        averager: of the ranks.
        group: the ranks.
        start: where all ranks begin.
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
        """Take the mean of this rank's gradients alone."""
        self._gradients.divide(result.groups)
        agreed = self._averager.agreed
        return Exchanged(agreed.version, result.loss_sum, result.groups, 0.0, 0.0, agreed.choice)

    def agreed(self) -> ControlState:
        """Serve the averaging, and return the control state of the newest round."""
        self._averager.control()
        return self._averager.agreed

    def pause(self, wait: Callable[[float], None]) -> ControlState:
        """Serve rounds without a step."""
        time.sleep(PAUSED_S)
        self._averager.idle()
        return self._averager.agreed

    def gather(self, follow: Callable[[ControlState], None]) -> None:
        """Serve the others until they come; a second call does nothing."""
        self._averager.finish(lambda: follow(self._averager.agreed))

    def joined(self, position: Position) -> Position:
        """Return epoch and iteration after all steps that ranks have made, and this rank's own step; collective."""
        steps = len(self._strategy.epoch(position.epoch)) * self._group.size
        device = str(self._gradients.gradients.device)
        self._start = joined_position(self._start, position, self._group, steps=steps, device=device)
        return self._start

    def rounds(self) -> list[Round]:
        """Return and forget the rounds that were applied."""
        return self._averager.taken()

    def apply_settings(self, config: RunConfig) -> None:
        """Average as often as the settings say."""
        self._averager.every_s = config["average_every_s"]

    def close(self, reason: str) -> None:
        """Leave, and tell the others the reason."""
        self._averager.close(reason)


Pacing = Synchronous | Averaged


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
    """Return the pacing that the config asks for, for an interval that begins; collective.

    Args:
        components: what trains.
        group: the ranks.
        newest: returns the newest control state; rank 0's counts.
        name: of the averager, another one for every interval.
        start: the control state that applies already.
        position: where the interval begins.
        knows_stop: returns whether this rank knows of a request to stop; never by default.
        stop_version: returns the version of the first request to stop; 0 without one.
        rounds: of an earlier run of this rank, to be repeated.
        take_step: takes this rank's next step of an epoch that ranks share.
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
    )
    return Averaged(components, averager, group=group, start=position, take_step=take_step)
