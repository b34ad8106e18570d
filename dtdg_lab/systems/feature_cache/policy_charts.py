"""Charts of cache policies: action values, regret, and model against measurement."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.units import format_joules
from dtdg_lab.network.patterns import LinkState
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.charts import CongestionLog, estimates_panel
from dtdg_lab.systems.feature_cache.log import CacheChoice
from dtdg_lab.systems.feature_cache.policies.simulator import CacheEpisode
from dtdg_lab.visualization.charts import (
    FROM_ZERO,
    Drawn,
    Panel,
    box,
    chart,
    colour_bar,
    heat,
    label,
    line,
    named_axis,
    points,
)
from dtdg_lab.visualization.layout import Figure, grid, join_words, percent
from dtdg_lab.visualization.palette import HEAT_SCALES, MARK_COLOUR, TEXT_COLOUR, WARNING_COLOUR, series_colour

if TYPE_CHECKING:
    from dtdg_lab.systems.feature_cache.policies.calibration import CellError


# Step times of a model beside measured ones: errors as a map, curves with squares (Figure 8 of GreenDyGNN).
#
# Rows are mappings: ``condition``, ``window``, ``measured_ms`` and ``predicted_ms``; ``dataset`` where there are
# several; ``held_out`` where the model had not seen the measurement.


Without = Literal["", "cell", "condition"]
Row = Mapping[str, Any]
Curves = Mapping[str, Sequence[tuple[int, float]]]  # condition -> (window, predicted ms)
NOTHING = "nothing was measured yet"
_W = "W (steps between rebuilds)"
_WRITTEN = 120  # cells up to which each has its number
_DARK = 0.6
_LEAST_TOP = 5.0  # percent of the darkest colour, at least
_SCALE = ((0.0, "#2166AC"), (0.5, "#FFFFFF"), (1.0, "#B2182B"))
Cells = Sequence[Sequence[float | None]]
_SAID, _MORE = "%{customdata}<extra></extra>", "%{customdata}, %{z:+.2f} %<extra></extra>"


def _map_axes(columns: Sequence[Any], rows: Sequence[str]) -> dict[str, Any]:
    return {"xaxis": named_axis(columns), "yaxis": named_axis(rows, down=True)}


def _signed_map(
    title: str, percents: Cells, words: Sequence[Sequence[str]], *, top: float, unit: str, hover: str = _SAID
) -> Drawn:
    """A map of percentages: white at 0, red above, blue below."""
    shown = [[None if each is None else round(each, 3) for each in row] for row in percents]
    bar = colour_bar(unit, tickformat=".3~g")
    looks = {"colorbar": bar, "xgap": 1, "ygap": 1, "hoverongaps": False, "customdata": words}
    columns, rows = range(len(percents[0])), range(len(percents))
    return heat(title, shown, columns, rows, _SCALE, span=(-top, top), hover=hover, **looks)


def _written_in(cells: Cells, form: str, is_dark: Callable[[float], bool]) -> list[Drawn]:
    """The numbers of a map's cells."""
    return [
        label(format(value + 0.0, form), column, row, "white" if is_dark(value) else TEXT_COLOUR, 9)
        for row, values in enumerate(cells)
        for column, value in enumerate(values)
        if value is not None
    ]


def error_rows(errors: Sequence[CellError], *, without: Without = "") -> list[dict[str, Any]]:
    """What ``Calibration.errors()`` gives, as rows.

    Args:
        errors: one for each cell.
        without: what the model had not seen of a cell that it predicts: nothing; the ``cell``; or its ``condition``,
            where cells without such a prediction are left out.
    """
    column = f"{without}_out_ms" if without else "predicted_ms"
    rows: list[dict[str, Any]] = [
        {
            "dataset": each.dataset,
            "condition": each.condition,
            "window": each.window,
            "measured_ms": each.measured_ms,
            "predicted_ms": float(getattr(each, column)),
            "held_out": bool(without),
        }
        for each in errors
    ]
    return [row for row in rows if not math.isnan(row["predicted_ms"])]


def model_figure(rows: Sequence[Row], *, title: str = "Model against measurement") -> Figure:
    """Map and curves of every data set."""
    panels = []
    for dataset in list(dict.fromkeys(str(row.get("dataset", "")) for row in rows)) or [""]:
        panels += list(model_panels([row for row in rows if str(row.get("dataset", "")) == dataset]).values())
    return grid(panels, title=title)


