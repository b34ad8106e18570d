"""The checkpoints of a run's folder: their metadata, read without torch and without executing code."""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core import system_errors
from dtdg_lab.core.errors import LabError, RunStoreError
from dtdg_lab.runs.registered_code import learn_extensions

LAST = "last"


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint as the source of a fork.

    Attributes:
        name: ``last``; ``epoch-00012``, after 12 epochs; ``step-00345``, after 345 steps; ``begun``, the checkpoint of
            another run that a fork started from.
        path: path of the file.
        epoch: next epoch.
        iteration: next iteration of that epoch; 0 between two epochs.
        step: next step.
        config: the current settings.
        waiting: settings that change with the next epoch.
        data_hash: hash of the graph; empty if unknown.
    """

    name: str
    path: Path
    epoch: int
    iteration: int
    step: int
    config: RunConfig
    waiting: dict[str, Any]
    data_hash: str

    def __repr__(self) -> str:
        iteration = f", iteration {self.iteration}" if self.iteration else ""
        return f"StoredCheckpoint({self.name!r}, epoch {self.epoch}{iteration}, step {self.step})"


def stored_checkpoints(folder: Path) -> tuple[StoredCheckpoint, ...]:
    """Return the checkpoints of a folder, in order of steps; damaged files are left out.

    Args:
        folder: folder of the checkpoints.

    Raises:
        RunStoreError: the system denies reading one.
    """
    checkpoints = []
    for path in sorted(folder.glob("*.pt")):
        try:
            checkpoints.append(read_checkpoint(path))
        except LabError as error:
            if system_errors.is_refusal(error):
                raise
            continue  # opening it by name gives the reason
    return tuple(sorted(checkpoints, key=lambda checkpoint: (checkpoint.step, checkpoint.name == LAST)))


def read_checkpoint(path: Path) -> StoredCheckpoint:
    """Read the metadata of a checkpoint.

    Raises:
        RunStoreError: the file does not exist, or cannot be read.
    """
    with system_errors.reading(
        path,
        remedy="Use another checkpoint of the run.",
        damaged="is not a readable checkpoint",
        raises=RunStoreError,
        damage=(pickle.UnpicklingError,),
    ):
        try:
            with zipfile.ZipFile(path) as file:
                (inside,) = (name for name in file.namelist() if name.endswith("/data.pkl"))
                contents = _Plain(io.BytesIO(file.read(inside))).load()
        except FileNotFoundError as error:
            raise RunStoreError(f"{path} does not exist.") from error
        learn_extensions(path.parent.parent)
        position, config = contents["position"], RunConfig.from_json(contents["config_json"], stored=True)
        progress = (int(position["epoch"]), int(position["iteration"]), int(position["step"]))
        waiting = contents["waiting"]
        requests = waiting if isinstance(waiting, list) else [waiting]  # schema 1 had a single one
        waiting = {name: value for changes in requests for name, value in changes.items()}
        return StoredCheckpoint(path.stem, path, *progress, config, waiting, contents.get("data_hash", ""))


class _Plain(pickle.Unpickler):
    """Reads the plain values of a torch file: tensors are skipped, and no other objects are created."""

    def persistent_load(self, pid: Any) -> None:
        """Skip the bytes of a tensor."""

    def find_class(self, module: str, name: str) -> Any:
        """Allow only the names that torch's files contain: ordered dicts, and tensor rebuilding."""
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch" or (module == "torch._utils" and name.startswith("_rebuild")):
            return _nothing
        raise pickle.UnpicklingError(f"it names {module}.{name}")


_nothing: Callable[..., None] = lambda *_: None  # noqa: E731
