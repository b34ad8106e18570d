"""A study: the trials of a sweep, finished or not, with table, figures, best settings and their importance."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError, UnknownNameError
from dtdg_lab.core.units import as_path, format_seconds, join_words
from dtdg_lab.runs.registered_code import learn_extensions
from dtdg_lab.runs.stored_run import StoredRun, open_run
from dtdg_lab.studies import trials as log
from dtdg_lab.studies.near_best import near_best_card
from dtdg_lab.studies.objective import BASELINES, finite_number
from dtdg_lab.studies.preset import preset
from dtdg_lab.studies.search import importance
from dtdg_lab.studies.sweep import Sweep, decides_the_loss, settings_text
from dtdg_lab.studies.trials import Trial, TrialJournal, planned
from dtdg_lab.visualization.chart import CaptionedFigure, Figure
from dtdg_lab.visualization.studies import search as charts
from dtdg_lab.visualization.studies.result import COLUMNS

SWEEP_FILE = "sweep.json"
_LOSSES = ("validation_loss", *BASELINES, "test_loss", "persistence_loss", "mean_loss", "skill")


@dataclass(frozen=True, slots=True)
class Combination:
    """Trials with the same settings, one for each seed.

    Attributes:
        number: number of the combination, from 0.
        settings: its values on the studied axes.
        trials: its trials.
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


def combinations_of(trials: Sequence[Trial], measure: str) -> tuple[Combination, ...]:
    """Group trials by settings, in the order of their numbers.

    Args:
        trials: trials of a study.
        measure: name of a number of the runs; unfinished trials do not have it.
    """
    by_number: dict[int, list[Trial]] = {}
    for trial in trials:
        by_number.setdefault(trial.number, []).append(trial)
    combinations = []
    for number, group in sorted(by_number.items()):
        values = [finite_number(trial.values.get(measure)) for trial in group if trial.status == log.FINISHED]
        measured = tuple(value for value in values if value is not None)
        combinations.append(Combination(number, group[0].settings, tuple(group), measured))
    return tuple(combinations)


def axis_name(name: str) -> str:
    """Return the name of a setting with its unit."""
    unit = OPTIONS[name].unit if name in OPTIONS else ""
    return f"{name} ({unit})" if unit else name


def _cell(position: tuple[Any, Any], combinations: Sequence[Combination], measure: str) -> charts.StudyCell:
    trials = [trial for combination in combinations for trial in combination.trials]
    counts = {state: sum(trial.status == state for trial in trials) for state in (log.FAILED, log.PRUNED, log.RUNNING)}
    return charts.StudyCell(
        *position,
        values=tuple(value for combination in combinations for value in combination.values),
        requested=len(trials),
        states={state: count for state, count in counts.items() if count},
        run_texts=tuple(_hover_text(trial, measure) for trial in trials),
        key=_key_to_open(trials),
    )


def _hover_text(trial: Trial, measure: str) -> str:
    value = finite_number(trial.values.get(measure)) if trial.status == log.FINISHED else None
    if value is not None:
        return f"seed {trial.seed}: {charts.writer(measure)(value)}"
    reason = f": {trial.reason[:90]}" if trial.reason else ""
    return f"seed {trial.seed}: {trial.status}{reason}"


def _key_to_open(trials: Sequence[Trial]) -> str:
    """Return the key of the trial whose run a click opens: the first active one, otherwise the first one."""
    with_run = [trial for trial in trials if trial.run is not None]
    candidates = [trial for trial in with_run if trial.status == log.RUNNING] or with_run
    return candidates[0].key if candidates else ""


