"""Runs of a study: started, pruned, resumed and locked."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from dtdg_lab.cluster.liveness import is_dead, read_notes
from dtdg_lab.cluster.local import Evaluated, Judge, Verdict, run_config
from dtdg_lab.cluster.run import Run
from dtdg_lab.core.catalogue import PROTOCOLS
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ClusterError, ConfigError, ControlError, LabError, RunFailedError, RunStoreError
from dtdg_lab.core.units import format_seconds
from dtdg_lab.runs.directory import ENDED, RunDirectory, read_json, store_error, write_json
from dtdg_lab.runs.run import StoredRun, open_run, provenance
from dtdg_lab.runs.summary import finish
from dtdg_lab.studies.objective import BEST, LAST, number, values_of
from dtdg_lab.studies.study import SWEEP_FILE, Study, study_of
from dtdg_lab.studies.sweep import Cell, Sweep, decides_the_loss, key_of, without_lists
from dtdg_lab.studies.trials import (
    FAILED,
    FILE,
    FINISHED,
    INTERRUPTED,
    JOURNAL,
    OVER,
    PRUNED,
    REFUSED,
    RUNNING,
    OptunaSearch,
    Trial,
    TrialLog,
)

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session


# Runs that were active when their study was killed: their outcome, and whether they can be resumed.


LOOK_S = 0.1
PATIENCE_S = 5.0  # for remaining processes of a run to record its end, or a heartbeat
KILLED = "the process that trained it was killed"


def orphan(config: RunConfig, asked_ns: int, folders: set[Path], taken: set[Path]) -> Path | None:
    """The run that was created for a config after a moment, although the study did not record it.

    Args:
        config: of the run.
        asked_ns: nanoseconds since 1970.
        folders: that hold runs.
        taken: resolved run folders that belong to other trials.
    """
    for root in folders:
        for path in sorted(root.glob(f"*-{config.short_hash}*")):
            try:
                run = RunDirectory.open(path)
                made_ns = run.config_file.stat().st_mtime_ns  # it is written once, when the folder is created
                if made_ns >= asked_ns and path.resolve() not in taken and run.config() == config:
                    return path
            except (RunStoreError, ConfigError):
                continue  # not a run, or not ours
    return None


def settle(path: Path, *, on_engines: bool) -> str:
    """The final state of a run, after waiting if engines still train it; a run without processes is marked as ended.

    Args:
        path: of the run.
        on_engines: whether engines train it, which outlive the process that started it; otherwise it was this process.

    Raises:
        RunStoreError: there is no run at that path.
    """
    run = RunDirectory.open(path)
    quiet_since: float | None = None
    while (status := run.status())["state"] not in ENDED:
        notes = read_notes(run.live, status["attempt"]).values() if on_engines else []
        if notes and not all(is_dead(note) for note in notes):
            quiet_since = None
        else:
            quiet_since = quiet_since or time.monotonic()
            young = on_engines and time.time_ns() - int(status["time_ns"]) < PATIENCE_S * 1e9
            if not young and time.monotonic() - quiet_since >= (PATIENCE_S if notes else 0.0):
                _mark(run)
                continue
        time.sleep(LOOK_S)
    return str(status["state"])


def _mark(run: RunDirectory) -> None:
    try:
        finish(run, "failed", KILLED)
    except LabError as error:  # its records are damaged: they are kept unchanged
        run.write_status("failed", reason=f"{KILLED}; {error}", attempt=run.status()["attempt"])


def go_on(path: Path, session: Session | None) -> bool:
    """Resume a run from its checkpoint on a session's engines, and wait for its end; return whether that was possible.

    Raises:
        RunFailedError: it failed again.
    """
    run = RunDirectory.open(path)
    if session is None or not run.checkpoint_file.is_file():
        return False
    known = next((each for each in session.runs if each.path.resolve() == path.resolve()), None)
    handle = known or Run(session, run)
    try:
        handle.resume().wait()
    except RunFailedError:
        raise
    except KeyboardInterrupt:
        if run.status()["state"] not in ENDED:
            next(each for each in session.under_way if each.path.resolve() == path.resolve()).stop()
        raise
    except LabError:  # a checkpoint of another version or data: the run restarts
        return False
    return True


# Early stopping of a study's runs (pruning), by validation losses only.


Curve = tuple[tuple[int, float], ...]  # (epochs done, validation loss), in order


class Pruner(Protocol):
    """Decides whether a run is worth its further epochs."""

    def why(self, curve: Curve, others: Sequence[Curve]) -> str:
        """Why it is not; empty if it is.

        Args:
            curve: of the run, up to its latest evaluation.
            others: complete curves of earlier runs of the study with the same seed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Median:
    """Stops a run whose lowest loss so far is above the median of the others' lowest losses by the same epoch.

    Attributes:
        after: epochs that every run is allowed.
        trials: number of other runs that must have come this far before any run is stopped.
    """

    after: int = 1
    trials: int = 3

    def __post_init__(self) -> None:
        _at_least_one("Median", after=self.after, trials=self.trials)

    def why(self, curve: Curve, others: Sequence[Curve]) -> str:
        """See :class:`Pruner`."""
        epoch, lowest = curve[-1][0], min(loss for _, loss in curve)
        had = lowest_by(others, epoch)
        if epoch < self.after or len(had) < self.trials or lowest <= median(had):
            return ""
        return (
            f"lowest validation loss {lowest:.4g} after {epoch} epochs, above the median {median(had):.4g} of "
            f"{len(had)} others"
        )


