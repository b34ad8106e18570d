"""Time per step of each rank, by phase: who is slowest, and what it costs the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

import numpy as np

from dtdg_lab.config.record_tables import OWN_PHASES, PHASES
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.axes import NAMES
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Figure, Key, card
from dtdg_lab.visualization.numbers import percent_text, three_digits
from dtdg_lab.visualization.palette import INK_COLOUR, PHASE_COLOURS, TEXT_COLOUR
from dtdg_lab.visualization.traces import Attributes, level_bars

TITLE = "Time per step"
STEP_SECONDS = Rollup("steps", sums=("time_s",), points=60)  # of all ranks; the tile of the step time draws it
RECENT = 50  # steps that the bars are means of
PHASE_NAMES: Mapping[str, str] = MappingProxyType(
    {"batch": "prepare batch", "transfer": "fetch", "control": "other"}
    | {name: name for name in ("compute", "wait", "communicate", "update", "evaluate", "checkpoint", "rebuild")}
)
# colours of labels on dark phases; ``wait`` is light in the light theme only
TEXT_COLOURS: Mapping[str, str] = MappingProxyType(
    {"compute": "#FFFFFF", "control": "#FFFFFF", "checkpoint": "#FFFFFF", "wait": TEXT_COLOUR}
)
KEYED = 0.02  # share of a bar from which a phase has a colour and a name of its own
OTHER = "control"  # phases too small for a colour are added to this one
FETCHED = 0.1  # share of a rank's own time from which fetching is named
EVEN_RATIO = 1.05  # slowest rank over the mean up to which ranks are even
NAMED, ALL = 12, 48  # ranks up to which bars have texts, and up to which each has a bar
SLOWEST, FASTEST = 8, 2  # ranks that are drawn of more
PLOT_WIDTH, LETTER = 280, 6.4  # pixels


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Mean seconds of a rank's newest steps.

    Attributes:
        phases: phase -> seconds.
        time_s: of the whole step.
    """

    phases: Mapping[str, float]
    time_s: float

    @property
    def own_s(self) -> float:
        """Seconds of the rank's own work, with fetching: neither waiting nor exchanging."""
        return sum(self.phases[phase] for phase in OWN_PHASES)


def step_times(tables: RunTables) -> dict[int, StepTimes]:
    """Return the mean times of each rank over its newest 50 steps."""

    def times() -> dict[int, StepTimes]:
        by_rank = {}
        for rank, rows in tables.last("steps", RECENT).by("rank").items():
            phases = {phase: float(np.nan_to_num(rows[f"{phase}_s"].astype(np.float64)).mean()) for phase in PHASES}
            steps_s = rows["time_s"].astype(np.float64)
            known_s = steps_s[np.isfinite(steps_s)]
            phases_s = sum(phases.values())
            time_s = float(known_s.mean()) if len(known_s) else phases_s
            phases["control"] += max(0.0, time_s - phases_s)  # so that bars are as long as steps
            by_rank[rank] = StepTimes(phases, time_s)
        return by_rank

    return tables.once("step times", times)


def imbalance(times: Mapping[int, StepTimes]) -> float:
    """Return the own time of the slowest rank over the mean of all ranks; 1 is perfect balance."""
    own_times_s = [of_rank.own_s for of_rank in times.values()]
    return max(own_times_s) / fmean(own_times_s) if sum(own_times_s) > 0 else 1.0


