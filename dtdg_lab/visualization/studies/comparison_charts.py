"""Charts of several runs: losses against one target, where the energy went, and losses against energy per epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log10
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np

from dtdg_lab.config.catalogue import loss_name
from dtdg_lab.core.units import join_words
from dtdg_lab.energy.phases import STALL
from dtdg_lab.energy.total import MEASURED
from dtdg_lab.records.rows import Array
from dtdg_lab.visualization.axes import NAMES, byte_unit, log_axis
from dtdg_lab.visualization.chart import NOTHING_YET, SECONDS_TITLE, STEPS_TITLE, Figure, card
from dtdg_lab.visualization.numbers import joules_text, percent_text, three_digits
from dtdg_lab.visualization.palette import BASELINE_COLOUR, MARK_COLOUR
from dtdg_lab.visualization.runs.curves import bytes_at, joules_at, judged_split
from dtdg_lab.visualization.runs.energy import KILO, UNKNOWN_NOTE, energy_total, joules_by_phase, phase_bars
from dtdg_lab.visualization.runs.step_time import merge_small
from dtdg_lab.visualization.studies.comparison import ComparedRun, ComparedRuns, Spending, target_text
from dtdg_lab.visualization.thinning import shown_indices
from dtdg_lab.visualization.traces import Attributes, label, line, points, rule

OVER: Mapping[Spending, str] = MappingProxyType(
    {"seconds": "time", "joules": "energy", "bytes": "bytes sent", "steps": "steps"}
)
LOSSES = {"validation": "Validation loss", "train": "Training loss"}
REACHED = "{arrived} of {count} runs reached {target}, three evaluations in a row."
LARGEST = "{phase} takes its largest share in {run}: {share}."
LARGEST_OF_ONE = "{phase} takes {share} of the energy, the largest share beside computing."
LOWEST = "{lowest} has the lowest loss; {least} uses the least energy per epoch."
OF_ONE = "{run} has a lowest loss of {loss} and uses {joules} per epoch."
LOWEST_AND_LEAST = "{lowest} has the lowest loss and uses the least energy per epoch."
UNKNOWN_ENERGY = "Energy per epoch is not known for any of these runs."
ALONE = "{run} reached {target}, three evaluations in a row."
ALONE_ABOVE = "{run} has not reached {target}, three evaluations in a row."
NOT_RECORDED = "These runs didn't record it"
NOT_EVALUATED = "Appears with the first evaluation"
SMOOTH = 5  # evaluations of a median
LINE_POINTS = 500
FITTED = 0.95  # of the losses that the axis fits
HEIGHT, ROW_HEIGHT, TRADE_HEIGHT = 330, 27, 220  # pixels
TOP, BOTTOM = 18, 34  # margins
VEIL = "rgba(255,255,255,0.75)"  # behind words on lines
NAME_GAP, LETTER = 16, 6.4  # pixels between names, and of a letter
NAME_LETTER = 7.8  # pixels of a letter of a name at the end of a line, in wide fonts
LONGEST_NAME, SHORT_NAME = 34, 26  # letters of a name beside a wide chart, and in a small one
TRADE_WIDTH = 420  # pixels of the plot, by which names are placed
TEXT_SHARE = 0.2  # of a bar in which its phase is written
COSTS: Mapping[str, str] = MappingProxyType(  # phases of a step beside computing
    {
        "communicate": "Communication",
        "wait": "Waiting for ranks",
        STALL: "Waiting for features",
        "transfer": "Fetching",
        "batch": "Preparing batches",
    }
)


@dataclass(frozen=True, slots=True)
class _Line:
    """The losses of a run as they are drawn."""

    run: ComparedRun
    x: Array
    y: Array


# Losses, and the target.


def loss_card(comparison: ComparedRuns, over: Spending = "seconds", *, is_smooth: bool = True) -> Figure:
    """Return the losses of the runs, with the target as a line that can be dragged, and stars where runs reached it.

    Args:
        comparison: the runs.
        over: what the x axis shows.
        is_smooth: medians of five evaluations, or every evaluation.
    """
    runs = (*comparison.runs, *comparison.excluded)
    lines = [curve for run in runs if (curve := _line(run, over, is_smooth=is_smooth)) is not None]
    judged = {judged_split(run.tables) for run in comparison.runs} or {"validation"}
    what = LOSSES[judged.pop()] if len(judged) == 1 else "Validation or training loss"
    unit = loss_name(comparison.runs[0].tables.config["task"]) if comparison.runs else ""
    unit += f", smoothed (median of {SMOOTH} evaluations)" if is_smooth and unit else ""
    end = max((float(curve.x[-1]) for curve in lines), default=0.0)
    factor, x_title = _scale(over, end)
    titles: Attributes = {"unit": unit, "x_title": x_title, "height": _height(len(lines))}
    title = f"{what} over {OVER[over]}"
    if not lines:
        has_losses = any(run.evaluations for run in runs)
        return card([], title, empty=NOT_RECORDED if has_losses else NOT_EVALUATED, **titles)
    end = 1.02 * end / factor or 1.0
    y_axis = _loss_axis(comparison, lines)
    data = [_trace(curve, factor, x_title) for curve in lines]
    stars = (_star(comparison, run, over, factor) for run in comparison.arrived)
    data += [star for star in stars if star is not None]
    layout: Attributes = {
        "xaxis": {"range": [0, end]},
        "yaxis": y_axis,
        "margin": {"t": TOP, "b": BOTTOM, "r": _names_width(lines)},
        "annotations": _names(lines, y_axis),
        "shapes": [],
    }
    _add_levels(layout, comparison, y_axis, end)
    return card(data, title, **titles, **layout)


def loss_caption(comparison: ComparedRuns) -> str:
    """Return how many runs reached the target."""
    if comparison.target is None:
        return NOTHING_YET
    arrived, count, target = len(comparison.arrived), len(comparison.runs), target_text(comparison)
    if count == 1:
        return (ALONE if arrived else ALONE_ABOVE).format(run=comparison.runs[0].name, target=target)
    return REACHED.format(arrived=arrived, count=count, target=target)


def _line(run: ComparedRun, over: Spending, *, is_smooth: bool) -> _Line | None:
    """Return the line of a run; None where it has none."""
    x = spent_at(run, over)
    if x is None or not len(x):
        return None
    losses = np.array([evaluation.loss for evaluation in run.evaluations], np.float64)
    if is_smooth:
        half = SMOOTH // 2
        losses = np.array(
            [median(losses[max(0, index - half) : index + half + 1].tolist()) for index in range(len(losses))]
        )
    indices = shown_indices(losses, LINE_POINTS)
    return _Line(run, x[indices], losses[indices])


def spent_at(run: ComparedRun, over: Spending) -> Array | None:
    """Return what a run had spent at each evaluation; None where it is unknown."""
    seconds = np.array([evaluation.seconds for evaluation in run.evaluations], np.float64)
    steps = np.array([evaluation.step for evaluation in run.evaluations], np.float64)
    if over == "joules":
        return joules_at(run.tables, seconds)
    if over == "bytes":
        return bytes_at(run.tables, seconds, steps)
    return seconds if over == "seconds" else steps


def _scale(over: Spending, end: float) -> tuple[float, str]:
    """Return the unit of the x axis as a factor, and the axis's title."""
    if over == "joules":
        return (1e3, "kJ of all ranks") if end >= KILO else (1.0, "J of all ranks")
    if over == "bytes":
        unit, factor = byte_unit(end)
        return factor, f"{unit} sent by all ranks"
    return 1.0, SECONDS_TITLE if over == "seconds" else STEPS_TITLE


