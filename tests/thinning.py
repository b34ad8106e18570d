"""Pytest plugin: `make test` takes a part of long products, `make test-full` all of them.

A test with three or more parameters runs on a pairwise covering: every pair of values occurs, not every tuple.
:func:`thinned` keeps some cases of one long list. What is left out is marked ``slow``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import pytest

LEAST_AXES = 3  # the pairs of two parameters are the whole product


def thinned(cases: Iterable[Any], keep: int | Iterable[int] = 1) -> list[Any]:
    """Cases for ``parametrize`` or ``fixture(params=...)``: some run in `make test`, the others in `make test-full`.

    Args:
        cases: Values, tuples of values, or ``pytest.param``.
        keep: How many, spread evenly from the first, or the places (from 0) of those that run in `make test`.
    """
    cases = list(cases)
    places = (
        {round(i * (len(cases) - 1) / max(keep - 1, 1)) for i in range(keep)} if isinstance(keep, int) else set(keep)
    )
    if not places <= set(range(len(cases))):
        raise ValueError(f"keep has places {sorted(places)}, but there are {len(cases)} cases")
    return [case if place in places else _slow(case) for place, case in enumerate(cases)]


def values_that_run(request: pytest.FixtureRequest, *names: str) -> list[tuple[Any, ...]]:
    """Values of parameters in those tests of a fixture's file that run: what the fixture has to compute."""
    params = (
        item.callspec.params
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    )
    return list(dict.fromkeys(tuple(of[name] for name in names) for of in params if {*names} <= of.keys()))


def _slow(case: Any) -> Any:
    if hasattr(case, "marks") and hasattr(case, "values"):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    return (
        pytest.param(*case, marks=pytest.mark.slow)
        if isinstance(case, tuple)
        else pytest.param(case, marks=pytest.mark.slow)
    )


def covering(tuples: list[tuple[Any, ...]]) -> set[int]:
    """Places of tuples that together have every pair of values that any tuple has; found greedily."""
    pairs = [set(combinations(enumerate(one), 2)) for one in tuples]
    missing, chosen = set().union(*pairs), set()
    while missing:
        best = max(range(len(tuples)), key=lambda place: len(pairs[place] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return chosen


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    products: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            products[re.sub(r"\[.*", "", item.nodeid, flags=re.DOTALL)].append(item)
    for tests in products.values():
        tuples = [_tuple(test) for test in tests]
        if len(tuples[0]) >= LEAST_AXES:
            chosen = covering(tuples)
            for place, test in enumerate(tests):
                if place not in chosen:
                    test.add_marker(pytest.mark.slow)


def _tuple(test: Any) -> tuple[Any, ...]:
    """A test's values as objects' numbers, one for each ``parametrize`` and for each fixture with parameters."""
    params = test.callspec.params
    names = [re.findall(r"\w+", str(mark.args[0])) for mark in test.iter_markers("parametrize")]
    names += [[name] for name in params if not any(name in axis for axis in names)]
    return tuple(tuple(id(params[name]) for name in axis) for axis in names)
