"""Joules of several methods beside each other: by phase, against their own clean runs, and as a table.

Rows are mappings, one for each run: ``method``; ``condition``, such as ``clean`` or ``congested``; ``dataset``;
``seed``; ``joules``, of the whole run, None where unknown; and where known ``phases``, phase -> joules; ``cpu_j``,
``gpu_j``; ``epoch_s``; ``batch_size``; ``source`` of the joules. Rows of one method, condition and data
set are seeds of one bar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from dtdg_lab.core.units import format_joules
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, join_words, with_note
from dtdg_lab.views.palette import TEXT_COLOUR, series_colour
from dtdg_lab.views.phase_energy import ENERGY_COLOURS, NAMES, ORDER

Row = Mapping[str, Any]
Panel = tuple[Figure, str]
CLEAN = "clean"
NO_RUN = "no run has told its energy yet"
UNKNOWN_PHASE = "not told apart"
_ALL = "#9FC3DC"  # of joules whose phase is not known
_BAR = 0.65  # of the room of a method, for the bars of all conditions
_FEW = 5e-3  # share under which two sums are called equal


def energy_by_method_figure(rows: Sequence[Row], *, title: str = "Energy by method") -> Figure:
    """One panel of stacked phases for each condition, and what congestion adds to each method (Figures 4 to 6)."""
    conditions = list(dict.fromkeys(str(row.get("condition", CLEAN)) for row in rows)) or [CLEAN]
    panels = [energy_panel(rows, condition) for condition in conditions]
    if len(conditions) > 1 and CLEAN in conditions:
        panels.append(overhead_panel(rows))
    return grid(panels, title=title, columns=min(2, len(panels)))


def energy_panel(rows: Sequence[Row], condition: str = CLEAN) -> Panel:
    """Joules of a run by method, stacked by phase, with the spread of the seeds (Figures 4 and 6).

    Args:
        rows: see the module; those of other conditions are left out.
        condition: that is shown.
    """
    found = _cells([row for row in rows if str(row.get("condition", CLEAN)) == condition])
    names = list(found)
    highest = max((_mean(each, "joules") or 0.0 for each in found.values()), default=0.0)
    unit, factor = ("kJ", 1e3) if highest >= 1e4 else ("J", 1.0)
    layout = frame(
        f"Energy, {condition}", "", f"energy of a run ({unit})", barmode="stack", bargap=0.35, showlegend=True,
        yaxis={"rangemode": "tozero"}, xaxis={"showgrid": False},
    )  # fmt: skip
    if not highest:
        return {"data": [], "layout": with_note(layout, NO_RUN)}, _ENERGY
    data: list[dict[str, Any]] = []
    by_phase = {name: _phases(each) for name, each in found.items()}
    told = {phase for phases in by_phase.values() for phase in phases}
    for phase in [*(known for known in ORDER if known in told), *sorted(told - set(ORDER))]:
        data.append({
            "type": "bar", "name": NAMES.get(phase, phase), "x": names,
            "y": [round(by_phase[name].get(phase, 0.0) / factor, 4) for name in names],
            "marker": {"color": ENERGY_COLOURS.get(phase, _ALL), "line": {"width": 0.4, "color": "#8A9099"}},
            "hovertemplate": "%{x}: %{y:.4~g} " + unit + "<extra>" + phase + "</extra>",
        })  # fmt: skip
    data.append(_spread(found, factor, unit))
    layout["annotations"] = [
        {"text": format_joules(mean), "x": name, "y": (mean or 0.0) / factor, "xref": "x", "yref": "y",
         "yanchor": "bottom", "yshift": 6, "showarrow": False, "font": {"size": 10, "color": TEXT_COLOUR}}
        for name, mean in ((name, _mean(each, "joules")) for name, each in found.items())
    ]  # fmt: skip
    return {"data": data, "layout": layout}, _energy_words(found)


_ENERGY = "Waiting, stalls and idling are joules for nothing."


def _cells(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Runs by method, with the data set where there are several, in the order in which they came."""
    several = len({row.get("dataset") for row in rows}) > 1
    found: dict[str, list[Row]] = {}
    for row in rows:
        name = f"{row['method']}, {row.get('dataset')}" if several else str(row["method"])
        found.setdefault(name, []).append(row)
    return found


def _known(rows: Sequence[Row], column: str) -> list[float]:
    return [float(row[column]) for row in rows if row.get(column) is not None]


def _mean(rows: Sequence[Row], column: str) -> float | None:
    """Mean over the seeds; None where no seed knows it."""
    values = _known(rows, column)
    return fmean(values) if values else None


