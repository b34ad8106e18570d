"""Replaying a run from its records: requests, and outcomes of timing and races, at the same steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.event_history import EventHistory
from dtdg_lab.cluster.local import train_here
from dtdg_lab.cluster.worker import FORKED, REPLAYS, repeated_by
from dtdg_lab.config.extensions import code_changes
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.records.events import Ended
from dtdg_lab.runs.checkpoints import LAST, Kept, read_kept
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.environment import describe_environment
from dtdg_lab.runs.run import StoredRun, open_run

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session


# Forking: a new run that starts from a checkpoint of another one, under other settings or the same.


FROZEN = ("dataset", "model", "hidden", "layers", "protocol", "task", "link_head")  # and all of data and models
WITHIN_EPOCH = ("epochs", "evaluate_every", "keep_every", "checkpoint_every_s", "threads", "device", "optimizer")


def fork(
    run: str | Path | StoredRun | Run,
    at: str | int = LAST,
    *,
    session: Session | None = None,
    runs_dir: str | Path | None = None,
    progress: bool = False,
    **changes: Any,
) -> StoredRun | Run:
    """Continue training from a checkpoint of a run, as a new run; the first run and its folder stay unchanged.

    The fork has the settings of the checkpoint, with ``changes``: any that its parameters fit, such as
    another system, partitioner, learning rate or number of partitions. Without relevant changes it continues like the
    first run: all later losses are equal, bit for bit on a CPU, except for systems with model averaging, which
    depends on timing. Steps are numbered on, and its environment and an event name its origin. If the first
    run had completed all its epochs and ``epochs`` is not given, the fork trains as many again.

    Args:
        run: the folder or handle of a run; it may be active.
        at: ``"last"``; the name of a stored checkpoint (``epoch-00012``, ``step-00345``); or a number of epochs.
        session: whose engines train it; a handle is returned at once. By default this process, with
            ``ranks=1``.
        runs_dir: folder for the fork; by default the session's, or the first run's.
        progress: show a progress bar of epochs, in this process.
        changes: settings that differ from there on. Within an epoch, only those that keep the epoch's plan.

    Raises:
        ConfigError: there is no such checkpoint, a change is not possible from there, or no epoch is left to train.
        RunStoreError: there is no run, or the checkpoint cannot be read.
        LabError: the reason why the fork ended, if it trains in this process.
    """
    directory = RunDirectory.open(run if isinstance(run, str | Path) else run.path)
    kept = checkpoint_at(directory, at)
    config = branched_config(directory, kept, changes)
    make = partial(RunDirectory.create, config, environment=_environment(directory, kept, config), begin=kept.path)
    if session is not None:
        return session.launch(config.ranks, make, runs_dir=runs_dir, config=config)
    if config.ranks != 1:
        raise ConfigError(
            f"the run has ranks={config.ranks}, and this is one process: give session=lab.Session(ranks="
            f"{config.ranks}), or ranks=1, which keeps the plan but not bit-identical results."
        )
    return train_here(config, runs_dir=runs_dir or directory.path.resolve().parent, progress=progress, make=make)


def checkpoint_at(directory: RunDirectory, at: str | int) -> Kept:
    """The checkpoint of a run with a name or after a number of epochs.

    Raises:
        ConfigError: there is none.
        RunStoreError: it cannot be read.
    """
    if isinstance(at, str):
        name = at.removesuffix(".pt")
        path = directory.checkpoint_file.parent / f"{name}.pt"
        if "/" not in name and "\\" not in name and path.is_file():
            return read_kept(path)
    found = directory.checkpoints
    if isinstance(at, int):
        for kept in found:
            if (kept.epoch, kept.iteration) == (at, 0):
                return kept
    names = ", ".join(f"{kept.name} (epoch {kept.epoch}, step {kept.step})" for kept in found) or "none"
    nearest = _nearest(found, at) if isinstance(at, int) else ""
    raise ConfigError(
        f"at={at!r}: run {directory.id} has no such checkpoint; it has {names}.{nearest} Set keep_every to save one "
        "after some epochs, or call run.save_checkpoint()."
    )


def branched_config(directory: RunDirectory, kept: Kept, changes: dict[str, Any]) -> RunConfig:
    """The settings of a fork.

    Raises:
        ConfigError: the changes are not possible from there, or no epoch is left.
    """
    for name in changes:
        if name in FROZEN or (name in OPTIONS and OPTIONS[name].owner in ("datasets", "models")):
            raise ConfigError(
                f"{name!r} cannot change in a fork: its parameters were trained with "
                f"{name}={kept.config[name]!r}, and do not fit other settings (or would be tested on training data). "
                f"Train a new run: config.replace({name}=...)."
            )
    if "generated_snapshots" in kept.config.flat and changes.get("seed", kept.config.seed) != kept.config.seed:
        raise ConfigError(
            f"'seed' cannot change in a fork on {kept.config.dataset!r}, because its data depend on it: they would "
            "differ from those that the parameters were trained on. Keep the seed, or train a new run."
        )
    config = kept.config.replace(**changes)
    changed = [name for name in changes if kept.config.flat.get(name) != config.flat.get(name)]
    keeping = [name for name in changed if name in WITHIN_EPOCH or (name in OPTIONS and OPTIONS[name].live == "step")]
    if kept.iteration and set(changed) - set(keeping):
        names = ", ".join(name for name in changed if name not in keeping)
        nearest = _nearest(directory.checkpoints, kept.epoch)
        raise ConfigError(
            f"{names}: checkpoint {kept.name} is at iteration {kept.iteration} of epoch {kept.epoch}, whose plan they "
            f"would change in the middle.{nearest or ' There is no checkpoint between two epochs: set keep_every.'}"
        )
    epochs = config.epochs if "epochs" in changes else kept.waiting.get("epochs", config.epochs)
    if kept.epoch >= epochs and "epochs" not in changes:
        return config.replace(epochs=kept.epoch + epochs)
    if kept.epoch >= epochs:
        raise ConfigError(
            f"epochs={epochs}: checkpoint {kept.name} of run {directory.id} is after {kept.epoch} epochs, so none "
            f"is left to train. Give epochs={kept.epoch + 1} or more."
        )
    return config


def _nearest(found: tuple[Kept, ...], epoch: int) -> str:
    between = [kept for kept in found if not kept.iteration]
    if not between:
        return ""
    nearest = min(between, key=lambda kept: abs(kept.epoch - epoch))
    return f" The nearest one between two epochs is at={nearest.name!r}, after {nearest.epoch} epochs."


def _environment(directory: RunDirectory, kept: Kept, config: RunConfig) -> dict[str, Any]:
    now, before = config.flat, kept.config.flat
    changed = {name: value for name, value in now.items() if name not in before or before[name] != value}
    old = {name: before[name] for name in changed if name in before}
    described: dict[str, Any] = {
        "run": directory.id,
        "checkpoint": kept.name,
        "epoch": kept.epoch,
        "iteration": kept.iteration,
        "step": kept.step,
        "changes": changed,
        "old": old,
    }
    if not {"threads", "ranks", "device"} & set(changed):  # sums depend on the number of summands
        described["threads"] = EventHistory(directory).threads
    return describe_environment(config) | {FORKED: described}


# Verification that a replay matches its run, bit for bit.


STEP = ("epoch", "iteration", "loss", "global_loss")
SCORES = ("loss", "persistence_loss", "mean_loss", "snapshots", "metrics")
Facts = dict[tuple[int, Any], tuple[Any, ...]]  # (step, rank or part of the sequence) -> what it must be


@dataclass(frozen=True, slots=True)
class ReplayVerification:
    """The result of comparing a replay with its run.

    Attributes:
        run: the replay's name.
        of: its run's.
        steps: compared, over all ranks.
        evaluations: compared, over splits.
        first_difference: the first step whose loss or evaluation differs; None without one.
        parameters: whether the last parameters are equal; None if either run did not record them.
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
        """Whether nothing differs."""
        return self.first_difference is None and self.parameters is not False

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"bit_for_bit": bool(self), **asdict(self)}


