"""Every scheduler of the catalogue keeps the schedulers' contract, and the checker finds what breaks it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config.catalogue import entries
from dtdg_lab.core.errors import ConfigError, ContractError, PlanError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.contract import check_plan, check_scheduler


@pytest.fixture(params=entries("scheduling"), ids=lambda entry: entry.name)
def scheduler(request: pytest.FixtureRequest) -> Any:
    return request.param.load()


def test_every_scheduler_keeps_the_contract(scheduler: Callable[..., Schedule]) -> None:
    # a wide gap lets the bound certify nearly all cases: searching to 2 % is tested elsewhere, on a few
    check_scheduler(functools.partial(scheduler, gap=0.5, time_limit_s=60.0))


@pytest.mark.parametrize(
    ("times_s", "said"),
    [
        ([], "at least one group"),
        ([[1.0, 2.0]], "shape"),
        (3.0, "shape"),
        (["long"], "must hold the seconds"),
        ([1.0, -1.0], "group 1: -1.0 s"),
        ([np.nan, 1.0], "group 0: nan s"),
        ([1.0, np.inf], "group 1: inf s"),
        ([1e308, 1e308], "the sum of the group times exceeds"),
    ],
)
def test_wrong_times_are_refused(scheduler: Callable[..., Schedule], times_s: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        scheduler(times_s, 2)


@pytest.mark.parametrize(
    "knob",
    [
        {"per_rank": 0},
        {"per_rank": -1},
        {"per_rank": 1.5},
        {"per_rank": True},
        {"allreduce_s": -0.1},
        {"allreduce_s": np.nan},
        {"gap": -0.01},
        {"gap": np.inf},
        {"gap": "small"},
        {"time_limit_s": 0},
        {"time_limit_s": -1.0},
        {"time_limit_s": np.nan},
        {"seed": -1},
        {"seed": 0.5},
        {"targets": -1},
        {"targets": 1.5},
    ],
    ids=str,
)
def test_wrong_knobs_are_refused(scheduler: Callable[..., Schedule], knob: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(knob))):
        scheduler(np.ones(4), 2, **knob)


@pytest.mark.parametrize("ranks", [0, -2, 1.0, "two"])
def test_wrong_ranks_are_refused(scheduler: Callable[..., Schedule], ranks: Any) -> None:
    with pytest.raises(ConfigError, match="ranks"):
        scheduler(np.ones(4), ranks)


def test_groups_that_take_no_time_are_scheduled_and_fewer_groups_than_ranks_leave_ranks_idle(
    scheduler: Callable[..., Schedule],
) -> None:
    plan = scheduler(np.zeros(5), 2)
    assert plan.gap == 0.0
    idle = scheduler(np.array([1.0, 0.0, 2.0]), 8)
    assert len(idle.assignment) == 1
    assert sum(not part for part in idle.assignment[0]) >= 5  # consecutive fills its first ranks with two groups


def test_lists_and_whole_numbers_are_taken_and_the_time_it_took_is_told(scheduler: Callable[..., Schedule]) -> None:
    plan = scheduler([3, 1, 2], 2, per_rank=2)
    assert plan.seconds > 0
    assert plan.makespan_s(np.array([3.0, 1.0, 2.0])) <= 6.0


def _in_turn(times_s: Any, parts: int, per_rank: int, order: list[int] | None = None) -> tuple:
    order = list(range(len(times_s))) if order is None else order
    share = parts * per_rank
    rows = [order[first : first + share] for first in range(0, len(order), share)]
    return tuple(tuple(tuple(row[part::parts]) for part in range(parts)) for row in rows)


def honest(times_s: Any, parts: int, *, per_rank: int = 1, allreduce_s: float = 0.0) -> Schedule:
    return Schedule(_in_turn(times_s, parts, per_rank), len(times_s))


def loses_the_last(times_s: Any, parts: int, *, per_rank: int = 1, allreduce_s: float = 0.0) -> Schedule:
    return Schedule(_in_turn(times_s[:-1], parts, per_rank), len(times_s))


def forgets_the_last(times_s: Any, parts: int, *, per_rank: int = 1, allreduce_s: float = 0.0) -> Schedule:
    keep = max(1, len(times_s) - 1)
    return Schedule(_in_turn(times_s[:keep], parts, per_rank), keep)


def takes_too_many(times_s: Any, parts: int, *, per_rank: int = 1, allreduce_s: float = 0.0) -> Schedule:
    return Schedule(_in_turn(times_s, parts, per_rank + 1), len(times_s))


def wants_two_parts(times_s: Any, parts: int, *, per_rank: int = 1, allreduce_s: float = 0.0) -> Schedule:
    return Schedule(_in_turn(times_s, 2, per_rank), len(times_s))


def draws_lots(times_s: Any, parts: int, *, per_rank: int = 1, allreduce_s: float = 0.0) -> Schedule:
    order = [int(group) for group in np.random.default_rng().permutation(len(times_s))]
    return Schedule(_in_turn(times_s, parts, per_rank, order), len(times_s))


def sorts_in_place(times_s: Any, parts: int, *, per_rank: int = 1, allreduce_s: float = 0.0) -> Schedule:
    times_s.sort()
    return honest(times_s, parts, per_rank=per_rank)


def gives_numpy_ids(times_s: Any, parts: int, *, per_rank: int = 1, allreduce_s: float = 0.0) -> Schedule:
    order: Any = list(np.arange(len(times_s)))
    return Schedule(_in_turn(times_s, parts, per_rank, order), len(times_s))


def boasts_of_its_gap(times_s: Any, parts: int, *, per_rank: int = 1, allreduce_s: float = 0.0) -> Schedule:
    return Schedule(_in_turn(times_s, parts, per_rank), len(times_s), gap=9.0)


def test_an_honest_scheduler_passes() -> None:
    check_scheduler(honest)


@pytest.mark.parametrize(
    ("broken", "error", "said"),
    [
        (loses_the_last, PlanError, "at least one group|missing"),
        (forgets_the_last, ContractError, "groups instead of"),
        (takes_too_many, ContractError, "more than per_rank"),
        (wants_two_parts, ContractError, "parts instead of"),
        (draws_lots, ContractError, "gave different plans"),
        (sorts_in_place, ValueError, "read-only"),
        (gives_numpy_ids, ContractError, "plain ints"),
        (boasts_of_its_gap, ContractError, "exceeds the largest possible"),
    ],
)
def test_a_broken_scheduler_is_found(broken: Callable[..., Schedule], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        check_scheduler(broken)


def test_the_message_names_the_case() -> None:
    with pytest.raises(ContractError, match=r"K=5, P=2, per_rank=1"):
        check_plan(takes_too_many, np.ones(5), 2, per_rank=1)
