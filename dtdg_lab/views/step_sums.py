"""Numbers that every rank tells of a step, summed over the ranks, for the newest steps that are complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

KEPT = 400  # steps
Key = tuple[Any, ...]
Sums = dict[Key, tuple[float, ...]]


class StepSums:
    """Rows of one record table for the newest steps, in bounded memory.

    Args:
        keys: columns that tell rows of a step and rank apart.
        values: columns that are summed over the ranks.
        kept: steps.
    """

    def __init__(self, keys: Sequence[str], values: Sequence[str], kept: int = KEPT) -> None:
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
        while len(steps) > self._kept:
            oldest = min(steps)
            del steps[oldest], self._attempts[rank, oldest]
            self._done.pop(oldest, None)

    def step(self, rank: int, step: int) -> None:
        """Note that a rank has recorded a step."""
        self._steps[rank] = max(step, self._steps.get(rank, -1))

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for rank, steps in self._rows.items():
            for known in [each for each in steps if each >= step and self._attempts[rank, each] < attempt]:
                del steps[known], self._attempts[rank, known]
        self._steps = {rank: min(newest, step - 1) for rank, newest in self._steps.items()}
        self._done = {known: sums for known, sums in self._done.items() if known < step}

    def steps(self, ranks: int, *, first: int = 0) -> list[tuple[int, Sums]]:
        """Sums by key of every complete step from ``first`` on, in order.

        A step is complete when every rank has recorded it; the newest one only when all ranks tell rows of it that
        told some of the step before, since rows of a step may come after it.
        """
        newest = min((self._steps.get(rank, -1) for rank in range(ranks)), default=-1)
        told = sorted({step for steps in self._rows.values() for step in steps if first <= step <= newest})
        if len(told) > 1 and told[-1] == newest and self._who(told[-1]) < self._who(told[-2]):
            told.pop()
        return [(step, self._sum(step)) for step in told]

    def _who(self, step: int) -> int:
        return sum(step in steps for steps in self._rows.values())

    def _sum(self, step: int) -> Sums:
        if step not in self._done:
            total: Sums = {}
            for steps in self._rows.values():
                for key, values in steps.get(step, {}).items():
                    before = total.get(key, (0.0,) * len(values))
                    total[key] = tuple(one + other for one, other in zip(before, values, strict=True))
            self._done[step] = total
        return self._done[step]
