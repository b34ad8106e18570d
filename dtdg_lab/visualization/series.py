"""Bounded logs of a live run: series, rows by partition, sums and steps by rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

# Of a mapping by steps or times, the highest keys alone.


def drop_lowest(rows: dict[Any, Any], kept: int) -> None:
    """Drop the lowest keys where there are an eighth more than ``kept``: sorting at every new key would take long."""
    if len(rows) > kept + kept // 8:
        for at in sorted(rows)[: len(rows) - kept]:
            del rows[at]


def highest(rows: Mapping[Any, Any], kept: int) -> list[Any]:
    """The ``kept`` highest keys in order: what :func:`drop_lowest` is to leave."""
    return sorted(rows)[-kept:]


# The newest rows that parts logged, each of a step, in bounded memory.


Row = TypeVar("Row")
PART_LOG_KEPT = 1200  # of a part


class PartLog(Generic[Row]):
    """Rows by part, or by part and another, and by step; a row logged twice counts once.

    Args:
        kept: rows of a part; as many as the class has, where not given.
    """

    kept = PART_LOG_KEPT

    def __init__(self, kept: int = 0) -> None:
        self._kept = kept or self.kept
        self._rows: dict[tuple[int, ...], dict[Any, tuple[int, int, Row]]] = {}  # part -> key -> step, attempt, row

    def add(self, part: int | tuple[int, ...], step: int, attempt: int, row: Row, key: Any = None) -> None:
        """Add the row of a step; ``key`` tells rows of one step apart and orders them, where there are several."""
        rows = self._rows.setdefault((part,) if isinstance(part, int) else part, {})
        rows[step if key is None else key] = (step, attempt, row)
        drop_lowest(rows, self._kept)

    def limit(self, kept: int) -> None:
        """Keep so many rows of a part from now on: fewer, where there are more parts than were thought of."""
        self._kept = kept
        for rows in self._rows.values():
            drop_lowest(rows, kept)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for part, rows in self._rows.items():
            self._rows[part] = {at: kept for at, kept in rows.items() if kept[0] < step or kept[1] >= attempt}

    def of(self, part: int | tuple[int, ...], *, since: int = 0) -> list[Row]:
        """Rows of a part from step ``since`` on, in order."""
        rows = self._rows.get((part,) if isinstance(part, int) else part, {})
        return [rows[at][2] for at in highest(rows, self._kept) if rows[at][0] >= since]

    def all(self, *, since: int = 0) -> dict[tuple[int, ...], list[Row]]:
        """The same by part, in ascending order; parts without any are left out."""
        found = {part: self.of(part, since=since) for part in sorted(self._rows)}
        return {part: rows for part, rows in found.items() if rows}

    def steps(self, *, since: int = 0) -> dict[int, list[Row]]:
        """Rows by step in ascending order, with those of all parts that logged it."""
        found: dict[int, list[Row]] = {}
        for part in sorted(self._rows):
            rows = self._rows[part]
            for at, _, row in (rows[key] for key in highest(rows, self._kept)):
                if at >= since:
                    found.setdefault(at, []).append(row)
        return dict(sorted(found.items()))


# The newest steps of each rank by itself: for ranks that do not wait for each other, no step is of all.


RANK_STEPS_KEPT = 400  # steps of a rank
RECENT = 100  # of these, the ones that shares cover


@dataclass(frozen=True, slots=True)
class RankStep:
    """One step of one rank.

    Attributes:
        seconds: of the run, when it ended.
        time_s: it took.
        batch_s: of this, waiting for its batch or building it.
    """

    seconds: float
    time_s: float
    batch_s: float


class RankSteps(PartLog[RankStep]):
    """Rows of the table ``steps`` by rank, in bounded memory."""

    kept = RANK_STEPS_KEPT

    def row(self, rank: int, row: Mapping[str, Any], seconds: float, attempt: int) -> None:
        """Add one row; ``seconds`` of the run, when the step ended."""
        taken = RankStep(seconds, float(row["time_s"] or 0.0), float(row["batch_s"] or 0.0))
        self.add(rank, int(row["step"]), attempt, taken)

    def at(self, rank: int, step: int) -> RankStep | None:
        """One step; None where it is not kept."""
        found = self._rows.get((rank,), {}).get(step)
        return None if found is None else found[2]

    def batch_share(self, *, since: int = 0) -> float | None:
        """Share of the ranks' newest steps' time, from ``since`` on, that went into waiting for batches or building."""
        found = [each for steps in self.all(since=since).values() for each in steps[-RECENT:]]
        whole = sum(each.time_s for each in found)
        return sum(each.batch_s for each in found) / whole if whole else None


# A series of bounded length for runs of any length, and the lines that charts draw from it.


XAxis = Literal["steps", "seconds"]


class Point(NamedTuple):
    """One value of a series: its step, its second of the run, its attempt."""

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
        """Append a point; False where its step is not newer than the last (another rank logged the same value)."""
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


# Numbers that every rank tells of a step, summed over the ranks, for the newest steps that are complete.


STEP_SUMS_KEPT = 400  # steps
Key = tuple[Any, ...]
Sums = dict[Key, tuple[float, ...]]


class StepSums:
    """Rows of one record table for the newest steps, in bounded memory.

    Args:
        keys: columns that tell rows of a step and rank apart.
        values: columns that are summed over the ranks.
        kept: steps.
    """

    def __init__(self, keys: Sequence[str], values: Sequence[str], kept: int = STEP_SUMS_KEPT) -> None:
        self._keys, self._values, self._kept = tuple(keys), tuple(values), kept
        self._rows: dict[int, dict[int, Sums]] = {}  # rank -> step -> key -> values
        self._attempts: dict[tuple[int, int], int] = {}
        self._steps: dict[int, int] = {}  # rank -> newest step recorded
        self._done: dict[int, Sums] = {}  # steps that are summed up

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row."""
        steps, step = self._rows.setdefault(rank, {}), int(row["step"])
        if self._attempts.setdefault((rank, step), attempt) < attempt:  # computed again
            steps[step], self._attempts[rank, step] = {}, attempt
        key = tuple(row[name] for name in self._keys)
        steps.setdefault(step, {})[key] = tuple(float(row[name] or 0.0) for name in self._values)
        self._done.pop(step, None)
        if len(steps) > self._kept:
            self._drop(rank, self._surplus(steps))

    def _surplus(self, steps: Mapping[int, Sums]) -> Sequence[int]:
        """Steps of a rank that are more than are kept."""
        return sorted(steps)[: len(steps) - self._kept]

    def _drop(self, rank: int, steps: Sequence[int]) -> None:
        for step in steps:
            del self._rows[rank][step], self._attempts[rank, step]
            self._done.pop(step, None)

    def step(self, rank: int, step: int) -> None:
        """Note that a rank has recorded a step."""
        self._steps[rank] = max(step, self._steps.get(rank, -1))

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for rank, steps in self._rows.items():
            self._drop(rank, [each for each in steps if each >= step and self._attempts[rank, each] < attempt])
        self._steps = {rank: min(newest, step - 1) for rank, newest in self._steps.items()}
        self._done = {known: sums for known, sums in self._done.items() if known < step}

    def steps(self, ranks: int, *, first: int = 0) -> list[tuple[int, Sums]]:
        """Sums by key of every complete step from ``first`` on, in order.

        A step is complete when every rank has recorded it; the newest one only when every rank that
        logged rows of the step before has logged rows of it, since rows of a step may come after it.
        """
        described = self.recorded(ranks, first=first)
        last = described[-1:] == [self.newest(ranks)]
        if last and len(described) > 1 and self._who(described[-1]) < self._who(described[-2]):
            described.pop()
        return [(step, self.sums(step)) for step in described]

    def newest(self, ranks: int) -> int:
        """The newest step that every rank has recorded; -1 before there is one."""
        return min((self._steps.get(rank, -1) for rank in range(ranks)), default=-1)

    def recorded(self, ranks: int, *, first: int = 0) -> list[int]:
        """Steps with rows from ``first`` on that every rank has recorded, in order."""
        newest = self.newest(ranks)
        return sorted({step for steps in self._rows.values() for step in steps if first <= step <= newest})

    def _who(self, step: int) -> int:
        return sum(step in steps for steps in self._rows.values())

    def sums(self, step: int) -> Sums:
        """The sums of one step by key."""
        if step not in self._done:
            total: Sums = {}
            for steps in self._rows.values():
                for key, values in steps.get(step, {}).items():
                    before = total.get(key, (0.0,) * len(values))
                    total[key] = tuple(one + other for one, other in zip(before, values, strict=True))
            self._done[step] = total
        return self._done[step]
