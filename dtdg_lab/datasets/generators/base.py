"""Shared parts of generators: checked settings, seeded counts, edge renewal, and sorted keys."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.tables import SPLIT_TEST, SPLIT_TRAIN, SPLIT_VALIDATION
from dtdg_lab.graphs.snapshot import Snapshot, distinct, keys_of, places_of, snapshot_of_rows, targets

# Number of edges of each base interval of a generated graph: growth curves with noise, and limits.
#
# Source: DyGNeX section 5.4 generates 10,000 snapshots along a growth curve that it does not print. Linear 1 -> 10 and
# exponential 1 -> 20 with 5 % noise are our interpretation; the logistic curve is ours.


STEEPNESS = 10.0  # of the logistic curve: its middle half holds 85 % of the growth


def check_room(nodes: int, edges: int) -> None:
    """Refuse more edges than a quarter of the N(N - 1) ordered pairs, beyond which drawing distinct ones is slow.

    Raises:
        ConfigError: too many edges for so few nodes.
    """
    limit = nodes * (nodes - 1) // 4
    if edges > limit:
        raise ConfigError(
            f"generated_edges={edges} with generated_nodes={nodes}: at most {limit}, a quarter of all pairs. "
            "Lower generated_edges, or raise generated_nodes."
        )


def growth_line(last: float, *, snapshots: int, growth: float, growth_curve: str) -> NDArray[np.float64]:
    """Return the curve without noise, shape (B,), from ``last / growth`` to ``last``.

    Args:
        last: edges of the last interval.
        snapshots: B.
        growth: edges of the last interval over those of the first.
        growth_curve: ``linear``; ``exponential``, by the same factor each interval; ``logistic``, slow, fast, slow.
    """
    first = last / growth
    if growth_curve == "linear":
        return np.linspace(first, last, snapshots)
    if growth_curve == "exponential":
        return np.geomspace(first, last, snapshots)
    steps = 1 / (1 + np.exp(-STEEPNESS * np.linspace(-0.5, 0.5, snapshots)))
    return first + (last - first) * (steps - steps[0]) / (steps[-1] - steps[0])


def growing_counts(
    draws_of: tuple[int, str], edges: int, *, snapshots: int, growth: float, growth_curve: str, noise: float
) -> NDArray[np.int64]:
    """Draw the number of edges of every interval, shape (B,), at least 1 each.

    Args:
        draws_of: seed and name of the random stream.
        edges: edges of the last interval, before noise.
        snapshots: B.
        growth: edges of the last interval over those of the first, before noise.
        growth_curve: see :func:`growth_line`.
        noise: standard deviation around the line, relative; drawn for every interval, bounded at three times itself.
    """
    line = growth_line(edges, snapshots=snapshots, growth=growth, growth_curve=growth_curve)
    off = generator(*draws_of).standard_normal(snapshots).clip(-3, 3) * noise
    return np.maximum(np.rint(line * (1 + off)), 1).astype(np.int64)


# Sets of edges as rising keys (graphs/snapshot.py), which generators draw, keep and convert to snapshots.


Keys = NDArray[np.int64]


def snapshot_of_rising(keys: Keys, nodes: int, weights: NDArray[np.float32] | None = None) -> Snapshot:
    """Return the snapshot of rising keys without duplicates over N = ``nodes`` nodes; nothing is sorted."""
    return snapshot_of_rows(np.bincount(targets(keys), minlength=nodes), keys, weights)


def some(draws: np.random.Generator, keys: Keys, count: int) -> Keys:
    """Choose ``count`` of the keys uniformly, in their order."""
    is_left = np.ones(len(keys), dtype=bool)
    is_left[draws.choice(len(keys), len(keys) - count, replace=False, shuffle=False)] = False
    return keys[is_left]


def merged(first: Keys, second: Keys) -> Keys:
    """Return the union of two disjoint rising sets."""
    return np.sort(np.concatenate([first, second]), kind="stable")  # finds the two runs and merges them


# Edges into popular nodes. Every interval keeps a share of them and renews the rest.
LEAST_ACCEPTED = 0.05  # share of draws that must find a free pair; below it drawing takes too long

Propose = Callable[[np.random.Generator, int], Keys]


def popularity(seed: int, name: str, nodes: int, *, zipf: float, shift: float) -> NDArray[np.float64]:
    """Return the weight of every node as a target, shape (N,): (k + shift)^-zipf for the k-th most popular."""
    rank = generator(seed, name).permutation(nodes)
    return np.power(rank + shift, -zipf)


def check_popularity(weights: NDArray[np.float64], edges: int, *, zipf: float) -> None:
    """Refuse popularity so uneven that the popular nodes are full before there are enough edges.

    Where edges are removed at random and added in proportion to the weights p, node v ends with the in-degree x that
    solves x = m p (1 - x / (N - 1)). The sum over v is the number of edges that m proposals sustain.

    Raises:
        ConfigError: fewer than one proposal in twenty would find a free pair.
    """
    share = weights / weights.sum()

    def fits(count: int) -> bool:
        fed = share * (count / LEAST_ACCEPTED)
        return count <= (fed / (1 + fed / (len(share) - 1))).sum()

    if not fits(edges):
        limit = edges
        while not fits(limit):
            limit = limit * 9 // 10
        raise ConfigError(
            f"zipf={zipf} with generated_edges={edges} and generated_nodes={len(weights)}: the popular nodes are "
            f"full before there are so many. Lower zipf or generated_edges (to {limit}), or raise generated_nodes."
        )


def popular_targets(weights: NDArray[np.float64]) -> Propose:
    """Return a function that proposes edges: targets in proportion to the weights, uniform sources, no self loops."""
    cumulated = np.cumsum(weights)
    cumulated /= cumulated[-1]
    nodes = len(weights)

    def propose(draws: np.random.Generator, tries: int) -> Keys:
        positions = draws.random(tries)
        order = np.argsort(positions)  # looking up in order is several times as fast
        dst = np.searchsorted(cumulated, positions[order], side="right").clip(max=nodes - 1)
        src = draws.integers(0, nodes, tries)[order]
        return keys_of(src, dst)[dst != src]

    return propose


def new_keys(draws: np.random.Generator, propose: Propose, existing: Keys, count: int) -> Keys:
    """Draw ``count`` distinct proposals that are not in the sorted ``existing``; return them sorted."""
    result = np.empty(0, dtype=np.int64)
    while len(result) < count:
        tries = 16 + (count - len(result)) * 5 // 4
        fresh = distinct(np.sort(np.concatenate([result, propose(draws, tries)])))
        result = fresh[~places_of(existing, fresh)[1]]
    return some(draws, result, count)


def renewed(seed: int, name: str, counts: NDArray[np.int64], *, kept_share: float, propose: Propose) -> Iterator[Keys]:
    """Yield ``counts[t]`` edges of each interval t as sorted keys. The next keeps a share ``kept_share`` of them."""
    current = np.empty(0, dtype=np.int64)
    for interval, count in enumerate(counts.tolist()):
        draws = generator(seed, name, interval)
        stay = some(draws, current, min(round(kept_share * len(current)), count))
        current = merged(stay, new_keys(draws, propose, stay, count - len(stay)))
        yield current


# Settings of generators, checked against the glossary of options at every call.


Given = ParamSpec("Given")
Made = TypeVar("Made")


def checked_settings(generate: Callable[Given, Made]) -> Callable[Given, Made]:
    """Decorate a function to check its keyword arguments and convert them to the types of their options.

    Options of sizes are named ``generated_<name>``. Unknown arguments and defaults are passed unchanged.

    Raises:
        ConfigError: a value is out of bounds, of another type, or no choice; the message names the allowed values.
    """
    defaults = getattr(generate, "__kwdefaults__", None) or {}

    @functools.wraps(generate)
    def checking(*args: Given.args, **settings: Given.kwargs) -> Made:
        for name, value in settings.items():
            option = OPTIONS.get(f"generated_{name}") or OPTIONS.get(name)
            if option is not None and not (name in defaults and value is defaults[name]):
                settings[name] = option.check(value)
        return generate(*args, **settings)

    return checking


# Facts of generated data.


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Base class of generated data sets.

    A subclass is a frozen dataclass too. It defines ``generate(*, seed, **options)``, which returns an
    ``IntervalStream`` or another sequence of snapshots for ``build_graph``. Options have their glossary names without
    ``generated_``: ``nodes``, ``edges``, ``snapshots``, ``churn``. ``lab.register(MINE, "data set")`` adds an instance.

    Attributes:
        name: the data set's name in the lab.
        cite: source of the idea.
        licence: licence of the generated data.
        version: version of the graphs.
    """

    name: str
    cite: str
    licence: str = "none needed: generated here"
    version: int = 1


# Split of the nodes where classes never change: otherwise test labels would leak into training.
HELD_BACK = 0.2  # share of the nodes that validate; as many test


def random_parts(draws: np.random.Generator, count: int) -> NDArray[np.int8]:
    """Return a split, shape (count,): a fifth validates, a fifth tests, at least one each."""
    held_count = max(round(HELD_BACK * count), 1)
    parts = np.full(count, SPLIT_TRAIN, dtype=np.int8)
    order = draws.permutation(count)
    parts[order[:held_count]], parts[order[held_count : 2 * held_count]] = SPLIT_VALIDATION, SPLIT_TEST
    return parts
