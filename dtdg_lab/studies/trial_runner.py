"""Trials of studies and races: how they are started, resumed, stopped early and recorded."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from dtdg_lab.cluster.one_run import end_run, run_config
from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.stopping_rule import Evaluated, Judge, Verdict
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
from dtdg_lab.core.system_errors import error_text, is_refusal
from dtdg_lab.core.units import format_seconds
from dtdg_lab.runs.directory import ENDED, RunDirectory
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.liveness import is_dead, read_notes
from dtdg_lab.runs.provenance import provenance
from dtdg_lab.runs.stored_run import StoredRun, open_run
from dtdg_lab.studies import trials as log
from dtdg_lab.studies.objective import validation_curve, values_of
from dtdg_lab.studies.sweep import Cell
from dtdg_lab.studies.trials import Trial, TrialJournal, planned

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session


POLL_S = 0.1
PATIENCE_S = 5.0  # how long to wait until the remaining processes of a run record its end, or a heartbeat
KILLED = "the process that trained it was killed"


def find_run(config: RunConfig, started_ns: int, folders: set[Path], excluded: set[Path]) -> Path | None:
    """Return the run that was created for a config after some time, if a study was killed before recording it.

    Args:
        config: settings of the run.
        started_ns: earliest time of its creation, in nanoseconds since 1970.
        folders: folders of runs.
        excluded: resolved folders of runs that belong to other trials.
    """
    for folder in folders:
        for path in sorted(folder.glob(f"*-{config.short_hash}*")):
            try:
                run = RunDirectory.open(path)
                created_ns = run.config_file.stat().st_mtime_ns  # the file is written once, when the folder is created
                if created_ns >= started_ns and path.resolve() not in excluded and run.config() == config:
                    return path
            except (RunStoreError, ConfigError):
                continue  # not a run, or one of another version
    return None


def wait_until_final(path: Path, *, on_engines: bool) -> str:
    """Return the final state of a run. Wait while engines train it, and end it if it has no process.

    Args:
        path: the run's folder.
        on_engines: whether engines train it, which outlive the process that started it.

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
            is_young = on_engines and time.time_ns() - int(status["time_ns"]) < PATIENCE_S * 1e9
            if not is_young and time.monotonic() - quiet_since >= (PATIENCE_S if notes else 0.0):
                try:
                    finish(run, "failed", KILLED)
                except LabError as error:  # its records are damaged, and are kept as they are
                    run.write_status("failed", reason=f"{KILLED}; {error}", attempt=status["attempt"])
                continue
        time.sleep(POLL_S)
    return str(status["state"])


def resume(path: Path, session: Session | None) -> bool:
    """Resume a run from its checkpoint on a session's engines and wait for its end; return False if that is impossible.

    Raises:
        RunFailedError: the run failed again.
    """
    run = RunDirectory.open(path)
    if session is None or not run.checkpoint_file.is_file():
        return False
    handles = [handle for handle in session.runs if handle.path.resolve() == path.resolve()]
    handle = handles[0] if handles else Run(session, run)
    try:
        handle.resume().wait()
    except RunFailedError:
        raise
    except KeyboardInterrupt:
        if run.recorded_status()["state"] not in ENDED:
            next(active for active in session.under_way if active.path.resolve() == path.resolve()).stop()
        raise
    except LabError as error:  # the checkpoint is from another version or other data, so the run starts again
        if is_refusal(error):
            raise
        return False
    return True


ENDS_STUDY = (RunStoreError, ControlError, ClusterError, RunInterruptedError)  # errors that no trial causes
JOIN_S, STOP_PATIENCE_S = 0.2, 30.0
NEWEST = 64  # number of newest finished runs from which the remaining time is estimated
Decide = Callable[[Trial, Sequence[Trial]], Judge | None]