def model_panels(rows: Sequence[Row], curves: Curves | None = None) -> dict[str, Panel]:
    """``errors``: a map, windows across and conditions down; ``curves``: predicted lines, measured squares.

    Args:
        rows: see the module; of one data set.
        curves: condition -> (window, predicted ms), where lines shall go on between the measurements.
    """
    name = next((str(row["dataset"]) for row in rows if row.get("dataset")), "")
    of = f", {name}" if name else ""
    return {
        "errors": (_errors_figure(rows, f"Errors of the model{of}"), model_words(rows)),
        "curves": (_curves_figure(rows, curves or {}, f"Step time{of}"), _CURVES),
    }


_CURVES = "Squares were measured, lines are predicted; open squares the model had not seen."


def _error(row: Row) -> float:
    return float(row["predicted_ms"]) / float(row["measured_ms"]) - 1


def _conditions(rows: Sequence[Row]) -> list[str]:
    """In the order of their families, then of what stands in their names, as numbers."""

    def place(condition: str) -> tuple[str, float]:
        number = re.search(r"_(\d+(?:\.\d+)?)", condition)
        return condition.split("_", maxsplit=1)[0], float(number[1]) if number else 0.0

    found = dict.fromkeys(str(row["condition"]) for row in rows)
    return sorted(found, key=lambda each: (each != "clean", *place(each)))


def _errors_figure(rows: Sequence[Row], title: str) -> Figure:
    if not rows:
        return chart(title, _W, "", [], empty=NOTHING)
    conditions, windows = _conditions(rows), sorted({int(row["window"]) for row in rows})
    cells = {(str(row["condition"]), int(row["window"])): row for row in rows}
    found = [[cells.get((condition, window)) for window in windows] for condition in conditions]
    percents = [[None if row is None else 100 * _error(row) for row in each] for each in found]
    top = max(_LEAST_TOP, *(100 * abs(_error(row)) for row in rows))
    words = [["" if row is None else _cell_words(row) for row in each] for each in found]
    errors = _signed_map(title, percents, words, top=top, unit="error (%)")
    figure = chart(title, _W, "", [errors], **_map_axes(windows, conditions))
    if len(conditions) * len(windows) <= _WRITTEN:
        figure["layout"]["annotations"] = _written_in(percents, "+.1f", lambda value: abs(value) > _DARK * top)
    return figure


def _cell_words(row: Row) -> str:
    seen = " (not seen)" if row.get("held_out") else ""
    return (
        f"{row['condition']}, W {row['window']}: {float(row['predicted_ms']):.4g} ms predicted, "
        f"{float(row['measured_ms']):.4g} ms measured{seen}"
    )


def _curves_figure(rows: Sequence[Row], curves: Curves, title: str) -> Figure:
    data: list[Drawn] = []
    for index, condition in enumerate(_conditions(rows)):
        found = sorted((row for row in rows if row["condition"] == condition), key=lambda row: int(row["window"]))
        drawn = list(curves.get(condition, ())) or [(int(row["window"]), float(row["predicted_ms"])) for row in found]
        data += _condition_traces(condition, index, found, drawn)
    windows = sorted({int(row["window"]) for row in rows})
    logs = {"xaxis": {"type": "log", "tickvals": windows}, "yaxis": {"type": "log", "dtick": "D2"}} if rows else {}
    return chart(title, _W, "step (ms)", data, empty=NOTHING, showlegend=True, **logs)


def _condition_traces(
    condition: str, index: int, found: Sequence[Row], drawn: Sequence[tuple[int, float]]
) -> list[dict[str, Any]]:
    """A line and squares; a condition of one window has a dash with its name beside it: a legend would be too wide."""
    alone, colour = len(drawn) == 1, series_colour(index)
    beside = "middle right" if condition.startswith("c4") else "middle left"  # delays on one side, rates on the other
    name: Drawn = {"text": [f"  {condition}  "] * len(drawn), "textposition": beside}
    looks: Drawn = {"mode": "lines", "legendgroup": condition, "showlegend": not alone, "hoverinfo": "skip"}
    if alone:
        looks |= {"mode": "markers+text", **name, "textfont": {"size": 9, "color": colour}}
        looks["marker"] = {"color": colour, "symbol": "line-ew-open", "size": 14}
    predicted = [at for at, _ in drawn], [round(ms, 4) for _, ms in drawn]
    measured = [int(row["window"]) for row in found], [round(float(row["measured_ms"]), 4) for row in found]
    squares: Drawn = {"symbol": ["square-open" if row.get("held_out") else "square" for row in found]}
    said: Drawn = {"customdata": [_cell_words(row) for row in found], "legendgroup": condition, "showlegend": False}
    return [
        line(condition, *predicted, colour, **looks),
        points(condition, *measured, colour, "%{customdata}<extra></extra>", marker=squares, **said),
    ]


