"""What servers of features and those who ask them say to each other: a fixed head, then an array as it lies in memory.

A request is two frames, a head and the keys (k,) int64; a reply is a head and rows (k, F) float32, or a head and the
text of a refusal. Nothing is unpickled: what comes is measured against its head before it is read as numbers. Who may
speak at all is decided before, where the connection is made (see :mod:`dtdg_lab.comm.feature_child`).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

USER = b"dtdg-lab"  # name under which a run's token is given
ROWS, REFUSED, COMING = 1, 2, 3  # kinds of replies: what was asked for, why it is not given, a sign of life
MOST_TOLD = 300  # letters of a refusal

_MAGIC = b"DTf1"
_REQUEST = struct.Struct("<4sIQdQ")  # magic, part that asks, number, seconds it waits, keys
_REPLY = struct.Struct("<4sIQQQ")  # magic, kind, number of the request, rows, floats of each


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came.

    Attributes:
        requester: part that asks.
        number: of the request, the asker's own count.
        timeout_s: seconds of silence after which it gives up.
        keys: (k,) int64.
        nbytes: of its frames.
    """

    requester: int
    number: int
    timeout_s: float
    keys: NDArray[np.int64]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as it came.

    Attributes:
        kind: ``ROWS``, ``REFUSED`` or ``COMING``.
        number: of the request.
        rows: (k, F) float32, not to be written to; (0, 0) unless of the kind ``ROWS``.
        told: why it is refused.
        nbytes: of its frames.
    """

    kind: int
    number: int
    rows: NDArray[np.float32]
    told: str
    nbytes: int


def request_frames(requester: int, number: int, timeout_s: float, keys: NDArray[np.int64]) -> list[Any]:
    """The frames of a request; the keys are not copied."""
    return [_REQUEST.pack(_MAGIC, requester, number, timeout_s, len(keys)), np.ascontiguousarray(keys, dtype="<i8")]


def read_request(frames: list[Any]) -> Request | None:
    """What was asked; None if that cannot be told.

    Args:
        frames: buffers, without the sender's routing frame.
    """
    if len(frames) != 2 or len(frames[0]) != _REQUEST.size:
        return None
    magic, requester, number, timeout_s, count = _REQUEST.unpack(frames[0])
    if magic != _MAGIC or len(frames[1]) != 8 * count or not (math.isfinite(timeout_s) and timeout_s > 0):
        return None
    keys = _aligned(np.frombuffer(frames[1], dtype="<i8"))
    return Request(requester, number, timeout_s, keys, len(frames[0]) + len(frames[1]))


def rows_frames(number: int, rows: NDArray[np.float32]) -> list[Any]:
    """The frames of a reply with rows (k, F), which are not copied."""
    return [_REPLY.pack(_MAGIC, ROWS, number, *rows.shape), rows]


def refusal_frames(number: int, told: str) -> list[Any]:
    """The frames of a reply that says why there are no rows."""
    return [_REPLY.pack(_MAGIC, REFUSED, number, 0, 0), told[:MOST_TOLD].encode()]


def coming_frames(number: int) -> list[Any]:
    """The frames of a sign of life: the reply is on its slow way."""
    return [_REPLY.pack(_MAGIC, COMING, number, 0, 0), b""]


def rows_nbytes(rows: int, features: int) -> int:
    """Bytes of the frames of a reply with so many rows."""
    return _REPLY.size + 4 * rows * features


def read_reply(frames: list[Any]) -> Reply | None:
    """What was answered; None if that cannot be told.

    Args:
        frames: buffers; the rows stay where they are.
    """
    if len(frames) != 2 or len(frames[0]) != _REPLY.size:
        return None
    magic, kind, number, count, features = _REPLY.unpack(frames[0])
    nbytes = len(frames[0]) + len(frames[1])
    if magic != _MAGIC or kind not in (ROWS, REFUSED, COMING):
        return None
    nothing = np.empty((0, 0), dtype=np.float32)
    if kind != ROWS:
        return Reply(kind, number, nothing, bytes(frames[1]).decode(errors="replace"), nbytes)
    if nbytes != rows_nbytes(count, features):
        return None
    rows = _aligned(np.frombuffer(frames[1], dtype="<f4")).reshape(count, features)
    return Reply(kind, number, rows, "", nbytes)


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """The array, copied if it begins where no number may: small frames lie anywhere in what was received."""
    return array if array.flags.aligned else array.copy()
