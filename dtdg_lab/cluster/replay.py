"""Replaying a run from its records: requests, and outcomes of timing and races, at the same steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.event_history import EventHistory
from dtdg_lab.cluster.local import train_here
from dtdg_lab.cluster.run_start import FORKED, REPLAYS
from dtdg_lab.cluster.verification import store_verification
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.environment import describe_environment
from dtdg_lab.runs.stored_run import StoredRun, open_run

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session


def replay(
    run: str | Path | StoredRun | Run,
    *,
    session: Session | None = None,
    runs_dir: str | Path | None = None,
    progress: bool = False,
) -> StoredRun:
    """Replay a run with its live changes as a new run, and verify that it matches bit for bit.

    Every control request takes effect at its original step. Schedules and overlap chosen by measured times, refusals,
    sizes of batches from a controller, batches from reservoirs and averaging rounds are taken from the records. Nothing
    else is: caches decide again, and times differ. Several attempts are replayed as one timeline; a failed run up to
    its last record.

    The result is in ``environment["repeats"]`` of the returned run, and :func:`verify_replay` computes it again.

    Args:
        run: the folder or handle of a run that has ended.
        session: whose engines train it, as many as the run had ranks; by default this process, with ``ranks=1``.
        runs_dir: folder for the replay; by default the session's, or the first run's.
        progress: show a progress bar of epochs, in this process.

    Raises:
        ControlError: the run is active.
        ConfigError: it cannot be replayed, or not here; the message gives the reason.
        RunStoreError: there is no run, or it completed no step.
        LabError: the reason why the replay ended.
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
            f"run {directory.id} had ranks={config.ranks}, and a replay needs the same number: give "
            f"session=lab.Session(ranks={config.ranks})."
        )
    store_verification(repeated.path)
    return repeated


def start_replay(run: str | Path | StoredRun | Run, *, session: Session, runs_dir: str | Path | None = None) -> Run:
    """Replay on engines without waiting for the end: call :func:`store_verification` then.

    Raises:
        ControlError: the run, or another one, is active.
        ClusterError: there are fewer engines alive than it had ranks.
        ConfigError: it cannot be replayed; the message gives the reason.
        RunStoreError: there is no run, or it completed no step.
    """
    _, config, make = _prepared(run)
    return session.launch(config.ranks, make, runs_dir=runs_dir, config=config)


def _prepared(run: str | Path | StoredRun | Run) -> tuple[RunDirectory, RunConfig, Callable[..., RunDirectory]]:
    """Return the run's folder, the settings of its replay, and a function that creates the replay's folder."""
    directory = RunDirectory.open(run if isinstance(run, str | Path) else run.path)
    history = EventHistory(directory)
    history.check_repeatable()
    config = history.config
    return directory, config, partial(_create, history, config)


def _create(history: EventHistory, config: RunConfig, *, root: str | Path) -> RunDirectory:
    """Return the replay's folder; it stores a relative path to the first run, which reveals no home folder."""
    directory, environment = history.directory, history.directory.environment()
    path = os.path.relpath(directory.path.resolve(), Path(root).resolve() / "replay")
    facts: dict[str, Any] = {REPLAYS: {"run": directory.id, "path": path, "threads": history.threads}}
    begin = None
    if FORKED in environment:
        facts[FORKED], begin = environment[FORKED], directory.begin_file
    return RunDirectory.create(config, root=root, environment=describe_environment(config) | facts, begin=begin)
