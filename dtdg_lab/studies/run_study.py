"""``lab.run_study``: makes the runs of a sweep, one after another, and goes on where it was broken off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.core.protocols import PROTOCOLS
from dtdg_lab.core.units import format_seconds
from dtdg_lab.runs.json_files import store_error, write_json
from dtdg_lab.studies.axes import decides_the_loss
from dtdg_lab.studies.objective import BEST, LAST, number
from dtdg_lab.studies.optuna_search import JOURNAL, OptunaSearch
from dtdg_lab.studies.pruning import Pruner
from dtdg_lab.studies.study import SWEEP_FILE, Study, study_of
from dtdg_lab.studies.study_lock import one_writer
from dtdg_lab.studies.sweep import Cell, Sweep, key_of, without_lists
from dtdg_lab.studies.time_left import time_left
from dtdg_lab.studies.trial_runner import TrialRunner
from dtdg_lab.studies.trials import FAILED, FILE, FINISHED, OVER, PRUNED, REFUSED, RUNNING, Trial, TrialLog

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session

FOLDER = "studies"
OnTrial = Callable[[Study], None]


def run_study(
    sweep: Sweep | str,
    *,
    name: str = "",
    base: RunConfig | None = None,
    quick: bool = False,
    session: Session | None = None,
    runs_dir: str | Path | None = None,
    prune: Pruner | None = None,
    on_trial: OnTrial | None = None,
    on_start: Callable[[Any], None] | None = None,
    progress: bool = True,
    again: bool = False,
) -> Study:
    """Make every run of a sweep that is not made yet, and return the study.

    All of it lies in ``<runs_dir>/studies/<name>``. The same call after a kill, even of ``kill -9``, goes on: no
    finished run is made twice or lost; one that was half made goes on from its checkpoint on a session's engines, and
    is begun anew in this process, which is told. A sweep of more trials, under the same name, makes those too. A trial
    that failed in an earlier call is tried once more. Runs are ordinary ones: ``lab.open_run(trial.run)``.

    Args:
        sweep: or the name of a shipped study, such as ``figure8``.
        name: of the folder; that of a shipped study where not given.
        base: settings for a shipped study, in place of its own.
        quick: a shipped study's short form.
        session: whose engines train, into its own folder of runs; this process where not given, with ``ranks=1``.
        runs_dir: folder that holds the study, and without a session the runs; else the session's, or ``runs``.
        prune: ends runs early by their validation losses: ``Median()``, ``Halving()``, ``Above(loss)`` of
            ``dtdg_lab.studies.pruning``.
        on_trial: called with the study as far as it is, first and after every trial.
        on_start: handed what can be seen of every run that begins: ``id path config window lock version``.
        progress: show a bar with the time that is left.
        again: begin anew: what the folder holds is moved into a folder ``before-1``, ``before-2``, ... in it.

    Raises:
        ConfigError: several ranks and no session, the name stands for another sweep, or what trials are compared or
            pruned by is not there.
        RunStoreError: another process writes the study, or the disk does not let us.
        RunFailedError: somebody stopped a run, and the study with it.
        LabError: runs cannot be started.
    """
    sweep, name = _named(sweep, name, base, quick)
    _check(sweep, session, prune)
    if runs_dir is None:
        runs_dir = "runs" if session is None else session.runs_dir
    folder = _made(Path(runs_dir) / FOLDER / name)
    with one_writer(folder):
        if again:
            _put_away(folder)
        _write_sweep(folder, sweep)
        with _bar(sweep, progress) as bar:
            runner = TrialRunner(
                TrialLog(folder), session, Path(runs_dir), prune, on_start, bar.write if progress else _say_nothing
            )
            _Making(folder, sweep, runner, bar, on_trial).all()
    return study_of(folder, sweep)


def _made(folder: Path) -> Path:
    """The folder, once it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error("make the study", folder, error) from error
    return folder


