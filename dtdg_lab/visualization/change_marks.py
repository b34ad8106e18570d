"""Marks of changed settings and of resumes in charts: dotted lines, with numbered chips in the top margin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.events import SettingsChanged
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.visualization.chart import XAxis
from dtdg_lab.visualization.palette import MARK_COLOUR

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

CHIPS = 20  # the newest changes that are drawn
NEAR = 18  # pixels under which two changes share a chip
THIRD_WIDTH, HALF_WIDTH, PAGE_WIDTH = 340, 500, 1050  # pixels of the plot of a card, by its share of a row
RESUMED = "\N{CLOCKWISE OPEN CIRCLE ARROW}"


@dataclass(frozen=True, slots=True)
class ChangeMark:
    """One applied change, or one resume.

    Attributes:
        number: in the log of changes; None for a resume.
        text: what was changed.
        at: its place on the x axis.
    """

    number: int | None
    text: str
    at: float


def with_changes(
    layout: dict[str, Any], tables: RunTables, x: XAxis, begin: float, end: float, *, width: float = THIRD_WIDTH
) -> dict[str, Any]:
    """Return a layout with a dotted line at each change from ``begin`` to ``end``, under numbered chips.

    Args:
        layout: of a chart over steps or seconds.
        tables: of the run.
        x: what the axis shows.
        begin: where it begins.
        end: where it ends.
        width: pixels of the plot, by which close changes share a chip.
    """
    marks = [mark for mark in change_marks(tables, x) if begin <= mark.at <= end][-CHIPS:]
    chips: list[list[ChangeMark]] = []
    for mark in marks:
        if chips and (mark.at - chips[-1][-1].at) * width < NEAR * (end - begin):
            chips[-1].append(mark)
        else:
            chips.append([mark])
    return {
        **layout,
        "shapes": [*layout["shapes"], *map(_line, marks)],
        "annotations": [*layout["annotations"], *map(_chip, chips)],
    }


def change_marks(tables: RunTables, x: XAxis) -> list[ChangeMark]:
    """Return the changes that were applied and the resumes, in order of their place on an axis."""

    def marks() -> list[ChangeMark]:
        changes = [_mark(number, events, x) for number, events in enumerate(_applied(tables), start=1)]
        resumes = [
            ChangeMark(None, f"resumed{_at_step(steps)}", float(min(steps.values())) if x == "steps" else seconds)
            for steps, seconds in tables.resumes
        ]
        return sorted([*changes, *resumes], key=lambda mark: mark.at)

    return tables.once(("change marks", x), marks)


def _applied(tables: RunTables) -> list[list[dict[str, Any]]]:
    """Return the events of each change, one of each rank that applied it."""
    changes: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for event in tables.events(SettingsChanged.kind):
        # a change at an epoch's end has the newest version, which may be that of a change at a step
        key = (event["attempt"], event["data"]["version"], event["data"].get("when"))
        changes.setdefault(key, []).append(event)
    return list(changes.values())


def _mark(number: int, events: Sequence[Mapping[str, Any]], x: XAxis) -> ChangeMark:
    first = events[0]
    steps = {event["rank"]: event["step"] for event in events}
    text = ", ".join(f"{_label(name)} {_value_text(value)}" for name, value in first["data"]["changes"].items())
    at = float(min(steps.values())) if x == "steps" else min(event["seconds"] for event in events)
    return ChangeMark(number, f"{number}: {text}{'' if len(set(steps.values())) == 1 else _at_step(steps)}", at)


def _at_step(steps: Mapping[int, int]) -> str:
    """Return where the ranks were, in words."""
    if len(set(steps.values())) == 1:
        return f" at step {next(iter(steps.values())):,}"
    return " (" + ", ".join(f"rank {rank} at step {step:,}" for rank, step in sorted(steps.items())) + ")"


def _label(setting: str) -> str:
    label = OPTIONS[setting].label if setting in OPTIONS else ""
    return (label or setting.replace("_", " ")).lower()


def _value_text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _line(mark: ChangeMark) -> dict[str, Any]:
    ends = {"x0": mark.at, "x1": mark.at, "y0": 0, "y1": 1}
    looks = {"color": MARK_COLOUR, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "x", "yref": "paper", **ends, "line": looks, "layer": "below"}


def _chip(marks: Sequence[ChangeMark]) -> dict[str, Any]:
    """Return the chip of close changes; its name has their numbers, for clicks."""
    numbers = [mark.number for mark in marks if mark.number is not None]
    text = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}" if numbers else ""
    text += RESUMED if len(numbers) < len(marks) else ""
    return {
        "name": "changes " + " ".join(map(str, numbers)),
        "x": sum(mark.at for mark in marks) / len(marks),
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
