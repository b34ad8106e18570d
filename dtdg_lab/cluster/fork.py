"""Forks: new runs that start from a checkpoint of another run, with the same or other settings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.event_history import EventHistory
from dtdg_lab.cluster.local import train_here
from dtdg_lab.cluster.run_start import FORKED
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.runs.checkpoints import LAST, StoredCheckpoint, read_checkpoint
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.environment import describe_environment
from dtdg_lab.runs.stored_run import StoredRun

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session


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

    The fork has the settings of the checkpoint with ``changes``: any change that keeps the parameters' shapes, such as
    another system, partitioner, learning rate or number of partitions. Without relevant changes it continues like the
    first run: all later losses are equal, bit for bit on a CPU, except for systems with model averaging, which depends
    on timing. Steps are numbered on; its environment and an event name its origin. If the first run had completed all
    its epochs and ``epochs`` is not given, the fork trains as many again.

    Args:
        run: the folder or handle of a run; it may be active.
        at: ``"last"``; the name of a stored checkpoint (``epoch-00012``, ``step-00345``); or a number of epochs.
        session: session whose engines train it; a handle is returned at once. By default this process, with
            ``ranks=1``.
        runs_dir: folder for the fork; by default the session's, or the first run's.
        progress: show a progress bar of epochs, in this process.
        changes: changed settings. Within an epoch, only changes that keep the epoch's plan.

    Raises:
        ConfigError: the checkpoint does not exist, a change is impossible there, or no epoch is left to train.
        RunStoreError: there is no run, or the checkpoint cannot be read.
        LabError: the reason why the fork failed, if it trains in this process.
    """
    directory = RunDirectory.open(run if isinstance(run, str | Path) else run.path)
    checkpoint = checkpoint_at(directory, at)
    config = branched_config(directory, checkpoint, changes)
    make = partial(
        RunDirectory.create, config, environment=_environment(directory, checkpoint, config), begin=checkpoint.path
    )
    if session is not None:
        return session.launch(config.ranks, make, runs_dir=runs_dir, config=config)
    if config.ranks != 1:
        raise ConfigError(
            f"the run has ranks={config.ranks}, but this is a single process. Give session=lab.Session(ranks="
            f"{config.ranks}), or ranks=1, which keeps the plan but not bit-identical results."
        )
    return train_here(config, runs_dir=runs_dir or directory.path.resolve().parent, progress=progress, make=make)


def checkpoint_at(directory: RunDirectory, at: str | int) -> StoredCheckpoint:
    """Return the checkpoint of a run by name or by number of epochs.

    Raises:
        ConfigError: there is none.
        RunStoreError: it cannot be read.
    """
    if isinstance(at, str):
        name = at.removesuffix(".pt")
        path = directory.checkpoint_file.parent / f"{name}.pt"
        if "/" not in name and "\\" not in name and path.is_file():
            return read_checkpoint(path)
    checkpoints = directory.checkpoints
    if isinstance(at, int):
        for checkpoint in checkpoints:
            if (checkpoint.epoch, checkpoint.iteration) == (at, 0):
                return checkpoint
    names = (
        ", ".join(f"{checkpoint.name} (epoch {checkpoint.epoch}, step {checkpoint.step})" for checkpoint in checkpoints)
        or "none"
    )
    nearest = _nearest(checkpoints, at) if isinstance(at, int) else ""
    raise ConfigError(
        f"at={at!r}: run {directory.id} has no such checkpoint. It has {names}.{nearest} Set keep_every to save one "
        "every few epochs, or call run.save_checkpoint()."
    )


def branched_config(directory: RunDirectory, checkpoint: StoredCheckpoint, changes: dict[str, Any]) -> RunConfig:
    """Return the settings of a fork.

    Raises:
        ConfigError: a change is impossible there, or no epoch is left.
    """
    for name in changes:
        if name in FROZEN or (name in OPTIONS and OPTIONS[name].owner in ("datasets", "models")):
            raise ConfigError(
                f"{name!r} cannot change in a fork: its parameters were trained with "
                f"{name}={checkpoint.config[name]!r}, and do not fit other settings (or would be tested on training "
                f"data). Train a new run with config.replace({name}=...)."
            )
    former = checkpoint.config.flat
    if "generated_snapshots" in former and changes.get("seed", former["seed"]) != former["seed"]:
        raise ConfigError(
            f"'seed' cannot change in a fork on {checkpoint.config.dataset!r}, because its data depend on the seed, "
            "and the parameters were trained on other data. Keep the seed, or train a new run."
        )
    config = checkpoint.config.replace(**changes)
    changed = [name for name in changes if former.get(name) != config.flat.get(name)]
    breaking = [
        name for name in changed if name not in WITHIN_EPOCH and not (name in OPTIONS and OPTIONS[name].live == "step")
    ]
    if checkpoint.iteration and breaking:
        nearest = _nearest(directory.checkpoints, checkpoint.epoch)
        raise ConfigError(
            f"{', '.join(breaking)} cannot change at checkpoint {checkpoint.name}, in the middle of epoch "
            f"{checkpoint.epoch} (iteration {checkpoint.iteration}), because that changes the epoch's plan."
            f"{nearest or ' There is no checkpoint between two epochs: set keep_every.'}"
        )
    epochs = config.epochs if "epochs" in changes else checkpoint.waiting.get("epochs", config.epochs)
    if checkpoint.epoch < epochs:
        return config
    if "epochs" in changes:
        raise ConfigError(
            f"epochs={epochs}: checkpoint {checkpoint.name} of run {directory.id} has {checkpoint.epoch} epochs. "
            f"Give epochs={checkpoint.epoch + 1} or more."
        )
    return config.replace(epochs=checkpoint.epoch + epochs)


def _nearest(checkpoints: tuple[StoredCheckpoint, ...], epoch: int) -> str:
    between = [checkpoint for checkpoint in checkpoints if not checkpoint.iteration]
    if not between:
        return ""
    nearest = min(between, key=lambda checkpoint: abs(checkpoint.epoch - epoch))
    return f" The nearest one between two epochs is at={nearest.name!r}, after {nearest.epoch} epochs."


def _environment(directory: RunDirectory, checkpoint: StoredCheckpoint, config: RunConfig) -> dict[str, Any]:
    settings, former = config.flat, checkpoint.config.flat
    changed = {name: value for name, value in settings.items() if name not in former or former[name] != value}
    old = {name: former[name] for name in changed if name in former}
    origin: dict[str, Any] = {
        "run": directory.id,
        "checkpoint": checkpoint.name,
        "epoch": checkpoint.epoch,
        "iteration": checkpoint.iteration,
        "step": checkpoint.step,
        "changes": changed,
        "old": old,
    }
    if not {"threads", "ranks", "device"} & set(changed):  # sums depend on the number of summands
        origin["threads"] = EventHistory(directory).threads
    return describe_environment(config) | {FORKED: origin}
