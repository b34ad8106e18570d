"""Fail on all ranks if any rank fails; agreement of ranks on a reason, a flag or a position."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch

from dtdg_lab.core.errors import LabError, RunFailedError
from dtdg_lab.core.system_errors import error_text
from dtdg_lab.distributed.group import Group, gather_texts
from dtdg_lab.training.position import Position

T = TypeVar("T")


@contextmanager
def together(group: Group, *, device: str) -> Iterator[None]:
    """Fail on every rank if any rank fails inside; collective.

    Raises:
        RunFailedError: another rank failed; the message has its number and reason. The failed rank raises its own
            error.
    """
    error: Exception | None = None
    try:
        yield
    except (LabError, OSError, MemoryError, RuntimeError) as raised:
        error = raised
    reason = "" if error is None else error_text(error)
    reasons = gather_texts(group, reason, device=device) if group.size > 1 else [reason]
    if error is not None:
        raise error
    failed = next((rank for rank, text in enumerate(reasons) if text), None)
    if failed is not None:
        raise RunFailedError(f"rank {failed} could not build it: {reasons[failed]}")


def attempted(work: Callable[[], T], group: Group, *, device: str) -> tuple[T | None, str]:
    """Return the result of ``work``, and the reason of a failure, the same on all ranks; empty if no rank failed.

    Collective. Local work may fail on any rank. Collective work must fail on all ranks, or on the last to take part.

    Args:
        work: work of every rank.
        group: the ranks.
        device: device of this rank.
    """
    result, failure = None, ""
    try:
        result = work()
    except (LabError, OSError, MemoryError, RuntimeError) as error:
        failure = error_text(error)
    return result, shared_reason(failure, group, device=device)


def shared_reason(failure: str, group: Group, *, device: str) -> str:
    """Return the reason of a failure, the same on all ranks; empty if no rank failed. Collective.

    Args:
        failure: reason of this rank's failure; empty if it did not fail.
        group: the ranks.
        device: device of this rank.
    """
    reasons = gather_texts(group, failure, device=device)
    failed = {rank: reason for rank, reason in enumerate(reasons) if reason}
    if len(failed) == len(reasons) or 0 in failed:
        return failed.get(0, "")
    return " ".join(f"rank {rank} could not build it: {reason}" for rank, reason in failed.items())


def any_rank(flag: bool, group: Group, *, device: str) -> bool:
    """Return True if the flag is set on any rank; collective."""
    total = torch.tensor([float(flag)], dtype=torch.float64, device=device)
    group.all_reduce(total)
    return bool(total.item())


def joined_position(start: Position, position: Position, group: Group, *, steps: int, device: str) -> Position:
    """Return the joint position of ranks that share the steps of an epoch; collective.

    Args:
        start: start position of all ranks; ``step`` is this rank's own.
        position: position of this rank.
        group: the ranks.
        steps: steps of an epoch, of all ranks together.
        device: device of this rank.

    Returns:
        Epoch and iteration after the steps of all ranks since, and this rank's own step.
    """
    steps_since = torch.tensor([position.step - start.step], dtype=torch.float64, device=device)
    group.all_reduce(steps_since)
    epochs, iteration = divmod(start.iteration + round(steps_since.item()), steps)
    return Position(start.epoch + epochs, iteration, position.step)


def position_of_rank_0(position: Position, group: Group, *, device: str) -> Position:
    """Return epoch and iteration of rank 0, and the largest step of any rank; collective."""
    row = torch.tensor([[position.epoch, position.iteration, position.step]], dtype=torch.int64, device=device)
    positions = group.gather_rows(row, [1] * group.size).tolist()
    epoch, iteration, _ = positions[0]
    return Position(epoch, iteration, max(step for *_, step in positions))


def share_moments(optimizer: torch.optim.Optimizer, group: Group) -> None:
    """Broadcast the state of rank 0's optimizer; collective."""
    if group.size == 1:
        return
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict() if group.rank == 0 else {}, buffer)
    state = group.broadcast_array(np.frombuffer(buffer.getvalue(), np.uint8) if group.rank == 0 else None)
    if group.rank != 0:
        optimizer.load_state_dict(torch.load(io.BytesIO(state.tobytes()), weights_only=True))
