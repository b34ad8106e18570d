"""The runner: measures the missing cells of experiments, best value first, and may be killed at any moment."""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from dtdg_lab.core.errors import ClusterError, ConfigError, LabError, RunStoreError, UnknownNameError
from dtdg_lab.core.system_errors import error_text
from dtdg_lab.core.units import format_seconds
from dtdg_lab.reproduction.cells import ExperimentCell, cells_of
from dtdg_lab.reproduction.experiment import TRAIN, Experiment
from dtdg_lab.reproduction.procedures import load_procedure
from dtdg_lab.reproduction.rows import MeasuredRow, locked, read_rows, write_rows
from dtdg_lab.reproduction.time_to_loss import NEAR
from dtdg_lab.reproduction.timing_lock import timing_lock, wait_until_idle
from dtdg_lab.reproduction.training import CellTrainer
from dtdg_lab.runs.environment import describe_environment

ENDS_ALL = (RunStoreError, ClusterError)  # errors that no cell causes


@dataclass(frozen=True, slots=True)
class Work:
    """The cells of an experiment that are measured, and those that are missing.

    Attributes:
        experiment: the experiment.
        cells: its cells, in the order in which they are measured.
        rows: its stored rows that belong to its cells and claims as they are now.
        device: ``cpu`` or ``cuda``.
        again: whether failed cells are missing.
    """

    experiment: Experiment
    cells: tuple[ExperimentCell, ...]
    rows: tuple[MeasuredRow, ...]
    device: str
    again: bool

    @property
    def missing(self) -> tuple[ExperimentCell, ...]:
        """The cells without a row."""
        measured = {row.key for row in self.rows}
        return tuple(cell for cell in self.cells if cell.key not in measured)

    def seconds_of(self, cell: ExperimentCell) -> float:
        """Return the expected seconds of a cell: the median of the rows that share most settings, or the guess."""
        if not self.rows:
            return self.experiment.cell_s
        shared = [sum(cell.labels[axis] == value for axis, value in row.labels.items()) for row in self.rows]
        return median(row.seconds for row, count in zip(self.rows, shared, strict=True) if count == max(shared))

    @property
    def seconds(self) -> float:
        """The expected seconds of all missing cells."""
        return sum(map(self.seconds_of, self.missing))

    @property
    def value(self) -> float:
        """Claims that it decides, per second."""
        return len(self.experiment.testable) / max(self.seconds, 1.0) if self.missing else 0.0


def list_work(experiments: Sequence[Experiment], device: str = "cpu", *, again: bool = False) -> list[Work]:
    """Return what each experiment still needs, core ones and then best value first; not those of other devices.

    Args:
        experiments: the experiments.
        device: ``cpu`` or ``cuda``.
        again: whether failed cells are missing.

    Raises:
        ConfigError: an experiment's settings are invalid.
        RunStoreError: stored rows are damaged.
    """
    works = []
    for experiment in experiments:
        if device not in experiment.devices:
            continue
        cells = _cells(experiment, device)
        keys = {cell.key for cell in cells}
        rules = {*_rules(experiment)}
        stored = [row for row in read_rows(experiment.rows_file) if row.key in keys and rules <= {*row.rules}]
        rows = [row for row in stored if not (again and row.failed)]
        works.append(Work(experiment, tuple(cells), tuple(rows), device, again))
    return sorted(works, key=lambda work: (not work.experiment.core, -work.value))


def _rules(experiment: Experiment) -> list[str]:
    return sorted(experiment.rule_digest(claim) for claim in experiment.testable)


def _cells(experiment: Experiment, device: str) -> list[ExperimentCell]:
    try:
        return cells_of(experiment, device)
    except ConfigError as error:
        raise ConfigError(f"{experiment.id}: {error}") from error


def run_experiments(
    works: Sequence[Work], *, hours: float | None = None, say: Callable[[str], None] = lambda line: None
) -> int:
    """Measure the missing cells, and return their number. Each row is stored before the next cell starts.

    Args:
        works: what is missing, in this order.
        hours: no cell starts that would probably end later; None for no limit.
        say: receives a line for every cell, and for every wait.

    Raises:
        ConfigError: the checkout has uncommitted changes or another commit than at the start, so that rows could not
            say which code ran.
        UnknownNameError: a claim compares a value that a measured cell of a function lacks.
        ClusterError: another process measures on this machine, or it is too busy for a timed cell.
        RunStoreError: rows cannot be written.
    """
    commit = clean_commit()
    deadline_s = math.inf if hours is None else time.monotonic() + 3600 * hours
    count = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dtdg-lab-reproduce-")))
        trainer = stack.enter_context(CellTrainer(folder))
        for listed in works:
            with locked(listed.experiment.file, wait=False) as is_alone:
                if is_alone:
                    # another process may have measured cells since they were listed
                    (work,) = list_work([listed.experiment], listed.device, again=listed.again)
                    count += _run_work(work, trainer, commit, deadline_s=deadline_s, hours=hours, say=say)
                elif listed.missing:
                    say(f"{listed.experiment.id}: left out, since another process measures it in this checkout")
    return count