@dataclass(frozen=True, slots=True)
class Halving:
    """Asynchronous successive halving: after ``first``, ``first * factor``, ... epochs only the best runs continue.

    Attributes:
        first: epochs before the first decision.
        factor: one in ``factor`` runs continues at each decision.

    References: Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning (ASHA).
    """

    first: int = 1
    factor: int = 3

    def __post_init__(self) -> None:
        _at_least_one("Halving", first=self.first, factor=self.factor - 1)

    def why(self, curve: Curve, others: Sequence[Curve]) -> str:
        """See :class:`Pruner`."""
        epoch, rung = curve[-1][0], self.first
        while rung < epoch:
            rung *= self.factor
        had = lowest_by(others, epoch)
        if rung != epoch or len(had) + 1 < self.factor:
            return ""
        lowest = min(loss for _, loss in curve)
        place, kept = 1 + sum(loss < lowest for loss in had), (len(had) + 1) // self.factor
        if place <= kept:
            return ""
        return f"place {place} of {len(had) + 1} by validation loss after {epoch} epochs: only the best {kept} continue"


@dataclass(frozen=True, slots=True)
class Above:
    """Stops a run whose validation loss is above a bound after some epochs.

    Attributes:
        loss: the bound.
        after: epochs that every run is allowed.
    """

    loss: float
    after: int = 1

    def __post_init__(self) -> None:
        _at_least_one("Above", after=self.after)

    def why(self, curve: Curve, others: Sequence[Curve]) -> str:
        """See :class:`Pruner`."""
        epoch, lowest = curve[-1][0], min(loss for _, loss in curve)
        if epoch < self.after or lowest <= self.loss:
            return ""
        return f"lowest validation loss {lowest:.4g} after {epoch} epochs, above {self.loss:g}"


def judge_of(pruner: Pruner, others: Sequence[Curve]) -> Judge:
    """Stops one run if the pruner gives a reason; losses that are not finite are ignored."""

    def judge(seen: tuple[Evaluated, ...]) -> Verdict | None:
        curve = tuple((each.epoch, each.loss) for each in seen if each.loss is not None)
        reason = pruner.why(curve, others) if curve else ""
        return Verdict("stop", reason) if reason else None

    return judge


def lowest_by(curves: Sequence[Curve], epoch: int) -> list[float]:
    """The lowest loss by an epoch, for every curve that reached it."""
    return [
        min(loss for at, loss in curve if at <= epoch)
        for curve in curves
        if curve and curve[-1][0] >= epoch and curve[0][0] <= epoch
    ]


def _at_least_one(name: str, **numbers: int) -> None:
    for what, value in numbers.items():
        if value < 1:
            least = "2" if (name, what) == ("Halving", "factor") else "1"
            raise ConfigError(f"{name}({what}=...): give a whole number of at least {least}.")


# One writer of a study at a time.


