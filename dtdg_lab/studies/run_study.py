"""``lab.run_study``: train the runs of a sweep one after another, and resume an interrupted study."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import optuna

from dtdg_lab.cluster.stopping_rule import Judge
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.extensions import check_registered
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError, shortened
from dtdg_lab.core.files import writable_folder
from dtdg_lab.core.system_errors import store_error
from dtdg_lab.core.units import format_seconds
from dtdg_lab.runs.json_files import write_json
from dtdg_lab.runs.registered_code import add_extensions, check_same_code, learn_extensions
from dtdg_lab.studies import trials as log
from dtdg_lab.studies.objective import BEST, LAST, finite_number
from dtdg_lab.studies.preset import preset
from dtdg_lab.studies.search import SpaceSearch, pruning_judge
from dtdg_lab.studies.study import SWEEP_FILE, Study, read_sweep, study_of
from dtdg_lab.studies.sweep import Sweep, decides_the_loss, key_of, preset_sweep, without_lists
from dtdg_lab.studies.trial_runner import TrialRunner, progress_bar
from dtdg_lab.studies.trials import Trial, one_writer

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session

FOLDER = "studies"


def run_study(
    sweep: Sweep | str,
    *,
    name: str = "",
    base: RunConfig | None = None,
    quick: bool = False,
    session: Session | None = None,
    runs_dir: str | Path | None = None,
    prune: optuna.pruners.BasePruner | None = None,
    on_trial: Callable[[Study], None] | None = None,
    on_start: Callable[[Any], None] | None = None,
    progress: bool = True,
    restart: bool = False,
) -> Study:
    """Train every missing run of a sweep, and return the study.

    The study is in ``<runs_dir>/studies/<name>``. The same call resumes an interrupted study, even after ``kill -9``;
    no finished run is repeated or lost. An unfinished run resumes from its checkpoint on a session's engines; in this
    process it starts again, which is noted. A sweep with more trials under the same name adds those. A trial that
    failed in an earlier call is tried once more. The runs can be opened like others, by ``lab.runs.open(trial.run)``.

    Args:
        sweep: a sweep, or the name of a shipped study, such as ``figure8``.
        name: name of the folder; by default that of a shipped study.
        base: settings of a shipped study instead of its own.
        quick: whether to use a shipped study's short form.
        session: the session whose engines train, into its own folder of runs; by default this process, with
            ``ranks=1``.
        runs_dir: folder for the study and, without a session, for the runs; by default the session's, or ``runs``.
        prune: a pruner of ``optuna.pruners``, such as ``MedianPruner()``. It stops runs early by their validation loss
            after each epoch, compared with earlier runs of the same seed.
        on_trial: function called with the study as it is, at the start and after every trial.
        on_start: function called with every run that starts, which has ``id path config live lock version``.
        progress: whether a progress bar with the remaining time is shown.
        restart: whether to move what is in the folder into a folder ``before-1``, ``before-2``, ... in it.

    Raises:
        ConfigError: there are several ranks and no session, the name belongs to another sweep, or there is no objective
            to compare or prune by.
        RunStoreError: another process writes to the study, or the disk cannot be written.
        RunFailedError: a run was stopped from outside, and the study with it.
        LabError: runs cannot be started.
    """
    if isinstance(sweep, str):
        name = name or (f"{sweep}-quick" if quick else sweep)
        sweep = preset_sweep(preset(sweep), base, quick=quick)
    elif base is not None or quick:
        raise ConfigError("base= and quick= apply only to shipped studies; a Sweep has its own base. Leave them out.")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", name):
        raise ConfigError(
            f"name={name!r} is invalid. The study's folder needs a name of letters, digits, '.', '_' and '-', such as "
            "name='alpha-on-collegemsg'. The same name resumes the same study."
        )
    if runs_dir is None:
        runs_dir = "runs" if session is None else session.runs_dir
    root = writable_folder(runs_dir, "runs_dir", RunStoreError)
    return run_in(
        root / FOLDER / name,
        sweep,
        session=session,
        runs_dir=root,
        prune=prune,
        on_trial=on_trial,
        on_start=on_start,
        progress=progress,
        restart=restart,
    )


def run_in(
    folder: Path,
    sweep: Sweep,
    *,
    session: Session | None,
    runs_dir: Path,
    prune: optuna.pruners.BasePruner | None = None,
    on_trial: Callable[[Study], None] | None = None,
    on_start: Callable[[Any], None] | None = None,
    progress: bool = True,
    restart: bool = False,
    outdated: Callable[[Trial], str] | None = None,
) -> Study:
    """Train the runs of a sweep in a folder; see :func:`run_study`.

    ``outdated`` returns why a trial of an earlier call is outdated, or an empty text. If it is given, the sweep
    replaces that of the folder, whose other trials are kept.
    """
    _check(sweep, session, prune)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error("make the study", folder, error) from error
    with one_writer(folder), progress_bar(sweep.total, progress) as bar:
        if restart:
            _put_away(folder)
        _write_sweep(folder, sweep, replaces=outdated is not None)

        def decide(trial: Trial, other_trials: Sequence[Trial]) -> Judge | None:
            return (
                None if prune is None else pruning_judge(prune, [one for one in other_trials if one.seed == trial.seed])
            )

        runner = TrialRunner(
            folder,
            "study",
            session,
            runs_dir,
            decide=decide,
            start=lambda trial, run: None if on_start is None else on_start(run),
            report=lambda: None if on_trial is None else on_trial(study_of(folder, sweep)),
            bar=bar,
        )
        for trial in list(runner.trials.values()):
            if outdated is not None and (reason := outdated(trial)):
                runner.forget(trial, reason)
        if sweep.is_search:
            _search(runner, folder, sweep)
        else:
            runner.execute(sweep.cells)
    return study_of(folder, sweep)


def _search(runner: TrialRunner, folder: Path, sweep: Sweep) -> None:
    runner.report()
    search = SpaceSearch(folder, sweep)
    for number in range(sweep.trials):
        settings = search.ask(number)
        trials = [_searched_trial(runner, sweep, number, settings, seed) for seed in sweep.all_seeds]
        search.report(number, _value(sweep.objective, trials))
        if all(trial.status == log.FINISHED for trial in trials):
            seconds = sum(trial.seconds or 0.0 for trial in trials)
            runner.bar.set_postfix_str(f"about {format_seconds(seconds * (sweep.trials - number - 1))} left")


def _searched_trial(runner: TrialRunner, sweep: Sweep, number: int, settings: dict[str, Any], seed: int) -> Trial:
    """Return the trial of a combination and a seed; a combination that is invalid or repeated needs no run."""
    try:
        config = sweep.config_of(settings, seed)
    except ConfigError as error:
        trial = Trial(f"{number:05d}-refused-{seed}", number, settings, seed, log.REFUSED, without_lists(error))
    else:
        key = f"{number:05d}-{key_of(config)}"
        trial = runner.trials.get(key, Trial(key, number, settings, seed))
        same = [one for one in runner.trials.values() if one.key[6:] == key[6:] and one.status == log.FINISHED]
        if not same or trial.status in log.OVER:
            return runner.execute_one(trial, config)
        note = f"has the same settings as trial {same[0].number} and shares its run"
        trial = replace(same[0], key=key, number=number, seconds=0.0, notes=(note,))
    if trial.key not in runner.trials:
        runner.put(trial)
        runner.report()
    return runner.trials[trial.key]


def _value(objective: str, trials: Sequence[Trial]) -> float | None:
    """Return the median over seeds for the sampler; of a pruned run, the lowest validation loss so far counts."""
    values = [finite_number(trial.values.get(objective)) for trial in trials if trial.status == log.FINISHED]
    if objective in (LAST, BEST):
        pruned = [trial for trial in trials if trial.status == log.PRUNED]
        values += [min((loss for _, loss in trial.curve), default=None) for trial in pruned]
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers and len(numbers) == len(trials) else None


def _check(sweep: Sweep, session: Session | None, prune: Any) -> None:
    """Check before training that all runs can be trained, compared and pruned."""
    configs = [cell.config for cell in sweep.cells] or [sweep.base]
    ranks = max(config.ranks for config in configs)
    if session is None and ranks != 1:
        raise ConfigError(
            f"ranks={ranks} need engines. Give session=lab.Session(ranks={ranks}), or a config with ranks=1, which "
            "keeps the plan."
        )
    if session is not None and ranks > session.ranks:
        raise ConfigError(
            f"ranks={ranks} are required, but the session has {session.ranks}. Create Session(ranks={ranks}), or use "
            "fewer ranks."
        )
    if prune is not None and not isinstance(prune, optuna.pruners.BasePruner):
        raise ConfigError(
            f"prune={shortened(prune)} is invalid. Give a pruner of Optuna, such as optuna.pruners.MedianPruner()."
        )
    without_validation = [config.protocol for config in configs if not PROTOCOLS[config.protocol].validation_share]
    needs_losses = prune is not None or (sweep.is_search and sweep.objective in (LAST, BEST))
    if without_validation and needs_losses:
        raise ConfigError(
            f"protocol={without_validation[0]!r} has no validation split, which is needed to "
            f"{'prune' if prune else 'compare'} runs. Choose another protocol, such as 'warm'"
            + ("." if prune else ", or another objective.")
        )
    studied = {name for axis in sweep.axes for settings in axis.settings for name in settings}
    if prune is not None and any(decides_the_loss(name) for name in studied):
        raise ConfigError(
            "losses of different data, protocols or tasks are not comparable, so runs of this study cannot be pruned."
        )


def _write_sweep(folder: Path, sweep: Sweep, *, replaces: bool) -> None:
    """Write down the plan of the study, unless the folder contains a different one."""
    file, texts = folder / SWEEP_FILE, _texts_in(sweep.to_dict())
    check_registered(texts=texts)
    learn_extensions(folder)
    if file.is_file():
        stored = read_sweep(file)
        if not replaces and (conflict := _conflict(stored, sweep)):
            raise ConfigError(
                f"the study {folder} has another sweep: {conflict}. Give another name=, or restart=True to start again "
                "(what is in the folder is kept in a subfolder)."
            )
        if not replaces:
            remedy = "give another name=, or restart=True to start again (what is in the folder is kept in a subfolder)"
            check_same_code(f"study {folder.name!r}", folder, texts=texts, remedy=remedy)
        if stored == sweep:
            return
    add_extensions(folder, texts=texts)
    write_json(file, sweep.to_dict())


def _texts_in(value: Any) -> set[str]:
    """Return all texts in a JSON value."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        return {text for item in value for text in _texts_in(item)}
    return {value} if isinstance(value, str) else set()


