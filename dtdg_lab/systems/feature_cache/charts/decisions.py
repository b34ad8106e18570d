"""Charts of a cache policy: its decisions, and its value of each action."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.records.rows import Array, Rows
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.charts import captions
from dtdg_lab.systems.feature_cache.charts.step_chart import (
    STACKED_PARTS,
    fetches_features,
    newest_step,
    over_steps,
    recent_rows,
)
from dtdg_lab.systems.feature_cache.charts.traffic import DARK
from dtdg_lab.visualization.axes import named_axis
from dtdg_lab.visualization.chart import FIRST_STEP, NOTHING_YET, Chart, ChartOptions, Key, card
from dtdg_lab.visualization.numbers import MINUS, percent_text
from dtdg_lab.visualization.palette import HEAT_SCALES, MARK_COLOUR, TEXT_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.visualization.traces import Attributes, box, heat, label, points

if TYPE_CHECKING:
    from dtdg_lab.visualization.chart import Figure


_DECISIONS, _ALL_DECISIONS = 300, 1_500  # of a part, and of all parts
_EVEN = 7  # colour of an even allocation


def _decisions(tables: RunTables) -> Rows:
    """Return the newest decisions of each part, in order of steps."""
    rows = recent_rows(tables, "cache_decisions")
    if not len(rows):
        return rows
    by_part = rows.by("part")
    count = max(1, min(_DECISIONS, _ALL_DECISIONS // len(by_part)))
    newest = [some.sort("step").where(slice(-count, None)) for some in by_part.values()]
    columns = ("step", "part", "window", "biased", "greedy", "action", "values")
    return Rows.of({name: np.concatenate([some[name] for some in newest]) for name in columns}).sort("step")


def decision_points(decisions: Mapping[str, Array] | Rows) -> list[Attributes]:
    """Return W of decisions over steps, in the colour of the owner that gets most; crosses are not rated best."""
    biased = decisions["biased"].astype(np.int64)
    is_best = _is_best(decisions)
    # parts decide at the same steps: a little apart, or one hides the others
    places = np.array([_place(window) for window in decisions["window"].tolist()])
    y = places + 0.09 * (decisions["part"] % 4 - 1.5)
    data = []
    for owner in np.unique(biased).tolist():
        indices = np.flatnonzero(biased == owner)
        colour = series_colour(_EVEN if owner < 0 else owner)
        texts = [
            f"part {part}: W {window}" + ("" if best else ", not rated best")
            for part, window, best in zip(
                *(column[indices].tolist() for column in (decisions["part"], decisions["window"], is_best)), strict=True
            )
        ]
        marker = {"symbol": ["circle" if is_best[index] else "x-thin-open" for index in indices.tolist()]}
        style: Attributes = {"size": 6, "marker": marker, "customdata": texts}
        x = decisions["step"][indices].tolist()
        data.append(points(_owner_name(owner), x, y[indices].tolist(), colour, "step %{x}, %{customdata}", **style))
    return data


def _is_best(decisions: Mapping[str, Array] | Rows) -> Array:
    """Return whether each decision took the action of highest value, as far as that is known."""
    return np.array([greedy is None or bool(greedy) for greedy in decisions["greedy"].tolist()], bool)


def _owner_name(owner: int) -> str:
    return "even" if owner < 0 else f"most for part {owner}"


def windows_axis() -> Attributes:
    """Return an axis of the W that policies choose from."""
    return {**named_axis(WINDOWS), "showgrid": True, "range": [-0.6, len(WINDOWS) - 0.4]}


def _place(window: int) -> float:
    """Return where a W stands on an axis of the eight; others stand between two."""
    return float(np.interp(np.log2(max(window, 1)), np.log2(WINDOWS), np.arange(len(WINDOWS))))


def _decisions_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the decisions in memory over steps."""
    decisions = _decisions(tables)
    data = decision_points(decisions) if len(decisions) else []
    owners = np.unique(decisions["biased"]).astype(int).tolist()[: 1 + STACKED_PARTS]
    keys: list[Key] = [(_owner_name(owner), series_colour(_EVEN if owner < 0 else owner), "dot") for owner in owners]
    keys += [("not rated best", TEXT_COLOUR, "cross")] * (not _is_best(decisions).all())
    span = (float(decisions["step"].min()) - 0.5, newest_step(tables) + 1.0) if data else (0.0, 1.0)
    empty = FIRST_STEP if newest_step(tables) < 0 else "This policy has decided nothing yet"
    return over_steps(data, tables, span, "Decisions", unit="W, steps", keys=keys, empty=empty, yaxis=windows_axis())