LOCK, WRITER = "lock", "writer.json"


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Hold a study's folder for writing; the operating system releases it when the process ends, even by a kill.

    Raises:
        RunStoreError: another process, or another call in this one, writes it; the message names it.
    """
    import filelock

    lock = filelock.FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout as error:
        raise _busy(folder, _to_dict(folder)) from error
    except OSError as error:
        raise store_error("lock", folder / LOCK, error) from error
    try:
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "command": " ".join(sys.argv)[:200]}
        write_json(folder / WRITER, facts)
        yield
    finally:
        (folder / WRITER).unlink(missing_ok=True)
        lock.release()


def _to_dict(folder: Path) -> str:
    try:
        facts = read_json(folder / WRITER)
        if (facts["pid"], facts["host"]) == (os.getpid(), socket.gethostname()):
            return f"another call in this process ({os.getpid()})"
        return f"process {facts['pid']} on {facts['host']} ({facts['command']})"
    except (RunStoreError, KeyError, TypeError, json.JSONDecodeError):
        return "another process"


def _busy(folder: Path, who: str) -> RunStoreError:
    return RunStoreError(
        f"the study {folder} is being written by {who}: a study has one writer. Wait for it or end it, give another "
        "name=, or look at it meanwhile with lab.studies.open(path)."
    )


# Estimate of a study's remaining time, from the duration of its finished runs.


Settings = Mapping[str, Any]
MOST = 64  # the newest finished runs that are used


def time_left(trials: Sequence[Trial], epochs: Mapping[str, int], left: Sequence[tuple[Settings, int]]) -> float | None:
    """Remaining seconds of the runs; None before one is finished.

    Each takes its epochs times the median epoch time of the finished runs that share most settings with it.

    Args:
        trials: of the study.
        epochs: of the finished ones, by key.
        left: settings and epochs of each remaining run.
    """
    done = [
        (trial.settings, trial.seconds / epochs[trial.key])
        for trial in trials
        if trial.status == FINISHED and trial.seconds and trial.key in epochs
    ][-MOST:]
    if not done:
        return None
    rates: dict[tuple[Any, ...], float] = {}
    total = 0.0
    for settings, count in left:
        key = tuple(settings.items())
        if key not in rates:
            shared = [sum(settings.get(name) == value for name, value in known.items()) for known, _ in done]
            most = max(shared)
            rates[key] = median(rate for (_, rate), alike in zip(done, shared, strict=True) if alike == most)
        total += rates[key] * count
    return total


# One trial of a study: started, resumed after a kill, pruned, and always recorded.


OF_THE_STUDY = (RunStoreError, ControlError, ClusterError)  # not caused by a trial: the study ends and can be resumed


@dataclass(frozen=True, slots=True)
class TrialRunner:
    """Executes trials on a session's engines or in this process.

    Attributes:
        log: of the study, which this process holds for writing.
        session: whose engines train; this process where None.
        runs_dir: folder for runs, without a session.
        prune: stops runs early; None lets all complete their epochs.
        on_start: receives the observable part of every run that starts.
        say: reports the events of a trial to the user.
    """

    log: TrialLog
    session: Session | None
    runs_dir: Path
    prune: Pruner | None = None
    on_start: Callable[[Any], None] | None = None
    say: Callable[[str], None] = lambda words: None

    def make(self, trial: Trial, config: RunConfig, others: Sequence[Trial]) -> Trial:
        """The trial in its final state: that of an earlier run, if one ended, or that of a run executed now.

        Raises:
            RunFailedError: its run was stopped from outside; the study ends with it.
            LabError: no trial can be executed now, for example because the disk is full.
        """
        if trial.status in OVER:
            return trial
        found = self._left(trial, config, others) if trial.asked_ns and trial.status != FAILED else None
        return found or self._new(trial, config, others)

    # remains of an earlier call

    def _left(self, trial: Trial, config: RunConfig, others: Sequence[Trial]) -> Trial | None:
        """The trial by the run that an earlier call started; None if it has to restart."""
        path = trial.run
        if path is None:
            taken = {other.run.resolve() for other in others if other.run is not None}
            path = orphan(config, trial.asked_ns, self._folders(), taken)
            if path is None:
                return None  # it was killed before the run had a folder
            self.log.begun(trial.key, path)
        trial = replace(trial, run=path)
        if not (path / "config.json").is_file():
            self._restart(trial, f"its run {path.name} is gone")
            return None
        state = settle(path, on_engines=trial.on_engines)
        if state == "finished":
            return self._ended(trial, open_run(path), None)
        try:
            if not go_on(path, self.session):
                self._restart(trial, f"its run {path.name} was {state} when the study was called again")
                return None
        except RunFailedError as error:
            return self._failed(trial, str(error))
        self._note(trial, f"run {path.name} was resumed from its checkpoint")
        return self._ended(trial, open_run(path), None)

    def _folders(self) -> set[Path]:
        return {self.runs_dir} if self.session is None else {self.runs_dir, self.session.runs_dir}

    def _restart(self, trial: Trial, why: str) -> None:
        self._note(trial, f"{why}: restarted")

    def _note(self, trial: Trial, note: str) -> None:
        self.log.noted(trial.key, note)
        self.say(f"trial {trial.number}, seed {trial.seed}: {note}")

    # a new run

    def _new(self, trial: Trial, config: RunConfig, others: Sequence[Trial]) -> Trial:
        self.log.asked(trial, on_engines=self.session is not None)
        trial = replace(trial, status=RUNNING, reason="", run=None, asked_ns=time.time_ns())
        begun: list[Path] = []
        of_watching: list[Exception] = []

        def on_start(run: Any) -> None:
            begun.append(Path(run.path))
            self.log.begun(trial.key, begun[0])
            try:
                if self.on_start is not None:
                    self.on_start(run)
            except Exception as error:
                of_watching.append(error)
                raise

        curves: list[Curve] = [other.curve for other in others if other.seed == trial.seed and other.curve]
        judge = None if self.prune is None else judge_of(self.prune, curves)
        started_s = time.monotonic()
        try:
            done = run_config(config, session=self.session, runs_dir=self.runs_dir, judge=judge, on_start=on_start)
        except OF_THE_STUDY as error:
            self._interrupted(trial, begun, str(error))
            raise
        except Exception as error:
            if error in of_watching:
                self._interrupted(trial, begun, f"{type(error).__name__}: {error}")
                raise
            # any other error is this trial's: it is recorded, and the other trials continue
            said = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
            return self._failed(replace(trial, run=begun[0] if begun else None), said)
        except BaseException as error:
            self._interrupted(trial, begun, type(error).__name__)
            raise
        trial = replace(trial, run=begun[0] if begun else Path(done.run.path))
        pruned = done.verdict.why if done.verdict is not None and done.verdict.what == "stop" else None
        return self._ended(trial, done.run, pruned, seconds=time.monotonic() - started_s)

    def _interrupted(self, trial: Trial, begun: list[Path], why: str) -> None:
        self.log.ended(replace(trial, status=INTERRUPTED, reason=why, run=begun[0] if begun else None))

    def _failed(self, trial: Trial, why: str) -> Trial:
        trial = replace(trial, status=FAILED, reason=why, values={}, curve=())
        self.log.ended(trial)
        self.say(f"trial {trial.number}, seed {trial.seed} failed: {why}")
        return trial

    def _ended(self, trial: Trial, run: StoredRun, pruned: str | None, *, seconds: float | None = None) -> Trial:
        status = PRUNED if pruned is not None else run.status
        if status not in OVER:
            trial = replace(trial, status=INTERRUPTED, reason=f"run {run.id} was {status}")
            self.log.ended(trial)
            raise RunFailedError(
                f"run {run.id} was {status}, and the study with it. Finished runs are kept; the same call resumes "
                "the study."
            )
        try:
            values, origin, curve = values_of(run), provenance(run), curve_of(run)
        except LabError as error:
            return self._failed(trial, f"its run cannot be read: {error}")
        trial = replace(
            trial, status=status, reason=pruned or "", values=values, provenance=origin, curve=curve, seconds=seconds
        )
        assert trial.status in (FINISHED, PRUNED)
        self.log.ended(trial)
        return trial


def curve_of(run: StoredRun) -> Curve:
    """(epochs done, loss) of every validation evaluation whose loss is finite."""
    table = run.table("evaluations")
    rows = table[table["split"] == "validation"].to_dict("records")
    found = {
        int(row["epoch"]): float(row["loss"]) for row in rows if row["loss"] is not None and math.isfinite(row["loss"])
    }
    return tuple(sorted(found.items()))


# ``lab.run_study``: executes the runs of a sweep, one after another, and resumes an interrupted study.


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
    restart: bool = False,
) -> Study:
    """Execute every missing run of a sweep, and return the study.

    All of it lies in ``<runs_dir>/studies/<name>``. The same call resumes an interrupted study, even after ``kill -9``:
    no finished run is repeated or lost. An unfinished run resumes from its checkpoint on a session's engines; in
    this process it restarts, with a note. A sweep of more trials under the same name adds those. A trial
    that failed in an earlier call is retried once. Runs are ordinary ones: ``lab.runs.open(trial.run)``.

    Args:
        sweep: or the name of a shipped study, such as ``figure8``.
        name: of the folder; by default that of a shipped study.
        base: settings for a shipped study, in place of its own.
        quick: a shipped study's short form.
        session: whose engines train, into its own folder of runs; by default this process, with ``ranks=1``.
        runs_dir: folder for the study, and without a session for the runs; by default the session's, or ``runs``.
        prune: stops runs early by their validation losses: ``Median()``, ``Halving()``, ``Above(loss)`` of
            ``dtdg_lab.studies.runner``.
        on_trial: called with the current study, at the start and after every trial.
        on_start: receives the observable part of every run that starts: ``id path config live lock version``.
        progress: show a progress bar with the remaining time.
        restart: existing content of the folder is moved into a folder ``before-1``, ``before-2``, ... in it.

    Raises:
        ConfigError: several ranks and no session, the name belongs to another sweep, or there is no objective to
            compare or prune by.
        RunStoreError: another process writes the study, or the disk cannot be written.
        RunFailedError: a run was stopped from outside, and the study with it.
        LabError: runs cannot be started.
    """
    sweep, name = _named(sweep, name, base, quick)
    _check(sweep, session, prune)
    if runs_dir is None:
        runs_dir = "runs" if session is None else session.runs_dir
    folder = _create(Path(runs_dir) / FOLDER / name)
    with one_writer(folder):
        if restart:
            _put_away(folder)
        _write_sweep(folder, sweep)
        with _bar(sweep, progress) as bar:
            runner = TrialRunner(
                TrialLog(folder), session, Path(runs_dir), prune, on_start, bar.write if progress else _ignore
            )
            _Making(folder, sweep, runner, bar, on_trial).all()
    return study_of(folder, sweep)


def _create(folder: Path) -> Path:
    """The folder, created if needed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error("make the study", folder, error) from error
    return folder


