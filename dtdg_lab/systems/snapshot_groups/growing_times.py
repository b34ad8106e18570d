"""Times of the snapshots and groups of a growing graph: the input of simulated schedules."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.snapshot_groups.linear_times import LinearTimes

Vector = NDArray[np.float64]
CURVES = MappingProxyType({"linear": 10.0, "exponential": 20.0})  # size of the last snapshot over the first


def growth(snapshots: int, curve: str = "linear", *, last: float | None = None) -> Vector:
    """Return the size of each snapshot relative to the first, (T,).

    Args:
        snapshots: T.
        curve: from each snapshot to the next, ``linear`` adds and ``exponential`` multiplies by a constant.
        last: size of the last snapshot; 10 for linear and 20 for exponential growth by default.

    Raises:
        UnknownNameError: the curve is unknown.
        ConfigError: ``snapshots`` is below 1, or ``last`` is not positive.
    """
    if curve not in CURVES:
        raise UnknownNameError("growth curve", curve, CURVES)
    if snapshots < 1:
        raise ConfigError(f"snapshots={snapshots}: give at least 1 snapshot.")
    end = CURVES[curve] if last is None else last
    if not 0 < end < np.inf:
        raise ConfigError(f"last={end}: give a size above 0, relative to the first snapshot.")
    return np.linspace(1.0, end, snapshots) if curve == "linear" else np.geomspace(1.0, end, snapshots)


def snapshot_times(
    snapshots: int, curve: str = "linear", *, noise: float = 0.05, seed: int = 0, last: float | None = None
) -> Vector:
    """Return the (T,) seconds of each snapshot of a growing graph: growth times noise; the first takes about 1 s.

    Noise is log-normal with mean 1, so that no time is negative; at 5 % it is nearly normal. All groups that contain a
    snapshot share its noise.

    Args:
        snapshots: T.
        curve: see :func:`growth`.
        noise: relative standard deviation of a snapshot's time; 0 for none.
        seed: seed of the noise.
        last: see :func:`growth`.

    Raises:
        UnknownNameError, ConfigError: see :func:`growth`; or noise is negative or NaN.

    References: DyGNeX section 5.4 simulates 10,000 snapshots of DynaGraph, without giving its growth; the curves and
        the noise are ours.
    """
    return growth(snapshots, curve, last=last) * _noise(snapshots, noise, seed)


def modelled_times(
    fitted: LinearTimes,
    nodes: float,
    edges: float,
    snapshots: int,
    curve: str = "linear",
    *,
    nodes_grow: bool = True,
    noise: float = 0.05,
    seed: int = 0,
    last: float | None = None,
) -> Vector:
    """Return the (T,) seconds of each snapshot of a growing graph by a fitted model; its constant part stays constant.

    Args:
        fitted: the model, from :func:`~dtdg_lab.systems.snapshot_groups.linear_times.fit`.
        nodes: nodes of the first snapshot.
        edges: of the first snapshot.
        snapshots: T.
        curve: growth of the edges.
        nodes_grow: True if the number of nodes grows as well; in the lab's graphs it does not.
        noise: see :func:`snapshot_times`.
        seed: seed of the noise.
        last: see :func:`growth`.
    """
    size = growth(snapshots, curve, last=last)
    vertices = nodes * (size if nodes_grow else np.ones(snapshots))
    return fitted.predict(vertices, edges * size) * _noise(snapshots, noise, seed)


def group_times(snapshot_s: ArrayLike, *, window: int = 4, stride: int = 1) -> Vector:
    """Return the (K,) seconds of each group of ``window`` consecutive snapshots, one group every ``stride``.

    Raises:
        ConfigError: window or stride is below 1, or there are fewer snapshots than a window has.
    """
    seconds = np.asarray(snapshot_s, dtype=np.float64)
    if window < 1 or stride < 1:
        raise ConfigError(f"window={window}, stride={stride}: give numbers of at least 1.")
    if len(seconds) < window:
        raise ConfigError(
            f"{len(seconds)} snapshots are too few for a group of {window}. Give more snapshots or a smaller window."
        )
    return np.lib.stride_tricks.sliding_window_view(seconds, window)[::stride].sum(axis=1)


def _noise(snapshots: int, noise: float, seed: int) -> Vector:
    """Return (T,) factors of mean 1."""
    if not 0 <= noise < np.inf:
        raise ConfigError(f"noise={noise}: give a relative standard deviation of at least 0, such as 0.05.")
    if noise == 0:
        return np.ones(snapshots)
    spread = np.sqrt(np.log1p(noise * noise))
    return np.exp(spread * generator(seed, "scheduling/noise").standard_normal(snapshots) - spread * spread / 2)
