"""What a policy of the cache thinks each action is worth, what it chose, and what it missed against hindsight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtdg_lab.core.feature_path import WINDOWS
from dtdg_lab.core.units import format_joules
from dtdg_lab.views.cache_windows import STEP
from dtdg_lab.views.congestion_log import CongestionLog, shaded
from dtdg_lab.views.feature_log import CacheChoice
from dtdg_lab.views.layout import Figure, frame, join_words, percent, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import HEAT_SCALES, MARK_COLOUR, TEXT_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.views.partition_maps import colour_bar

Panel = tuple[Figure, str]
Choices = Mapping[tuple[int, ...], Sequence[CacheChoice]]
NO_DECISION = "nothing was decided yet"
_POINTS = 300
_ROWS = 10  # allocations up to which cells have their numbers written
_DARK = 0.6
_PALE = 0.12  # of the range: the worst action is not white, as a cell without a value is


def values_panel(choices: Choices) -> Panel:
    """The newest decision that has values: W across, allocations down; the action that was chosen is framed.

    Args:
        choices: by part, in order.
    """
    told = [choice for each in choices.values() for choice in each[-1:] if len(choice.values) >= len(WINDOWS)]
    layout = frame("What each action is worth", "W (steps between rebuilds)", "")
    if not told:
        note = "this policy keeps no values" if choices else NO_DECISION
        return {"data": [], "layout": with_note(layout, note)}, _VALUES
    newest = max(told, key=lambda choice: choice.step)
    rows = len(newest.values) // len(WINDOWS)
    names = ["even", *(f"most for part {owner}" for owner in _others(newest.part, rows))]
    grid = [list(newest.values[row * len(WINDOWS) : (row + 1) * len(WINDOWS)]) for row in range(rows)]
    known = [value for row in grid for value in row if value is not None]
    if not known:
        return {"data": [], "layout": with_note(layout, "this policy keeps no values")}, _VALUES
    low, high = min(known) + 0.0, max(known) + 0.0  # -0 becomes 0
    span = (high - low) or abs(low) or 1.0
    layout["title"] = {**layout["title"], "text": f"What part {newest.part} thinks each action is worth"}
    layout["xaxis"] |= {"tickvals": list(range(len(WINDOWS))), "ticktext": list(map(str, WINDOWS)), "showgrid": False,
                        "range": [-0.5, len(WINDOWS) - 0.5]}  # fmt: skip
    layout["yaxis"] |= {"tickvals": list(range(rows)), "ticktext": names, "range": [rows - 0.5, -0.5],
                        "showgrid": False}  # fmt: skip
    trace = {
        "type": "heatmap", "name": "value", "x": list(range(len(WINDOWS))), "y": list(range(rows)),
        "z": [[_short(value) for value in row] for row in grid],
        "zmin": _short(low - _PALE * span), "zmax": _short(high),
        "colorscale": [list(stop) for stop in HEAT_SCALES["owned"]], "colorbar": colour_bar("value"),
        "xgap": 2, "ygap": 2, "customdata": [[f"W {window}, {name}" for window in WINDOWS] for name in names],
        "hovertemplate": "%{customdata}: %{z:.4~g}<extra></extra>",
    }  # fmt: skip
    row, column = divmod(newest.action, len(WINDOWS))
    layout["shapes"] = [{
        "type": "rect", "xref": "x", "yref": "y", "x0": column - 0.47, "x1": column + 0.47, "y0": row - 0.47,
        "y1": row + 0.47, "line": {"color": MARK_COLOUR if newest.greedy else WARNING_COLOUR, "width": 3},
    }]  # fmt: skip
    if rows <= _ROWS:
        layout["annotations"] = _numbers(grid, low, high)
    return {"data": [trace], "layout": layout}, _values_words(newest, names, low, high)


_VALUES = "The larger, the better; the frame is what was chosen."


def _others(part: int, rows: int) -> list[int]:
    """The other parts in ascending order, for which there is an allocation each."""
    return [owner for owner in range(rows) if owner != part][: rows - 1]


def _numbers(grid: Sequence[Sequence[float | None]], low: float, high: float) -> list[dict[str, Any]]:
    return [
        {
            "text": f"{value + 0.0:.3g}", "x": column, "y": row, "xref": "x", "yref": "y", "showarrow": False,
            "font": {"size": 9, "color": "white" if value > low + _DARK * ((high - low) or 1.0) else TEXT_COLOUR},
        }
        for row, values in enumerate(grid) for column, value in enumerate(values) if value is not None
    ]  # fmt: skip


def _values_words(choice: CacheChoice, names: Sequence[str], low: float, high: float) -> str:
    row, column = divmod(choice.action, len(WINDOWS))
    what = f"W {WINDOWS[column]}, {names[row] if row < len(names) else 'another allocation'}"
    drawn = "" if choice.greedy else " (drawn at random)"
    return (
        f"At step {choice.step} {choice.policy} chose {what}{drawn}; values reach from {low:.3g} to {high:.3g}. "
        f"{_VALUES} Little between two cells: either will do."
    )


def actions_panel(choices: Choices, congestion: CongestionLog, marks: Marks) -> Panel:
    """W of every decision over steps, coloured by the owner that gets most of the cache; crosses were drawn.

    Args:
        choices: by part, in order.
        congestion: of the run.
        marks: of the run's changes.
    """
    shown = sorted((choice for each in choices.values() for choice in each[-_POINTS:]), key=lambda each: each.step)
    span = [shown[0].step, shown[-1].step] if shown else []
    layout = frame(
        "Decisions", STEP, "W (steps between rebuilds)", showlegend=True, **marks.over_steps(span),
        yaxis={"tickvals": list(range(len(WINDOWS))), "ticktext": list(map(str, WINDOWS)),
               "range": [-0.6, len(WINDOWS) - 0.4]},
    )  # fmt: skip
    if not shown:
        return {"data": [], "layout": with_note(layout, NO_DECISION)}, _ACTIONS
    data: list[dict[str, Any]] = []
    for biased in sorted({choice.biased for choice in shown}):
        found = [choice for choice in shown if choice.biased == biased]
        name = "even" if biased < 0 else f"most for part {biased}"
        colour = series_colour(7 if biased < 0 else biased)
        data.append({
            "type": "scatter", "mode": "markers", "name": name, "x": [choice.step for choice in found],
            # parts decide at the same steps: a little apart, else one hides the others
            "y": [_place(choice.window) + 0.09 * (choice.part % 4 - 1.5) for choice in found],
            "marker": {"color": colour, "size": 6,
                       "symbol": ["circle" if choice.greedy else "x-thin-open" for choice in found]},
            "customdata": [
                f"part {choice.part}: W {choice.window}" + ("" if choice.greedy else ", drawn") for choice in found
            ],
            "hovertemplate": "step %{x}, %{customdata}<extra>" + name + "</extra>",
        })  # fmt: skip
    return {"data": data, "layout": shaded(layout, congestion, span)}, _actions_words(shown)


_ACTIONS = "Points that gather on one line: the policy has settled. Crosses were drawn at random."


def _place(window: int) -> float:
    """Where a W stands on an axis of the eight; others in between."""
    if window in WINDOWS:
        return float(WINDOWS.index(window))
    below = sum(each < window for each in WINDOWS)
    return below - 0.5


def _actions_words(shown: Sequence[CacheChoice]) -> str:
    counts: dict[tuple[int, int], int] = {}
    for choice in shown:
        counts[choice.window, choice.biased] = counts.get((choice.window, choice.biased), 0) + 1
    (window, biased), most = max(counts.items(), key=lambda item: item[1])
    liked = "an even cache" if biased < 0 else f"most for part {biased}"
    drawn = sum(not choice.greedy for choice in shown)
    random = f" {percent(drawn / len(shown))} were drawn." if drawn else ""
    rewards = [choice.reward for choice in shown if choice.reward is not None]
    earned = f" The mean reward is {sum(rewards) / len(rewards):.3g}." if rewards else ""
    return (
        f"Of {len(shown):,} decisions {percent(most / len(shown))} were W {window} with {liked}.{random}{earned} "
        f"{_ACTIONS}"
    )


def regret_panel(regrets: Mapping[str, Sequence[float]], *, per: str = "step", title: str = "") -> Panel:
    """Joules that policies spent beyond the clairvoyant optimum, summed up, over a simulated trace.

    Args:
        regrets: policy -> what it has spent beyond the optimum after each step (or epoch); the optimum's own is 0.
        per: what a place in these is.
        title: of the picture, where it is not the usual one.
    """
    layout = frame(
        title or "Regret against the clairvoyant", f"{per} of the trace", "joules beyond the optimum", showlegend=True,
        yaxis={"rangemode": "tozero"},
    )  # fmt: skip
    known = {name: each for name, each in regrets.items() if len(each)}
    if not known:
        return {"data": [], "layout": with_note(layout, "no policy was compared yet")}, _REGRET
    data = []
    for index, (name, each) in enumerate(known.items()):
        stride = max(1, -(-len(each) // _POINTS))
        places = [*range((len(each) - 1) % stride, len(each), stride)]
        data.append({
            "type": "scatter", "mode": "lines", "name": name, "x": [at + 1 for at in places],
            "y": [_short(float(each[at])) for at in places], "line": {"color": series_colour(index), "width": 2},
            "hovertemplate": f"{per} %{{x}}: %{{y:.4~g}} J<extra>{name}</extra>",
        })  # fmt: skip
    ends = sorted((float(each[-1]), name) for name, each in known.items())
    told = [f"{name} {format_joules(end)}" for end, name in ends]
    return {"data": data, "layout": layout}, f"In the end: {join_words(told)}. {_REGRET}"


_REGRET = "Flat: as good as hindsight; steep: this is where it loses."


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