class _Making:
    """One call's loop over the trials."""

    def __init__(self, folder: Path, sweep: Sweep, runner: TrialRunner, bar: Any, on_trial: OnTrial | None) -> None:
        self._folder, self._sweep, self._runner, self._bar, self._on_trial = folder, sweep, runner, bar, on_trial
        self._trials = {trial.key: trial for trial in runner.log.read()}

    def all(self) -> None:
        """Execute the missing trials, those left unfinished by an earlier call first."""
        self._report()
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
        self._report()
        return made

    def _report(self) -> None:
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
            search.report(drawn, self._value(made))
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
            note = f"has the same settings as trial {same[0].number} and shares its run"
            return self._noted(replace(same[0], key=key, number=drawn, seconds=0.0, notes=(note,)))
        return self._make(trial, config)

    def _noted(self, trial: Trial) -> Trial:
        """Record a trial that needs no run."""
        if trial.key not in self._trials:
            self._runner.log.asked(trial, on_engines=False)
            for note in trial.notes:
                self._runner.log.noted(trial.key, note)
            self._runner.log.ended(trial)
            self._trials[trial.key] = trial
            self._report()
        return self._trials[trial.key]

    def _value(self, made: list[Trial]) -> float | None:
        """The value for the sampler: the median over seeds; for pruned runs their lowest validation loss so far."""
        from statistics import median

        of = self._sweep.objective
        values = [number(trial.values.get(of)) for trial in made if trial.status == FINISHED]
        if of in (LAST, BEST):
            values += [min((loss for _, loss in trial.curve), default=None) for trial in made if trial.status == PRUNED]
        known = [value for value in values if value is not None]
        return median(known) if known and len(known) == len(made) else None


