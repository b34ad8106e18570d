"""Study: the trials of a sweep, done or not: table, figures, the best, what matters."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError, UnknownNameError
from dtdg_lab.core.units import format_seconds
from dtdg_lab.runs.open import StoredRun, open_run
from dtdg_lab.runs.provenance import COLUMNS
from dtdg_lab.studies.combinations import Combination, combinations_of
from dtdg_lab.studies.importance import importance_of
from dtdg_lab.studies.objective import BASELINES, number
from dtdg_lab.studies.study_figures import MapOf, history, line, parallel, study_map
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.studies.trials import FAILED, FINISHED, OVER, PRUNED, REFUSED, RUNNING, WAITING, Trial, TrialLog
from dtdg_lab.views.layout import Figure, join_words

if TYPE_CHECKING:
    import pandas as pd

SWEEP_FILE = "sweep.json"
Panel = tuple[Figure, str]
_LOSSES = ("validation_loss", *BASELINES, "test_loss", "persistence_loss", "mean_loss", "skill")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Study:
    """A sweep and how far its trials are.

    Attributes:
        path: its folder.
        sweep: what it is made of.
        trials: done, under way and waiting; of a search only those that were drawn.
    """

    path: Path
    sweep: Sweep
    trials: tuple[Trial, ...]

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def is_complete(self) -> bool:
        """Whether every run has been made, or pruned."""
        return sum(trial.status in OVER for trial in self.trials) >= self.sweep.total

    @property
    def counts(self) -> dict[str, int]:
        """How many trials have each status."""
        return dict(Counter(trial.status for trial in self.trials))

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The trials by their settings: seeds of one are together."""
        return combinations_of(self.trials, self.sweep.objective)

    def config_of(self, trial: Trial) -> RunConfig:
        """The config of a trial's run."""
        cell = self.sweep.by_key.get(trial.key)
        return self.sweep.config_of(trial.settings, trial.seed) if cell is None else cell.config

    def trial(self, key: str) -> Trial:
        """The trial with a key.

        Raises:
            UnknownNameError: there is none.
        """
        found = {trial.key: trial for trial in self.trials}
        if key not in found:
            raise UnknownNameError("trial", key, found)
        return found[key]

    def open(self, trial: Trial) -> StoredRun:
        """The run of a trial.

        Raises:
            RunStoreError: it has none, or its folder is gone.
        """
        if trial.run is None:
            raise RunStoreError(f"trial {trial.number} (seed {trial.seed}) is {trial.status}: it has no run yet.")
        return open_run(trial.run)

    @property
    def best(self) -> Combination | None:
        """The combination with the best median objective, of those with the most seeds done; never by the test part.

        None before any is done, and where data, protocol or task are studied: such losses have no order. The
        combinations of one of them: ``study.best_where(dataset="collegemsg")``.
        """
        if any(self._decides(axis.settings) for axis in self.sweep.axes):
            return None
        return self.best_where()

    def best_where(self, **settings: Any) -> Combination | None:
        """The best of the combinations with some settings.

        Raises:
            UnknownNameError: a name is not studied.
        """
        for name in settings:
            if name not in self.sweep.names:
                raise UnknownNameError("setting of the study", name, self.sweep.names)
        among = [
            each
            for each in self.combinations
            if each.middle is not None and all(each.settings[name] == value for name, value in settings.items())
        ]
        most = max((len(each.values) for each in among), default=0)
        sign = 1 if self.sweep.goal == "min" else -1
        whole = [each for each in among if len(each.values) == most]
        return min(whole, key=lambda each: sign * (each.middle or 0.0), default=None)

    @staticmethod
    def _decides(settings: tuple[Mapping[str, Any], ...]) -> bool:
        from dtdg_lab.studies.axes import decides_the_loss

        return any(decides_the_loss(name) for each in settings for name in each)

    @property
    def importance(self) -> dict[str, float]:
        """Share of the objective's variation that each studied setting explains, largest first; empty before it can be.

        Optuna's PED-ANOVA of the better half where the study searches; in a grid the variance of each axis's means over
        that of all runs.
        """
        return importance_of(self.sweep, self.combinations, self.path)

    @property
    def table(self) -> pd.DataFrame:
        """One row for each trial: settings, status, objective, losses beside baselines, where from, run, seconds."""
        import pandas as pd

        columns = list(dict.fromkeys([
            "trial", *self.sweep.names, "seed", "status", "objective", *_LOSSES, *COLUMNS, "seconds", "run", "reason",
        ]))  # fmt: skip
        return pd.DataFrame([self._row(trial) for trial in self.trials], columns=columns)

    def _row(self, trial: Trial) -> dict[str, Any]:
        values = dict(trial.values)
        if values.get("skill_split") != "test":  # a pruned run has not seen the test part: they are of another one
            values |= dict.fromkeys(("persistence_loss", "mean_loss", "skill"))
        return {
            "trial": trial.number, **{name: trial.settings.get(name) for name in self.sweep.names},
            "seed": trial.seed, "status": trial.status,
            "objective": number(values.get(self.sweep.objective)) if trial.status == FINISHED else None,
            **{name: values.get(name) for name in _LOSSES},
            **{name: trial.provenance.get(name) for name in COLUMNS},
            "seconds": trial.seconds, "run": None if trial.run is None else str(trial.run), "reason": trial.reason,
        }  # fmt: skip

    # what it looks like

    @property
    def figure(self) -> Figure:
        """A line over one axis, a heat map over two, parallel coordinates over more; of a search, its course too."""
        return next(iter(self.panels().values()))[0]

    def heat_map(self, x: str | None = None, y: str | None = None, colour: str = "") -> Figure:
        """Medians over two of the studied settings.

        Args:
            x: across; the first setting where not given.
            y: up; the second.
            colour: number of the runs that is drawn, the objective where not given; see ``runs.summary.MEANINGS``.

        Raises:
            ConfigError: fewer than two settings are studied, or one is named twice.
            UnknownNameError: a name is not studied, or runs have no such number.
        """
        return self.map_panel(x, y, colour)[0]

    def map_panel(self, x: str | None = None, y: str | None = None, colour: str = "") -> Panel:
        """As :meth:`heat_map`, with what to look for in words."""
        names = self.sweep.names
        if len(names) < 2:
            raise ConfigError(f"only {names[0]} is studied: a map needs two settings. study.figure draws a line.")
        x = x or next(name for name in names if name != y)
        y = y or next(name for name in names if name != x)
        for name in (x, y):
            if name not in names:
                raise UnknownNameError("setting of the study", name, names)
        if x == y:
            raise ConfigError(f"x and y are both {x}: name two of {', '.join(names)}.")
        return study_map(MapOf(self.sweep, self._coloured(colour), x, y, colour or self.sweep.objective), self.name)

    def _coloured(self, colour: str) -> tuple[Combination, ...]:
        if not colour or colour == self.sweep.objective:
            return self.combinations
        known = {name for trial in self.trials for name, value in trial.values.items() if number(value) is not None}
        if known and colour not in known:
            raise UnknownNameError("number of the runs", colour, known)
        return combinations_of(self.trials, colour)

    def panels(self) -> dict[str, Panel]:
        """The study's own charts by name, each with what to look for."""
        names, found = self.sweep.names, {}
        if self.sweep.is_search:
            found["history"] = history(self.sweep, self.combinations, self.name)
            if len(names) == 1:
                found["line"] = line(self.sweep, self.combinations, self.name)
        elif len(names) == 1:
            found["line"] = line(self.sweep, self.combinations, self.name)
        elif len(names) == 2:
            found["map"] = self.map_panel()
        if len(names) > 2 or (self.sweep.is_search and len(names) > 1):
            found["parallel"] = parallel(self.sweep, self.combinations, self.name)
        return found

    def analysis(self) -> dict[str, Panel]:
        """The analysis of a shipped study, each figure with what to look for; else its own charts."""
        if not self.sweep.shipped:
            return self.panels()
        from dtdg_lab.studies.shipped import shipped

        return shipped(self.sweep.shipped).analysis(self)

    def analyse(self, analysis: Callable[[Study], dict[str, Panel]]) -> dict[str, Panel]:
        """What an analysis of one's own, a function from a study to figures, makes of it."""
        return analysis(self)

    # what it says

    def in_words(self) -> str:
        """How far it is, what is best and by how much, what failed, was pruned or left out, and where losses differ."""
        counts, total = self.counts, self.sweep.total
        told = [f"{counts.get(status, 0)} {status}" for status in (FINISHED, PRUNED, FAILED, REFUSED, RUNNING)]
        said = [f"{self.name}: {total} runs, {join_words([each for each in told if each[0] != '0'] or ['none done'])}."]
        best = self.best
        if best is not None and best.middle is not None:
            several = len(best.values) > 1
            spread = (
                f" ({best.low:.4g} to {best.high:.4g} over {len(best.values)} seeds)" if several else ", of one seed"
            )
            said.append(f"Best {self.sweep.objective}: {best.middle:.4g}{spread} at {best.told}.")
        if self.sweep.skipped:
            why = Counter(each.reason for each in self.sweep.skipped)
            said += [f"{count} combination{'s' * (count != 1)} left out: {reason}" for reason, count in why.items()]
        data: dict[Any, set[str]] = {}
        for trial in self.trials:
            if trial.provenance.get("data"):
                key = (self.config_of(trial).dataset, trial.seed, *map(str, self._data_settings(trial)))
                data.setdefault(key, set()).add(trial.provenance["data"])
        if any(len(hashes) > 1 for hashes in data.values()):
            said.append("The data changed between runs (see the column data): begin anew with again=True.")
        said += [f"Trial {trial.number}, seed {trial.seed}: {note}" for trial in self.trials for note in trial.notes]
        return " ".join(said)

    def _data_settings(self, trial: Trial) -> list[Any]:
        return [self.config_of(trial).options.get(room) for room in ("datasets",)]

    def __repr__(self) -> str:
        head = f"Study {self.name!r} of {self.sweep!r}"
        return "\n".join([head, self.in_words()])

    def _repr_html_(self) -> str:
        """Words, the best, and the table; ``lab.plot(study.figure)`` draws it."""
        shown = self.table.drop(columns="run").to_html(
            na_rep="", index=False, escape=True, float_format=lambda value: f"{value:.4g}"
        )
        return f"<p>{html.escape(self.in_words())}</p><div style='overflow-x:auto'>{shown}</div>"

    @property
    def seconds(self) -> str:
        """How long the runs took together, in words."""
        return format_seconds(sum(trial.seconds or 0.0 for trial in self.trials))


