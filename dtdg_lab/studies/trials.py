"""Trials of studies and races on disk: an append-only file with a line for every change of a trial."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.core.rng import key
from dtdg_lab.runs.json_files import dumps, store_error
from dtdg_lab.studies.sweep import Cell, ChoiceAxis, Drawn, Sweep

FILE = "trials.jsonl"
WAITING, RUNNING, FINISHED, PRUNED = "waiting", "running", "finished", "pruned"
FAILED, INTERRUPTED, REFUSED = "failed", "interrupted", "refused"
OVER = (FINISHED, PRUNED, REFUSED)  # these are not run again


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a study or race, planned or executed.

    Attributes:
        key: identifies it.
        number: of its combination of settings, from 0.
        settings: its values along the studied axes.
        seed: of its run.
        status: waiting, running, finished, pruned, failed, interrupted, or, in a search, refused: invalid settings.
        reason: why it ended early or failed.
        run: folder of its run, if it has one.
        values: numbers of its run; see ``runs.summary.SUMMARY_MEANINGS``.
        provenance: protocol, purge gap and data of its run; see ``runs.provenance``.
        curve: (epochs done, loss) of every evaluation of the validation split.
        seconds: its duration.
        notes: other events, as text.
        asked_ns: time of its last start, nanoseconds since 1970; 0 before the first.
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


def planned(cell: Cell, **known: Any) -> Trial:
    """The trial of a cell of a grid, with what is known of it."""
    return Trial(cell.key, cell.number, cell.settings, cell.seed, **known)


class TrialLog:
    """The file of the trials of a study or race: a line with the whole trial whenever it changes.

    Args:
        folder: of the study, ``<runs>/studies/<name>``: run paths are stored relative to ``<runs>``.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._runs = folder.parent.parent

    def read(self) -> list[Trial]:
        """The trials in their current state, in the order of their first start.

        A last line that was truncated by a kill is ignored.

        Raises:
            RunStoreError: the file cannot be read, or another line is damaged.
        """
        try:
            raw = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise store_error("read", self.path, error) from error
        found: dict[str, Trial] = {}
        whole = raw[: raw.rfind(b"\n") + 1]  # a truncated last line is ignored, and overwritten by the next line
        for number, each in enumerate(whole.splitlines(), start=1):
            try:
                trial = self._trial(json.loads(each))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise RunStoreError(
                    f"line {number} of {self.path} is damaged ({error}). Restore the file from a copy, or remove that "
                    "line: its trial then has the state before. Nothing was changed."
                ) from error
            found[trial.key] = trial
        return list(found.values())

    def _trial(self, line: Any) -> Trial:
        if not isinstance(line, dict):
            raise ValueError("it is not an object")
        if "event" in line:
            raise ValueError("an older version wrote it: give restart=True to restart the study")
        if line.keys() != {each.name for each in fields(Trial)} or not isinstance(line["key"], str):
            raise ValueError("its entries are not those of a trial")
        curve = tuple((int(epoch), float(loss)) for epoch, loss in line["curve"])
        run = None if line["run"] is None else self._runs / line["run"]
        return Trial(**{**line, "curve": curve, "run": run, "notes": tuple(line["notes"])})

    def put(self, trial: Trial) -> None:
        """Add the trial in its present state.

        Raises:
            RunStoreError: the disk is full, or the folder cannot be written.
        """
        line = line_of(trial if trial.run is None else replace(trial, run=self._relative(trial.run))) + "\n"
        try:
            with self.path.open("ab") as file:
                drop_torn_end(self.path)
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise store_error("write", self.path, error) from error

    def _relative(self, run: Path) -> Path:
        run, runs = run.resolve(), self._runs.resolve()
        return run.relative_to(runs) if run.is_relative_to(runs) else run


def line_of(trial: Trial) -> str:
    """The line of a trial in the log."""
    return dumps(asdict(trial) | {"run": None if trial.run is None else str(trial.run)})


