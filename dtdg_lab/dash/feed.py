"""What a display must be told: first everything, then only what is new since it was last told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtdg_lab.views import CHARTS, RunWindow
from dtdg_lab.views.series import Line, XAxis

Message = dict[str, Any]
RELAID = ("title", "shapes", "annotations")  # what may change of a layout without drawing the lines again
REDRAWN = ("phases", "timeline")  # small charts that change as a whole


@dataclass(frozen=True, slots=True)
class _Sent:
    """How much of a line a display has: its stable points, and the ones at its end that may still change."""

    key: str
    stable: int
    loose: tuple[list[float], list[float | None]]


class ChartFeed:
    """Messages for ``live.js`` about one run.

    A snapshot holds whole figures. A patch holds ``extend``: ``[chart, trace, xs, ys, drop]``, points to append to a
    trace after taking the last ``drop`` off; ``react``: figures to draw anew; ``relayout``: layouts that changed
    (marks, titles); ``captions``. Messages are numbered: a display that misses one asks for a snapshot.
    """

    def __init__(self) -> None:
        self._number = -1
        self._lines: dict[str, list[_Sent]] = {}
        self._layouts: dict[str, dict[str, Any]] = {}
        self._drawn: dict[str, dict[str, Any]] = {}
        self._captions: dict[str, str] = {}

    def snapshot(self, window: RunWindow, x: XAxis) -> Message:
        """Everything; the patches that follow start from here."""
        figures = {chart: figure for chart, figure in window.figures(x).items() if chart in CHARTS}
        self._number += 1
        self._lines = {chart: [_sent(line) for line in lines] for chart, lines in window.lines(x).items()}
        self._layouts = window.layouts(x)
        self._drawn = {chart: figures[chart] for chart in REDRAWN}
        self._captions = _captions(window)
        return self._numbered(window, {"kind": "snapshot", "react": figures, "captions": dict(self._captions)})

    def patch(self, window: RunWindow, x: XAxis) -> Message | None:
        """What changed since the last message; None where nothing did."""
        message: Message = {"extend": [], "react": {}, "relayout": {}, "captions": {}}
        layouts = window.layouts(x)
        for chart, lines in window.lines(x).items():
            self._patch_lines(chart, lines, layouts[chart], message)
        for chart in REDRAWN:
            figure = (window.phases if chart == "phases" else window.timeline).figure()
            if figure != self._drawn[chart]:
                self._drawn[chart] = message["react"][chart] = figure
        for chart, text in _captions(window).items():
            if text != self._captions[chart]:
                self._captions[chart] = message["captions"][chart] = text
        if not any(message.values()):
            return None
        self._number += 1
        return self._numbered(window, {"kind": "patch", **message})

    def _patch_lines(self, chart: str, lines: list[Line], layout: dict[str, Any], message: Message) -> None:
        sent, before = self._lines[chart], self._layouts[chart]
        reframed = {name for name in layout if layout[name] != before.get(name)} - set(RELAID)
        self._layouts[chart] = layout
        self._lines[chart] = [_sent(line) for line in lines]
        # a new trace, one that was thinned or cut, or other axes
        if reframed or [line.key for line in lines] != [known.key for known in sent]:
            message["react"][chart] = {"data": [line.trace() for line in lines], "layout": layout}
            return
        if layout != before:
            message["relayout"][chart] = {name: layout[name] for name in RELAID}
        for index, (line, known) in enumerate(zip(lines, sent, strict=True)):
            xs, ys = line.xs[known.stable :], line.ys[known.stable :]
            if (xs, ys) != known.loose:
                message["extend"].append([chart, index, xs, ys, len(known.loose[0])])

    def _numbered(self, window: RunWindow, message: Message) -> Message:
        # one more than a series holds, for its newest point
        return {**message, "number": self._number, "points": max(4, window.points) + 2}


def _captions(window: RunWindow) -> dict[str, str]:
    """The sentences of the live charts; a run's partition and its schedule have pages of their own."""
    said = (
        window.loss.sentence(), window.phases.sentence(), window.energy.sentence(), window.timeline.sentence(),
    )  # fmt: skip
    return dict(zip(CHARTS, said, strict=True))


def _sent(line: Line) -> _Sent:
    return _Sent(line.key, line.stable, (line.xs[line.stable :], line.ys[line.stable :]))
