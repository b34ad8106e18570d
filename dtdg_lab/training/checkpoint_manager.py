"""When checkpoints are written, and which are kept."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import NotFiniteError
from dtdg_lab.distributed.group import Group
from dtdg_lab.training.build import RunComponents
from dtdg_lab.training.checkpoint import Checkpoint, Position
from dtdg_lab.training.recording import StepRecorder

# When a checkpoint is written: only once the loss that follows shows that its parameters are still of use.


USUAL_AFTER = 20  # losses before a usual one is known
UNUSUAL = 10.0  # times the usual loss


class LastGood:
    """Keeps the file of the last good checkpoint.

    A run that diverges passes through parameters that are finite and useless. So a checkpoint waits in memory for the
    next step's loss, and is dropped where that is not finite or ten times the usual (a running mean).

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: Checkpoint | None = None
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
        written, self._waiting = self._waiting, None
        if written is not None and self._is_usual(loss):
            self.write(written)
        else:
            written = None
        self._note(loss)
        if time.monotonic() - self._written_s >= every_s:
            self._waiting = copy.deepcopy(take())
        return written

    def _is_usual(self, loss: float) -> bool:
        return self._losses < USUAL_AFTER or loss <= UNUSUAL * self._usual

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


# When a run's state is written to its checkpoint, and what of it: on rank 0.


class CheckpointManager:
    """Writes checkpoints of a run.

    Args:
        path: of the file.
        group: the ranks; rank 0 writes.
        journal: logs every checkpoint written.
        take: makes one of the present, given what is carried from step to step.
    """

    def __init__(
        self, path: Path, group: Group, journal: StepRecorder, take: Callable[[dict[str, Any]], Checkpoint]
    ) -> None:
        self._path, self._last_good = path, LastGood(path)
        self._group, self._step_recorder, self._take = group, journal, take

    def forced(self, built: RunComponents, epoch: int) -> None:
        """Write what is now, with what is carried; collective where a system carries anything.

        Args:
            built: what trains.
            epoch: that the writing belongs to.
        """
        carried = built.strategy.carried_state()
        if self._group.rank != 0:
            return
        started_ns = time.time_ns()
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
        carried = built.strategy.carried_state()
        if self._group.rank != 0:
            return
        started_ns = time.time_ns()
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
        due_s = every_s if built.strategy.at_rest else float("inf")
        written = self._last_good.after_step(loss, due_s, lambda: self._take({}))
        if written is not None:
            self._step_recorder.checkpoint(written.position, epoch, started_ns)
