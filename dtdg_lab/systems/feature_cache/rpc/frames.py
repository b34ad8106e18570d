"""Messages between feature servers and clients: a fixed header, then an array as raw bytes.

A request has two frames, a header and the keys (k,) int64. A reply has a header and rows (k, F) float32, or a header
and the text of a refusal. Nothing is unpickled: contents are checked against the header before they are read as
numbers. Access is checked when a connection is made (see :mod:`dtdg_lab.systems.feature_cache.rpc.server_process`).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

USER = b"dtdg-lab"  # user name sent with a run's token
ROWS, REFUSED, COMING = 1, 2, 3  # kinds of replies: rows, refusal, keep-alive
MOST_TEXT = 300  # maximum characters of a refusal
_MAGIC = b"DTf1"
_REQUEST = struct.Struct("<4sIQdQ")  # magic, requesting part, request number, timeout in seconds, keys
_REPLY = struct.Struct("<4sIQQQ")  # magic, kind, request number, rows, floats per row


@dataclass(frozen=True, slots=True)
class FeatureRequest:
    """A received request.

    Attributes:
        requester: the requesting part.
        number: number of the request, counted by the requester.
        timeout_s: seconds without a message after which the requester gives up.
        keys: (k,) int64.
        nbytes: bytes of its frames.
    """

    requester: int
    number: int
    timeout_s: float
    keys: NDArray[np.int64]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A received reply.

    Attributes:
        kind: ``ROWS``, ``REFUSED`` or ``COMING``.
        number: number of the request.
        rows: (k, F) float32, read-only; (0, 0) unless the kind is ``ROWS``.
        refusal: reason of a refusal.
        nbytes: bytes of its frames.
    """

    kind: int
    number: int
    rows: NDArray[np.float32]
    refusal: str
    nbytes: int


def request_frames(requester: int, number: int, timeout_s: float, keys: NDArray[np.int64]) -> list[Any]:
    """Return the frames of a request; the keys are not copied."""
    return [_REQUEST.pack(_MAGIC, requester, number, timeout_s, len(keys)), np.ascontiguousarray(keys, dtype="<i8")]


def read_request(frames: list[Any]) -> FeatureRequest | None:
    """Parse a request; None if it is malformed.

    Args:
        frames: buffers, without the sender's routing frame.
    """
    if len(frames) != 2 or len(frames[0]) != _REQUEST.size:
        return None
    magic, requester, number, timeout_s, count = _REQUEST.unpack(frames[0])
    if magic != _MAGIC or len(frames[1]) != 8 * count or not (math.isfinite(timeout_s) and timeout_s > 0):
        return None
    keys = _aligned(np.frombuffer(frames[1], dtype="<i8"))
    return FeatureRequest(requester, number, timeout_s, keys, len(frames[0]) + len(frames[1]))


def rows_frames(number: int, rows: NDArray[np.float32]) -> list[Any]:
    """Return the frames of a reply with rows (k, F); the rows are not copied."""
    return [_REPLY.pack(_MAGIC, ROWS, number, *rows.shape), rows]


def refusal_frames(number: int, reason: str) -> list[Any]:
    """Return the frames of a refusal."""
    return [_REPLY.pack(_MAGIC, REFUSED, number, 0, 0), reason[:MOST_TEXT].encode()]


def coming_frames(number: int) -> list[Any]:
    """Return the frames of a keep-alive: the reply is delayed by a slow link."""
    return [_REPLY.pack(_MAGIC, COMING, number, 0, 0), b""]


def rows_nbytes(rows: int, features: int) -> int:
    """Return the bytes of a reply with this number of rows."""
    return _REPLY.size + 4 * rows * features


def read_reply(frames: list[Any]) -> Reply | None:
    """Parse a reply; None if it is malformed.

    Args:
        frames: buffers; the rows are not copied.
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
    """Return the array, copied unless it is aligned: small frames can start at any byte of the received buffer."""
    return array if array.flags.aligned else array.copy()
