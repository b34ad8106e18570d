"""The newest steps of each rank by itself: for ranks that do not wait for each other, no step is of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEPT = 400  # steps of a rank
RECENT = 100  # of these, the ones that shares are told of


@dataclass(frozen=True, slots=True)
class RankStep:
    """One step of one rank.

    Attributes:
        seconds: of the run, when it ended.
        time_s: it took.
        batch_s: of this, waiting for its batch or building it.
        attempt: of the run.
    """

    seconds: float
    time_s: float
    batch_s: float
    attempt: int


class RankSteps:
    """Rows of the table ``steps``, in bounded memory.

    Args:
        kept: steps of a rank.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._steps: dict[int, dict[int, RankStep]] = {}  # rank -> step

    def row(self, rank: int, row: Mapping[str, Any], seconds: float, attempt: int) -> None:
        """Add one row; ``seconds`` of the run, when the step ended."""
        steps = self._steps.setdefault(rank, {})
        taken = RankStep(seconds, float(row["time_s"] or 0.0), float(row["batch_s"] or 0.0), attempt)
        steps[int(row["step"])] = taken
        while len(steps) > self._kept:
            del steps[min(steps)]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for rank, steps in self._steps.items():
            self._steps[rank] = {at: each for at, each in steps.items() if at < step or each.attempt >= attempt}

    def of(self, rank: int, *, since: int = 0) -> list[RankStep]:
        """Steps of a rank from ``since`` on, in order."""
        steps = self._steps.get(rank, {})
        return [steps[at] for at in sorted(steps) if at >= since]

    def at(self, rank: int, step: int) -> RankStep | None:
        """One step; None where it is not kept."""
        return self._steps.get(rank, {}).get(step)

    def batch_share(self, *, since: int = 0) -> float | None:
        """Share of the ranks' newest steps' time, from ``since`` on, that went into waiting for batches or building."""
        found = [each for rank in self._steps for each in self.of(rank, since=since)[-RECENT:]]
        whole = sum(each.time_s for each in found)
        return sum(each.batch_s for each in found) / whole if whole else None