def drop_torn_end(path: Path) -> None:
    """Remove a last line that has no newline: its writer was killed.

    Raises:
        OSError: the file cannot be changed.
    """
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return
        file.seek(size - 1)
        if file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


# A search by Optuna, whose journal lies in the study's folder; draws depend only on earlier trials.


JOURNAL, NAME = "optuna.journal", "study"
_STREAM = "studies/search"
BETTER = 0.5  # share of the trials


class OptunaSearch:
    """Draws combinations of a sweep's space, one after another, and records their results.

    Every draw has its own seed, derived from the sweep's seed and the trial's number: an interrupted search draws
    the same as an uninterrupted one. Only the holder of the study's lock may create one.
    """

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        import optuna

        self._sweep = sweep
        if (folder / JOURNAL).exists():
            drop_torn_end(folder / JOURNAL)
        with quiet():
            self._study = optuna.create_study(
                storage=_storage(folder), study_name=NAME, direction=_direction(sweep), load_if_exists=True
            )
        self._distributions = {name: _distribution(drawn) for name, drawn in sweep.space.items()}

    def ask(self, number: int) -> dict[str, Any]:
        """The settings of a combination; the same again for a repeated call."""
        import optuna

        trials = self._study.get_trials(deepcopy=False)
        if number < len(trials):
            return dict(trials[number].params)
        seed = key(self._sweep.all_seeds[0], _STREAM, number) % 2**32
        makers: dict[str, Any] = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        self._study.sampler = makers[self._sweep.sampler](seed=seed)
        with quiet():
            return dict(self._study.ask(self._distributions).params)

    def report(self, number: int, value: float | None) -> None:
        """Record the result of a combination; None if it has no number. A second result for it is ignored."""
        import optuna

        failed = optuna.trial.TrialState.FAIL
        with quiet():
            if self._study.get_trials(deepcopy=False)[number].state.is_finished():
                return
            if value is None:
                self._study.tell(number, state=failed)
            else:
                self._study.tell(number, value)


def _storage(folder: Path) -> Any:
    """Optuna's journal of a study; the study's lock excludes other writers, Optuna's own would remain after a kill."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    with quiet():
        no_lock: Any = SimpleNamespace(acquire=lambda: True, release=lambda: None)
        return JournalStorage(JournalFileBackend(str(folder / JOURNAL), lock_obj=no_lock))


def importance(folder: Path, sweep: Sweep) -> Mapping[str, float]:
    """Optuna's importance of each setting, by PED-ANOVA: how strongly it decides whether a trial is in the better half.

    Optuna's default is the best tenth, which is too few for some dozens of trials. Empty if there are not enough.

    References: Watanabe et al. 2023, PED-ANOVA.
    """
    import optuna

    if not (folder / JOURNAL).exists():
        return {}
    with quiet():  # a copy of the journal in memory: a reader writes nothing
        stored = optuna.load_study(study_name=NAME, storage=_storage(folder))
        study = optuna.create_study(direction=_direction(sweep))
        study.add_trials(stored.get_trials(states=(optuna.trial.TrialState.COMPLETE,)))
    values = [trial.value for trial in study.get_trials(states=(optuna.trial.TrialState.COMPLETE,))]
    if len(set(values)) < 4:
        return {}
    with quiet():
        found = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BETTER)
        )
    return {str(name): float(share) for name, share in found.items()}


def _direction(sweep: Sweep) -> Literal["minimize", "maximize"]:
    return "minimize" if sweep.goal == "min" else "maximize"


def _distribution(drawn: Drawn) -> Any:
    from optuna import distributions

    if isinstance(drawn, ChoiceAxis):
        return distributions.CategoricalDistribution(drawn.values)
    low, high = drawn.ends()
    if drawn.kind == "integer":
        return distributions.IntDistribution(int(low), int(high), step=drawn.step)
    return distributions.FloatDistribution(low, high, log=drawn.kind == "log_uniform")


@contextmanager
def quiet() -> Iterator[None]:
    """Silences Optuna's log lines per trial and its warnings about experimental features."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