def model_words(rows: Sequence[Row]) -> str:
    """Mean and largest error, apart for what the model had not seen."""
    if not rows:
        return "How far predicted step times are from those that were measured, in percent of the latter."
    worst = max(rows, key=lambda row: abs(_error(row)))
    seen, kept = ([row for row in rows if bool(row.get("held_out")) is held] for held in (False, True))
    described = [
        f"{100 * fmean(abs(_error(row)) for row in each):.1f} % over {len(each)} {words}"
        for each, words in ((seen, "cells it was fitted to"), (kept, "it had not seen"))
        if each
    ]
    return (
        f"The mean error is {' and '.join(described)}; the largest, {100 * _error(worst):+.1f} %, "
        f"at {worst['condition']}, W {worst['window']}. Red: predicted too slow."
    )


# What a policy of the cache thinks each action is worth, what it chose, and what it missed against hindsight.


CLAIRVOYANT, FIXED, BEST = "clairvoyant", "fixed", "best fixed"
Choices = Mapping[tuple[int, ...], Sequence[CacheChoice]]
NO_DECISION, NO_VALUES = "nothing was decided yet", "this policy keeps no values"
_POINTS = 300
_ROWS = 10  # allocations up to which cells have their numbers written
_PALE = 0.12  # of the range: the worst action is not white, as a cell without a value is


def values_panel(choices: Choices) -> Panel:
    """The newest decision that has values: W across, allocations down; the action that was chosen is framed.

    Args:
        choices: by part, in order.
    """
    described = [choice for each in choices.values() for choice in each[-1:] if len(choice.values) >= len(WINDOWS)]
    title = "What each action is worth"
    if not described:
        return chart(title, _W, "", [], empty=NO_VALUES if choices else NO_DECISION), _VALUES
    newest = max(described, key=lambda choice: choice.step)
    rows = len(newest.values) // len(WINDOWS)
    names = ["even", *(f"most for part {owner}" for owner in _others(newest.part, rows))]
    cells = [list(newest.values[row * len(WINDOWS) : (row + 1) * len(WINDOWS)]) for row in range(rows)]
    known = [value for row in cells for value in row if value is not None]
    if not known:
        return chart(title, _W, "", [], empty=NO_VALUES), _VALUES
    low, high = min(known) + 0.0, max(known) + 0.0  # -0 becomes 0
    span = (high - low) or abs(low) or 1.0
    z = [[_short(value) for value in row] for row in cells]
    said = [[f"W {w}, {name}" for w in WINDOWS] for name in names]
    looks: Drawn = {"span": (_short(low - _PALE * span), _short(high)), "colorbar": colour_bar("value")}
    looks |= {"xgap": 2, "ygap": 2, "customdata": said, "hover": "%{customdata}: %{z:.4~g}<extra></extra>"}
    trace = heat("value", z, range(len(WINDOWS)), range(rows), HEAT_SCALES["owned"], **looks)
    title = f"What part {newest.part} thinks each action is worth"
    figure = chart(title, _W, "", [trace], **_map_axes(WINDOWS, names))
    row, column = divmod(newest.action, len(WINDOWS))
    edge = {"color": MARK_COLOUR if newest.greedy else WARNING_COLOUR, "width": 3}
    figure["layout"]["shapes"] = [box((column - 0.47, column + 0.47), (row - 0.47, row + 0.47), line=edge)]
    if rows <= _ROWS:
        dark = low + _DARK * ((high - low) or 1.0)
        figure["layout"]["annotations"] = _written_in(cells, ".3g", lambda value: value > dark)
    return figure, _values_words(newest, names, low, high)


_VALUES = "The larger, the better; the frame is what was chosen."


def _others(part: int, rows: int) -> list[int]:
    """The other parts in ascending order, for which there is an allocation each."""
    return [owner for owner in range(rows) if owner != part][: rows - 1]


def _values_words(choice: CacheChoice, names: Sequence[str], low: float, high: float) -> str:
    row, column = divmod(choice.action, len(WINDOWS))
    what = f"W {WINDOWS[column]}, {names[row] if row < len(names) else 'another allocation'}"
    drawn = "" if choice.greedy else " (drawn at random)"
    return (
        f"At step {choice.step} {choice.policy} chose {what}{drawn}; values reach from {low:.3g} to {high:.3g}. "
        f"{_VALUES} Little between two cells: either will do."
    )


