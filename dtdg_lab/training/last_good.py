"""When a checkpoint is written: only once the loss that follows shows that its parameters are still of use."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path

from dtdg_lab.core.errors import NotFiniteError
from dtdg_lab.training.checkpoint import Checkpoint, Position

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
