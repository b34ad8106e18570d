"""Charts of cache policies: decisions and action values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.charts import CongestionLog
from dtdg_lab.systems.feature_cache.log import CacheChoice
from dtdg_lab.visualization.charts import (
    Drawn,
    Panel,
    box,
    chart,
    colour_bar,
    heat,
    label,
    named_axis,
    points,
)
from dtdg_lab.visualization.layout import percent
from dtdg_lab.visualization.palette import HEAT_SCALES, MARK_COLOUR, TEXT_COLOUR, WARNING_COLOUR, series_colour

_W = "W (steps between rebuilds)"
_DARK = 0.6
Cells = Sequence[Sequence[float | None]]


def _map_axes(columns: Sequence[Any], rows: Sequence[str]) -> dict[str, Any]:
    return {"xaxis": named_axis(columns), "yaxis": named_axis(rows, down=True)}


def _written_in(cells: Cells, form: str, is_dark: Callable[[float], bool]) -> list[Drawn]:
    """The numbers of a map's cells."""
    return [
        label(format(value + 0.0, form), column, row, "white" if is_dark(value) else TEXT_COLOUR, 9)
        for row, values in enumerate(cells)
        for column, value in enumerate(values)
        if value is not None
    ]


# What a policy of the cache thinks each action is worth, what it chose, and what it missed against hindsight.


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


def _short(value: float | None) -> Any:
    return None if value is None else float(f"{value:.5g}")
