"""The procedure ``train``: a run of the lab as one cell of an experiment."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dtdg_lab.cluster.one_run import run_config
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.reproduction.experiment import Experiment
from dtdg_lab.reproduction.time_to_loss import NEAR
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.studies.objective import finite_number, values_of
from dtdg_lab.studies.race_plan import StopRule
from dtdg_lab.visualization.runs.curves import joules_until

T = TypeVar("T")
ALWAYS = (  # kept of every training
    "test_loss",
    "best_validation_loss",
    "persistence_loss",
    "validation_persistence_loss",
    "mean_loss",
    "epochs",
    "steps",
    "total_time_s",
)


@dataclass(frozen=True, slots=True)
class TrainedCell:
    """The result of a training.

    Attributes:
        values: numbers of its summary.
        curve: (seconds of steps, joules, validation loss) of every evaluation; joules, which include evaluations, are
            None if they are unknown.
    """

    values: Mapping[str, Any]
    curve: tuple[tuple[float, float | None, float], ...]


class CellTrainer:
    """Trains cells on engines that are started when they are needed and shared by cells with the same ranks.

    Args:
        folder: folder for runs; each is removed when its numbers are known.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = ExitStack()
        self._session: Session | None = None

    def __enter__(self) -> CellTrainer:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def train(self, experiment: Experiment, config: RunConfig) -> TrainedCell:
        """Train a config to its end, or to the end by the experiment's rule, and return its numbers.

        Raises:
            LabError: the run failed or cannot be started.
        """
        names = [*experiment.values, *(claim.value for claim in experiment.testable if claim.value not in NEAR)]
        return self.train_config(config, names=names, stop=experiment.stop)

    def train_config(self, config: RunConfig, *, names: Sequence[str] = (), stop: Mapping[str, Any]) -> TrainedCell:
        """Train a config; for functions that make its data first.

        Args:
            config: the config.
            names: further numbers of the summary.
            stop: fields of a StopRule; empty for all epochs.

        Raises:
            LabError: the run failed or cannot be started.
        """
        return self.read_run(config, lambda run: TrainedCell(_numbers(run, [*ALWAYS, *names]), _curve(run)), stop=stop)

    def read_run(self, config: RunConfig, read: Callable[[StoredRun], T], *, stop: Mapping[str, Any]) -> T:
        """Train a config, and return what ``read`` makes of the ended run; for numbers that no summary has.

        Args:
            config: the config.
            read: receives the run before its folder is removed.
            stop: fields of a StopRule; empty for all epochs.

        Raises:
            LabError: the run failed or cannot be started.
        """
        rule = StopRule(**stop) if stop else None
        if rule is not None and rule.epochs is not None:
            config = config.replace(epochs=rule.epochs)
        outcome = run_config(
            config,
            session=self._session_for(config.ranks),
            runs_dir=self._folder,
            judge=None if rule is None else rule.verdict,
        )
        result = read(outcome.run)
        shutil.rmtree(outcome.run.path)
        return result

    def _session_for(self, ranks: int) -> Session | None:
        if self._session is not None and self._session.ranks != ranks:
            self._open.close()
            self._session = None
        if ranks > 1 and self._session is None:
            self._session = self._open.enter_context(Session(ranks=ranks, runs_dir=self._folder))
        if self._session is not None and not self._session.ready:
            self._session.repair()  # an engine died during the previous run
        return self._session


def _numbers(run: StoredRun, names: list[str]) -> dict[str, Any]:
    """Return numbers of a run by name; ``phase_time_s.compute`` is an entry of the number ``phase_time_s``."""
    flat = dict(_flattened(values_of(run)))
    return {name: finite_number(flat.get(name)) for name in dict.fromkeys(names)}


def _flattened(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", entry) for inner, entry in value.items())
        else:
            yield name, value


def _curve(run: StoredRun) -> tuple[tuple[float, float | None, float], ...]:
    """Return the points of a run's curve. Seconds are of steps, on the slowest rank of each epoch as in total_time_s.

    Evaluations take a share of the time that differs by system, and papers report seconds without them.
    """
    evaluations, steps = run.table("evaluations"), run.table("steps")
    validations = evaluations[evaluations["split"] == "validation"].to_dict("records")
    # an epoch of a rank may have no step, where ranks average models: two evaluations are of one step then
    by_epoch = {int(row["epoch"]): row for row in validations if finite_number(row["loss"]) is not None}
    rows = [by_epoch[epoch] for epoch in sorted(by_epoch)]
    spent_s = steps.groupby(["epoch", "rank"])["time_s"].sum().groupby("epoch").max().cumsum()
    seconds = [float(spent_s[spent_s.index < row["epoch"]].iloc[-1]) for row in rows]
    joules = joules_until(run.live, [row["attempt"] for row in rows], [row["time_ns"] for row in rows])
    known = [None] * len(rows) if joules is None else joules.tolist()
    return tuple(
        (float(f"{second:.6g}"), None if joule is None else float(f"{joule:.6g}"), float(row["loss"]))
        for second, joule, row in zip(seconds, known, rows, strict=True)
    )
