"""A data set outside the package: a ring whose edges become longer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from dtdg_lab.datasets.generators.base import Generated, snapshot_of_rising
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import Snapshot, keys_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring(Generated):
    """Node v has an edge to node v + 1, then to v + 2, ... and, by chance, some have none."""

    name: str = "ring"
    cite: str = "this test"

    def generate(self, *, seed: int, nodes: int, snapshots: int) -> IntervalStream:
        """Return B = ``snapshots`` intervals of N nodes."""
        make = partial(_snapshots, seed, nodes, snapshots)
        return IntervalStream(num_intervals=snapshots, num_nodes=nodes, weighted=False, make=make)


def _snapshots(seed: int, nodes: int, snapshots: int) -> Iterator[Snapshot]:
    draws = np.random.default_rng(seed)
    for step in range(snapshots):
        src = np.flatnonzero(draws.random(nodes) < 0.8)
        keys = keys_of(src, (src + 1 + step % (nodes - 1)) % nodes)
        yield snapshot_of_rising(np.sort(keys), nodes)


RING = Ring()
