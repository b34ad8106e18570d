"""Style of all charts: themes, marks, metric names, colours, thinning, and text tables."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.catalogue import metrics_of
from dtdg_lab.core.records import is_score
from dtdg_lab.visualization.charts import STEPS, Drawn, chart, flag, rule
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.palette import DARK_COLOURS, MARK_COLOUR, PAGE_COLOURS, WARNING_COLOUR
from dtdg_lab.visualization.series import XAxis

# Vertical marks: changes of settings and resumes, at the step they were applied, checked over all ranks.


KEPT = 200
LINES = 30
LABELS = 8
ROOM = 0.05  # of the chart, for a label
LONGEST = 28  # characters of a line of a label: more do not fit beside the lowest charts


@dataclass(slots=True)
class Mark:
    """One change: its words, the step at which each rank applied it, and the seconds that the slowest took for it.

    Where ranks average models each is at a step of its own (``own_steps``), and received the change in the same round.
    """

    label: str
    seconds: float
    attempt: int
    duration_s: float = 0.0
    steps: dict[int, int] = field(default_factory=dict)
    own_steps: bool = False

    @property
    def step(self) -> int:
        """The step the change was applied at; the first where ranks differ."""
        return min(self.steps.values())

    @property
    def together(self) -> bool:
        """Whether all ranks that reported applied the change at one step, unless each has its own."""
        return self.own_steps or len(set(self.steps.values())) == 1

    @property
    def text(self) -> str:
        """The label, with the steps by rank where they differ."""
        if len(set(self.steps.values())) <= 1:
            return self.label
        where = ", ".join(f"rank {rank} at {step}" for rank, step in sorted(self.steps.items()))
        return f"{self.label} ({where})" if self.own_steps else f"{self.label} NOT AT ONE STEP: {where}"


class Marks:
    """The changes of a run, by attempt and version; the newest ``KEPT`` of them."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, Any, Any], Mark] = {}  # attempt, version, when

    def __iter__(self) -> Iterator[Mark]:
        return iter(sorted(self._marks.values(), key=lambda mark: (mark.step, mark.seconds)))

    def __len__(self) -> int:
        return len(self._marks)

    def settings_changed(self, data: Mapping[str, Any], rank: int, step: int, seconds: float, attempt: int) -> None:
        """Note that ``rank`` applied the change ``data`` before ``step``."""
        words = ", ".join(f"{name} {short(value)}" for name, value in data.get("changes", {}).items())
        # a change at an epoch's end is logged under the newest version, which may be that of a step's change
        key = (attempt, data.get("version"), data.get("when"))
        self._note(key, Mark(words, seconds, attempt, own_steps=bool(data.get("own_steps"))), rank, step)
        if key in self._marks:
            self._marks[key].duration_s = max(self._marks[key].duration_s, data.get("duration_s", 0.0))

    def resumed(self, rank: int, step: int, seconds: float, attempt: int) -> None:
        """Note that the run was resumed at ``step``."""
        self._note((attempt, "resumed", None), Mark("resumed", seconds, attempt), rank, step)

    def _note(self, key: tuple[int, Any, Any], new: Mark, rank: int, step: int) -> None:
        self._marks.setdefault(key, new).steps[rank] = step
        while len(self._marks) > KEPT:
            self._marks.pop(next(iter(self._marks)))

    def applied(self, version: int) -> Mark | None:
        """The step change that was asked for as ``version``, once a rank has applied it; of the newest attempt."""
        found = [attempt for attempt, its_version, when in self._marks if (its_version, when) == (version, "step")]
        return self._marks[max(found), version, "step"] if found else None

    def truncate(self, step: int, attempt: int) -> None:
        """Drop what earlier attempts changed at ``step`` or later: it is done again, or not."""
        self._marks = {key: mark for key, mark in self._marks.items() if mark.step < step or mark.attempt >= attempt}

    def layout(self, x: XAxis, end: float) -> dict[str, list[dict[str, Any]]]:
        """Shapes and annotations: a line for each of the newest marks, a label for those with room for one.

        Of changes close together, as a slider makes them, the last is labelled; ``end`` is where the chart ends.
        """
        marks = list(self)[-LINES:]
        labelled: list[Mark] = []
        for mark in reversed(marks):
            near = bool(labelled) and _at(labelled[-1], x) - _at(mark, x) < ROOM * end
            if not mark.together or (not near and len(labelled) < LABELS):
                labelled.append(mark)
        return {
            "shapes": [rule(x=_at(mark, x), colour=_colour(mark)) for mark in marks],
            "annotations": [
                # a label left of its line would stand on the axis where the line is near it
                flag(_flagged(mark), at, _colour(mark), xanchor="left" if at < 2 * ROOM * end else "right")
                for mark in reversed(labelled)
                for at in (_at(mark, x),)
            ],
        }

    def chart(
        self,
        title: str,
        y_title: str,
        data: Sequence[Drawn],
        steps: Sequence[int],
        *,
        x_title: str = STEPS,
        **looks: Any,
    ) -> Figure:
        """A chart over these steps with the changes that were made meanwhile; its note where there are no traces."""
        return chart(title, x_title, y_title, data, **looks, **self.over_steps(steps))

    def over_steps(self, steps: Sequence[int]) -> dict[str, Any]:
        """What a chart over these steps alone needs of the marks: shapes, annotations, and an axis that ends there."""
        if not steps:
            return {}
        low, high = steps[0] - 0.5, steps[-1] + 0.5
        drawn = self.layout("steps", steps[-1] - steps[0])
        shapes = [shape for shape in drawn["shapes"] if low <= shape["x0"] <= high]
        annotations = [note for note in drawn["annotations"] if low <= note["x"] <= high]
        return {"shapes": shapes, "annotations": annotations, "xaxis": {"range": [low, high]}}


