"""The loss view: every step's loss, evaluations by split, what persistence and the mean score, the task's metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.catalogue import loss_name, metrics_of
from dtdg_lab.core.options import option
from dtdg_lab.core.records import PAIRS, few_pairs, interval_of
from dtdg_lab.visualization.charts import FROM_ZERO, right_axis
from dtdg_lab.visualization.layout import Figure, frame, join_words, percent, with_note
from dtdg_lab.visualization.palette import BASELINE_COLOUR, SPLIT_COLOURS, STEP_COLOUR
from dtdg_lab.visualization.run_view import Row, RunView, SharedViews
from dtdg_lab.visualization.series import Line, Point, Series, XAxis
from dtdg_lab.visualization.style import BASELINE, finite, main_metric, words

if TYPE_CHECKING:
    pass


SPLITS = ("train", "validation", "test")
USUAL_TASK: str = option("task").default
ENTRY = 54  # pixels of a name in the legend: two columns in a chart of 310 pixels
_BASELINES = (("persistence", "persistence_loss", "dash"), ("mean", "mean_loss", "dot"))
X_TITLES = {"steps": "step (model updates)", "seconds": "time since the start (s)"}


class LossView(RunView):
    """Losses of one run, and the metric of its task on an axis of its own where evaluations hold one."""

    name = "loss"

    def __init__(self, shared: SharedViews, task: str = USUAL_TASK) -> None:
        self.task, self._points = task, shared.points
        self.steps = Series(shared.points)
        self.splits = {split: Series(shared.points) for split in SPLITS}
        self.metrics: dict[str, dict[str, Series]] = {split: {} for split in SPLITS}  # by split and name
        self._newest: dict[str, dict[str, float]] = {}  # by split: metrics of the newest evaluation
        self._support: dict[str, Mapping[str, Any]] = {}  # and what says how much they rest on
        self._newest_step: dict[str, int] = {}
        self._baselines: dict[str, dict[str, float]] = {}
        self._marks = shared.marks
        self.tables = {"steps": shared.timed(self.step)}
        self.tables_before = {"evaluations": shared.timed(self.evaluation)}

    def step(self, rank: int, row: Row, seconds: float, attempt: int) -> None:
        """Add the mean loss of all groups of a step, by a row of ``steps``; that of the first rank counts."""
        self.steps.add(row["step"], seconds, row.get("global_loss"), attempt)

    def evaluation(self, rank: int, row: Row, seconds: float, attempt: int) -> None:
        """Add one row of the table ``evaluations``."""
        split = str(row["split"])
        if split not in self.splits:
            return
        for series in (self.splits[split], *self.metrics[split].values()):
            series.truncate(row["step"], attempt)  # the same model evaluated again after a resume
        if not self.splits[split].add(row["step"], seconds, row["loss"], attempt):
            return
        self._baselines[split] = finite({name: row.get(column) for name, column, _ in _BASELINES})
        self._newest[split], self._newest_step[split] = finite(row.get("metrics")), row["step"]
        self._support[split] = row.get("metrics") or {}
        for name in metrics_of(self.task):
            if name in self._newest[split]:
                series = self.metrics[split].setdefault(name, Series(self._points))
                series.add(row["step"], seconds, self._newest[split][name], attempt)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt computed from ``step`` on; an evaluation at ``step`` is of the same model."""
        self.steps.truncate(step, attempt)
        found = (series for by_name in self.metrics.values() for series in by_name.values())
        for series in (*self.splits.values(), *found):
            series.truncate(step + 1, attempt)

    def baseline(self, name: str, split: str = "validation") -> float | None:
        """The newest loss of ``persistence`` or ``mean`` on a split; None where it is not known yet."""
        return self._baselines.get(split, {}).get(name)

    @property
    def metric(self) -> str | None:
        """The metric that is drawn; None where evaluations hold none of the task's."""
        return main_metric(self.task, self.metrics[self.judged])

    @property
    def judged(self) -> str:
        """The split that baselines and metrics are shown of: validation, or training where a protocol has none."""
        return "validation" if len(self.splits["validation"]) or not len(self.splits["train"]) else "train"

    def lines(self, x: XAxis) -> list[Line]:
        """The lines of the chart, in drawing order; the baselines are those of validation."""
        faint = {"mode": "lines", "line": {"color": STEP_COLOUR, "width": 1}}
        lines = [self.steps.line("each step", x, faint)]
        # training and validation, test once it is known; no validation under a protocol that has none
        for split in (name for name in SPLITS if len(self.splits[name]) or name in ("train", self.judged)):
            lines.append(self.splits[split].line(split, x, _evaluated(SPLIT_COLOURS[split])))
        return lines + self._baseline_lines(x) + self._metric_lines(x)

    def _end(self, x: XAxis) -> float:
        newest = [series.last for series in (self.steps, *self.splits.values()) if series.last is not None]
        return max((point.step if x == "steps" else point.seconds for point in newest), default=0.0)

    def _baseline_lines(self, x: XAxis) -> list[Line]:
        end, lines = self._end(x), []
        for name, _, dash in _BASELINES:
            value = self.baseline(name, self.judged)
            if value is not None:
                lines.append(_level(name, value, end, {"color": BASELINE_COLOUR, "width": 1.5, "dash": dash}))
        return lines

    def _metric_lines(self, x: XAxis) -> list[Line]:
        """The task's metric of validation and test, against the right axis, with what persistence reaches."""
        name = self.metric
        if name is None:
            return []
        lines: list[Line] = []
        for split in (self.judged, "test"):
            dots = {"line": {"color": SPLIT_COLOURS[split], "width": 1.5, "dash": "dot"}, "yaxis": "y2"}
            # a split's metric has the colour of its loss: one entry of the legend says which metric it is
            marker = {"size": 6, "symbol": "diamond-open"}
            style: dict[str, Any] = {"mode": "lines+markers", "marker": marker, "showlegend": not lines, **dots}
            if name in self.metrics[split]:
                label = words(name) if split == self.judged else f"{split} {words(name)}"
                lines.append(self.metrics[split][name].line(label, x, style))
        value = self._newest.get(self.judged, {}).get(BASELINE + name)
        if value is not None:
            line = {"color": BASELINE_COLOUR, "width": 1, "dash": "longdashdot"}
            lines.append(_level(f"persistence {words(name)}", value, self._end(x), line, yaxis="y2"))
        return lines

    def layout(self, x: XAxis) -> dict[str, Any]:
        """Title, axes and marks."""
        title = "Loss" if self.metric is None else f"Loss and {words(self.metric)} (right axis)"
        layout = frame(title, X_TITLES[x], loss_name(self.task), **self._marks.layout(x, self._end(x)))
        layout["legend"] = {**layout["legend"], "entrywidth": ENTRY}
        if self.metric is not None:
            right_axis(layout, words(self.metric), 44, **FROM_ZERO)
        return layout if self.steps.last or any(map(len, self.splits.values())) else with_note(layout)

    def figure(self, x: XAxis = "steps") -> Figure:
        """The chart as a plotly figure dict."""
        return {"data": [line.trace() for line in self.lines(x)], "layout": self.layout(x)}

    def caption(self) -> str:
        """Where validation stands against persistence, and what its metrics are, in words."""
        split = self.judged
        found = self.splits[split].last
        if found is None or found.value is None:
            newest = self.steps.last
            if newest is None or newest.value is None:
                return "No loss yet."
            return f"Loss {newest.value:.4g} at step {newest.step}; no evaluation yet."
        of_this_step = self._newest_step.get(split) == found.step  # not of one that a resume has taken back
        tested = self.splits["test"].last
        return (
            self._against_persistence(split, found)
            + (self._said_metrics(split) if of_this_step else "")
            + ("" if tested is None else f" {self._against_persistence('test', tested)}")
        )

    def _against_persistence(self, split: str, found: Point) -> str:
        name = "Training" if split == "train" else split.capitalize()
        if found.value is None:
            return f"{name} loss at step {found.step} is not finite."
        persistence, text = self.baseline("persistence", split), f"{name} loss {found.value:.4g} at step {found.step}"
        if persistence:
            gain = 1 - found.value / persistence
            side = "below" if gain >= 0 else "above"
            text += f", {percent(abs(gain))} {side} persistence ({persistence:.4g})"
        return f"{text}."

    def _said_metrics(self, split: str) -> str:
        newest, support = self._newest.get(split, {}), self._support.get(split, {})
        said = []
        for name, value in newest.items():
            if not name.startswith(BASELINE):
                beside = newest.get(BASELINE + name)
                ends = interval_of(support, name)
                spread = "" if ends is None else f" [{ends[0]:.3g} .. {ends[1]:.3g}]"
                described = "" if beside is None else f" (persistence {beside:.3g})"
                said.append(f"{words(name)} {value:.3g}{spread}{described}")
        text = join_words(said)
        pairs = f", of {support[PAIRS]:,.0f} pairs" if support.get(PAIRS) else ""
        warnings = [few_pairs(self._support.get(part), part) for part in dict.fromkeys((split, "validation", "test"))]
        found = "".join(f" {warning}" for warning in warnings if warning)
        return f" {text[0].upper()}{text[1:]}{pairs}.{found}" if said else ""


def _evaluated(colour: str) -> dict[str, Any]:
    """The style of a line through evaluations."""
    return {"mode": "lines+markers", "line": {"color": colour, "width": 2}, "marker": {"size": 5}}


def _level(name: str, value: float, end: float, line: dict[str, Any], **more: Any) -> Line:
    """A horizontal line from the start of the chart to its end."""
    return Line(f"{name}/{value!r}", name, [0.0, end], [value, value], 1, {"mode": "lines", "line": line, **more})
