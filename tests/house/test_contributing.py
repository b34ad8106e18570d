"""The worked example of CONTRIBUTING.md does what it says."""

from __future__ import annotations

import inspect
import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core import catalogue
from dtdg_lab.core.options import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


@pytest.fixture
def example() -> Any:
    code = re.search(r"```python\n(.*?)```", TEXT, re.S)
    assert code
    names: dict[str, Any] = {}
    exec(compile(code.group(1), "CONTRIBUTING.md", "exec"), names)
    return names["schedule"]


@pytest.mark.parametrize(("groups", "parts", "per_rank"), [(1, 1, 1), (7, 2, 1), (7, 3, 2), (12, 4, 3), (3, 8, 1)])
def test_the_example_schedules_every_group_shortest_first(example: Any, groups: int, parts: int, per_rank: int) -> None:
    times_s = np.random.default_rng(groups).random(groups)
    plan = example(times_s, parts, per_rank=per_rank)
    assert plan.parts == parts
    assert sorted(group for row in plan.assignment for part in row for group in part) == list(range(groups))
    assert max(len(part) for row in plan.assignment for part in row) <= per_rank
    rows = [[times_s[group] for part in row for group in part] for row in plan.assignment]
    assert all(max(before) <= min(after) for before, after in pairwise(rows))


def test_the_example_takes_what_other_schedulers_take(example: Any) -> None:
    for name in catalogue.names("scheduling"):
        shared = inspect.signature(catalogue.entry("scheduling", name).load()).parameters
        mine = inspect.signature(example).parameters
        assert [parameter.kind for parameter in mine.values()] == [parameter.kind for parameter in shared.values()]
        assert list(mine)[2:] == list(shared)[2:]


def test_the_example_s_catalogue_entry_is_one(example: Any) -> None:
    text = re.search(r"^    \[entries\..*?\n\n", TEXT, re.S | re.M)
    assert text
    declared = tomllib.loads(text.group())["entries"]["scheduling"]
    entry = catalogue.Entry(name="shortest_first", kind="scheduling", **declared["shortest_first"])
    assert entry.target == "dtdg_lab.systems.snapshot_groups.schedulers.shortest_first:schedule"
    assert set(entry.options) <= set(OPTIONS)