def _loss_axis(comparison: ComparedRuns, lines: Sequence[_Line]) -> Attributes:
    """Return an axis that fits the target, the ends of lines and most losses, but not the first spike."""
    values = np.concatenate([curve.y for curve in lines])
    ends = [float(curve.y[-1]) for curve in lines]
    levels = [level for level in (comparison.target, comparison.persistence) if level is not None]
    low, high = min([*values.tolist(), *levels]), max([float(np.quantile(values, FITTED)), *ends, *levels])
    if low <= 0:
        return {"type": "linear", "range": [min(0.0, low), 1.1 * high or 1.0], "nticks": 5}
    return log_axis(0.9 * low, 1.1 * high)


def _place(value: float, y_axis: Mapping[str, Any]) -> float:
    """Return a loss as a place on the axis."""
    return log10(value) if y_axis["type"] == "log" else value


def _trace(curve: _Line, factor: float, x_title: str) -> Attributes:
    x = (curve.x / factor).round(4).tolist()
    name = curve.run.name
    hover = f"{name}: %{{y:.4~g}} at %{{x:.4~g}} {x_title.split(maxsplit=1)[0]}<extra></extra>"
    style: Attributes = {"width": 1.2, "dash": "dot"} if curve.run.reason else {"width": 2.2}
    return line(name, x, curve.y.tolist(), curve.run.colour, hover, **style)


