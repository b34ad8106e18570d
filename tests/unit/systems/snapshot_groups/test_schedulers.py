"""What is special about each scheduler, on plans small enough to read."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.systems.snapshot_groups.schedulers import base, heuristics


def test_round_robin_deals_in_time_order() -> None:
    plan = heuristics.schedule_round_robin(np.ones(7), 3, per_rank=1)
    assert plan.assignment == (((0,), (1,), (2,)), ((3,), (4,), (5,)), ((6,), (), ()))


def test_round_robin_with_two_groups_a_part() -> None:
    plan = heuristics.schedule_round_robin(np.ones(7), 2, per_rank=2)
    assert plan.assignment == (((0, 2), (1, 3)), ((4, 6), (5,)))


def test_longest_first_puts_like_beside_like() -> None:
    plan = base.schedule_longest_first(np.array([1.0, 9.0, 2.0, 8.0, 3.0]), 2, per_rank=1)
    assert plan.assignment == (((1,), (3,)), ((4,), (2,)), ((0,), ()))


def test_longest_first_evens_out_within_an_iteration() -> None:
    times_s = np.array([4.0, 3.0, 2.0, 1.0])
    plan = base.schedule_longest_first(times_s, 2, per_rank=2)
    assert plan.assignment == (((0, 3), (1, 2)),)
    assert plan.makespan_s(times_s) == 5.0


def test_ties_go_to_the_lower_group_and_the_lower_part() -> None:
    assert base.schedule_longest_first(np.ones(5), 2, per_rank=1).assignment == (((0,), (1,)), ((2,), (3,)), ((4,), ()))


@pytest.mark.parametrize("schedule", [heuristics.schedule_round_robin, base.schedule_longest_first])
def test_more_parts_than_groups_leaves_the_rest_idle(schedule: object) -> None:
    plan = schedule(np.array([2.0]), 4)  # type: ignore[operator]
    assert plan.assignment == (((0,), (), (), ()),)


def test_growth_makes_round_robin_wait() -> None:
    """Linear growth 1 -> 10 on 4 parts: in time order each iteration waits for its newest group."""
    times_s = np.linspace(1, 10, 40)
    eager = heuristics.schedule_round_robin(times_s, 4, per_rank=2).makespan_s(times_s)
    even = base.schedule_longest_first(times_s, 4, per_rank=2).makespan_s(times_s)
    assert even < eager
    assert even < 1.06 * times_s.sum() / 4


def test_schedulers_say_what_is_known_of_them_beforehand() -> None:
    facts = {name: base.facts_of(name) for name in catalogue.names("scheduling")}
    assert [name for name, known in facts.items() if not known.uses_times] == ["round_robin", "consecutive"]
    assert [name for name, known in facts.items() if known.searches] == ["dygnex_ilp", "dygnex_auto", "best_of"]
    assert facts["dygnex_ilp"].most_groups == 100 and facts["dygnex_auto"].chooses


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"scheduler": "round_robin"}, False),
        ({"scheduler": "fold"}, True),
        ({"scheduler": "fold", "group_times": "size"}, False),
        ({"scheduler": "best_of", "group_times": "size"}, True),
    ],
)
def test_a_run_has_a_clock_where_measured_times_or_a_search_affect_its_schedule(
    settings: dict[str, str], expected: bool
) -> None:
    assert catalogue.family("snapshot_groups").has_clock(RunConfig(system="psg", **settings)) is expected
