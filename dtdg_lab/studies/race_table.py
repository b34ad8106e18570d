"""The table of a race: medians and spreads over seeds, clear winners, and lower bounds of time and energy."""

from __future__ import annotations

import math
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dtdg_lab.config.options import OPTIONS, default
from dtdg_lab.config.record_tables import OWN_PHASES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.units import format_bytes, format_joules, format_seconds
from dtdg_lab.runs.html import render
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.runs.summary import SUMMARY_MEANINGS
from dtdg_lab.visualization.palette import coloured
from dtdg_lab.visualization.runs.curves import evaluations_of
from dtdg_lab.visualization.studies.race_bounds import Bound

RULE = (
    "Bold marks the best median if its range over the seeds does not overlap the range of any other contestant. With "
    "one seed, or for a contestant with a failed run, nothing is bold."
)


@dataclass(frozen=True, slots=True)
class Spread:
    """A quantity over the seeds of one contestant.

    Attributes:
        middle: the median; infinite if half of the seeds never reached the target, None if unknown for all seeds.
        low, high: minimum and maximum over the seeds for which it is known and finite.
        count: number of seeds for which it is known, including those that never reached the target.
        missed: number of seeds that never reached the target.
    """

    middle: float | None
    low: float | None
    high: float | None
    count: int
    missed: int = 0


def spread(values: Sequence[float | None]) -> Spread:
    """Return the spread of one value per seed; None means unknown and is left out, infinity means never reached."""
    numbers = sorted(float(value) for value in values if value is not None and not math.isnan(value))
    if not numbers:
        return Spread(None, None, None, 0)
    finite = [value for value in numbers if math.isfinite(value)]
    low, high = (finite[0], finite[-1]) if finite else (None, None)
    return Spread(median(numbers), low, high, len(numbers), len(numbers) - len(finite))


def best(spreads: Mapping[str, Spread], *, high_is_good: bool = False) -> str | None:
    """Return the contestant whose seeds all beat all seeds of every other contestant; None if there is none.

    One seed has no spread, so None is returned if a contestant has fewer than two. A contestant without known values is
    left out. A seed that never reached the target beats no other.

    Args:
        spreads: contestant -> its spread.
        high_is_good: whether higher values are better.
    """
    measured = {label: spread for label, spread in spreads.items() if spread.count}
    if len(measured) < 2 or any(spread.count < 2 for spread in measured.values()):
        return None
    ranges = {label: _best_and_worst(spread, high_is_good=high_is_good) for label, spread in measured.items()}
    first = min(ranges, key=lambda label: ranges[label][1])
    worst = ranges[first][1]
    wins = all(worst < best_seed for label, (best_seed, _) in ranges.items() if label != first)
    return first if math.isfinite(worst) and wins else None


def _best_and_worst(spread: Spread, *, high_is_good: bool) -> tuple[float, float]:
    """Return the best and the worst seed; lower numbers are better."""
    if spread.low is None or spread.high is None:
        return math.inf, math.inf
    good, bad = (-spread.high, -spread.low) if high_is_good else (spread.low, spread.high)
    return good, math.inf if spread.missed else bad


GAP = 0.05  # if a larger share of the devices' time has no energy data, this is reported and joules are not compared


_WRITERS: Mapping[str, Callable[[float | None], str]] = {
    "": lambda value: "unknown" if value is None else f"{value:.4g}",
    "seconds": format_seconds,
    "joules": format_joules,
    "bytes": format_bytes,
}


@dataclass(frozen=True, slots=True)
class RaceMeasure:
    """A column of the table: its names in data and on the page, its unit, and which direction is better.

    Times and energies of a run are totals or means over its epochs; medians over epochs are shown but not compared.
    """

    name: str
    title: str
    unit: str = ""
    high_is_good: bool = False
    judged: bool = True
    where_known: bool = False  # whether the page shows the column only if some contestant has a value

    def words(self, value: float | None) -> str:
        """Return a value with its unit."""
        return _WRITERS[self.unit](value)


