"""A race in its current state: its runs, table, figures and text, both while it runs and afterwards."""

from __future__ import annotations

import math
import threading
import time
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.config.options import OPTIONS, default
from dtdg_lab.config.record_tables import OWN_PHASES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.core.units import as_path, format_bytes, format_joules, format_seconds, join_words
from dtdg_lab.runs.charts import held, lock_of
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.html import render, template
from dtdg_lab.runs.run import StoredRun, open_run
from dtdg_lab.runs.summary import SUMMARY_MEANINGS
from dtdg_lab.studies.race_plan import FILE, Check, RacePlan, checks
from dtdg_lab.studies.trials import FAILED, FINISHED, INTERRUPTED, RUNNING, Trial, TrialJournal
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.panels import Panel
from dtdg_lab.visualization.runs.curves import evaluations_of
from dtdg_lab.visualization.studies.race import (
    Curve,
    RaceLevel,
    curve_of,
    near_losses,
    race_figure,
    race_panels,
    reached,
)
from dtdg_lab.visualization.studies.race_bounds import Bound, bounds_figure, bounds_panels
from dtdg_lab.visualization.theme import coloured

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.runs.tables import RunTables


# The table of a race: medians and spreads over seeds, data and protocol, and clear winners.


UNDER_WAY = "under way"
STATES: Mapping[str, str] = {RUNNING: UNDER_WAY, INTERRUPTED: "left"}  # of a trial -> of a run of a race


@dataclass(frozen=True, slots=True)
class RaceRun:
    """One run of a race.

    Attributes:
        label: of the contestant.
        seed: of the run.
        state: ``finished``, ``under way``, ``failed``, or ``left`` if it was interrupted.
        why: reason for an early end or a failure.
        path: of its folder; None if it could not be started.
        keeper: object that keeps the folder alive while it is read.
    """

    label: str
    seed: int
    state: str
    why: str
    path: Path | None
    keeper: object = field(default=None, repr=False, compare=False)

    def open(self) -> StoredRun:
        """The run's records.

        Raises:
            RunStoreError: there is no run at its path, or it was never started.
        """
        found = open_run(self.path or Path(f"{self.label}, seed {self.seed}"))
        found.keeper = self.keeper
        return found


# Medians and spreads over seeds, and the rule for calling a contestant the best.


RULE = (
    "Bold marks the best median if its range over the seeds does not overlap the range of any other contestant. With "
    "one seed nothing is bold, nor is a contestant with a failed run."
)


@dataclass(frozen=True, slots=True)
class Spread:
    """A quantity over the seeds of one contestant.

    Attributes:
        middle: the median; infinite if half of the seeds never reached the target; None if unknown for all seeds.
        low, high: minimum and maximum over the seeds for which it is known.
        count: seeds that count, including those that never reached the target.
        missed: seeds that never reached the target.
    """

    middle: float | None
    low: float | None
    high: float | None
    count: int
    missed: int = 0


def spread(values: Sequence[float | None]) -> Spread:
    """The spread of one value per seed: None is unknown and left out, infinite means never reached."""
    known = sorted(float(value) for value in values if value is not None and not math.isnan(value))
    if not known:
        return Spread(None, None, None, 0)
    finite = [value for value in known if math.isfinite(value)]
    low, high = (finite[0], finite[-1]) if finite else (None, None)
    return Spread(median(known), low, high, len(known), len(known) - len(finite))


def best(spreads: Mapping[str, Spread], *, high_is_good: bool = False) -> str | None:
    """The contestant all of whose seeds beat all seeds of every other one; None if there is none.

    One seed shows no spread, so a contestant with fewer than two is neither best nor beaten. A contestant without
    known values is left out; a seed that never reached the target beats none.

    Args:
        spreads: by contestant.
        high_is_good: whether higher is better.
    """
    known = {label: each for label, each in spreads.items() if each.count}
    if len(known) < 2 or any(each.count < 2 for each in known.values()):
        return None
    ends = {label: _ends(each, high_is_good=high_is_good) for label, each in known.items()}
    first = min(ends, key=lambda label: ends[label][1])
    others = [good for label, (good, _) in ends.items() if label != first]
    worst = ends[first][1]
    return first if math.isfinite(worst) and all(worst < good for good in others) else None


