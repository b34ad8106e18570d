"""Room for a graph under construction: one that cannot fit is refused before it fills the memory or the disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dtdg_lab.core.errors import DataError


def check_room(steps: int, nodes: int, features: int, into: Path | None) -> None:
    """Refuse a graph whose vertex values alone, whatever its edges, are larger than the place they are to go.

    Args:
        steps: T, snapshots that will be kept.
        nodes: N.
        features: numbers that each vertex has anew at every snapshot; 0 where features never change.
        into: the folder that the graph is written to; None where it is held in memory.

    Raises:
        DataError: the message has the sizes.
    """
    values = features + 2  # with the target and its persistence, float32
    needed = steps * nodes * (4 * values + (8 if into is not None else 0))  # in files every row pointer is there, too
    if into is None:
        have, place = memory_bytes(), "this machine has {} of memory"
    else:
        have, place = free_bytes(into), f"{into.parent} has {{}} free"
    if needed > have:
        raise DataError(
            f"{steps:,} snapshots of {nodes:,} vertices, with {values} numbers each, take {_size(needed)}, and "
            f"{place.format(_size(have))}. Cut fewer intervals, set min_edges to leave empty ones out, or choose "
            "features='constant'."
        )


def memory_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_bytes(folder: Path) -> int:
    """Free space on the disk that will hold a folder, which need not be there yet."""
    place = Path(os.path.abspath(folder))
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def _size(count: int) -> str:
    return f"{count / 1e9:.3g} GB"
