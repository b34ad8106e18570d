"""Runs of studies and races: started on engines or here, stopped early, resumed after a kill, one writer at a time."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from dtdg_lab.cluster.local import Evaluated, Judge, Verdict, end_run, run_config
from dtdg_lab.cluster.run import Run
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.extensions import check_registered
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import (
    ClusterError,
    ConfigError,
    ControlError,
    LabError,
    RunFailedError,
    RunInterruptedError,
    RunStoreError,
)
from dtdg_lab.core.files import writable_folder
from dtdg_lab.core.system_errors import error_text, is_refusal
from dtdg_lab.core.units import format_seconds
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.json_files import read_json, store_error, write_json
from dtdg_lab.runs.liveness import is_dead, read_notes
from dtdg_lab.runs.registered_code import add_extensions, check_same_code, learn_extensions
from dtdg_lab.runs.run import StoredRun, open_run, provenance
from dtdg_lab.studies import trials as log
from dtdg_lab.studies.study import SWEEP_FILE, Study, study_of
from dtdg_lab.studies.sweep import BEST, LAST, Cell, Sweep, decides_the_loss, key_of, number, values_of, without_lists
from dtdg_lab.studies.trials import OptunaSearch, Trial, TrialLog

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
    while (status := run.recorded_status())["state"] not in ENDED:
        notes = read_notes(run.live, status["attempt"]).values() if on_engines else []
        if notes and not all(is_dead(note) for note in notes):
            quiet_since = None
        else:
            quiet_since = quiet_since or time.monotonic()
            young = on_engines and time.time_ns() - int(status["time_ns"]) < PATIENCE_S * 1e9
            if not young and time.monotonic() - quiet_since >= (PATIENCE_S if notes else 0.0):
                try:
                    finish(run, "failed", KILLED)
                except LabError as error:  # its records are damaged: they are kept unchanged
                    run.write_status("failed", reason=f"{KILLED}; {error}", attempt=status["attempt"])
                continue
        time.sleep(LOOK_S)
    return str(status["state"])


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
        if run.recorded_status()["state"] not in ENDED:
            next(each for each in session.under_way if each.path.resolve() == path.resolve()).stop()
        raise
    except LabError as error:  # a checkpoint of another version or data: the run restarts
        if is_refusal(error):
            raise
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


# One writer of a study or race at a time.


LOCK, WRITER = "lock", "writer.json"


@contextmanager
def one_writer(folder: Path, kind: str = "study") -> Iterator[None]:
    """Hold a folder for writing; the operating system releases it when the process ends, even by a kill.

    Args:
        folder: of a study or race.
        kind: ``study`` or ``race``.

    Raises:
        RunStoreError: another process, or another call in this one, writes it; the message names it.
    """
    import filelock

    lock = filelock.FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout as error:
        raise RunStoreError(
            f"the {kind} {folder} is being written by {_writer(folder)}: a {kind} has one writer. Wait for it or end "
            f"it, give another name=, or look at it meanwhile with lab.open({str(folder)!r})."
        ) from error
    except OSError as error:
        raise store_error("lock", folder / LOCK, error) from error
    try:
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "command": " ".join(sys.argv)[:200]}
        write_json(folder / WRITER, facts)
        yield
    finally:
        (folder / WRITER).unlink(missing_ok=True)
        lock.release()


def _writer(folder: Path) -> str:
    try:
        facts = read_json(folder / WRITER)
        if (facts["pid"], facts["host"]) == (os.getpid(), socket.gethostname()):
            return f"another call in this process ({os.getpid()})"
        return f"process {facts['pid']} on {facts['host']} ({facts['command']})"
    except (RunStoreError, KeyError, TypeError, json.JSONDecodeError):
        return "another process"


# Estimate of a study's remaining time, from the duration of its finished runs.


MOST = 64  # the newest finished runs that are used


def time_left(trials: Sequence[Trial], left: Sequence[Cell]) -> float | None:
    """Remaining seconds of the runs; None before one is finished.

    Each takes its epochs times the median epoch time of the finished runs that share most settings with it.

    Args:
        trials: of the study.
        left: the remaining runs.
    """
    done = [
        (trial.settings, trial.seconds / trial.values["epochs"])
        for trial in trials
        if trial.status == log.FINISHED and trial.seconds and trial.values.get("epochs")
    ][-MOST:]
    if not done:
        return None
    total = 0.0
    for cell in left:
        shared = [sum(cell.settings.get(name) == value for name, value in known.items()) for known, _ in done]
        rate = median(rate for (_, rate), alike in zip(done, shared, strict=True) if alike == max(shared))
        total += rate * cell.config.epochs
    return total


# The runs of a grid: each trial is started, resumed after a kill, stopped early, and always recorded.


OF_THE_STUDY = (
    RunStoreError,
    ControlError,
    ClusterError,
    RunInterruptedError,
)  # not caused by a trial: the study ends and can be resumed
STOP_LOOK_S, STOP_PATIENCE_S = 0.2, 30.0
Decide = Callable[[Trial, Sequence[Trial]], Judge | None]


class GridRunner:
    """Executes trials on a session's engines or in this process; ``stop`` may be called from another thread.

    Args:
        folder: of a study or race, which this process holds for writing.
        kind: ``study`` or ``race``.
        session: whose engines train; this process where None.
        runs_dir: folder for runs, without a session.
        decide: gives the judge of a trial's evaluations, from the trial and the others.
        resumes: whether a broken run resumes from its checkpoint on engines, or restarts.
        start: receives each trial whose run starts, with the run's observable part. It and the next two are called
            one at a time; their errors end the study.
        evaluated: called after every evaluation of the validation split; None without one.
        report: called after every trial, and before the first.
        bar: a progress bar.

    Attributes:
        trials: by key, in their current state.
        stopped: whether a stop was requested.
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        session: Session | None,
        runs_dir: Path,
        *,
        decide: Decide = lambda trial, others: None,
        resumes: bool = True,
        start: Callable[[Trial, Any], None] = lambda trial, run: None,
        evaluated: Callable[[], None] | None = None,
        report: Callable[[], None] = lambda: None,
        bar: Any = None,
    ) -> None:
        self._folder, self._kind, self._session, self._runs_dir = folder, kind, session, runs_dir
        self._decide, self._resumes, self.bar = decide, resumes, bar
        self._on_start, self._on_evaluated, self._on_report = start, evaluated, report
        self._log = TrialLog(folder)
        self.trials = {trial.key: trial for trial in self._log.read()}
        self.stopped = False
        self._wanted: set[str] | None = None  # keys of the trials of this call; all of a search
        self._ending = threading.Event()
        self._storing, self._calling = threading.RLock(), threading.RLock()
        self._active: dict[str, Any] = {}  # runs by the key of their trial
        self._of_caller: list[BaseException] = []

    # many trials

    def execute(self, cells: Sequence[Cell], *, parallel: bool = False) -> None:
        """Execute the missing trials in their order, those left unfinished by an earlier call first.

        Args:
            cells: of the grid.
            parallel: two at a time, on disjoint halves of the session's engines.

        Raises:
            RunFailedError: a run was stopped, and the study with it.
            LabError: no trial can be executed now, for example because the disk is full.
        """
        self._wanted = {cell.key for cell in cells}
        self.report()
        missing = [cell for cell in cells if self._trial(cell).status not in log.OVER]
        waiting = deque(sorted(missing, key=lambda cell: self._trial(cell).status != log.RUNNING))
        if not parallel or self._session is None:
            self._one_after_another(waiting, None)
            return
        errors: list[BaseException] = []

        def on_half(half: Sequence[int]) -> None:
            try:
                self._one_after_another(waiting, half)
            except BaseException as error:  # re-raised in the thread that called
                errors.append(error)
                self._ending.set()

        threads = [
            threading.Thread(target=on_half, args=(half,), name=f"{self._kind}-{half[0]}", daemon=True)
            for half in self._session.halves()
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(STOP_LOOK_S)
        except KeyboardInterrupt:
            self.stop()
            for thread in threads:  # they record how their runs ended, and own the folder until then
                thread.join(STOP_PATIENCE_S)
            raise
        if errors:
            raise errors[0]

    def _one_after_another(self, waiting: deque[Cell], half: Sequence[int] | None) -> None:
        while not self._ending.is_set():
            if self.bar is not None and (seconds := time_left(list(self.trials.values()), list(waiting))) is not None:
                self.bar.set_postfix_str(f"about {format_seconds(seconds)} left")
            try:
                cell = waiting.popleft()
            except IndexError:
                return
            if half is None and self._session is not None and not self._session.ready:
                self._session.repair()  # an engine died with the run before
            self.make(self._trial(cell), cell.config, None if half is None else half[: cell.config.ranks])

    def _trial(self, cell: Cell) -> Trial:
        return self.trials.get(cell.key) or log.planned(cell)

    def stop(self) -> None:
        """Stop the active runs and start no more; in this process at the next evaluation of the validation split."""
        self.stopped = True
        self._ending.set()
        for run in list(self._active.values()):
            _end(run)

    def report(self) -> None:
        """Show the progress of the runs that are wanted now, and call the caller's ``report``."""
        if self.bar is not None:
            wanted = [each for each in list(self.trials.values()) if self._wanted is None or each.key in self._wanted]
            self.bar.n = sum(trial.status in (*log.OVER, log.FAILED) for trial in wanted)
            self.bar.refresh()
        self._notify(self._on_report)

    def _notify(self, call: Callable[..., None], *given: Any) -> None:
        with self._calling:
            try:
                call(*given)
            except BaseException as error:  # not caused by a run
                self._of_caller.append(error)
                raise

    # one trial

    def make(self, trial: Trial, config: RunConfig, engines: Sequence[int] | None = None) -> Trial:
        """The trial in its final state: that of an earlier run, if one ended, or that of a run executed now.

        Raises:
            RunFailedError: its run was stopped; the study ends with it.
            LabError: no trial can be executed now.
        """
        if trial.status in log.OVER:
            return trial
        others = [other for other in list(self.trials.values()) if other.key != trial.key]
        is_left = trial.asked_ns and trial.status != log.FAILED
        trial = self._left(trial, config, others) if is_left else planned_again(trial)
        if trial.status not in (*log.OVER, log.FAILED):
            trial = self._new(trial, config, others, engines)
        self.report()
        return trial

    def put(self, trial: Trial) -> Trial:
        """Record a trial."""
        with self._storing:
            self._log.put(trial)
            self.trials[trial.key] = trial
        return trial

    def forget(self, trial: Trial, why: str) -> None:
        """Have a trial executed again, whose run does not serve any more."""
        self.put(self._noted(replace(planned_again(trial), status=log.INTERRUPTED), f"{why}: restarted"))

    def _noted(self, trial: Trial, note: str) -> Trial:
        if self.bar is not None and not self.bar.disable:
            self.bar.write(f"trial {trial.number}, seed {trial.seed}: {note}")
        return replace(trial, notes=(*trial.notes, note))

    def _left(self, trial: Trial, config: RunConfig, others: Sequence[Trial]) -> Trial:
        """The trial by the run that an earlier call started; unfinished if it has to restart."""
        path = trial.run
        if path is None:
            taken = {other.run.resolve() for other in others if other.run is not None}
            roots = {self._runs_dir} | ({self._session.runs_dir} if self._session is not None else set())
            path = orphan(config, trial.asked_ns, roots, taken)
            if path is None:
                return trial  # it was killed before the run had a folder
        trial = self.put(replace(trial, run=path))
        if not (path / "config.json").is_file():
            return self._noted(trial, f"its run {path.name} is gone: restarted")
        state = settle(path, on_engines=trial.on_engines)
        if state == "finished" and (self._resumes or self._decide(trial, others) is None):
            return self._ended(trial, open_run(path))  # else no stopping rule watched it after the kill
        try:
            if not self._resumes or not go_on(path, self._session):
                return self._noted(
                    trial, f"its run {path.name} was {state} when the {self._kind} was called again: restarted"
                )
        except RunFailedError as error:
            return self._failed(trial, str(error))
        return self._ended(self._noted(trial, f"run {path.name} was resumed from its checkpoint"), open_run(path))

    def _new(self, trial: Trial, config: RunConfig, others: Sequence[Trial], engines: Sequence[int] | None) -> Trial:
        on_engines = self._session is not None
        trial = self.put(
            replace(planned_again(trial), status=log.RUNNING, asked_ns=time.time_ns(), on_engines=on_engines)
        )

        def on_start(run: Any) -> None:
            nonlocal trial
            with self._storing:
                self._active[trial.key] = run
                trial = self.put(replace(trial, run=Path(run.path)))
            if self.stopped:  # during its start
                _end(run)
            self._notify(self._on_start, trial, run)

        started_s = time.monotonic()
        try:
            judge, runs_dir = self._judge(trial, others), self._runs_dir
            done = run_config(
                config, session=self._session, engines=engines, runs_dir=runs_dir, judge=judge, on_start=on_start
            )
        except OF_THE_STUDY as error:
            self._interrupted(trial, str(error))
            raise
        except Exception as error:
            said = error_text(error)
            if error in self._of_caller:
                self._interrupted(trial, said)
                raise
            return self._failed(trial, said)  # any other error is this trial's: it is recorded, and others continue
        except BaseException as error:
            self._interrupted(trial, type(error).__name__)
            raise
        finally:
            self._active.pop(trial.key, None)
        trial = replace(trial, run=trial.run or Path(done.run.path))
        return self._ended(trial, done.run, done.verdict, seconds=time.monotonic() - started_s)

    def _judge(self, trial: Trial, others: Sequence[Trial]) -> Judge | None:
        decide, evaluated = self._decide(trial, others), self._on_evaluated
        if evaluated is None:
            return decide

        def judge(seen: tuple[Evaluated, ...]) -> Verdict | None:
            self._notify(evaluated)
            if self.stopped and self._session is None:
                return Verdict("stop", f"the {self._kind} was stopped")
            return None if decide is None else decide(seen)

        return judge

    def _interrupted(self, trial: Trial, why: str) -> None:
        self.put(replace(trial, status=log.INTERRUPTED, reason=why))

    def _failed(self, trial: Trial, why: str) -> Trial:
        if self.bar is not None and not self.bar.disable:
            self.bar.write(f"trial {trial.number}, seed {trial.seed} failed: {why}")
        return self.put(replace(trial, status=log.FAILED, reason=why, values={}, curve=()))

    def _ended(
        self, trial: Trial, run: StoredRun, verdict: Verdict | None = None, *, seconds: float | None = None
    ) -> Trial:
        status = log.PRUNED if verdict is not None and verdict.what == "stop" and not self.stopped else run.status
        if status not in log.OVER:
            self._interrupted(trial, f"run {run.id} was {status}")
            raise RunFailedError(
                f"run {run.id} was {status}, and the {self._kind} with it. Finished runs are kept in {self._folder}; "
                f"the same call resumes the {self._kind}."
            )
        try:
            values, origin, curve = values_of(run), provenance(run), curve_of(run)
        except LabError as error:
            return self._failed(trial, f"its run cannot be read: {error}")
        reason = "" if verdict is None else verdict.why
        return self.put(
            replace(trial, status=status, reason=reason, values=values, provenance=origin, curve=curve, seconds=seconds)
        )


def planned_again(trial: Trial) -> Trial:
    """A trial before its first start, with its notes."""
    return Trial(trial.key, trial.number, trial.settings, trial.seed, notes=trial.notes)


def _end(run: Any) -> None:
    """Stop a run on engines, unless it is ending already."""
    if hasattr(run, "stop"):
        end_run(run)


@contextmanager
def progress_bar(total: int, progress: bool) -> Iterator[Any]:
    """A bar of runs with the remaining time."""
    from tqdm.auto import tqdm

    shape = "{l_bar}{bar}| {n_fmt}/{total_fmt} runs [{elapsed}{postfix}]"
    with tqdm(total=total, bar_format=shape, disable=not progress) as bar:
        yield bar


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


def run_study(
    sweep: Sweep | str,
    *,
    name: str = "",
    base: RunConfig | None = None,
    quick: bool = False,
    session: Session | None = None,
    runs_dir: str | Path | None = None,
    prune: Pruner | None = None,
    on_trial: Callable[[Study], None] | None = None,
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
            ``lab.studies``.
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
    prune: Pruner | None = None,
    on_trial: Callable[[Study], None] | None = None,
    on_start: Callable[[Any], None] | None = None,
    progress: bool = True,
    restart: bool = False,
    outdated: Callable[[Trial], str] | None = None,
) -> Study:
    """As :func:`run_study`, in a folder.

    ``outdated`` says why a trial of an earlier call does not serve any more; empty if it does. With it, the sweep
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

        def decide(trial: Trial, others: Sequence[Trial]) -> Judge | None:
            if prune is None:
                return None
            return judge_of(prune, [other.curve for other in others if other.seed == trial.seed and other.curve])

        runner = GridRunner(
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
            if outdated is not None and (why := outdated(trial)):
                runner.forget(trial, why)
        if sweep.is_search:
            _search(runner, folder, sweep)
        else:
            runner.execute(sweep.cells)
    return study_of(folder, sweep)


def _search(runner: GridRunner, folder: Path, sweep: Sweep) -> None:
    runner.report()
    search = OptunaSearch(folder, sweep)
    for drawn in range(sweep.trials):
        settings = search.ask(drawn)
        made = [_drawn(runner, sweep, drawn, settings, seed) for seed in sweep.all_seeds]
        search.report(drawn, _value(sweep.objective, made))
        if all(trial.status == log.FINISHED for trial in made):
            each = sum(trial.seconds or 0.0 for trial in made)
            runner.bar.set_postfix_str(f"about {format_seconds(each * (sweep.trials - drawn - 1))} left")


def _drawn(runner: GridRunner, sweep: Sweep, drawn: int, settings: dict[str, Any], seed: int) -> Trial:
    """The trial of a drawn combination and a seed; invalid combinations and those drawn before need no run."""
    try:
        config = sweep.config_of(settings, seed)
    except ConfigError as error:
        trial = Trial(f"{drawn:05d}-refused-{seed}", drawn, settings, seed, log.REFUSED, without_lists(error))
    else:
        key = f"{drawn:05d}-{key_of(config)}"
        trial = runner.trials.get(key, Trial(key, drawn, settings, seed))
        same = [each for name, each in runner.trials.items() if name[6:] == key[6:] and each.status == log.FINISHED]
        if not same or trial.status in log.OVER:
            return runner.make(trial, config)
        note = f"has the same settings as trial {same[0].number} and shares its run"
        trial = replace(same[0], key=key, number=drawn, seconds=0.0, notes=(note,))
    if trial.key not in runner.trials:
        runner.put(trial)
        runner.report()
    return runner.trials[trial.key]


def _value(objective: str, made: Sequence[Trial]) -> float | None:
    """The value for the sampler: the median over seeds; for pruned runs their lowest validation loss so far."""
    values = [number(trial.values.get(objective)) for trial in made if trial.status == log.FINISHED]
    if objective in (LAST, BEST):
        values += [min((loss for _, loss in trial.curve), default=None) for trial in made if trial.status == log.PRUNED]
    known = [value for value in values if value is not None]
    return median(known) if known and len(known) == len(made) else None


def _named(sweep: Sweep | str, name: str, base: RunConfig | None, quick: bool) -> tuple[Sweep, str]:
    if isinstance(sweep, str):
        from dtdg_lab.studies.presets import preset, sweep_of

        name = name or (f"{sweep}-quick" if quick else sweep)
        sweep = sweep_of(preset(sweep), base, quick)
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
            f"ranks={most} need engines: give session=lab.Session(ranks={most}), or a config with ranks=1, which keeps "
            "the plan."
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
            "runs: choose another protocol, such as 'warm'" + ("." if prune else ", or another objective.")
        )
    studied = {name for axis in sweep.axes for each in axis.settings for name in each}
    if prune is not None and any(decides_the_loss(name) for name in studied):
        raise ConfigError(
            "losses of different data, protocols or tasks are not comparable, so this study cannot be pruned."
        )


def _write_sweep(folder: Path, sweep: Sweep, *, replaces: bool) -> None:
    """Record the plan of the study, unless the folder holds a different one."""
    file, texts = folder / SWEEP_FILE, _texts_in(sweep.to_dict())
    check_registered(texts=texts)
    learn_extensions(folder)
    if file.is_file():
        try:
            before = Sweep.load(file)
        except ConfigError as error:
            raise RunStoreError(f"{file} cannot be read: {error} Nothing was changed.") from error
        if not replaces and (why := _conflict(before, sweep)):
            raise ConfigError(
                f"the study {folder} is of another sweep: {why}. Give another name=, or restart=True to restart "
                "(existing content is kept in a subfolder)."
            )
        if not replaces:
            remedy = "give another name=, or restart=True to restart (existing content is kept in a subfolder)"
            check_same_code(f"study {folder.name!r}", folder, texts=texts, remedy=remedy)
        if before == sweep:
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
    if changed:
        return ", ".join(f"{name} was {old[name]!r} and is {new.get(name)!r}" for name in changed)
    return f"it had the run ({next(iter(missing.values()))}), which is missing now; runs may be added, but not removed"


def _differing(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        name = next(name for name in {**old, **new} if old.get(name) != new.get(name))
        return f"{old.get(name)!r} in {name!r} and is {new.get(name)!r}"
    return f"{old!r} and is {new!r}"


def _put_away(folder: Path) -> None:
    """Move a study's files into a subfolder, so that nothing is lost."""
    files = [folder / name for name in (SWEEP_FILE, log.FILE, log.JOURNAL) if (folder / name).exists()]
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
