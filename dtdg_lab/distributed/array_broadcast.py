"""Broadcast of an array, with shape and type, from rank 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError

_TYPES = ("uint8", "int32", "int64", "float64")


_MOST_DIMENSIONS = 6


_HEADER = 2 + _MOST_DIMENSIONS  # type, dimensions, lengths


_REFUSED = -1


def broadcast_array(
    array: NDArray[Any] | None, *, rank: int, device: str, process_group: dist.ProcessGroup | None = None
) -> NDArray[Any]:
    """Broadcast rank 0's array, with shape and type, to a writable copy on every rank.

    Args:
        array: the array to send on rank 0; ignored on other ranks.
        rank: this process.
        device: device of the group's tensors.
        process_group: torch group of the ranks; None is the default group.

    Raises:
        ConfigError: rank 0 has no array of an allowed type. All ranks raise, and stay synchronised.
    """
    header, refusal = torch.zeros(_HEADER, dtype=torch.int64), None
    if rank == 0:
        try:
            header = _header_of(checked(array))
        except ConfigError as error:
            header[0], refusal = _REFUSED, error
    header = header.to(device)
    source = 0 if process_group is None else dist.get_global_rank(process_group, 0)
    dist.broadcast(header, source, group=process_group)
    code, dimensions, *lengths = header.tolist()
    if code == _REFUSED:
        raise refusal or ConfigError("rank 0 has no array that can be sent; see the error of rank 0.")
    shape = tuple(lengths[:dimensions])
    # rank 0 sends a copy, because torch warns about read-only arrays
    mine = np.empty(shape, dtype=_TYPES[code]) if rank else np.array(array, order="C")
    if not math.prod(shape):
        return mine
    data = torch.from_numpy(mine.reshape(-1)).to(device)
    dist.broadcast(data, source, group=process_group)
    return np.asarray(data.cpu().numpy().reshape(shape))


def checked(array: NDArray[Any] | None) -> NDArray[Any]:
    """Check that an array can be broadcast.

    Raises:
        ConfigError: it cannot.
    """
    if isinstance(array, np.ndarray) and array.dtype in _TYPES and array.ndim <= _MOST_DIMENSIONS:
        return array
    description = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
    raise ConfigError(
        f"rank 0 cannot send {description} to the others: give an array of {', '.join(_TYPES)} with at most "
        f"{_MOST_DIMENSIONS} dimensions."
    )


def moved_bytes(array: NDArray[Any], rank: int, size: int) -> tuple[int, int]:
    """Return bytes sent and received by this rank if rank 0 sends to each other rank directly."""
    total = array.nbytes + 8 * _HEADER
    return (total * (size - 1), 0) if rank == 0 else (0, total)


def _header_of(array: NDArray[Any]) -> torch.Tensor:
    lengths = array.shape + (0,) * (_MOST_DIMENSIONS - array.ndim)
    return torch.tensor([_TYPES.index(array.dtype.name), array.ndim, *lengths], dtype=torch.int64)