def importance_of(sweep: Sweep, trials: Sequence[Trial], folder: Path) -> dict[str, float]:
    """Return setting -> its share, largest first, from some trials; see :attr:`Study.importance`."""
    if sweep.is_search:
        return importance(folder, sweep)
    rows = [
        {**trial.settings, "seed": trial.seed, "value": value}
        for trial in trials
        if trial.status == log.FINISHED and (value := finite_number(trial.values.get(sweep.objective))) is not None
    ]
    frame = pd.DataFrame(rows, columns=[*sweep.names, "seed", "value"]).astype(dict.fromkeys(sweep.names, object))
    centred = frame["value"] - frame.groupby("seed")["value"].transform("mean")
    variance = float((centred**2).mean())
    if len(rows) < 2 or not variance:
        return {}
    shares = {
        name: float((centred.groupby(frame[name], sort=False).transform("mean") ** 2).mean()) / variance
        for name in sweep.names
    }
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Study:
    """A sweep and the state of its trials.

    Attributes:
        path: the study's folder.
        sweep: the plan of the study.
        trials: its finished, active and waiting trials; in a search, only those that were drawn.
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
        """Whether every run has finished or was pruned."""
        return sum(trial.status in log.OVER for trial in self.trials) >= self.sweep.total

    @property
    def counts(self) -> dict[str, int]:
        """Number of trials by status."""
        return dict(Counter(trial.status for trial in self.trials))

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The trials grouped by settings, so that the seeds of one combination are together."""
        return combinations_of(self.trials, self.sweep.objective)

    def config_of(self, trial: Trial) -> RunConfig:
        """Return the config of a trial's run."""
        cell = self.sweep.by_key.get(trial.key)
        return self.sweep.config_of(trial.settings, trial.seed) if cell is None else cell.config

    def trial(self, key: str) -> Trial:
        """Return the trial with a key.

        Raises:
            UnknownNameError: there is none.
        """
        trials = {trial.key: trial for trial in self.trials}
        if key not in trials:
            raise UnknownNameError("trial", key, trials)
        return trials[key]

    def open(self, trial: Trial) -> StoredRun:
        """Open the run of a trial.

        Raises:
            RunStoreError: the trial has no run, or the run's folder is missing.
        """
        if trial.run is None:
            raise RunStoreError(f"trial {trial.number} (seed {trial.seed}) is {trial.status}, so it has no run yet.")
        return open_run(trial.run)

    @property
    def best(self) -> Combination | None:
        """The combination with the best median objective, among those with the most finished seeds.

        None before any run has finished, and if data, protocol or task are studied, since their losses are not
        comparable. Compare within one of these by ``study.best_where(dataset="collegemsg")``. The test split is never
        used.
        """
        if any(decides_the_loss(name) for axis in self.sweep.axes for settings in axis.settings for name in settings):
            return None
        return self.best_where()

    def best_where(self, **settings: Any) -> Combination | None:
        """Return the best combination among those with some settings.

        Raises:
            UnknownNameError: a name is not studied.
        """
        for name in settings:
            if name not in self.sweep.names:
                raise UnknownNameError("setting of the study", name, self.sweep.names)
        candidates = [
            combination
            for combination in self.combinations
            if combination.values and all(combination.settings[name] == value for name, value in settings.items())
        ]
        seeds = max((len(combination.values) for combination in candidates), default=0)
        complete = [combination for combination in candidates if len(combination.values) == seeds]
        sign = 1 if self._least_is_best else -1
        return min(complete, key=lambda combination: sign * (combination.middle or 0.0), default=None)

    @property
    def importance(self) -> dict[str, float]:
        """The share of the objective's variation that each setting explains, largest first; empty if not known yet.

        In a search, it is Optuna's PED-ANOVA for the better half. In a grid, it is the variance of the means of an
        axis's values over the variance of all runs, each minus the mean of its seed; the rest of the variation comes
        from combinations of settings.
        """
        return importance_of(self.sweep, sorted(self.trials, key=lambda trial: trial.number), self.path)

    @property
    def table(self) -> pd.DataFrame:
        """One row per trial: settings, status, objective, losses next to baselines, provenance, run, seconds."""
        columns = list(self._row(Trial("", 0, {}, 0)))  # a search that has not started has no trial
        return pd.DataFrame([self._row(trial) for trial in self.trials], columns=columns)

    def _row(self, trial: Trial) -> dict[str, Any]:
        values = dict(trial.values)
        if values.get("skill_split") != "test":  # a pruned run has no test losses, so these are from another split
            values |= dict.fromkeys(("persistence_loss", "mean_loss", "skill"))
        return {
            "trial": trial.number,
            **{name: trial.settings.get(name) for name in self.sweep.names},
            "seed": trial.seed,
            "status": trial.status,
            "objective": finite_number(values.get(self.sweep.objective)) if trial.status == log.FINISHED else None,
            **{name: values.get(name) for name in _LOSSES},
            **{name: trial.provenance.get(name) for name in COLUMNS},
            "seconds": trial.seconds,
            "run": None if trial.run is None else str(trial.run),
            "reason": trial.reason,
        }

    # charts

    @property
    def figure(self) -> Figure:
        """A line for one axis, a heat map for two, parallel coordinates for more; for a search also its progress."""
        return next(iter(self.panels().values()))[0]

    def heat_map(self, x: str | None = None, y: str | None = None, colour: str = "") -> Figure:
        """Draw medians over two of the studied settings.

        Args:
            x: setting on the horizontal axis; by default the first one.
            y: setting on the vertical axis; by default the second one.
            colour: number of the runs that is shown (see ``runs.summary.SUMMARY_MEANINGS``); by default the objective.

        Raises:
            ConfigError: fewer than two settings are studied, or the same one is given twice.
            UnknownNameError: a name is not studied, or runs have no such number.
        """
        return self.map_panel(x, y, colour)[0]

    def map_panel(self, x: str | None = None, y: str | None = None, colour: str = "") -> CaptionedFigure:
        """Return :meth:`heat_map` with its caption."""
        names = self.sweep.names
        if len(names) < 2:
            raise ConfigError(f"a map needs two settings, but only {names[0]} is studied. study.figure draws a line.")
        x = x or next(name for name in names if name != y)
        y = y or next(name for name in names if name != x)
        for name in (x, y):
            if name not in names:
                raise UnknownNameError("setting of the study", name, names)
        if x == y:
            raise ConfigError(f"x and y are both {x}. Give two of {', '.join(names)}.")
        measure = colour or self.sweep.objective
        numbers = {
            name for trial in self.trials for name, value in trial.values.items() if finite_number(value) is not None
        }
        if measure != self.sweep.objective and numbers and measure not in numbers:
            raise UnknownNameError("number of the runs", measure, numbers)
        cells: dict[tuple[Any, Any], list[Combination]] = {}  # combinations that only differ in other settings
        for combination in combinations_of(self.trials, measure):
            cells.setdefault((combination.settings[x], combination.settings[y]), []).append(combination)
        least_is_best = self._least_is_best if measure == self.sweep.objective else measure not in ("skill", "hit_rate")
        pooled = tuple(name for name in names if name not in (x, y))
        title = f"{self.name}: {measure}"
        map_names = charts.MapNames(
            title, axis_name(x), axis_name(y), measure, least_is_best=least_is_best, pooled=pooled
        )
        return charts.study_map([_cell(position, group, measure) for position, group in cells.items()], map_names)

    @property
    def _least_is_best(self) -> bool:
        return self.sweep.goal == "min"

    def panels(self) -> dict[str, CaptionedFigure]:
        """Return the study's own charts by name, each with its caption."""
        sweep, objective, panels = self.sweep, self.sweep.objective, {}
        first, least_is_best = sweep.names[0], self._least_is_best
        if sweep.is_search:
            cells = [_cell((combination.number, ""), [combination], objective) for combination in self.combinations]
            names = charts.MapNames(self.name, "trial", "", objective, least_is_best=least_is_best)
            panels["history"] = charts.study_course(cells, names)
        if len(sweep.names) == 1:
            cells = [_cell((one.settings[first], ""), [one], objective) for one in self.combinations]
            names = charts.MapNames(self.name, axis_name(first), "", objective, least_is_best=least_is_best)
            panels["line"] = charts.study_line(cells, names, joined=not sweep.is_search)
        elif len(sweep.names) == 2 and not sweep.is_search:
            panels["map"] = self.map_panel()
        else:
            ways = []
            for combination in self.combinations:
                trials = [_hover_text(trial, objective) for trial in combination.trials[:8]]
                settings = tuple(combination.settings[name] for name in sweep.names)
                if combination.middle is not None:
                    hover = "<br>".join([combination.described, *trials])
                    ways.append(charts.Way(settings, combination.middle, hover, _key_to_open(combination.trials)))
            heads = [axis_name(name) for name in sweep.names]
            panels["parallel"] = charts.study_parallel(ways, heads, objective, title=self.name, least=least_is_best)
        return panels

    def analysis(self) -> dict[str, CaptionedFigure]:
        """Return the figures and captions of a shipped study's analysis; for other studies, their own charts."""
        if not self.sweep.shipped:
            return self.panels()
        shipped = preset(self.sweep.shipped)
        panels = {} if shipped.analysis is None else dict(shipped.analysis(self))
        if shipped.bars:
            panels[shipped.name] = near_best_card(self.trials, self.sweep.axes[0], shipped.paper, shipped.bars)
        return panels | {name: self.map_panel(colour=colour) for name, colour in shipped.maps.items()}

    # text

    def summary(self) -> str:
        """Return progress, best settings and their margin, failed, pruned and skipped runs, and caveats."""
        counts, total = self.counts, self.sweep.total
        statuses = (log.FINISHED, log.PRUNED, log.FAILED, log.REFUSED, log.RUNNING)
        progress = [f"{counts[status]} {status}" for status in statuses if counts.get(status)] or ["none finished"]
        sentences = [f"{self.name}: {total} runs, {join_words(progress)}."]
        best = self.best
        if best is not None and best.middle is not None:
            spread = f" ({best.low:.4g} to {best.high:.4g} over {len(best.values)} seeds)"
            spread = spread if len(best.values) > 1 else ", of one seed"
            sentences.append(f"Best {self.sweep.objective}: {best.middle:.4g}{spread} at {best.described}.")
        reasons = Counter(skipped.reason for skipped in self.sweep.skipped)
        sentences += [f"{count} combination{'s' * (count != 1)} left out: {text}" for text, count in reasons.items()]
        hashes: dict[Any, set[str]] = {}
        for trial in self.trials:
            if trial.provenance.get("data"):
                config = self.config_of(trial)
                key = (config.dataset, trial.seed, str(config.options.get("datasets")))
                hashes.setdefault(key, set()).add(trial.provenance["data"])
        if any(len(group) > 1 for group in hashes.values()):
            sentences.append("The data changed between runs (see the column data). Start again with restart=True.")
        for trial in self.trials:
            sentences += [f"Trial {trial.number}, seed {trial.seed}: {note}" for note in trial.notes]
        return " ".join(sentences)

    def __repr__(self) -> str:
        head = f"Study {self.name!r} of {self.sweep!r}"
        return "\n".join([head, self.summary()])

    def _repr_html_(self) -> str:
        """Return text, best settings and table; the figure is drawn by ``lab.plot(study.figure)``."""
        table = self.table.drop(columns="run").to_html(
            na_rep="", index=False, escape=True, float_format=lambda value: f"{value:.4g}"
        )
        return f"<p>{html.escape(self.summary())}</p><div style='overflow-x:auto'>{table}</div>"

    @property
    def seconds(self) -> str:
        """The total time of the runs, as text."""
        return format_seconds(sum(trial.seconds or 0.0 for trial in self.trials))