class _Making:
    """One call's way through the trials."""

    def __init__(self, folder: Path, sweep: Sweep, runner: TrialRunner, bar: Any, on_trial: OnTrial | None) -> None:
        self._folder, self._sweep, self._runner, self._bar, self._on_trial = folder, sweep, runner, bar, on_trial
        self._trials = {trial.key: trial for trial in runner.log.read()}

    def all(self) -> None:
        """Make what is not over, what an earlier call left half made first."""
        self._tell()
        if self._sweep.is_search:
            self._search()
        else:
            begun = [cell for cell in self._sweep.cells if self._status(cell) == RUNNING]
            rest = [cell for cell in self._sweep.cells if self._status(cell) not in (RUNNING, *OVER)]
            numbers = {trial.key: trial.number for trial in study_of(self._folder, self._sweep).trials}
            for done, cell in enumerate([*begun, *rest]):
                self._show_left([*begun, *rest][done:])
                new = Trial(cell.key, numbers[cell.key], cell.settings, cell.seed)
                self._make(self._trials.get(cell.key, new), cell.config)

    def _status(self, cell: Cell) -> str:
        return self._trials[cell.key].status if cell.key in self._trials else ""

    def _make(self, trial: Trial, config: RunConfig) -> Trial:
        others = [other for other in self._trials.values() if other.key != trial.key]
        self._trials[trial.key] = made = self._runner.make(trial, config, others)
        self._tell()
        return made

    def _tell(self) -> None:
        self._bar.n = sum(trial.status in (*OVER, FAILED) for trial in self._trials.values())
        self._bar.refresh()
        if self._on_trial is not None:
            self._on_trial(study_of(self._folder, self._sweep))

    def _show_left(self, left: list[Cell]) -> None:
        known = {key: self._sweep.by_key[key].config.epochs for key in self._trials if key in self._sweep.by_key}
        waits = [(cell.settings, cell.config.epochs) for cell in left]
        seconds = time_left(list(self._trials.values()), known, waits)
        if seconds is not None:
            self._bar.set_postfix_str(f"about {format_seconds(seconds)} left")

    # a search

    def _search(self) -> None:
        search = OptunaSearch(self._folder, self._sweep)
        for drawn in range(self._sweep.trials):
            settings = search.ask(drawn)
            made = [self._drawn(drawn, settings, seed) for seed in self._sweep.all_seeds]
            search.tell(drawn, self._value(made))
            if made and all(trial.status == FINISHED for trial in made):
                each = sum(trial.seconds or 0.0 for trial in made)
                self._bar.set_postfix_str(f"about {format_seconds(each * (self._sweep.trials - drawn - 1))} left")

    def _drawn(self, drawn: int, settings: dict[str, Any], seed: int) -> Trial:
        try:
            config = self._sweep.config_of(settings, seed)
        except ConfigError as error:
            trial = Trial(f"{drawn:05d}-refused-{seed}", drawn, settings, seed, REFUSED, without_lists(error))
            return self._noted(trial)
        key = f"{drawn:05d}-{key_of(config)}"
        trial = self._trials.get(key, Trial(key, drawn, settings, seed))
        same = [each for name, each in self._trials.items() if name[6:] == key[6:] and each.status == FINISHED]
        if same and trial.status not in OVER:
            note = f"drew the settings of trial {same[0].number}, whose run it shares"
            return self._noted(replace(same[0], key=key, number=drawn, seconds=0.0, notes=(note,)))
        return self._make(trial, config)

    def _noted(self, trial: Trial) -> Trial:
        """Write down a trial that needs no run."""
        if trial.key not in self._trials:
            self._runner.log.asked(trial, on_engines=False)
            for note in trial.notes:
                self._runner.log.noted(trial.key, note)
            self._runner.log.ended(trial)
            self._trials[trial.key] = trial
            self._tell()
        return self._trials[trial.key]

    def _value(self, made: list[Trial]) -> float | None:
        """What the sampler is told: the median over seeds; of pruned runs their lowest validation loss so far."""
        from statistics import median

        of = self._sweep.objective
        values = [number(trial.values.get(of)) for trial in made if trial.status == FINISHED]
        if of in (LAST, BEST):
            values += [min((loss for _, loss in trial.curve), default=None) for trial in made if trial.status == PRUNED]
        known = [value for value in values if value is not None]
        return median(known) if known and len(known) == len(made) else None


def _named(sweep: Sweep | str, name: str, base: RunConfig | None, quick: bool) -> tuple[Sweep, str]:
    if isinstance(sweep, str):
        from dtdg_lab.studies.shipped import shipped

        found = shipped(sweep)
        sweep, name = found.sweep(base, quick), name or (f"{found.name}-quick" if quick else found.name)
    elif base is not None or quick:
        raise ConfigError("base= and quick= are of shipped studies: a Sweep has its own base. Leave them out.")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", name):
        raise ConfigError(
            f"name={name!r}: the study's folder needs a name of letters, digits, '.', '_' and '-', such as "
            "name='alpha-on-collegemsg'. The same name goes on with the same study."
        )
    return sweep, name


