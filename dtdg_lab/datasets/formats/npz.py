"""Arrays in numpy's ``.npz``, read without numpy's own reader, which trusts the sizes a file declares."""

from __future__ import annotations

import io
import math
import re
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.archives import MAX_RATIO
from dtdg_lab.graphs.arrays import give_up

_HEADER = re.compile(
    rb"\{'descr': '([<>|][iuf][1248])', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19}, ?)*(?:\d{1,19})?)\), *\} *\n?"
)
_MAX_HEADER = 10_000
_FREE_BYTES = 64 << 20
# what zipfile and zlib raise for damaged files, as fuzzing them showed
_DAMAGE = (OSError, EOFError, ValueError, KeyError, RuntimeError, NotImplementedError, zlib.error, zipfile.BadZipFile)


def read_npz(stream: IO[bytes], names: Mapping[str, bool], where: str) -> dict[str, NDArray[Any]]:
    """Some arrays of an ``.npz``, by name, read-only.

    Args:
        stream: the file, from which one can read anywhere.
        names: the arrays wanted, and whether each must be there.
        where: the file's name, for messages.

    Raises:
        DataError: the file is damaged, an array is missing, is of something else than numbers, or is announced far
            larger than the file.
    """
    found: dict[str, NDArray[Any]] = {}
    try:
        size = stream.seek(0, io.SEEK_END)
        with zipfile.ZipFile(stream) as archive:
            held = set(archive.namelist())
            for name, needed in names.items():
                if f"{name}.npy" in held:
                    with archive.open(f"{name}.npy") as member:
                        found[name] = _read(member, max(_FREE_BYTES, MAX_RATIO * size), f"{where} ({name})")
                elif needed:
                    raise DataError(f"{where} has no {name!r}; it has {', '.join(sorted(held)[:12])}. Fetch it again.")
    except _DAMAGE as error:
        reason = error or type(error).__name__
        raise DataError(f"{where} is no npz that can be read: {reason}. Delete it and fetch it again.") from error
    return found


def _read(member: IO[bytes], most: int, where: str) -> NDArray[Any]:
    head = member.read(10)
    wide = head[6:7] in (b"\x02", b"\x03")
    length = int.from_bytes(head[8:10] + (member.read(2) if wide else b""), "little")
    header = _HEADER.fullmatch(member.read(length)) if length <= _MAX_HEADER else None
    if head[:6] != b"\x93NUMPY" or header is None:
        raise DataError(f"{where} is no array of whole numbers or floats as numpy writes them. Fetch the file again.")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(size) for size in header[3].split(b",") if size.strip())
    needed = math.prod(shape) * dtype.itemsize
    if needed > most:
        raise DataError(f"{where} announces {needed:,} bytes; at most {most:,} is allowed for a file of its size.")
    flat = _filled(member, needed, where)
    array = flat.view(dtype).reshape(shape, order="F" if header[2] == b"True" else "C")
    return give_up(array if dtype.isnative else array.astype(dtype.newbyteorder("=")))


def _filled(member: IO[bytes], needed: int, where: str) -> NDArray[np.uint8]:
    """The bytes of an array. Memory that was announced and does not come is never touched."""
    try:
        flat = np.empty(needed, dtype=np.uint8)
    except MemoryError as error:
        raise DataError(f"{where} needs {needed:,} bytes of memory; this machine has not as much free.") from error
    at = 0
    while at < needed:
        chunk = member.read(min(needed - at, 16 << 20))
        if not chunk:
            raise DataError(f"{where} has {at:,} bytes; {needed:,} are announced. It is cut short: fetch it again.")
        flat[at : at + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
        at += len(chunk)
    return flat
