"""Checkpoints: everything that a run needs to resume, written atomically."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import NotFiniteError, RunStoreError
from dtdg_lab.core.files import replacing
from dtdg_lab.core.system_errors import explain, reading
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training.position import Position

SCHEMA = 3  # version of the file; the oldest files have none


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Model, optimizer, position and settings between two steps. Random streams are counters and have no state.

    Attributes:
        model: state of the model.
        optimizer: state of the optimizer.
        position: position of the run.
        config_json: the settings.
        waiting: requests that wait for the next epoch, oldest first.
        data_hash: hash of the training data; empty in files of older versions.
        plan: backend and memory limits, and measurements and decisions of the strategy, such as times of snapshot
            groups and their schedule.
        best: the model with the lowest validation loss, as :class:`~dtdg_lab.training.best_model.BestModel` writes it;
            None if the run keeps none.
    """

    model: dict[str, Any]
    optimizer: dict[str, Any]
    position: Position
    config_json: str
    waiting: list[dict[str, Any]]
    data_hash: str = ""
    plan: dict[str, Any] = field(default_factory=dict)
    best: dict[str, Any] | None = None

    def save(self, path: Path) -> None:
        """Write atomically: the file at ``path`` is always a whole checkpoint.

        Raises:
            NotFiniteError: a parameter is NaN or infinite; the previous checkpoint stays.
            RunStoreError: the file cannot be written; the previous checkpoint stays.
        """
        for name, tensor in self.model.items():
            if not torch.isfinite(tensor).all():
                raise NotFiniteError(
                    f"parameter {name} is not finite at step {self.position.step}, so no checkpoint was saved. Resume "
                    "from the last one with a smaller learning_rate."
                )
        try:
            with replacing(path, draft=path.with_suffix(".part")) as draft, draft.open("wb") as file:
                torch.save({**vars_of(self), "position": asdict(self.position), "schema": SCHEMA}, file)
        except (OSError, RuntimeError) as error:
            raise RunStoreError(
                f"the checkpoint {path} cannot be written: {explain(error, path)} Then run.resume(): the previous "
                "checkpoint is untouched."
            ) from error

    @classmethod
    def load(cls, path: Path, *, device: str = "cpu") -> Checkpoint:
        """Read a checkpoint of tensors and plain values; no code from the file runs.

        Raises:
            RunStoreError: there is no file, it is not a checkpoint, or a newer version wrote it.
        """
        with reading(
            path,
            remedy="Choose another checkpoint of the run.",
            damaged="is not a readable checkpoint",
            raises=RunStoreError,
            damage=(pickle.UnpicklingError,),
        ):
            try:
                data = torch.load(path, map_location=device, weights_only=True)
            except FileNotFoundError as error:
                raise RunStoreError(
                    f"there is no checkpoint at {path}: the run ended before it wrote one. Start a new run."
                ) from error
            schema = int(data.pop("schema", 1))
            if schema > SCHEMA:
                raise RunStoreError(
                    f"{path} was written by a newer version of DTDG Lab: it has schema {schema}, and this version "
                    f"reads up to {SCHEMA}. Update dtdg_lab; the file was not changed."
                )
            if schema < 2:  # a single request
                data["waiting"] = [data["waiting"]] if data["waiting"] else []
            return cls(**{**data, "position": Position(**data["position"])})

    def check_graph(self, graph: DynamicGraph) -> bool:
        """Check that the graph is the training data; return False if the file has no hash of its data.

        Raises:
            RunStoreError: the graph has another hash.
        """
        if not self.data_hash:
            return False
        if self.data_hash != graph.data_hash:
            raise RunStoreError(
                f"the checkpoint was trained on data with hash {self.data_hash[:16]}, but {graph.name!r} now has "
                f"{graph.data_hash[:16]}: the data set, or how this version cuts it, has changed. Restore the data or "
                "the version that the run began with, or start a new run."
            )
        return True

    def has_moments_for(self, config: RunConfig) -> bool:
        """Return True if the optimizer of a config can load the optimizer state."""
        return bool(RunConfig.from_json(self.config_json, stored=True)["optimizer"] == config["optimizer"])

    def fingerprint(self) -> str:
        """Return the SHA-256 of all parameters, in order of their names."""
        digest = hashlib.sha256()
        for name in sorted(self.model):
            tensor = self.model[name].detach().cpu().contiguous()
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def restore(self, model: Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Load the parameters into a model, and the optimizer state into an optimizer if one is given.

        Raises:
            RunStoreError: they do not fit, for example because another version built the model.
        """
        try:
            model.load_state_dict(self.model)
            if optimizer is not None:
                optimizer.load_state_dict(self.optimizer)
        except (RuntimeError, ValueError, KeyError) as error:
            mismatch = " ".join(str(error).split())[:300].rstrip(".")
            raise RunStoreError(
                f"the checkpoint does not fit the {type(model).__name__} that its settings build: "
                f"{mismatch}. It was written by another version of DTDG Lab, or for a graph of another size. Use "
                "the version that wrote it (environment.json in the run's folder names it), or start a new run with "
                "the same settings."
            ) from error


def vars_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return fields by name, without copying tensors (``dataclasses.asdict`` would)."""
    return {name: getattr(checkpoint, name) for name in Checkpoint.__slots__}