def _named(sweep: Sweep | str, name: str, base: RunConfig | None, quick: bool) -> tuple[Sweep, str]:
    if isinstance(sweep, str):
        from dtdg_lab.studies.presets import shipped

        found = shipped(sweep)
        sweep, name = found.sweep(base, quick), name or (f"{found.name}-quick" if quick else found.name)
    elif base is not None or quick:
        raise ConfigError("base= and quick= apply to shipped studies only: a Sweep has its own base. Leave them out.")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", name):
        raise ConfigError(
            f"name={name!r}: the study's folder needs a name of letters, digits, '.', '_' and '-', such as "
            "name='alpha-on-collegemsg'. The same name resumes the same study."
        )
    return sweep, name


def _check(sweep: Sweep, session: Session | None, prune: Pruner | None) -> None:
    """Checks before anything is trained."""
    configs = [cell.config for cell in sweep.cells] or [sweep.base]
    most = max(config.ranks for config in configs)
    if session is None and most != 1:
        raise ConfigError(
            f"ranks={most} need engines: run_study(..., session=lab.Session(ranks={most})), or a base with ranks=1, "
            "which keeps the plan."
        )
    if session is not None and most > session.ranks:
        raise ConfigError(
            f"ranks={most} but the session has {session.ranks}: create Session(ranks={most}), or use fewer ranks."
        )
    blind = [config.protocol for config in configs if not PROTOCOLS[config.protocol].validation_share]
    chooses = sweep.is_search and sweep.objective in (LAST, BEST)
    if blind and (prune is not None or chooses):
        raise ConfigError(
            f"protocol={blind[0]!r} has no validation split, which is needed to {'prune' if prune else 'compare'} "
            "runs: "
            "choose another protocol, such as 'warm'" + ("." if prune else ", or another objective.")
        )
    studied = {name for axis in sweep.axes for each in axis.settings for name in each}
    if prune is not None and any(decides_the_loss(name) for name in studied):
        raise ConfigError(
            "losses of different data, protocols or tasks are not comparable, so this study cannot be pruned."
        )


