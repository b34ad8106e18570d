"""Writing of checkpoints: only once the loss that follows shows that the parameters are still of use."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtdg_lab.engine.capabilities import Carries
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.recording import StepRecorder
from dtdg_lab.training.state import TrainingState

LOOK_S = 0.1  # between two looks whether other ranks have recorded their steps
USUAL_AFTER = 20  # losses before a usual one is known
UNUSUAL = 10.0  # times the usual loss


class LastGood:
    """Keeps the file of the last good checkpoint.

    A run that diverges passes through parameters that are finite and useless. So a checkpoint waits in memory for the
    next step's loss. It is dropped if that is ten times the usual loss (a running mean) or more. It also waits until
    the steps before it are recorded, since a resumed run does not repeat them.

    Args:
        path: the file.
        is_recorded: returns whether the records have reached a step.
    """

    def __init__(self, path: Path, is_recorded: Callable[[int], bool]) -> None:
        self._path, self._is_recorded = path, is_recorded
        self._waiting: Checkpoint | None = None
        self._look_s = 0.0
        self._written_s = time.monotonic()
        self._usual, self._losses = 0.0, 0

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint at once, whatever the loss.

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
            take: returns a checkpoint of the present.

        Returns:
            The checkpoint that was written, if one was.
        """
        waiting, written, now_s = self._waiting, None, time.monotonic()
        if waiting is not None and self._losses >= USUAL_AFTER and loss > UNUSUAL * self._usual:
            self._waiting = None
        elif waiting is not None and now_s >= self._look_s:
            if self._is_recorded(waiting.position.step - 1):
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


class CheckpointManager:
    """Writes checkpoints of a run, on rank 0.

    Args:
        path: of the last checkpoint.
        state: of this rank.
        recorder: records every checkpoint written.
    """

    def __init__(self, path: Path, state: TrainingState, recorder: StepRecorder) -> None:
        self._path, self._last_good = path, LastGood(path, self._is_recorded)
        self._state, self._recorder = state, recorder

    def save(self, *, together: bool) -> None:
        """Write the present, with what the strategy carries, once all rows so far are on disk.

        Args:
            together: whether all ranks call this now. It is collective then, and where a strategy carries anything.
        """
        state, carried, started_ns = self._state, self._carried(), time.time_ns()
        self._recorder.flush()
        if together:
            state.group.barrier()
        if state.group.rank == 0:
            self._last_good.write(state.checkpoint(carried))
            self._recorder.checkpoint(state.position, state.position.current_epoch, started_ns)

    def keep(self, name: str) -> None:
        """Write the present to a file of its own beside the last checkpoint; collective where a strategy carries.

        Args:
            name: of the file, without its ending.

        Raises:
            RunStoreError: it cannot be written.
            NotFiniteError: a parameter is not finite.
        """
        state, carried, started_ns = self._state, self._carried(), time.time_ns()
        if state.group.rank == 0:
            state.checkpoint(carried).save(self._path.with_name(f"{name}.pt"))
            self._recorder.kept(name, state.position, state.position.current_epoch, started_ns)

    def keep_epoch(self) -> None:
        """Keep a checkpoint at the end of an epoch where the settings ask for one, or a request does."""
        every, epochs = self._state.config["keep_every"], self._state.position.epoch
        if every and epochs % every == 0:
            self.keep(f"epoch-{epochs:05d}")
        self.keep_if_requested()

    def keep_if_requested(self) -> None:
        """Keep a checkpoint if a request asks for one."""
        if self._state.save_requested:
            self._state.save_requested = False
            self.keep(f"step-{self._state.position.step:05d}")

    def after_step(self, loss: float) -> None:
        """Write where it is due, the run has gone well since, and nothing is carried to the next step.

        Args:
            loss: of the step.
        """
        state = self._state
        if state.group.rank != 0:
            return
        started_ns = time.time_ns()
        at_rest = not isinstance(state.strategy, Carries) or state.strategy.at_rest
        every_s = state.config["checkpoint_every_s"] if at_rest else float("inf")
        written = self._last_good.after_step(loss, every_s, state.checkpoint)
        if written is not None:
            self._recorder.checkpoint(written.position, state.position.current_epoch, started_ns)

    def _carried(self) -> dict[str, Any]:
        """Return what the strategy carries to the next step; collective."""
        strategy = self._state.strategy
        return strategy.carried_state() if isinstance(strategy, Carries) else {}

    def _is_recorded(self, step: int) -> bool:
        """Return True if the ranks that make the same steps have recorded one."""
        self._recorder.flush()
        return self._recorder.reached(step, range(1, self._state.group.size) if self._state.synchronous else ())
