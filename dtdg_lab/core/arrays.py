"""Reading of stored arrays in any thread: only their headers are parsed one at a time."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dtdg_lab.core.lazy import PARSING

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_array(stream: IO[bytes]) -> NDArray[Any]:
    """The read-only array of an ``.npy`` file that is open.

    Raises:
        ValueError, LookupError, SyntaxError: it is damaged or cut short, or it holds objects.
    """
    read_header = _HEADERS[npy.read_magic(stream)]
    with PARSING:
        shape, fortran, dtype = read_header(stream)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded: reading one may run code")
    values = np.frombuffer(stream.read(), dtype, count=math.prod(shape))
    return values.reshape(shape, order="F" if fortran else "C")


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file by name; their checksums are verified.

    Raises:
        OSError, ValueError, LookupError, SyntaxError, zipfile.BadZipFile, zlib.error: it cannot be read, or is damaged.
    """
    with zipfile.ZipFile(file) as archive:
        return {name.removesuffix(".npy"): read_array(archive.open(name)) for name in archive.namelist()}
