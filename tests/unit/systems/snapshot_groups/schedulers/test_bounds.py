"""Gaps between schedules and their lower bound."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.bounds import lower_bound_s, relative_gap


def test_a_gap_is_the_distance_to_the_bound() -> None:
    times_s = np.array([4.0, 4.0, 1.0])
    plan = Schedule((((0,), (1,)), ((2,), ())), 3)
    assert lower_bound_s(times_s, 2, allreduce_s=0.5) == pytest.approx(5.5)
    assert relative_gap(plan.makespan_s(times_s, allreduce_s=0.5), 5.5) == pytest.approx(6.0 / 5.5 - 1)
    assert relative_gap(Schedule((((0,),),), 1).makespan_s(np.zeros(1)), lower_bound_s(np.zeros(1), 1)) == 0.0
