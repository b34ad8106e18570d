"""Chart: a pure function from a run's tables to a figure and a caption, with what a page has to know about it."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.palette import BASELINE_COLOUR, GRID_COLOUR, TEXT_COLOUR

Figure = dict[str, Any]  # of plotly: data and layout
CaptionedFigure = tuple[Figure, str]
XAxis = Literal["steps", "seconds"]
Section = Literal["picture", "common", "supporting", "folded"]
SECTIONS: tuple[Section, ...] = ("picture", "common", "supporting", "folded")  # in the order of the page
Mark = Literal["line", "dash", "dot", "ring", "box", "hatch", "cross", "star", "diamond", "open-diamond", "triangle"]
Key = tuple[str, str, Mark]  # label, colour, mark
MARKS: Mapping[str, Mark] = MappingProxyType(  # symbol of plotly -> mark
    {
        "circle-open": "ring",
        "square": "box",
        "diamond": "diamond",
        "diamond-open": "open-diamond",
        "triangle-down": "triangle",
        "triangle-up": "triangle",
        "x": "cross",
        "cross": "cross",
        "star": "star",
        "star-open": "star",
        "line-ns-open": "line",
        "line-ew-open": "line",
    }
)
TRANSPARENT = "rgba(0,0,0,0)"

STEPS_TITLE = "step"
SECONDS_TITLE = "seconds of training"
NOTHING_YET = "Nothing measured yet."  # caption of a chart without data
APPEARS = "Appears "  # begins the words of a plot that will have data later
FIRST_STEP, FIRST_EPOCH, FIRST_SECOND = (
    f"{APPEARS}{when}" for when in ("with the first step", "with the first epoch", "after a second")
)
NOT_RECORDED = "This run didn't record it"
NOTHING_MEASURED = "Nothing was measured."  # caption of a chart that will never have data


@dataclass(frozen=True, slots=True)
class ChartOptions:
    """Choices of a viewer.

    Attributes:
        x: axis of curves over time.
        whole_run: the whole run, where a chart shows the newest steps otherwise.
        linear: a linear axis of losses, not a logarithmic one.
        metric: of evaluations, in place of the loss; empty for the loss.
        preview: settings that are proposed now, such as one whose handle is dragged.
        step: at which a picture stays while settings are proposed; None for the newest.
        answers: to questions that were asked, by the names of these.
        ended: whether the run is over; one that failed has not recorded that.
    """

    x: XAxis = "steps"
    whole_run: bool = False
    linear: bool = False
    metric: str = ""
    preview: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    step: int | None = None
    answers: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about a run that a button asks, and whose answer takes seconds.

    Attributes:
        name: of its answer among those of :class:`ChartOptions`.
        label: of its button.
        help: what the answer costs.
        prepare: tables of the run, tables of other runs -> what is asked; quick, while no rows are added.
        answer: what is asked -> what charts draw; to be called in a thread of its own.
    """

    name: str
    label: str
    help: str
    prepare: Callable[[RunTables, Sequence[RunTables]], Any]
    answer: Callable[[Any], Any]


def always(tables: RunTables) -> bool:
    """Return True: every run has this chart."""
    return True


def _no_metrics(tables: RunTables) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chart:
    """One chart by its name.

    Attributes:
        name: unique among the charts of a system, in snake case.
        title: as in lists of charts.
        figure: tables, options -> plotly dictionary, made by :func:`card`.
        caption: tables, options -> one sentence of at most 20 words that says what is seen now.
        section: ``picture``, the large one of a system; ``common`` to all runs; ``supporting``; or ``folded``.
        applies: whether a run can have it, by its system; true before it has data.
        rollups: sums that it needs of rows of the whole run.
        help: how to read it, in a sentence or two.
        toggles: which of the options ``x``, ``whole_run`` and ``linear`` a viewer can change.
        metrics: which values of the option ``metric`` a viewer can choose now, with their names.
        question: whose answer it draws, once it was asked; charts may share one.
    """

    name: str
    title: str
    figure: Callable[[RunTables, ChartOptions], Figure]
    caption: Callable[[RunTables, ChartOptions], str]
    section: Section
    applies: Callable[[RunTables], bool] = always
    rollups: tuple[Rollup, ...] = ()
    help: str = ""
    toggles: tuple[Literal["x", "whole_run", "linear"], ...] = ()
    metrics: Callable[[RunTables], Mapping[str, str]] = _no_metrics
    question: Question | None = None


