"""Declared properties of schedulers."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import facts_of, lower_bound_s, relative_gap


def test_schedulers_say_what_is_known_of_them_beforehand() -> None:
    facts = {name: facts_of(name) for name in catalogue.names("scheduling")}
    assert [name for name, each in facts.items() if not each.uses_times] == ["round_robin", "consecutive"]
    assert [name for name, each in facts.items() if each.searches] == ["dygnex_ilp", "dygnex_auto", "best_of"]
    assert facts["dygnex_ilp"].most_groups == 100 and facts["dygnex_auto"].chooses


def test_a_gap_is_the_distance_to_the_bound() -> None:
    times_s = np.array([4.0, 4.0, 1.0])
    plan = Schedule((((0,), (1,)), ((2,), ())), 3)
    assert lower_bound_s(times_s, 2, allreduce_s=0.5) == pytest.approx(5.5)
    assert relative_gap(plan.makespan_s(times_s, allreduce_s=0.5), 5.5) == pytest.approx(6.0 / 5.5 - 1)
    assert relative_gap(Schedule((((0,),),), 1).makespan_s(np.zeros(1)), lower_bound_s(np.zeros(1), 1)) == 0.0
