"""A series of bounded length for runs of any length, and the lines that charts draw from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

XAxis = Literal["steps", "seconds"]


class Point(NamedTuple):
    """One value of a series: at which step, at which second of the run, of which attempt."""

    step: int
    seconds: float
    value: float | None
    attempt: int


@dataclass(frozen=True, slots=True)
class Line:
    """One trace of a chart that grows at its end.

    The first ``stable`` points never change while ``key`` stays the same; the ones after them may be replaced by the
    next update. A display that has drawn a line therefore needs only what came after.
    """

    key: str
    name: str
    xs: list[float]
    ys: list[float | None]
    stable: int
    style: dict[str, Any]

    def trace(self) -> dict[str, Any]:
        """The line as a plotly trace."""
        return {"type": "scatter", "name": self.name, "x": self.xs, "y": self.ys, **self.style}


class Series:
    """Points in order, at most ``limit`` of them plus the newest.

    When there are more, every second one is dropped and from then on only every second new one is kept: the points
    that remain are recorded values, evenly spread over the whole run. The newest point is always there.
    """

    def __init__(self, limit: int) -> None:
        self.limit = max(4, limit)
        self.stride = 1
        self.generation = 0
        self._seen = 0
        self._kept: list[Point] = []
        self._tail: Point | None = None

    def __len__(self) -> int:
        return len(self._kept) + (self._tail is not None)

    @property
    def last(self) -> Point | None:
        """The newest point, if there is any."""
        return self._tail or (self._kept[-1] if self._kept else None)

    @property
    def points(self) -> list[Point]:
        """What is kept, oldest first, with the newest point at the end."""
        return [*self._kept, self._tail] if self._tail else list(self._kept)

    def add(self, step: int, seconds: float, value: float | None, attempt: int = 0) -> bool:
        """Append a point; False where its step is not newer than the last (the same fact told by another rank)."""
        last = self.last
        if last is not None and step <= last.step:
            return False
        point = Point(step, seconds, value if value is not None and math.isfinite(value) else None, attempt)
        if self._seen % self.stride == 0:
            self._kept.append(point)
            self._tail = None
        else:
            self._tail = point
        self._seen += 1
        if len(self._kept) > self.limit:
            self._halve()
        return True

    def _halve(self) -> None:
        newest = self._kept[-1]
        self._kept = self._kept[::2]
        self._tail = None if self._kept[-1] is newest else newest
        self.stride *= 2
        self.generation += 1

    def truncate(self, step: int, attempt: int) -> None:
        """Drop points at ``step`` or later that an attempt before ``attempt`` wrote."""
        points = self.points
        kept = [point for point in points if point.step < step or point.attempt >= attempt]
        if len(kept) == len(points):
            return
        self._kept, self._tail = kept, None
        self._seen = len(kept) * self.stride  # so that the next point is kept
        self.generation += 1

    def line(self, name: str, x: XAxis, style: dict[str, Any]) -> Line:
        """The series as a line over steps or seconds."""
        points = self.points
        xs: list[float] = [point.step for point in points] if x == "steps" else [point.seconds for point in points]
        ys = [point.value for point in points]
        return Line(f"{name}/{self.generation}", name, xs, ys, len(self._kept), style)
