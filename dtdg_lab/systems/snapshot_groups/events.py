"""Events of snapshot groups: the schedule that a run follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.units import format_percent, format_seconds
from dtdg_lab.records.events import Event

_EQUAL = 5e-4  # difference of two makespans below which they are called equal

Assignment = tuple[tuple[tuple[int, ...], ...], ...]
_SOURCES = {"size": "the sizes of groups", "profile": "measured times", "linear": "a linear model of nodes and edges"}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScheduleFacts(Event):
    """A schedule of K snapshot groups on P parts, executed by R ranks.

    Attributes:
        scheduler: its name.
        ranks: R.
        parts: P; each rank executes P / R of them.
        per_rank: groups a part may compute in an iteration.
        iterations: updates of the model in an epoch.
        source: of ``times_s``: ``size`` (without unit), ``profile`` or ``linear``.
        times_s: (K,) seconds of each group that the scheduler assumed.
        assignment: [iteration][part] -> groups.
        makespan_s: of an epoch, predicted from ``times_s``, with the exchange of each iteration.
        bound_s: no schedule of these times and exchanges is shorter.
        gap: makespan over a bound, less 1; None where unknown.
        targets: most targets that DyGNeX-G tried in an iteration; None where Algorithm 2 was not asked.
        notes: remarks of the scheduler.
        solve_s: seconds that the scheduler took.
        psg_makespan_s: of PSG's round robin for the same times, with its own exchanges; None where unknown.
        timed_by: clock of ``times_s``: ``processor`` or ``wall``.
        allreduce_s: an exchange of each iteration, which makespans, bound and gap hold.
        fit: ``a1``, ``a2``, ``a3``, ``mean_error`` and ``max_error`` of the linear model; None where none was fitted.
    """

    kind: ClassVar[str] = "schedule"
    about: ClassVar[str] = "a schedule"
    ended: ClassVar[str] = "no schedule from here on"
    scheduler: str
    ranks: int
    parts: int
    per_rank: int
    iterations: int
    source: str
    times_s: NDArray[np.float64]
    assignment: Assignment
    makespan_s: float
    bound_s: float
    gap: float | None
    targets: int | None
    notes: str = ""
    solve_s: float
    psg_makespan_s: float | None
    timed_by: str = "wall"
    allreduce_s: float = 0.0
    fit: Mapping[str, float] | None

    @property
    def in_seconds(self) -> bool:
        """True if its times are seconds; sizes have no unit."""
        return self.source != "size"

    @property
    def groups(self) -> int:
        """K."""
        return len(self.times_s)

    @property
    def rank_groups(self) -> int:
        """Most groups of a rank in an iteration."""
        return max(1, self.per_rank * self.parts // self.ranks)

    @property
    def excess(self) -> float | None:
        """Makespan over the bound, less 1; None where there is no bound."""
        return self.makespan_s / self.bound_s - 1 if self.bound_s > 0 else None

    @property
    def label(self) -> str:
        """Its name in titles, such as ``fold, 97 groups on 4 ranks``."""
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"
        return f"{self.scheduler}, {self.groups:,} groups on {ranks}"

    def scale(self, measured_s: NDArray[np.float64]) -> float | None:
        """Return the factor from its times to seconds of the wall clock; None where that is not known.

        It is 1 for such seconds; else, for sizes and for processor seconds of ranks that share cores, the ratio of
        measured to given times, over measured groups.

        Args:
            measured_s: (K,) seconds, NaN where unknown.
        """
        if self.in_seconds and self.timed_by == "wall":
            return 1.0
        is_measured = np.isfinite(measured_s)
        assumed_s = float(self.times_s[is_measured].sum())
        if assumed_s > 0:
            return float(measured_s[is_measured].sum()) / assumed_s
        return 1.0 if self.in_seconds else None

    @property
    def words(self) -> str:
        """Description of the schedule, for a row of a table of events."""
        text = f"{self.label} in {self.iterations:,} iterations: "
        text += f"{format_seconds(self.makespan_s)} per epoch, " if self.in_seconds else ""
        excess = self.excess
        text += "no bound is known" if excess is None else f"{format_percent(max(0.0, excess))} above the bound"
        if self.psg_makespan_s and (self.scheduler, self.per_rank) != ("round_robin", 1):
            saved = 1 - self.makespan_s / self.psg_makespan_s
            less = f"{format_percent(abs(saved))} {'less' if saved > 0 else 'more'} than"
            text += f", {less if abs(saved) >= _EQUAL else 'as long as'} round robin"
        solution = f"Solved in {format_seconds(self.solve_s)} from {_SOURCES.get(self.source, self.source)}"
        if self.targets is not None:
            targets = "all" if self.targets >= self.groups else f"{self.targets:,} of {self.groups:,}"
            solution += f"; DyGNeX-G tried {targets} targets in each iteration"
        return f"{text}. {solution}. {self.notes}".strip().rstrip(".") + "."