def actions_panel(choices: Choices, congestion: CongestionLog) -> Panel:
    """W of every decision over steps, coloured by the owner that gets most of the cache; crosses were drawn.

    Args:
        choices: by part, in order.
        congestion: of the run.
    """
    shown = sorted((choice for each in choices.values() for choice in each[-_POINTS:]), key=lambda each: each.step)
    span = [shown[0].step, shown[-1].step] if shown else []
    data = []
    for biased in sorted({choice.biased for choice in shown}):
        found = [choice for choice in shown if choice.biased == biased]
        name, colour = "even" if biased < 0 else f"most for part {biased}", series_colour(7 if biased < 0 else biased)
        # parts decide at the same steps: a little apart, else one hides the others
        y = [_place(choice.window) + 0.09 * (choice.part % 4 - 1.5) for choice in found]
        marker = {"symbol": ["circle" if choice.greedy else "x-thin-open" for choice in found]}
        said = [f"part {choice.part}: W {choice.window}{'' if choice.greedy else ', drawn'}" for choice in found]
        looks: Drawn = {"size": 6, "marker": marker, "customdata": said}
        data.append(points(name, [choice.step for choice in found], y, colour, "step %{x}, %{customdata}", **looks))
    axis = {**named_axis(WINDOWS), "range": [-0.6, len(WINDOWS) - 0.4]}
    del axis["showgrid"]
    figure = congestion.chart("Decisions", _W, data, span, empty=NO_DECISION, yaxis=axis)
    return figure, _actions_words(shown) if shown else _ACTIONS


_ACTIONS = "Points that gather on one line: the policy has settled. Crosses were drawn at random."


def _place(window: int) -> float:
    """Where a W stands on an axis of the eight; others in between."""
    if window in WINDOWS:
        return float(WINDOWS.index(window))
    below = sum(each < window for each in WINDOWS)
    return below - 0.5


def _actions_words(shown: Sequence[CacheChoice]) -> str:
    counts = Counter((choice.window, choice.biased) for choice in shown)
    ((window, biased), most), *_ = counts.most_common(1)
    liked = "an even cache" if biased < 0 else f"most for part {biased}"
    drawn = sum(not choice.greedy for choice in shown)
    random = f" {percent(drawn / len(shown))} were drawn." if drawn else ""
    rewards = [choice.reward for choice in shown if choice.reward is not None]
    earned = f" The mean reward is {sum(rewards) / len(rewards):.3g}." if rewards else ""
    return (
        f"Of {len(shown):,} decisions {percent(most / len(shown))} were W {window} with {liked}.{random}{earned} "
        f"{_ACTIONS}"
    )


