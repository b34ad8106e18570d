"""A generated graph with popular targets and a constant number of edges, a share of them renewed at every snapshot.

The lab's benchmark workloads W1 (20,000 vertices, 100,000 edges, 41 snapshots) and W2 (200,000, 1,000,000, 21) are of
this family, with churn 0.1 and zipf 0.6; they are drawn from another random stream (benchmarks/).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.datasets.generators.counts import check_room
from dtdg_lab.datasets.generators.renewal import check_popularity, popular_targets, popularity, renewed
from dtdg_lab.datasets.generators.settings import checked_settings
from dtdg_lab.datasets.generators.sorted_keys import snapshot_of_rising
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """Snapshots of equally many edges, with in-degrees that have a power-law tail.

    Attributes:
        name: the data set's name in the lab.
        shift: added to the rank, counted from 0: it keeps the few most popular vertices from taking all edges.
        licence: of what is generated.
        cite: where the idea is from.
        version: of the graphs.
    """

    name: str
    shift: float = 10.0
    licence: str = "none needed: generated here"
    cite: str = "ours"
    version: int = 1

    @checked_settings
    def generate(
        self, *, seed: int, nodes: int, edges: int, snapshots: int, churn: float = 0.1, zipf: float = 0.6
    ) -> IntervalStream:
        """B = ``snapshots`` base intervals without self loops or duplicates.

        Args:
            seed: seed of the random streams.
            nodes: N, vertices; some may have no edge.
            edges: edges of each snapshot, at most a quarter of the N(N - 1) possible ones.
            snapshots: B.
            churn: share of a snapshot's edges that the next one does not keep; 0 repeats the first for ever.
            zipf: exponent of popularity: the k-th most popular vertex, counted from 0, is the target of a new edge
                with a probability proportional to (k + 10)^-zipf; in-degrees have a tail of exponent 1 + 1/zipf.

        Raises:
            ConfigError: a setting is out of its bounds, or more edges than fit.
        """
        check_room(nodes, edges)
        weights = popularity(seed, "powerlaw/popularity", nodes, zipf=zipf, shift=self.shift)
        check_popularity(weights, edges, zipf=zipf)
        return IntervalStream(
            num_intervals=snapshots, num_nodes=nodes, weighted=False, rows=edges * snapshots,
            make=partial(_snapshots, seed, weights, np.full(snapshots, edges), 1 - churn),
        )  # fmt: skip


def _snapshots(seed: int, weights: NDArray[np.float64], counts: NDArray[np.int64], kept: float) -> Iterator[Snapshot]:
    for keys in renewed(seed, "powerlaw/edges", counts, kept=kept, propose=popular_targets(weights)):
        yield snapshot_of_rising(keys, len(weights))


POWERLAW = PowerLaw(name="powerlaw")
