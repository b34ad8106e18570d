"""Branching: a new run that begins with a checkpoint of another one, under other settings or the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.beginning import FORKED
from dtdg_lab.cluster.local import train_here
from dtdg_lab.cluster.story import Story
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.environment import describe_environment
from dtdg_lab.runs.kept import LAST, Kept, read_kept
from dtdg_lab.runs.open import StoredRun

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
    """Train on from a checkpoint of a run, as a run of its own; the first run and its folder stay as they are.

    The fork has the settings that held at the checkpoint, with ``changes``: any that its parameters fit, such as
    another system, partitioner, learning rate or number of parts. With no changes that matter it goes on exactly as the
    first run did: all later losses are the same, bit for bit on a CPU, but of systems whose ranks average models, which
    clocks decide. Steps are numbered on, and both its environment and an event say where it comes from. Where the first
    run has made all its epochs by then and ``epochs`` is not given, the fork trains as many again.

    Args:
        run: the folder or handle of a run; it may be under way.
        at: ``"last"``; the name of a checkpoint that was kept (``epoch-00012``, ``step-00345``); or a number of epochs.
        session: whose engines train it, so that a handle comes back at once; this process where not given, with
            ``ranks=1``.
        runs_dir: folder that holds the fork; the session's, or the first run's, where not given.
        progress: show a bar of epochs, in this process.
        changes: settings that differ from there on. Within an epoch only such as keep the epoch's plan.

    Raises:
        ConfigError: there is no such checkpoint, a change is not possible from there, or no epoch is left to train.
        RunStoreError: there is no run, or the checkpoint cannot be read.
        LabError: what ended the fork, where it trains in this process.
    """
    directory = RunDirectory.open(run if isinstance(run, str | Path) else run.path)
    kept = checkpoint_at(directory, at)
    config = branched_config(directory, kept, changes)
    make = partial(RunDirectory.create, config, environment=_environment(directory, kept, config), begin=kept.path)
    if session is not None:
        return session.launch(config.ranks, make, runs_dir=runs_dir)
    _check_alone(config)
    return train_here(config, runs_dir=runs_dir or directory.path.resolve().parent, progress=progress, make=make)


def checkpoint_at(directory: RunDirectory, at: str | int) -> Kept:
    """The checkpoint of a run that a name or a number of epochs means.

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
        f"at={at!r}: run {directory.id} has no such checkpoint; it has {names}.{nearest} Set keep_every to keep one "
        "after some epochs, or ask for one by run.keep()."
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
                f"{name}={kept.config[name]!r}, and fit nothing else (or would be tested on what they have seen). "
                f"Train a new run: config.replace({name}=...)."
            )
    if "generated_snapshots" in kept.config.flat and changes.get("seed", kept.config.seed) != kept.config.seed:
        raise ConfigError(
            f"'seed' cannot change in a fork on {kept.config.dataset!r}, whose data are made by it: they would be "
            "others than the parameters were trained on. Keep the seed, or train a new run."
        )
    config = kept.config.replace(**changes)
    changed = [name for name in changes if kept.config.flat.get(name) != config.flat.get(name)]
    keeping = [name for name in changed if name in WITHIN_EPOCH or (name in OPTIONS and OPTIONS[name].live == "step")]
    if kept.iteration and set(changed) - set(keeping):
        names = ", ".join(name for name in changed if name not in keeping)
        nearest = _nearest(directory.checkpoints, kept.epoch)
        raise ConfigError(
            f"{names}: checkpoint {kept.name} is at iteration {kept.iteration} of epoch {kept.epoch}, whose plan they "
            f"would change in the middle.{nearest or ' No checkpoint between two epochs is kept: set keep_every.'}"
        )
    epochs = config.epochs if "epochs" in changes else kept.waiting.get("epochs", config.epochs)
    if kept.epoch >= epochs and "epochs" not in changes:
        return config.replace(epochs=kept.epoch + epochs)
    if kept.epoch >= epochs:
        raise ConfigError(
            f"epochs={epochs}: checkpoint {kept.name} of run {directory.id} is after {kept.epoch} epochs, so that none "
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
    told: dict[str, Any] = {
        "run": directory.id, "checkpoint": kept.name, "epoch": kept.epoch, "iteration": kept.iteration,
        "step": kept.step, "changes": changed,
    }  # fmt: skip
    if not {"threads", "ranks", "device"} & set(changed):  # sums depend on how many add them up
        told["threads"] = Story(directory).threads
    return describe_environment(config) | {FORKED: told}


def _check_alone(config: RunConfig) -> None:
    if config.ranks != 1:
        raise ConfigError(
            f"the run has ranks={config.ranks}, and this is one process: give session=lab.Session(ranks="
            f"{config.ranks}), or ranks=1, which keeps the plan but not every bit."
        )
