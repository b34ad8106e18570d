"""Checkpoints: everything that a run needs to go on, written so that a half-written file is never seen."""

from __future__ import annotations

import copy
import hashlib
import pickle
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Module

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import NotFiniteError, RunStoreError
from dtdg_lab.core.files import replacing
from dtdg_lab.core.system_errors import explain, reading
from dtdg_lab.engine.capabilities import Carries
from dtdg_lab.engine.strategy import Strategy
from dtdg_lab.graphs.dynamic_graph import DynamicGraph

if TYPE_CHECKING:
    from dtdg_lab.distributed.group import Group
    from dtdg_lab.training.build import RunComponents
    from dtdg_lab.training.recording import StepRecorder

SCHEMA = 2  # of the file; those before it had one have none

LOOK_S = 0.1  # between two looks whether other ranks have recorded their steps


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run is: the next step to make is iteration ``iteration`` of epoch ``epoch``.

    Where ranks share the steps of an epoch, ``iteration`` is the count of those made only once ranks have gathered, as
    after a stop. In between it is an estimate, as in a checkpoint written within an epoch: one above the number of rank
    0's newest step. Other ranks may have made fewer or more steps.
    """

    epoch: int = 0
    iteration: int = 0
    step: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Model, optimiser, position and settings, taken between two steps. No random state: streams are counters.

    ``waiting`` are the requests that the next epoch begins with, oldest first. ``data_hash`` is that of the graph it
    was trained on; files of older versions have none. ``plan`` is what the system has measured and decided by (times of
    snapshot groups, their schedule).
    """

    model: dict[str, Any]
    optimizer: dict[str, Any]
    position: Position
    config_json: str
    waiting: list[dict[str, Any]]
    data_hash: str = ""
    plan: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write atomically: the file at ``path`` is always a whole checkpoint.

        Raises:
            NotFiniteError: a parameter is NaN or infinite; the checkpoint before stays.
            RunStoreError: the file cannot be written; the checkpoint before stays.
        """
        for name, tensor in self.model.items():
            if not torch.isfinite(tensor).all():
                raise NotFiniteError(f"parameter {name} is not finite at step {self.position.step}: nothing was saved.")
        try:
            with replacing(path, draft=path.with_suffix(".part")) as draft, draft.open("wb") as file:
                torch.save({**vars_of(self), "position": asdict(self.position), "schema": SCHEMA}, file)
        except (OSError, RuntimeError) as error:
            raise RunStoreError(
                f"the checkpoint {path} cannot be written: {explain(error, path)} Then run.resume(): the checkpoint "
                "before is untouched."
            ) from error

    @classmethod
    def load(cls, path: Path, *, device: str = "cpu") -> Checkpoint:
        """Read a checkpoint (tensors and plain values only; no code is run).

        Raises:
            RunStoreError: there is none, it is not one of ours, or a newer version wrote it.
        """
        with reading(
            path,
            remedy="Take another one of the run.",
            damaged="is not a readable checkpoint",
            raises=RunStoreError,
            damage=(pickle.UnpicklingError,),
        ):
            try:
                data = torch.load(path, map_location=device, weights_only=True)
            except FileNotFoundError as error:
                raise RunStoreError(
                    f"there is no checkpoint at {path}: the run ended before its first. Start a new run."
                ) from error
            schema = int(data.pop("schema", 1))
            if schema > SCHEMA:
                raise RunStoreError(
                    f"{path} was written by a newer version of DTDG Lab: it has schema {schema}, and this version "
                    f"reads up to {SCHEMA}. Update dtdg_lab; the file was not changed."
                )
            if schema < 2:  # all that waited was one request
                data["waiting"] = [data["waiting"]] if data["waiting"] else []
            return cls(**{**data, "position": Position(**data["position"])})

    def check_graph(self, graph: DynamicGraph) -> bool:
        """Refuse to resume on data other than it was trained on; False where the file does not name its data.

        Raises:
            RunStoreError: the graph has another hash.
        """
        if not self.data_hash:
            return False
        if self.data_hash != graph.data_hash:
            raise RunStoreError(
                f"the checkpoint was trained on data with hash {self.data_hash[:16]}, but {graph.name!r} now has "
                f"{graph.data_hash[:16]}: the data set, or how this version cuts it, is no longer what it was. Bring "
                "back the data (or the version) that the run began with, or start a new run."
            )
        return True

    def has_moments_for(self, config: RunConfig) -> bool:
        """Whether what its optimiser remembers is of use to that of a config."""
        return bool(RunConfig.from_json(self.config_json)["optimizer"] == config["optimizer"])

    def fingerprint(self) -> str:
        """SHA-256 of the parameters, bit by bit, in order of their names."""
        described = hashlib.sha256()
        for name in sorted(self.model):
            tensor = self.model[name].detach().cpu().contiguous()
            described.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
            described.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        return described.hexdigest()

    def restore(self, model: Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Put the parameters, and the optimiser's moments where one is given, into what a config built.

        Raises:
            RunStoreError: they do not fit, as when another version made the model otherwise.
        """
        try:
            model.load_state_dict(self.model)
            if optimizer is not None:
                optimizer.load_state_dict(self.optimizer)
        except (RuntimeError, ValueError, KeyError) as error:
            found = " ".join(str(error).split())[:300].rstrip(".")
            raise RunStoreError(
                f"the checkpoint does not fit the {type(model).__name__} that its settings build here: "
                f"{found}. It was written by another version of DTDG Lab, or for a graph of another size. Use "
                "the version that wrote it (environment.json in the run's folder names it), or start a new run with "
                "the same settings."
            ) from error


