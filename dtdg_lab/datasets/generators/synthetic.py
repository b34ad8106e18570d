"""Generators of random dynamic graphs: uniform, power-law and growing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.generators import base
from dtdg_lab.datasets.generators.base import Generated, Keys, checked_settings
from dtdg_lab.graphs.intervals import IntervalStream
from dtdg_lab.graphs.snapshot import Snapshot, distinct, keys_of

# A generated graph: popular nodes, a growing number of edges, and a share of them renewed at every snapshot.


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing(Generated):
    """A growing graph with popular nodes; the same parameters and seed give the same graph.

    Attributes:
        noise: standard deviation of the number of edges around the curve, relative; drawn for every snapshot and
            bounded at three times itself.
    """

    noise: float = 0.05
    cite: str = "ours; for the simulations of DyGNeX section 5.4"

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
        """Generate B = ``snapshots`` base intervals without self loops or duplicates.

        Args:
            seed: seed of the random streams.
            nodes: N, nodes; some may have no edge.
            edges: edges of the last interval, before noise; at most a quarter of the N(N - 1) possible ones.
            snapshots: B.
            growth: edges of the last interval over those of the first, before noise.
            growth_curve: ``linear``, ``exponential`` or ``logistic``.
            churn: share of an interval's edges that the next one does not keep.
            zipf: exponent of popularity: the k-th most popular node is the target of a new edge with a probability
                proportional to k^-zipf, so in-degrees have a power-law tail of exponent 1 + 1/zipf.

        Raises:
            ConfigError: a setting is out of its bounds, or more edges than fit.
        """
        base.check_room(nodes, edges)
        weights = base.popularity(seed, "growing/popularity", nodes, zipf=zipf, shift=1.0)
        base.check_popularity(weights, edges, zipf=zipf)
        counts = base.growing_counts(
            (seed, "growing/counts"),
            edges,
            snapshots=snapshots,
            growth=growth,
            growth_curve=growth_curve,
            noise=self.noise,
        )
        make, rows = partial(_snapshots, seed, "growing/edges", weights, counts, 1 - churn), int(counts.sum())
        return IntervalStream(num_intervals=snapshots, num_nodes=nodes, weighted=False, rows=rows, make=make)


def _snapshots(
    seed: int, name: str, weights: NDArray[np.float64], counts: NDArray[np.int64], kept_share: float
) -> Iterator[Snapshot]:
    for keys in base.renewed(seed, name, counts, kept_share=kept_share, propose=base.popular_targets(weights)):
        yield base.snapshot_of_rising(keys, len(weights))


GROWING = Growing(name="growing")


# A generated graph with popular targets and a constant number of edges, a share of them renewed at every snapshot.
#
# The benchmark workloads W1 (20,000 nodes, 100,000 edges, 41 snapshots) and W2 (200,000, 1,000,000, 21) are of this
# family, with churn 0.1 and zipf 0.6. They use another random stream (benchmarks/).


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw(Generated):
    """Snapshots of equally many edges, with in-degrees that have a power-law tail.

    Attributes:
        shift: added to the rank, counted from 0: it keeps the few most popular nodes from taking all edges.
    """

    shift: float = 10.0
    cite: str = "ours"

    @checked_settings
    def generate(
        self, *, seed: int, nodes: int, edges: int, snapshots: int, churn: float = 0.1, zipf: float = 0.6
    ) -> IntervalStream:
        """Generate B = ``snapshots`` base intervals without self loops or duplicates.

        Args:
            seed: seed of the random streams.
            nodes: N, nodes; some may have no edge.
            edges: edges of each snapshot, at most a quarter of the N(N - 1) possible ones.
            snapshots: B.
            churn: share of a snapshot's edges that the next one does not keep; 0 repeats the first.
            zipf: exponent of popularity: the k-th most popular node, counted from 0, is the target of a new edge
                with a probability proportional to (k + 10)^-zipf; in-degrees have a tail of exponent 1 + 1/zipf.

        Raises:
            ConfigError: a setting is out of its bounds, or more edges than fit.
        """
        base.check_room(nodes, edges)
        weights = base.popularity(seed, "powerlaw/popularity", nodes, zipf=zipf, shift=self.shift)
        base.check_popularity(weights, edges, zipf=zipf)
        counts = np.full(snapshots, edges)
        make, rows = partial(_snapshots, seed, "powerlaw/edges", weights, counts, 1 - churn), edges * snapshots
        return IntervalStream(num_intervals=snapshots, num_nodes=nodes, weighted=False, rows=rows, make=make)


POWERLAW = PowerLaw(name="powerlaw")


# A generated graph of random edges, every snapshot drawn independently of the others.
#
# Source: ESDG section 6.3, weak scaling: "adding N nodes and randomly selecting m = N f pairs of nodes as edges", with
# f = 3 and T = 256.
#
# The paper leaves open whether pairs repeat. Here pairs of a snapshot are distinct, and there are no self loops.


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform(Generated):
    """Independent snapshots of uniformly drawn distinct pairs.

    Attributes:
        density: f, edges for each node where ``edges`` is not given.
    """

    density: int = 3
    cite: str = "Chakaravarthy et al. 2021 (ESDG), section 6.3, weak scaling"

    @checked_settings
    def generate(self, *, seed: int, nodes: int, snapshots: int, edges: int | None = None) -> IntervalStream:
        """Generate B = ``snapshots`` base intervals without self loops or duplicates.

        Args:
            seed: seed of the random streams.
            nodes: N.
            snapshots: B.
            edges: edges of each snapshot, at most a quarter of the N(N - 1) possible ones; None: 3 for each node.

        Raises:
            ConfigError: a setting is out of its bounds, or more edges than fit.
        """
        edges = self.density * nodes if edges is None else edges
        base.check_room(nodes, edges)
        make, rows = partial(_snapshots_uniform, seed, nodes, edges, snapshots), edges * snapshots
        return IntervalStream(num_intervals=snapshots, num_nodes=nodes, weighted=False, rows=rows, make=make)


def _snapshots_uniform(seed: int, nodes: int, edges: int, snapshots: int) -> Iterator[Snapshot]:
    for interval in range(snapshots):
        yield base.snapshot_of_rising(uniform_keys(generator(seed, "uniform/edges", interval), nodes, edges), nodes)


def uniform_keys(draws: np.random.Generator, nodes: int, edges: int) -> Keys:
    """Draw ``edges`` distinct pairs without self loops uniformly; return their rising keys, shape (edges,)."""
    pairs = nodes * (nodes - 1)
    expected = -pairs * math.log1p(-edges / pairs)  # mean number of draws that hit ``edges`` different pairs
    tries = math.ceil(expected + 4 * math.sqrt(expected)) + 16
    result = np.empty(0, dtype=np.int64)
    while len(result) < edges:
        # sums of exponential steps over their total are sorted uniform numbers: nothing has to be sorted
        steps = np.cumsum(draws.standard_exponential(tries + 1))
        result = distinct((steps[:-1] * (pairs / steps[-1])).astype(np.int64).clip(max=pairs - 1))
    dst, src = np.divmod(base.some(draws, result, edges), nodes - 1)
    src += src >= dst  # a node has N - 1 possible sources: all but itself
    return keys_of(src, dst)


UNIFORM = Uniform(name="uniform")
