"""The loss view: every step's loss, evaluations by split, and what persistence and the mean would score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import BASELINE_COLOUR, SPLIT_COLOURS, STEP_COLOUR
from dtdg_lab.views.series import Line, Series, XAxis

SPLITS = ("train", "validation", "test")
_BASELINES = (("persistence", "persistence_loss", "dash"), ("mean", "mean_loss", "dot"))
X_TITLES = {"steps": "step (model updates)", "seconds": "time since the start (s)"}


class LossView:
    """Losses of one run."""

    def __init__(self, points: int, marks: Marks) -> None:
        self.steps = Series(points)
        self.splits = {split: Series(points) for split in SPLITS}
        self._baselines: dict[str, dict[str, float]] = {}
        self._marks = marks

    def step(self, step: int, seconds: float, loss: float | None, attempt: int) -> None:
        """Add the mean loss of all groups of a step; any rank may tell it, the first one counts."""
        self.steps.add(step, seconds, loss, attempt)

    def evaluation(self, row: Mapping[str, Any], seconds: float, attempt: int) -> None:
        """Add one row of the table ``evaluations``."""
        split = str(row["split"])
        series = self.splits.get(split)
        if series is None:
            return
        series.truncate(row["step"], attempt)  # the same model evaluated again after a resume
        if series.add(row["step"], seconds, row["loss"], attempt):
            found = {name: row.get(column) for name, column, _ in _BASELINES}
            self._baselines[split] = {name: value for name, value in found.items() if value is not None}

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt computed from ``step`` on; an evaluation at ``step`` is of the same model."""
        self.steps.truncate(step, attempt)
        for series in self.splits.values():
            series.truncate(step + 1, attempt)

    def baseline(self, name: str, split: str = "validation") -> float | None:
        """The newest loss of ``persistence`` or ``mean`` on a split; None where it is not known yet."""
        return self._baselines.get(split, {}).get(name)

    def lines(self, x: XAxis) -> list[Line]:
        """The lines of the chart, in drawing order; the baselines are those of validation."""
        faint = {"mode": "lines", "line": {"color": STEP_COLOUR, "width": 1}}
        lines = [self.steps.line("each step", x, faint)]
        for split in SPLITS[: 3 if len(self.splits["test"]) else 2]:
            style = {
                "mode": "lines+markers",
                "line": {"color": SPLIT_COLOURS[split], "width": 2},
                "marker": {"size": 5},
            }
            lines.append(self.splits[split].line(split, x, style))
        return lines + self._baseline_lines(x)

    def _end(self, x: XAxis) -> float:
        newest = [series.last for series in (self.steps, *self.splits.values()) if series.last is not None]
        return max((point.step if x == "steps" else point.seconds for point in newest), default=0.0)

    def _baseline_lines(self, x: XAxis) -> list[Line]:
        end, lines = self._end(x), []
        for name, _, dash in _BASELINES:
            value = self.baseline(name)
            if value is not None:
                style = {"mode": "lines", "line": {"color": BASELINE_COLOUR, "width": 1.5, "dash": dash}}
                lines.append(Line(f"{name}/{value!r}", name, [0.0, end], [value, value], 1, style))
        return lines

    def layout(self, x: XAxis) -> dict[str, Any]:
        """Title, axes and marks."""
        layout = frame("Loss", X_TITLES[x], "mean squared error", **self._marks.layout(x, self._end(x)))
        return layout if self.steps.last or any(map(len, self.splits.values())) else with_note(layout)

    def figure(self, x: XAxis = "steps") -> Figure:
        """The chart as a plotly figure dict."""
        return {"data": [line.trace() for line in self.lines(x)], "layout": self.layout(x)}

    def sentence(self) -> str:
        """Where validation stands against persistence, in words."""
        found = self.splits["validation"].last
        if found is None or found.value is None:
            newest = self.steps.last
            if newest is None or newest.value is None:
                return "No loss yet."
            return f"Loss {newest.value:.4g} at step {newest.step}; no evaluation yet."
        text = f"Validation loss {found.value:.4g} at step {found.step}"
        persistence = self.baseline("persistence")
        if not persistence:
            return text + "."
        gain = 1 - found.value / persistence
        side = "below" if gain >= 0 else "above"
        return f"{text}, {percent(abs(gain))} {side} persistence ({persistence:.4g})."
