"""What a generator process and the process it works for send each other, as bytes over pipes.

A message is the length of a head, the head as JSON, and as many bytes as the head says.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from dtdg_lab.parallel.built_batch import BuiltBatch
from dtdg_lab.parallel.target_blocks import TargetBlocks

_LENGTH = struct.Struct("<I")
Head = Mapping[str, Any]


def send(fd: int, head: Head, *pieces: bytes | memoryview) -> None:
    """Write a message.

    Args:
        fd: of the pipe.
        head: anything that JSON has; ``bytes`` is added to it.
        pieces: bytes that follow it.

    Raises:
        OSError: the reader is gone.
    """
    text = json.dumps({**head, "bytes": sum(len(piece) for piece in pieces)}).encode()
    for piece in (_LENGTH.pack(len(text)) + text, *pieces):
        left = memoryview(piece)
        while left:
            left = left[os.write(fd, left) :]


def receive(fd: int) -> tuple[Head, memoryview]:
    """Read a message: its head, and the bytes that follow it.

    Raises:
        EOFError: the writer is gone.
    """
    length = _LENGTH.unpack(_exactly(fd, _LENGTH.size))[0]
    head = json.loads(bytes(_exactly(fd, length)))
    return head, _exactly(fd, head["bytes"])


def send_built(fd: int, built: BuiltBatch, busy_s: float) -> None:
    """Write a batch.

    Args:
        fd: of the pipe.
        built: the batch.
        busy_s: processor seconds of its generator so far.

    Raises:
        OSError: the reader is gone.
    """
    send(fd, {"built_s": built.built_s, "busy_s": busy_s}, built.blocks.to_bytes())


def built_from(head: Head, content: memoryview) -> BuiltBatch:
    """The batch of a message, whose arrays lie in its bytes."""
    return BuiltBatch(TargetBlocks.from_bytes(content), head["built_s"])


def _exactly(fd: int, length: int) -> memoryview:
    """So many bytes, read into memory that is not cleared first, as a bytearray's would be."""
    content = left = np.empty(length, np.uint8).data
    while left:
        count = os.readv(fd, [left])
        if not count:
            raise EOFError("the pipe's other end is closed")
        left = left[count:]
    return content
