"""Events of snapshot groups: the schedule that a run follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.units import format_percent, format_seconds
from dtdg_lab.records.events import Event

_EQUAL = 5e-4  # relative difference below which two makespans are equal

Assignment = tuple[tuple[tuple[int, ...], ...], ...]
_SOURCES = {"size": "the sizes of groups", "profile": "measured times", "linear": "a linear model of nodes and edges"}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScheduleFacts(Event):
    """A schedule of K snapshot groups on P parts, executed by R ranks.

    Attributes:
        scheduler: name of the scheduler.
        ranks: R.
        parts: P; each rank executes P / R of them.
        per_rank: maximum groups per part and iteration.
        iterations: updates of the model in an epoch.
        source: source of ``times_s``: ``size`` (without unit), ``profile`` or ``linear``.
        times_s: (K,) seconds of each group that the scheduler assumed.
        assignment: [iteration][part] -> groups.
        makespan_s: predicted seconds of an epoch, from ``times_s`` and the exchange of each iteration.
        bound_s: lower bound of the makespan for these times and exchanges.
        gap: makespan over a bound, minus 1; None if unknown.
        targets: maximum number of targets that DyGNeX-G tried in an iteration; None without Algorithm 2.
        notes: remarks of the scheduler.
        solve_s: seconds of solving.
        psg_makespan_s: makespan of PSG's round robin for the same times, with its own exchanges; None if unknown.
        timed_by: clock of ``times_s``: ``processor`` or ``wall``.
        allreduce_s: seconds of an iteration's exchange, included in makespans, bound and gap.
        fit: ``a1``, ``a2``, ``a3``, ``mean_error`` and ``max_error`` of the linear model, if fitted.
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
        """True if times are seconds; sizes have no unit."""
        return self.source != "size"

    @property
    def groups(self) -> int:
        """Number of groups K."""
        return len(self.times_s)

    @property
    def rank_groups(self) -> int:
        """Maximum number of groups per rank and iteration."""
        return max(1, self.per_rank * self.parts // self.ranks)

    @property
    def excess(self) -> float | None:
        """Makespan over the bound, minus 1; None without a bound."""
        return self.makespan_s / self.bound_s - 1 if self.bound_s > 0 else None

    @property
    def label(self) -> str:
        """The name in titles, such as ``fold, 97 groups on 4 ranks``."""
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"
        return f"{self.scheduler}, {self.groups:,} groups on {ranks}"

    def scale(self, measured_s: NDArray[np.float64]) -> float | None:
        """Return the factor from its times to seconds of the wall clock; None if unknown.

        It is 1 for wall-clock seconds. For sizes, and for processor seconds of ranks that share cores, it is the ratio
        of measured to assumed times over the measured groups.

        Args:
            measured_s: (K,) seconds, NaN if unknown.
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
        """One or two sentences on the schedule, for the table of events."""
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