def _phases(rows: Sequence[Row]) -> dict[str, float]:
    """Mean joules by phase; what no phase was told of is apart."""
    known = [row for row in rows if row.get("joules") is not None]
    sums: dict[str, float] = {}
    for row in known:
        phases = {name: float(value) for name, value in (row.get("phases") or {}).items() if value is not None}
        rest = float(row["joules"]) - sum(phases.values())
        if rest > _FEW * float(row["joules"]):
            phases[UNKNOWN_PHASE] = rest
        for name, value in phases.items():
            sums[name] = sums.get(name, 0.0) + value / len(known)
    return sums


def _spread(found: Mapping[str, Sequence[Row]], factor: float, unit: str) -> dict[str, Any]:
    """From the least to the most of the seeds, as a line on every bar."""
    means = {name: _mean(rows, "joules") for name, rows in found.items()}
    known = [name for name, mean in means.items() if mean is not None]
    ends = {name: (min(_known(found[name], "joules")), max(_known(found[name], "joules"))) for name in known}
    return {
        "type": "scatter", "mode": "markers", "name": "seeds", "showlegend": False, "x": known,
        "y": [round((means[name] or 0.0) / factor, 4) for name in known], "marker": {"size": 1, "color": TEXT_COLOUR},
        "error_y": {
            "type": "data", "symmetric": False, "thickness": 1.2, "color": TEXT_COLOUR,
            "array": [round((ends[name][1] - (means[name] or 0.0)) / factor, 4) for name in known],
            "arrayminus": [round(((means[name] or 0.0) - ends[name][0]) / factor, 4) for name in known],
        },
        "hovertemplate": "%{x}: %{y:.4~g} " + unit + "<extra>all phases</extra>",
    }  # fmt: skip


def _energy_words(found: Mapping[str, Sequence[Row]]) -> str:
    means = {name: mean for name, rows in found.items() if (mean := _mean(rows, "joules")) is not None}
    unknown = [name for name in found if name not in means]
    least, most = min(means, key=lambda name: means[name]), max(means, key=lambda name: means[name])
    text = f"{least} needs least, {format_joules(means[least])}"
    if most != least:
        text += f", {100 * (1 - means[least] / means[most]):.0f} % less than {most}"
    sources = {str(row["source"]) for rows in found.values() for row in rows if row.get("source")}
    how = f" Joules are {join_words(sorted(sources))}." if sources else ""
    lost = f" Unknown: {join_words(unknown)}." if unknown else ""
    return f"{text}.{how}{lost} {_ENERGY}"


def overheads(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """By method, then condition: joules over those of the method's own clean runs, less 1; known ones only."""
    by_condition: dict[str, dict[str, list[Row]]] = {}
    several = len({row.get("dataset") for row in rows}) > 1
    for row in rows:
        name = f"{row['method']}, {row.get('dataset')}" if several else str(row["method"])
        by_condition.setdefault(name, {}).setdefault(str(row.get("condition", CLEAN)), []).append(row)
    found: dict[str, dict[str, float]] = {}
    for name, conditions in by_condition.items():
        clean = _mean(conditions.get(CLEAN, ()), "joules")
        for condition, each in conditions.items():
            mean = _mean(each, "joules")
            if condition != CLEAN and clean and mean is not None:
                found.setdefault(name, {})[condition] = mean / clean - 1
    return found


def overhead_panel(rows: Sequence[Row]) -> Panel:
    """What congestion adds to each method's energy, against its own clean runs (Figure 5)."""
    found = overheads(rows)
    layout = frame(
        "What congestion adds", "", "energy over the clean run (%)", barmode="group", bargap=0.35, showlegend=True,
        yaxis={"rangemode": "tozero"}, xaxis={"showgrid": False},
    )  # fmt: skip
    if not found:
        note = "a clean run and a congested one are needed"
        return {"data": [], "layout": with_note(layout, note)}, _OVERHEAD
    conditions = list(dict.fromkeys(condition for each in found.values() for condition in each))
    data = [
        {
            "type": "bar", "name": condition, "x": [name for name in found if condition in found[name]],
            "y": [round(100 * found[name][condition], 2) for name in found if condition in found[name]],
            # with a base and places of their own they stand beside each other where other panels stack theirs
            "base": 0, "width": _BAR / len(conditions), "offset": _BAR * (index / len(conditions) - 0.5),
            "marker": {"color": series_colour(index)},
            "hovertemplate": "%{x}: %{y:+.1f} %<extra>" + condition + "</extra>",
        }
        for index, condition in enumerate(conditions)
    ]  # fmt: skip
    told = []
    for condition in conditions:
        added = {name: each[condition] for name, each in found.items() if condition in each}
        least, most = min(added, key=lambda name: added[name]), max(added, key=lambda name: added[name])
        told.append(f"{condition}, least for {least} ({100 * added[least]:+.0f} %), most for {most} "
                    f"({100 * added[most]:+.0f} %)")  # fmt: skip
    return {"data": data, "layout": layout}, f"Joules {'; '.join(told)}. {_OVERHEAD}"


_OVERHEAD = "Against each method's own clean runs: one that is wasteful anyway may look untouched by congestion."