def verify_replay(run: str | Path | StoredRun) -> ReplayVerification:
    """Compare a replay with its original run: every loss, every evaluation, and the last parameters.

    Raises:
        ConfigError: it is not a replay.
        RunStoreError: either folder is missing.
        DataError: a record line is damaged.
    """
    directory = RunDirectory.open(run if isinstance(run, str | Path) else run.path)
    first, again = EventHistory(repeated_by(directory)), EventHistory(directory)
    steps, evaluations = (_steps(first), _steps(again)), (_evaluations(first), _evaluations(again))
    failed = (
        first.directory.status()["state"] == "failed"
    )  # some ranks recorded more than others, and none recorded an end
    differing = [step for one, other in (steps, evaluations) for step in _differing(one, other, part=failed)]
    prints = _parameters(first), _parameters(again)
    parameters = None if None in prints else prints[0] == prints[1]
    where = min(differing, default=None)
    words = _words(first, again, where, parameters)
    return ReplayVerification(
        directory.id, first.directory.id, len(steps[0]), len(evaluations[0]), where, parameters, words
    )


def _steps(of: EventHistory) -> Facts:
    return {
        (row["step"], rank): tuple(row[name] for name in STEP)
        for rank in of.directory.record_files()
        for row in of.rows("steps", rank)
    }