def _ends(each: Spread, *, high_is_good: bool) -> tuple[float, float]:
    """The best and the worst seed, as numbers where lower is better."""
    if each.low is None or each.high is None:
        return math.inf, math.inf
    good, bad = (-each.high, -each.low) if high_is_good else (each.low, each.high)
    return good, math.inf if each.missed else bad


GAP = 0.05  # share of the devices' time without energy data above which it is reported, and joules are not compared


_WRITERS: Mapping[str, Callable[[float | None], str]] = {
    "": lambda value: "unknown" if value is None else f"{value:.4g}",
    "seconds": format_seconds,
    "joules": format_joules,
    "bytes": format_bytes,
}


@dataclass(frozen=True, slots=True)
class RaceMeasure:
    """A column of the table: its name in data and on the page, its format, and which direction is better.

    Times and energies of a run are totals or means over its epochs; medians over epochs are shown but not compared.
    """

    name: str
    title: str
    unit: str = ""
    high_is_good: bool = False
    judged: bool = True
    where_known: bool = False  # shown on the page only if some contestant has it

    def words(self, value: float | None) -> str:
        """A value with its unit."""
        return _WRITERS[self.unit](value)


_DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
MEANINGS: Mapping[str, str] = {**SUMMARY_MEANINGS, **_DECLARED["meanings"]}
MEASURES: tuple[RaceMeasure, ...] = tuple(RaceMeasure(name, **facts) for name, facts in _DECLARED["columns"].items())


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant.

    Attributes:
        label: of it.
        config: of its runs, except for the seed.
        settings: those in which contestants differ.
        runs: that have finished.
        failed: reasons of those that failed.
        wanted: runs that it should have.
        spreads: by name of a measure.
        sources: of the joules.
        coincides: whether losses that should be equal are; None if there is no such pair, or no comparison yet.
        grounds: data and protocol of each finished run; see ``runs.provenance``.
    """

    label: str
    config: RunConfig
    settings: Mapping[str, Any]
    runs: tuple[StoredRun, ...]
    failed: tuple[str, ...]
    wanted: int
    spreads: Mapping[str, Spread]
    sources: tuple[str, ...]
    coincides: bool | None
    grounds: tuple[Mapping[str, Any], ...] = ()


def spreads_of(runs: Sequence[StoredRun], near: Sequence[float | None]) -> dict[str, Spread]:
    """Every measure over the seeds of one contestant.

    Args:
        runs: finished ones.
        near: seconds to a loss close to the best, by seed: infinite if never reached, None if unknown.
    """
    described = [run.summary for run in runs]
    found = {each.name: spread([one.get(each.name) for one in described]) for each in MEASURES}
    for name, part, never in _OF_PARTS:
        found[name] = spread([_scored(*pair, name, part, never) for pair in zip(runs, described, strict=True)])
    return found | {
        "near_best_s": spread(near),
        "joules": spread([joules_of(run) for run in runs]),
        "bytes": spread([bytes_of(run) for run in runs]),
    }


_OF_PARTS = (("test_loss", "test", math.inf), ("validation_loss", "validation", math.inf), ("skill", "test", -math.inf))


def _scored(run: StoredRun, described: Mapping[str, Any], name: str, part: str, never: float) -> float | None:
    """A result of a run on a split: ``never`` if its last loss is not finite, None if it has no such split."""
    known = evaluations_of(run.live, part)
    return never if known and known[-1].loss is None else described.get(name)


def joules_of(run: StoredRun) -> float | None:
    """Joules of the whole run over all sources; None if unknown."""
    by_source = run.summary.get("energy_j")
    return sum(by_source.values()) if by_source else None


def unknown_energy(runs: Sequence[StoredRun]) -> float:
    """The largest share of a run's device time with neither measured nor modelled energy; 0 if not recorded."""
    return max(((run.summary.get("energy_coverage") or {}).get("unknown", 0.0) for run in runs), default=0.0)


def bytes_of(run: StoredRun) -> float | None:
    """Bytes sent by all ranks in steps, plus those of fetched features; None if unknown."""
    sent, features = run.summary.get("bytes_sent"), run.summary.get("feature_bytes")
    return None if sent is None else float(sent) + float(features or 0.0)


