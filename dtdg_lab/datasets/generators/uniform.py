"""A generated graph of random edges, every snapshot drawn independently of the others.

Source: ESDG section 6.3, weak scaling: "adding N vertices and randomly selecting m = N f pairs of vertices as edges",
f = 3, T = 256 there.

Differs from the paper, which does not say: pairs of a snapshot are distinct, and no vertex is paired with itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from dtdg_lab.core.streams import generator
from dtdg_lab.datasets.generators.counts import check_room
from dtdg_lab.datasets.generators.settings import checked_settings
from dtdg_lab.datasets.generators.sorted_keys import Keys, snapshot_of_rising, some
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.keys import distinct, keys_of
from dtdg_lab.graphs.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Independent snapshots in which every set of as many distinct pairs is equally likely.

    Attributes:
        name: the data set's name in the lab.
        density: f, edges a vertex where their number is not given.
        licence: of what is generated.
        cite: where the idea is from.
        version: of the graphs.
    """

    name: str
    density: int = 3
    licence: str = "none needed: generated here"
    cite: str = "Chakaravarthy et al. 2021 (ESDG), section 6.3, weak scaling"
    version: int = 1

    @checked_settings
    def generate(self, *, seed: int, nodes: int, snapshots: int, edges: int | None = None) -> IntervalStream:
        """B = ``snapshots`` base intervals without self loops or duplicates.

        Args:
            seed: seed of the random streams.
            nodes: N.
            snapshots: B.
            edges: edges of each snapshot, at most a quarter of the N(N - 1) possible ones; None: three a vertex.

        Raises:
            ConfigError: a setting is out of its bounds, or more edges than fit.
        """
        edges = self.density * nodes if edges is None else edges
        check_room(nodes, edges)
        return IntervalStream(
            num_intervals=snapshots, num_nodes=nodes, weighted=False, rows=edges * snapshots,
            make=partial(_snapshots, seed, nodes, edges, snapshots),
        )  # fmt: skip


def _snapshots(seed: int, nodes: int, edges: int, snapshots: int) -> Iterator[Snapshot]:
    for interval in range(snapshots):
        yield snapshot_of_rising(uniform_keys(generator(seed, "uniform/edges", interval), nodes, edges), nodes)


def uniform_keys(draws: np.random.Generator, nodes: int, edges: int) -> Keys:
    """Rising keys of ``edges`` distinct pairs without loops, shape (edges,); every such set is equally likely."""
    pairs = nodes * (nodes - 1)
    expected = -pairs * math.log1p(-edges / pairs)  # draws that hit so many different pairs on average
    tries = math.ceil(expected + 4 * math.sqrt(expected)) + 16
    found = np.empty(0, dtype=np.int64)
    while len(found) < edges:
        # sums of exponential steps over their total are sorted uniform numbers: nothing has to be sorted
        steps = np.cumsum(draws.standard_exponential(tries + 1))
        found = distinct((steps[:-1] * (pairs / steps[-1])).astype(np.int64).clip(max=pairs - 1))
    dst, src = np.divmod(some(draws, found, edges), nodes - 1)
    src += src >= dst  # a vertex has N - 1 possible sources: all but itself
    return keys_of(src, dst)


UNIFORM = Uniform(name="uniform")
