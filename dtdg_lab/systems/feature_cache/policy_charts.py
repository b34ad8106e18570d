"""Charts of cache policies: action values, regret, tables, and model against measurement."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.feature_store import WINDOWS, LinkState
from dtdg_lab.core.units import format_joules
from dtdg_lab.systems.feature_cache.charts import STEP, CongestionLog, estimates_panel, shaded
from dtdg_lab.systems.feature_cache.log import CacheChoice
from dtdg_lab.systems.feature_cache.policies.simulator import CacheEpisode
from dtdg_lab.visualization.grid import grid
from dtdg_lab.visualization.layout import Figure, frame, join_words, percent, with_note
from dtdg_lab.visualization.palette import HEAT_SCALES, MARK_COLOUR, TEXT_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.visualization.partition import colour_bar
from dtdg_lab.visualization.style import Marks, text_table

if TYPE_CHECKING:
    from dtdg_lab.systems.feature_cache.policies.calibration import CellError
    from dtdg_lab.systems.feature_cache.policies.training import ComparedPolicy


# Step times of a model beside those that were measured: errors as a map, curves with squares (Figure 8 of
# GreenDyGNN).
#
# Rows are mappings: ``condition``, ``window``, ``measured_ms`` and ``predicted_ms``; where there are several data
# sets,
# ``dataset``; ``held_out`` where the model had not seen the measurement.


Without = Literal["", "cell", "condition"]
Row = Mapping[str, Any]
Panel = tuple[Figure, str]
Curves = Mapping[str, Sequence[tuple[int, float]]]  # condition -> (window, predicted ms)
NOTHING = "nothing was measured yet"
_WRITTEN = 120  # cells up to which each has its number
_DARK = 0.6
_LEAST_TOP = 5.0  # percent of the darkest colour, at least
_SCALE = ((0.0, "#2166AC"), (0.5, "#FFFFFF"), (1.0, "#B2182B"))


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


def _errors(rows: Sequence[Row]) -> list[float]:
    return [_error(row) for row in rows]


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
    layout = frame(title, "W (steps between rebuilds)", "")
    if not rows:
        return {"data": [], "layout": with_note(layout, NOTHING)}
    conditions, windows = _conditions(rows), sorted({int(row["window"]) for row in rows})
    cells = {(str(row["condition"]), int(row["window"])): row for row in rows}
    grid_rows = [[cells.get((condition, window)) for window in windows] for condition in conditions]
    top = max(_LEAST_TOP, *(100 * abs(each) for each in _errors(rows)))
    layout["xaxis"] |= {
        "tickvals": list(range(len(windows))),
        "ticktext": list(map(str, windows)),
        "showgrid": False,
        "range": [-0.5, len(windows) - 0.5],
    }
    layout["yaxis"] |= {
        "tickvals": list(range(len(conditions))),
        "ticktext": conditions,
        "showgrid": False,
        "range": [len(conditions) - 0.5, -0.5],
    }
    data = [
        {
            "type": "heatmap",
            "name": title,
            "x": list(range(len(windows))),
            "y": list(range(len(conditions))),
            "z": [[None if row is None else round(100 * _error(row), 3) for row in line] for line in grid_rows],
            "zmin": -top,
            "zmax": top,
            "colorscale": [list(stop) for stop in _SCALE],
            "hoverongaps": False,
            "colorbar": {**colour_bar("error (%)"), "tickformat": ".3~g"},
            "xgap": 2,
            "ygap": 2,
            "customdata": [["" if row is None else _cell_words(row) for row in line] for line in grid_rows],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    ]
    if len(conditions) * len(windows) <= _WRITTEN:
        layout["annotations"] = [
            {
                "text": f"{round(100 * _error(row), 1) + 0.0:+.1f}",
                "x": column,
                "y": at,
                "xref": "x",
                "yref": "y",
                "showarrow": False,
                "font": {"size": 9, "color": "white" if 100 * abs(_error(row)) > _DARK * top else TEXT_COLOUR},
            }
            for at, line in enumerate(grid_rows)
            for column, row in enumerate(line)
            if row is not None
        ]
    return {"data": data, "layout": layout}


def _cell_words(row: Row) -> str:
    seen = " (not seen)" if row.get("held_out") else ""
    return (
        f"{row['condition']}, W {row['window']}: {float(row['predicted_ms']):.4g} ms predicted, "
        f"{float(row['measured_ms']):.4g} ms measured{seen}"
    )


def _curves_figure(rows: Sequence[Row], curves: Curves, title: str) -> Figure:
    layout = frame(
        title,
        "W (steps between rebuilds)",
        "step (ms)",
        showlegend=True,
        xaxis={"type": "log", "tickvals": sorted({int(row["window"]) for row in rows})},
        yaxis={"type": "log", "dtick": "D2"},
    )
    if not rows:
        plain = {
            **layout,
            **{
                axis: {k: v for k, v in layout[axis].items() if k not in ("type", "tickvals", "dtick")}
                for axis in ("xaxis", "yaxis")
            },
        }
        return {"data": [], "layout": with_note(plain, NOTHING)}
    data: list[dict[str, Any]] = []
    for index, condition in enumerate(_conditions(rows)):
        found = sorted((row for row in rows if row["condition"] == condition), key=lambda row: int(row["window"]))
        line = list(curves.get(condition, ())) or [(int(row["window"]), float(row["predicted_ms"])) for row in found]
        data += _condition_traces(condition, index, found, line)
    return {"data": data, "layout": layout}


def _condition_traces(
    condition: str, index: int, found: Sequence[Row], line: Sequence[tuple[int, float]]
) -> list[dict[str, Any]]:
    """A line and squares; a condition of one window has a dash with its name beside it: a legend would be too wide."""
    alone, colour = len(line) == 1, series_colour(index)
    style: dict[str, Any] = {"type": "scatter", "legendgroup": condition, "name": condition}
    beside = "middle right" if condition.startswith("c4") else "middle left"  # delays on one side, rates on the other
    return [
        {
            "mode": "markers+text" if alone else "lines",
            "x": [at for at, _ in line],
            "y": [round(ms, 4) for _, ms in line],
            "showlegend": not alone,
            "line": {"color": colour, "width": 2},
            "marker": {"color": colour, "symbol": "line-ew-open", "size": 14},
            "hoverinfo": "skip",
            "text": [f"  {condition}  "] * len(line),
            "textposition": beside,
            "textfont": {"size": 9, "color": colour},
            **style,
        },
        {
            "mode": "markers",
            "x": [int(row["window"]) for row in found],
            "y": [round(float(row["measured_ms"]), 4) for row in found],
            "showlegend": False,
            "marker": {
                "color": colour,
                "size": 7,
                "symbol": ["square-open" if row.get("held_out") else "square" for row in found],
            },
            "customdata": [_cell_words(row) for row in found],
            "hovertemplate": "%{customdata}<extra></extra>",
            **style,
        },
    ]


def model_words(rows: Sequence[Row]) -> str:
    """Mean and largest error, apart for what the model had not seen."""
    if not rows:
        return "How far predicted step times are from those that were measured, in percent of the latter."
    worst = max(rows, key=lambda row: abs(_error(row)))
    seen, kept = ([row for row in rows if bool(row.get("held_out")) is held] for held in (False, True))
    described = [
        f"{100 * fmean(map(abs, _errors(each))):.1f} % over {len(each)} {words}"
        for each, words in ((seen, "cells it was fitted to"), (kept, "it had not seen"))
        if each
    ]
    return (
        f"The mean error is {' and '.join(described)}; the largest, {100 * _error(worst):+.1f} %, "
        f"at {worst['condition']}, "
        f"W {worst['window']}. Red: predicted too slow."
    )


# Policies of the cache beside each other, case by case: how far each is from the optimum and the best fixed window.
#
# Rows are mappings, one for each policy, case and seed: ``policy``, ``case`` and ``joules`` of the episode, and where
# there are several data sets, ``costs``, whose they are. The policies ``clairvoyant`` and those whose names begin
# with
# ``fixed`` are what the others are measured by.


CLAIRVOYANT, FIXED, BEST = "clairvoyant", "fixed", "best fixed"
POLICY_TABLE_NOTHING = "no policy was compared yet"
TOLERANCE = 0.01  # of the best fixed window's joules, beyond which a policy loses to it
_NEAR = 0.5  # percent under which a distance has the palest colour
_APART = 10  # cases up to which each has its name under the axis
_POLICY_TABLE_WRITTEN = 160  # cells up to which each has its number
_NAMED = 2  # cases that a sentence names
# better than what it is measured by: blue; worse: red; white: as good


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """Mean joules of policies by case.

    Attributes:
        cases: in order.
        joules: policy -> case -> mean joules over the seeds.
    """

    cases: tuple[str, ...]
    joules: Mapping[str, Mapping[str, float]]

    @property
    def fixed(self) -> list[str]:
        """Policies with a fixed window."""
        return [name for name in self.joules if name.startswith(FIXED)]

    def best_fixed(self, case: str) -> tuple[str, float] | None:
        """The fixed window that needs least in a case, which only hindsight knows; None where none was tried."""
        found = [(self.joules[name][case], name) for name in self.fixed if case in self.joules[name]]
        return (min(found)[1], min(found)[0]) if found else None

    def beyond_optimum(self, policy: str, case: str) -> float | None:
        """Joules over the clairvoyant's, less 1; None where either is not known."""
        return self._beyond(policy, case, self.joules.get(CLAIRVOYANT, {}).get(case))

    def beyond_fixed(self, policy: str, case: str) -> float | None:
        """Joules over those of the best fixed window of the case, less 1; None where either is not known."""
        best = self.best_fixed(case)
        return self._beyond(policy, case, None if best is None else best[1])

    def _beyond(self, policy: str, case: str, measure: float | None) -> float | None:
        joules = self.joules.get(policy, {}).get(case)
        return None if joules is None or not measure else joules / measure - 1

    def losses(self, policy: str) -> list[tuple[float, str]]:
        """Cases in which a policy needs more than the best fixed window, beyond the tolerance; the worst first."""
        described = [(beyond, case) for case in self.cases if (beyond := self.beyond_fixed(policy, case)) is not None]
        return sorted(((beyond, case) for beyond, case in described if beyond > TOLERANCE), reverse=True)

    def mean_beyond_optimum(self, policy: str) -> float | None:
        """Mean over the cases; None where no case has both."""
        described = [beyond for case in self.cases if (beyond := self.beyond_optimum(policy, case)) is not None]
        return fmean(described) if described else None


