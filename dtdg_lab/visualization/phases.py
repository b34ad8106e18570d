"""The phases view: where each rank's time goes, who is slowest, and what that costs the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.records import BETWEEN_STEPS, OWN_PHASES, PHASES
from dtdg_lab.visualization.charts import NAMES, level_bars
from dtdg_lab.visualization.layout import Figure, frame, percent, with_note
from dtdg_lab.visualization.palette import PHASE_COLOURS
from dtdg_lab.visualization.run_view import RunView

RECENT = 50
BALANCED = 1.05
NAMED = 0.005  # share of the time from which a phase is named in the legend


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly the ranks worked over the recent steps; own time is batch, transfer and compute, not waiting."""

    slowest: int
    own_s: dict[int, float]
    others_wait_share: float

    @property
    def mean_s(self) -> float:
        """Mean own time of a step over ranks, seconds."""
        return sum(self.own_s.values()) / len(self.own_s)

    @property
    def ratio(self) -> float:
        """Largest own time over the mean: 1 is perfect balance."""
        return self.own_s[self.slowest] / self.mean_s if self.mean_s > 0 else 1.0


class PhasesView(RunView):
    """Seconds by phase of each rank's last steps."""

    name = "phases"

    def __init__(self) -> None:
        self.tables = {"steps": self.step}
        self._rows: dict[int, deque[tuple[int, int, float, tuple[float, ...]]]] = {}

    def step(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``steps``."""
        rows = self._rows.setdefault(rank, deque(maxlen=RECENT))
        if rows and row["step"] <= rows[-1][0]:
            return
        seconds = tuple(float(row.get(f"{phase}_s") or 0.0) for phase in PHASES)
        rows.append((row["step"], attempt, float(row.get("time_s") or sum(seconds)), seconds))

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for rank, rows in self._rows.items():
            kept = [row for row in rows if row[0] < step or row[1] >= attempt]
            self._rows[rank] = deque(kept, maxlen=RECENT)

    def means(self) -> dict[int, dict[str, float]]:
        """Mean seconds a step by rank and phase over the recent steps."""
        return {
            rank: {phase: sum(row[3][index] for row in rows) / len(rows) for index, phase in enumerate(PHASES)}
            for rank, rows in sorted(self._rows.items())
            if rows
        }

    def balance(self) -> Balance | None:
        """How evenly the ranks worked; None before the first step."""
        means = self.means()
        if not means:
            return None
        own = {rank: sum(phases[phase] for phase in OWN_PHASES) for rank, phases in means.items()}
        slowest = max(own, key=lambda rank: own[rank])
        others = [rank for rank in own if rank != slowest]
        waited = sum(means[rank]["wait"] for rank in others)
        spent = sum(sum(row[2] for row in self._rows[rank]) / len(self._rows[rank]) for rank in others)
        return Balance(slowest, own, waited / spent if spent > 0 else 0.0)

    def figure(self) -> Figure:
        """Stacked bars, one per rank; milliseconds."""
        means, balance = self.means(), self.balance()
        title = "Time per step by rank"
        if balance is not None and len(means) > 1:
            title += f" · imbalance {balance.ratio:.2f}"
        names = [f"rank {rank}" for rank in means]
        whole = sum(sum(phases.values()) for phases in means.values())
        data = []
        for phase in PHASES:
            seconds = [phases[phase] for phases in means.values()]
            x, hover = [round(each * 1e3, 4) for each in seconds], "%{y}: %{x:.2f} ms"
            named = sum(seconds) >= NAMED * whole
            data.append(level_bars(phase, names, x, PHASE_COLOURS[phase], hover, showlegend=named))
        axes = {"xaxis": {"rangemode": "tozero"}, "yaxis": NAMES}
        layout = frame(title, f"mean of the last {RECENT} steps (ms)", "", barmode="stack", bargap=0.35, **axes)
        return {"data": data, "layout": layout if means else with_note(layout)}

    def caption(self) -> str:
        """Who is slowest and what it costs, in words."""
        balance = self.balance()
        if balance is None:
            return "No step yet."
        slowest, mean = balance.own_s[balance.slowest] * 1e3, balance.mean_s * 1e3
        if len(balance.own_s) == 1:
            return f"One rank: it computes {slowest:.1f} ms a step and never waits."
        wait = percent(balance.others_wait_share)
        if balance.ratio < BALANCED:
            return f"The ranks are balanced: they compute {mean:.1f} ms a step and wait {wait} of each step."
        return (
            f"Rank {balance.slowest} is slowest: it computes {slowest:.1f} ms a step against {mean:.1f} ms on average, "
            f"so the others wait {wait} of each step."
        )


# The timeline view: what every rank did when, in the current epoch (a Gantt chart).


TIMELINE_RECENT = 25
Interval = tuple[str, int, int]  # phase, start_ns, end_ns


class TimelineView(RunView):
    """Phase intervals of the newest steps of the newest epoch."""

    name = "timeline"

    def __init__(self) -> None:
        self.tables = {"phases": self.interval}
        self._attempt = 0
        self._epoch = -1
        self._start_ns = 0
        self._cut = False
        self._steps: dict[int, dict[int, list[Interval]]] = {}

    def interval(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``phases``; rows of older epochs and attempts are passed over."""
        if (attempt, row["epoch"]) < (self._attempt, self._epoch):
            return
        if (attempt, row["epoch"]) > (self._attempt, self._epoch):
            self._attempt, self._epoch, self._start_ns = attempt, row["epoch"], row["start_ns"]
            self._steps, self._cut = {}, False
        self._start_ns = min(self._start_ns, row["start_ns"])
        steps = self._steps.setdefault(rank, {})
        intervals = steps.setdefault(row["step"], [])
        known = (str(row["phase"]), int(row["start_ns"]), int(row["end_ns"]))
        if known not in intervals:
            intervals.append(known)
        while len(steps) > TIMELINE_RECENT:
            steps.pop(min(steps))
            self._cut = True

    def _shown(self) -> dict[int, list[Interval]]:
        """Intervals by rank: of the same newest steps on every rank, so that ranks can be compared."""
        numbers = sorted({step for steps in self._steps.values() for step in steps})[-TIMELINE_RECENT:]
        return {
            rank: [interval for step in numbers for interval in steps.get(step, ())]
            for rank, steps in sorted(self._steps.items())
        }

    def figure(self) -> Figure:
        """One row of bars per rank, one colour per phase; seconds since the epoch began."""
        shown = self._shown()
        title = f"Timeline of epoch {self._epoch + 1}" if shown else "Timeline of the epoch"
        if self._cut:
            title += f" · last {TIMELINE_RECENT} steps"
        whole = sum(end - start for intervals in shown.values() for _, start, end in intervals)
        data = []
        for phase in (*PHASES, *BETWEEN_STEPS):
            found = [(rank, start, end) for rank, some in shown.items() for kind, start, end in some if kind == phase]
            names = [f"rank {rank}" for rank, *_ in found]
            x = [round((end - start) / 1e9, 6) for _, start, end in found]
            starts = [round((start - self._start_ns) / 1e9, 6) for _, start, _ in found]
            looks = {"base": starts, "showlegend": sum(end - start for _, start, end in found) >= NAMED * whole}
            data.append(level_bars(phase, names, x, PHASE_COLOURS[phase], "%{y}: %{x:.4f} s", **looks))
        axis = {**NAMES, "categoryorder": "array", "categoryarray": [f"rank {rank}" for rank in shown]}
        layout = frame(title, "time since the epoch began (s)", "", barmode="overlay", bargap=0.3, yaxis=axis)
        return {"data": data, "layout": layout if shown else with_note(layout)}

    def caption(self) -> str:
        """How busy the ranks were over what is drawn, in words."""
        shown = self._shown()
        ends = [end for rows in shown.values() for _, _, end in rows]
        starts = [start for rows in shown.values() for _, start, _ in rows]
        span = max(ends) - min(starts) if ends else 0
        if not span:
            return "No step yet."
        idle = sum(end - start for rows in shown.values() for kind, start, end in rows if kind == "wait")
        share = percent(idle / span / len(shown))
        return f"{span / 1e9:.2f} s of epoch {self._epoch + 1} are drawn; on average a rank waits {share} of that time."
