"""Report the tasks of a run before its first step, and end them if the run is stopped."""

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
    """Call ``report`` for tasks of this block with their text, and the seconds left if they are known.

    An exception that ``report`` raises ends the block.
    """
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


def announce(task: str, left_s: float | None = None) -> None:
    """Report a task; this takes less than a microsecond if no run is prepared.

    Args:
        task: text for the status line, such as ``"metis divides 20,000 nodes"``.
        left_s: remaining seconds; None if they are unknown.
    """
    report = _REPORT.get()
    if report is not None:
        report(task, left_s)


def track(items: Collection[T], task: str) -> Iterator[T]:
    """Yield the items one by one, and announce the task with the time left."""
    start_s = time.monotonic()
    for count, item in enumerate(items):
        announce(task, (time.monotonic() - start_s) / count * (len(items) - count) if count else None)
        yield item