def policy_table(rows: Sequence[Row]) -> PolicyTable:
    """Rows as a table; seeds of one policy and case are averaged."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row.get("joules") is not None:
            found.setdefault(str(row["policy"]), {}).setdefault(str(row["case"]), []).append(float(row["joules"]))
    cases = tuple(dict.fromkeys(str(row["case"]) for row in rows))
    return PolicyTable(cases, {name: {case: fmean(each) for case, each in by.items()} for name, by in found.items()})


def policy_table_panels(table: PolicyTable) -> dict[str, Panel]:
    """``optimum`` and ``fixed``: distance of every policy to the clairvoyant and to the best fixed window, by case."""
    return {
        "optimum": (_map(table, "Beyond the clairvoyant optimum", optimum=True), policy_words(table)),
        "fixed": (_map(table, "Against the best fixed window of each case", optimum=False), _losers_words(table)),
    }


def policy_rows(compared: Sequence[ComparedPolicy]) -> list[dict[str, Any]]:
    """What :func:`dtdg_lab.systems.feature_cache.policies.training.compare` gives, as rows."""
    return [{"policy": each.policy, "case": each.case, "costs": each.costs, "joules": each.joules} for each in compared]


def policy_table_figure(rows: Sequence[Row], *, title: str = "Policies of the cache, case by case") -> Figure:
    """Both maps of each data set, one under the other."""
    panels: list[Panel] = []
    names = list(dict.fromkeys(str(row.get("costs", "")) for row in rows)) or [""]
    for name in names:
        for figure, words in policy_table_panels(_of(rows, name)).values():
            if len(names) > 1:
                head = figure["layout"]["title"]
                figure["layout"]["title"] = {**head, "text": f"{head['text']}, {name}"}
            panels.append((figure, words))
    return grid(panels, title=title, columns=1)


def _of(rows: Sequence[Row], costs: str) -> PolicyTable:
    return policy_table([row for row in rows if str(row.get("costs", "")) == costs])


def _map(table: PolicyTable, title: str, *, optimum: bool) -> Figure:
    rows = [name for name in _ranked(table) if name != CLAIRVOYANT or not optimum]
    layout = frame(title, "", "", margin={"l": 96, "r": 14, "t": 34, "b": 78})
    distance = table.beyond_optimum if optimum else table.beyond_fixed
    cells = [[distance(name, case) for case in table.cases] for name in rows]
    known = [abs(each) for row in cells for each in row if each is not None]
    if not known:
        missing = "no clairvoyant was run" if optimum else "no fixed window was run"
        return {"data": [], "layout": with_note(layout, missing if table.joules else POLICY_TABLE_NOTHING)}
    # one bad policy must not make all others look alike
    top = max(_NEAR, 100 * sorted(known)[int(0.9 * (len(known) - 1))])
    layout["xaxis"] |= _case_axis(table.cases, layout["xaxis"])
    layout["shapes"] = [_between(at) for at in _begins(table.cases)[1:]] if len(table.cases) > _APART else []
    layout["yaxis"] |= {**_names(rows), "range": [len(rows) - 0.5, -0.5]}
    data: list[dict[str, Any]] = [
        {
            "type": "heatmap",
            "name": title,
            "x": list(range(len(table.cases))),
            "y": list(range(len(rows))),
            "z": [[None if each is None else round(100 * each, 3) for each in row] for row in cells],
            "zmin": -top,
            "zmax": top,
            "colorscale": [list(stop) for stop in _SCALE],
            "colorbar": {**colour_bar("% more joules"), "tickformat": ".3~g"},
            "xgap": 1,
            "ygap": 1,
            "hoverongaps": False,
            "customdata": [[f"{name}, {case}: {_joules(table, name, case)}" for case in table.cases] for name in rows],
            "hovertemplate": "%{customdata}, %{z:+.2f} %<extra></extra>",
        }
    ]
    if len(rows) * len(table.cases) <= _POLICY_TABLE_WRITTEN:
        layout["annotations"] = [
            {
                "text": f"{round(100 * each, 1) + 0.0:+.1f}",
                "x": column,
                "y": row,
                "xref": "x",
                "yref": "y",
                "showarrow": False,
                "font": {"size": 9, "color": "white" if abs(100 * each) > _DARK * top else TEXT_COLOUR},
            }
            for row, values in enumerate(cells)
            for column, each in enumerate(values)
            if each is not None
        ]
    return {"data": data, "layout": layout}


def _begins(cases: Sequence[str]) -> list[int]:
    """Where another pattern begins: what stands before the first ``/`` of a case's name."""
    return [at for at, case in enumerate(cases) if not at or case.split("/")[0] != cases[at - 1].split("/")[0]]


