"""Edges towards popular vertices, of which every interval keeps a share and renews the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.streams import generator
from dtdg_lab.datasets.generators.sorted_keys import Keys, known, merged, some
from dtdg_lab.graphs.keys import distinct, keys_of

LEAST_ACCEPTED = 0.05  # of the draws must find a pair that is free; below it drawing takes too long

Propose = Callable[[np.random.Generator, int], Keys]


def popularity(seed: int, name: str, nodes: int, *, zipf: float, shift: float) -> NDArray[np.float64]:
    """Weight of every vertex as a target, shape (N,): (k + shift)^-zipf for the k-th most popular, k from 0."""
    rank = generator(seed, name).permutation(nodes)
    return np.power(rank + shift, -zipf)


def check_popularity(weights: NDArray[np.float64], edges: int, *, zipf: float) -> None:
    """Refuse popularity so uneven that the popular vertices are full before there are enough edges.

    Where edges leave at random and come in proportion to the weights p, vertex v ends with the in-degree x that solves
    x = m p (1 - x / (N - 1)); the sum over v is the edges that m proposals keep in place.

    Raises:
        ConfigError: fewer than one proposal in twenty would find a free pair.
    """
    share = weights / weights.sum()

    def fits(count: int) -> bool:
        fed = share * (count / LEAST_ACCEPTED)
        return count <= (fed / (1 + fed / (len(share) - 1))).sum()

    if not fits(edges):
        most = edges
        while not fits(most):
            most = most * 9 // 10
        raise ConfigError(
            f"zipf={zipf} with generated_edges={edges} and generated_nodes={len(weights)}: the popular vertices are "
            f"full before there are so many. Lower zipf or generated_edges (to {most}), or raise generated_nodes."
        )


def popular_targets(weights: NDArray[np.float64]) -> Propose:
    """Proposals of edges: targets in proportion to the weights, sources uniform; loops left out, in no order."""
    cumulated = np.cumsum(weights)
    cumulated /= cumulated[-1]
    nodes = len(weights)

    def propose(draws: np.random.Generator, tries: int) -> Keys:
        where = draws.random(tries)
        order = np.argsort(where)  # looking up in order is several times as fast
        dst = np.searchsorted(cumulated, where[order], side="right").clip(max=nodes - 1)
        src = draws.integers(0, nodes, tries)[order]
        return keys_of(src, dst)[dst != src]

    return propose


def new_keys(draws: np.random.Generator, propose: Propose, taken: Keys, count: int) -> Keys:
    """``count`` distinct proposals that are not in the sorted ``taken``, sorted."""
    found = np.empty(0, dtype=np.int64)
    while len(found) < count:
        tries = 16 + (count - len(found)) * 5 // 4
        fresh = distinct(np.sort(np.concatenate([found, propose(draws, tries)])))
        found = fresh[~known(fresh, taken)]
    return some(draws, found, count)


def renewed(seed: int, name: str, counts: NDArray[np.int64], *, kept: float, propose: Propose) -> Iterator[Keys]:
    """The edges of every interval as sorted keys; ``counts[t]`` of them, of which interval t + 1 keeps the share."""
    current = np.empty(0, dtype=np.int64)
    for interval, count in enumerate(counts.tolist()):
        draws = generator(seed, name, interval)
        stay = some(draws, current, min(round(kept * len(current)), count))
        current = merged(stay, new_keys(draws, propose, stay, count - len(stay)))
        yield current