def open_study(path: str | Path) -> Study:
    """Read a study from its folder; it may still be running.

    Raises:
        RunStoreError: there is no study at that path, or one of its files is damaged.
        ConfigError: a newer version wrote it.
    """
    folder = as_path(path, "path", RunStoreError)
    file = folder / SWEEP_FILE
    if not file.is_file():
        raise RunStoreError(
            f"{path} is not a study, since it has no {SWEEP_FILE}. Give a study's folder, such as runs/studies/figure8."
        )
    learn_extensions(folder)
    return study_of(folder, read_sweep(file))


def read_sweep(file: Path) -> Sweep:
    """Read the sweep of a study.

    Raises:
        RunStoreError: the file is damaged.
    """
    try:
        return Sweep.load(file)
    except ConfigError as error:
        raise RunStoreError(f"{file} cannot be read: {error} Nothing was changed.") from error


def study_of(folder: Path, sweep: Sweep) -> Study:
    """Read the trials of a study whose sweep is known."""
    recorded = {trial.key: trial for trial in TrialJournal(folder).read()}
    if sweep.is_search:
        return Study(folder, sweep, tuple(recorded.values()))
    trials = [
        replace(recorded[cell.key], number=cell.number) if cell.key in recorded else planned(cell)
        for cell in sweep.cells
    ]
    return Study(folder, sweep, tuple(trials))