def _between(at: int) -> dict[str, Any]:
    line = {"color": TEXT_COLOUR, "width": 1}
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": at - 0.5,
        "x1": at - 0.5,
        "y0": 0,
        "y1": 1,
        "line": line,
    }


def _case_axis(cases: Sequence[str], axis: Mapping[str, Any]) -> dict[str, Any]:
    """Names of cases, or where these are many, of their patterns, with what all of these have under the axis."""
    named, begins = _names(cases), _begins(cases)
    if len(cases) <= _APART or len(begins) == len(cases):
        return named
    ends = [*begins[1:], len(cases)]
    kinds = [
        [case.partition("/")[2].replace("/", " ") for case in cases[first:end]]
        for first, end in zip(begins, ends, strict=True)
    ]
    alike = f"each from left to right: {', '.join(kinds[0])}" if all(each == kinds[0] for each in kinds) else "case"
    return {
        **named,
        "tickvals": [(first + end - 1) / 2 for first, end in zip(begins, ends, strict=True)],
        "ticktext": [cases[first].split("/")[0].replace("_", " ") for first in begins],
        "title": {**axis["title"], "text": alike},
    }


def _names(names: Sequence[str]) -> dict[str, Any]:
    return {
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": [-0.5, len(names) - 0.5],
        "showgrid": False,
    }


