"""Marks of changed settings and of resumes in charts: dotted lines, with numbered chips in the top margin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.changes.log import RequestedChange, log_state, requested_changes
from dtdg_lab.visualization.chart import Figure, XAxis
from dtdg_lab.visualization.palette import MARK_COLOUR
from dtdg_lab.visualization.run_names import setting_label, value_text

CHIPS = 20  # the newest changes that are drawn
NEAR, WIDE = 18, 32  # pixels from the first change of a chip, of one and of several, under which the next one joins
THIRD_WIDTH, HALF_WIDTH, PAGE_WIDTH = 340, 500, 1050  # pixels of the plot of a card, by its share of a row
RESUMED = "\N{CLOCKWISE OPEN CIRCLE ARROW}"


@dataclass(frozen=True, slots=True)
class ChangeMark:
    """One applied change, or one resume.

    Attributes:
        number: in the log of changes; None for a resume.
        text: what was changed.
        position: on the x axis.
    """

    number: int | None
    text: str
    position: float


def with_changes(
    figure: Figure, tables: RunTables, x: XAxis, begin: float, end: float, *, width: float = THIRD_WIDTH
) -> Figure:
    """Return a chart with a dotted line at each change from ``begin`` to ``end``, under numbered chips.

    Args:
        figure: a card over steps or seconds.
        tables: of the run.
        x: what the axis shows.
        begin: where it begins.
        end: where it ends.
        width: pixels of the plot, by which close changes share a chip.
    """
    marks = [mark for mark in change_marks(tables, x) if begin <= mark.position <= end][-CHIPS:]
    chips: list[list[ChangeMark]] = []
    for mark in marks:
        near = NEAR if not chips or len(chips[-1]) == 1 else WIDE
        if chips and (mark.position - chips[-1][0].position) * width < near * (end - begin):
            chips[-1].append(mark)
        else:
            chips.append([mark])
    layout = figure["layout"]
    shapes, annotations = [*layout["shapes"], *map(_line, marks)], [*layout["annotations"], *map(_chip, chips)]
    return {**figure, "layout": {**layout, "shapes": shapes, "annotations": annotations}}


def over_steps(figure: Figure, tables: RunTables, first: float, last: float) -> Figure:
    """Return a chart from the first of some steps to the last, with the changes between them."""
    begin, end = float(first) - 0.5, float(last) + 0.5
    figure["layout"]["xaxis"]["range"] = [begin, end]
    return with_changes(figure, tables, "steps", begin, end, width=HALF_WIDTH)


def change_marks(tables: RunTables, x: XAxis) -> list[ChangeMark]:
    """Return the changes that were applied and the resumes, in order of their place on an axis."""

    def marks() -> list[ChangeMark]:
        changes = [_mark(change, x) for change in requested_changes(tables) if change.outcome == "applied"]
        resumes = [
            ChangeMark(None, f"resumed{_at_step(steps)}", float(min(steps.values())) if x == "steps" else seconds)
            for steps, seconds in tables.resumes
        ]
        return sorted([*changes, *resumes], key=lambda mark: mark.position)

    return tables.once(("change marks", x), marks, state=log_state(tables))


def _mark(change: RequestedChange, x: XAxis) -> ChangeMark:
    values = (
        f"{setting_label(name)} {'' if old is None else f'{value_text(name, old)} → '}{value_text(name, new)}"
        for name, (old, new) in change.changes.items()
    )
    text = f"{change.number}: {', '.join(values)}{f', {change.times} times' if change.times > 1 else ''}"
    steps, asked_s = change.steps or {0: change.step}, change.asked_s
    position = float(min(steps.values())) if x == "steps" else asked_s if change.seconds is None else change.seconds
    return ChangeMark(change.number, text if len(set(steps.values())) == 1 else text + _at_step(steps), position)


def _at_step(steps: Mapping[int, int]) -> str:
    """Return where the ranks were, in words."""
    if len(set(steps.values())) == 1:
        return f" at step {next(iter(steps.values())):,}"
    return " (" + ", ".join(f"rank {rank} at step {step:,}" for rank, step in sorted(steps.items())) + ")"


def _line(mark: ChangeMark) -> dict[str, Any]:
    ends = {"x0": mark.position, "x1": mark.position, "y0": 0, "y1": 1}
    stroke = {"color": MARK_COLOUR, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "x", "yref": "paper", **ends, "line": stroke, "layer": "below"}


def _chip(marks: Sequence[ChangeMark]) -> dict[str, Any]:
    """Return the chip of close changes; its name has their numbers, for clicks."""
    numbers = [mark.number for mark in marks if mark.number is not None]
    text = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}" if numbers else ""
    text += RESUMED if len(numbers) < len(marks) else ""
    return {
        "name": "changes " + " ".join(map(str, numbers)),
        "x": marks[0].position,
        "y": 1,
        "xref": "x",
        "yref": "paper",
        "yanchor": "bottom",
        "yshift": 1,
        "showarrow": False,
        "text": text,
        "font": {"size": 10.5, "color": "#FFFFFF"},
        "bgcolor": MARK_COLOUR,
        "borderpad": 2,
        "hovertext": "<br>".join(mark.text for mark in marks),
        "captureevents": True,
    }