def regret_panel(regrets: Mapping[str, Sequence[float]], *, title: str = "") -> Panel:
    """Joules that policies spent beyond the clairvoyant optimum, summed up, over a simulated trace.

    Args:
        regrets: policy -> what it has spent beyond the optimum after each step (or epoch); the optimum's own is 0.
        title: of the picture, where it is not the usual one.
    """
    known = {name: each for name, each in regrets.items() if len(each)}
    data = []
    for index, (name, each) in enumerate(known.items()):
        stride = max(1, -(-len(each) // _POINTS))
        at = range((len(each) - 1) % stride, len(each), stride)
        y = [_short(float(each[place])) for place in at]
        hover = "step %{x}: %{y:.4~g} J"
        data.append(line(name, [place + 1 for place in at], y, series_colour(index), hover, mode="lines"))
    titles = (title or "Regret against the clairvoyant", "step of the trace", "joules beyond the optimum")
    figure = chart(*titles, data, empty="no policy was compared yet", showlegend=True, yaxis=FROM_ZERO)
    ends = sorted((float(each[-1]), name) for name, each in known.items())
    described = [f"{name} {format_joules(end)}" for end, name in ends]
    return figure, f"In the end: {join_words(described)}. {_REGRET}" if known else _REGRET


_REGRET = "Flat: as good as hindsight; steep: this is where it loses."


def _short(value: float | None) -> Any:
    return None if value is None else float(f"{value:.5g}")


# What policies of the cache spent beyond the clairvoyant on one simulated run, step by step.


Windows = Sequence[tuple[int, int]]  # first step, choice


def regret_lines(episode: CacheEpisode, windows: Mapping[str, Windows]) -> dict[str, list[float]]:
    """Joules beyond the clairvoyant's after each step, by policy; the clairvoyant itself is left out.

    A line may fall for a while: the optimum spends early what it saves later. At the end no line is below 0.

    Args:
        episode: what all of them met.
        windows: by policy, its windows in the episode; those of ``clairvoyant`` among them.

    Raises:
        ConfigError: the clairvoyant is missing.
    """
    if CLAIRVOYANT not in windows:
        raise ConfigError(
            f"regret of {', '.join(windows) or 'no policy'}: the windows of {CLAIRVOYANT} are needed too."
        )
    costs = episode.step_costs()
    spent = {name: np.cumsum(_per_step(costs, each)) for name, each in windows.items()}
    return {name: (each - spent[CLAIRVOYANT]).tolist() for name, each in spent.items() if name != CLAIRVOYANT}


def _per_step(costs: NDArray[np.float64], windows: Windows) -> NDArray[np.float64]:
    """(steps,) joules of each step, of (choices, steps) of all choices."""
    steps = costs.shape[1]
    found = np.empty(steps)
    for (first, choice), (end, _) in pairwise([*windows, (steps, 0)]):
        found[first:end] = costs[choice, first:end]
    return found


# Cache windows chosen manually on a simulated run: choices, observed delays, and cost so far.


BY_HAND = "manual"
_ASKER = 0  # the part that decides, in the simulator


@dataclass(frozen=True, slots=True)
class Move:
    """One choice.

    Attributes:
        first: step that it holds from.
        window: W.
        preferred: part that gets most of the cache; None for none.
        heard_at: step of the boundary where it was chosen.
        late_ms: delay observed there of each other part, (P - 1,).
    """

    first: int
    window: int
    preferred: int | None
    heard_at: int
    late_ms: tuple[float, ...]


def windows_by_hand_figure(
    episode: CacheEpisode,
    moves: Sequence[Move],
    played: Mapping[str, Sequence[tuple[int, int]]],
    *,
    late_ms: tuple[float, ...],
    now: int,
) -> Figure:
    """Choices over the congestion, observed delays, and joules beyond the clairvoyant, up to the present step.

    Args:
        episode: what the run meets.
        moves: so far, in order.
        played: windows by name, including the manual ones: see ``regret_lines``; empty before the first choice.
        late_ms: delay observed now, (P - 1,).
        now: the step up to which all is shown.
    """
    congestion = _congestion(episode, now)
    chosen = [_choice(move.first, move, move.late_ms) for move in moves]
    received = [_choice(move.heard_at, move, move.late_ms) for move in moves]
    if moves:
        received.append(_choice(now, moves[-1], late_ms))
    lines = {name: each[:now] for name, each in regret_lines(episode, played).items()} if played else {}
    links = congestion.now
    slow = links.words if links is not None else ""
    panels = [
        (
            actions_panel({(_ASKER,): chosen} if chosen else {}, congestion)[0],
            f"Shaded: links are slow, the stronger the slower. At step {now}: {slow or 'nothing is added'}.",
        ),
        (
            estimates_panel({(_ASKER,): received} if received else {}, congestion)[0],
            "What a policy observes: medians of the last 30 calls, which include how long bytes take on a throttled "
            "link. Dashed: delays that are added.",
        ),
        (regret_panel(lines, title="Beyond the clairvoyant")[0], _regret_words(lines, now)),
    ]
    return grid(panels, title="Your run", columns=2, wide=(2,))


def _regret_words(lines: Mapping[str, Sequence[float]], now: int) -> str:
    ends = sorted((each[-1], name) for name, each in lines.items() if len(each))
    described = join_words([f"{name} {joules:,.0f} J" for joules, name in ends])
    return f"Up to step {now}: {described or 'nothing yet'}. Flat: as good as hindsight; steep: this is where it loses."


def _choice(step: int, move: Move, late_ms: tuple[float, ...]) -> CacheChoice:
    biased = -1 if move.preferred is None else move.preferred
    return CacheChoice(step, _ASKER, BY_HAND, (), 0, move.window, biased, 0.0, True, None, late_ms)


def _congestion(episode: CacheEpisode, now: int) -> CongestionLog:
    """The links up to a step, as a run would have logged them."""
    log, trace = CongestionLog(), episode.trace
    changes = np.flatnonzero(np.diff(trace.which[: max(now, 1)], prepend=-1))
    pattern = "" if episode.case is None else episode.case.name
    for step in changes.tolist():
        delay_s = np.zeros((trace.parts, trace.parts))
        bytes_per_s = np.full((trace.parts, trace.parts), np.inf)
        delay_s[1:, _ASKER] = trace.delay_s[trace.which[step]]
        bytes_per_s[1:, _ASKER] = trace.bytes_per_s[trace.which[step]]
        described = LinkState(delay_s, bytes_per_s).to_dict()
        log.event({"step": step, "data": {"pattern": pattern, "by": "emulated", **described}}, attempt=0)
    return log
