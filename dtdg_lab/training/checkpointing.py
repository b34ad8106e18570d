"""Writing of checkpoints, delayed until the next loss shows that training has not diverged."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dtdg_lab.engine.capabilities import Carries
from dtdg_lab.training.checkpoint import Checkpoint
from dtdg_lab.training.recording import RecordedStep, StepRecorder
from dtdg_lab.training.state import TrainingState

LOOK_S = 0.1  # polling interval for the records of other ranks
USUAL_AFTER = 20  # losses before the running mean is used
UNUSUAL = 10.0  # multiple of the running mean above which a loss counts as diverged


class LastGood:
    """Writer of the last good checkpoint.

    A diverging run has finite but useless parameters. So a checkpoint waits in memory for the next step's loss, and is
    dropped if that exceeds ten times the running mean of losses. It also waits until the steps before it are recorded,
    since a resumed run does not repeat them.

    Args:
        path: the file.
        is_recorded: returns whether a step has been recorded.
    """

    def __init__(self, path: Path, is_recorded: Callable[[int], bool]) -> None:
        self._path, self._is_recorded = path, is_recorded
        self._waiting: Checkpoint | None = None
        self._next_poll_s = 0.0
        self._written_s = time.monotonic()
        self._mean_loss, self._losses = 0.0, 0

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint now.

        Raises:
            RunStoreError: the file cannot be written.
            NotFiniteError: the parameters are not finite.
        """
        checkpoint.save(self._path)
        self._waiting, self._written_s = None, time.monotonic()

    def after_step(
        self, loss: float, every_s: float, take: Callable[[], Checkpoint], *, step: int | None = None
    ) -> Checkpoint | None:
        """Write the waiting checkpoint unless ``loss`` has diverged, and take the next one when it is due.

        Args:
            loss: finite loss of the newest step whose loss is known.
            every_s: least seconds between two checkpoints.
            take: returns a checkpoint of the current state.
            step: number of that step; None for the last one.

        Returns:
            The written checkpoint, or None.
        """
        waiting, written, now_s = self._waiting, None, time.monotonic()
        if waiting is not None and step is not None and step < waiting.position.step:
            waiting = None  # on a GPU: the loss of the step before the checkpoint says nothing about it
        if waiting is not None and self._losses >= USUAL_AFTER and loss > UNUSUAL * self._mean_loss:
            self._waiting = None
        elif waiting is not None and now_s >= self._next_poll_s:
            if self._is_recorded(waiting.position.step - 1):
                written = waiting
                self.write(written)
            else:
                self._next_poll_s = now_s + LOOK_S
        self._update_mean(loss)
        if self._waiting is None and time.monotonic() - self._written_s >= every_s:
            self._waiting = copy.deepcopy(take())
        return written

    def _update_mean(self, loss: float) -> None:
        self._losses += 1
        if self._losses <= USUAL_AFTER:
            self._mean_loss += (loss - self._mean_loss) / self._losses
        else:  # clipped, so that the mean follows a lasting change within some steps
            self._mean_loss += (min(loss, UNUSUAL * self._mean_loss) - self._mean_loss) / (2 * USUAL_AFTER)


class CheckpointManager:
    """Writes checkpoints of a run, on rank 0.

    Args:
        path: file of the last checkpoint.
        state: training state of this rank.
        recorder: records every written checkpoint.
    """

    def __init__(self, path: Path, state: TrainingState, recorder: StepRecorder) -> None:
        self._path, self._last_good = path, LastGood(path, self._is_recorded)
        self._state, self._recorder = state, recorder
        self._last: RecordedStep | None = None  # whose loss is considered

    def save(self, *, together: bool) -> None:
        """Write the current state, with the strategy's carried state, after flushing all records.

        Args:
            together: whether all ranks call this now; it is then collective, and always for a strategy that carries
                state.
        """
        self._recorder.settle()
        state, carried, started_ns = self._state, self._carried(), time.time_ns()
        self._recorder.flush()
        if together:
            state.group.barrier()
        if state.group.rank == 0:
            self._check_exchanges()
            self._last_good.write(state.checkpoint(carried))
            self._recorder.checkpoint(state.position, state.position.current_epoch, started_ns)

    def keep(self, name: str) -> None:
        """Write the current state to its own file beside the last checkpoint; collective if a strategy carries state.

        Args:
            name: name of the file, without its extension.

        Raises:
            RunStoreError: the file cannot be written.
            NotFiniteError: a parameter is not finite.
        """
        self._recorder.settle()
        state, carried, started_ns = self._state, self._carried(), time.time_ns()
        if state.group.rank == 0:
            self._check_exchanges()
            state.checkpoint(carried).save(self._path.with_name(f"{name}.pt"))
            self._recorder.kept(name, state.position, state.position.current_epoch, started_ns)

    def keep_epoch(self) -> None:
        """Keep a checkpoint at the end of an epoch if the settings or a request ask for one."""
        every, epochs = self._state.config["keep_every"], self._state.position.epoch
        if every and epochs % every == 0:
            self.keep(f"epoch-{epochs:05d}")
        self.keep_if_requested()

    def keep_if_requested(self) -> None:
        """Keep a checkpoint if a request asks for one."""
        if self._state.save_requested:
            self._state.save_requested = False
            self.keep(f"step-{self._state.position.step:05d}")

    def after_step(self, last: RecordedStep | None) -> None:
        """Write a checkpoint if it is due, the loss has not diverged, and no state is carried to the next step.

        Args:
            last: the newest recorded step; None before the first.
        """
        state = self._state
        if state.group.rank != 0 or last is None or last == self._last:
            return
        self._last = last
        state.group.check()  # the loss is known, so the exchanges before it have ended
        started_ns = time.time_ns()
        at_rest = not isinstance(state.strategy, Carries) or state.strategy.at_rest
        every_s = state.config["checkpoint_every_s"] if at_rest else float("inf")
        written = self._last_good.after_step(last.loss or 0.0, every_s, state.checkpoint, step=last.number)
        if written is not None:
            self._recorder.checkpoint(written.position, state.position.current_epoch, started_ns)

    def _check_exchanges(self) -> None:
        """Wait for exchanges in flight, and raise if they were aborted: the parameters would be invalid."""
        if self._state.device.startswith("cuda"):
            torch.cuda.current_stream(self._state.device).synchronize()
        self._state.group.check()

    def _carried(self) -> dict[str, Any]:
        """Return the strategy's carried state; collective."""
        strategy = self._state.strategy
        return strategy.carried_state() if isinstance(strategy, Carries) else {}

    def _is_recorded(self, step: int) -> bool:
        """Return True if all ranks that make the same steps have recorded this step."""
        self._recorder.flush()
        return self._recorder.reached(step, range(1, self._state.group.size) if self._state.synchronous else ())