def _check(sweep: Sweep, session: Session | None, prune: Pruner | None) -> None:
    """What can be known before anything is trained."""
    configs = [cell.config for cell in sweep.cells] or [sweep.base]
    most = max(config.ranks for config in configs)
    if session is None and most != 1:
        raise ConfigError(
            f"ranks={most} need engines: run_study(..., session=lab.Session(ranks={most})), or a base with ranks=1, "
            "which keeps the same plan."
        )
    if session is not None and most > session.ranks:
        raise ConfigError(f"ranks={most} and a session of {session.ranks}: make a Session(ranks={most}), or fewer.")
    blind = [config.protocol for config in configs if not PROTOCOLS[config.protocol].validation_share]
    chooses = sweep.is_search and sweep.objective in (LAST, BEST)
    if blind and (prune is not None or chooses):
        raise ConfigError(
            f"protocol={blind[0]!r} has no validation part, by which runs are {'pruned' if prune else 'compared'}: "
            "choose another protocol, such as 'warm'" + ("." if prune else ", or another objective.")
        )
    studied = {name for axis in sweep.axes for each in axis.settings for name in each}
    if prune is not None and any(decides_the_loss(name) for name in studied):
        raise ConfigError("losses of different data, protocols or tasks have no order: such a study cannot be pruned.")


def _write_sweep(folder: Path, sweep: Sweep) -> None:
    """Write what the study is made of, where what is there already is the same or a part of it."""
    file = folder / SWEEP_FILE
    if file.is_file():
        try:
            before = Sweep.load(file)
        except ConfigError as error:
            raise RunStoreError(f"{file} cannot be read: {error} Nothing was changed.") from error
        if why := _conflict(before, sweep):
            raise ConfigError(
                f"the study {folder} is of another sweep: {why}. Give another name=, or again=True to begin anew (what "
                "is there is kept beside it)."
            )
        if before == sweep:
            return
    write_json(file, sweep.told())


def _conflict(before: Sweep, now: Sweep) -> str:
    """In what a sweep is none that goes on with another; empty where it does."""
    if before.is_search != now.is_search:
        return "one is a grid and the other a search"
    told = {name: (getattr(before, name), getattr(now, name)) for name in ("objective", "goal", "shipped")}
    if now.is_search:
        told |= {name: (getattr(before, name), getattr(now, name)) for name in ("sampler", "all_seeds", "names")}
        old, new = before.told(), now.told()
        told |= {name: (old[name], new[name]) for name in ("space", "base")}
    for name, (old, new) in told.items():
        if old != new:
            return f"{name} was {_differing(old, new)}"
    if now.is_search:
        return "" if now.trials >= before.trials else f"it had {before.trials} trials, and {now.trials} are fewer"
    missing = {cell.key: cell for cell in before.cells}
    for cell in now.cells:
        missing.pop(cell.key, None)
    if not missing:
        return ""
    old, new = before.base.flat, now.base.flat
    changed = [name for name in old if name != "seed" and old[name] != new.get(name) and name not in now.names]
    lost = next(iter(missing.values()))
    return (
        f"{', '.join(f'{name} was {old[name]!r} and is {new.get(name)!r}' for name in changed)}"
        if changed
        else f"it had the run ({lost}), which is not asked for any more; more may be, but none fewer"
    )


def _differing(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        name = next(name for name in {**old, **new} if old.get(name) != new.get(name))
        return f"{old.get(name)!r} in {name!r} and is {new.get(name)!r}"
    return f"{old!r} and is {new!r}"


def _put_away(folder: Path) -> None:
    """Move a study's files beside it, so that nothing is lost."""
    files = [folder / name for name in (SWEEP_FILE, FILE, JOURNAL) if (folder / name).exists()]
    if not files:
        return
    count = 1
    while (aside := folder / f"before-{count}").exists():
        count += 1
    try:
        aside.mkdir()
        for file in files:
            file.rename(aside / file.name)
    except OSError as error:
        raise store_error("put away", folder, error) from error


def _say_nothing(words: str) -> None:
    """Where no progress is shown, notes are in the study only."""


@contextmanager
def _bar(sweep: Sweep, progress: bool) -> Iterator[Any]:
    from tqdm.auto import tqdm

    shape = "{l_bar}{bar}| {n_fmt}/{total_fmt} runs [{elapsed}{postfix}]"
    with tqdm(total=sweep.total, bar_format=shape, disable=not progress) as bar:
        yield bar
