"""The energy view: joules by rank since the start, each with its source; unknown is never 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.records import BETWEEN_STEPS, PHASES
from dtdg_lab.core.units import format_joules
from dtdg_lab.energy.phases import IDLE, STALL, STALLED
from dtdg_lab.visualization.charts import FROM_ZERO, Drawn, Panel, bars, chart, label, points, whiskers
from dtdg_lab.visualization.layout import join_words
from dtdg_lab.visualization.palette import PHASE_COLOURS, TEXT_COLOUR, WARNING_COLOUR

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables


Row = Mapping[str, Any]
_KILO = 1e4  # joules from which charts are in kJ


# The view of joules by phase and rank: what was spent on computing, what on waiting, and what is not known.


ORDER = (*(phase for phase in PHASES if phase not in STALLED), *BETWEEN_STEPS, IDLE, *STALLED)
ENERGY_COLOURS: Mapping[str, str] = MappingProxyType({**PHASE_COLOURS, IDLE: "#FFFFFF", STALL: WARNING_COLOUR})
NAMES: Mapping[str, str] = MappingProxyType({"wait": "wait for ranks", STALL: "wait for features"})


# Joules of several methods beside each other, by phase.
#
# Rows are mappings, one for each run: ``method``; ``condition``, such as ``clean`` or ``congested``; ``dataset``;
# ``seed``; ``joules``, of the whole run, None where unknown; and where known ``phases``, phase -> joules, and their
# ``source``. Rows of one method, condition and data set are seeds of one bar.


CLEAN = "clean"
NO_RUN = "no energy recorded for any run yet"
UNKNOWN_PHASE = "unattributed"
_ALL = "#9FC3DC"  # of joules whose phase is not known
_FEW = 5e-3  # share under which two sums are called equal


def energy_panel(rows: Sequence[Row], condition: str = CLEAN) -> Panel:
    """Joules of a run by method, stacked by phase, with the spread of the seeds (Figures 4 and 6).

    Args:
        rows: see the module; those of other conditions are left out.
        condition: that is shown.
    """
    found = _cells([row for row in rows if str(row.get("condition", CLEAN)) == condition])
    names = list(found)
    highest = max((_mean(each, "joules") or 0.0 for each in found.values()), default=0.0)
    unit, factor = ("kJ", 1e3) if highest >= _KILO else ("J", 1.0)
    titles = (f"Energy, {condition}", "", f"energy of a run ({unit})")
    looks: Drawn = {"barmode": "stack", "bargap": 0.35, "yaxis": FROM_ZERO, "xaxis": {"showgrid": False}}
    if not highest:
        return chart(*titles, [], empty=NO_RUN, showlegend=True, **looks), _ENERGY
    data = []
    by_phase = {name: _phases(each) for name, each in found.items()}
    described = {phase for phases in by_phase.values() for phase in phases}
    for phase in [*(known for known in ORDER if known in described), *sorted(described - set(ORDER))]:
        y = [round(by_phase[name][phase] / factor, 4) for name in names]
        marker: Drawn = {"color": ENERGY_COLOURS.get(phase, _ALL), "line": {"width": 0.4, "color": "#8A9099"}}
        hover = f"%{{x}}: %{{y:.4~g}} {unit}<extra>{phase}</extra>"
        data.append(bars(NAMES.get(phase, phase), names, y, None, hover, marker=marker))
    data.append(_spread(found, factor, unit))
    above: Drawn = {"yanchor": "bottom", "yshift": 6}
    notes = [
        label(format_joules(mean), name, (mean or 0.0) / factor, size=10, **above)
        for name, mean in ((name, _mean(each, "joules")) for name, each in found.items())
    ]
    return chart(*titles, data, showlegend=True, annotations=notes, **looks), _energy_words(found)


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


def _phases(rows: Sequence[Row]) -> Counter[str]:
    """Mean joules by phase; joules without a phase are listed separately."""
    known = [row for row in rows if row.get("joules") is not None]
    sums: Counter[str] = Counter()
    for row in known:
        phases = {name: float(value) for name, value in (row.get("phases") or {}).items() if value is not None}
        rest = float(row["joules"]) - sum(phases.values())
        if rest > _FEW * float(row["joules"]):
            phases[UNKNOWN_PHASE] = rest
        sums.update({name: value / len(known) for name, value in phases.items()})
    return sums


def _spread(found: Mapping[str, Sequence[Row]], factor: float, unit: str) -> dict[str, Any]:
    """From the least to the most of the seeds, as a line on every bar."""
    joules = {name: known for name, rows in found.items() if (known := _known(rows, "joules"))}
    low = [round(min(each) / factor, 4) for each in joules.values()]
    middle = [round(fmean(each) / factor, 4) for each in joules.values()]
    high = [round(max(each) / factor, 4) for each in joules.values()]
    looks: Drawn = {"showlegend": False, "error_y": whiskers(low, middle, high, TEXT_COLOUR)}
    hover = f"%{{x}}: %{{y:.4~g}} {unit}<extra>all phases</extra>"
    return points("seeds", list(joules), middle, TEXT_COLOUR, hover, size=1, **looks)


def _energy_words(found: Mapping[str, Sequence[Row]]) -> str:
    means = {name: mean for name, rows in found.items() if (mean := _mean(rows, "joules")) is not None}
    unknown = [name for name in found if name not in means]
    epochs = {name: _mean(found[name], "epochs") for name in means}
    text = ""
    if len(set(epochs.values())) > 1:  # a run that ended early is not the most economical
        text = "The runs stand at different epochs; of joules for one epoch: "
        means = {name: means[name] / each for name, each in epochs.items() if each}
        if not means:
            return f"No epoch has ended yet. {_ENERGY}"
    least, most = min(means, key=lambda name: means[name]), max(means, key=lambda name: means[name])
    text += f"{least} needs least, {format_joules(means[least])}"
    if most != least:
        text += f", {100 * (1 - means[least] / means[most]):.0f} % less than {most}"
    sources = {str(row["source"]) for rows in found.values() for row in rows if row.get("source")}
    how = f" Joules are {join_words(sorted(sources))}." if sources else ""
    lost = f" Unknown: {join_words(unknown)}." if unknown else ""
    return f"{text}.{how}{lost} {_ENERGY}"


# What runs have spent so far, as rows for :mod:`dtdg_lab.visualization.energy`.


SO_FAR = "so far"  # the condition of rows of runs that may go on
Labelled = Sequence[tuple[str, "RunTables"]]


def energy_rows(runs: Labelled) -> list[dict[str, Any]]:
    """One row for each labelled run: joules of its ranks together, by phase where known.

    A run whose energy is neither measured nor modelled has None. Joules by phase are logged a little later than the
    readings, so the phase of the newest joules of a running run is unknown.
    """
    return [_row(label, window) for label, window in runs]


def _row(label: str, window: RunTables) -> dict[str, Any]:
    by_source, by_phase = window.energy.joules(), window.phase_energy.by_phase()
    joules = max(sum(by_source.values()), by_phase.total()) if by_source or by_phase.total() else None
    return {
        "method": label,
        "condition": SO_FAR,
        "dataset": window.config.dataset,
        "joules": joules,
        "phases": dict(by_phase),
        "seed": window.config.seed,
        "epochs": window.progress.epoch,
        "source": join_words(sorted(by_source)) or None,
    }
