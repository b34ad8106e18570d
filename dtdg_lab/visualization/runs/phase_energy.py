"""Energy by phase: joules of each rank, stacked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from dtdg_lab.config.record_tables import BETWEEN_STEPS, PHASES
from dtdg_lab.energy.phases import IDLE, STALL, STALLED
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.visualization.axes import NAMES
from dtdg_lab.visualization.chart import (
    FIRST_SECOND,
    NOTHING_YET,
    Chart,
    ChartOptions,
    Key,
    card,
)
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.palette import PHASE_COLOURS, WARNING_COLOUR
from dtdg_lab.visualization.runs.step_time import PHASE_NAMES, merge_small
from dtdg_lab.visualization.traces import Drawn, level_bars

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables
from math import inf

from dtdg_lab.visualization.palette import INK_COLOUR
from dtdg_lab.visualization.runs.energy import KILO, SETTLED_S, UNKNOWN, UNKNOWN_NOTE
from dtdg_lab.visualization.runs.step_time import TEXT_COLOURS

TITLE = "Energy by phase"
PHASE_JOULES = Rollup(
    "phase_energy", by=("rank", "phase", "source"), sums=("joules", "seconds"), along="", all_attempts=True
)
IDLE_COLOUR = "#DDE2E8"
PHASE_ORDER = (*(phase for phase in PHASES if phase not in STALLED), *BETWEEN_STEPS, IDLE, *STALLED)
ENERGY_COLOURS: Mapping[str, str] = MappingProxyType({**PHASE_COLOURS, IDLE: IDLE_COLOUR, STALL: WARNING_COLOUR})
ENERGY_NAMES: Mapping[str, str] = MappingProxyType(
    {**PHASE_NAMES, "wait": "wait for ranks", STALL: "wait for features", IDLE: "idle"}
)
BARS = 24  # ranks up to which each has a bar


def joules_by_phase(tables: RunTables) -> dict[int, Counter[str]]:
    """Return the joules so far by rank and phase; those of lost steps were spent too."""

    def by_rank() -> dict[int, Counter[str]]:
        rows = tables.rollup(PHASE_JOULES)
        joules: dict[int, Counter[str]] = {}
        for row in rows.where(rows["joules_known"] > 0).to_dicts("rank", "phase", "joules") if len(rows) else ():
            joules.setdefault(row["rank"], Counter())[row["phase"]] += row["joules"]
        return dict(sorted(joules.items()))

    return tables.once("joules by phase", by_rank)


def phases_in_order(bars: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the phases of some bars as they are stacked."""
    present = {phase for phases in bars.values() for phase in phases}
    return [*(phase for phase in PHASE_ORDER if phase in present), *sorted(present - set(PHASE_ORDER))]


def phase_bars(
    bars: Mapping[str, Mapping[str, float]], unit: str, *, digits: int = 4, named_from: float = inf
) -> tuple[list[Drawn], list[Key]]:
    """Return stacked level bars of amounts by phase, and the keys of the phases.

    Args:
        bars: name of a bar -> phase -> amount, as drawn.
        unit: for hover texts, with the space before it.
        digits: after the point.
        named_from: amount from which a part of a bar has the name of its phase.
    """
    data, keys = list[Drawn](), list[Key]()
    for phase in phases_in_order(bars):
        colour, name = ENERGY_COLOURS.get(phase, "#8A9099"), ENERGY_NAMES.get(phase, phase)
        values = [round(phases.get(phase, 0.0), digits) for phases in bars.values()]
        style: Drawn = {"marker": {"color": colour, "line": {"width": 0}}}
        if phase in STALLED:
            style["marker"]["pattern"] = {"shape": "/", "size": 6, "solidity": 0.35}
        if named_from < inf:
            style["text"] = [name if value >= named_from else "" for value in values]
            style |= {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
            style["textfont"] = {"size": 10.5, "color": TEXT_COLOURS.get(phase, INK_COLOUR)}
        data.append(
            level_bars(name, list(bars), values, None, f"%{{y}}: {name} %{{x:.3~g}}{unit}<extra></extra>", **style)
        )
        keys.append((name, colour, "hatch" if phase in STALLED else "box"))
    return data, keys


def energy_by_phase_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a bar for each rank, its joules stacked by phase; of many ranks one bar."""
    by_rank = {f"rank {rank}": phases for rank, phases in joules_by_phase(tables).items()}
    total = sum(by_rank.values(), Counter[str]())
    if not total:
        empty = UNKNOWN_NOTE if tables.seconds >= SETTLED_S else FIRST_SECOND
        return card([], TITLE, unit="J", empty=empty)
    bars = merge_small(by_rank if len(by_rank) <= BARS else {"all ranks": total})
    unit, factor = ("kJ", 1e3) if total.total() >= KILO else ("J", 1.0)
    amounts = {name: {phase: joules / factor for phase, joules in phases.items()} for name, phases in bars.items()}
    data, keys = phase_bars(amounts, f" {unit}")
    axes: Drawn = {"xaxis": {"rangemode": "tozero"}, "yaxis": NAMES, "barmode": "stack", "bargap": 0.3}
    return card(data, TITLE, unit=unit, keys=keys, **axes)


def energy_by_phase_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return which phase took most of the energy."""
    total = sum(joules_by_phase(tables).values(), Counter[str]())
    if not total:
        return UNKNOWN if tables.seconds >= SETTLED_S else NOTHING_YET
    ((phase, joules),) = total.most_common(1)
    return f"{ENERGY_NAMES.get(phase, phase).capitalize()} took {percent_text(joules / total.total())} of the energy."


def energy_by_phase_chart() -> Chart:
    """Return the chart of energy by phase, which is folded."""
    return Chart(
        name="energy_by_phase",
        title=TITLE,
        figure=energy_by_phase_figure,
        caption=energy_by_phase_caption,
        place="folded",
        rollups=(PHASE_JOULES,),
        help="Joules since the start. Hatched: joules that were spent standing still.",
    )