def differing(configs: Mapping[str, RunConfig]) -> tuple[str, ...]:
    """Settings in which contestants differ, the system first.

    Settings that only some of them have are left out, and those at their system's defaults.
    """
    flats = [config.flat for config in configs.values()]
    names = dict.fromkeys(["system", *(name for flat in flats for name in flat)])
    found = []
    for name in names:
        values = {str(flat.get(name)) for flat in flats if name in flat}
        everywhere = all(name in flat for flat in flats)
        if everywhere and len(values) > 1 and (name in _ALWAYS or any(_chosen(name, of) for of in configs.values())):
            found.append(name)
    return tuple(found)


_ALWAYS = ("system", "model", "ranks", "parts")


def _chosen(name: str, config: RunConfig) -> bool:
    """Whether the value was set explicitly: it is not a default of system, data set or protocol."""
    if name not in OPTIONS:
        return True
    usual = default(name, system=config.system, dataset=config.dataset, protocol=config.protocol)
    return bool(config.flat[name] != usual)


def winners(rows: Sequence[Row]) -> dict[str, str]:
    """Measure -> contestant that is best with non-overlapping seed ranges; see :data:`RULE`."""
    found = {}
    for measure in MEASURES:
        if not measure.judged or (measure.name == "joules" and len({row.sources for row in rows}) > 1):
            continue  # measured and modelled joules are not comparable
        if measure.name == "joules" and any(unknown_energy(row.runs) > GAP for row in rows):
            continue  # an unknown value cannot win
        spreads = {row.label: row.spreads[measure.name] for row in rows}
        label = best(spreads, high_is_good=measure.high_is_good)
        lost = {row.label for row in rows if row.failed}  # their spread over all seeds is unknown
        if label is not None and label not in lost and all(row.spreads[measure.name].count for row in rows):
            found[measure.name] = label
    return found


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """One row per contestant, in numbers: the median of a measure, and its range in ``_min`` and ``_max``.

    ``best_in`` names the measures in which it is best with non-overlapping seed ranges.
    """
    import pandas as pd

    won = winners(rows)
    described = []
    for row in rows:
        line: dict[str, Any] = {**row.settings, "seeds": len(row.runs), "failed": len(row.failed)}
        for measure in MEASURES:
            each = row.spreads[measure.name]
            line |= {measure.name: each.middle, f"{measure.name}_min": each.low, f"{measure.name}_max": each.high}
        line |= {
            "energy_source": ", ".join(row.sources) or None,
            "coincides": row.coincides,
            "best_in": ", ".join(name for name, label in won.items() if label == row.label),
            **_ground(row),
        }
        described.append(line)
    return pd.DataFrame(described, index=pd.Index([row.label for row in rows], name="contestant"))


def _ground(row: Row) -> dict[str, Any]:
    """Protocol, purge gap and data, as in every table of results; all data if they differ between seeds."""
    if not row.grounds:
        return {"protocol": row.config.protocol, "leaky": None, "purge": None, "data": None}
    joined = {name: row.grounds[0][name] for name in ("protocol", "leaky", "purge")}
    return {**joined, "data": ", ".join(dict.fromkeys(str(each["data"]) for each in row.grounds))}


def page(rows: Sequence[Row], captions: Sequence[str] = (), rule: str = "") -> str:
    """The table as HTML: bold for clear winners, red for losses that should coincide and do not.

    Args:
        rows: of the table.
        captions: above it; one that says DIFFER is an alarm.
        rule: how to read it.
    """
    settings = list(rows[0].settings) if rows else []
    shown = [each for each in MEASURES if not each.where_known or any(row.spreads[each.name].count for row in rows)]
    if all(row.settings.get("system") == row.label for row in rows):
        settings = [name for name in settings if name != "system"]
    heads = {name: name for name in ("contestant", *settings, "seeds")} | {each.name: each.title for each in shown}
    return render(
        "studies/templates/race.html",
        captions=captions,
        heads=heads | {"coincides": "same losses", "protocol": "protocol", "purge": "purge", "data": "data"},
        meanings={**MEANINGS, **{name: OPTIONS[name].meaning for name in settings if name in OPTIONS}},
        rows=[(row, _ground(row)) for row in rows],
        settings=settings,
        shown=shown,
        won=winners(rows),
        unknown={row.label: unknown_energy(row.runs) for row in rows},
        gap=GAP,
        bad=coloured("bad"),
        inf=math.inf,
        rule=rule,
    )


