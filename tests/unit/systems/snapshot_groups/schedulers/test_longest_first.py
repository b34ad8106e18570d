"""Longest first, on plans small enough to read."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.systems.snapshot_groups.schedulers.heuristics import schedule_round_robin
from dtdg_lab.systems.snapshot_groups.schedulers.longest_first import schedule_longest_first


def test_longest_first_puts_like_beside_like() -> None:
    plan = schedule_longest_first(np.array([1.0, 9.0, 2.0, 8.0, 3.0]), 2, per_rank=1)
    assert plan.assignment == (((1,), (3,)), ((4,), (2,)), ((0,), ()))


def test_longest_first_evens_out_within_an_iteration() -> None:
    times_s = np.array([4.0, 3.0, 2.0, 1.0])
    plan = schedule_longest_first(times_s, 2, per_rank=2)
    assert plan.assignment == (((0, 3), (1, 2)),)
    assert plan.makespan_s(times_s) == 5.0


def test_ties_go_to_the_lower_group_and_the_lower_part() -> None:
    assert schedule_longest_first(np.ones(5), 2, per_rank=1).assignment == (((0,), (1,)), ((2,), (3,)), ((4,), ()))


@pytest.mark.parametrize("schedule", [schedule_round_robin, schedule_longest_first])
def test_more_parts_than_groups_leaves_the_rest_idle(schedule: object) -> None:
    plan = schedule(np.array([2.0]), 4)  # type: ignore[operator]
    assert plan.assignment == (((0,), (), (), ()),)