def _at(mark: Mark, x: XAxis) -> float:
    return mark.step if x == "steps" else mark.seconds


def _flagged(mark: Mark) -> str:
    """The label of a mark in a chart, in lines that fit a low chart; with the steps where they should not differ."""
    return mark.text if not mark.together else "<br>".join(textwrap.wrap(mark.label, LONGEST))


def _colour(mark: Mark) -> str:
    return MARK_COLOUR if mark.together else WARNING_COLOUR


def short(value: Any) -> str:
    """A setting's value as marks have it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# Names of metrics in charts and sentences, and which metric of a task stands beside its loss.


_WORDS = {"mrr": "MRR", "auc": "AUC", "mae": "mean absolute error"}
BASELINE = "persistence_"


def words(metric: str) -> str:
    """What a metric is called in a chart."""
    return _WORDS.get(metric, metric.replace("_", " ").replace("f1", "F1"))


def finite(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """The scores of an evaluation that have a value; runs recorded before there were metrics have none."""
    found = {name: float(value) for name, value in (metrics or {}).items() if value is not None and is_score(name)}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def main_metric(task: str, metrics: Container[str]) -> str | None:
    """The metric of a task that is drawn beside its loss; None where there is none of them."""
    return next((name for name in metrics_of(task) if name in metrics), None)


# Rows of words as a table in text.


def text_table(lines: Sequence[Sequence[str]], *, words: int = 1, markdown: bool = False) -> str:
    """A table with its head in the first line.

    Args:
        lines: the cells, all lines as many.
        words: columns from the left that hold words; the others hold numbers and stand to the right.
        markdown: with bars and a rule; else columns of fixed width.
    """
    if markdown:
        head, *body = lines
        rule = ["---"] * words + ["---:"] * (len(head) - words)
        return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at < words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


# The light and the dark theme for pages: CSS variables, and the script that draws figures in either.


@cache
def theme_script() -> str:
    """JavaScript functions (``theme.js``) with the colours they need: no exports, to be put before other code."""
    dark = {light.upper(): colour for light, colour in DARK_COLOURS.items()}
    page = {theme: dict(colours) for theme, colours in PAGE_COLOURS.items()}
    constants = f"const DL_DARK = {json.dumps(dark)}\nconst DL_PAGE = {json.dumps(page)}\n"
    return constants + (Path(__file__).parent / "theme.js").read_text(encoding="utf-8")


def variables(theme: str) -> str:
    """The colours of a page in ``light`` or ``dark`` as CSS variables ``--dl-...``."""
    return " ".join(f"--dl-{name}: {colour};" for name, colour in PAGE_COLOURS[theme].items())


def coloured(name: str) -> str:
    """A page colour for a style: the theme's where there is one, else that of the light theme."""
    return f"var(--dl-{name}, {PAGE_COLOURS['light'][name]})"


# Long series for small pictures: few points that still show every peak.


MOST = 1000


def shown_indices(values: NDArray[np.floating], most: int = MOST) -> NDArray[np.int64]:
    """Which of T values to draw: all of them, or the smallest and the largest of each of ``most`` / 2 stretches.

    The first and the last are always drawn; NaN counts as neither small nor large.

    Args:
        values: shape (T,).
        most: about how many to draw.

    Returns:
        Increasing indices, at most ``most`` + 2.
    """
    count = len(values)
    if count <= most:
        return np.arange(count)
    bounds = np.linspace(0, count, most // 2 + 1).astype(np.int64)
    low, high = (np.where(np.isnan(values), fill, values) for fill in (np.inf, -np.inf))
    length = int(np.diff(bounds).max())
    # one row a stretch; places after its end repeat its last value
    places = np.minimum(bounds[:-1, None] + np.arange(length), bounds[1:, None] - 1)
    rows = np.arange(len(places))
    found = (places[rows, low[places].argmin(axis=1)], places[rows, high[places].argmax(axis=1)])
    return np.unique(np.concatenate([*found, [0, count - 1]]))


def runs_of(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The stretches in which ``flags`` holds, as (first, last) indices."""
    steps = np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8))
    starts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]


# The ways that rows take within a step, and the colours and matrices they are drawn in.


Matrix = NDArray[np.float64]

PASS_COLOURS: Mapping[str, str] = MappingProxyType({"forward": "#0072B2", "rerun": "#E69F00", "backward": "#4B2A7B"})
