"""A generated graph: popular vertices, linear growth, and a tenth of the edges renewed at every snapshot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.streams import generator
from dtdg_lab.graphs.windows import IntervalEdges

# raise it when the same parameters give another graph, so that older ones are not taken from a cache
GENERATOR_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing:
    """A family of generated dynamic graphs; the same parameters and seed give the same graph.

    Attributes:
        name: the data set's name in the lab.
        zipf: exponent of popularity: the k-th most popular vertex is the target of a new edge with a probability
            proportional to k^-zipf, so in-degrees have a power-law tail of exponent 1 + 1/zipf.
        kept: share of a snapshot's edges that the next one keeps.
        noise: standard deviation of the number of edges around the line, relative; drawn for every snapshot and
            bounded at three times itself.
        licence: of what is generated.
        cite: where the idea is from.
    """

    name: str
    zipf: float = 0.6
    kept: float = 0.9
    noise: float = 0.05
    licence: str = "none needed: generated here"
    cite: str = "ours; linear growth with 5 % noise of DyGNeX section 7"

    def generate(self, *, seed: int, nodes: int, edges: int, snapshots: int, growth: float) -> IntervalEdges:
        """Edges in B = ``snapshots`` base intervals, without self loops or duplicates.

        Args:
            seed: seed of the random streams.
            nodes: N, vertices; some may have no edge.
            edges: edges of the last interval, before noise; at most a quarter of the N(N - 1) possible ones.
            snapshots: B.
            growth: edges of the last interval over those of the first, before noise.

        Raises:
            ConfigError: more edges than fit.
        """
        most = nodes * (nodes - 1) // 4
        if edges > most:
            raise ConfigError(
                f"generated_edges={edges} with generated_nodes={nodes}: at most {most}, a quarter of all pairs. "
                "Lower generated_edges, or raise generated_nodes."
            )
        counts = self._counts(seed, edges, snapshots, growth)
        popularity = (generator(seed, "growing/popularity").permutation(nodes) + 1.0) ** -self.zipf
        cumulated = np.cumsum(popularity)
        cumulated /= cumulated[-1]
        keys: list[NDArray[np.int64]] = []
        current = np.empty(0, dtype=np.int64)  # sorted keys target * N + source
        for interval, count in enumerate(counts.tolist()):
            draws = generator(seed, "growing/edges", interval)
            stay = _some(draws, current, min(round(self.kept * len(current)), count))
            current = np.sort(np.concatenate([stay, _new_keys(draws, cumulated, stay, count - len(stay))]))
            keys.append(current)
        every = np.concatenate(keys)
        return IntervalEdges(
            src=(every % nodes).astype(np.int32), dst=(every // nodes).astype(np.int32),
            interval=np.repeat(np.arange(snapshots, dtype=np.int32), counts), num_intervals=snapshots, num_nodes=nodes,
        )  # fmt: skip

    def _counts(self, seed: int, edges: int, snapshots: int, growth: float) -> NDArray[np.int64]:
        """Edges of every interval, shape (B,)."""
        line = np.linspace(edges / growth, edges, snapshots)
        noise = generator(seed, "growing/counts").standard_normal(snapshots).clip(-3, 3) * self.noise
        return np.maximum(np.rint(line * (1 + noise)), 1).astype(np.int64)


def _some(draws: np.random.Generator, keys: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """``count`` of the keys, each equally likely, in the order they have."""
    left = np.ones(len(keys), dtype=bool)
    left[draws.choice(len(keys), len(keys) - count, replace=False, shuffle=False)] = False
    return keys[left]


def _new_keys(
    draws: np.random.Generator, cumulated: NDArray[np.float64], taken: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """``count`` distinct keys target * N + source, not in the sorted ``taken``: popular targets, uniform sources."""
    nodes = len(cumulated)
    found = np.empty(0, dtype=np.int64)
    while len(found) < count:
        tries = 16 + (count - len(found)) * 5 // 4
        dst = np.searchsorted(cumulated, draws.random(tries), side="right").clip(max=nodes - 1)
        src = draws.integers(0, nodes, tries)
        fresh = np.sort(np.concatenate([found, (dst * nodes + src)[dst != src]]))
        fresh = fresh[np.diff(fresh, prepend=-1) != 0]
        place = np.searchsorted(taken, fresh)
        known = np.zeros(len(fresh), dtype=bool)
        inside = place < len(taken)
        known[inside] = taken[place[inside]] == fresh[inside]
        found = fresh[~known]
    return _some(draws, found, count)


GROWING = Growing(name="growing")
