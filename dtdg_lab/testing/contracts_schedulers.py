"""What every scheduler promises: a checker for one's own, and a pytest suite to inherit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.streams import generator
from dtdg_lab.scheduling.bounds import lower_bound_s
from dtdg_lab.testing.requirements import require

PARTS = (1, 2, 3, 4, 8)
PER_RANK = (1, 2, 3)


class Scheduler(Protocol):
    """A rule that deals K groups to P parts; the parts are given by position."""

    def __call__(
        self, times_s: NDArray[np.float64], parts: int, /, *, per_rank: int = 2, allreduce_s: float = 0.0
    ) -> Schedule:
        """The plan of an epoch."""
        ...


def example_times_s() -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Named (K,) vectors of group seconds that schedulers get wrong when they get something wrong."""
    draw = generator(0, "contract/times")
    yield "one group", np.array([0.5])
    yield "two groups", np.array([1.0, 2.0])
    yield "all alike", np.ones(12)
    yield "all zero", np.zeros(7)
    yield "linear growth", np.linspace(1.0, 10.0, 23)
    yield "exponential growth with noise", np.geomspace(1.0, 20.0, 30) * (1 + 0.05 * draw.standard_normal(30))
    yield "one giant", np.concatenate([np.ones(9), [100.0], np.ones(3)])
    yield "nanoseconds", 1e-9 * draw.random(17)
    yield "ties in pairs", np.repeat([3.0, 1.0, 2.0, 5.0], 4)


def check_plan(
    schedule: Scheduler, times_s: NDArray[np.float64], parts: int, *, per_rank: int, allreduce_s: float = 0.0
) -> Schedule:
    """Schedule once and check the promises; returns the plan, for checks of one's own.

    Raises:
        ContractError: a promise is broken.
        PlanError: the plan loses or repeats a group.
    """
    given = np.array(times_s, dtype=np.float64)
    given.setflags(write=False)  # profiles are shared: a scheduler that sorts in place fails here
    plan = schedule(given, parts, per_rank=per_rank, allreduce_s=allreduce_s)
    case = f"K={len(given)}, P={parts}, per_rank={per_rank}"
    require(isinstance(plan, Schedule), f"a scheduler returns a Schedule, not {type(plan).__name__} ({case})")
    require(plan.groups == len(given), f"the plan is for {plan.groups} groups, not for those given ({case})")
    require(plan.parts == parts, f"the plan has {plan.parts} parts, not those asked for ({case})")
    most = max(len(part) for iteration in plan.assignment for part in iteration)
    require(most <= per_rank, f"a part has {most} groups in one iteration, more than per_rank ({case})")
    kinds = {type(group) for iteration in plan.assignment for part in iteration for group in part}
    require(kinds == {int}, f"group ids are plain ints, so that plans can be stored, not {kinds} ({case})")
    again = schedule(given.copy(), parts, per_rank=per_rank, allreduce_s=allreduce_s)
    require(again.assignment == plan.assignment, f"the same times gave another plan: ranks would disagree ({case})")
    bound_s = lower_bound_s(given, parts, per_rank=per_rank, allreduce_s=allreduce_s)
    makespan_s = plan.makespan_s(given, allreduce_s=allreduce_s)
    require(makespan_s >= bound_s * (1 - 1e-9), f"{makespan_s} s is faster than any plan can be, {bound_s} s ({case})")
    if plan.gap is not None:
        farthest = makespan_s / bound_s - 1 if bound_s > 0 else 0.0  # a search may know a better bound, not a worse one
        require(0 <= plan.gap <= farthest + 1e-9, f"a gap of {plan.gap}, where at most {farthest} is left ({case})")
    return plan


def check_scheduler(schedule: Scheduler) -> None:
    """Check a scheduler on hard and easy times, with 1 to 8 parts and 1 to 3 groups a part.

    Every group is placed once, ``per_rank`` is respected, the plan has the parts asked for and is a pure function of
    its input, which is left unchanged. No plan is faster than the lower bound, no gap larger than the distance to it.
    One group, and fewer groups than parts, are among the cases.

    Raises:
        ContractError: a promise is broken; the message names the case.
        PlanError: a plan loses or repeats a group.
    """
    for _, times_s in example_times_s():
        for parts in PARTS:
            for per_rank in PER_RANK:
                check_plan(schedule, times_s, parts, per_rank=per_rank)
                check_plan(schedule, times_s, parts, per_rank=per_rank, allreduce_s=0.25)


class SchedulerContract:
    """Pytest suite of schedulers: inherit it and define a fixture ``schedule`` that returns the function."""

    def test_keeps_every_promise(self, schedule: Scheduler) -> None:
        """:func:`check_scheduler` holds."""
        check_scheduler(schedule)

    def test_is_never_slower_than_one_part_doing_everything(self, schedule: Scheduler) -> None:
        """The predicted epoch lies between the bounds that hold for every plan."""
        for name, times_s in example_times_s():
            for parts in PARTS:
                makespan_s = check_plan(schedule, times_s, parts, per_rank=1).makespan_s(times_s)
                slack = 1e-9 * times_s.sum()
                require(makespan_s <= times_s.sum() + slack, f"{name}: {parts} parts take longer than one")
                lowest_s = max(times_s.max(), times_s.sum() / parts)
                require(makespan_s >= lowest_s - slack, f"{name}: faster than possible")

    def test_deals_fewer_groups_than_parts(self, schedule: Scheduler) -> None:
        """With more parts than groups one iteration is enough, and idle parts are allowed."""
        for groups in (1, 3):
            plan = check_plan(schedule, np.arange(1.0, groups + 1), 8, per_rank=1)
            require(len(plan.assignment) == 1, f"{groups} groups on 8 parts took {len(plan.assignment)} iterations")
