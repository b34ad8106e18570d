"""Repeating a run from its records: what was asked of it, and what clocks and races decided, at the same steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.beginning import FORKED, REPLAYS
from dtdg_lab.cluster.local import train_here
from dtdg_lab.cluster.repeats import Repeated, repeats
from dtdg_lab.cluster.story import Story
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.environment import describe_environment
from dtdg_lab.runs.open import StoredRun, open_run

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
    """Repeat a run that was steered, as a run of its own, and see whether it did the same bit for bit.

    Every control request takes effect at the step where it did; schedules made from measured times, refusals, sizes of
    batches that an adjuster chose, batches out of reservoirs and rounds of averaging are taken from the records. What
    changes no loss is left to this run: features come from caches as these now decide, and times are its own. Several
    attempts are repeated as the one timeline they make, of a run that failed as much as it recorded.

    What was found is in ``environment["repeats"]`` of the run that comes back, and :func:`repeats` finds it again.

    Args:
        run: the folder or handle of a run that has ended.
        session: whose engines train it, as many as the run had ranks; this process where not given, with ``ranks=1``.
        runs_dir: folder that holds the replay; the session's, or the first run's, where not given.
        progress: show a bar of epochs, in this process.

    Raises:
        ControlError: the run is under way.
        ConfigError: it cannot be repeated, or not here; the message says what is missing.
        RunStoreError: there is no run, or it made no step.
        LabError: what ended the replay.
    """
    if session is not None:
        repeated = open_run(start_replay(run, session=session, runs_dir=runs_dir).wait().path)
        tell_repeats(repeated.path)
        return repeated
    directory, config, make = _prepared(run)
    if config.ranks != 1:
        raise ConfigError(
            f"run {directory.id} had ranks={config.ranks}, and sums of as many ranks are repeated by as many: give "
            f"session=lab.Session(ranks={config.ranks})."
        )
    where = runs_dir or directory.path.resolve().parent
    repeated = train_here(config, runs_dir=where, progress=progress, make=make)
    tell_repeats(repeated.path)
    return repeated


def start_replay(
    run: str | Path | StoredRun | Run, *, session: Session, runs_dir: str | Path | None = None
) -> Run:  # fmt: skip
    """As :func:`replay` on engines, without waiting for its end: :func:`tell_repeats` is to be called then.

    Raises:
        ControlError: the run, or another one, is under way.
        ClusterError: there are fewer engines alive than it had ranks.
        ConfigError: it cannot be repeated; the message says what is missing.
        RunStoreError: there is no run, or it made no step.
    """
    _, config, make = _prepared(run)
    return session.launch(config.ranks, make, runs_dir=runs_dir)


def tell_repeats(path: str | Path) -> Repeated:
    """Compare a replay that has ended with its run, and keep what was found in its environment.

    Args:
        path: the folder of the replay.

    Raises:
        ConfigError: it is no replay.
        RunStoreError: either folder is gone.
        DataError: a record line is damaged.
    """
    found = repeats(path)
    RunDirectory.open(path).add_environment(repeats=found.told())
    return found


def _prepared(run: str | Path | StoredRun | Run) -> tuple[RunDirectory, RunConfig, Callable[..., RunDirectory]]:
    """The run's folder, the settings of its replay, and what makes the replay's folder."""
    directory = RunDirectory.open(run if isinstance(run, str | Path) else run.path)
    story = Story(directory)
    story.check_repeatable()
    config = story.config
    return directory, config, partial(_made, story, config)


def _made(story: Story, config: RunConfig, *, root: str | Path) -> RunDirectory:
    """The replay's folder; it says by a relative path, which names nobody's home, where the first run is."""
    directory, environment = story.directory, story.directory.environment()
    path = os.path.relpath(directory.path.resolve(), Path(root).resolve() / "replay")
    told: dict[str, Any] = {REPLAYS: {"run": directory.id, "path": path, "threads": story.threads}}
    begin = None
    if FORKED in environment:
        told[FORKED], begin = environment[FORKED], directory.begin_file
    return RunDirectory.create(config, root=root, environment=describe_environment(config) | told, begin=begin)
