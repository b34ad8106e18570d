"""What every rank does by itself before they do something together: if it fails on one, it fails on all."""

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
from dtdg_lab.training.checkpoint import Position

T = TypeVar("T")


@contextmanager
def together(group: Group, *, device: str) -> Iterator[None]:
    """Let no rank go on to what is collective where another one cannot; collective itself.

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
    failed = next((rank for rank, described in enumerate(reasons) if described), None)
    if failed is not None:
        raise RunFailedError(f"rank {failed} could not build it: {reasons[failed]}")


def attempted(work: Callable[[], T], group: Group, *, device: str) -> tuple[T | None, str]:
    """What ``work`` gives, or why it cannot be had: the same reason on all ranks, empty where all of them have it.

    Collective. What every rank does by itself may fail on any; of work that is collective in itself, only what fails on
    all of them, or on the last to do its share, comes back.

    Args:
        work: to be done.
        group: the ranks.
        device: where this rank computes.
    """
    made, failure = None, ""
    try:
        made = work()
    except (LabError, OSError, MemoryError, RuntimeError) as error:
        failure = error_text(error)
    return made, shared_reason(failure, group, device=device)


def shared_reason(failure: str, group: Group, *, device: str) -> str:
    """Why a change cannot be made, the same on all ranks; empty where all of them can make it. Collective.

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
    """Whether it is set on any rank; collective."""
    word = torch.tensor([float(flag)], dtype=torch.float64, device=device)
    group.all_reduce(word)
    return bool(word.item())


def joined(start: Position, position: Position, group: Group, *, steps: int, device: str) -> Position:
    """Where ranks are together that share the steps of an epoch; collective.

    Args:
        start: where all of them began; ``step`` is this rank's own.
        position: where this rank is.
        group: the ranks.
        steps: of an epoch, by all ranks together.
        device: where this rank computes.

    Returns:
        Epoch and iteration after all that ranks have made since, and this rank's own step.
    """
    own = torch.tensor([position.step - start.step], dtype=torch.float64, device=device)
    group.all_reduce(own)
    epochs, iteration = divmod(start.iteration + round(own.item()), steps)
    return Position(start.epoch + epochs, iteration, position.step)


def as_rank_0(position: Position, group: Group, *, device: str) -> Position:
    """Epoch and iteration of rank 0, and a step after all that any rank has made; collective."""
    own = torch.tensor([[position.epoch, position.iteration, position.step]], dtype=torch.int64, device=device)
    every = group.gather_rows(own, [1] * group.size).tolist()
    epoch, iteration, _ = every[0]
    return Position(epoch, iteration, max(step for *_, step in every))


def share_moments(optimizer: torch.optim.Optimizer, group: Group) -> None:
    """Give every rank what rank 0's optimiser remembers; collective."""
    if group.size == 1:
        return
    held = io.BytesIO()
    torch.save(optimizer.state_dict() if group.rank == 0 else {}, held)
    described = group.broadcast_array(np.frombuffer(held.getvalue(), np.uint8) if group.rank == 0 else None)
    if group.rank != 0:
        optimizer.load_state_dict(torch.load(io.BytesIO(described.tobytes()), weights_only=True))
