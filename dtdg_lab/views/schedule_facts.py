"""What the pictures of a schedule are made of: the facts of an event ``schedule``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import percent

_EQUAL = 5e-4  # difference of two makespans below which they are called equal

Assignment = tuple[tuple[tuple[int, ...], ...], ...]
SOURCES = {
    "size": "sizes of the groups",
    "profile": "a profile of epochs before",
    "linear": "a linear model of vertices and edges, fitted to profiled groups",
}


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleFacts:
    """A schedule of K snapshot groups on P parts, executed by R ranks.

    Attributes:
        scheduler: its name.
        ranks: R.
        parts: P; each rank executes P / R of them.
        per_rank: groups a part may compute in an iteration.
        source: where ``times_s`` are from: ``size`` (then in no unit), ``profile`` or ``linear``.
        times_s: (K,) seconds of each group as the scheduler knew them.
        assignment: [iteration][part] -> groups.
        makespan_s: of an epoch, predicted from ``times_s``, with the exchange of each iteration.
        bound_s: no schedule of these times and exchanges is shorter.
        gap: makespan over a bound, less 1; None where unknown.
        notes: what must be known of how it was made.
        targets: most targets that DyGNeX-G tried in an iteration; None where Algorithm 2 was not asked.
        solve_s: making it took.
        fit: ``a1``, ``a2``, ``a3``, ``mean_error`` and ``max_error`` of the linear model; None where none was fitted.
        round_robin_s: makespan of PSG's round robin for the same times, with its own exchanges; None where it was not
            told.
    """

    scheduler: str
    ranks: int
    parts: int
    per_rank: int
    source: str
    times_s: NDArray[np.float64]
    assignment: Assignment
    makespan_s: float
    bound_s: float
    gap: float | None
    notes: str
    solve_s: float
    fit: Mapping[str, float] | None
    round_robin_s: float | None
    targets: int | None = None

    @property
    def in_seconds(self) -> bool:
        """Whether its times are seconds; sizes have no unit."""
        return self.source != "size"

    @property
    def groups(self) -> int:
        """K."""
        return len(self.times_s)

    @property
    def iterations(self) -> int:
        """Updates of the model in an epoch."""
        return len(self.assignment)

    @property
    def excess(self) -> float | None:
        """How much longer than the bound its makespan is, as a share; None where there is no bound."""
        return self.makespan_s / self.bound_s - 1 if self.bound_s > 0 else None

    @property
    def label(self) -> str:
        """Its name in titles, such as ``fold, 97 groups on 4 ranks``."""
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"
        return f"{self.scheduler}, {self.groups:,} groups on {ranks}"

    def scale(self, measured_s: NDArray[np.float64]) -> float | None:
        """What makes its times seconds: 1, or for sizes the measured over the told, of groups that were measured.

        Args:
            measured_s: (K,) seconds, NaN where unknown.
        """
        if self.in_seconds:
            return 1.0
        known = np.isfinite(measured_s)
        told = float(self.times_s[known].sum())
        return float(measured_s[known].sum()) / told if told > 0 else None


def schedule_facts(data: Mapping[str, Any]) -> ScheduleFacts:
    """The facts in the data of an event ``schedule``.

    Raises:
        DataError: something is missing or does not fit.
    """
    try:
        fit, gap, round_robin = data.get("fit"), data.get("gap"), data.get("psg_makespan_s")
        targets = data.get("targets")
        return ScheduleFacts(
            scheduler=str(data["scheduler"]),
            ranks=int(data["ranks"]),
            parts=int(data["parts"]),
            per_rank=int(data["per_rank"]),
            source=str(data["source"]),
            times_s=np.asarray(data["times_s"], np.float64),
            assignment=tuple(tuple(tuple(map(int, part)) for part in row) for row in data["assignment"]),
            makespan_s=float(data["makespan_s"]),
            bound_s=float(data["bound_s"]),
            gap=None if gap is None else float(gap),
            notes=str(data.get("notes") or ""),
            solve_s=float(data["solve_s"]),
            fit=None if fit is None else {name: float(value) for name, value in fit.items() if value is not None},
            round_robin_s=None if round_robin is None else float(round_robin),
            targets=None if targets is None else int(targets),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"a schedule cannot be drawn from what is told of it ({error!r}): was it recorded by another version?"
        ) from error


def is_end(data: Mapping[str, Any]) -> bool:
    """Whether an event ``schedule`` says that the run went on without one: in a layout without snapshot groups."""
    return "layout" in data and data["layout"] is None


def schedule_words(facts: ScheduleFacts) -> str:
    """A schedule in a sentence or two, as a row of a table of events."""
    text = (
        f"{facts.label}, at most {facts.per_rank} a part and iteration: {facts.iterations:,} iterations an epoch. "
        f"Made in {format_seconds(facts.solve_s)} from {SOURCES.get(facts.source, facts.source)}: "
    )
    if facts.in_seconds:
        text += f"{format_seconds(facts.makespan_s)} an epoch, "
    excess = facts.excess
    text += "no bound known" if excess is None else f"{share(max(0.0, excess))} above what no schedule beats"
    if facts.round_robin_s and (facts.scheduler, facts.per_rank) != ("round_robin", 1):
        saved = 1 - facts.makespan_s / facts.round_robin_s
        less = f"{share(abs(saved))} {'less' if saved > 0 else 'more'} than" if abs(saved) >= _EQUAL else "as long as"
        text += f", {less} round robin"
    if facts.targets is not None:
        tried = "all" if facts.targets >= facts.groups else f"{facts.targets:,} of up to {facts.groups:,}"
        text += f"; DyGNeX-G tried {tried} targets in each iteration"
    return f"{text}. {facts.notes}".strip().rstrip(".") + "."


def share(value: float) -> str:
    """A share in percent, with a decimal where it is small."""
    return f"{100 * value:.1f} %" if 0 < value < 0.1 else percent(value)


def unit_of(largest_s: float) -> tuple[str, float]:
    """The unit an axis of seconds is best read in, and how many of it a second has."""
    return ("ms", 1e3) if largest_s < 1 else ("s", 1.0)