class TrialRunner:
    """Trains trials on a session's engines or in this process; other threads may call ``stop``.

    Args:
        folder: folder of a study or race, whose lock this process holds.
        kind: ``study`` or ``race``.
        session: the session whose engines train; None for this process.
        runs_dir: folder for runs if there is no session.
        decide: returns the function that judges a trial's evaluations, given the trial and the others.
        resumes: whether an interrupted run on engines resumes from its checkpoint; otherwise it starts again.
        start: called with each trial whose run starts, and with the run. Like the next two functions it is called by
            one thread at a time, and its errors end the study.
        evaluated: called after every evaluation on the validation split; None for no function.
        report: called before the first trial and after every trial.
        bar: a progress bar.

    Attributes:
        trials: key -> trial, as it is now.
        stopped: whether a stop was requested.
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        session: Session | None,
        runs_dir: Path,
        *,
        decide: Decide = lambda trial, other_trials: None,
        resumes: bool = True,
        start: Callable[[Trial, Any], None] = lambda trial, run: None,
        evaluated: Callable[[], None] | None = None,
        report: Callable[[], None] = lambda: None,
        bar: Any = None,
    ) -> None:
        self._folder, self._kind, self._session, self._runs_dir = folder, kind, session, runs_dir
        self._decide, self._resumes, self.bar = decide, resumes, bar
        self._on_start, self._on_evaluated, self._on_report = start, evaluated, report
        self._journal = TrialJournal(folder)
        self.trials = {trial.key: trial for trial in self._journal.read()}
        self.stopped = False
        self._keys: set[str] | None = None  # keys of the trials of this call; None in a search
        self._ending = threading.Event()
        self._storing, self._calling = threading.RLock(), threading.RLock()
        self._active: dict[str, Any] = {}  # key of a trial -> its active run
        self._caller_errors: list[BaseException] = []

    # many trials

    def execute(self, cells: Sequence[Cell], *, parallel: bool = False) -> None:
        """Train the missing trials in order, after those that an earlier call left unfinished.

        Args:
            cells: cells of the grid.
            parallel: whether two are trained at the same time, on halves of the session's engines.

        Raises:
            RunFailedError: a run was stopped, and the study with it.
            LabError: no trial can be trained now, for example since the disk is full.
        """
        self._keys = {cell.key for cell in cells}
        self.report()
        missing = [cell for cell in cells if self._trial(cell).status not in log.OVER]
        waiting = deque(sorted(missing, key=lambda cell: self._trial(cell).status != log.RUNNING))
        if not parallel or self._session is None:
            self._execute_in_turn(waiting, None)
            return
        errors: list[BaseException] = []

        def on_half(half: Sequence[int]) -> None:
            try:
                self._execute_in_turn(waiting, half)
            except BaseException as error:  # raised again in the calling thread
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
                    thread.join(JOIN_S)
        except KeyboardInterrupt:
            self.stop()
            for thread in threads:  # they write to the folder until they have recorded how their runs ended
                thread.join(STOP_PATIENCE_S)
            raise
        if errors:
            raise errors[0]

    def _execute_in_turn(self, waiting: deque[Cell], half: Sequence[int] | None) -> None:
        while not self._ending.is_set():
            if self.bar is not None and (seconds := time_left(list(self.trials.values()), list(waiting))) is not None:
                self.bar.set_postfix_str(f"about {format_seconds(seconds)} left")
            try:
                cell = waiting.popleft()
            except IndexError:
                return
            if half is None and self._session is not None and not self._session.ready:
                self._session.repair()  # an engine died during the previous run
            self.execute_one(self._trial(cell), cell.config, None if half is None else half[: cell.config.ranks])

    def _trial(self, cell: Cell) -> Trial:
        return self.trials.get(cell.key) or planned(cell)

    def stop(self) -> None:
        """Stop the active runs and start no more; runs in this process stop after their next validation evaluation."""
        self.stopped = True
        self._ending.set()
        for run in list(self._active.values()):
            _end(run)

    def report(self) -> None:
        """Show the progress of this call, and call the caller's ``report``."""
        if self.bar is not None:
            trials = [trial for key, trial in list(self.trials.items()) if self._keys is None or key in self._keys]
            self.bar.n = sum(trial.status in (*log.OVER, log.FAILED) for trial in trials)
            self.bar.refresh()
        self._notify(self._on_report)

    def _notify(self, callback: Callable[..., None], *arguments: Any) -> None:
        with self._calling:
            try:
                callback(*arguments)
            except BaseException as error:  # an error of the caller's function, not of a run
                self._caller_errors.append(error)
                raise

    # one trial

    def execute_one(self, trial: Trial, config: RunConfig, engines: Sequence[int] | None = None) -> Trial:
        """Return the trial in its final state, from the run of an earlier call or from a run trained now.

        Raises:
            RunFailedError: its run was stopped, which ends the study.
            LabError: no trial can be trained now.
        """
        if trial.status in log.OVER:
            return trial
        other_trials = [recorded for recorded in list(self.trials.values()) if recorded.key != trial.key]
        is_interrupted = trial.asked_ns and trial.status != log.FAILED
        trial = self._continue(trial, config, other_trials) if is_interrupted else trial.reset()
        if trial.status not in (*log.OVER, log.FAILED):
            trial = self._start(trial, config, other_trials, engines)
        self.report()
        return trial

    def put(self, trial: Trial) -> Trial:
        """Record a trial."""
        with self._storing:
            self._journal.put(trial)
            self.trials[trial.key] = trial
        return trial

    def forget(self, trial: Trial, reason: str) -> None:
        """Mark a trial to be trained again, since its run is outdated."""
        self.put(self._add_note(replace(trial.reset(), status=log.INTERRUPTED), f"{reason}, so it starts again"))

    def _add_note(self, trial: Trial, note: str) -> Trial:
        if self.bar is not None and not self.bar.disable:
            self.bar.write(f"trial {trial.number}, seed {trial.seed}: {note}")
        return replace(trial, notes=(*trial.notes, note))

    def _continue(self, trial: Trial, config: RunConfig, other_trials: Sequence[Trial]) -> Trial:
        """Return the trial with the result of an earlier call's run; unfinished if it must start again."""
        path = trial.run
        if path is None:
            excluded = {recorded.run.resolve() for recorded in other_trials if recorded.run is not None}
            folders = {self._runs_dir} | ({self._session.runs_dir} if self._session is not None else set())
            path = find_run(config, trial.asked_ns, folders, excluded)
            if path is None:
                return trial  # the process was killed before the run had a folder
        trial = self.put(replace(trial, run=path))
        if not (path / "config.json").is_file():
            return self._add_note(trial, f"its run {path.name} is gone, so it starts again")
        state = wait_until_final(path, on_engines=trial.on_engines)
        if state == "finished" and (self._resumes or self._decide(trial, other_trials) is None):
            return self._record_end(trial, open_run(path))  # otherwise, no stopping rule watched it after the kill
        try:
            if not self._resumes or not resume(path, self._session):
                return self._add_note(
                    trial, f"its run {path.name} was {state} when the {self._kind} was called again, so it starts again"
                )
        except RunFailedError as error:
            return self._record_failure(trial, str(error))
        trial = self._add_note(trial, f"run {path.name} was resumed from its checkpoint")
        return self._record_end(trial, open_run(path))

    def _start(
        self, trial: Trial, config: RunConfig, other_trials: Sequence[Trial], engines: Sequence[int] | None
    ) -> Trial:
        on_engines = self._session is not None
        trial = self.put(replace(trial.reset(), status=log.RUNNING, asked_ns=time.time_ns(), on_engines=on_engines))

        def on_start(run: Any) -> None:
            nonlocal trial
            with self._storing:
                self._active[trial.key] = run
                trial = self.put(replace(trial, run=Path(run.path)))
            if self.stopped:  # the stop came while the run started
                _end(run)
            self._notify(self._on_start, trial, run)

        started_s = time.monotonic()
        try:
            outcome = run_config(
                config,
                session=self._session,
                engines=engines,
                runs_dir=self._runs_dir,
                judge=self._judge(trial, other_trials),
                on_start=on_start,
            )
        except ENDS_STUDY as error:
            self._record_interruption(trial, str(error))
            raise
        except Exception as error:
            reason = error_text(error)
            if error in self._caller_errors:
                self._record_interruption(trial, reason)
                raise
            return self._record_failure(trial, reason)  # caused by this trial, so others continue
        except BaseException as error:
            self._record_interruption(trial, type(error).__name__)
            raise
        finally:
            self._active.pop(trial.key, None)
        trial = replace(trial, run=trial.run or Path(outcome.run.path))
        return self._record_end(trial, outcome.run, outcome.verdict, seconds=time.monotonic() - started_s)

    def _judge(self, trial: Trial, other_trials: Sequence[Trial]) -> Judge | None:
        decide, on_evaluated = self._decide(trial, other_trials), self._on_evaluated
        if on_evaluated is None:
            return decide

        def judge(evaluations: tuple[Evaluated, ...]) -> Verdict | None:
            self._notify(on_evaluated)
            if self.stopped and self._session is None:
                return Verdict("stop", f"the {self._kind} was stopped")
            return None if decide is None else decide(evaluations)

        return judge

    def _record_interruption(self, trial: Trial, reason: str) -> None:
        self.put(replace(trial, status=log.INTERRUPTED, reason=reason))

    def _record_failure(self, trial: Trial, reason: str) -> Trial:
        if self.bar is not None and not self.bar.disable:
            self.bar.write(f"trial {trial.number}, seed {trial.seed} failed: {reason}")
        return self.put(replace(trial, status=log.FAILED, reason=reason, values={}, curve=()))

    def _record_end(
        self, trial: Trial, run: StoredRun, verdict: Verdict | None = None, *, seconds: float | None = None
    ) -> Trial:
        status = log.PRUNED if verdict is not None and verdict.what == "stop" and not self.stopped else run.status
        if status not in log.OVER:
            self._record_interruption(trial, f"run {run.id} was {status}")
            raise RunFailedError(
                f"run {run.id} was {status}, and the {self._kind} with it. Finished runs are kept in {self._folder}; "
                f"the same call resumes the {self._kind}."
            )
        try:
            values, origin, curve = values_of(run), provenance(run), validation_curve(run)
        except LabError as error:
            return self._record_failure(trial, f"its run cannot be read: {error}")
        reason = "" if verdict is None else verdict.why
        return self.put(
            replace(trial, status=status, reason=reason, values=values, provenance=origin, curve=curve, seconds=seconds)
        )


