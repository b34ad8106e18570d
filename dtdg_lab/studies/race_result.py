"""A race in its current state: its runs, table, figures and text, both while it runs and afterwards."""

from __future__ import annotations

import html
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.run import StoredRun
from dtdg_lab.studies import race_table
from dtdg_lab.studies.race_rules import Check, checks
from dtdg_lab.studies.race_store import FILE, RacePlan
from dtdg_lab.studies.race_table import RULE, STATES, RaceRun, race_words
from dtdg_lab.studies.trials import FAILED, FINISHED, RUNNING, Trial, TrialLog
from dtdg_lab.systems.base import SystemFamily
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.phases import OWN
from dtdg_lab.visualization.race import (
    Bound,
    Curve,
    Panel,
    RaceLevel,
    bounds_figure,
    bounds_panels,
    curve_of,
    near_losses,
    race_figure,
    race_panels,
    reached,
)
from dtdg_lab.visualization.style import coloured

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.visualization.run_window import RunWindow


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


def levels_of(bounds: Sequence[Bound], epochs: Mapping[str, float], *, whole: Mapping[str, float]) -> list[RaceLevel]:
    """Bounds of a whole race as vertical lines: seconds and joules of the epochs that were trained.

    Args:
        bounds: per epoch.
        epochs: number trained by each contestant, median over seeds.
        whole: joules of the whole run of each, median over seeds; they include evaluations, which have no bound.
    """
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


def _epoch(run: StoredRun) -> Pair | None:
    """Means over epochs, each with its own bound, so that no mean bound exceeds the measured mean."""
    steps = run.table("steps")
    done = run.summary.get("epochs") or 0
    steps = steps[(steps["epoch"] < done) & (steps["epoch"] >= done - MOST_EPOCHS)]
    measured = steps.groupby(["epoch", "rank"])["time_s"].sum(min_count=1).groupby("epoch").max()
    bounds, name = _family(run).epoch_bounds(run, MOST_EPOCHS), "makespan bound"
    if bounds is None and run.config.ranks == 1:
        return None
    if bounds is None:
        own = steps[[f"{phase}_s" for phase in OWN]].sum(axis=1, min_count=1)
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
    return (
        "moving",
        float(own["communicate_s"]),
        float(own["bytes_sent"]) / copy_bytes_per_s,
        "copying in memory",
        False,
    )


def _energy(run: StoredRun, raced: Sequence[StoredRun]) -> Pair | None:
    measured = run.summary.get("epoch_j")
    bound = None if measured is None else _family(run).energy_bound(run, raced)
    return None if measured is None or bound is None else ("energy", measured, *bound)


def _family(run: StoredRun) -> SystemFamily:
    found: SystemFamily = catalogue.family(catalogue.system(run.config.system).family)
    return found


# The race.


