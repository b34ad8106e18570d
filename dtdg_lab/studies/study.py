"""Study: the trials of a sweep, finished or not: table, figures, best settings, and their importance."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError, UnknownNameError
from dtdg_lab.core.units import as_path, format_seconds, join_words
from dtdg_lab.runs.registered_code import learn_extensions
from dtdg_lab.runs.run import StoredRun, open_run
from dtdg_lab.studies import trials as log
from dtdg_lab.studies.sweep import BASELINES, Sweep, decides_the_loss, number, settings_text
from dtdg_lab.studies.trials import Trial, TrialLog
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.panels import Panel
from dtdg_lab.visualization.studies.result import COLUMNS
from dtdg_lab.visualization.studies.search import (
    MapNames,
    StudyCell,
    Way,
    study_course,
    study_line,
    study_map,
    study_parallel,
    writer,
)

if TYPE_CHECKING:
    import pandas as pd


# Trials of the same settings, aggregated over seeds.


@dataclass(frozen=True, slots=True)
class Combination:
    """One combination of settings.

    Attributes:
        number: of it, from 0.
        settings: its values along the studied axes.
        trials: of its seeds.
        values: a number of each finished run that has it, in the order of the seeds.
    """

    number: int
    settings: Mapping[str, Any]
    trials: tuple[Trial, ...]
    values: tuple[float, ...]

    @property
    def middle(self) -> float | None:
        """The median over seeds; None if no run has the number."""
        return median(self.values) if self.values else None

    @property
    def low(self) -> float | None:
        """The minimum over seeds."""
        return min(self.values, default=None)

    @property
    def high(self) -> float | None:
        """The maximum over seeds."""
        return max(self.values, default=None)

    @property
    def described(self) -> str:
        """Its settings as text."""
        return settings_text(self.settings)


def combinations_of(trials: Sequence[Trial], of: str) -> tuple[Combination, ...]:
    """The trials by settings, in the order of their numbers.

    Args:
        trials: of a study.
        of: name of the wanted number; unfinished trials do not count.
    """
    found: dict[int, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.number, []).append(trial)
    combinations = []
    for place, each in sorted(found.items()):
        known = [number(trial.values.get(of)) for trial in each if trial.status == log.FINISHED]
        values = tuple(value for value in known if value is not None)
        combinations.append(Combination(place, each[0].settings, tuple(each), values))
    return tuple(combinations)


# Charts of a study: its combinations as input of the views.


def axis_name(name: str) -> str:
    """A setting with its unit."""
    unit = OPTIONS[name].unit if name in OPTIONS else ""
    return f"{name} ({unit})" if unit else name


def _cell(place: tuple[Any, Any], combinations: Sequence[Combination], measure: str) -> StudyCell:
    trials = [trial for each in combinations for trial in each.trials]
    states = {state: sum(trial.status == state for trial in trials) for state in (log.FAILED, log.PRUNED, log.RUNNING)}
    return StudyCell(
        *place,
        values=tuple(value for each in combinations for value in each.values),
        asked=len(trials),
        states={state: count for state, count in states.items() if count},
        described=tuple(_to_dict(trial, measure) for trial in trials),
        key=_shown(trials),
    )


def _to_dict(trial: Trial, measure: str) -> str:
    value = number(trial.values.get(measure)) if trial.status == log.FINISHED else None
    if value is not None:
        return f"seed {trial.seed}: {writer(measure)(value)}"
    reason = f": {trial.reason[:90]}" if trial.reason else ""
    return f"seed {trial.seed}: {trial.status}{reason}"


def _shown(trials: Sequence[Trial]) -> str:
    """The run that a click opens: the first active one, else the first one."""
    with_run = [trial for trial in trials if trial.run is not None]
    first = [trial for trial in with_run if trial.status == log.RUNNING] or with_run
    return first[0].key if first else ""


SWEEP_FILE = "sweep.json"
_LOSSES = ("validation_loss", *BASELINES, "test_loss", "persistence_loss", "mean_loss", "skill")


def importance_of(sweep: Sweep, trials: Sequence[Trial], folder: Path) -> dict[str, float]:
    """Setting -> share, largest first, from some trials; empty if too few are done, or nothing varies (see
    :attr:`Study.importance`).
    """
    if sweep.is_search:
        return dict(log.importance(folder, sweep))
    import pandas as pd

    rows = [
        {**trial.settings, "seed": trial.seed, "value": value}
        for trial in trials
        if trial.status == log.FINISHED and (value := number(trial.values.get(sweep.objective))) is not None
    ]
    frame = pd.DataFrame(rows, columns=[*sweep.names, "seed", "value"]).astype(dict.fromkeys(sweep.names, object))
    centred = frame["value"] - frame.groupby("seed")["value"].transform("mean")
    whole = float((centred**2).mean())
    if len(rows) < 2 or not whole:
        return {}
    shares = {
        name: float((centred.groupby(frame[name], sort=False).transform("mean") ** 2).mean()) / whole
        for name in sweep.names
    }
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Study:
    """A sweep and the state of its trials.

    Attributes:
        path: its folder.
        sweep: the plan of the study.
        trials: finished, active and waiting; of a search only those already drawn.
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
        """Whether every run has finished, or was pruned."""
        return sum(trial.status in log.OVER for trial in self.trials) >= self.sweep.total

    @property
    def counts(self) -> dict[str, int]:
        """How many trials have each status."""
        return dict(Counter(trial.status for trial in self.trials))

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The trials by settings: the seeds of one combination together."""
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
            RunStoreError: it has none, or its folder is missing.
        """
        if trial.run is None:
            raise RunStoreError(f"trial {trial.number} (seed {trial.seed}) is {trial.status}: it has no run yet.")
        return open_run(trial.run)

    @property
    def best(self) -> Combination | None:
        """The combination with the best median objective among those with most finished seeds; never by the test split.

        None before any has finished, and where data, protocol or task are studied: such losses are not comparable. To
        compare within one of them: ``study.best_where(dataset="collegemsg")``.
        """
        if any(decides_the_loss(name) for axis in self.sweep.axes for each in axis.settings for name in each):
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

    @property
    def importance(self) -> dict[str, float]:
        """Share of the objective's variation that each studied setting explains, largest first; empty if unknown yet.

        Optuna's PED-ANOVA of the better half in a search; in a grid main effects: the variance of the means of each
        axis's values over the variance of all runs, each less the mean of its seed. The rest to 1 is interaction
        between settings.
        """
        return importance_of(self.sweep, sorted(self.trials, key=lambda trial: trial.number), self.path)

    @property
    def table(self) -> pd.DataFrame:
        """One row for each trial: settings, status, objective, losses beside baselines, provenance, run, seconds."""
        import pandas as pd

        named = self._row(Trial("", 0, {}, 0))  # a search that has not begun has no trial
        return pd.DataFrame([self._row(trial) for trial in self.trials], columns=list(named))

    def _row(self, trial: Trial) -> dict[str, Any]:
        values = dict(trial.values)
        if values.get("skill_split") != "test":  # a pruned run has no test losses: these are of another split
            values |= dict.fromkeys(("persistence_loss", "mean_loss", "skill"))
        return {
            "trial": trial.number,
            **{name: trial.settings.get(name) for name in self.sweep.names},
            "seed": trial.seed,
            "status": trial.status,
            "objective": number(values.get(self.sweep.objective)) if trial.status == log.FINISHED else None,
            **{name: values.get(name) for name in _LOSSES},
            **{name: trial.provenance.get(name) for name in COLUMNS},
            "seconds": trial.seconds,
            "run": None if trial.run is None else str(trial.run),
            "reason": trial.reason,
        }

    # charts

    @property
    def figure(self) -> Figure:
        """A line over one axis, a heat map over two, parallel coordinates over more; of a search, also its progress."""
        return next(iter(self.panels().values()))[0]

    def heat_map(self, x: str | None = None, y: str | None = None, colour: str = "") -> Figure:
        """Medians over two of the studied settings.

        Args:
            x: horizontal axis; by default the first setting.
            y: vertical axis; by default the second.
            colour: number of the runs that is shown, by default the objective; see ``runs.summary.SUMMARY_MEANINGS``.

        Raises:
            ConfigError: fewer than two settings are studied, or one is named twice.
            UnknownNameError: a name is not studied, or runs have no such number.
        """
        return self.map_panel(x, y, colour)[0]

    def map_panel(self, x: str | None = None, y: str | None = None, colour: str = "") -> Panel:
        """As :meth:`heat_map`, with its caption."""
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
        measure = colour or self.sweep.objective
        numbers = {name for trial in self.trials for name, value in trial.values.items() if number(value) is not None}
        if measure != self.sweep.objective and numbers and measure not in numbers:
            raise UnknownNameError("number of the runs", measure, numbers)
        found: dict[tuple[Any, Any], list[Combination]] = {}  # over any other settings
        for each in combinations_of(self.trials, measure):
            found.setdefault((each.settings[x], each.settings[y]), []).append(each)
        least = self._least if measure == self.sweep.objective else measure not in ("skill", "hit_rate")
        pooled = tuple(name for name in names if name not in (x, y))
        title = f"{self.name}: {measure}"
        shown = MapNames(title, axis_name(x), axis_name(y), measure, least_is_best=least, pooled=pooled)
        return study_map([_cell(place, each, measure) for place, each in found.items()], shown)

    @property
    def _least(self) -> bool:
        return self.sweep.goal == "min"

    def panels(self) -> dict[str, Panel]:
        """The study's own charts by name, each with its caption."""
        sweep, objective, combinations, found = self.sweep, self.sweep.objective, self.combinations, {}
        first = axis_name(sweep.names[0])
        if sweep.is_search:
            cells = [_cell((each.number, ""), [each], objective) for each in combinations]
            names = MapNames(self.name, "trial", "", objective, least_is_best=self._least)
            found["history"] = study_course(cells, names)
        if len(sweep.names) == 1:
            cells = [_cell((each.settings[sweep.names[0]], ""), [each], objective) for each in combinations]
            names = MapNames(self.name, first, "", objective, least_is_best=self._least)
            found["line"] = study_line(cells, names, joined=not sweep.is_search)
        elif len(sweep.names) == 2 and not sweep.is_search:
            found["map"] = self.map_panel()
        else:
            ways = []
            for each in combinations:
                described = "<br>".join([each.described, *(_to_dict(trial, objective) for trial in each.trials[:8])])
                settings = tuple(each.settings[name] for name in sweep.names)
                if each.middle is not None:
                    ways.append(Way(settings, each.middle, described, _shown(each.trials)))
            heads = [axis_name(name) for name in sweep.names]
            found["parallel"] = study_parallel(ways, heads, objective, title=self.name, least=self._least)
        return found

    def analysis(self) -> dict[str, Panel]:
        """The analysis of a shipped study, each figure with its caption; otherwise its own charts."""
        if not self.sweep.shipped:
            return self.panels()
        from dtdg_lab.studies.presets import analysis_of, preset

        return analysis_of(preset(self.sweep.shipped), self)

    # text

    def summary(self) -> str:
        """Progress, best settings and their margin, failed, pruned and skipped runs, and differences between losses."""
        counts, total = self.counts, self.sweep.total
        described = [
            f"{counts.get(status, 0)} {status}"
            for status in (log.FINISHED, log.PRUNED, log.FAILED, log.REFUSED, log.RUNNING)
        ]
        ended = [each for each in described if each[0] != "0"] or ["none finished"]
        said = [f"{self.name}: {total} runs, {join_words(ended)}."]
        best = self.best
        if best is not None and best.middle is not None:
            ends = f" ({best.low:.4g} to {best.high:.4g} over {len(best.values)} seeds)"
            spread = ends if len(best.values) > 1 else ", of one seed"
            said.append(f"Best {self.sweep.objective}: {best.middle:.4g}{spread} at {best.described}.")
        if self.sweep.skipped:
            why = Counter(each.reason for each in self.sweep.skipped)
            said += [f"{count} combination{'s' * (count != 1)} left out: {reason}" for reason, count in why.items()]
        data: dict[Any, set[str]] = {}
        for trial in self.trials:
            if trial.provenance.get("data"):
                config = self.config_of(trial)
                key = (config.dataset, trial.seed, str(config.options.get("datasets")))
                data.setdefault(key, set()).add(trial.provenance["data"])
        if any(len(hashes) > 1 for hashes in data.values()):
            said.append("The data changed between runs (see the column data): start again with restart=True.")
        said += [f"Trial {trial.number}, seed {trial.seed}: {note}" for trial in self.trials for note in trial.notes]
        return " ".join(said)

    def __repr__(self) -> str:
        head = f"Study {self.name!r} of {self.sweep!r}"
        return "\n".join([head, self.summary()])

    def _repr_html_(self) -> str:
        """Text, best settings and table; ``lab.plot(study.figure)`` draws it."""
        shown = self.table.drop(columns="run").to_html(
            na_rep="", index=False, escape=True, float_format=lambda value: f"{value:.4g}"
        )
        return f"<p>{html.escape(self.summary())}</p><div style='overflow-x:auto'>{shown}</div>"

    @property
    def seconds(self) -> str:
        """The total time of the runs, as text."""
        return format_seconds(sum(trial.seconds or 0.0 for trial in self.trials))


def open_study(path: str | Path) -> Study:
    """Read a study from its folder; it may still be running.

    Raises:
        RunStoreError: there is no study at that path, or a file of it is damaged.
        ConfigError: it was written by a newer version.
    """
    folder = as_path(path, "path", RunStoreError)
    file = folder / SWEEP_FILE
    if not file.is_file():
        raise RunStoreError(
            f"{path} is not a study: it has no {SWEEP_FILE}. Give a study's folder, such as runs/studies/figure8."
        )
    learn_extensions(folder)
    try:
        sweep = Sweep.load(file)
    except ConfigError as error:
        raise RunStoreError(f"{file} cannot be read: {error} Nothing was changed.") from error
    return study_of(folder, sweep)


def study_of(folder: Path, sweep: Sweep) -> Study:
    """The study in a folder, for a sweep that is already known."""
    logged = {trial.key: trial for trial in TrialLog(folder).read()}
    if sweep.is_search:
        return Study(folder, sweep, tuple(logged.values()))
    trials = [
        replace(logged[cell.key], number=cell.number) if cell.key in logged else log.planned(cell)
        for cell in sweep.cells
    ]
    return Study(folder, sweep, tuple(trials))
