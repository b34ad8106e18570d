"""A race in its current state: its runs, table, figures and text, both while it runs and afterwards."""

from __future__ import annotations

import html
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.run import StoredRun, open_run, provenance
from dtdg_lab.studies import race_table
from dtdg_lab.studies.race_bounds import bounds_of, levels_of
from dtdg_lab.studies.race_rules import Check, checks
from dtdg_lab.studies.race_store import FAILED, FINISHED, UNDER_WAY, RaceEntry, RaceStore
from dtdg_lab.studies.race_table import RULE, race_words
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.race import (
    Bound,
    Curve,
    Panel,
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


_NARROW = "max-width:95ch"  # the table may be wider than the page and scrolls; text wraps
Place = tuple[str, int]  # contestant, seed


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


class _Ended(StoredRun):
    """A finished run: its numbers are read once, however often the race is drawn."""

    @cached_property
    def summary(self) -> dict[str, Any]:
        return super().summary


class Race:
    """The result of :func:`dtdg_lab.race` and of ``lab.races.open``.

    It may be read from any thread while the race is running: figures then use the windows of the runs.
    """

    def __init__(self, store: RaceStore) -> None:
        self._store = store
        self._live: dict[Place, Any] = {}  # handles of runs that this process started
        self._opened: dict[Path, StoredRun] = {}
        self._grounds: dict[Path, Mapping[str, Any]] = {}
        self._curves: dict[Place, tuple[Any, Curve]] = {}
        self._bounds: tuple[tuple[Path, ...], list[Bound]] = ((), [])
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        made = sum(run.state == FINISHED for run in self.runs)
        return f"<Race {self.name!r}: {', '.join(self.configs)}; {made} of {self.wanted} runs finished>"

    # contents

    @property
    def name(self) -> str:
        """The race's name."""
        return self._store.plan.name

    @property
    def folder(self) -> Path:
        """Where ``race.json`` is."""
        return self._store.folder

    @property
    def configs(self) -> Mapping[str, RunConfig]:
        """By contestant; the race's seeds replace theirs."""
        return self._store.plan.configs

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of every contestant."""
        return self._store.plan.seeds

    @property
    def wanted(self) -> int:
        """Number of runs of the whole race."""
        return len(self.configs) * len(self.seeds)

    @property
    def runs(self) -> tuple[RaceRun, ...]:
        """The newest started run of every contestant and seed, in that order."""
        newest = self._newest()
        order = [(label, seed) for seed in self.seeds for label in self.configs]
        return tuple(_run_of(newest[place]) for place in order if place in newest)

    @property
    def over(self) -> bool:
        """Whether every run has finished."""
        return sum(run.state == FINISHED for run in self.runs) == self.wanted

    def _newest(self) -> dict[Place, RaceEntry]:
        return {(entry.label, entry.seed): entry for entry in list(self._store.entries)}

    def show(self, label: str, seed: int, handle: Any) -> None:
        """Draw an active run from its handle's live data."""
        with self._lock:
            self._live[label, seed] = handle

    @property
    def version(self) -> tuple[Any, ...]:
        """A value that changes whenever anything on display has changed."""
        live = tuple(handle.version for handle in list(self._live.values()))
        return (*live, *(entry.state for entry in list(self._store.entries)))

    def _stored(self, entry: RaceEntry) -> StoredRun:
        assert entry.path is not None  # of runs that finished
        with self._lock:
            if entry.path not in self._opened:
                self._opened[entry.path] = _Ended(RunDirectory.open(entry.path))
            return self._opened[entry.path]

    def _ground(self, run: StoredRun) -> Mapping[str, Any]:
        with self._lock:
            if run.path not in self._grounds:
                self._grounds[run.path] = provenance(run)
            return self._grounds[run.path]

    def _lost(self) -> set[Place]:
        return {place for place, entry in self._newest().items() if entry.state == FAILED}

    def finished(self) -> dict[str, list[StoredRun]]:
        """Finished runs by contestant, in the order of the seeds."""
        newest = self._newest()
        found: dict[str, list[StoredRun]] = {label: [] for label in self.configs}
        for label in self.configs:
            for seed in self.seeds:
                entry = newest.get((label, seed))
                if entry is not None and entry.state == FINISHED:
                    found[label].append(self._stored(entry))
        return found

    @contextmanager
    def _windows(self, newest: Mapping[Place, RaceEntry]) -> Iterator[dict[Place, RunWindow]]:
        """Windows of the runs that have finished or are active here; the active ones must not be written meanwhile."""
        with ExitStack() as stack, self._lock:
            found = {}
            for place, entry in newest.items():
                handle = self._live.get(place)
                if entry.state == FINISHED:  # read from the files: the stream may have lost records
                    found[place] = self._stored(entry).live
                elif entry.state == UNDER_WAY and handle is not None:
                    stack.enter_context(handle.lock)
                    found[place] = handle.live
            yield found

    # results

    def curves(self) -> list[Curve]:
        """Losses of the runs against their costs, as far as known; in the order of ``runs``."""
        newest = self._newest()
        with self._windows(newest) as windows:
            for place, window in windows.items():
                handle = self._live.get(place)
                key = (newest[place].state, newest[place].path, None if handle is None else handle.version)
                if self._curves.get(place, (None, None))[0] != key:
                    over = newest[place].state == FINISHED
                    self._curves[place] = key, curve_of(place[0], place[1], window, over=over)
            return [
                self._curves[label, seed][1]
                for seed in self.seeds
                for label in self.configs
                if (label, seed) in windows
            ]

    @property
    def checks(self) -> list[Check]:
        """Runs whose losses should coincide, compared up to the present step."""
        with self._windows(self._newest()) as windows:
            return checks(self.configs, windows)

    @property
    def bounds(self) -> list[Bound]:
        """Lower bounds for contestants with a finished run."""
        finished = self.finished()
        key = tuple(run.path for own in finished.values() for run in own)
        with self._lock:
            if self._bounds[0] != key:
                self._bounds = key, bounds_of(finished, self._store.plan.copy_bytes_per_s)
            return self._bounds[1]

    def rows(self) -> list[race_table.Row]:
        """The rows of the table."""
        finished, curves, verdicts = self.finished(), self.curves(), self._verdicts()
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
                    grounds=tuple(map(self._ground, finished[label])),
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
        return " ".join(race_words(self._store.plan, self._newest().values(), self.rows(), self.checks))

    def html(self) -> str:
        """Text and table, for pages and notebook cells."""
        rows, found = self.rows(), self.checks
        described = race_words(self._store.plan, self._newest().values(), rows, found)
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


def _run_of(entry: RaceEntry) -> RaceRun:
    return RaceRun(entry.label, entry.seed, entry.state, entry.why, entry.path)


def open_race(path: str | Path) -> Race:
    """A past race, or the current state of one that another process is running.

    Args:
        path: its folder, such as ``runs/races/20260131-psg-blad``, or the ``race.json`` in it.

    Raises:
        RunStoreError: there is no race at that path, its file is damaged, or a newer version wrote it.
    """
    return Race(RaceStore.open(path))
