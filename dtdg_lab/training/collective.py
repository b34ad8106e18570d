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
        RunFailedError: another rank failed; the message has its number and reason. A rank that failed itself raises
            what it failed with.
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
    """Return the result of ``work``, and why it failed: the same reason on all ranks, empty if it failed on none.

    Collective. What every rank does by itself may fail on any. Work that is collective itself must fail on all ranks,
    or on the last to do its share.

    Args:
        work: what every rank does.
        group: the ranks.
        device: where this rank computes.
    """
    result, failure = None, ""
    try:
        result = work()
    except (LabError, OSError, MemoryError, RuntimeError) as error:
        failure = error_text(error)
    return result, shared_reason(failure, group, device=device)


def shared_reason(failure: str, group: Group, *, device: str) -> str:
    """Return why a change cannot be made, the same on all ranks; empty where all can make it. Collective.

    Args:
        failure: why this rank cannot; empty where it can.
        group: the ranks.
        device: where this rank computes.
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
    """Return where ranks are together that share the steps of an epoch; collective.

    Args:
        start: where all of them began; ``step`` is this rank's own.
        position: where this rank is.
        group: the ranks.
        steps: of an epoch, by all ranks together.
        device: where this rank computes.

    Returns:
        Epoch and iteration after all that ranks have made since, and this rank's own step.
    """
    steps_since = torch.tensor([position.step - start.step], dtype=torch.float64, device=device)
    group.all_reduce(steps_since)
    epochs, iteration = divmod(start.iteration + round(steps_since.item()), steps)
    return Position(start.epoch + epochs, iteration, position.step)


def position_of_rank_0(position: Position, group: Group, *, device: str) -> Position:
    """Return epoch and iteration of rank 0, and the step after all that any rank has made; collective."""
    row = torch.tensor([[position.epoch, position.iteration, position.step]], dtype=torch.int64, device=device)
    positions = group.gather_rows(row, [1] * group.size).tolist()
    epoch, iteration, _ = positions[0]
    return Position(epoch, iteration, max(step for *_, step in positions))


def share_moments(optimizer: torch.optim.Optimizer, group: Group) -> None:
    """Give every rank the state of rank 0's optimizer; collective."""
    if group.size == 1:
        return
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict() if group.rank == 0 else {}, buffer)
    state = group.broadcast_array(np.frombuffer(buffer.getvalue(), np.uint8) if group.rank == 0 else None)
    if group.rank != 0:
        optimizer.load_state_dict(torch.load(io.BytesIO(state.tobytes()), weights_only=True))