# A race in sentences: progress, winners, and caveats.


def race_words(plan: RacePlan, entries: Iterable[RaceRun], rows: Sequence[Row], found: Sequence[Check]) -> list[str]:
    """Captions of a race; one that says DIFFER is an alarm.

    Args:
        plan: of the race.
        entries: the newest of every contestant and seed.
        rows: of the table.
        found: checks of losses that should coincide.
    """
    known, wanted = list(entries), len(plan.configs) * len(plan.seeds)
    finished = [each for each in known if each.state == FINISHED]
    failed = [each for each in known if each.state == FAILED]
    won: dict[str, list[str]] = {}
    titles = {measure.name: measure.title for measure in MEASURES}
    for name, label in winners(rows).items():
        won.setdefault(label, []).append(titles[name])
    agreed: dict[tuple[str, ...], list[Check]] = {}
    for check in found:
        if check.ok:
            agreed.setdefault(check.labels, []).append(check)
    few: dict[str, list[str]] = {}  # warning on link metrics of few pairs -> contestants
    for row in rows:
        for said in dict.fromkeys(run.summary.get("link_warning") for run in row.runs):
            if said:
                few.setdefault(said, []).append(row.label)
    captions = template("studies/templates/race.txt").render(
        plan=plan,
        rows=rows,
        entries=known,
        wanted=wanted,
        finished=finished,
        running=[f"{each.label} with seed {each.seed}" for each in known if each.state == UNDER_WAY],
        early=sum(bool(each.why) for each in finished),
        failed=[f"{each.label} with seed {each.seed} ({' '.join(each.why.split())})" for each in failed],
        won=won,
        so_far="" if len(finished) == wanted else " so far",
        differing=[check for check in found if check.ok is False],
        agreed=[f"{join_words(labels)} ({_worst(checks)})" for labels, checks in agreed.items()],
        ranks=[str(count) for count in sorted({config.ranks for config in plan.configs.values()})],
        few=few,
    )
    return captions.splitlines()


def _worst(found: Collection[Check]) -> str:
    first = max((check.first for check in found if check.first is not None), default=None)
    curve = max((check.curve for check in found if check.curve is not None), default=None)
    described = [
        f"{value:.1g} {where}" for value, where in ((first, "at first"), (curve, "at most")) if value is not None
    ]
    return "apart by " + join_words(described)


# Lower bounds on time and energy: best schedule, memory-speed copies, ideal network.


COPIED_BYTES = 32 << 20  # larger than any core's cache
REPEATS = 5
MOST_EPOCHS = 100  # only the newest ones count


def copy_bandwidth() -> float:
    """Bytes per second that one core of this machine copies in memory, the best of a few tries; takes about 50 ms."""
    source, target = np.ones(COPIED_BYTES, np.uint8), np.empty(COPIED_BYTES, np.uint8)
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        np.copyto(target, source)
        taken.append(time.perf_counter() - began)
    return COPIED_BYTES / min(taken)


Pair = tuple[str, float, float, str, bool]  # quantity, measured, bound, its name, whether it is of a contestant


def bounds_of(
    runs: Mapping[str, Sequence[StoredRun]], copy_bytes_per_s: float | None, read: dict[StoredRun, list[Pair | None]]
) -> list[Bound]:
    """Medians over the finished runs of each contestant, of measured values and their bounds.

    ``epoch``: seconds of an epoch, against what no schedule of the measured tasks can beat, where tasks are scheduled,
    else against perfect balance, the mean of the ranks' own time. ``moving``: seconds that the rank which sends most
    spent in exchanges, against copying its bytes. ``energy``: joules of an epoch, against the bound of its family.

    Args:
        runs: finished ones by contestant.
        copy_bytes_per_s: see :func:`copy_bandwidth`; None where it was not measured.
        read: what was read from the tables of runs before; added to, since a race is redrawn with every run that ends.
    """
    found: list[Bound] = []
    raced = [run for own in runs.values() for run in own]
    for label, own in runs.items():
        for run in own:
            if run not in read:
                read[run] = [_epoch(run), _moving(run, copy_bytes_per_s) if copy_bytes_per_s else None]
        for pairs in zip(*([*read[run], _energy(run, raced)] for run in own), strict=True):
            known = [pair for pair in pairs if pair is not None]
            if known:
                quantity, _, _, name, is_raced = known[0]
                measured, bound = median(pair[1] for pair in known), median(pair[2] for pair in known)
                found.append(Bound(label, quantity, measured, bound, name, is_raced))
    return found


