"""How the gradients of a step become an update, and how ranks agree: all together, or each at its own pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from dtdg_lab.distributed.gradients import Exchanged, FlatGradients
from dtdg_lab.distributed.group import Group
from dtdg_lab.distributed.model_averaging import Averager, ControlState, Round, averager_for
from dtdg_lab.engine.strategy import StepResult
from dtdg_lab.training.build import RunComponents

CONTROL_ROUND_S = 0.5  # a paused job meets this often
PAUSED_S = 0.005  # between two looks at rounds of averaging


class Updates:
    """Gradients are summed over ranks in every step, and the word rides with them.

    Args:
        gradients: of the model.
        asked: the newest word; rank 0's counts.
        stops: whether this rank knows of a request to stop. It may be newer than rank 0's word, which rank 0 tells as
            it comes to the exchange, where it may wait for others.
        stop_version: version of the first request to stop, the same on all ranks; 0 without one.
        start: the word that holds already.

    Attributes:
        together: whether every step is made by all ranks at once, so that what is collective may follow any of them.
    """

    together = True

    def __init__(
        self,
        gradients: FlatGradients,
        asked: Callable[[], ControlState],
        stops: Callable[[], bool],
        stop_version: Callable[[], int],
        start: ControlState,
    ) -> None:
        self._gradients, self._asked, self._word = gradients, asked, start
        self._stops, self._stop_version = stops, stop_version

    def exchange(self, computed: StepResult) -> Exchanged:
        """Make the gradients those of the update; what a step is known by."""
        asked = self._asked()
        agreed = self._gradients.exchange(
            version=asked.version,
            choice=asked.choice,
            stops=self._stops(),
            loss_sum=computed.loss_sum,
            groups=computed.groups,
        )
        version = max(agreed.version, self._stop_version()) if agreed.stops else agreed.version
        self._word = ControlState(version, agreed.choice)
        return agreed

    def follow(self) -> ControlState:
        """The word to be followed from the next step on; asked once after every update."""
        return self._word

    def pause(self, wait: Callable[[float], None]) -> ControlState:
        """Stand still for a while, and hear the word; ``wait`` returns early where something was asked for here."""
        wait(CONTROL_ROUND_S)
        self._word = self._word._replace(version=self._gradients.agree(self._asked().version))
        return self._word

    def gather(self, hear: Callable[[ControlState], None]) -> None:
        """Return when all ranks are here, with one model and one word; what is collective may follow.

        ``hear`` receives every word until then.
        """

    def rounds(self) -> list[Round]:
        """Rounds of averaging since this was last asked."""
        return []

    def close(self, reason: str) -> None:
        """Leave because of a failure here; the others find out from the collective that fails."""


class AveragedUpdates(Updates):
    """Each rank updates by its own gradients; models are averaged now and then, and the word rides with them.

    Args:
        gradients: of the model.
        averager: of the ranks.
    """

    together = False

    def __init__(self, gradients: FlatGradients, averager: Averager) -> None:
        self._gradients, self._averager = gradients, averager

    def exchange(self, computed: StepResult) -> Exchanged:
        """Own gradients alone."""
        self._gradients.divide(computed.groups)
        word = self._averager.agreed
        return Exchanged(word.version, computed.loss_sum, computed.groups, 0.0, 0.0, word.choice)

    def follow(self) -> ControlState:
        """Serve the averaging; the word of the newest round."""
        self._averager.control()
        return self._averager.agreed

    def pause(self, wait: Callable[[float], None]) -> ControlState:
        """Serve rounds without a step."""
        time.sleep(PAUSED_S)
        self._averager.idle()
        return self._averager.agreed

    def next_step(self, epoch: int, steps: int) -> int | None:
        """The number of a step of an epoch that this rank is to make; None where all ``steps`` of it are taken."""
        return self._averager.next_step(epoch, steps)

    def every(self, seconds: float) -> None:
        """Average this often from here on; rank 0's word counts."""
        self._averager.every_s = seconds

    def gather(self, hear: Callable[[ControlState], None]) -> None:
        """Serve the others until they come; a second call does nothing."""
        self._averager.finish(lambda: hear(self._averager.agreed))

    def rounds(self) -> list[Round]:
        """Those applied."""
        return self._averager.taken()

    def close(self, reason: str) -> None:
        """Tell the others."""
        self._averager.close(reason)


def updates_for(
    built: RunComponents,
    group: Group,
    asked: Callable[[], ControlState],
    *,
    name: str,
    start: ControlState,
    stops: Callable[[], bool] = bool,
    stop_version: Callable[[], int] = int,
    step: int = 0,
    place: tuple[int, int] = (0, 0),
    replay: Sequence[Round] | None = None,
) -> Updates:
    """What the config asks for; collective.

    Args:
        built: what trains.
        group: the ranks.
        asked: the newest word; rank 0's counts.
        name: of the averager, another one after every change.
        start: the word that holds already.
        stops: whether this rank knows of a request to stop; never by default.
        stop_version: version of the first request to stop; 0 without one.
        step: of the run, that comes next.
        place: the epoch that is under way, and how many of its steps have been made.
        replay: rounds of an earlier run of this rank, to be repeated.
    """
    if built.config["exchange"] == "gradients":
        return Updates(built.gradients, asked, stops, stop_version, start)
    parameters = [parameter.data for parameter in built.model.parameters()]
    averager = averager_for(
        group,
        parameters,
        every_s=built.config["average_every_s"],
        asked=asked,
        name=name,
        start=start,
        step=step,
        replay=replay,
        place=place,
        share=built.strategy.share,
    )
    return AveragedUpdates(built.gradients, averager)
