"""Replay of a run from its records, and verification that both are equal bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.event_history import EventHistory
from dtdg_lab.cluster.local import train_here
from dtdg_lab.cluster.run_start import FORKED, REPLAYS, repeated_by
from dtdg_lab.config.extensions import code_changes
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.records.events import Ended
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.environment import describe_environment
from dtdg_lab.runs.stored_run import StoredRun, open_run

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session


if TYPE_CHECKING:
    pass


STEP = ("epoch", "iteration", "loss", "global_loss")


SCORES = ("loss", "persistence_loss", "mean_loss", "snapshots", "metrics")


Facts = dict[tuple[int, Any], tuple[Any, ...]]  # (step, rank or split) -> values to compare


@dataclass(frozen=True, slots=True)
class ReplayVerification:
    """The result of comparing a replay with its run.

    Attributes:
        run: name of the replay.
        of: name of the replayed run.
        steps: number of compared steps, over all ranks.
        evaluations: number of compared evaluations, over splits.
        first_difference: first step with a different loss or evaluation, if any.
        parameters: True if the final parameters are equal; None if either run did not record them.
        caption: the result as text.
    """

    run: str
    of: str
    steps: int
    evaluations: int
    first_difference: int | None
    parameters: bool | None
    caption: str

    def __bool__(self) -> bool:
        """Return True if nothing differs."""
        return self.first_difference is None and self.parameters is not False

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {"bit_for_bit": bool(self), **asdict(self)}


def verify_replay(run: str | Path | StoredRun) -> ReplayVerification:
    """Compare a replay with its run: all losses, all evaluations, and the final parameters.

    Raises:
        ConfigError: the run is not a replay.
        RunStoreError: either folder is missing.
        DataError: a record line is damaged.
    """
    directory = RunDirectory.open(run if isinstance(run, str | Path) else run.path)
    first, repeat = EventHistory(repeated_by(directory)), EventHistory(directory)
    steps, evaluations = (_steps(first), _steps(repeat)), (_evaluations(first), _evaluations(repeat))
    failed = (
        first.directory.status()["state"] == "failed"
    )  # some ranks recorded more than others, and none recorded an end
    differing = [step for pair in (steps, evaluations) for step in _differing(*pair, part=failed)]
    prints = _parameters(first), _parameters(repeat)
    parameters = None if None in prints else prints[0] == prints[1]
    step = min(differing, default=None)
    caption = _words(first, repeat, step, parameters)
    return ReplayVerification(
        directory.id, first.directory.id, len(steps[0]), len(evaluations[0]), step, parameters, caption
    )


def _steps(history: EventHistory) -> Facts:
    return {
        (row["step"], rank): tuple(row[name] for name in STEP)
        for rank in history.directory.record_files()
        for row in history.rows("steps", rank)
    }


def _evaluations(history: EventHistory) -> Facts:
    """Return the evaluations of the timeline."""
    facts: Facts = {}
    for row in history.evaluations():
        facts[row["step"], row["split"]] = tuple(row[name] for name in SCORES)
    return facts


def _differing(first: Facts, second: Facts, *, part: bool) -> list[int]:
    """Return the steps at which they differ; with ``part``, only steps of the first one."""
    keys = first.keys() if part else first.keys() | second.keys()
    return [key[0] for key in keys if first.get(key) != second.get(key)]


def _parameters(history: EventHistory) -> str | None:
    ended = history.events(Ended)
    return ended[-1].event.parameters if ended else None


def _words(first: EventHistory, repeat: EventHistory, step: int | None, parameters: bool | None) -> str:
    ids = f"run {repeat.directory.id} replays run {first.directory.id}"
    if step is None and parameters is not False:
        end = (
            "." if parameters else "; the last parameters are not compared, because the first run did not record them."
        )
        return f"{ids} bit for bit: every loss and every evaluation is equal" + (
            ", and so are the last parameters." if parameters else end
        )
    position = "in its last parameters" if step is None else f"from step {step} on"
    causes = causes_of(first.directory, repeat.directory)
    return f"{ids}, but not bit for bit: it differs {position}. {causes}"


def causes_of(first: RunDirectory, repeat: RunDirectory) -> str:
    """Return a sentence on why a run and its replay may differ."""
    former, present = first.environment(), repeat.environment()
    hashes = [facts.get("data", {}).get("sha256") for facts in (former, present)]
    if hashes[0] != hashes[1]:
        return "Their data differ: restore the data set of the first run."
    if changes := code_changes(first.extensions(), repeat.extensions()):
        return (
            f"This is expected, as {'; '.join(changes)}: register the code as the first run had it, and replay again."
        )
    differences = [
        name for name in ("versions", "python", "cpu", "gpus", "git") if former.get(name) != present.get(name)
    ]
    if differences:
        return f"Their environments differ in {', '.join(differences)}: the order of sums may differ."
    return "Their data and environments are equal: GPU sums may not be reproducible; on a CPU, please report it."


def store_verification(path: str | Path) -> ReplayVerification:
    """Compare a finished replay with its run, and store the result in its environment.

    Args:
        path: folder of the replay.

    Raises:
        ConfigError: the run is not a replay.
        RunStoreError: either folder is missing.
        DataError: a record line is damaged.
    """
    verification = verify_replay(path)
    RunDirectory.open(path).add_environment(repeats=verification.to_dict())
    return verification


def replay(
    run: str | Path | StoredRun | Run,
    *,
    session: Session | None = None,
    runs_dir: str | Path | None = None,
    progress: bool = False,
) -> StoredRun:
    """Replay a run with its live changes as a new run, and verify that both are equal bit for bit.

    Every control request takes effect at its original step. Also taken from the records: schedules and overlap chosen
    by measured times, refusals, batch sizes of a controller, batches from reservoirs, and averaging rounds. Everything
    else is computed again: caches decide again, and times differ. Several attempts are replayed as one timeline, and a
    failed run up to its last record.

    The result is in ``environment["repeats"]`` of the returned run, and :func:`verify_replay` computes it again.

    Args:
        run: folder or handle of an ended run.
        session: session whose engines train it, as many as the run had ranks; by default this process, with
            ``ranks=1``.
        runs_dir: folder for the replay; by default the session's, or the first run's.
        progress: show a progress bar of epochs, in this process.

    Raises:
        ControlError: the run is active.
        ConfigError: the run cannot be replayed, or not in this process; the message gives the reason.
        RunStoreError: there is no run, or it completed no step.
        LabError: the reason why the replay failed.
    """
    directory, config, make = _prepared(run)
    if session is not None:
        repeated = open_run(session.launch(config.ranks, make, runs_dir=runs_dir, config=config).wait().path)
    elif config.ranks == 1:
        repeated = train_here(
            config, runs_dir=runs_dir or directory.path.resolve().parent, progress=progress, make=make
        )
    else:
        raise ConfigError(
            f"run {directory.id} had ranks={config.ranks}, and a replay needs the same number. Give "
            f"session=lab.Session(ranks={config.ranks})."
        )
    store_verification(repeated.path)
    return repeated


def start_replay(run: str | Path | StoredRun | Run, *, session: Session, runs_dir: str | Path | None = None) -> Run:
    """Start a replay on engines and return at once; call :func:`store_verification` when it has ended.

    Raises:
        ControlError: the run, or another one, is active.
        ClusterError: fewer engines are alive than the run had ranks.
        ConfigError: the run cannot be replayed; the message gives the reason.
        RunStoreError: there is no run, or it completed no step.
    """
    _, config, make = _prepared(run)
    return session.launch(config.ranks, make, runs_dir=runs_dir, config=config)


def _prepared(run: str | Path | StoredRun | Run) -> tuple[RunDirectory, RunConfig, Callable[..., RunDirectory]]:
    """Return the run's folder, the settings of its replay, and a function that creates the replay's folder."""
    directory = RunDirectory.open(run if isinstance(run, str | Path) else run.path)
    RunConfig.load(directory.config_file)  # refuses settings that no longer exist
    history = EventHistory(directory)
    history.check_repeatable()
    config = history.config
    return directory, config, partial(_create, history, config)


def _create(history: EventHistory, config: RunConfig, *, root: str | Path) -> RunDirectory:
    """Create the replay's folder; it stores a relative path to the run, which reveals no home folder."""
    directory, environment = history.directory, history.directory.environment()
    path = os.path.relpath(directory.path.resolve(), Path(root).resolve() / "replay")
    facts: dict[str, Any] = {REPLAYS: {"run": directory.id, "path": path, "threads": history.threads}}
    begin = None
    if FORKED in environment:
        facts[FORKED], begin = environment[FORKED], directory.begin_file
    return RunDirectory.create(config, root=root, environment=describe_environment(config) | facts, begin=begin)