_COLUMNS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
MEANINGS: Mapping[str, str] = {**SUMMARY_MEANINGS, **_COLUMNS["meanings"]}
MEASURES: tuple[RaceMeasure, ...] = tuple(RaceMeasure(name, **facts) for name, facts in _COLUMNS["columns"].items())


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant, a row of the table.

    Attributes:
        label: the contestant's name.
        config: settings of its runs, except for the seed.
        settings: the settings in which contestants differ.
        runs: its finished runs.
        failed: for each run that failed, the reason.
        planned: number of its runs in the whole race.
        spreads: name of a measure -> its spread.
        sources: where the joules come from.
        coincides: whether losses that should be equal are; None if there are none, or if they were not compared yet.
        provenance: data and protocol of each finished run (see ``runs.provenance``).
    """

    label: str
    config: RunConfig
    settings: Mapping[str, Any]
    runs: tuple[StoredRun, ...]
    failed: tuple[str, ...]
    planned: int
    spreads: Mapping[str, Spread]
    sources: tuple[str, ...]
    coincides: bool | None
    provenance: tuple[Mapping[str, Any], ...] = ()


def spreads_of(runs: Sequence[StoredRun], near: Sequence[float | None]) -> dict[str, Spread]:
    """Return the spread of every measure over the seeds of one contestant.

    Args:
        runs: its finished runs.
        near: seconds to a loss close to the best for each seed; infinite if never reached, None if unknown.
    """
    summaries = [run.summary for run in runs]
    spreads = {measure.name: spread([summary.get(measure.name) for summary in summaries]) for measure in MEASURES}
    for name, split, never in _OF_SPLITS:
        values = [_score(run, summary, name, split, never) for run, summary in zip(runs, summaries, strict=True)]
        spreads[name] = spread(values)
    return spreads | {
        "near_best_s": spread(near),
        "joules": spread([joules_of(run) for run in runs]),
        "bytes": spread([bytes_of(run) for run in runs]),
    }


_OF_SPLITS = (
    ("test_loss", "test", math.inf),
    ("validation_loss", "validation", math.inf),
    ("skill", "test", -math.inf),
)


def _score(run: StoredRun, summary: Mapping[str, Any], name: str, split: str, never: float) -> float | None:
    """Return a score on a split: ``never`` if the last loss is not finite, None if the run has no such split."""
    evaluations = evaluations_of(run.live, split)
    return never if evaluations and evaluations[-1].loss is None else summary.get(name)


def joules_of(run: StoredRun) -> float | None:
    """Return the joules of the whole run over all sources; None if unknown."""
    by_source = run.summary.get("energy_j")
    return sum(by_source.values()) if by_source else None


def unknown_energy(runs: Sequence[StoredRun]) -> float:
    """Return the largest share of a run's device time without measured or modelled energy; 0 if not recorded."""
    return max(((run.summary.get("energy_coverage") or {}).get("unknown", 0.0) for run in runs), default=0.0)


def bytes_of(run: StoredRun) -> float | None:
    """Return the bytes that all ranks sent in steps, plus those of fetched features; None if unknown."""
    sent, features = run.summary.get("bytes_sent"), run.summary.get("feature_bytes")
    return None if sent is None else float(sent) + float(features or 0.0)


def differing(configs: Mapping[str, RunConfig]) -> tuple[str, ...]:
    """Return the settings in which contestants differ, starting with the system.

    Settings that only some contestants have, or that have their defaults in all of them, are left out.
    """
    flats = [config.flat for config in configs.values()]
    names = dict.fromkeys(["system", *(name for flat in flats for name in flat)])
    differing_names = []
    for name in names:
        differs = len({str(flat.get(name)) for flat in flats}) > 1 and all(name in flat for flat in flats)
        if differs and (name in _ALWAYS or any(_is_explicit(name, config) for config in configs.values())):
            differing_names.append(name)
    return tuple(differing_names)


_ALWAYS = ("system", "model", "ranks", "parts")