def open_study(path: str | Path) -> Study:
    """A study as its folder has it; it may be under way.

    Raises:
        RunStoreError: there is no study at that path, or a file of it is damaged.
        ConfigError: it was written by a newer version.
    """
    folder = Path(path)
    file = folder / SWEEP_FILE
    if not file.is_file():
        raise RunStoreError(
            f"{path} is no study: it has no {SWEEP_FILE}. Give the folder of one, such as runs/studies/figure8."
        )
    try:
        sweep = Sweep.load(file)
    except ConfigError as error:
        raise RunStoreError(f"{file} cannot be read: {error} Nothing was changed.") from error
    return study_of(folder, sweep)


def study_of(folder: Path, sweep: Sweep) -> Study:
    """The study in a folder, of a sweep that is known already."""
    logged = {trial.key: trial for trial in TrialLog(folder).read()}
    waiting = _waiting(sweep, logged)
    return Study(folder, sweep, tuple(waiting or logged.values()))


def _waiting(sweep: Sweep, logged: Mapping[str, Trial]) -> list[Trial]:
    """The trials of a grid in its order, also those that were not begun; empty of a search."""
    numbers: dict[tuple[tuple[str, Any], ...], int] = {}
    found = []
    for cell in sweep.cells:
        place = numbers.setdefault(tuple(cell.settings.items()), len(numbers))
        found.append(logged.get(cell.key, Trial(cell.key, place, cell.settings, cell.seed, status=WAITING)))
    return found