def _joules(table: PolicyTable, name: str, case: str) -> str:
    return format_joules(table.joules.get(name, {}).get(case))


def _ranked(table: PolicyTable) -> list[str]:
    """Policies, the one nearest to the optimum first; by their joules where there is no clairvoyant."""

    def rank(name: str) -> tuple[float, float]:
        beyond = table.mean_beyond_optimum(name)
        return (float("inf") if beyond is None else beyond, fmean(table.joules[name].values()))

    return sorted(table.joules, key=rank)


def policy_words(table: PolicyTable) -> str:
    """Mean distance of every policy from the optimum, and policies that impossibly beat it."""
    if not table.joules:
        return "No policy can need less than the clairvoyant, which knows the whole trace."
    described = [
        f"{name} {100 * beyond:.1f} %"
        for name in _ranked(table)
        if name != CLAIRVOYANT and (beyond := table.mean_beyond_optimum(name)) is not None
    ]
    impossible = [
        f"{name} in {case}"
        for name in table.joules
        for case in table.cases
        if (beyond := table.beyond_optimum(name, case)) is not None and beyond < -1e-9
    ]
    wrong = f" Something is wrong: {join_words(impossible)} needs less than the optimum." if impossible else ""
    if not described:
        return f"Without a clairvoyant the possible gain is unknown.{wrong}"
    return f"Joules beyond the optimum, mean of {len(table.cases)} cases: {join_words(described)}.{wrong}"


