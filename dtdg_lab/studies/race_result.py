"""A race as it is, while it runs and afterwards: its runs, table, figures and text."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.core.units import as_path, join_words
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import held, lock_of
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.html import template
from dtdg_lab.runs.stored_run import StoredRun, open_run
from dtdg_lab.studies.race_plan import FILE, RacePlan
from dtdg_lab.studies.race_table import (
    MEASURES,
    RULE,
    Row,
    bounds_of,
    differing,
    frame,
    joules_of,
    page,
    spreads_of,
    winners,
)
from dtdg_lab.studies.same_losses import Check, checks
from dtdg_lab.studies.trials import FAILED, FINISHED, INTERRUPTED, RUNNING, Trial, TrialJournal
from dtdg_lab.visualization.chart import CaptionedFigure, Figure
from dtdg_lab.visualization.studies.race import (
    Curve,
    RaceLevel,
    curve_of,
    near_losses,
    race_cards,
    race_figure,
    reached,
)
from dtdg_lab.visualization.studies.race_bounds import Bound, bounds_cards, bounds_figure

if TYPE_CHECKING:
    import pandas as pd


UNDER_WAY = "under way"
OWN_ENERGY_BOUND = "as raced, knows the links, best in the cost model"
STATES: Mapping[str, str] = {RUNNING: UNDER_WAY, INTERRUPTED: "left"}  # of a trial -> of a run of a race


@dataclass(frozen=True, slots=True)
class RaceRun:
    """A run of a race.

    Attributes:
        label: the contestant.
        seed: the seed.
        state: ``finished``, ``under way``, ``failed``, or ``left`` if it was interrupted.
        why: reason why it ended early or failed.
        path: its folder; None if it could not be started.
        keeper: object that keeps the folder from being deleted while it is read.
    """

    label: str
    seed: int
    state: str
    why: str
    path: Path | None
    keeper: object = field(default=None, repr=False, compare=False)

    def open(self) -> StoredRun:
        """Open the run's records.

        Raises:
            RunStoreError: there is no run at its path, or it was never started.
        """
        run = open_run(self.path or Path(f"{self.label}, seed {self.seed}"))
        run.keeper = self.keeper
        return run


Slot = tuple[str, int]  # contestant, seed


class _FinishedRun(StoredRun):
    """A finished run, whose summary is read only once however often the race is drawn."""

    @cached_property
    def summary(self) -> dict[str, Any]:
        return super().summary


class Race:
    """The result of :func:`dtdg_lab.race` and of ``lab.races.open``.

    Any thread may read it while the race runs.

    Args:
        folder: the race's folder.
        plan: the race's plan; by default read from the folder.
        trials: key -> trial, which changes while the race runs; by default read from the folder.

    Attributes:
        folder: the folder with ``race.json``.
        name: the race's name.
        configs: contestant -> its settings; the race's seeds replace its own.
        seeds: seeds of every contestant.
        wanted: number of runs in the whole race.
    """

    def __init__(self, folder: Path, plan: RacePlan | None = None, trials: Mapping[str, Trial] | None = None) -> None:
        self.folder = folder
        self._plan = plan = plan or RacePlan.load(folder)
        self.name, self.configs, self.seeds = plan.name, plan.configs, plan.seeds
        self._trials = {trial.key: trial for trial in TrialJournal(folder).read()} if trials is None else trials
        order = sorted(plan.cells, key=lambda cell: (plan.seeds.index(cell.seed), cell.number))
        self._keys: dict[Slot, str] = {(cell.settings["contestant"], cell.seed): cell.key for cell in order}
        self.wanted = len(self._keys)
        self._live: dict[str, Any] = {}  # handles of runs that this process started
        self._opened: dict[Path, StoredRun] = {}
        self._curves: dict[Slot, tuple[Any, Curve]] = {}
        self._bounds: tuple[tuple[Path, ...], list[Bound]] = ((), [])
        self._read: dict[StoredRun, Any] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        finished = sum(run.state == FINISHED for run in self.runs)
        return f"<Race {self.name!r}: {', '.join(self.configs)}; {finished} of {self.wanted} runs finished>"

    # what the race contains

    @property
    def runs(self) -> tuple[RaceRun, ...]:
        """The newest run of every contestant and seed that was started, seed by seed."""
        return tuple(
            RaceRun(*slot, STATES.get(trial.status, trial.status), trial.reason, trial.run)
            for slot, trial in self._started().items()
        )

    @property
    def over(self) -> bool:
        """Whether every run has finished."""
        return sum(run.state == FINISHED for run in self.runs) == self.wanted

    def _started(self) -> dict[Slot, Trial]:
        return {slot: self._trials[key] for slot, key in self._keys.items() if key in self._trials}

    def show(self, key: str, handle: Any) -> None:
        """Draw the active run of a trial from the records that its handle receives."""
        with self._lock:
            self._live[key] = handle

    @property
    def version(self) -> tuple[Any, ...]:
        """A value that changes whenever anything on display changes."""
        live = tuple(handle.version for handle in list(self._live.values()))
        return (*live, *(trial.status for trial in list(self._trials.values())))

    def _stored(self, trial: Trial) -> StoredRun:
        assert trial.run is not None  # a finished run has a folder
        with self._lock:
            if trial.run not in self._opened:
                self._opened[trial.run] = _FinishedRun(RunDirectory.open(trial.run))
            return self._opened[trial.run]

    def _failed(self) -> set[Slot]:
        return {slot for slot, trial in self._started().items() if trial.status == FAILED}

    def finished(self) -> dict[str, list[StoredRun]]:
        """Return contestant -> its finished runs, in the order of the seeds."""
        by_label: dict[str, list[StoredRun]] = {label: [] for label in self.configs}
        for (label, _), trial in self._started().items():
            if trial.status == FINISHED:
                by_label[label].append(self._stored(trial))
        return by_label

    @contextmanager
    def _tables(self) -> Iterator[dict[Slot, RunTables]]:
        """Lock and return the tables of the runs that have finished or are active in this process."""
        with self._lock:
            runs: dict[Slot, Any] = {}
            for slot, trial in self._started().items():
                if trial.status == FINISHED:  # read from files, since the stream may have lost records
                    runs[slot] = self._stored(trial)
                elif trial.status == RUNNING and trial.key in self._live:
                    runs[slot] = self._live[trial.key]
            with held(*map(lock_of, runs.values())):
                yield {slot: run.live for slot, run in runs.items()}

    # results

    def curves(self) -> list[Curve]:
        """Return the losses of the runs over their costs, as far as known, in the order of ``runs``."""
        trials = self._started()
        with self._tables() as tables:
            for slot, tables_of_run in tables.items():
                trial, handle = trials[slot], self._live.get(trials[slot].key)
                key = (trial.status, trial.run, None if handle is None else handle.version)
                if self._curves.get(slot, (None, None))[0] != key:
                    self._curves[slot] = key, curve_of(*slot, tables_of_run, over=trial.status == FINISHED)
            return [self._curves[slot][1] for slot in tables]

    @property
    def checks(self) -> list[Check]:
        """Comparisons of runs whose losses should be the same, up to the current step."""
        with self._tables() as tables:
            return checks(self.configs, tables)

    @property
    def bounds(self) -> list[Bound]:
        """Lower bounds for contestants with a finished run."""
        finished = self.finished()
        key = tuple(run.path for runs in finished.values() for run in runs)
        with self._lock:
            if self._bounds[0] != key:
                self._bounds = key, bounds_of(finished, self._plan.copy_bytes_per_s, self._read)
            return self._bounds[1]

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        finished, curves, verdicts = self.finished(), self.curves(), self._verdicts()
        origins = [(slot[0], trial.provenance) for slot, trial in self._started().items() if trial.status == FINISHED]
        near = near_losses(curves, tuple(self.configs), self._failed())
        by_slot = {(curve.label, curve.seed): curve for curve in curves}
        names = differing(self.configs)
        rows = []
        for label, config in self.configs.items():
            seconds = [_near_s(by_slot.get((label, run.config.seed)), near) for run in finished[label]]
            sources = {source for run in finished[label] for source in run.summary.get("energy_j") or {}}
            rows.append(
                Row(
                    label=label,
                    config=config,
                    settings={name: config.flat[name] for name in names},
                    runs=tuple(finished[label]),
                    planned=len(self.seeds),
                    sources=tuple(sorted(sources)),
                    failed=tuple(run.why for run in self.runs if run.label == label and run.state == FAILED),
                    spreads=spreads_of(finished[label], seconds),
                    coincides=verdicts.get(label),
                    provenance=tuple(origin for name, origin in origins if name == label),
                )
            )
        return rows

    def _verdicts(self) -> dict[str, bool]:
        """Return contestant -> whether its losses equal those of all runs with which it was compared."""
        verdicts: dict[str, bool] = {}
        for check in self.checks:
            for label in check.labels:
                if check.ok is not None:
                    verdicts[label] = verdicts.get(label, True) and check.ok
        return verdicts

    @property
    def table(self) -> pd.DataFrame:
        """One row per contestant: medians and spreads over the seeds, with data and protocol."""
        return frame(self.rows())

    def panels(self) -> dict[str, CaptionedFigure]:
        """Draw losses over ``seconds``, ``joules``, ``bytes`` and ``peak`` memory, and the bounds, with captions."""
        bounds, labels = self.bounds, tuple(self.configs)
        panels = race_cards(self.curves(), self._levels(bounds), labels, self._failed())
        return {**panels, **{f"bound-{name}": panel for name, panel in bounds_cards(bounds, labels).items()}}

    def _levels(self, bounds: list[Bound]) -> list[RaceLevel]:
        """Return the bounds of a whole race for vertical lines: seconds and joules of the trained epochs.

        The joules of a whole run include evaluations, for which there is no bound.
        """
        finished = {label: runs for label, runs in self.finished().items() if runs}
        epochs = {label: median(run.summary.get("epochs") or 0 for run in runs) for label, runs in finished.items()}
        joules = {label: [joules_of(run) for run in runs] for label, runs in finished.items()}
        totals = {label: median(values) for label, all_j in joules.items() if (values := [j for j in all_j if j])}
        levels = []
        for bound in bounds:
            count, name = epochs.get(bound.label, 0), bound.name
            if not count:
                continue
            if bound.quantity == "epoch":
                levels.append(RaceLevel(bound.label, "seconds", bound.bound * count, f"{count:g} epochs, {name}"))
            if bound.quantity != "energy" or bound.label not in totals:
                continue
            total_j = totals[bound.label]
            if bound.raced:
                if bound.bound == bound.measured:  # the bound is its own energy: one line is drawn for all contestants
                    levels.append(RaceLevel(bound.label, "joules", total_j, OWN_ENERGY_BOUND))
            elif bound.measured > 0:
                levels.append(RaceLevel(bound.label, "joules", total_j * bound.bound / bound.measured, name))
        return levels

    @property
    def figures(self) -> dict[str, Figure]:
        """The single panels, and ``race`` and ``bounds``, which combine them."""
        panels = self.panels()
        return {
            **{name: figure for name, (figure, _) in panels.items()},
            "race": race_figure(panels, title=f"Race {self.name}"),
            "bounds": bounds_figure(self.bounds, tuple(self.configs)),
        }

    @property
    def figure(self) -> Figure:
        """Losses over wall time, joules, bytes and memory, on shared axes."""
        return race_figure(self.panels(), title=f"Race {self.name}")

    def captions(self) -> dict[str, str]:
        """Return the caption of each panel."""
        return {name: caption for name, (_, caption) in self.panels().items()}

    def summary(self) -> str:
        """Return the progress, the clear winners, and caveats."""
        return " ".join(race_words(self._plan, self.runs, self.rows(), self.checks))

    def html(self) -> str:
        """Return text and table, for pages and notebook cells."""
        rows = self.rows()
        captions = race_words(self._plan, self.runs, rows, self.checks)
        values = "Median over seeds [min .. max]; per run, totals and means over all epochs, including congested ones."
        return page(rows, captions, f"{values} {RULE}")

    def _repr_html_(self) -> str:
        """Return text and table; the figure is drawn by ``lab.plot(race.figure)``."""
        return self.html()


def _near_s(curve: Curve | None, near: Mapping[int, float]) -> float | None:
    """Return the seconds to a loss close to the best; infinite if it is never reached, None if unknown."""
    if curve is None or curve.seed not in near:
        return None
    seconds = reached(curve, near, "seconds")
    return math.inf if seconds is None else seconds


def open_race(path: str | Path) -> Race:
    """Open a past race, or one that another process is running.

    Args:
        path: the race's folder, such as ``runs/races/20260131-psg-blad``, or its ``race.json``.

    Raises:
        RunStoreError: there is no race at that path, or its file is damaged or from a newer version.
    """
    folder = as_path(path, "path", RunStoreError)
    return Race(folder.parent if folder.name == FILE else folder)


def race_words(plan: RacePlan, runs: Iterable[RaceRun], rows: Sequence[Row], compared: Sequence[Check]) -> list[str]:
    """Return sentences about a race; one with the word DIFFER reports an error.

    Args:
        plan: the race's plan.
        runs: the newest run of every contestant and seed.
        rows: rows of the table.
        compared: comparisons of losses that should be the same.
    """
    started, planned = list(runs), len(plan.configs) * len(plan.seeds)
    finished = [run for run in started if run.state == FINISHED]
    failed = [run for run in started if run.state == FAILED]
    won: dict[str, list[str]] = {}
    titles = {measure.name: measure.title for measure in MEASURES}
    for name, label in winners(rows).items():
        won.setdefault(label, []).append(titles[name])
    agreed: dict[tuple[str, ...], list[Check]] = {}
    for check in compared:
        if check.ok:
            agreed.setdefault(check.labels, []).append(check)
    few_pairs: dict[str, list[str]] = {}  # warning about link metrics -> contestants
    for row in rows:
        for warning in dict.fromkeys(run.summary.get("link_warning") for run in row.runs):
            if warning:
                few_pairs.setdefault(warning, []).append(row.label)
    captions = template("studies/templates/race.txt").render(
        plan=plan,
        rows=rows,
        started=started,
        planned=planned,
        finished=finished,
        running=[f"{run.label} with seed {run.seed}" for run in started if run.state == UNDER_WAY],
        early=sum(bool(run.why) for run in finished),
        failed=[f"{run.label} with seed {run.seed} ({' '.join(run.why.split())})" for run in failed],
        won=won,
        so_far="" if len(finished) == planned else " so far",
        differing=[check for check in compared if check.ok is False],
        agreed=[f"{join_words(labels)} ({_largest_difference(checks)})" for labels, checks in agreed.items()],
        ranks=[str(count) for count in sorted({config.ranks for config in plan.configs.values()})],
        few_pairs=few_pairs,
    )
    return captions.splitlines()


def _largest_difference(compared: Collection[Check]) -> str:
    first = max((check.first for check in compared if check.first is not None), default=None)
    curve = max((check.curve for check in compared if check.curve is not None), default=None)
    differences = [(first, "at first"), (curve, "at most")]
    return "apart by " + join_words([f"{value:.1g} {name}" for value, name in differences if value is not None])