def _run_work(
    planned: Work,
    trainer: CellTrainer,
    commit: str,
    *,
    deadline_s: float,
    hours: float | None,
    say: Callable[[str], None],
) -> int:
    """Measure the missing cells of an experiment until the deadline, and return their number."""
    work, measured = planned, {row.key: row for row in planned.rows}
    for cell in planned.cells:
        if cell.key in measured:
            _check_values(work.experiment, cell, measured[cell.key])
    for cell in planned.missing:
        if time.monotonic() + work.seconds_of(cell) > deadline_s:
            say(
                f"{work.experiment.id}: {cell} does not fit into the rest of {hours:g} hours. The same command "
                "continues there."
            )
            break
        if (commit_now := clean_commit()) != commit:
            raise ConfigError(
                f"the checkout went from commit {commit} to {commit_now} while it was measured, so rows could "
                "not say what ran. Measure in a checkout of its own: git worktree add ../measure."
            )
        row = _measure(work, cell, trainer, commit, say)
        work = replace(work, rows=(*work.rows, row))
        _store(work, row)
        say(f"{work.experiment.id}: {cell}: {row.failed or format_seconds(row.seconds)}")
        _check_values(work.experiment, cell, row)
    return len(work.rows) - len(planned.rows)


def _check_values(experiment: Experiment, cell: ExperimentCell, row: MeasuredRow) -> None:
    """Raise an error if a claim compares a value that a cell of a function lacks, such as a misspelt one."""
    for claim in experiment.testable:
        is_compared = cell.matches(claim.where) and any(map(cell.matches, (claim.ours, claim.rival or claim.ours)))
        if is_compared and not row.failed and claim.value not in (*NEAR, *row.values):
            advice = f"Claim {claim.name!r} of {experiment.file} compares it: correct it there."
            raise UnknownNameError("value of a cell", claim.value, (*NEAR, *row.values), advice)


def _measure(
    work: Work, cell: ExperimentCell, trainer: CellTrainer, commit: str, say: Callable[[str], None]
) -> MeasuredRow:
    experiment, busy = work.experiment, None
    procedure = None if experiment.procedure == TRAIN else load_procedure(experiment)

    def waiting(reason: str) -> None:
        say(f"{experiment.id}: {reason}")

    with timing_lock(timed=experiment.timed, waiting=waiting):
        if experiment.timed:
            busy = round(wait_until_idle(waiting=waiting), 3)
        started_s = time.monotonic()
        values: dict[str, Any] = {}
        curve: tuple[tuple[float, float | None, float], ...] = ()
        failed = ""
        try:
            if procedure is not None:
                values = dict(procedure(cell.settings, cell.seed))
                curve = tuple(values.pop("curve", ()))
            else:
                assert cell.config is not None  # of a training
                trained = trainer.train(experiment, cell.config)
                values, curve = dict(trained.values), trained.curve
        except ENDS_ALL:
            raise
        except (LabError, MemoryError) as error:  # this cell's own, which its row says
            failed = error_text(error)
        seconds = round(time.monotonic() - started_s, 2)
    environment = describe_environment()
    return MeasuredRow(
        key=cell.key,
        labels=dict(cell.labels),
        seed=cell.seed,
        values=values,
        seconds=seconds,
        rules=tuple(_rules(experiment)),
        commit=commit,
        date=date.today().isoformat(),
        device=work.device,
        machine={
            "cpu": environment["cpu"]["model"],
            "cores": environment["cpu"]["usable"],
            "memory_gib": round(environment["memory_bytes"] / 2**30),
            "gpus": [gpu["name"] for gpu in environment["gpus"] or ()],
            "torch": environment["versions"].get("torch"),
        },
        curve=curve,
        failed=failed,
        busy=busy,
    )


def _store(work: Work, row: MeasuredRow) -> None:
    """Write a row in place of the cell's former one; rows of cells that no longer exist are left out."""
    keys = {cell.key for cell in work.cells}
    work.experiment.rows_file.parent.mkdir(exist_ok=True)
    with locked(work.experiment.rows_file.parent):  # another runner may store rows of other cells
        others = [
            stored
            for stored in read_rows(work.experiment.rows_file)
            if stored.device != work.device or (stored.key in keys and stored.key != row.key)
        ]
        write_rows(work.experiment.rows_file, [*others, row])


def clean_commit() -> str:
    """Return the commit of this checkout, which is what runs.

    Raises:
        ConfigError: the package is not in a checkout, or files differ from the commit.
    """
    checkout = Path(__file__).resolve().parents[2]
    git = ["git", "-C", str(checkout)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run(
            [*git, "status", "--porcelain", "--", ".", ":!reproduce/*/results", ":!reproduce/*/results/*"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            f"{checkout} is no git checkout, so rows could not say which commit ran. Clone it."
        ) from error
    if changed := status.stdout.splitlines():
        raise ConfigError(
            f"{len(changed)} files differ from the last commit, such as {changed[0][3:]}, so rows could not say what "
            "ran, or by which rule. Commit or stash them."
        )
    return commit.stdout.strip()
