"""Every scheduler of the catalogue keeps the schedulers' contract, and the checker finds what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.testing.contracts_schedulers import SchedulerContract, check_plan, check_scheduler
from dtdg_lab.testing.requirements import ContractError


class TestCatalogue(SchedulerContract):
    @pytest.fixture(params=catalogue.names("scheduling"))
    def schedule(self, request: pytest.FixtureRequest) -> Any:
        return catalogue.entry("scheduling", request.param).load()


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


def test_an_honest_scheduler_passes() -> None:
    check_scheduler(honest)


@pytest.mark.parametrize(
    ("broken", "error", "said"),
    [
        (loses_the_last, PlanError, "at least one group|missing"),
        (forgets_the_last, ContractError, "not for those given"),
        (takes_too_many, ContractError, "more than per_rank"),
        (wants_two_parts, ContractError, "parts, not those asked for"),
        (draws_lots, ContractError, "another plan"),
        (sorts_in_place, ValueError, "read-only"),
        (gives_numpy_ids, ContractError, "plain ints"),
    ],
)
def test_a_broken_scheduler_is_found(broken: Callable[..., Schedule], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        check_scheduler(broken)


def test_the_message_names_the_case() -> None:
    with pytest.raises(ContractError, match=r"K=5, P=2, per_rank=1"):
        check_plan(takes_too_many, np.ones(5), 2, per_rank=1)