def _epoch(run: StoredRun) -> Pair | None:
    """Means over epochs, each with its own bound, so that no mean bound exceeds the measured mean."""
    steps = run.table("steps")
    done = run.summary.get("epochs") or 0
    steps = steps[(steps["epoch"] < done) & (steps["epoch"] >= done - MOST_EPOCHS)]
    measured = steps.groupby(["epoch", "rank"])["time_s"].sum(min_count=1).groupby("epoch").max()
    bounds, name = run.family.epoch_bounds(run, MOST_EPOCHS), "makespan bound"
    if bounds is None and run.config.ranks == 1:
        return None
    if bounds is None:
        own = steps[[f"{phase}_s" for phase in OWN_PHASES]].sum(axis=1, min_count=1)
        bounds, name = own.groupby(steps["epoch"]).sum(min_count=1) / run.config.ranks, "even load"
    both = measured.to_frame("measured").join(bounds.rename("bound"), how="inner").dropna()
    if both.empty or not both["bound"].mean() > 0:
        return None
    return "epoch", float(both["measured"].mean()), float(both["bound"].mean()), name, False


def _moving(run: StoredRun, copy_bytes_per_s: float) -> Pair | None:
    sums = run.table("steps").groupby(["epoch", "rank"])[["bytes_sent", "communicate_s"]].sum(min_count=1).dropna()
    if sums.empty or not float(sums["bytes_sent"].max()) > 0:
        return None
    rank = sums["bytes_sent"].groupby(level="rank").sum().idxmax()
    own = sums.xs(rank, level="rank").mean()
    copying_s = float(own["bytes_sent"]) / copy_bytes_per_s
    return "moving", float(own["communicate_s"]), copying_s, "copying in memory", False


def _energy(run: StoredRun, raced: Sequence[StoredRun]) -> Pair | None:
    measured = run.summary.get("epoch_j")
    bound = None if measured is None else run.family.energy_bound(run, raced)
    return None if measured is None or bound is None else ("energy", measured, *bound)


# The race.


Place = tuple[str, int]  # contestant, seed


class _Ended(StoredRun):
    """A finished run: its numbers are read once, however often the race is drawn."""

    @cached_property
    def summary(self) -> dict[str, Any]:
        return super().summary


