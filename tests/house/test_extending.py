"""The how-tos of docs/extending.md are complete; tests/cluster/test_how_tos.py executes them."""

from __future__ import annotations

import inspect
import re
import tomllib
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from tests.how_tos import TEXT, how_tos


@pytest.fixture(scope="module")
def example() -> Any:
    names: dict[str, Any] = {}
    exec(compile(how_tos()["scheduler"].definition, "docs/extending.md", "exec"), names)
    return names["shortest_first"]


def test_each_kind_has_its_own_file_and_commands() -> None:
    found = how_tos()
    assert [*found] == ["model", "scheduler", "partitioner", "task", "data set", "chart", "system"]
    assert len({how_to.file for how_to in found.values()}) == len(found)
    for how_to in found.values():
        assert how_to.run.startswith(f"python -m dtdg_lab run --register {how_to.file} --set ")
        assert how_to.code.count("lab.register(") == 1 and "lab.register(" not in how_to.definition


@pytest.mark.parametrize(("groups", "parts", "per_rank"), [(1, 1, 1), (7, 2, 1), (7, 3, 2), (12, 4, 3), (3, 8, 1)])
def test_the_scheduler_places_every_group_shortest_first(example: Any, groups: int, parts: int, per_rank: int) -> None:
    times_s = np.random.default_rng(groups).random(groups)
    plan = example(times_s, parts, per_rank=per_rank)
    assert plan.parts == parts
    assert sorted(group for row in plan.assignment for part in row for group in part) == list(range(groups))
    assert max(len(part) for row in plan.assignment for part in row) <= per_rank
    rows = [[times_s[group] for part in row for group in part] for row in plan.assignment]
    assert all(max(before) <= min(after) for before, after in pairwise(rows))


def test_the_scheduler_takes_what_other_schedulers_take(example: Any) -> None:
    for name in catalogue.names("scheduling"):
        shared = inspect.signature(catalogue.entry("scheduling", name).load()).parameters
        mine = inspect.signature(example).parameters
        assert [parameter.kind for parameter in mine.values()] == [parameter.kind for parameter in shared.values()]
        assert list(mine)[2:] == list(shared)[2:]


def test_kinds_and_files_of_the_package_are_those_of_the_catalogue() -> None:
    table = dict(re.findall(r"^\| (\w[\w ]*) \| [^|]* \| `(\w+)` in ", TEXT, re.M))
    singular = {catalogue.SINGULAR[kind]: kind for kind in catalogue.SINGULAR}
    for kind in ("model", "scheduler", "partitioner", "task", "data set"):
        assert table[kind] == singular[kind]


def test_the_entry_of_the_scheduler_has_all_that_it_needs() -> None:
    text = re.search(r"^    \[entries\..*?\n\n", TEXT, re.S | re.M)
    assert text
    declared = tomllib.loads(text.group())["entries"]["scheduling"]
    entry = catalogue.Entry(name="shortest_first", kind="scheduling", **declared["shortest_first"])
    assert entry.target == "dtdg_lab.systems.snapshot_groups.schedulers.shortest_first:shortest_first"
