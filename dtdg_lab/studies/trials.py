"""Trials of studies and races in an Optuna journal, a file to which every change of a trial is appended."""

from __future__ import annotations

import json
import os
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import filelock
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.core.system_errors import store_error
from dtdg_lab.runs.json_files import dumps, read_json, write_json
from dtdg_lab.studies.sweep import Cell

FILE, OLD_FILE = "optuna.journal", "trials.jsonl"
WAITING, RUNNING, FINISHED, PRUNED = "waiting", "running", "finished", "pruned"
FAILED, INTERRUPTED, REFUSED = "failed", "interrupted", "refused"
OVER = (FINISHED, PRUNED, REFUSED)  # trials with these states are not trained again
_STATES: Mapping[str, TrialState] = {FINISHED: TrialState.COMPLETE, PRUNED: TrialState.PRUNED}
_STUDY, _ATTRIBUTE = "trials", "trial"


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a study or race, planned or trained.

    Attributes:
        key: identifies the trial.
        number: number of its combination of settings, from 0.
        settings: its values on the studied axes.
        seed: the seed of its run.
        status: waiting, running, finished, pruned, failed or interrupted; in a search also refused, for invalid
            settings.
        reason: why it ended early or failed.
        run: folder of its run, if it has one.
        values: numbers of its run (see ``runs.summary.SUMMARY_MEANINGS``).
        provenance: protocol, purge gap and data of its run (see ``runs.provenance``).
        curve: (completed epochs, loss) of every evaluation on the validation split.
        seconds: how long it took.
        notes: other events, as text.
        asked_ns: time of its last start, in nanoseconds since 1970; 0 before the first.
        on_engines: whether it was started on a session's engines, which outlive the process that started it.
    """

    key: str
    number: int
    settings: Mapping[str, Any]
    seed: int
    status: str = WAITING
    reason: str = ""
    run: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    curve: tuple[tuple[int, float], ...] = ()
    seconds: float | None = None
    notes: tuple[str, ...] = ()
    asked_ns: int = 0
    on_engines: bool = False

    def reset(self) -> Trial:
        """Return the trial as before its first start, but with its notes."""
        return Trial(self.key, self.number, self.settings, self.seed, notes=self.notes)


def planned(cell: Cell, **attributes: Any) -> Trial:
    """Return the trial of a cell of a grid."""
    return Trial(cell.key, cell.number, cell.settings, cell.seed, **attributes)


class TrialJournal:
    """The journal of a study or race, in which every start of a run is a trial of Optuna.

    Args:
        folder: the study's folder, ``<runs>/studies/<name>``. Paths of runs are stored relative to ``<runs>``.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._folder, self._runs = folder, folder.parent.parent
        self._study: optuna.Study | None = None  # set when something is written
        self._open: dict[str, int] = {}  # key of a trial that has not ended -> its number in Optuna

    def read(self) -> list[Trial]:
        """Return the trials as they are now, in the order of their first start.

        A last line that a kill cut off is ignored.

        Raises:
            RunStoreError: the file cannot be read, another line is damaged, or an older version wrote it.
        """
        if (self._folder / OLD_FILE).exists():
            raise RunStoreError(
                f"{self._folder / OLD_FILE} is from an older version. Start again under another name, or start a study "
                "again with restart=True."
            )
        if not self.path.exists():
            return []
        trials: dict[str, Trial] = {}
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
            if lines and lines[-1].endswith(b"\n"):  # checked here, since Optuna ignores a damaged last line
                json.loads(lines[-1])
            storage = open_journal(self._folder)
            studies = {study.study_name: study._study_id for study in storage.get_all_studies()}
            stored = storage.get_all_trials(studies[_STUDY], deepcopy=False) if _STUDY in studies else []
            for one in stored:
                if _ATTRIBUTE in one.user_attrs:  # otherwise the process was killed before it wrote the trial
                    trial = self._trial(one.user_attrs[_ATTRIBUTE])
                    trials[trial.key] = trial
                    if not one.state.is_finished():
                        self._open[trial.key] = one._trial_id
        except OSError as error:
            raise store_error("read", self.path, error) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RunStoreError(
                f"{self.path} is damaged ({error!r}). Restore the file from a copy. Nothing was changed."
            ) from error
        return list(trials.values())

    def _trial(self, attributes: Mapping[str, Any]) -> Trial:
        curve = tuple((int(epoch), float(loss)) for epoch, loss in attributes["curve"])
        run = None if attributes["run"] is None else self._runs / attributes["run"]
        return Trial(**{**attributes, "curve": curve, "run": run, "notes": tuple(attributes["notes"])})

    def put(self, trial: Trial) -> None:
        """Record a trial as it is now.

        Raises:
            RunStoreError: the disk is full, or the folder cannot be written.
        """
        run = None if trial.run is None else str(self._relative(trial.run))
        attributes = json.loads(dumps(asdict(replace(trial, run=None)) | {"run": run}))
        try:
            if self._study is None:
                self._study = open_optuna_study(self._folder, _STUDY)
            storage = self._study._storage
            if trial.key not in self._open:
                self._open[trial.key] = storage.create_new_trial(self._study._study_id)
            number = self._open[trial.key]
            storage.set_trial_user_attr(number, _ATTRIBUTE, attributes)
            if trial.status != RUNNING:
                storage.set_trial_state_values(number, _STATES.get(trial.status, TrialState.FAIL))
                del self._open[trial.key]
        except OSError as error:
            raise store_error("write", self.path, error) from error

    def _relative(self, run: Path) -> Path:
        run, runs = run.resolve(), self._runs.resolve()
        return run.relative_to(runs) if run.is_relative_to(runs) else run


def open_journal(folder: Path) -> JournalStorage:
    """Open the journal of a study; it is created if it does not exist.

    The study's lock keeps other writers out. Optuna's own lock would stay behind after a kill.
    """
    no_lock: Any = SimpleNamespace(acquire=lambda: True, release=lambda: None)
    with quiet():
        return JournalStorage(JournalFileBackend(str(folder / FILE), lock_obj=no_lock))


def open_optuna_study(folder: Path, name: str, **settings: Any) -> optuna.Study:
    """Open an Optuna study in the journal for writing; the caller must hold the folder's lock.

    A last line without a newline is removed, since its writer was killed.

    Raises:
        OSError: the file cannot be changed.
    """
    file = folder / FILE
    if file.exists():
        content = file.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(file, content.rfind(b"\n") + 1)
    storage = open_journal(folder)
    with quiet():
        if name in optuna.get_all_study_names(storage):
            return optuna.load_study(study_name=name, storage=storage)
        return optuna.create_study(study_name=name, storage=storage, **settings)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's log lines and its warnings about experimental features."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


LOCK, WRITER = "lock", "writer.json"


@contextmanager
def one_writer(folder: Path, kind: str = "study") -> Iterator[None]:
    """Hold a folder for writing. The operating system releases it when the process ends, even by a kill.

    Args:
        folder: folder of a study or race.
        kind: ``study`` or ``race``.

    Raises:
        RunStoreError: another process, or another call in this one, writes to it; the message says which.
    """
    lock = filelock.FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout as error:
        raise RunStoreError(
            f"the {kind} {folder} is being written by {_writer(folder)}, and a {kind} has only one writer. Wait for it "
            f"or end it, give another name=, or read it meanwhile with lab.open({str(folder)!r})."
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