class Race:
    """The result of :func:`dtdg_lab.race` and of ``lab.races.open``.

    It may be read from any thread while the race is running: figures then use the windows of the runs.

    Args:
        folder: of the race.
        plan: of the race; read from the folder where not given.
        trials: by key, changed while the race is running; read from the folder where not given.

    Attributes:
        folder: where ``race.json`` is.
        name: of the race.
        configs: by contestant; the race's seeds replace theirs.
        seeds: of every contestant.
        wanted: number of runs of the whole race.
    """

    def __init__(self, folder: Path, plan: RacePlan | None = None, trials: Mapping[str, Trial] | None = None) -> None:
        self.folder = folder
        self._plan = plan = plan or RacePlan.load(folder)
        self.name, self.configs, self.seeds = plan.name, plan.configs, plan.seeds
        self._trials = {trial.key: trial for trial in TrialJournal(folder).read()} if trials is None else trials
        order = sorted(plan.cells, key=lambda cell: (plan.seeds.index(cell.seed), cell.number))
        self._places: dict[Place, str] = {(cell.settings["contestant"], cell.seed): cell.key for cell in order}
        self.wanted = len(self._places)
        self._live: dict[str, Any] = {}  # handles of runs that this process started
        self._opened: dict[Path, StoredRun] = {}
        self._curves: dict[Place, tuple[Any, Curve]] = {}
        self._bounds: tuple[tuple[Path, ...], list[Bound]] = ((), [])
        self._read: dict[StoredRun, Any] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        made = sum(run.state == FINISHED for run in self.runs)
        return f"<Race {self.name!r}: {', '.join(self.configs)}; {made} of {self.wanted} runs finished>"

    # contents

    @property
    def runs(self) -> tuple[RaceRun, ...]:
        """The newest run of every contestant and seed that was started, seed by seed."""
        return tuple(
            RaceRun(*place, STATES.get(trial.status, trial.status), trial.reason, trial.run)
            for place, trial in self._started().items()
        )

    @property
    def over(self) -> bool:
        """Whether every run has finished."""
        return sum(run.state == FINISHED for run in self.runs) == self.wanted

    def _started(self) -> dict[Place, Trial]:
        return {place: self._trials[key] for place, key in self._places.items() if key in self._trials}

    def show(self, key: str, handle: Any) -> None:
        """Draw the active run of a trial from its handle's window."""
        with self._lock:
            self._live[key] = handle

    @property
    def version(self) -> tuple[Any, ...]:
        """A value that changes whenever anything on display has changed."""
        live = tuple(handle.version for handle in list(self._live.values()))
        return (*live, *(trial.status for trial in list(self._trials.values())))

    def _stored(self, trial: Trial) -> StoredRun:
        assert trial.run is not None  # of runs that finished
        with self._lock:
            if trial.run not in self._opened:
                self._opened[trial.run] = _Ended(RunDirectory.open(trial.run))
            return self._opened[trial.run]

    def _lost(self) -> set[Place]:
        return {place for place, trial in self._started().items() if trial.status == FAILED}

    def finished(self) -> dict[str, list[StoredRun]]:
        """Finished runs by contestant, in the order of the seeds."""
        found: dict[str, list[StoredRun]] = {label: [] for label in self.configs}
        for (label, _), trial in self._started().items():
            if trial.status == FINISHED:
                found[label].append(self._stored(trial))
        return found

    @contextmanager
    def _tables(self) -> Iterator[dict[Place, RunTables]]:
        """Tables of the runs that have finished or are active here; the active ones must not be written meanwhile."""
        with self._lock:
            runs: dict[Place, Any] = {}
            for place, trial in self._started().items():
                if trial.status == FINISHED:  # read from the files: the stream may have lost records
                    runs[place] = self._stored(trial)
                elif trial.status == RUNNING and trial.key in self._live:
                    runs[place] = self._live[trial.key]
            with held(*map(lock_of, runs.values())):
                yield {place: run.live for place, run in runs.items()}

    # results

    def curves(self) -> list[Curve]:
        """Losses of the runs against their costs, as far as known; in the order of ``runs``."""
        trials = self._started()
        with self._tables() as tables:
            for place, of_run in tables.items():
                trial, handle = trials[place], self._live.get(trials[place].key)
                key = (trial.status, trial.run, None if handle is None else handle.version)
                if self._curves.get(place, (None, None))[0] != key:
                    self._curves[place] = key, curve_of(*place, of_run, over=trial.status == FINISHED)
            return [self._curves[place][1] for place in tables]

    @property
    def checks(self) -> list[Check]:
        """Runs whose losses should coincide, compared up to the present step."""
        with self._tables() as tables:
            return checks(self.configs, tables)

    @property
    def bounds(self) -> list[Bound]:
        """Lower bounds for contestants with a finished run."""
        finished = self.finished()
        key = tuple(run.path for own in finished.values() for run in own)
        with self._lock:
            if self._bounds[0] != key:
                self._bounds = key, bounds_of(finished, self._plan.copy_bytes_per_s, self._read)
            return self._bounds[1]

    def rows(self) -> list[Row]:
        """The rows of the table."""
        finished, curves, verdicts = self.finished(), self.curves(), self._verdicts()
        grounds = [(of, trial.provenance) for (of, _), trial in self._started().items() if trial.status == FINISHED]
        near = near_losses(curves, tuple(self.configs), self._lost())
        by_place = {(curve.label, curve.seed): curve for curve in curves}
        names = differing(self.configs)
        found = []
        for label, config in self.configs.items():
            seconds = [_near_s(by_place.get((label, run.config.seed)), near) for run in finished[label]]
            sources = {of for run in finished[label] for of in run.summary.get("energy_j") or {}}
            found.append(
                Row(
                    label=label,
                    config=config,
                    settings={name: config.flat[name] for name in names},
                    runs=tuple(finished[label]),
                    wanted=len(self.seeds),
                    sources=tuple(sorted(sources)),
                    failed=tuple(run.why for run in self.runs if run.label == label and run.state == FAILED),
                    spreads=spreads_of(finished[label], seconds),
                    coincides=verdicts.get(label),
                    grounds=tuple(ground for of, ground in grounds if of == label),
                )
            )
        return found

    def _verdicts(self) -> dict[str, bool]:
        """Contestant -> whether it coincides with every run that it should; those without a comparison are left out."""
        found: dict[str, bool] = {}
        for check in self.checks:
            for label in check.labels:
                if check.ok is not None:
                    found[label] = found.get(label, True) and check.ok
        return found

    @property
    def table(self) -> pd.DataFrame:
        """One row per contestant: medians and spreads over the seeds, with data and protocol."""
        return frame(self.rows())

    def panels(self) -> dict[str, Panel]:
        """Loss against ``seconds``, ``joules``, ``bytes`` and ``peak`` memory, and the bounds: figure and caption."""
        bounds, labels = self.bounds, tuple(self.configs)
        drawn = race_panels(self.curves(), self._levels(bounds), labels, self._lost())
        return {**drawn, **{f"bound-{name}": panel for name, panel in bounds_panels(bounds, labels).items()}}

    def _levels(self, bounds: list[Bound]) -> list[RaceLevel]:
        """Bounds of a whole race as vertical lines: seconds and joules of the epochs that were trained.

        Joules of a whole run include evaluations, which have no bound.
        """
        finished = {label: own for label, own in self.finished().items() if own}
        epochs = {label: median(run.summary.get("epochs") or 0 for run in own) for label, own in finished.items()}
        joules = {label: [joules_of(run) for run in own] for label, own in finished.items()}
        whole = {label: median(known) for label, all_of in joules.items() if (known := [j for j in all_of if j])}
        found = []
        for each in bounds:
            made = epochs.get(each.label, 0)
            if not made:
                continue
            if each.quantity == "epoch":
                found.append(RaceLevel(each.label, "seconds", each.bound * made, f"{made:g} epochs, {each.name}"))
            if each.quantity == "energy" and each.raced:
                if each.bound == each.measured and each.label in whole:  # its own: one line for all
                    words = "as raced, knows the links, best in the cost model"
                    found.append(RaceLevel(each.label, "joules", whole[each.label], words))
            elif each.quantity == "energy" and each.label in whole and each.measured > 0:
                found.append(RaceLevel(each.label, "joules", whole[each.label] * each.bound / each.measured, each.name))
        return found

    @property
    def figures(self) -> dict[str, Figure]:
        """The individual panels, and ``race`` and ``bounds``, which combine them."""
        single = self.panels()
        return {
            **{name: figure for name, (figure, _) in single.items()},
            "race": race_figure(single, title=f"Race {self.name}"),
            "bounds": bounds_figure(self.bounds, tuple(self.configs)),
        }

    @property
    def figure(self) -> Figure:
        """Loss against wall time, joules, bytes and memory on shared axes."""
        return race_figure(self.panels(), title=f"Race {self.name}")

    def captions(self) -> dict[str, str]:
        """The caption of each panel."""
        return {name: words for name, (_, words) in self.panels().items()}

    def summary(self) -> str:
        """The progress, the clear winners, and caveats."""
        return " ".join(race_words(self._plan, self.runs, self.rows(), self.checks))

    def html(self) -> str:
        """Text and table, for pages and notebook cells."""
        rows, found = self.rows(), self.checks
        described = race_words(self._plan, self.runs, rows, found)
        how = "Median over seeds [min .. max]; per run, totals and means over all epochs, including congested ones."
        return page(rows, described, f"{how} {RULE}")

    def _repr_html_(self) -> str:
        """Text and table; ``lab.plot(race.figure)`` draws."""
        return self.html()


def _near_s(curve: Curve | None, near: Mapping[int, float]) -> float | None:
    """Seconds to a loss close to the best: infinite if the run never reached it, None if unknown."""
    if curve is None or curve.seed not in near:
        return None
    seconds = reached(curve, near, "seconds")
    return math.inf if seconds is None else seconds


def open_race(path: str | Path) -> Race:
    """A past race, or the current state of one that another process is running.

    Args:
        path: its folder, such as ``runs/races/20260131-psg-blad``, or the ``race.json`` in it.

    Raises:
        RunStoreError: there is no race at that path, its file is damaged, or a newer version wrote it.
    """
    folder = as_path(path, "path", RunStoreError)
    return Race(folder.parent if folder.name == FILE else folder)
