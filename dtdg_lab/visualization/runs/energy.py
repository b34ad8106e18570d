"""Energy since the start by rank, and by phase; what is unknown is a gap, never zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np

from dtdg_lab.config.record_tables import BETWEEN_STEPS, PHASES
from dtdg_lab.core.units import join_words
from dtdg_lab.energy.phases import IDLE, STALL, STALLED
from dtdg_lab.energy.total import MEASURED, STEPS, EnergyTotal, Stream, stream_of
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array, Rows, known
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.axes import NAMES
from dtdg_lab.visualization.changes.marks import with_changes
from dtdg_lab.visualization.chart import (
    FIRST_SECOND,
    NOTHING_YET,
    SECONDS_TITLE,
    Chart,
    ChartOptions,
    Figure,
    Key,
    card,
)
from dtdg_lab.visualization.numbers import joules_text, percent_text, three_digits
from dtdg_lab.visualization.palette import (
    INK_COLOUR,
    PHASE_COLOURS,
    STEP_COLOUR,
    WARNING_COLOUR,
    series_colour,
    translucent,
)
from dtdg_lab.visualization.runs.step_time import PHASE_NAMES, TEXT_COLOURS, merge_small
from dtdg_lab.visualization.runs.timeline import is_over
from dtdg_lab.visualization.traces import Attributes, label, level_bars, line

TITLE = "Energy"
UNKNOWN = "Energy is unknown: this machine neither measures nor models it."
UNKNOWN_NOTE = "Energy is unknown on this machine"
STREAM = ("attempt", "node", "device", "reader", "scope", "rank", "source")
READINGS = Rollup(
    "energy",
    by=STREAM,
    sums=("joules", "interval_s"),
    least=("time_ns",),
    most=("seconds", "time_ns"),
    last=("watts",),
    along="seconds",
    width=0.25,
    points=60,
    all_attempts=True,  # joules of lost steps were spent
)
OF_STEPS = ("attempt", "rank", "energy_source")
STEP_JOULES = Rollup(
    "steps",
    by=OF_STEPS,
    sums=("energy_j", "time_s"),
    most=("seconds", "time_ns"),
    along="seconds",
    width=0.25,
    points=60,
    all_attempts=True,
)
FINE_READINGS, FINE_STEP_JOULES = (replace(rollup, points=1_000, width=1e-3) for rollup in (READINGS, STEP_JOULES))
POINTS = 150  # of a curve
GAP_S, GAP_SHARE = 2.0, 0.02  # seconds, and share of the run, from which time without a reading is a gap
MISSING, SETTLED_S = 0.05, 20.0  # share of unknown time from which it is said, once the first readings are there
AREAS = 6  # ranks up to which each has an area
KILO = 1e4  # joules from which charts are in kJ
NAME_ROOM = 0.14  # of the chart's height, for a name at the right end


@dataclass(frozen=True, slots=True)
class Readings:
    """Readings of one device by one reader, in all attempts.

    Attributes:
        name: whose joules they are: of a rank, or of a machine.
        begins: seconds of training at which a stretch that was read begins.
        ends: likewise.
        joules: of each stretch.
    """

    name: str
    begins: Array
    ends: Array
    joules: Array

    def so_far(self, seconds: Array) -> Array:
        """Return the joules until these seconds of training; in a gap as many as before it."""
        total = self.joules.cumsum()
        total_before = np.concatenate([[0.0], total[:-1]])
        begins = np.maximum(self.begins, np.concatenate([self.begins[:1], self.ends[:-1]]))  # stretches may overlap
        times = np.maximum.accumulate(np.stack([begins, self.ends], axis=1).ravel())
        return np.interp(seconds, times, np.stack([total_before, total], axis=1).ravel())

    def until(self, seconds: Array, end: float) -> Array:
        """Return the joules until these seconds; NaN in gaps between stretches.

        Args:
            seconds: of training.
            end: of the run.
        """
        values = self.so_far(seconds)
        gaps = zip(np.concatenate([[0.0], self.ends]).tolist(), [*self.begins.tolist(), end], strict=True)
        for begin, until in gaps:
            if until - begin > max(GAP_S, GAP_SHARE * end):
                values[(seconds > begin) & (seconds < until)] = np.nan
        return values


def energy_total(tables: RunTables) -> EnergyTotal:
    """Return the joules of a run, each device counted once."""

    def total() -> EnergyTotal:
        energy = EnergyTotal()
        for stream, rows in _streams(tables).items():
            sums, count = _sums(rows, "joules", "interval_s"), float(rows["interval_s_known"].sum())
            first = {
                "time_ns": int(rows["time_ns_least"].min()),
                "interval_s": (sums["interval_s"] or 0.0) / (count or 1),
            }
            energy.add(stream.rank, stream.attempt, {**stream._asdict(), **first, "joules": None})  # when it began
            energy.add(stream.rank, stream.attempt, {**stream._asdict(), **sums})
        for (attempt, rank, source), rows in _step_streams(tables).items():
            sums = _sums(rows, "energy_j", "time_s")
            energy.step(int(rank), int(attempt), {**sums, "energy_source": source})
        return energy

    return tables.once("energy total", total)


def joules_so_far(tables: RunTables) -> float | None:
    """Return the joules of all devices so far; None where none are known."""
    by_source = energy_total(tables).joules()
    return sum(by_source.values()) if by_source else None


def watts_now(tables: RunTables) -> float | None:
    """Return the newest power of all devices together; None where it is unknown, or training has ended."""
    streams = energy_total(tables).streams()
    if not streams or is_over(tables):
        return None
    attempt, rows = max(stream.attempt for stream in streams), _streams(tables)
    newest = [rows[stream]["watts"][-1] for stream in streams if stream.attempt == attempt and stream in rows]
    watts = [float(power) for power in newest if power is not None and np.isfinite(power)]
    return sum(watts) if watts else None


def energy_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return joules since the start over seconds of training, stacked by rank; of many ranks their sum."""
    readings = readings_of(tables)
    if not readings:
        empty = UNKNOWN_NOTE if tables.seconds >= SETTLED_S else FIRST_SECOND
        return card([], TITLE, unit="J, all ranks", x_title=SECONDS_TITLE, empty=empty)
    end = max(float(reading.ends[-1]) for reading in readings)
    seconds = np.linspace(0.0, end, POINTS + 1)
    by_name: dict[str, Array] = {}
    for reading in readings:
        by_name[reading.name] = by_name.get(reading.name, 0.0) + reading.until(seconds, end)
    if len(by_name) > AREAS:
        by_name = {"all ranks": np.sum(list(by_name.values()), axis=0)}
    unit, factor = ("kJ", 1e3) if sum(float(reading.joules.sum()) for reading in readings) >= KILO else ("J", 1.0)
    data: list[Attributes] = []
    notes, lower = [], np.zeros(len(seconds))
    for index, (name, joules) in enumerate(by_name.items()):
        upper = lower + joules / factor
        colour = series_colour(index) if len(by_name) > 1 else STEP_COLOUR
        data += _area(name, seconds, (lower, upper), joules, colour)
        middle = 0.5 * (lower + upper)[np.isfinite(upper)]
        notes.append((name, colour, float(middle[-1]) if len(middle) else 0.0))
        lower = upper
    top = float(np.nanmax(lower)) if np.isfinite(lower).any() else 1.0
    axes: Attributes = {
        "xaxis": {"range": [0, end * 1.005]},
        "yaxis": {"range": [0, 1.05 * top or 1.0], "nticks": 4, "tickformat": ",.4~g"},
    }
    many: Attributes = {"margin": {"r": 68}, "annotations": _names(notes, top)} if len(by_name) > 1 else {}
    kinds = sorted({"measured" if source in MEASURED else source for source in energy_total(tables).joules()})
    titles: Attributes = {"unit": f"{unit}, all ranks, {join_words(kinds)}", "x_title": SECONDS_TITLE}
    figure = card(data, TITLE, **titles, **axes, **many)
    return with_changes(figure, tables, "seconds", 0.0, end * 1.005)


