"""The contract of every scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import require
from dtdg_lab.core.plans import Schedule
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s

PARTS = (1, 2, 3, 4, 8)
PER_RANK = (1, 2, 3)


class Scheduler(Protocol):
    """A rule that assigns K groups to P parts; the parts are given by position."""

    def __call__(
        self, times_s: NDArray[np.float64], parts: int, /, *, per_rank: int = 2, allreduce_s: float = 0.0
    ) -> Schedule:
        """Return the plan of an epoch."""


def example_times_s() -> Iterator[NDArray[np.float64]]:
    """Yield (K,) vectors of group seconds that are hard to schedule."""
    rng = generator(0, "contract/times")
    yield np.array([0.5])
    yield np.array([1.0, 2.0])
    yield np.ones(12)
    yield np.zeros(7)
    yield np.linspace(1.0, 10.0, 23)
    yield np.geomspace(1.0, 20.0, 30) * (1 + 0.05 * rng.standard_normal(30))  # growth with noise
    yield np.concatenate([np.ones(9), [100.0], np.ones(3)])  # one giant
    yield 1e-9 * rng.random(17)
    yield np.repeat([3.0, 1.0, 2.0, 5.0], 4)  # ties


def check_plan(
    schedule: Scheduler, times_s: NDArray[np.float64], parts: int, *, per_rank: int, allreduce_s: float = 0.0
) -> Schedule:
    """Schedule once, check the plan, and return it.

    Raises:
        ContractError: a rule is broken.
        PlanError: the plan loses or repeats a group.
    """
    times_s = np.array(times_s, dtype=np.float64)
    times_s.setflags(write=False)  # make a scheduler fail that sorts in place, since profiles are shared
    plan = schedule(times_s, parts, per_rank=per_rank, allreduce_s=allreduce_s)
    case = f"K={len(times_s)}, P={parts}, per_rank={per_rank}"
    require(isinstance(plan, Schedule), f"a scheduler returns a Schedule, not {type(plan).__name__} ({case})")
    require(plan.groups == len(times_s), f"the plan has {plan.groups} groups instead of {len(times_s)} ({case})")
    require(plan.parts == parts, f"the plan has {plan.parts} parts instead of {parts} ({case})")
    largest = max(len(part) for iteration in plan.assignment for part in iteration)
    require(largest <= per_rank, f"a part has {largest} groups in one iteration, more than per_rank ({case})")
    types = {type(group) for iteration in plan.assignment for part in iteration for group in part}
    require(types == {int}, f"group ids are plain ints, so that plans can be stored, not {types} ({case})")
    repeated = schedule(times_s.copy(), parts, per_rank=per_rank, allreduce_s=allreduce_s)
    require(repeated.assignment == plan.assignment, f"equal times gave different plans: ranks would disagree ({case})")
    bound_s = lower_bound_s(times_s, parts, per_rank=per_rank, allreduce_s=allreduce_s)
    makespan_s = plan.makespan_s(times_s, allreduce_s=allreduce_s)
    require(makespan_s >= bound_s * (1 - 1e-9), f"{makespan_s} s is below the lower bound of {bound_s} s ({case})")
    if plan.gap is not None:
        largest_gap = makespan_s / bound_s - 1 if bound_s > 0 else 0.0  # a search may know a better bound
        require(
            0 <= plan.gap <= largest_gap + 1e-9,
            f"a gap of {plan.gap} exceeds the largest possible, {largest_gap} ({case})",
        )
    return plan


def check_scheduler(schedule: Scheduler) -> None:
    """Check a scheduler on hard and easy times, with 1 to 8 parts and 1 to 3 groups per part.

    Every group is placed once, ``per_rank`` is respected, and the plan has the requested parts. The plan is a pure
    function of its input, which is left unchanged. No plan is faster than the lower bound, and no gap is larger than
    the distance to it. The cases include a single group, and fewer groups than parts.

    Raises:
        ContractError: a rule is broken; the message names the case.
        PlanError: a plan loses or repeats a group.
    """
    for times_s in example_times_s():
        for parts in PARTS:
            for per_rank in PER_RANK:
                check_plan(schedule, times_s, parts, per_rank=per_rank)
                check_plan(schedule, times_s, parts, per_rank=per_rank, allreduce_s=0.25)