def _losers_words(table: PolicyTable) -> str:
    """Which policies lose to a fixed window that needs no thought, and where."""
    if not table.fixed:
        return "Without fixed windows the benefit of choosing one is unknown."
    lost = {name: losses for name in table.joules if not name.startswith(FIXED) and (losses := table.losses(name))}
    others = [name for name in table.joules if not name.startswith(FIXED) and name not in (CLAIRVOYANT, BEST)]
    fine = [name for name in others if name not in lost]
    described = [
        f"{name} loses in {len(losses)} of {len(table.cases)} cases, by up to {100 * losses[0][0]:.1f} % "
        f"({', '.join([case for _, case in losses[:_NAMED]])}{', ...' if len(losses) > _NAMED else ''})"
        for name, losses in sorted(lost.items(), key=lambda item: len(item[1]))
    ]
    text = f"{'; '.join(described)}." if described else "No policy loses to the best fixed window by more than 1 %."
    return f"{text} Never by more than 1 %: {join_words(fine)}." if described and fine else text


def policy_text(rows: Sequence[Row], *, markdown: bool = False) -> str:
    """The same as a table in text: a line a policy, with the mean and the worst of its distances.

    Args:
        rows: see the module.
        markdown: with bars and a rule; else columns of fixed width.
    """
    several = len({row.get("costs") for row in rows}) > 1
    # a case of one data set is not that of another
    table = policy_table([{**row, "case": f"{row.get('costs')}, {row['case']}"} for row in rows] if several else rows)
    lines = [["policy", "beyond optimum (mean)", "(worst)", "against best fixed (mean)", "(worst)", "cases lost"]]
    for name in _ranked(table):
        cells = [name]
        for distance in (table.beyond_optimum, table.beyond_fixed):
            described = [beyond for case in table.cases if (beyond := distance(name, case)) is not None]
            cells += [f"{100 * fmean(described):+.1f} %", f"{100 * max(described):+.1f} %"] if described else ["-", "-"]
        lines.append([*cells, str(len(table.losses(name))) if table.fixed else "-"])
    return text_table(lines, markdown=markdown)


# What a policy of the cache thinks each action is worth, what it chose, and what it missed against hindsight.


Choices = Mapping[tuple[int, ...], Sequence[CacheChoice]]
NO_DECISION = "nothing was decided yet"
_POINTS = 300
_ROWS = 10  # allocations up to which cells have their numbers written
_PALE = 0.12  # of the range: the worst action is not white, as a cell without a value is


