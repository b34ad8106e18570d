"""The source code of classes and functions, with what they need."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
import threading
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.source_code import defining_code, digest_of, source_hash, source_of, variable_of

CELL = """\
import numpy as np
from collections import Counter as Count
import os.path as paths
HALF = 0.5
LOCK = object()

def helper(x):
    return np.sqrt(x) * HALF

@str.__class__.__call__
class Nothing: pass

class Model:
    def scale(self, x: Count) -> float:
        return helper(x) + len(paths.sep) + (LOCK is None)

class Child(Model):
    def scale(self, x):
        return super().scale(x)
"""


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Names of a cell that was executed in ``__main__``."""
    text = CELL.replace("@str.__class__.__call__\nclass Nothing: pass\n", "")
    monkeypatch.setitem(linecache.cache, "<cell 1>", (len(text), None, text.splitlines(keepends=True), "<cell 1>"))
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "<cell 1>", "exec"), names)
    for name in ("np", "Count", "paths", "HALF", "LOCK", "helper", "Model", "Child"):
        monkeypatch.setattr(sys.modules["__main__"], name, names[name], raising=False)
    return names


RULES = """\
from dtdg_lab.systems.snapshot_groups.schedulers.base import scheduler

@scheduler
def first(problem):
    return min(problem.times_s)

@scheduler(searches=True)
def second(problem):
    return max(problem.times_s)
"""


def test_the_source_of_a_scheduler_is_its_rule_with_the_decorator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linecache.cache, "<cell 2>", (len(RULES), None, RULES.splitlines(keepends=True), "<cell 2>"))
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(RULES, "<cell 2>", "exec"), names)
    monkeypatch.setattr(sys.modules["__main__"], "scheduler", names["scheduler"], raising=False)
    assert source_of(names["first"]).startswith("@scheduler\ndef first(problem):")
    assert source_hash(names["first"]) != source_hash(names["second"])
    assert list(inspect.signature(names["first"]).parameters) == ["times_s", "ranks", "options"]
    again: dict[str, Any] = {"__name__": "again"}
    exec(defining_code(names["second"]), again)
    assert again["second"].facts.searches and again["second"]([1.0, 2.0], 1) == 2.0


def test_the_text_of_a_class_is_cut_out_of_its_cell(cell: dict[str, Any]) -> None:
    assert source_of(cell["Child"]).startswith("class Child(Model):") and "Model:" not in source_of(cell["Child"])
    assert source_of(cell["helper"]) == "def helper(x):\n    return np.sqrt(x) * HALF\n"
    assert source_of(3) == "" and source_hash(cell["Child"]) != source_hash(cell["Model"])


def test_defining_code_runs_by_itself(cell: dict[str, Any]) -> None:
    code = defining_code(cell["Child"])
    for line in ("import numpy as np", "import posixpath as paths", "HALF = 0.5"):
        assert f"{line}\n" in code
    assert "# LOCK (of type object) must be defined here" in code
    names: dict[str, Any] = {"LOCK": None}
    exec(code.replace("# LOCK", "# "), names)
    assert names["Child"]().scale(4.0) == 3.0


def test_an_instance_is_made_as_it_prints(cell: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "ONE", one := cell["Child"](), raising=False)
    assert variable_of(one) == "ONE" and defining_code(one).endswith("ONE = Child()\n")

    @dataclass
    class Ring:
        size: int = 3

    monkeypatch.setattr(sys.modules["__main__"], "RING", ring := Ring(), raising=False)
    assert defining_code(ring).endswith("(size=3)\n")


def assign(graph: Any, parts: int, stride: int = 1) -> int:
    return parts * stride


class Ribs:
    def __init__(self, width: Any) -> None:
        self.width = width

    def __call__(self, graph: Any, parts: int) -> Any:
        return self.width


@dataclass(frozen=True, slots=True)
class Ring:
    size: Any = 3


def of_cell(**names: Any) -> Any:
    """Return a function of a cell that reads ``RATE`` and ``helper``, with these values of them."""
    scope: dict[str, Any] = {"__name__": "__main__", **names}
    exec("def assign(graph, parts):\n    return [helper(RATE) for part in range(parts)]", scope)
    return scope["assign"]


def helper_of_cell(text: str) -> Any:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(f"def helper(x):\n    return {text}", scope)
    return scope["helper"]


@pytest.mark.parametrize(
    ("make", "other"),
    [
        (lambda: functools.partial(assign, stride=1), lambda: functools.partial(assign, stride=2)),
        (lambda: Ribs(1), lambda: Ribs(2)),
        (lambda: Ribs(np.arange(3)), lambda: Ribs(np.array([0, 1, 3]))),
        (lambda: Ribs({"a": {2, 1}}), lambda: Ribs({"a": {2}})),
        (lambda: Ribs(MappingProxyType({"a": 1})), lambda: Ribs(MappingProxyType({"a": 2}))),
        (lambda: Ring(), lambda: Ring(4)),
        (lambda: Ribs(1).__call__, lambda: Ribs(2).__call__),
        (lambda: of_cell(RATE=1, helper=abs), lambda: of_cell(RATE=2, helper=abs)),
        (lambda: of_cell(RATE=1, helper=abs), lambda: of_cell(RATE=1, helper=float)),
        (
            lambda: of_cell(RATE=1, helper=helper_of_cell("x + 1")),
            lambda: of_cell(RATE=1, helper=helper_of_cell("x + 2")),
        ),
        (lambda: (lambda width: lambda: width)(1), lambda: (lambda width: lambda: width)(2)),
    ],
)
def test_a_digest_follows_what_decides_the_result(make: Any, other: Any) -> None:
    assert digest_of(make()) == digest_of(make())
    assert len({digest_of(make()), digest_of(other()), None}) == 3


def test_what_cannot_be_read_has_no_digest() -> None:
    for rate in (threading.Lock(), [Ribs(threading.Lock())]):
        assert digest_of(of_cell(RATE=rate, helper=abs)) is None
    assert digest_of(Ribs(threading.Lock())) is None


def test_code_that_refers_to_itself_has_a_digest() -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec("class Tree:\n    def __call__(self):\n        return Tree() or super()\nTREE = Tree()", scope)
    scope["TREE"].child = scope["TREE"]
    assert digest_of(scope["TREE"])