def energy_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return what was used so far and is drawn now, or what is unknown."""
    joules = joules_so_far(tables)
    if joules is None:
        return UNKNOWN if tables.seconds >= SETTLED_S else NOTHING_YET
    missing = (energy_total(tables).coverage() or {}).get("unknown", 0.0)
    if missing >= MISSING and tables.seconds >= SETTLED_S:
        return f"Energy is known for {percent_text(1 - missing)} of the time; the rest is missing."
    watts, ranks = watts_now(tables), tables.ranks
    who = "The only rank has" if ranks == 1 else f"{'Both' if ranks == 2 else 'All'} ranks have"
    power_text = "" if watts is None else f" and draw{'s' if ranks == 1 else ''} {three_digits(watts)} W now"
    return f"{who} used {joules_text(joules)}{power_text}."


def energy_chart() -> Chart:
    """Return the chart of energy, which every run has."""
    return Chart(
        name="energy",
        title=TITLE,
        figure=energy_figure,
        caption=energy_caption,
        section="common",
        rollups=(READINGS, STEP_JOULES),
        help="Joules since the start, each device once. A gap is time in which nothing was read.",
    )


def _streams(tables: RunTables, rollup: Rollup = READINGS) -> dict[Stream, Rows]:
    """Return the readings of each reader and device."""

    def by_stream() -> dict[Stream, Rows]:
        grouped = _grouped(tables.rollup(rollup), STREAM)
        rows = {key: dict(zip(STREAM, key, strict=True)) for key in grouped}
        return {stream_of(row["rank"], row["attempt"], row): grouped[key] for key, row in rows.items()}

    return tables.once(("energy streams", rollup), by_stream)


def _step_streams(tables: RunTables, rollup: Rollup = STEP_JOULES) -> dict[tuple[Any, ...], Rows]:
    """Return the joules of steps by attempt, rank and source; none where all ranks have readings, as they mostly do."""

    def by_stream() -> dict[tuple[Any, ...], Rows]:
        with_readings = {stream.rank for stream in _streams(tables)}
        return _grouped(tables.rollup(rollup), OF_STEPS) if set(tables.steps) - with_readings else {}

    return tables.once(("energy of steps", rollup), by_stream)


def _grouped(rows: Rows, by: Sequence[str]) -> dict[tuple[Any, ...], Rows]:
    """Return the rows with each combination of values."""
    index: dict[tuple[Any, ...], int] = {}
    keys = zip(*(known(rows[name]) for name in by), strict=True) if len(rows) else ()
    indices = np.array([index.setdefault(key, len(index)) for key in keys], np.int64)
    return {key: rows.where(indices == number) for key, number in index.items()}


def _sums(rows: Rows, *names: str) -> dict[str, Any]:
    """Return the sums over all buckets, None where nothing is known, and when the last row was made."""
    sums = {name: float(rows[name].sum()) if rows[f"{name}_known"].any() else None for name in names}
    return {**sums, "time_ns": int(rows["time_ns_most"].max())}


def readings_of(tables: RunTables, energy: Rollup = READINGS, of_steps: Rollup = STEP_JOULES) -> list[Readings]:
    """Return the readings that add up to the run's joules, those of ranks first.

    Args:
        tables: of the run.
        energy: sums of the table ``energy``, coarse or fine.
        of_steps: likewise of the joules in ``steps``.
    """
    streams = sorted(energy_total(tables).streams(), key=lambda stream: (stream.scope != "rank", stream.rank))
    series: dict[tuple[str, str, str], list[Rows]] = {}
    readings, steps = _streams(tables, energy), _step_streams(tables, of_steps)
    for stream in streams:
        in_steps = stream.reader == STEPS
        rows = steps[stream.attempt, stream.rank, stream.source] if in_steps else readings[stream]
        series.setdefault((_owner(stream, streams), stream.device, stream.reader), []).append(rows)
    return [_joined(name, rows) for (name, *_), rows in series.items()]


def _owner(stream: Stream, streams: Sequence[Stream]) -> str:
    """Return whose joules a stream has."""
    if stream.scope == "rank":
        return f"rank {stream.rank}"
    machines = sorted({candidate.node for candidate in streams if candidate.scope != "rank"})
    return "machine" if len(machines) == 1 else f"machine {machines.index(stream.node)}"


def _joined(name: str, parts: Sequence[Rows]) -> Readings:
    joules, lasted = ("joules", "interval_s") if "joules" in parts[0] else ("energy_j", "time_s")
    rows = [part.where(part[f"{joules}_known"] > 0) for part in parts]
    ends = np.concatenate([part["seconds_most"] for part in rows])
    order = np.argsort(ends, kind="stable")
    begins = ends - np.concatenate([part[lasted] for part in rows])
    values = np.concatenate([part[joules] for part in rows])
    return Readings(name, np.maximum(begins, 0.0)[order], ends[order], values[order])


def _area(name: str, seconds: Array, bounds: tuple[Array, Array], joules: Array, colour: str) -> list[Attributes]:
    """Return an area between two curves, in pieces where they have gaps, and the curve on top of it."""
    lower, upper = bounds
    x: list[float | None] = []
    y: list[float | None] = []
    is_known = np.isfinite(upper) & np.isfinite(lower)
    for piece in np.split(np.arange(len(seconds)), np.flatnonzero(np.diff(is_known.astype(int))) + 1):
        if is_known[piece[0]]:
            outline = [*seconds[piece].tolist(), *seconds[piece[::-1]].tolist()]
            x += [*(round(second, 3) for second in outline), None]
            y += [*upper[piece].round(3).tolist(), *lower[piece[::-1]].round(3).tolist(), None]
    fill: Attributes = {
        "fill": "toself",
        "fillcolor": translucent(colour, 0.35),
        "width": 0,
        "mode": "lines",
        "hoverinfo": "skip",
    }
    texts = [joules_text(value) for value in joules.tolist()]
    top = known(upper.round(3))
    hover = f"{name}: %{{customdata}} until %{{x:.3~g}} s<extra></extra>"
    return [
        line(name, x, y, colour, **fill),
        line(name, seconds.round(3).tolist(), top, colour, hover, width=1, mode="lines", customdata=texts),
    ]


def _names(notes: Sequence[tuple[str, str, float]], top: float) -> list[Attributes]:
    """Return the names at the right end, moved apart."""
    placed: Attributes = {"xref": "paper", "xanchor": "left", "xshift": 3}
    room, lowest, names = NAME_ROOM * top, 0.0, []
    for name, colour, y in notes:
        lowest = max(y, lowest)
        names.append(label(f'<span style="color:{colour}">●</span> {name}', 1, lowest, **placed))
        lowest += room
    return names


PHASES_TITLE = "Energy by phase"
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
) -> tuple[list[Attributes], list[Key]]:
    """Return stacked level bars of amounts by phase, and the keys of the phases.

    Args:
        bars: name of a bar -> phase -> amount, as drawn.
        unit: for hover texts, with the space before it.
        digits: after the point.
        named_from: amount from which a part of a bar has the name of its phase.
    """
    data, keys = list[Attributes](), list[Key]()
    for phase in phases_in_order(bars):
        colour, name = ENERGY_COLOURS.get(phase, "#8A9099"), ENERGY_NAMES.get(phase, phase)
        values = [round(phases.get(phase, 0.0), digits) for phases in bars.values()]
        style: Attributes = {"marker": {"color": colour, "line": {"width": 0}}}
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
        return card([], PHASES_TITLE, unit="J", empty=empty)
    bars = merge_small(by_rank if len(by_rank) <= BARS else {"all ranks": total})
    unit, factor = ("kJ", 1e3) if total.total() >= KILO else ("J", 1.0)
    amounts = {name: {phase: joules / factor for phase, joules in phases.items()} for name, phases in bars.items()}
    data, keys = phase_bars(amounts, f" {unit}")
    axes: Attributes = {"xaxis": {"rangemode": "tozero"}, "yaxis": NAMES, "barmode": "stack", "bargap": 0.3}
    return card(data, PHASES_TITLE, unit=unit, keys=keys, **axes)


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
        title=PHASES_TITLE,
        figure=energy_by_phase_figure,
        caption=energy_by_phase_caption,
        section="folded",
        rollups=(PHASE_JOULES,),
        help="Joules since the start. Hatched: joules that were spent standing still.",
    )
