"""The phases view: where each rank's time goes, who is slowest, and what that costs the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.records import PHASES
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.palette import PHASE_COLOURS

RECENT = 50
OWN = ("batch", "transfer", "compute")
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


class PhasesView:
    """Seconds by phase of each rank's last steps."""

    def __init__(self, recent: int = RECENT) -> None:
        self._recent = recent
        self._rows: dict[int, deque[tuple[int, int, float, tuple[float, ...]]]] = {}

    def step(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``steps``."""
        rows = self._rows.setdefault(rank, deque(maxlen=self._recent))
        if rows and row["step"] <= rows[-1][0]:
            return
        seconds = tuple(float(row.get(f"{phase}_s") or 0.0) for phase in PHASES)
        rows.append((row["step"], attempt, float(row.get("time_s") or sum(seconds)), seconds))

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for rank, rows in self._rows.items():
            kept = [row for row in rows if row[0] < step or row[1] >= attempt]
            self._rows[rank] = deque(kept, maxlen=self._recent)

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
        own = {rank: sum(phases[phase] for phase in OWN) for rank, phases in means.items()}
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
        layout = frame(
            title,
            f"mean of the last {self._recent} steps (ms)",
            "",
            barmode="stack",
            bargap=0.35,
            xaxis={"rangemode": "tozero"},
            yaxis={"autorange": "reversed", "type": "category", "showgrid": False, "ticksuffix": " "},
        )
        names = [f"rank {rank}" for rank in means]
        whole = sum(sum(phases.values()) for phases in means.values())
        data = [
            {
                "type": "bar",
                "orientation": "h",
                "name": phase,
                "y": names,
                "x": [round(means[rank][phase] * 1e3, 4) for rank in means],
                "marker": {"color": PHASE_COLOURS[phase]},
                "showlegend": sum(means[rank][phase] for rank in means) >= NAMED * whole,
                "hovertemplate": "%{y}: %{x:.2f} ms<extra>" + phase + "</extra>",
            }
            for phase in PHASES
        ]
        return {"data": data, "layout": layout if means else with_note(layout)}

    def sentence(self) -> str:
        """Who is slowest and what it costs, in words."""
        balance = self.balance()
        if balance is None:
            return "No step yet."
        slowest, mean = balance.own_s[balance.slowest] * 1e3, balance.mean_s * 1e3
        if len(balance.own_s) == 1:
            return f"One rank: it computes {slowest:.1f} ms a step and waits for nobody."
        wait = percent(balance.others_wait_share)
        if balance.ratio < BALANCED:
            return f"The ranks are balanced: they compute {mean:.1f} ms a step and wait {wait} of each step."
        return (
            f"Rank {balance.slowest} is slowest: it computes {slowest:.1f} ms a step against {mean:.1f} ms on average, "
            f"so the others wait {wait} of each step."
        )