def merge_small(bars: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return amounts by bar and phase, those of phases that are small in every bar as ``OTHER``.

    Every colour that is drawn can then be named.
    """
    named = {
        phase
        for phases in bars.values()
        for phase, amount in phases.items()
        if amount and amount >= KEYED * sum(phases.values())
    }
    merged = {}
    for name, phases in bars.items():
        merged[name] = {phase: amount for phase, amount in phases.items() if phase in named}
        small = sum(amount for phase, amount in phases.items() if phase not in named)
        if small:
            merged[name][OTHER] = merged[name].get(OTHER, 0.0) + small
    return merged


def step_time_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a bar for each rank, its phases stacked, in milliseconds."""
    times_by_rank = step_times(tables)
    bars = _bars_shown(times_by_rank)
    if not bars:
        return card([], TITLE, unit="ms")
    merged = merge_small({name: times.phases for name, times in bars.items()})
    longest = max(sum(phases.values()) for phases in merged.values())
    data, keys = [], []
    for phase in PHASES:
        seconds = [phases.get(phase, 0.0) for phases in merged.values()]
        if not any(seconds):
            continue
        key: Key = (PHASE_NAMES[phase], PHASE_COLOURS[phase], "box")
        keys.append((sum(seconds), key))
        style: Attributes = {"hovertemplate": f"%{{y}}: {PHASE_NAMES[phase]} %{{x:.3~g}} ms<extra></extra>"}
        if len(times_by_rank) <= NAMED:
            style["text"] = [_text(phase, phase_s, longest) for phase_s in seconds]
            style |= {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "constraintext": "none"}
            style["textfont"] = {"size": 11, "color": TEXT_COLOURS.get(phase, INK_COLOUR)}
        values = [round(1e3 * phase_s, 4) for phase_s in seconds]
        data.append(level_bars(PHASE_NAMES[phase], list(bars), values, PHASE_COLOURS[phase], **style))
    ordered = [key for _, key in sorted(keys, key=lambda pair: -pair[0])]
    axes: Attributes = {
        "xaxis": {"range": [0, 1.02e3 * longest or 1.0], "nticks": 6},
        "yaxis": {**NAMES, **({"dtick": 1, "tickfont": {"size": 10}} if len(times_by_rank) > ALL else {})},
    }
    return card(data, TITLE, unit="ms", keys=ordered, barmode="stack", bargap=0.3, margin={"t": 6}, **axes)


def step_time_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return which rank's own work takes longest, with what of it is fetching, and what it costs the others."""
    times = step_times(tables)
    if not times:
        return NOTHING_YET
    slowest = max(times, key=lambda rank: times[rank].own_s)
    mean_s = fmean(rank_times.own_s for rank_times in times.values())
    works = _work_text(times[slowest], "works", "fetches")
    if tables.ranks == 1:
        return f"The only rank {works} per step."
    if tables.own_steps:
        return f"Rank {slowest} is slowest: it {works} per step, but no rank waits for it."
    if times[slowest].own_s <= EVEN_RATIO * mean_s:
        whole_s = sum(rank_times.time_s for rank_times in times.values()) or 1.0
        waited = percent_text(sum(rank_times.phases["wait"] for rank_times in times.values()) / whole_s)
        mean = StepTimes(
            {phase: fmean(rank_times.phases[phase] for rank_times in times.values()) for phase in PHASES}, mean_s
        )
        return f"All ranks {_work_text(mean, 'work about', 'fetch')} per step, and wait {waited} of each step."
    fastest = min(times, key=lambda rank: times[rank].own_s)
    fastest_text = f"rank {fastest}, the fastest, {three_digits(1e3 * times[fastest].own_s)} ms"
    return f"Rank {slowest} is slowest: it {works} per step; {fastest_text}."


def _work_text(times: StepTimes, work: str, fetch: str) -> str:
    """Return how long a rank works, and how long it fetches where that is not little."""
    fetched_s = times.phases["transfer"]
    if fetched_s < FETCHED * times.own_s or not fetched_s:
        return f"{work} {three_digits(1e3 * times.own_s)} ms"
    worked = three_digits(1e3 * (times.own_s - fetched_s))
    return f"{fetch} {three_digits(1e3 * fetched_s)} ms and {work} {worked} ms"


def step_time_chart() -> Chart:
    """Return the chart of the time per step, which every run has."""
    return Chart(
        name="step_time",
        title=TITLE,
        figure=step_time_figure,
        caption=step_time_caption,
        section="common",
        rollups=(STEP_SECONDS,),
        help="Means of the last 50 steps, as in the tile. The slowest rank is the one that works and fetches longest.",
    )


def _bars_shown(times: Mapping[int, StepTimes]) -> dict[str, StepTimes]:
    """Return the ranks that are drawn by name; of very many the mean, the slowest and the fastest."""
    if len(times) <= ALL:
        return {f"rank {rank}": rank_times for rank, rank_times in times.items()}
    order = sorted(times, key=lambda rank: -times[rank].own_s)
    phases = {phase: fmean(rank_times.phases[phase] for rank_times in times.values()) for phase in PHASES}
    mean = StepTimes(phases, fmean(rank_times.time_s for rank_times in times.values()))
    extremes = {f"rank {rank}": times[rank] for rank in (*order[:SLOWEST], *order[-FASTEST:])}
    return {f"mean of {len(times)}": mean, **extremes}


def _text(phase: str, seconds: float, longest: float) -> str:
    """Return what fits into a block: the phase with its milliseconds, these alone, or nothing."""
    number = three_digits(1e3 * seconds)
    pixels = PLOT_WIDTH * seconds / longest if longest else 0.0
    fitting = (text for text in (f"{PHASE_NAMES[phase]} {number}", number) if pixels > LETTER * len(text) + 6)
    return next(fitting, "")