def _write_sweep(folder: Path, sweep: Sweep) -> None:
    """Record the plan of the study, unless the folder holds a different one."""
    file = folder / SWEEP_FILE
    if file.is_file():
        try:
            before = Sweep.load(file)
        except ConfigError as error:
            raise RunStoreError(f"{file} cannot be read: {error} Nothing was changed.") from error
        if why := _conflict(before, sweep):
            raise ConfigError(
                f"the study {folder} is of another sweep: {why}. Give another name=, or restart=True to restart "
                "(existing "
                "content is kept in a subfolder)."
            )
        if before == sweep:
            return
    write_json(file, sweep.to_dict())


def _conflict(before: Sweep, now: Sweep) -> str:
    """The difference that prevents a sweep from resuming another; empty if there is none."""
    if before.is_search != now.is_search:
        return "one is a grid and the other a search"
    described = {name: (getattr(before, name), getattr(now, name)) for name in ("objective", "goal", "shipped")}
    if now.is_search:
        described |= {name: (getattr(before, name), getattr(now, name)) for name in ("sampler", "all_seeds", "names")}
        old, new = before.to_dict(), now.to_dict()
        described |= {name: (old[name], new[name]) for name in ("space", "base")}
    for name, (old, new) in described.items():
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
        else f"it had the run ({lost}), which is missing now; runs may be added, but not removed"
    )


def _differing(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        name = next(name for name in {**old, **new} if old.get(name) != new.get(name))
        return f"{old.get(name)!r} in {name!r} and is {new.get(name)!r}"
    return f"{old!r} and is {new!r}"


def _put_away(folder: Path) -> None:
    """Move a study's files into a subfolder, so that nothing is lost."""
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


def _ignore(words: str) -> None:
    """Without a progress bar, notes are only in the study."""


@contextmanager
def _bar(sweep: Sweep, progress: bool) -> Iterator[Any]:
    from tqdm.auto import tqdm

    shape = "{l_bar}{bar}| {n_fmt}/{total_fmt} runs [{elapsed}{postfix}]"
    with tqdm(total=sweep.total, bar_format=shape, disable=not progress) as bar:
        yield bar


# Studies outside a notebook: with engines of their own if the runs need them.


def study_at_command(sweep: Sweep, name: str, runs_dir: Path) -> Study:
    """Run a study in this process, or on a temporary cluster.

    Raises:
        LabError: see ``run_study``.
    """
    most = max(cell.config.ranks for cell in sweep.cells) if sweep.cells else sweep.base.ranks
    if most == 1:
        return run_study(sweep, name=name, runs_dir=runs_dir)
    from dtdg_lab.cluster.session import Session

    with Session(ranks=most, runs_dir=runs_dir) as session:
        return run_study(sweep, name=name, runs_dir=runs_dir, session=session)