def _star(comparison: ComparedRuns, run: ComparedRun, over: Spending, factor: float) -> Attributes | None:
    """Return the star where a run reached the target; None where its place is unknown."""
    spent = run.spent(over)
    if spent is None:
        return None
    marker = {"symbol": "star", "line": {"color": "#FFFFFF", "width": 1}}
    hover = f"{run.name} reached {three_digits(comparison.target)}<extra></extra>"
    return points(run.name, [round(spent / factor, 4)], [comparison.target], run.colour, hover, size=13, marker=marker)


def _add_levels(layout: Attributes, comparison: ComparedRuns, y_axis: Mapping[str, Any], end: float) -> None:
    """Add target and persistence as named lines, the upper one named above, and the target's handle."""
    levels = [("persistence", comparison.persistence, BASELINE_COLOUR, "dot")]
    levels.append(("target", comparison.target, MARK_COLOUR, "dash"))
    known_levels = sorted((value, name, colour, dash) for name, value, colour, dash in levels if value is not None)
    for value, name, colour, dash in known_levels:
        layout["shapes"].append(rule(y=value, colour=colour, width=1.5, dash=dash))
        side = (
            "top"
            if len(known_levels) > 1 and value == known_levels[0][0] and known_levels[1][0] < 1.2 * value
            else "bottom"
        )
        placed: Attributes = {"xref": "paper", "xanchor": "right", "yanchor": side, "bgcolor": VEIL, "borderpad": 0}
        text = f"{name} {three_digits(value)}"
        layout["annotations"].append(label(text, 0.95, _place(value, y_axis), colour, **placed))
    if comparison.target is not None:
        low, high = y_axis["range"]
        layout["meta"] = {
            "handles": [
                {
                    "name": "target",
                    "along": "y",
                    "x": 0.98 * end,
                    "y": _place(comparison.target, y_axis),
                    "low": low,
                    "high": high,
                    "title": f"Target loss {three_digits(comparison.target)}",
                    "said": three_digits(comparison.target),
                }
            ]
        }


def target_of(position: float, figure: Figure) -> float:
    """Return the loss of a position of the target's handle."""
    return 10.0**position if figure["layout"]["yaxis"]["type"] == "log" else position


def _height(count: int) -> float:
    """Return pixels of a card whose names at the right have room."""
    return max(HEIGHT, TOP + BOTTOM + NAME_GAP * (count + 1))


def _shortened(name: str, letters: int = LONGEST_NAME) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1].rstrip(' ,')}…"


def _names_width(lines: Sequence[_Line]) -> float:
    return 34 + NAME_LETTER * max(len(_shortened(_end_name(curve.run))) for curve in lines)


def _end_name(run: ComparedRun) -> str:
    return f"{run.name}, {run.reason}" if run.reason else run.name