def values_panel(choices: Choices) -> Panel:
    """The newest decision that has values: W across, allocations down; the action that was chosen is framed.

    Args:
        choices: by part, in order.
    """
    described = [choice for each in choices.values() for choice in each[-1:] if len(choice.values) >= len(WINDOWS)]
    layout = frame("What each action is worth", "W (steps between rebuilds)", "")
    if not described:
        note = "this policy keeps no values" if choices else NO_DECISION
        return {"data": [], "layout": with_note(layout, note)}, _VALUES
    newest = max(described, key=lambda choice: choice.step)
    rows = len(newest.values) // len(WINDOWS)
    names = ["even", *(f"most for part {owner}" for owner in _others(newest.part, rows))]
    grid = [list(newest.values[row * len(WINDOWS) : (row + 1) * len(WINDOWS)]) for row in range(rows)]
    known = [value for row in grid for value in row if value is not None]
    if not known:
        return {"data": [], "layout": with_note(layout, "this policy keeps no values")}, _VALUES
    low, high = min(known) + 0.0, max(known) + 0.0  # -0 becomes 0
    span = (high - low) or abs(low) or 1.0
    layout["title"] = {**layout["title"], "text": f"What part {newest.part} thinks each action is worth"}
    layout["xaxis"] |= {
        "tickvals": list(range(len(WINDOWS))),
        "ticktext": list(map(str, WINDOWS)),
        "showgrid": False,
        "range": [-0.5, len(WINDOWS) - 0.5],
    }
    layout["yaxis"] |= {
        "tickvals": list(range(rows)),
        "ticktext": names,
        "range": [rows - 0.5, -0.5],
        "showgrid": False,
    }
    trace = {
        "type": "heatmap",
        "name": "value",
        "x": list(range(len(WINDOWS))),
        "y": list(range(rows)),
        "z": [[_short(value) for value in row] for row in grid],
        "zmin": _short(low - _PALE * span),
        "zmax": _short(high),
        "colorscale": [list(stop) for stop in HEAT_SCALES["owned"]],
        "colorbar": colour_bar("value"),
        "xgap": 2,
        "ygap": 2,
        "customdata": [[f"W {window}, {name}" for window in WINDOWS] for name in names],
        "hovertemplate": "%{customdata}: %{z:.4~g}<extra></extra>",
    }
    row, column = divmod(newest.action, len(WINDOWS))
    layout["shapes"] = [
        {
            "type": "rect",
            "xref": "x",
            "yref": "y",
            "x0": column - 0.47,
            "x1": column + 0.47,
            "y0": row - 0.47,
            "y1": row + 0.47,
            "line": {"color": MARK_COLOUR if newest.greedy else WARNING_COLOUR, "width": 3},
        }
    ]
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
            "text": f"{value + 0.0:.3g}",
            "x": column,
            "y": row,
            "xref": "x",
            "yref": "y",
            "showarrow": False,
            "font": {"size": 9, "color": "white" if value > low + _DARK * ((high - low) or 1.0) else TEXT_COLOUR},
        }
        for row, values in enumerate(grid)
        for column, value in enumerate(values)
        if value is not None
    ]


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
        "Decisions",
        STEP,
        "W (steps between rebuilds)",
        showlegend=True,
        **marks.over_steps(span),
        yaxis={
            "tickvals": list(range(len(WINDOWS))),
            "ticktext": list(map(str, WINDOWS)),
            "range": [-0.6, len(WINDOWS) - 0.4],
        },
    )
    if not shown:
        return {"data": [], "layout": with_note(layout, NO_DECISION)}, _ACTIONS
    data: list[dict[str, Any]] = []
    for biased in sorted({choice.biased for choice in shown}):
        found = [choice for choice in shown if choice.biased == biased]
        name = "even" if biased < 0 else f"most for part {biased}"
        colour = series_colour(7 if biased < 0 else biased)
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [choice.step for choice in found],
                # parts decide at the same steps: a little apart, else one hides the others
                "y": [_place(choice.window) + 0.09 * (choice.part % 4 - 1.5) for choice in found],
                "marker": {
                    "color": colour,
                    "size": 6,
                    "symbol": ["circle" if choice.greedy else "x-thin-open" for choice in found],
                },
                "customdata": [
                    f"part {choice.part}: W {choice.window}" + ("" if choice.greedy else ", drawn") for choice in found
                ],
                "hovertemplate": "step %{x}, %{customdata}<extra>" + name + "</extra>",
            }
        )
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
        title or "Regret against the clairvoyant",
        f"{per} of the trace",
        "joules beyond the optimum",
        showlegend=True,
        yaxis={"rangemode": "tozero"},
    )
    known = {name: each for name, each in regrets.items() if len(each)}
    if not known:
        return {"data": [], "layout": with_note(layout, "no policy was compared yet")}, _REGRET
    data = []
    for index, (name, each) in enumerate(known.items()):
        stride = max(1, -(-len(each) // _POINTS))
        places = [*range((len(each) - 1) % stride, len(each), stride)]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": [at + 1 for at in places],
                "y": [_short(float(each[at])) for at in places],
                "line": {"color": series_colour(index), "width": 2},
                "hovertemplate": f"{per} %{{x}}: %{{y:.4~g}} J<extra>{name}</extra>",
            }
        )
    ends = sorted((float(each[-1]), name) for name, each in known.items())
    described = [f"{name} {format_joules(end)}" for end, name in ends]
    return {"data": data, "layout": layout}, f"In the end: {join_words(described)}. {_REGRET}"


_REGRET = "Flat: as good as hindsight; steep: this is where it loses."


def _short(value: float | None) -> float | None:
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
            actions_panel({(_ASKER,): chosen} if chosen else {}, congestion, Marks())[0],
            f"Shaded: links are slow, the stronger the slower. At step {now}: {slow or 'nothing is added'}.",
        ),
        (
            estimates_panel({(_ASKER,): received} if received else {}, congestion, Marks())[0],
            "What a policy hears: medians of the last 30 calls. Of a throttled link it hears how long its bytes take. "
            "Dashed: delays that are added.",
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
