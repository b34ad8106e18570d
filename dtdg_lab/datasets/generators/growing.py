"""A generated graph: popular vertices, a growing number of edges, and a share of them renewed at every snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.datasets.generators.counts import check_room, growing_counts
from dtdg_lab.datasets.generators.renewal import check_popularity, popular_targets, popularity, renewed
from dtdg_lab.datasets.generators.settings import checked_settings
from dtdg_lab.datasets.generators.sorted_keys import snapshot_of_rising
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing:
    """A family of generated dynamic graphs; the same parameters and seed give the same graph.

    Attributes:
        name: the data set's name in the lab.
        noise: standard deviation of the number of edges around the curve, relative; drawn for every snapshot and
            bounded at three times itself.
        licence: of what is generated.
        cite: where the idea is from.
        version: of the graphs.
    """

    name: str
    noise: float = 0.05
    licence: str = "none needed: generated here"
    cite: str = "ours; for the simulations of DyGNeX section 5.4"
    version: int = 1

    @checked_settings
    def generate(
        self,
        *,
        seed: int,
        nodes: int,
        edges: int,
        snapshots: int,
        growth: float,
        growth_curve: str = "linear",
        churn: float = 0.1,
        zipf: float = 0.6,
    ) -> IntervalStream:
        """B = ``snapshots`` base intervals without self loops or duplicates.

        Args:
            seed: seed of the random streams.
            nodes: N, vertices; some may have no edge.
            edges: edges of the last interval, before noise; at most a quarter of the N(N - 1) possible ones.
            snapshots: B.
            growth: edges of the last interval over those of the first, before noise.
            growth_curve: ``linear``, ``exponential`` or ``logistic``.
            churn: share of an interval's edges that the next one does not keep.
            zipf: exponent of popularity: the k-th most popular vertex is the target of a new edge with a probability
                proportional to k^-zipf, so in-degrees have a power-law tail of exponent 1 + 1/zipf.

        Raises:
            ConfigError: a setting is out of its bounds, or more edges than fit.
        """
        check_room(nodes, edges)
        weights = popularity(seed, "growing/popularity", nodes, zipf=zipf, shift=1.0)
        check_popularity(weights, edges, zipf=zipf)
        counts = growing_counts(
            (seed, "growing/counts"), edges, snapshots=snapshots, growth=growth, growth_curve=growth_curve,
            noise=self.noise,
        )  # fmt: skip
        return IntervalStream(
            num_intervals=snapshots, num_nodes=nodes, weighted=False, rows=int(counts.sum()),
            make=partial(_snapshots, seed, "growing/edges", weights, counts, 1 - churn),
        )  # fmt: skip


def _snapshots(
    seed: int, name: str, weights: NDArray[np.float64], counts: NDArray[np.int64], kept: float
) -> Iterator[Snapshot]:
    for keys in renewed(seed, name, counts, kept=kept, propose=popular_targets(weights)):
        yield snapshot_of_rising(keys, len(weights))


GROWING = Growing(name="growing")
