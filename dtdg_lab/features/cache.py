"""A cache of rows that other parts own: never changed, only replaced."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError

DENSE_KEYS = 2**22  # up to so many keys a slot for each is kept: 16 MB, and a look-up without a search


class FeatureCache:
    """Rows by key. Nothing in it changes, so any number of threads may read it and a swap is one assignment.

    Args:
        keys: (C,) ascending, distinct.
        rows: (C, F) float32; frozen here, not copied.
        size: of the key space.

    Raises:
        PlanError: keys are not ascending and distinct within the space, or there is not a row for each.
    """

    __slots__ = ("_slots", "keys", "rows")

    def __init__(self, keys: NDArray[np.int64], rows: NDArray[np.float32], *, size: int) -> None:
        if keys.ndim != 1 or rows.ndim != 2 or len(rows) != len(keys):
            raise PlanError(f"a cache of keys {keys.shape} and rows {rows.shape}: one row for each key is needed.")
        if len(keys) and (keys[0] < 0 or keys[-1] >= size or not (np.diff(keys) > 0).all()):
            raise PlanError(f"keys of a cache must ascend, distinct, from 0 to {size - 1}.")
        self.keys, self.rows = keys, rows
        for array in (keys, rows):
            array.setflags(write=False)
        self._slots: NDArray[np.int32] | None = None
        if size <= DENSE_KEYS:
            self._slots = np.full(size, -1, dtype=np.int32)
            self._slots[keys] = np.arange(len(keys), dtype=np.int32)

    @staticmethod
    def empty(features: int, *, size: int) -> FeatureCache:
        """A cache that holds nothing of F features."""
        return FeatureCache(np.empty(0, dtype=np.int64), np.empty((0, features), dtype=np.float32), size=size)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Of rows, keys and what finds them."""
        return self.rows.nbytes + self.keys.nbytes + (0 if self._slots is None else self._slots.nbytes)

    def find(self, keys: NDArray[np.int64]) -> NDArray[np.integer]:
        """Places (K,) in ``rows`` of keys (K,), -1 where a key is not held."""
        if self._slots is not None:
            return self._slots[keys]
        if not len(self.keys):
            return np.full(len(keys), -1)
        order = np.argsort(keys)  # a search in order reads memory in order, twice as fast
        asked, found = keys[order], np.empty(len(keys), dtype=np.int64)
        slots = np.minimum(np.searchsorted(self.keys, asked), len(self.keys) - 1)
        found[order] = np.where(self.keys[slots] == asked, slots, -1)
        return found