def _names(lines: Sequence[_Line], y_axis: Mapping[str, Any]) -> list[Attributes]:
    """Return the names at the ends of the lines, moved apart."""
    low, high = y_axis["range"]
    height = _height(len(lines)) - TOP - BOTTOM
    shares = [(_place(float(curve.y[-1]), y_axis) - low) / (high - low) for curve in lines]
    heights = [height * (1 - min(1.0, max(0.0, share))) for share in shares]
    placed: Attributes = {
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "middle",
        "xshift": 8,
        "size": 12,
    }
    return [
        label(
            f'<span style="color:{curve.run.colour}">●</span> {_shortened(_end_name(curve.run))}',
            1,
            1 - pixels / height,
            hovertext=_end_name(curve.run),
            **placed,
        )
        for curve, pixels in zip(lines, apart(heights, NAME_GAP, height), strict=True)
    ]


def apart(places: Sequence[float], gap: float, end: float) -> list[float]:
    """Return places from 0 to an end, moved so that they are at least a gap apart, in the same order."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    for previous, index in pairwise(order):
        moved[index] = max(moved[index], moved[previous] + gap)
    limit = end
    for index in reversed(order):
        moved[index] = min(moved[index], limit)
        limit = moved[index] - gap
    return moved


# Where the energy went.


def energy_card(comparison: ComparedRuns) -> Figure:
    """Return the shares of the joules by phase, a bar for each run."""
    title, shares = "Where the energy went", _phase_shares(comparison)
    sources = {source for run in comparison.runs for source in energy_total(run.tables).joules()}
    how = join_words(sorted({"measured" if source in MEASURED else source for source in sources}))
    unit = "share of the joules" + (f", {how}" if how else "")
    if not shares:
        return card([], title, unit=unit, empty=UNKNOWN_NOTE)
    shares = merge_small(shares)
    percents = {run: {phase: 100 * share for phase, share in of_run.items()} for run, of_run in shares.items()}
    data, keys = phase_bars(percents, "%", digits=2, named_from=100 * TEXT_SHARE)
    ticks = {"range": [0, 100], "tickvals": [0, 50, 100], "ticktext": ["0%", "50%", "100%"]}
    height = 44 + ROW_HEIGHT * len(shares)
    names = {"tickvals": list(shares), "ticktext": [_shortened(name, SHORT_NAME) for name in shares]}
    axes: Attributes = {
        "xaxis": ticks,
        "yaxis": {**NAMES, **names},
        "barmode": "stack",
        "bargap": 0.24,
        "uniformtext": {"minsize": 10, "mode": "hide"},
        "height": height,
    }
    return card(data, title, unit=unit, keys=keys, **axes)


def energy_caption(comparison: ComparedRuns) -> str:
    """Return the largest share, beside computing, that a phase takes in any run."""
    shares = _phase_shares(comparison)
    costs = [(of_run.get(phase, 0.0), run, phase) for run, of_run in shares.items() for phase in COSTS]
    if not any(share for share, _, _ in costs):
        return NOTHING_YET
    share, run, phase = max(costs)
    template = LARGEST if len(shares) > 1 else LARGEST_OF_ONE
    return template.format(phase=COSTS[phase], run=run, share=percent_text(share))


def _phase_shares(comparison: ComparedRuns) -> dict[str, dict[str, float]]:
    """Return run -> phase -> its share of the joules; runs without joules by phase are left out."""
    shares = {}
    for run in comparison.runs:
        joules = sum(joules_by_phase(run.tables).values(), Counter[str]())
        if joules:
            shares[run.name] = {phase: value / joules.total() for phase, value in joules.items()}
    return shares


# Lowest losses against energy.


def trade_card(comparison: ComparedRuns) -> Figure:
    """Return the lowest loss of each run over its joules per epoch."""
    title, unit = "Loss against energy", "lowest loss"
    runs = _with_energy(comparison)
    style: Attributes = {"unit": unit, "x_title": "joules per epoch", "height": TRADE_HEIGHT}
    if not runs:
        return card([], title, empty=UNKNOWN_NOTE, **style)
    joules, losses = zip(*runs.values(), strict=True)
    x_axis = log_axis(0.5 * min(joules), 2 * max(joules))
    room = 0.25 * (max(losses) - min(losses)) or 0.25 * max(losses)
    low, high = min(losses) - room, max(losses) + room
    data: list[Attributes] = []
    boxes: list[Box] = []
    (left, right), height = x_axis["range"], TRADE_HEIGHT - TOP - BOTTOM
    pixels = [
        (TRADE_WIDTH * (log10(spent) - left) / (right - left), height * (high - loss) / (high - low))
        for spent, loss in runs.values()
    ]
    for (run, (spent, loss)), pixel in zip(runs.items(), pixels, strict=True):
        name = _shortened(run.name, SHORT_NAME)
        side, box = _free_side(pixel, name, [*boxes, *(_dot(candidate) for candidate in pixels if candidate != pixel)])
        boxes.append(box)
        text: Attributes = {"text": [f" {name} "], "textposition": side, "cliponaxis": False}
        hover = f"{run.name}: %{{x:.3~g}} J per epoch, loss %{{y:.3~g}}<extra></extra>"
        dot = points(run.name, [spent], [loss], run.colour, hover, size=11, **text)
        data.append({**dot, "mode": "markers+text"})
    return card(data, title, **style, xaxis=x_axis, yaxis={"range": [low, high], "nticks": 4})


def trade_caption(comparison: ComparedRuns) -> str:
    """Return which run has the lowest loss, and which uses the least energy."""
    runs = _with_energy(comparison)
    if not runs:
        has_ended = any(run.tables.complete_epoch is not None for run in comparison.runs)
        return UNKNOWN_ENERGY if has_ended else NOTHING_YET
    if len(runs) == 1:
        ((run, (joules, loss)),) = runs.items()
        return OF_ONE.format(run=run.name, loss=three_digits(loss), joules=joules_text(joules))
    lowest, cheapest = min(runs, key=lambda run: runs[run][1]), min(runs, key=lambda run: runs[run][0])
    template = LOWEST_AND_LEAST if lowest is cheapest else LOWEST
    return template.format(lowest=lowest.name, least=cheapest.name)


def _with_energy(comparison: ComparedRuns) -> dict[ComparedRun, tuple[float, float]]:
    """Return joules per epoch and lowest loss of the runs where both are known."""
    values = {run: (run.joules_per_epoch, run.lowest) for run in comparison.runs}
    return {run: (joules, loss) for run, (joules, loss) in values.items() if joules and loss is not None}


Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


def _free_side(pixel: tuple[float, float], name: str, obstacles: Sequence[Box]) -> tuple[str, Box]:
    """Return the side of a point at which its name covers least, and the room it takes."""
    x, y = pixel
    width = LETTER * (len(name) + 2)
    sides: dict[str, Box] = {
        "middle right": (x + 6, y - 7, x + 6 + width, y + 7),
        "middle left": (x - 6 - width, y - 7, x - 6, y + 7),
        "top center": (x - width / 2, y - 22, x + width / 2, y - 8),
        "bottom center": (x - width / 2, y + 8, x + width / 2, y + 22),
    }
    side = min(sides, key=lambda name: _covered(sides[name], obstacles))
    return side, sides[side]


def _covered(box: Box, obstacles: Sequence[Box]) -> float:
    """Return how much of a box is outside the plot or covers others, in pixels squared."""
    inside = _overlap(box, (0, 0, TRADE_WIDTH, TRADE_HEIGHT - TOP - BOTTOM))
    return (box[2] - box[0]) * (box[3] - box[1]) - inside + sum(_overlap(box, obstacle) for obstacle in obstacles)


def _overlap(first: Box, second: Box) -> float:
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(0.0, width) * max(0.0, height)


def _dot(pixel: tuple[float, float]) -> Box:
    x, y = pixel
    return x - 6, y - 6, x + 6, y + 6