def _decisions_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the W that was chosen most often."""
    windows = _decisions(tables)["window"].tolist()
    if not windows:
        return NOTHING_YET
    ((window, count), *_) = Counter(windows).most_common(1)
    return captions.DECISIONS.format(share=percent_text(count / len(windows)), window=f"{window:g}")


_WRITTEN_ROWS, _PALE = 10, 0.12  # allocations with written numbers; of the range, so that the worst is not white


def _values_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the newest decision with values: W across, allocations down; the chosen action is framed."""
    newest = _newest_valued(tables)
    title, unit = "Value of each action", "difference to the best; W across, allocation down"
    if newest is None:
        return card([], title, unit=unit, empty="Appears with the first decision that has values")
    part, action, values, is_best = newest
    rows = len(values) // len(WINDOWS)
    other_parts = [owner for owner in range(rows) if owner != part][: rows - 1]
    names = ["even", *map(_owner_name, other_parts)]
    cells = np.array(values[: rows * len(WINDOWS)]).reshape(rows, len(WINDOWS))
    cells = cells - np.nanmax(cells)  # values are alike in their first digits
    low, high = float(np.nanmin(cells)), 0.0
    span = (high - low) or 1.0
    texts = [[f"W {window}, {name}" for window in WINDOWS] for name in names]
    style: Attributes = {
        "span": (low - _PALE * span, high),
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "customdata": texts,
    }
    rounded_cells = [[None if isnan(value) else float(f"{value:.5g}") for value in row] for row in cells.tolist()]
    hover = "%{customdata}: %{z:.4~g}<extra></extra>"
    trace = heat("value", rounded_cells, range(len(WINDOWS)), range(rows), HEAT_SCALES["owned"], hover=hover, **style)
    row, column = divmod(action, len(WINDOWS))
    colour = MARK_COLOUR if is_best else WARNING_COLOUR
    dark = low + DARK * ((high - low) or 1.0)
    notes = [
        label(_difference_text(value), across, down, "white" if value > dark else TEXT_COLOUR, 9)
        for down, row_values in enumerate(cells.tolist() if rows <= _WRITTEN_ROWS else [])
        for across, value in enumerate(row_values)
        if not isnan(value)
    ]
    return card(
        [trace],
        title,
        unit=f"of part {part}; {unit}",
        keys=[("chosen" if is_best else "chosen, not rated best", colour, "box")],
        xaxis=named_axis(WINDOWS),
        yaxis=named_axis([f"{name} " for name in names], down=True),
        shapes=[box((column - 0.47, column + 0.47), (row - 0.47, row + 0.47), line={"color": colour, "width": 3})],
        annotations=notes,
    )


def _difference_text(value: float) -> str:
    return f"{value:.2g}".replace("-", MINUS) if value else "best"


def _newest_valued(tables: RunTables) -> tuple[int, int, list[float], bool] | None:
    """Return part, action and values of the newest decision that has values, and whether that is the best."""
    decisions = _decisions(tables)
    for index in range(len(decisions) - 1, -1, -1):
        values = [np.nan if value is None else float(value) for value in decisions["values"][index] or ()]
        if len(values) >= len(WINDOWS) and not np.isnan(values).all():
            part, action = int(decisions["part"][index]), int(decisions["action"][index])
            return part, action, values, bool(_is_best(decisions)[index])
    return None


def _values_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the W that the part rates best."""
    newest = _newest_valued(tables)
    if newest is None:
        return NOTHING_YET
    part, _, values, _ = newest
    return captions.BEST_ACTION.format(part=part, window=WINDOWS[int(np.nanargmax(values)) % len(WINDOWS)])


DECISIONS = Chart(
    name="cache_decisions",
    title="Decisions",
    figure=_decisions_figure,
    caption=_decisions_caption,
    section="folded",
    applies=fetches_features,
    help="Each point is a window chosen by a part, in the colour of the owner that gets most of the cache.",
)
ACTION_VALUES = Chart(
    name="action_values",
    title="Value of each action",
    figure=_values_figure,
    caption=_values_caption,
    section="folded",
    applies=fetches_features,
    help="Value less that of the best action. Where two cells differ little, either action will do.",
)
