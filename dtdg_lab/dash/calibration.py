"""What a run's schedule view tells about its time: what schedules of the same groups can be judged by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.config import RunConfig
from dtdg_lab.views.gantt import Epoch
from dtdg_lab.views.schedule import ScheduleView
from dtdg_lab.views.schedule_facts import ScheduleFacts
from dtdg_lab.views.what_if import PSG

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

# settings in which runs may differ whose epochs are compared: numbers of ranks, and what a schedule was made from
_FREE = (
    "system", "ranks", "parts", "epochs", "scheduler", "groups_per_rank", "group_times", "profile_epochs",
    "schedule_gap", "schedule_limit_s", "schedule_targets",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Seconds that a run measured.

    Attributes:
        facts: of its schedule.
        times_s: (K,) of each group; as the scheduler knew it where not measured.
        exchange_s: of the all-reduce of an iteration, without waiting; 0 on one rank.
        step_s: of an iteration beside own work, waiting and all-reduce.
        epoch: from 1; the newest that was measured as a whole. 0 where there is none.
        epoch_s: of the steps of that epoch; None where there is none.
        processor: processor seconds over wall-clock seconds of the groups; None where unknown.
    """

    facts: ScheduleFacts
    times_s: NDArray[np.float64]
    exchange_s: float
    step_s: float
    epoch: int
    epoch_s: float | None
    processor: float | None

    @property
    def per_rank(self) -> int:
        """Most groups of a rank in an iteration."""
        return max(1, self.facts.per_rank * self.facts.parts // self.facts.ranks)

    @property
    def scheduler(self) -> str:
        """As the room ``scheduling`` calls it: round robin with one group a rank is ``psg``."""
        one = (self.facts.scheduler, self.per_rank) == ("round_robin", 1)
        return PSG if one else self.facts.scheduler


def calibrate(view: ScheduleView) -> Calibration | None:
    """What the view knows now, the run's lock being held; None before a group of its schedule was measured."""
    facts = view.facts
    if facts is None or not np.isfinite(view.times.seconds(facts.groups)).any():
        return None
    drawn = view.gantt.shown(facts.groups)
    exchange_s = 0.0 if drawn is None or facts.ranks == 1 else _exchange_s(drawn)
    known = [each for each in view.balance.recent() if drawn is not None and each.epoch == drawn.number]
    rest_s = sum(each.time_s - each.critical_s for each in known) / max(1, sum(each.iterations for each in known))
    whole = [each for each in known if drawn is not None and _followed(drawn, facts)]
    whole = [each for each in whole if each.iterations == facts.iterations]
    return Calibration(
        facts, view.times_s(), exchange_s, max(0.0, rest_s - exchange_s),
        whole[0].epoch + 1 if whole else 0, whole[0].time_s if whole else None, view.times.processor_share(),
    )  # fmt: skip


def measured_epochs(own: Calibration, config: RunConfig, runs: Iterable[Run]) -> dict[int, float]:
    """Ranks -> seconds of an epoch that was measured on so many; of several runs the newest counts.

    Args:
        own: of the run on screen.
        config: its settings.
        runs: oldest first; those that differ in more than ranks are passed over, as are those scheduled otherwise.
    """
    found: dict[int, float] = {}
    for run in runs:
        if not _alike(run.config, config):
            continue
        with run.lock:
            other = calibrate(run.window.schedule)
        if other is None or other.epoch_s is None or len(other.times_s) != len(own.times_s):
            continue
        if (other.scheduler, other.per_rank) == (own.scheduler, own.per_rank):
            found[other.facts.ranks] = other.epoch_s
    return found if own.epoch_s is None else {**found, own.facts.ranks: own.epoch_s}


def _alike(one: RunConfig, other: RunConfig) -> bool:
    first, second = ({name: value for name, value in each.flat.items() if name not in _FREE} for each in (one, other))
    return first == second


def _exchange_s(epoch: Epoch) -> float:
    """Mean seconds of an iteration's all-reduce, on the rank where it took longest."""
    steps: dict[int, dict[int, int]] = {}
    for block in epoch.of("communicate"):
        ranks = steps.setdefault(block.step, {})
        ranks[block.rank] = ranks.get(block.rank, 0) + block.end_ns - block.start_ns
    return fmean(max(ranks.values()) for ranks in steps.values()) / 1e9 if steps else 0.0


def _followed(epoch: Epoch, facts: ScheduleFacts) -> bool:
    """Whether all of the epoch's iterations were computed as the schedule says."""
    steps: dict[int, set[int]] = {}
    for block in epoch.of("group"):
        steps.setdefault(block.step, set()).add(block.group)
    done = [steps[step] for step in sorted(steps)]
    return not epoch.cut and done == [{group for part in row for group in part} for row in facts.assignment]