_NARROW = "max-width:95ch"  # the table may be wider than the page and scrolls; text wraps
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
    """

    def __init__(self, folder: Path, plan: RacePlan | None = None, trials: Mapping[str, Trial] | None = None) -> None:
        self.folder = folder
        self._plan = plan or RacePlan.load(folder)
        self._trials = {trial.key: trial for trial in TrialLog(folder).read()} if trials is None else trials
        order = sorted(self._plan.cells, key=lambda cell: (self._plan.seeds.index(cell.seed), cell.number))
        self._places: dict[Place, str] = {(cell.settings["contestant"], cell.seed): cell.key for cell in order}
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
    def name(self) -> str:
        """The race's name."""
        return self._plan.name

    @property
    def configs(self) -> Mapping[str, RunConfig]:
        """By contestant; the race's seeds replace theirs."""
        return self._plan.configs

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of every contestant."""
        return self._plan.seeds

    @property
    def wanted(self) -> int:
        """Number of runs of the whole race."""
        return len(self._places)

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
    def _windows(self) -> Iterator[dict[Place, RunWindow]]:
        """Windows of the runs that have finished or are active here; the active ones must not be written meanwhile."""
        with ExitStack() as stack, self._lock:
            found = {}
            for place, trial in self._started().items():
                handle = self._live.get(trial.key)
                if trial.status == FINISHED:  # read from the files: the stream may have lost records
                    found[place] = self._stored(trial).live
                elif trial.status == RUNNING and handle is not None:
                    stack.enter_context(handle.lock)
                    found[place] = handle.live
            yield found

    # results

    def curves(self) -> list[Curve]:
        """Losses of the runs against their costs, as far as known; in the order of ``runs``."""
        trials = self._started()
        with self._windows() as windows:
            for place, window in windows.items():
                trial, handle = trials[place], self._live.get(trials[place].key)
                key = (trial.status, trial.run, None if handle is None else handle.version)
                if self._curves.get(place, (None, None))[0] != key:
                    self._curves[place] = key, curve_of(*place, window, over=trial.status == FINISHED)
            return [self._curves[place][1] for place in windows]

    @property
    def checks(self) -> list[Check]:
        """Runs whose losses should coincide, compared up to the present step."""
        with self._windows() as windows:
            return checks(self.configs, windows)

    @property
    def bounds(self) -> list[Bound]:
        """Lower bounds for contestants with a finished run."""
        finished = self.finished()
        key = tuple(run.path for own in finished.values() for run in own)
        with self._lock:
            if self._bounds[0] != key:
                self._bounds = key, bounds_of(finished, self._plan.copy_bytes_per_s, self._read)
            return self._bounds[1]

    def rows(self) -> list[race_table.Row]:
        """The rows of the table."""
        finished, curves, verdicts, started = self.finished(), self.curves(), self._verdicts(), self._started()
        near = near_losses(curves, tuple(self.configs), self._lost())
        by_place = {(curve.label, curve.seed): curve for curve in curves}
        names = race_table.differing(self.configs)
        found = []
        for label, config in self.configs.items():
            seconds = [_near_s(by_place.get((label, run.config.seed)), near) for run in finished[label]]
            sources = {of for run in finished[label] for of in run.summary.get("energy_j") or {}}
            found.append(
                race_table.Row(
                    label=label,
                    config=config,
                    settings={name: config.flat[name] for name in names},
                    runs=tuple(finished[label]),
                    wanted=len(self.seeds),
                    sources=tuple(sorted(sources)),
                    failed=tuple(run.why for run in self.runs if run.label == label and run.state == FAILED),
                    spreads=race_table.spreads_of(finished[label], seconds),
                    coincides=verdicts.get(label),
                    grounds=tuple(
                        trial.provenance
                        for (of, _), trial in started.items()
                        if of == label and trial.status == FINISHED
                    ),
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
        return race_table.frame(self.rows())

    def panels(self) -> dict[str, Panel]:
        """Loss against ``seconds``, ``joules``, ``bytes`` and ``peak`` memory, and the bounds: figure and caption."""
        bounds, labels = self.bounds, tuple(self.configs)
        drawn = race_panels(self.curves(), self._levels(bounds), labels, self._lost())
        return {**drawn, **{f"bound-{name}": panel for name, panel in bounds_panels(bounds, labels).items()}}

    def _levels(self, bounds: list[Bound]) -> list[Any]:
        finished = {label: own for label, own in self.finished().items() if own}
        epochs = {label: median(run.summary.get("epochs") or 0 for run in own) for label, own in finished.items()}
        joules = {label: [race_table.joules_of(run) for run in own] for label, own in finished.items()}
        whole = {label: median(known) for label, all_of in joules.items() if (known := [j for j in all_of if j])}
        return levels_of(bounds, epochs, whole=whole)

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
        drawn = race_panels(self.curves(), self._levels(self.bounds), tuple(self.configs), self._lost())
        return race_figure(drawn, title=f"Race {self.name}")

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
        lines = "".join(
            f"<p style='margin:2px 0;{_NARROW}{_alarm(caption)}'>{html.escape(caption, quote=False)}</p>"
            for caption in described
        )
        how = "Median over seeds [min .. max]; per run, totals and means over all epochs, including congested ones."
        rule = f"<p style='{_NARROW};opacity:0.8;font-size:90%'>{how} {RULE}</p>"
        return f"{lines}{race_table.page(rows)}{rule}"

    def _repr_html_(self) -> str:
        """Text and table; ``lab.plot(race.figure)`` draws."""
        return self.html()


def _alarm(caption: str) -> str:
    return f";color:{coloured('bad')};font-weight:bold" if "DIFFER" in caption else ""


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
    return Race(Path(path).parent if Path(path).name == FILE else Path(path))
