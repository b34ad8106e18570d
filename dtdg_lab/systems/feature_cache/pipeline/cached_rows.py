"""An immutable cache of rows that other parts own, and a check that it fits into memory."""

from __future__ import annotations

import numpy as np
import psutil
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError

DENSE_KEYS = 2**22  # up to this number, a dense index of all keys is stored: 16 MB, and look-ups without a search


class FeatureCache:
    """Rows by key. It is immutable, so it is thread-safe to read, and a swap is one assignment.

    Args:
        keys: (C,) ascending, distinct.
        rows: (C, F) float32; made read-only, not copied.
        size: of the key space.
    """

    __slots__ = ("_slots", "keys", "rows")

    def __init__(self, keys: NDArray[np.int64], rows: NDArray[np.float32], *, size: int) -> None:
        self.keys, self.rows = keys, rows
        for array in (keys, rows):
            array.setflags(write=False)
        self._slots: NDArray[np.int32] | None = None
        if size <= DENSE_KEYS:
            self._slots = np.full(size, -1, dtype=np.int32)
            self._slots[keys] = np.arange(len(keys), dtype=np.int32)

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, keys: NDArray[np.int64]) -> NDArray[np.integer]:
        """Return row indices (K,) of keys (K,), -1 for keys that are not in the cache."""
        if self._slots is not None:
            return self._slots[keys]
        if not len(self.keys):
            return np.full(len(keys), -1)
        order = np.argsort(keys)  # searching in order accesses memory sequentially, twice as fast
        sorted_keys, rows = keys[order], np.empty(len(keys), dtype=np.int64)
        slots = np.minimum(np.searchsorted(self.keys, sorted_keys), len(self.keys) - 1)
        rows[order] = np.where(self.keys[slots] == sorted_keys, slots, -1)
        return rows


BUFFERS = 2  # the current cache, and the one being built


def check_cache_memory(capacity: int, row_bytes: int, *, caches: int = 1, available: int | None = None) -> None:
    """Reject a cache larger than memory before anything is fetched.

    Args:
        capacity: rows of a cache.
        row_bytes: of a row.
        caches: number of caches on this machine.
        available: bytes of memory; None asks the operating system.

    Raises:
        ConfigError: the rows of both buffers exceed the available memory.
    """
    available = int(psutil.virtual_memory().available) if available is None else available
    needed = capacity * row_bytes * BUFFERS * caches
    if needed > available:
        max_rows = available // (row_bytes * BUFFERS * caches)
        raise ConfigError(
            f"cache_rows={capacity} exceeds memory: {BUFFERS} buffers of {capacity} rows of {row_bytes} bytes"
            f"{f' for each of {caches} parts' if caches > 1 else ''} need {needed / 1e9:.3g} GB, and "
            f"{available / 1e9:.3g} GB are available. Choose at most {max_rows} rows."
        )