def vars_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Fields by name, without copying tensors (``dataclasses.asdict`` would)."""
    return {name: getattr(checkpoint, name) for name in Checkpoint.__slots__}


# When a checkpoint is written: only once the loss that follows shows that its parameters are still of use.


USUAL_AFTER = 20  # losses before a usual one is known
UNUSUAL = 10.0  # times the usual loss


class LastGood:
    """Keeps the file of the last good checkpoint.

    A run that diverges passes through parameters that are finite and useless. So a checkpoint waits in memory for the
    next step's loss, and is dropped where that is not finite or ten times the usual (a running mean). It also waits
    until the steps before it are recorded, since a resumed run does not repeat them.

    Args:
        path: the file.
        recorded: whether the records have reached a step.
    """

    def __init__(self, path: Path, recorded: Callable[[int], bool]) -> None:
        self._path, self._recorded = path, recorded
        self._waiting: Checkpoint | None = None
        self._look_s = 0.0
        self._written_s = time.monotonic()
        self._usual, self._losses = 0.0, 0

    def write(self, checkpoint: Checkpoint) -> None:
        """Write at once, whatever the loss.

        Raises:
            RunStoreError: it cannot be written.
            NotFiniteError: its parameters are not finite.
        """
        checkpoint.save(self._path)
        self._waiting, self._written_s = None, time.monotonic()

    def after_step(self, loss: float, every_s: float, take: Callable[[], Checkpoint]) -> Checkpoint | None:
        """Write the checkpoint that waits if ``loss`` is a usual one, and take the next when it is due.

        Args:
            loss: of the step just made; finite, since the run would have ended otherwise.
            every_s: least seconds between two checkpoints.
            take: makes a checkpoint of the present.

        Returns:
            The checkpoint that was written, if one was.
        """
        waiting, written, now_s = self._waiting, None, time.monotonic()
        if waiting is not None and self._losses >= USUAL_AFTER and loss > UNUSUAL * self._usual:
            self._waiting = None
        elif waiting is not None and now_s >= self._look_s:
            if self._recorded(waiting.position.step - 1):
                written = waiting
                self.write(written)
            else:
                self._look_s = now_s + LOOK_S
        self._note(loss)
        if self._waiting is None and time.monotonic() - self._written_s >= every_s:
            self._waiting = copy.deepcopy(take())
        return written

    def _note(self, loss: float) -> None:
        self._losses += 1
        if self._losses <= USUAL_AFTER:
            self._usual += (loss - self._usual) / self._losses
        else:  # what is unusual counts a little, so that a lasting change becomes usual within some steps
            self._usual += (min(loss, UNUSUAL * self._usual) - self._usual) / (2 * USUAL_AFTER)


def not_finite(loss: float, position: Position, rate: float) -> NotFiniteError:
    """What a loss that is NaN or infinite ends a run with.

    Args:
        loss: of the step at ``position``.
        position: where the run is.
        rate: its learning rate.
    """
    return NotFiniteError(
        f"the loss is {loss} at step {position.step} (epoch {position.epoch}): training stopped before the update. "
        f"The last good checkpoint is kept; resume from it with a smaller learning_rate (now {rate:g})."
    )


def carried_state(strategy: Strategy) -> dict[str, Any]:
    """Return the state that a strategy carries to the next step; collective."""
    return strategy.carried_state() if isinstance(strategy, Carries) else {}


# When a run's state is written to its checkpoint, and what of it: on rank 0.


class CheckpointManager:
    """Writes checkpoints of a run.

    Args:
        path: of the file.
        group: the ranks; rank 0 writes.
        journal: logs every checkpoint written.
        take: makes one of the present, given what is carried from step to step.
        together: whether ranks make the same steps now. Else each has steps of its own, and only those of rank 0 are
            sure to be recorded before a checkpoint within a stretch.
    """

    def __init__(
        self,
        path: Path,
        group: Group,
        journal: StepRecorder,
        take: Callable[[dict[str, Any]], Checkpoint],
        together: Callable[[], bool],
    ) -> None:
        self._path, self._last_good = path, LastGood(path, self._recorded)
        self._group, self._step_recorder, self._take, self._together = group, journal, take, together

    def forced(self, built: RunComponents, epoch: int, *, meets: bool) -> None:
        """Write what is now, with what is carried, once all rows so far are on disk.

        Args:
            built: what trains.
            epoch: that the writing belongs to.
            meets: whether all ranks call this now. It is collective then, and where a system carries anything.
        """
        carried, started_ns = carried_state(built.strategy), time.time_ns()
        self._step_recorder.flush()
        if meets:
            self._group.barrier()
        if self._group.rank == 0:
            written = self._take(carried)
            self._last_good.write(written)
            self._step_recorder.checkpoint(written.position, epoch, started_ns)

    def kept(self, name: str, built: RunComponents, epoch: int) -> None:
        """Write what is now to a file of its own beside the last checkpoint; collective as :meth:`forced` is.

        Args:
            name: of the file, without its ending.
            built: what trains.
            epoch: that the writing belongs to.

        Raises:
            RunStoreError: it cannot be written; the run ends as by one that :meth:`forced` cannot write.
            NotFiniteError: a parameter is not finite.
        """
        carried, started_ns = carried_state(built.strategy), time.time_ns()
        if self._group.rank == 0:
            written = self._take(carried)
            written.save(self._path.with_name(f"{name}.pt"))
            self._step_recorder.kept(name, written.position, epoch, started_ns)

    def after_step(self, built: RunComponents, loss: float, every_s: float, epoch: int) -> None:
        """Write where it is due, the run has gone well since, and nothing is carried.

        Args:
            built: what trains.
            loss: of the step.
            every_s: least seconds between two checkpoints.
            epoch: that the writing belongs to.
        """
        if self._group.rank != 0:
            return
        started_ns = time.time_ns()
        at_rest = not isinstance(built.strategy, Carries) or built.strategy.at_rest
        due_s = every_s if at_rest else float("inf")
        written = self._last_good.after_step(loss, due_s, lambda: self._take({}))
        if written is not None:
            self._step_recorder.checkpoint(written.position, epoch, started_ns)

    def _recorded(self, step: int) -> bool:
        self._step_recorder.flush()
        return self._step_recorder.reached(step, range(1, self._group.size) if self._together() else ())
