"""What a run does before its first step: reported to those who wait for it, and ended where the run is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Report = Callable[[str, float | None], None]

_REPORT: ContextVar[Report | None] = ContextVar("report", default=None)


@contextmanager
def preparation(report: Report) -> Iterator[None]:
    """Pass what is done within this block to ``report``: what, and the seconds left where they are known.

    An exception that ``report`` raises ends the work.
    """
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


def doing(what: str, left_s: float | None = None) -> None:
    """Say what is done now; costs less than a microsecond where no run is prepared.

    Args:
        what: begins a sentence of the status line, such as ``"metis divides 20,000 nodes"``.
        left_s: seconds that it takes from here on; None where they are unknown.
    """
    report = _REPORT.get()
    if report is not None:
        report(what, left_s)


def each(items: Collection[T], what: str) -> Iterator[T]:
    """The items one by one; the time left follows from those that are done."""
    began_s = time.monotonic()
    for done, item in enumerate(items):
        doing(what, (time.monotonic() - began_s) / done * (len(items) - done) if done else None)
        yield item