def _end(run: Any) -> None:
    """Stop a run on engines, unless it is already ending."""
    if hasattr(run, "stop"):
        end_run(run)


@contextmanager
def progress_bar(total: int, progress: bool) -> Iterator[Any]:
    """Show a bar of runs with the remaining time."""
    bar_format = "{l_bar}{bar}| {n_fmt}/{total_fmt} runs [{elapsed}{postfix}]"
    with tqdm(total=total, bar_format=bar_format, disable=not progress) as bar:
        yield bar


def time_left(trials: Sequence[Trial], remaining: Sequence[Cell]) -> float | None:
    """Return the remaining seconds of the runs; None if none has finished yet.

    Each run is expected to take its number of epochs times the median epoch time of the finished runs that share the
    most settings with it.

    Args:
        trials: trials of the study.
        remaining: cells whose runs have not started.
    """
    finished = [
        (trial.settings, trial.seconds / trial.values["epochs"])
        for trial in trials
        if trial.status == log.FINISHED and trial.seconds and trial.values.get("epochs")
    ][-NEWEST:]
    if not finished:
        return None
    total = 0.0
    for cell in remaining:
        shared = [sum(cell.settings.get(name) == value for name, value in settings.items()) for settings, _ in finished]
        rates = [rate for (_, rate), count in zip(finished, shared, strict=True) if count == max(shared)]
        total += median(rates) * cell.config.epochs
    return total