def card(
    data: Sequence[dict[str, Any]],
    title: str,
    *,
    unit: str = "",
    keys: Sequence[Key] = (),
    x_title: str = "",
    empty: str = FIRST_STEP,
    **changes: Any,
) -> Figure:
    """Return a figure whose title, unit and colour keys are words beside it, not parts of the plot.

    Args:
        data: plotly traces; where there are none, the plot says ``empty``.
        title: of the card.
        unit: of the y axis, which has no title of its own.
        keys: colours by their meaning.
        x_title: under the x axis.
        empty: when the chart will fill, such as ``FIRST_EPOCH``.
        changes: entries of the layout; those of ``xaxis``, ``yaxis`` and ``margin`` are added to the usual ones.
    """
    axis = {"gridcolor": GRID_COLOUR, "zeroline": False, "automargin": True, "tickfont": {"size": 11}, "tickangle": 0}
    under = {"title": {"text": x_title, "standoff": 4, "font": {"size": 11, "color": TEXT_COLOUR}}} if x_title else {}
    layout: dict[str, Any] = {
        "font": {"family": 'system-ui, "Segoe UI", Roboto, Arial, sans-serif', "size": 11, "color": TEXT_COLOUR},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "showlegend": False,
        "uirevision": "dtdg-lab",  # constant: what was zoomed stays so
        "shapes": [],
        "annotations": [],
        **changes,
        "xaxis": {**axis, **under, **changes.get("xaxis", {})},
        "yaxis": {**axis, **changes.get("yaxis", {})},
        "margin": {"l": 44, "r": 12, "t": 18, "b": 34 if x_title else 22, **changes.get("margin", {})},
    }
    card_texts = {"title": title, "unit": unit, "keys": [list(key) for key in keys]}
    layout["meta"] = {**changes.get("meta", {}), "card": card_texts}
    return {"data": list(data), "layout": layout if data else _with_note(layout, empty)}


def _with_note(layout: dict[str, Any], note: str) -> dict[str, Any]:
    """Return the layout of an empty chart: its axes without numbers, and a note in the middle."""
    centre = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    text = {"text": note, **centre, "font": {"size": 12.5, "color": "#5B6470"}}
    bare = {"range": [0, 1], "showticklabels": False, "type": "linear"}
    axes = {name: {**layout[name], **bare} for name in ("xaxis", "yaxis")}
    # another revision: else the next run's axes would keep what was zoomed to, or fixed here, in the last one
    return {**layout, **axes, "annotations": [*layout["annotations"], text], "uirevision": "waiting"}


def trace_keys(traces: Iterable[Mapping[str, Any]]) -> list[Key]:
    """Return a colour key for each name of the traces, without those that have ``showlegend=False``."""
    keys: dict[str, Key] = {}
    for trace in traces:
        if trace["name"] and trace.get("showlegend", True):
            keys.setdefault(trace["name"], (html.unescape(trace["name"]), *_look(trace)))
    return list(keys.values())


def _look(trace: Mapping[str, Any]) -> tuple[str, Mark]:
    """Return the colour of a trace and its mark."""
    if "lines" in trace.get("mode", ""):
        stroke = trace["line"]
        return stroke.get("color", BASELINE_COLOUR), "line" if stroke.get("dash", "solid") == "solid" else "dash"
    marker = trace.get("marker", {})
    colour = _first(marker.get("color", BASELINE_COLOUR))
    if trace["type"] == "bar":
        outline = marker.get("line", {}).get("color", colour)
        return (outline if colour == TRANSPARENT else colour), "hatch" if "pattern" in marker else "box"
    return colour, MARKS.get(_first(marker.get("symbol", "circle")), "dot")


def _first(value: str | Sequence[str]) -> str:
    """Return the value of all points, or of the first."""
    return value if isinstance(value, str) else value[0]


def title_of(figure: Figure) -> str:
    """Return the title of a card, or of a figure that has it in its plot."""
    layout = figure["layout"]
    texts = layout.get("meta", {}).get("card") or layout.get("title") or {}
    return str(texts.get("title", texts.get("text", "")))