def _is_explicit(name: str, config: RunConfig) -> bool:
    """Return whether the value is not the default of the system, data set or protocol."""
    if name not in OPTIONS:
        return True
    value = default(name, system=config.system, dataset=config.dataset, protocol=config.protocol)
    return bool(config.flat[name] != value)


def winners(rows: Sequence[Row]) -> dict[str, str]:
    """Return measure -> the contestant that is clearly the best; see :data:`RULE`."""
    best_by_measure = {}
    for measure in MEASURES:
        if not measure.judged or (measure.name == "joules" and len({row.sources for row in rows}) > 1):
            continue  # measured and modelled joules are not comparable
        if measure.name == "joules" and any(unknown_energy(row.runs) > GAP for row in rows):
            continue  # too much energy is unknown to name a winner
        spreads = {row.label: row.spreads[measure.name] for row in rows}
        label = best(spreads, high_is_good=measure.high_is_good)
        failed = {row.label for row in rows if row.failed}  # their spreads do not cover all seeds
        if label is not None and label not in failed and all(row.spreads[measure.name].count for row in rows):
            best_by_measure[measure.name] = label
    return best_by_measure


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return a table of numbers with one row per contestant: medians of measures, and ranges in ``_min`` and ``_max``.

    ``best_in`` has the names of the measures in which the contestant is clearly the best.
    """
    best_by_measure = winners(rows)
    lines = []
    for row in rows:
        line: dict[str, Any] = {**row.settings, "seeds": len(row.runs), "failed": len(row.failed)}
        for measure in MEASURES:
            values = row.spreads[measure.name]
            line |= {measure.name: values.middle, f"{measure.name}_min": values.low, f"{measure.name}_max": values.high}
        line |= {
            "energy_source": ", ".join(row.sources) or None,
            "coincides": row.coincides,
            "best_in": ", ".join(name for name, label in best_by_measure.items() if label == row.label),
            **_provenance(row),
        }
        lines.append(line)
    return pd.DataFrame(lines, index=pd.Index([row.label for row in rows], name="contestant"))


def _provenance(row: Row) -> dict[str, Any]:
    """Return protocol, purge gap and data, as every table of results does; all data if seeds have different data."""
    if not row.provenance:
        return {"protocol": row.config.protocol, "leaky": None, "purge": None, "data": None}
    joined = {name: row.provenance[0][name] for name in ("protocol", "leaky", "purge")}
    return {**joined, "data": ", ".join(dict.fromkeys(str(origin["data"]) for origin in row.provenance))}


def page(rows: Sequence[Row], captions: Sequence[str] = (), rule: str = "") -> str:
    """Return the table as HTML, with clear winners in bold and losses that should be the same but differ in red.

    Args:
        rows: rows of the table.
        captions: sentences above it; one with the word DIFFER reports an error.
        rule: how to read the table.
    """
    settings = list(rows[0].settings) if rows else []
    measures = [
        measure
        for measure in MEASURES
        if not measure.where_known or any(row.spreads[measure.name].count for row in rows)
    ]
    if all(row.settings.get("system") == row.label for row in rows):
        settings = [name for name in settings if name != "system"]
    heads = {name: name for name in ("contestant", *settings, "seeds")} | {
        measure.name: measure.title for measure in measures
    }
    return render(
        "studies/templates/race.html",
        captions=captions,
        heads=heads | {"coincides": "same losses", "protocol": "protocol", "purge": "purge", "data": "data"},
        meanings={**MEANINGS, **{name: OPTIONS[name].meaning for name in settings if name in OPTIONS}},
        rows=[(row, _provenance(row)) for row in rows],
        settings=settings,
        shown=measures,
        won=winners(rows),
        unknown={row.label: unknown_energy(row.runs) for row in rows},
        gap=GAP,
        bad=coloured("bad"),
        inf=math.inf,
        rule=rule,
    )


if TYPE_CHECKING:
    pass


COPIED_BYTES = 32 << 20  # larger than any cache of a core
REPEATS = 5
MOST_EPOCHS = 100  # number of newest epochs that count


def copy_bandwidth() -> float:
    """Measure how many bytes per second one core of this machine copies in memory, in about 50 ms."""
    source, target = np.ones(COPIED_BYTES, np.uint8), np.empty(COPIED_BYTES, np.uint8)
    durations = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        np.copyto(target, source)
        durations.append(time.perf_counter() - started)
    return COPIED_BYTES / min(durations)


Pair = tuple[str, float, float, str, bool]  # quantity, measured, bound, name of the bound, whether it is a contestant's


def bounds_of(
    runs: Mapping[str, Sequence[StoredRun]], copy_bytes_per_s: float | None, cache: dict[StoredRun, list[Pair | None]]
) -> list[Bound]:
    """Return measured values of each contestant and their bounds, as medians over its finished runs.

    ``epoch``: seconds of an epoch, and the time that no schedule of the measured tasks can beat; if tasks are not
    scheduled, the time with perfect balance, which is the mean of the ranks' own times. ``moving``: seconds that the
    rank which sends the most spends in exchanges, and the time of copying its bytes. ``energy``: joules of an epoch,
    and the bound of the contestant's family.

    Args:
        runs: contestant -> its finished runs.
        copy_bytes_per_s: see :func:`copy_bandwidth`; None if it was not measured.
        cache: bounds of runs that were read before, which this extends, since a race is redrawn after every run.
    """
    bounds: list[Bound] = []
    raced = [run for group in runs.values() for run in group]
    for label, group in runs.items():
        for run in group:
            if run not in cache:
                cache[run] = [_epoch(run), _moving(run, copy_bytes_per_s) if copy_bytes_per_s else None]
        for pairs in zip(*([*cache[run], _energy(run, raced)] for run in group), strict=True):
            present = [pair for pair in pairs if pair is not None]
            if present:
                quantity, _, _, name, is_raced = present[0]
                measured, bound = median(pair[1] for pair in present), median(pair[2] for pair in present)
                bounds.append(Bound(label, quantity, measured, bound, name, is_raced))
    return bounds


def _epoch(run: StoredRun) -> Pair | None:
    """Return means over epochs that each have a bound, so that the mean bound never exceeds the measured mean."""
    steps = run.table("steps")
    epochs = run.summary.get("epochs") or 0
    steps = steps[(steps["epoch"] < epochs) & (steps["epoch"] >= epochs - MOST_EPOCHS)]
    measured = steps.groupby(["epoch", "rank"])["time_s"].sum(min_count=1).groupby("epoch").max()
    bounds, name = run.family.epoch_bounds(run, MOST_EPOCHS), "makespan bound"
    if bounds is None and run.config.ranks == 1:
        return None
    if bounds is None:
        own_s = steps[[f"{phase}_s" for phase in OWN_PHASES]].sum(axis=1, min_count=1)
        bounds, name = own_s.groupby(steps["epoch"]).sum(min_count=1) / run.config.ranks, "even load"
    both = measured.to_frame("measured").join(bounds.rename("bound"), how="inner").dropna()
    if both.empty or not both["bound"].mean() > 0:
        return None
    return "epoch", float(both["measured"].mean()), float(both["bound"].mean()), name, False


def _moving(run: StoredRun, copy_bytes_per_s: float) -> Pair | None:
    sums = run.table("steps").groupby(["epoch", "rank"])[["bytes_sent", "communicate_s"]].sum(min_count=1).dropna()
    if sums.empty or not float(sums["bytes_sent"].max()) > 0:
        return None
    rank = sums["bytes_sent"].groupby(level="rank").sum().idxmax()
    means = sums.xs(rank, level="rank").mean()
    copying_s = float(means["bytes_sent"]) / copy_bytes_per_s
    return "moving", float(means["communicate_s"]), copying_s, "copying in memory", False


def _energy(run: StoredRun, raced: Sequence[StoredRun]) -> Pair | None:
    measured = run.summary.get("epoch_j")
    bound = None if measured is None else run.family.energy_bound(run, raced)
    return None if measured is None or bound is None else ("energy", measured, *bound)
