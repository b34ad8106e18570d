"""Decisions of the tuner of K and alpha: the losses it compared, and its path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.decayed_windows import captions
from dtdg_lab.systems.decayed_windows.step_windows import has_decay
from dtdg_lab.systems.decayed_windows.study import Setting, path_traces
from dtdg_lab.visualization.cell_map import cell_map
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Figure, Key, card
from dtdg_lab.visualization.numbers import three_digits
from dtdg_lab.visualization.palette import (
    BASELINE_COLOUR,
    MARK_COLOUR,
    series_colour,
)
from dtdg_lab.visualization.traces import Attributes, line, points

POLICY = "greedy"
NO_SEARCH = "Appears with the tuner's first search"
SEARCHES = 200  # the newest that are drawn
WRITTEN = 20  # cells up to which each has its loss written into it
KINDS = {  # neighbour -> colour and symbol
    "stay": (BASELINE_COLOUR, "circle"),
    "K + 1": (series_colour(0), "triangle-right"),
    "K − 1": (series_colour(5), "triangle-left"),
    "alpha up": (series_colour(1), "triangle-up"),
    "alpha down": (series_colour(4), "triangle-down"),
}


@dataclass(frozen=True, slots=True)
class Search:
    """One decision.

    Attributes:
        epoch: after which it was made, from 0.
        state: the setting before.
        action: the setting after.
        losses: validation losses of the settings that were tried; finite ones only.
    """

    epoch: int
    state: Setting
    action: Setting
    losses: Mapping[Setting, float]


def searches(tables: RunTables) -> list[Search]:
    """Return the tuner's decisions in order."""
    return tables.once("searches", lambda: _searches(tables))


def _searches(tables: RunTables) -> list[Search]:
    rows = tables.rows("decisions")
    rows = rows.where((rows["policy"] == POLICY) & (rows["rank"] == 0)) if len(rows) else rows
    decisions = rows.sort("step").to_dicts("epoch", "state", "values", "action")[-SEARCHES:]
    return [
        Search(
            int(row["epoch"]),
            _setting(row["state"]),
            _setting(row["action"]),
            {
                _setting(tried): float(tried["loss"])
                for tried in row["values"]
                if tried.get("loss") is not None and math.isfinite(tried["loss"])
            },
        )
        for row in decisions
    ]


def _setting(named: Mapping[str, Any]) -> Setting:
    return int(named["full_snapshots"]), float(named["alpha"])


def tuner_path(tables: RunTables) -> list[Setting]:
    """Return the settings that the tuner went through, with manual changes in between; each once where it stayed."""
    path: list[Setting] = []
    for search in searches(tables):
        for setting in (search.state, search.action):
            if not path or path[-1] != setting:
                path.append(setting)
    return path


# What the tuner compared


def decisions_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the losses of each search; those that were chosen are joined by a line."""
    runs, title, unit = searches(tables), "Tuner decisions", "validation loss of a trial epoch"
    data: list[Attributes] = []
    keys: list[Key] = []
    for name, (colour, symbol) in KINDS.items():
        tried = [
            (search.epoch + 1, loss, _setting_text(setting))
            for search in runs
            for setting, loss in search.losses.items()
            if _kind(search.state, setting) == name
        ]
        if tried:
            x, y, texts = zip(*tried, strict=True)
            style: Attributes = {"size": 8, "marker": {"symbol": symbol}, "customdata": list(texts)}
            data.append(points(name, x, y, colour, "epoch %{x}, %{customdata}: %{y:.4g}", **style))
            keys.append((name, colour, "dot"))
    actions = [(search.epoch + 1, search.losses[search.action]) for search in runs if search.action in search.losses]
    if actions:
        x, y = zip(*actions, strict=True)
        data.append(line("chosen", x, y, MARK_COLOUR, mode="lines", hoverinfo="skip"))
        keys.append(("chosen", MARK_COLOUR, "line"))
    span = runs[-1].epoch - runs[0].epoch if runs else 0
    axes: Attributes = {"xaxis": {"tickformat": "d", "dtick": max(1, span // 8)}, "yaxis": {"nticks": 5}}
    return card(data, title, unit=unit, keys=keys, x_title="epoch after which it searched", empty=NO_SEARCH, **axes)


def decisions_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return what the newest search chose."""
    runs = searches(tables)
    if not runs:
        return NOTHING_YET
    newest = runs[-1]
    template = captions.TUNER_STAYED if newest.action == newest.state else captions.TUNER_MOVED
    full, alpha = newest.action
    return template.format(full=full, alpha=f"{alpha:g}", epoch=newest.epoch + 1)


def _kind(state: Setting, setting: Setting) -> str:
    if setting[0] != state[0]:
        return "K + 1" if setting[0] > state[0] else "K − 1"
    if setting[1] == state[1]:
        return "stay"
    return "alpha up" if setting[1] > state[1] else "alpha down"


def _setting_text(setting: Setting) -> str:
    return f"K {setting[0]}, alpha {setting[1]:g}"


# The path


def path_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the newest loss of every setting over K and alpha, with the tuner's path."""
    losses, path = _newest_losses(tables), tuner_path(tables)
    title, unit, x_title = "Tuner path", "alpha, and the newest validation loss of each cell", "full snapshots (K)"
    if not losses:
        return card([], title, unit=unit, x_title=x_title, empty=NO_SEARCH)
    across = sorted({full for full, _ in (*losses, *path)})
    up = sorted({alpha for _, alpha in losses})
    cells = {setting: (across.index(setting[0]), up.index(setting[1])) for setting in losses}
    texts = {setting: three_digits(loss) for setting, loss in losses.items()}
    return cell_map(
        title,
        ([str(full) for full in across], [f"{alpha:g}" for alpha in up]),
        {cells[setting]: loss for setting, loss in losses.items()},
        texts={cells[setting]: text for setting, text in texts.items() if len(losses) <= WRITTEN},
        hover={cells[setting]: f"{_setting_text(setting)}: {text}" for setting, text in texts.items()},
        scale="halo",
        bar="loss",
        best=cells[_best(losses)],
        marks=path_traces(path, across, up),
        unit=unit,
        x_title=x_title,
    )


def path_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the lowest of the losses that are drawn; those of different searches are of different models."""
    losses = _newest_losses(tables)
    if not losses:
        return NOTHING_YET
    full, alpha = _best(losses)
    return captions.TUNER_PATH.format(loss=three_digits(losses[full, alpha]), full=full, alpha=f"{alpha:g}")


def _newest_losses(tables: RunTables) -> dict[Setting, float]:
    return {setting: loss for search in searches(tables) for setting, loss in search.losses.items()}


def _best(losses: Mapping[Setting, float]) -> Setting:
    return min(losses, key=lambda setting: losses[setting])


DECISIONS = Chart(
    name="tuner_decisions",
    title="Tuner decisions",
    figure=decisions_figure,
    caption=decisions_caption,
    section="folded",
    applies=has_decay,
    help="Points are settings that a search tried, with the loss of a trial epoch whose updates are discarded.",
)


PATH = Chart(
    name="tuner_path",
    title="Tuner path",
    figure=path_figure,
    caption=path_caption,
    section="folded",
    applies=has_decay,
    help="The path leads from the circle to the star; the lowest of the newest losses is outlined. Cells of a "
    "stronger colour have larger losses, measured at different times of training.",
)
