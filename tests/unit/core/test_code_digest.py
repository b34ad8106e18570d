"""Digests of code follow all that decides a result, and are missing where that cannot be read."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.code_digest import digest_of


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
