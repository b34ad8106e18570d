"""The step-time model with the constants that a calibration fits: five of a data set, two of its cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.control.cache_costs import CacheCosts, joined_misses
from dtdg_lab.control.calibration_files import Watts
from dtdg_lab.control.rpc_model import RpcModel
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.links import BITS

Vector = NDArray[np.float64]

# What is assumed, and the same wherever it was measured:
TRIP_MBIT = 0.35  # that one round trip brings at first: ten packets of 1,460 bytes to each of three requesters
CAPACITY_EXPONENT = 0.8  # of sampled rows whose popularity is log-normal, at the hit rates that were measured


@dataclass(frozen=True, slots=True)
class StepModel:
    """Milliseconds of a step by window, rate and delay of the slowest owner; stages that overlap take the longer.

    T(W) = base + max(fetch(W) - hidden, 0), with

    - fetch(W) = max(waits(W) delay, S(W) / min(rate, unhindered)): what is late hides what is sent, or the reverse;
    - S(W) = (miss^4 + R(W)^4)^(1/4), R(W) = rebuild W^(exponent - 1): what the slowest owner sends in a step is nearly
      the larger of both, because a cache that holds all that a short window asks for misses nothing;
    - M(W) = S(W) - R(W): the misses in it, none for short windows, ``miss`` for endless ones;
    - waits(W) = trips max(1 - exp(-M(W) / (0.35 trips)), 1 / W): a step that misses nothing waits for no reply, and a
      rebuild's replies come beside those of misses.

    Attributes:
        base_ms: of a step that waits for nothing.
        hidden_ms: of fetching that hides behind the rest of a step.
        miss_mbit: megabits of misses in a step that one owner sends, to all who ask, for an endless window.
        rebuild_mbit: megabits that it sends for a rebuild for W = 1: all that the step asks of it.
        exponent: c of W^c by which that grows with the window, below 1.
        trips: replies that a step waits for one after another, where it misses much: of the cluster.
        unhindered_mbit: Mbit/s of an owner that nothing throttles: of the cluster.

    Raises:
        ConfigError: a constant is negative, or no number, or the exponent not between -1 and 1.

    References: GreenDyGNN section IV-A, equations 1 and 2; section V-A for what overlaps.

    Differs from the paper: an owner that is not throttled is a link like any other, at its own rate. So what a window
    costs on a clean network says how much it sends, and what it costs when the owner is throttled. Hits follow from
    what a rebuild sends and not from Eq. 2, whose half and slope 16 cells do not fix. Eq. 1 adds its terms up.
    """

    base_ms: float
    hidden_ms: float
    miss_mbit: float
    rebuild_mbit: float
    exponent: float
    trips: float
    unhindered_mbit: float

    def __post_init__(self) -> None:
        for name in self.__slots__:
            low, high = (-1.0, 1.0) if name == "exponent" else (0.0, np.inf)
            if not low <= getattr(self, name) < high:
                raise ConfigError(f"{name}={getattr(self, name)}: a number from {low:g} to below {high:g} is needed.")

    def rebuilt_mbit(self, windows: ArrayLike) -> Vector:
        """R(W): megabits that the slowest owner sends in a step for rebuilds, by window."""
        return np.asarray(self.rebuild_mbit * np.asarray(windows, dtype=np.float64) ** (self.exponent - 1))

    def missed_mbit(self, windows: ArrayLike) -> Vector:
        """M(W): megabits that it sends in a step for misses, by window."""
        return joined_misses(self.miss_mbit, self.rebuilt_mbit(windows))

    def waits(self, windows: ArrayLike) -> Vector:
        """Replies of the slowest owner that a step waits for one after another, by window."""
        windows = np.asarray(windows, dtype=np.float64)
        awaited = -np.expm1(-self.missed_mbit(windows) / (TRIP_MBIT * self.trips)) if self.trips else 0.0
        return np.asarray(self.trips * np.maximum(awaited, 1 / windows))

    def step_ms(self, windows: ArrayLike, mbit: ArrayLike = np.inf, delay_ms: ArrayLike = 0.0) -> Vector:
        """Milliseconds of a step, arguments broadcast: window, and rate and delay of the slowest owner."""
        sent = self.missed_mbit(windows) + self.rebuilt_mbit(windows)
        transfer = 1e3 * sent / np.minimum(mbit, self.unhindered_mbit)
        fetch = np.maximum(self.waits(windows) * np.asarray(delay_ms, dtype=np.float64), transfer)
        return np.asarray(self.base_ms + np.maximum(fetch - self.hidden_ms, 0.0))

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
            trips=0.0,
            rebuild_trips=self.trips,
            hit_max=1.0,
            hit_min=1 - self.miss_mbit / asked,
            hit_half=1.0,
            hit_slope=1.0,
            capacity_exponent=CAPACITY_EXPONENT,
            rebuild_rows=self.rebuild_mbit * rows_of_mbit,
            rebuild_exponent=self.exponent,
            busy_w=watts.busy,
            stall_w=watts.stall,
            rpc_s=rpc.a_s,
            rtt_noise=noise,
            miss_trips=self.trips,
            overlapped=True,
            hidden_s=self.hidden_ms / 1e3,
            wait_rows=TRIP_MBIT * self.trips * rows_of_mbit / (parts - 1) or 1.0,
        )
