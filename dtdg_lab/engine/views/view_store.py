"""Size-bounded cache of graph views, and the number of snapshots that one view stacks."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from itertools import pairwise

from dtdg_lab.engine.views.snapshot_view import SnapshotView

# Rows of stacked snapshots, at most. Above, a product takes longer than the call, and stacking gains nothing.
STACKED_ROWS = {"cpu": 16_384, "cuda": 1_048_576}
# Features of stacked snapshots, at most: overlapping runs of snapshots have stacks, and copies of features, each.
STACKED_NUMBERS = {"cpu": 262_144, "cuda": 16_777_216}


def stack_ranges(snapshots: range, *, rows: int, features: int, device: str) -> list[range]:
    """Consecutive snapshots in runs that are computed together, of about equal length.

    Args:
        snapshots: T consecutive ones.
        rows: of one snapshot; where ranks exchange rows, the most that any of them has.
        features: F.
        device: where they are computed.
    """
    device_type = device.partition(":")[0]
    stack_size = max(1, min(STACKED_ROWS[device_type] // rows, STACKED_NUMBERS[device_type] // (rows * features)))
    pieces = -(-len(snapshots) // stack_size)
    bounds = [snapshots.start + len(snapshots) * piece // pieces for piece in range(pieces + 1)]
    return [range(*pair) for pair in pairwise(bounds)]


class ViewStore:
    """Spaces by their snapshots.

    They are kept while they fit; later ones are rebuilt at every request. For a pass over the sequence again and again
    this beats dropping the oldest.

    Args:
        make: makes the space of some snapshots.
        size: bytes of a space, by an estimate.
        spaces_bytes: most bytes of spaces kept.
        pulls_bytes: most bytes of first-layer pulls kept.
    """

    def __init__(
        self,
        make: Callable[[range], SnapshotView],
        size: Callable[[range], int],
        *,
        spaces_bytes: int,
        pulls_bytes: int,
    ) -> None:
        self._make, self._size = make, size
        self._spaces_bytes, self._spaces_left, self._pulls_left = spaces_bytes, spaces_bytes, pulls_bytes
        self._spaces: dict[range, SnapshotView] = {}
        self._alive: weakref.WeakValueDictionary[range, SnapshotView] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def get(self, snapshots: range) -> SnapshotView:
        """Return the view of these snapshots."""
        if snapshots in self._spaces:
            return self._spaces[snapshots]
        space = self._alive.get(snapshots)  # not kept, but somebody has it still
        if space is not None:
            return space
        space = self._make(snapshots)
        if self.keeps(snapshots):
            self._spaces_left -= self._size(snapshots)
            self._spaces[snapshots] = space
        else:
            self._alive[snapshots] = space
        return space

    def keeps(self, snapshots: range) -> bool:
        """Return whether the space is kept, or will be when it is made."""
        return snapshots in self._spaces or self._size(snapshots) <= self._spaces_left

    def make_room(self, most_bytes: int) -> None:
        """Keep spaces of that many bytes, if these are more than so far."""
        extra_bytes = max(0, most_bytes - self._spaces_bytes)
        self._spaces_bytes, self._spaces_left = self._spaces_bytes + extra_bytes, self._spaces_left + extra_bytes

    def take_pull(self, size: int) -> bool:
        """Return whether a first-layer pull of so many bytes may be kept; it is then counted."""
        with self._lock:  # snapshots are computed on several threads
            fits = size <= self._pulls_left
            self._pulls_left -= size if fits else 0
        return fits
