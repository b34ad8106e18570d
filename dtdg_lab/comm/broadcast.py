"""An array from rank 0 to all ranks."""

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
    """Rank 0's array on every rank, a writable copy; its shape and type go first.

    Args:
        array: on rank 0 what to send; what others give is not looked at.
        rank: this process.
        device: where the group's tensors live.
        process_group: torch's group of the ranks; the default one where None.

    Raises:
        ConfigError: rank 0 has nothing of an allowed type to send. All ranks raise, and stay in step.
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
        raise refusal or ConfigError("rank 0 was given nothing that it can send to the others; see its own error.")
    shape = tuple(lengths[:dimensions])
    # rank 0 sends a copy: torch warns of read-only arrays
    mine = np.empty(shape, dtype=_TYPES[code]) if rank else np.array(array, order="C")
    if not math.prod(shape):
        return mine
    data = torch.from_numpy(mine.reshape(-1)).to(device)
    dist.broadcast(data, source, group=process_group)
    received: NDArray[Any] = data.cpu().numpy().reshape(shape)
    return received


def checked(array: NDArray[Any] | None) -> NDArray[Any]:
    """The array, if it can be sent.

    Raises:
        ConfigError: it cannot.
    """
    if isinstance(array, np.ndarray) and array.dtype in _TYPES and array.ndim <= _MOST_DIMENSIONS:
        return array
    given = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
    raise ConfigError(
        f"rank 0 cannot send {given} to the others: give an array of {', '.join(_TYPES)} with at most "
        f"{_MOST_DIMENSIONS} dimensions."
    )


def moved_bytes(array: NDArray[Any], rank: int, size: int) -> tuple[int, int]:
    """Bytes sent and received by this rank, as if rank 0 sent to each other one itself."""
    total = array.nbytes + 8 * _HEADER
    return (total * (size - 1), 0) if rank == 0 else (0, total)


def _header_of(array: NDArray[Any]) -> torch.Tensor:
    lengths = array.shape + (0,) * (_MOST_DIMENSIONS - array.ndim)
    return torch.tensor([_TYPES.index(array.dtype.name), array.ndim, *lengths], dtype=torch.int64)