def _conflict(stored: Sweep, sweep: Sweep) -> str:
    """Return the difference that keeps a sweep from resuming another one; empty if there is none."""
    if stored.is_search != sweep.is_search:
        return "one is a grid and the other a search"
    names = ["objective", "goal", "shipped", *(["sampler", "seeds", "space", "base"] if sweep.is_search else [])]
    old, new = stored.to_dict(), sweep.to_dict()
    for name in names:
        if old[name] != new[name]:
            return f"{name} was {_difference(old[name], new[name])}"
    if sweep.is_search:
        return (
            "" if sweep.trials >= stored.trials else f"it had {stored.trials} trials, but now {sweep.trials} are given"
        )
    missing = [cell for key, cell in stored.by_key.items() if key not in sweep.by_key]
    if not missing:
        return ""
    old, new = stored.base.flat, sweep.base.flat
    changed = [name for name in old if name != "seed" and old[name] != new.get(name) and name not in sweep.names]
    if changed:
        return ", ".join(f"{name} was {old[name]!r} and is {new.get(name)!r}" for name in changed)
    return f"it had the run ({missing[0]}), which is missing now; runs can be added, but not removed"


def _difference(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        name = next(name for name in {**old, **new} if old.get(name) != new.get(name))
        return f"{old.get(name)!r} in {name!r} and is {new.get(name)!r}"
    return f"{old!r} and is {new!r}"


def _put_away(folder: Path) -> None:
    """Move a study's files into a subfolder, so that nothing is lost."""
    files = [folder / name for name in (SWEEP_FILE, log.FILE, log.OLD_FILE) if (folder / name).exists()]
    if not files:
        return
    count = 1
    while (subfolder := folder / f"before-{count}").exists():
        count += 1
    try:
        subfolder.mkdir()
        for file in files:
            file.rename(subfolder / file.name)
    except OSError as error:
        raise store_error("put away", folder, error) from error


def study_at_command(sweep: Sweep, name: str, runs_dir: Path) -> Study:
    """Run a study in this process, or on temporary engines if its runs need several ranks.

    Raises:
        LabError: see ``run_study``.
    """
    ranks = max((cell.config.ranks for cell in sweep.cells), default=sweep.base.ranks)
    if ranks == 1:
        return run_study(sweep, name=name, runs_dir=runs_dir)
    from dtdg_lab.cluster.session import Session

    with Session(ranks=ranks, runs_dir=runs_dir) as session:
        return run_study(sweep, name=name, runs_dir=runs_dir, session=session)
