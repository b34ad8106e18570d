"""Sets of edges as rising keys (graphs/keys.py): what generators draw, keep and turn into snapshots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.keys import snapshot_of_rows, targets
from dtdg_lab.graphs.snapshot import Snapshot

Keys = NDArray[np.int64]


def snapshot_of_rising(keys: Keys, nodes: int, weights: NDArray[np.float32] | None = None) -> Snapshot:
    """The snapshot of rising keys without duplicates over N = ``nodes`` vertices; nothing is sorted."""
    return snapshot_of_rows(np.bincount(targets(keys), minlength=nodes), keys, weights)


def some(draws: np.random.Generator, keys: Keys, count: int) -> Keys:
    """``count`` of the keys, each equally likely, in the order they have."""
    left = np.ones(len(keys), dtype=bool)
    left[draws.choice(len(keys), len(keys) - count, replace=False, shuffle=False)] = False
    return keys[left]


def merged(first: Keys, second: Keys) -> Keys:
    """The union of two rising sets that share nothing."""
    return np.sort(np.concatenate([first, second]), kind="stable")  # finds the two runs and merges them


def known(keys: Keys, taken: Keys) -> NDArray[np.bool_]:
    """Which of the rising ``keys`` are in the rising ``taken``."""
    place = np.searchsorted(taken, keys)
    found = np.zeros(len(keys), dtype=bool)
    inside = place < len(taken)
    found[inside] = taken[place[inside]] == keys[inside]
    return found
