"""Chunks in files."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

import numpy as np

from dtdg_lab.core.batch_plans import Chunking
from dtdg_lab.core.errors import DataError, PlanError
from dtdg_lab.partition.store import DAMAGE

FORMAT = "dtdg-lab chunks 1"


def save_chunks(chunking: Chunking, file: Path) -> None:
    """Write chunks into one file, whole or not at all; a file already there is replaced.

    Raises:
        DataError: it cannot be written.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as out:
            np.savez_compressed(
                out, allow_pickle=False, format=np.array(FORMAT), chunk=chunking.chunk,
                chunks=np.array(chunking.chunks), parts=np.array(chunking.parts), made_by=np.array(chunking.made_by),
                seconds=np.array(float(chunking.seconds)),
            )  # fmt: skip
        draft.replace(file)
    except OSError as error:
        raise DataError(f"cannot write the chunks to {file}: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):  # where it could not be made, there is none
            draft.unlink()


def load_chunks(file: Path, nodes: int, *, chunks: int, parts: int) -> Chunking:
    """Read what :func:`save_chunks` wrote.

    Args:
        file: it.
        nodes: N that it must hold.
        chunks: C that each part must have.
        parts: P.

    Raises:
        DataError: there is no such file, or it is damaged, or holds something else.
    """
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}  # reading checks each array's checksum
        if str(found["format"]) != FORMAT:
            raise ValueError(f"its format is {str(found['format'])[:40]!r}, not {FORMAT!r}")
        made = Chunking(
            found["chunk"], int(found["chunks"]), int(found["parts"]), str(found["made_by"]), float(found["seconds"])
        )
    except (*DAMAGE, PlanError) as error:
        raise DataError(f"{file} holds no chunks, or damaged ones: {error}") from error
    if (len(made.chunk), made.chunks, made.parts) != (nodes, chunks, parts):
        raise DataError(f"{file} holds {made!r}, not {chunks} chunks in each of {parts} parts of {nodes:,} vertices.")
    return made
