"""Windows over steps: where they were in time, how many rows they had, what cutting them out cost, and the phases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from dtdg_lab.core.records import PHASES
from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.batch_log import BatchStep
from dtdg_lab.views.layout import Figure, frame, join_words, percent, share, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import BASELINE_COLOUR, PHASE_COLOURS, series_colour
from dtdg_lab.views.partition_maps import SNAPSHOT
from dtdg_lab.views.trapezoid_facts import TrapezoidFacts
from dtdg_lab.views.trapezoid_shape import DECAYED, FULL

Panel = tuple[Figure, str]
NO_BATCH = "no step has told its batch yet"
RECENT = 50  # steps that sentences are means of
_ROWS = 40  # steps that the map of windows has
_BARS = 80  # steps that the phases are drawn of
_NAMED = 0.005  # share of the time from which a phase has a place in the legend
_TOP = 0.9  # of the scale of colours up to which a share of chunks is drawn; what is full is above
_KEPT_SCALE = [[0.0, "#FBEBCB"], [0.2, "#F3C25F"], [_TOP, "#A86F00"], [_TOP, FULL], [1.0, FULL]]


def batch_panels(
    steps: Sequence[BatchStep], facts: TrapezoidFacts, marks: Marks, *, since: int = 0
) -> dict[str, Panel]:
    """``windows``, ``rows``, ``phases`` and ``shrinking``, by the steps that are complete.

    Args:
        steps: from :meth:`BatchLog.steps`.
        facts: of the run as it is now.
        marks: of the run's changes.
        since: from this step on it is so.
    """
    now = [each for each in steps if each.batch.step >= since]
    return {
        "windows": (_windows_figure(steps[-_ROWS:], facts), _windows_words(steps[-_ROWS:])),
        "rows": (_rows_figure(steps, facts, marks), _rows_words(now, facts)),
        "phases": (_phases_figure(steps[-_BARS:], marks), _phases_words(now)),
        "shrinking": (_shrinking_figure(steps, marks), shrinking_words(now)),
    }


def shrinking_words(steps: Sequence[BatchStep]) -> str:
    """What cutting out decayed snapshots takes of a step, in a sentence."""
    recent = steps[-RECENT:]
    whole = sum(each.time_s for each in recent)
    if not whole:
        return "Decayed snapshots are prefixes of one order of vertices, so that cutting them out costs little."
    cut = sum(each.shrink_s for each in recent)
    if not cut:
        return "Nothing is cut out: all snapshots are full."
    each = format_seconds(cut / len(recent))
    return (
        f"{_over(recent).capitalize()} cutting out the edges of decayed snapshots took a rank {each}, "
        f"{share(cut / whole)} of the step: each is a prefix of one order of vertices, which an epoch makes once."
    )


def _windows_figure(steps: Sequence[BatchStep], facts: TrapezoidFacts) -> Figure:
    """Steps up, snapshots across: decayed ones pale, full ones dark, as a band that climbs to the right."""
    layout = frame(f"Windows of the last {len(steps)} steps" if steps else "Windows of steps", SNAPSHOT, "step")
    if not steps:
        return {"data": [], "layout": with_note(layout, NO_BATCH)}
    batches = [each.batch for each in steps]
    low, high = min(each.first for each in batches), max(each.target for each in batches)
    z: list[list[float | None]] = []
    said: list[list[str]] = []
    for each in batches:
        kept = dict(enumerate(each.chunks(facts.chunks), each.first))
        level = {at: 1.0 if at > each.target - each.full else _TOP * kept[at] / facts.chunks for at in kept}
        z.append([round(level[at], 4) if at in kept else None for at in range(low, high + 1)])
        said.append([f"{kept[at]:,} of {facts.chunks:,} chunks" if at in kept else "" for at in range(low, high + 1)])
    trace: dict[str, Any] = {
        "type": "heatmap", "name": "chunks", "z": z, "x": list(range(low, high + 1)),
        "y": [each.step for each in batches], "zmin": 0, "zmax": 1, "colorscale": _KEPT_SCALE, "xgap": 0.5, "ygap": 0.5,
        "customdata": said, "hovertemplate": "step %{y}, snapshot %{x}: %{customdata}<extra></extra>",
        "hoverongaps": False,
        "colorbar": {
            "title": {"text": "share of chunks", "side": "right", "font": {"size": 10}}, "thickness": 9,
            "outlinewidth": 0.5, "tickfont": {"size": 10}, "tickvals": [0, _TOP / 2, (1 + _TOP) / 2],
            "ticktext": ["none", "half", "full"],
        },
    }  # fmt: skip
    layout["xaxis"] |= {"range": [low - 0.5, high + 0.5], "showgrid": False, "tickformat": "d"}
    layout["yaxis"] |= {"range": [batches[0].step - 0.5, batches[-1].step + 0.5], "showgrid": False, "tickformat": "d"}
    return {"data": [trace], "layout": layout}


def _windows_words(steps: Sequence[BatchStep]) -> str:
    if not steps:
        return "A row for each step, a column for each snapshot: the window climbs through time."
    batches = [each.batch for each in steps]
    # segments of an epoch come later ones first
    starts = sum(two.epoch != one.epoch or two.target < one.target for one, two in pairwise(batches))
    text = "The window climbs through time, a snapshot a step; the newest are full (blue), the older the fainter."
    if starts:
        text += f" It jumped {starts} time{'s' * (starts > 1)}: to a segment that begins with state zero."
    return f"{text} Each epoch cuts the training part anew, and trains the later segment first."


def _rows_figure(steps: Sequence[BatchStep], facts: TrapezoidFacts, marks: Marks) -> Figure:
    batches = [each.batch for each in steps]
    layout = frame(
        "Rows of a batch", "step (model updates)", "vertices x snapshots, all ranks", yaxis={"rangemode": "tozero"},
        **marks.over_steps([each.step for each in batches]),
    )  # fmt: skip
    full = [facts.nodes * (each.target - each.first + 1) for each in batches]
    lines = (
        ("in the batch", [each.rows for each in batches], DECAYED, "solid"),
        ("the same snapshots, all full", full, BASELINE_COLOUR, "dot"),
    )
    data = [_line(_numbers(steps), list(y), name, {"color": colour, "width": 2, "dash": dash}, "%{y:,}")
            for name, y, colour, dash in lines]  # fmt: skip
    return {"data": data if steps else [], "layout": layout if steps else with_note(layout, NO_BATCH)}


def _rows_words(steps: Sequence[BatchStep], facts: TrapezoidFacts) -> str:
    text = f"A whole window keeps {share(facts.kept())} of the rows of {facts.window} full snapshots."
    recent = steps[-RECENT:]
    if not recent:
        return text
    had = sum(each.batch.rows or 0 for each in recent)
    full = sum(facts.nodes * (each.batch.target - each.batch.first + 1) for each in recent)
    return (
        f"{text} {_over(recent).capitalize()} batches had {share(had / full)}: at a segment's start windows are short, "
        "and full snapshots weigh more."
    )


def _phases_figure(steps: Sequence[BatchStep], marks: Marks) -> Figure:
    layout = frame(
        f"Phases of the last {len(steps)} steps" if steps else "Phases of steps", "step (model updates)",
        "mean of the ranks (ms)", barmode="stack", bargap=0, yaxis={"rangemode": "tozero"},
        **marks.over_steps(_numbers(steps)),
    )  # fmt: skip
    whole = sum(each.time_s for each in steps)
    data: list[dict[str, Any]] = [
        {
            "type": "bar", "name": phase, "x": _numbers(steps),
            "y": [round(1e3 * each.phase_s[phase], 4) for each in steps],
            "marker": {"color": PHASE_COLOURS[phase], "line": {"width": 0}},
            "hovertemplate": "step %{x}: %{y:.3~g} ms<extra>" + phase + "</extra>",
        }
        for phase in PHASES if whole and sum(each.phase_s[phase] for each in steps) >= _NAMED * whole
    ]  # fmt: skip
    return {"data": data, "layout": layout if data else with_note(layout, NO_BATCH)}


def _phases_words(steps: Sequence[BatchStep]) -> str:
    recent = steps[-RECENT:]
    whole = sum(each.time_s for each in recent)
    if not whole:
        return "What a step of a rank spends its time on, step by step."
    shares = {phase: sum(each.phase_s[phase] for each in recent) / whole for phase in PHASES}
    most = sorted((phase for phase in PHASES if shares[phase] >= 0.05), key=lambda phase: -shares[phase])[:3]
    told = [f"{phase} {percent(shares[phase])}" for phase in most]
    mean = format_seconds(whole / len(recent))
    return f"{_over(recent).capitalize()} a step took {mean}, the mean of the ranks: {join_words(told)}."


def _shrinking_figure(steps: Sequence[BatchStep], marks: Marks) -> Figure:
    layout = frame(
        "Cutting out decayed snapshots", "step (model updates)", "share of the step (%)",
        yaxis={"rangemode": "tozero"}, **marks.over_steps(_numbers(steps)),
    )  # fmt: skip
    shares = [round(100 * each.shrink_s / each.time_s, 3) if each.time_s else None for each in steps]
    line = {"color": series_colour(0), "width": 1.5}
    data = [_line(_numbers(steps), shares, "share of the step", line, "%{y:.2~f} %")]
    return {"data": data if steps else [], "layout": layout if steps else with_note(layout, NO_BATCH)}


def _line(x: list[int], y: list[Any], name: str, line: dict[str, Any], value: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines" if len(x) > 1 else "markers", "name": name, "x": x, "y": y, "line": line,
        "marker": {"color": line["color"]}, "hovertemplate": "step %{x}: " + value + "<extra>" + name + "</extra>",
    }  # fmt: skip


def _numbers(steps: Sequence[BatchStep]) -> list[int]:
    return [each.batch.step for each in steps]


def _over(steps: Sequence[BatchStep]) -> str:
    return f"in the last {len(steps)} steps" if len(steps) > 1 else f"in step {steps[0].batch.step}"
