"""The step-time model with the constants that a calibration fits: seven of a data set, one of them its cluster's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.control.cache_costs import CacheCosts
from dtdg_lab.control.calibration_files import Watts
from dtdg_lab.control.rpc_model import RpcModel
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.links import BITS

Vector = NDArray[np.float64]

# What is assumed, and the same wherever it was measured:
HIT_SLOPE = 1.0  # gamma of h(W)
REBUILD_TRIPS = 1.0  # a rebuild asks each owner once
NORM = (
    1.5  # a reply's delay partly hides its transfer; no cell has both, so this is a middle way between sum and longer
)
CAPACITY_EXPONENT = 0.8  # of sampled rows whose popularity is log-normal, at the hit rates that were measured


@dataclass(frozen=True, slots=True)
class StepModel:
    """Milliseconds of a step by window, rate and delay of the slowest owner.

    T(W) = base + |trips(W) delay, S(W) / min(rate, unhindered)|, with the traffic of the slowest owner in a step
    S(W) = miss W / (W + half) + rebuild W^exponent / W; the norm is that of
    :class:`dtdg_lab.control.cache_costs.CacheCosts`.

    Attributes:
        base_ms: of a step for which nothing is fetched.
        miss_mbit: megabits of misses in a step that one owner sends, to all who ask, for an endless window.
        half: window at which half of that is missed.
        rebuild_mbit: megabits that it sends for a rebuild for W = 1.
        exponent: c of W^c by which that grows with the window, below 1; below 0 where what a long window asks for is
            mostly what the last one's cache held.
        trips: replies that a step waits for one after another.
        unhindered_mbit: Mbit/s of an owner that nothing throttles: of the cluster.

    Raises:
        ConfigError: a constant is negative, or no number, or the exponent not between -1 and 1.

    References: GreenDyGNN section IV-A, equations 1 and 2.

    Differs from the paper: an owner that is not throttled is a link like any other, at its own rate; so what a window
    costs on a clean network tells how much it sends, and with that what it costs when the owner is throttled.
    """

    base_ms: float
    miss_mbit: float
    half: float
    rebuild_mbit: float
    exponent: float
    trips: float
    unhindered_mbit: float

    def __post_init__(self) -> None:
        for name in self.__slots__:
            low, high = (-1.0, 1.0) if name == "exponent" else (0.0, np.inf)
            if not low <= getattr(self, name) < high:
                raise ConfigError(f"{name}={getattr(self, name)}: a number from {low:g} to below {high:g} is needed.")

    def sent_mbit(self, windows: ArrayLike) -> Vector:
        """S(W): megabits that the slowest owner sends in a step, misses and rebuild, by window."""
        windows = np.asarray(windows, dtype=np.float64)
        missed = self.miss_mbit * windows**HIT_SLOPE / (windows**HIT_SLOPE + self.half**HIT_SLOPE)
        return np.asarray(missed + self.rebuild_mbit * windows ** (self.exponent - 1))

    def step_ms(self, windows: ArrayLike, mbit: ArrayLike = np.inf, delay_ms: ArrayLike = 0.0) -> Vector:
        """Milliseconds of a step, arguments broadcast: window, and rate and delay of the slowest owner."""
        windows = np.asarray(windows, dtype=np.float64)
        transfer = 1e3 * self.sent_mbit(windows) / np.minimum(mbit, self.unhindered_mbit)
        waiting = (self.trips + REBUILD_TRIPS / windows) * np.asarray(delay_ms, dtype=np.float64)
        return np.asarray(self.base_ms + (waiting**NORM + transfer**NORM) ** (1 / NORM))

    def costs(
        self, name: str, *, parts: int, row_bytes: float, watts: Watts, rpc: RpcModel, noise: float
    ) -> CacheCosts:
        """The same model as constants of what steps cost, seen by one requester of P - 1.

        How many rows a step asks for is what a rebuild for W = 1 fetches: no step time tells them apart.

        Args:
            name: of the data set.
            parts: P: an owner's rate is shared by the P - 1 others.
            row_bytes: of a row's features.
            watts: of a host.
            rpc: of a fetch.
            noise: spread of a fetch's time, as a standard deviation of its logarithm.
        """
        rows_of_mbit = 1 / BITS / row_bytes  # an owner sends 1 / (P - 1) to each, and each asks P - 1 owners
        asked = max(self.rebuild_mbit, self.miss_mbit)
        return CacheCosts(
            name=name,
            parts=parts,
            base_s=self.base_ms / 1e3,
            rows=asked * rows_of_mbit,
            row_bytes=row_bytes,
            link_bytes_per_s=self.unhindered_mbit / BITS / (parts - 1),
            trips=self.trips,
            rebuild_trips=REBUILD_TRIPS,
            hit_max=1.0,
            hit_min=1 - self.miss_mbit / asked,
            hit_half=self.half,
            hit_slope=HIT_SLOPE,
            capacity_exponent=CAPACITY_EXPONENT,
            rebuild_rows=self.rebuild_mbit * rows_of_mbit,
            rebuild_exponent=self.exponent,
            norm=NORM,
            busy_w=watts.busy,
            stall_w=watts.stall,
            rpc_s=rpc.a_s,
            rtt_noise=noise,
        )