def _evaluations(of: EventHistory) -> Facts:
    """Evaluations of the timeline; for a resumed attempt, the later one's count, and none of the test split."""
    found: Facts = {}
    for row in of.evaluations():
        found[row["step"], row["split"]] = tuple(row[name] for name in SCORES)
    return found


def _differing(one: Facts, other: Facts, *, part: bool) -> list[int]:
    """Steps at which they differ; with ``part``, only those that the first one has."""
    keys = one.keys() if part else one.keys() | other.keys()
    return [key[0] for key in keys if one.get(key) != other.get(key)]


def _parameters(of: EventHistory) -> str | None:
    ended = of.events(Ended)
    return ended[-1].event.parameters if ended else None


def _words(first: EventHistory, again: EventHistory, where: int | None, parameters: bool | None) -> str:
    ids = f"run {again.directory.id} replays run {first.directory.id}"
    if where is None and parameters is not False:
        end = (
            "." if parameters else "; the last parameters are not compared, because the first run did not record them."
        )
        return f"{ids} bit for bit: every loss and every evaluation is equal" + (
            ", and so are the last parameters." if parameters else end
        )
    place = "in its last parameters" if where is None else f"from step {where} on"
    causes = causes_of(first.directory, again.directory)
    return f"{ids}, but not bit for bit: it differs {place}. {causes}"


def causes_of(first: RunDirectory, again: RunDirectory) -> str:
    """Say why a run and its replay may differ."""
    before, now = first.environment(), again.environment()
    hashes = [each.get("data", {}).get("sha256") for each in (before, now)]
    if hashes[0] != hashes[1]:
        return "Their data differ: restore the data set of the first run."
    if changes := code_changes(first.extensions(), again.extensions()):
        return (
            f"This is expected, as {'; '.join(changes)}: register the code as the first run had it, and replay again."
        )
    described = [name for name in ("versions", "python", "cpu", "gpus", "git") if before.get(name) != now.get(name)]
    if described:
        return f"Their environments differ in {', '.join(described)}: the order of sums may differ."
    return "Their data and environments are equal: GPU sums may not be reproducible; on a CPU, please report it."


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
    """As :func:`replay` on engines, without waiting for its end: call :func:`store_verification` then.

    Raises:
        ControlError: the run, or another one, is active.
        ClusterError: there are fewer engines alive than it had ranks.
        ConfigError: it cannot be replayed; the message gives the reason.
        RunStoreError: there is no run, or it completed no step.
    """
    _, config, make = _prepared(run)
    return session.launch(config.ranks, make, runs_dir=runs_dir, config=config)


def store_verification(path: str | Path) -> ReplayVerification:
    """Compare a finished replay with its run, and store the result in its environment.

    Args:
        path: the folder of the replay.

    Raises:
        ConfigError: it is not a replay.
        RunStoreError: either folder is missing.
        DataError: a record line is damaged.
    """
    found = verify_replay(path)
    RunDirectory.open(path).add_environment(repeats=found.to_dict())
    return found


def _prepared(run: str | Path | StoredRun | Run) -> tuple[RunDirectory, RunConfig, Callable[..., RunDirectory]]:
    """The run's folder, the settings of its replay, and a function that creates the replay's folder."""
    directory = RunDirectory.open(run if isinstance(run, str | Path) else run.path)
    history = EventHistory(directory)
    history.check_repeatable()
    config = history.config
    return directory, config, partial(_create, history, config)


def _create(history: EventHistory, config: RunConfig, *, root: str | Path) -> RunDirectory:
    """The replay's folder; it stores a relative path to the first run, which reveals no home folder."""
    directory, environment = history.directory, history.directory.environment()
    path = os.path.relpath(directory.path.resolve(), Path(root).resolve() / "replay")
    described: dict[str, Any] = {REPLAYS: {"run": directory.id, "path": path, "threads": history.threads}}
    begin = None
    if FORKED in environment:
        described[FORKED], begin = environment[FORKED], directory.begin_file
    return RunDirectory.create(config, root=root, environment=describe_environment(config) | described, begin=begin)
