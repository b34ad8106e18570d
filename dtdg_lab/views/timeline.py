"""The timeline view: what every rank did when, in the current epoch (a Gantt chart)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.core.records import BETWEEN_STEPS, PHASES
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.palette import PHASE_COLOURS
from dtdg_lab.views.phases import NAMED

RECENT = 25
Interval = tuple[str, int, int]  # phase, start_ns, end_ns


class TimelineView:
    """Phase intervals of the newest steps of the newest epoch."""

    def __init__(self, recent: int = RECENT) -> None:
        self._recent = recent
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
        while len(steps) > self._recent:
            steps.pop(min(steps))
            self._cut = True

    def _shown(self) -> dict[int, list[Interval]]:
        """Intervals by rank: of the same newest steps on every rank, so that ranks can be compared."""
        numbers = sorted({step for steps in self._steps.values() for step in steps})[-self._recent :]
        return {
            rank: [interval for step in numbers for interval in steps.get(step, ())]
            for rank, steps in sorted(self._steps.items())
        }

    def figure(self) -> Figure:
        """One row of bars per rank, one colour per phase; seconds since the epoch began."""
        shown = self._shown()
        title = f"Timeline of epoch {self._epoch + 1}" if shown else "Timeline of the epoch"
        if self._cut:
            title += f" · last {self._recent} steps"
        layout = frame(
            title,
            "time since the epoch began (s)",
            "",
            barmode="overlay",
            bargap=0.3,
            yaxis={"autorange": "reversed", "type": "category", "showgrid": False, "ticksuffix": " ",
                   "categoryorder": "array", "categoryarray": [f"rank {rank}" for rank in shown]},
        )  # fmt: skip
        data = [self._trace(phase, shown) for phase in (*PHASES, *BETWEEN_STEPS)]
        return {"data": data, "layout": layout if shown else with_note(layout)}

    def _trace(self, phase: str, shown: dict[int, list[Interval]]) -> dict[str, Any]:
        whole = sum(end - start for rows in shown.values() for _, start, end in rows)
        found = [(rank, start, end) for rank, rows in shown.items() for kind, start, end in rows if kind == phase]
        return {
            "type": "bar",
            "orientation": "h",
            "name": phase,
            "y": [f"rank {rank}" for rank, _, _ in found],
            "base": [round((start - self._start_ns) / 1e9, 6) for _, start, _ in found],
            "x": [round((end - start) / 1e9, 6) for _, start, end in found],
            "marker": {"color": PHASE_COLOURS[phase], "line": {"width": 0}},
            "showlegend": sum(end - start for _, start, end in found) >= NAMED * whole,
            "hovertemplate": "%{y}: %{x:.4f} s<extra>" + phase + "</extra>",
        }

    def sentence(self) -> str:
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
