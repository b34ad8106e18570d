"""How many edges each base interval of a generated graph has: growth curves with noise, and what fits.

Source: DyGNeX section 5.4 generates 10,000 snapshots along a growth curve that it does not print. Linear 1 -> 10 and
exponential 1 -> 20 with 5 % noise are our reading of it; the logistic curve is ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.streams import generator

STEEPNESS = 10.0  # of the logistic curve: its middle half holds 85 % of the growth


def check_room(nodes: int, edges: int) -> None:
    """Refuse more edges than a quarter of the N(N - 1) ordered pairs, beyond which drawing distinct ones is slow.

    Raises:
        ConfigError: too many edges for so few vertices.
    """
    most = nodes * (nodes - 1) // 4
    if edges > most:
        raise ConfigError(
            f"generated_edges={edges} with generated_nodes={nodes}: at most {most}, a quarter of all pairs. "
            "Lower generated_edges, or raise generated_nodes."
        )


def growth_line(last: float, *, snapshots: int, growth: float, growth_curve: str) -> NDArray[np.float64]:
    """The curve without noise, shape (B,): from ``last / growth`` in the first interval to ``last`` in the last.

    Args:
        last: edges of the last interval.
        snapshots: B.
        growth: edges of the last interval over those of the first.
        growth_curve: ``linear``; ``exponential``, the same factor each interval; ``logistic``, slow, fast, slow.
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
    """Edges of every interval, shape (B,), at least 1 each.

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
