"""Reading back TensorBoard events that a run was exported to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import NotAvailableError, RunStoreError
from dtdg_lab.runs.exported_run import PartialRun

if TYPE_CHECKING:
    import pandas as pd

CONFIG_TAG = "run/config"
ABOUT_TAG = "run/about"
TRAIN_STEP = "step"  # of the losses, the one of each step; the others are parts that were evaluated
_SPLITS = ("train", "validation", "test")
_PLACES = ("*.tfevents.*", "*/*.tfevents.*")


def is_events(where: Path) -> bool:
    """Whether a folder holds TensorBoard events, or its folders do."""
    return bool(_files(where))


def _files(where: Path) -> list[Path]:
    return sorted(file for place in _PLACES for file in where.glob(place))


def read_events(where: Path) -> PartialRun:
    """What TensorBoard events hold of their run: settings, the loss of each step and the losses of evaluations.

    Losses are of 32 bits, as TensorBoard keeps them.

    Args:
        where: the folder that was exported, or a file of events.

    Raises:
        ConfigError: the settings are not understood.
        NotAvailableError: tensorboard is not installed.
        RunStoreError: the events were not exported by this program.
    """
    try:
        from tensorboard.backend.event_processing.event_accumulator import STORE_EVERYTHING_SIZE_GUIDANCE as ALL
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise NotAvailableError("reading TensorBoard events needs tensorboard: pip install 'dtdg-lab[lab]'.") from error
    files = _files(where) if where.is_dir() else [where]
    config, about = None, {}
    losses: dict[str, list[Any]] = {}
    for file in files:
        events = EventAccumulator(str(file), ALL)
        events.Reload()
        tags = events.Tags()
        if CONFIG_TAG not in tags["tensors"]:
            continue
        config = _text(events, CONFIG_TAG)
        about = json.loads(_text(events, ABOUT_TAG))
        for name in (TRAIN_STEP, *_SPLITS):
            if f"loss/{name}" in tags["scalars"]:
                losses[name] = events.Scalars(f"loss/{name}")
    if config is None:
        raise RunStoreError("its events were not exported by lab.export: they hold no settings of a run.")
    tables = _tables(losses)
    holds = "its settings and losses (" + (", ".join(losses) or "none") + ")"
    return PartialRun(str(about["run"]), "tensorboard", where, RunConfig.from_json(config), tables, holds=holds)


def _text(events: Any, tag: str) -> str:
    from tensorboard.util.tensor_util import make_ndarray

    value = make_ndarray(events.Tensors(tag)[0].tensor_proto).reshape(-1)[0]
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _tables(losses: dict[str, list[Any]]) -> dict[str, pd.DataFrame]:
    import pandas as pd

    steps = [(int(of.step), round(of.wall_time * 1e9), float(of.value)) for of in losses.get(TRAIN_STEP, ())]
    scored = [
        (int(of.step), round(of.wall_time * 1e9), split, float(of.value))
        for split in _SPLITS
        for of in losses.get(split, ())
    ]
    scored.sort(key=lambda row: row[0])
    return {
        "steps": pd.DataFrame(steps, columns=["step", "time_ns", "global_loss"]),
        "evaluations": pd.DataFrame(scored, columns=["step", "time_ns", "split", "loss"]),
    }
