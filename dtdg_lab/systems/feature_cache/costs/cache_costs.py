"""The cost of a training step in seconds and joules, by window, allocation of the cache and delays."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.simulation.cases import LinkTrace

Vector = NDArray[np.float64]
_ABOVE_ZERO = ("rows", "row_bytes", "link_bytes_per_s", "hit_half", "hit_slope", "rebuild_rows", "wait_rows")
_AT_LEAST_ZERO = ("base_s", "trips", "rebuild_trips", "rebuild_s", "busy_w", "stall_w", "rpc_s", "hidden_s")
_SHARES = ("hit_max", "hit_min", "capacity_exponent", "exposed", "overlap")
_LATER = {"miss_trips": 0.0, "overlapped": False, "hidden_s": 0.0, "wait_rows": 1.0}  # defaults, left out of digests
SENT_NORM = 4  # exponent of the norm that combines misses and rebuilds: nearly their maximum


def joined_misses(endless: ArrayLike, rebuilt: ArrayLike) -> Vector:
    """Return the misses of a window, from the misses of an endless one and the rebuild's traffic per step.

    Total traffic is nearly the maximum of both; misses are the rest after the rebuild. The cache of a short window
    holds nearly all its rows, so hardly any row is missed.
    """
    endless, rebuilt = np.asarray(endless, dtype=np.float64), np.asarray(rebuilt, dtype=np.float64)
    return np.asarray((endless**SENT_NORM + rebuilt**SENT_NORM) ** (1 / SENT_NORM) - rebuilt)


class StepCosts(NamedTuple):
    """Costs of steps: arrays over the leading axes of the arguments.

    Attributes:
        seconds: (...) of a step.
        joules: (...) of a step, for one part.
        miss_s: (...) seconds for the slowest owner's misses, including hidden ones.
        rebuild_s: (...) seconds for rebuilding: its bytes on that link, and its constant part.
        hits: (..., P - 1) share of the rows requested from each owner that the cache contains.
        hit: (...) the same over all owners.
    """

    seconds: Vector
    joules: Vector
    miss_s: Vector
    rebuild_s: Vector
    hits: Vector
    hit: Vector


class _Loads(NamedTuple):
    """The part of the costs that is independent of the links: bytes and waits per step, hits (..., P - 1)."""

    miss: Vector
    rebuild: Vector
    waits: Vector
    rebuild_waits: Vector
    stands: Vector
    hits: Vector


@dataclass(frozen=True)
class CacheCosts:
    """Constants of one dataset on one cluster, from the perspective of one part.

    Attributes:
        name: the calibrated dataset.
        parts: P, at least 2.
        base_s: seconds of a step without fetches: computing, and exchanging gradients.
        rows: remote rows per step, over all owners.
        row_bytes: bytes of a row on the network.
        link_bytes_per_s: rate of an unthrottled link from an owner to a requester.
        trips: sequential replies per step; each is delayed by the link.
        rebuild_trips: the same for a rebuild.
        hit_max, hit_min, hit_half, hit_slope: hit rate by window: h(1) is near hit_max, h(W) approaches hit_min, and
            hit_half is the window between.
        capacity_exponent: kappa, in [0, 1]: 0 if the size of the cache has no effect.
        rebuild_rows: rows that a rebuild for W = 1 fetches.
        rebuild_exponent: c of W^c, from -1 to 1.
        rebuild_s: constant seconds that a rebuild stops training.
        exposed: share of the rebuild's bytes that delay training.
        overlap: share of the shorter of computing and fetching that hides behind the longer: 0 adds them up, 1 takes
            the maximum.
        norm: exponent that combines a link's waiting and its transfer: 1 is their sum, large ones nearly the maximum.
        busy_w, stall_w: watts of one part while computing, and while waiting.
        asked: share of the rows requested from each other part, (P - 1,) summing to 1; empty for equal shares.
        rpc_s: seconds of a fetch apart from its bytes and the link's delay (a step's are in ``base_s``).
        rtt_noise: standard deviation of the logarithm of a fetch's time around the RPC model.
        miss_trips: sequential replies of an owner per step with a miss of its rows; without a miss there are none. The
            probability of a miss is that of a Poisson number of missed rows being above 0.
        wait_rows: missed rows of an owner at which all but 1 / e of these replies occur.
        overlapped: True if replies of misses and of rebuilds, and waiting and transfer, are concurrent: their maximum
            counts, not their sum or ``norm``. Hits then follow from the rows of rebuilds (:func:`joined_misses`) and
            ``hit_min``, not from ``hit_half`` and ``hit_slope``.
        hidden_s: seconds of fetching that overlap with the rest of the step, whatever ``overlap`` is.

    Raises:
        ConfigError: a constant is not a number, or out of range.
    """

    name: str
    parts: int
    base_s: float
    rows: float
    row_bytes: float
    link_bytes_per_s: float
    trips: float
    rebuild_trips: float
    hit_max: float
    hit_min: float
    hit_half: float
    hit_slope: float
    capacity_exponent: float
    rebuild_rows: float
    rebuild_exponent: float
    rebuild_s: float = 0.0
    exposed: float = 1.0
    overlap: float = 0.0
    norm: float = 1.0
    busy_w: float = 1.0
    stall_w: float = 1.0
    asked: tuple[float, ...] = ()
    rpc_s: float = 0.0
    rtt_noise: float = 0.2
    miss_trips: float = 0.0
    wait_rows: float = 1.0
    overlapped: bool = False
    hidden_s: float = 0.0

    def __post_init__(self) -> None:
        if self.parts < 2:
            raise ConfigError(f"parts={self.parts}: a cache of remote features needs at least 2 parts.")
        for names, low, high in (
            (_ABOVE_ZERO, np.nextafter(0.0, 1.0), np.inf),
            ((*_AT_LEAST_ZERO, "rtt_noise", "miss_trips"), 0.0, np.inf),
            (_SHARES, 0.0, 1.0),
            (("norm",), 1.0, np.inf),
            (("rebuild_exponent",), -1.0, 1.0),
        ):
            for name in names:
                value = getattr(self, name)
                if not (low <= value <= high and np.isfinite(value)):
                    bound = "above 0" if 0 < low < 1 else f"of at least {low:g}"
                    allowed = f"from {low:g} to {high:g}" if high == 1.0 else bound
                    raise ConfigError(f"{name}={value} is out of range: give a number {allowed}.")
        if not self.asked:
            object.__setattr__(self, "asked", (1 / (self.parts - 1),) * (self.parts - 1))
        if len(self.asked) != self.parts - 1 or min(self.asked) <= 0 or abs(sum(self.asked) - 1) > 1e-6:
            raise ConfigError(f"asked={self.asked}: give {self.parts - 1} shares above 0 that sum to 1.")

    def digest(self) -> str:
        """Return the SHA-256 of all constants, in hexadecimal: the identity of a policy's training costs."""
        constants = {name: value for name, value in asdict(self).items() if value != _LATER.get(name)}
        text = json.dumps(constants, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def hit_rate(self, windows: ArrayLike) -> Vector:
        """Return h(W), the hit rate of an evenly shared cache, by window (...)."""
        windows = np.asarray(windows, dtype=np.float64)
        if self.overlapped:
            missed = joined_misses(self.rows * (1 - self.hit_min), self.fetched(windows) / windows) / self.rows
            return np.clip(self.hit_max - missed, 0.0, 1.0)
        fall = self.hit_max - self.hit_min
        return np.asarray(self.hit_min + fall / (1 + (windows / self.hit_half) ** self.hit_slope))

    def fetched(self, windows: ArrayLike) -> Vector:
        """Return the rows that a rebuild for a window fetches from all owners, by window (...)."""
        return np.asarray(self.rebuild_rows * np.asarray(windows, dtype=np.float64) ** self.rebuild_exponent)

    def step(self, windows: ArrayLike, delays_s: ArrayLike, bytes_per_s: ArrayLike, shares: ArrayLike) -> StepCosts:
        """Return the costs of a step; all arguments broadcast over their leading axes.

        Args:
            windows: (...) W, in steps.
            delays_s: (..., P - 1) seconds added to every reply of each other part.
            bytes_per_s: (..., P - 1) rate of each link; infinite for no limit.
            shares: (..., P - 1) shares of the cache for each other part's rows, summing to 1.
        """
        return self._step(self._loads(windows, shares), delays_s, bytes_per_s)

    def step_s(self, windows: ArrayLike, delays_s: ArrayLike, bytes_per_s: ArrayLike, shares: ArrayLike) -> Vector:
        """Return seconds of a step, (...), for the arguments of :meth:`step`."""
        return self.step(windows, delays_s, bytes_per_s, shares).seconds

    def of_actions(self, delays_s: ArrayLike, bytes_per_s: ArrayLike | None = None) -> StepCosts:
        """Return the costs of a step under every action of :class:`CacheActions`: (..., A), with hits (..., A, P - 1).

        Args:
            delays_s: (..., P - 1), as of :meth:`step`.
            bytes_per_s: (..., P - 1), likewise; None for no limit.
        """
        delays = np.asarray(delays_s, dtype=np.float64)[..., None, :]
        rates = np.inf if bytes_per_s is None else np.asarray(bytes_per_s, dtype=np.float64)[..., None, :]
        return self._step(_loads_of_actions(self), delays, rates)

    def _loads(self, windows: ArrayLike, shares: ArrayLike) -> _Loads:
        window = np.asarray(windows, dtype=np.float64)[..., None]
        requested = np.array(self.asked)
        capacity = (np.asarray(shares, dtype=np.float64) / requested) ** self.capacity_exponent
        even = self.hit_rate(window)
        hits = 1 - (1 - even) ** capacity
        miss = self.row_bytes * self.rows * requested * (1 - hits)
        held_share = np.divide(hits, even, out=np.ones_like(hits), where=np.broadcast_to(even, hits.shape) > 0)
        rebuild = self.row_bytes * requested * held_share * self.fetched(window) / window
        lone = window[..., 0]
        return _Loads(
            miss,
            rebuild,
            self.trips + self.miss_trips * -np.expm1(-miss / (self.row_bytes * self.wait_rows)),
            self.rebuild_trips * self.exposed / lone,
            self.rebuild_s / lone,
            hits,
        )

    def _step(self, loads: _Loads, delays_s: ArrayLike, bytes_per_s: ArrayLike) -> StepCosts:
        delays = np.asarray(delays_s, dtype=np.float64)
        s_per_byte = 1 / np.minimum(np.asarray(bytes_per_s, dtype=np.float64), self.link_bytes_per_s)
        waits_s = loads.waits * delays
        rebuild_waits_s = loads.rebuild_waits[..., None] * delays
        miss_s, rebuild_s = loads.miss * s_per_byte, self.exposed * loads.rebuild * s_per_byte
        late_s = np.maximum(waits_s, rebuild_waits_s) if self.overlapped else waits_s + rebuild_waits_s
        link_s = self._joined(late_s, miss_s + rebuild_s)
        slowest = link_s.argmax(-1)[..., None]
        fetch_s, of_rebuild, added = (
            np.take_along_axis(of_links, slowest, -1)[..., 0]
            for of_links in (link_s, rebuild_waits_s + rebuild_s, waits_s + rebuild_waits_s + miss_s + rebuild_s)
        )
        rebuild_s = of_rebuild * np.divide(fetch_s, added, out=np.ones_like(fetch_s), where=added > 0)
        waited_s = np.maximum(fetch_s - self.hidden_s, 0.0)
        stall_s = waited_s - self.overlap * np.minimum(waited_s, self.base_s) + loads.stands
        hits = np.broadcast_to(loads.hits, link_s.shape)
        return StepCosts(
            seconds=self.base_s + stall_s,
            joules=self.busy_w * self.base_s + self.stall_w * stall_s,
            miss_s=fetch_s - rebuild_s,
            rebuild_s=rebuild_s + loads.stands,
            hits=hits,
            hit=hits @ np.array(self.asked),
        )

    def _joined(self, waits_s: Vector, transfers_s: Vector) -> Vector:
        if self.overlapped:
            return np.maximum(waits_s, transfers_s)
        if self.norm == 1.0:
            return waits_s + transfers_s
        return np.asarray((waits_s**self.norm + transfers_s**self.norm) ** (1 / self.norm))


@lru_cache(maxsize=256)
def _loads_of_actions(costs: CacheCosts) -> _Loads:
    """Return the loads of all actions, (A,) and (A, P - 1); cached because every decision needs them."""
    actions = CacheActions(costs.parts)
    windows = [actions.window(action) for action in range(len(actions))]
    loads = costs._loads(windows, np.stack([actions.shares(action) for action in range(len(actions))]))
    for array in loads:
        array.setflags(write=False)
    return loads


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class CacheChoices:
    """The choices of the simulator: the A = 8 P actions, and an evenly shared cache that is rebuilt once per epoch.

    Attributes:
        actions: the actions of a run, under the same numbers.
        windows: (A + 1,) W of each choice.
        allocations: (A + 1,) 0 for the uniform allocation, otherwise 1 + the index of the preferred part.
        shares: (A + 1, P - 1) shares of the cache for each other part's rows.
    """

    actions: CacheActions
    windows: NDArray[np.int64]
    allocations: NDArray[np.int64]
    shares: Floats

    @property
    def per_epoch(self) -> int:
        """Index of the choice that is not an action: rebuild at the start of an epoch (RapidGNN)."""
        return len(self.actions)


@lru_cache(maxsize=64)
def cache_choices(parts: int, epoch_steps: int) -> CacheChoices:
    """Return the choices of P parts for epochs of ``epoch_steps`` steps."""
    actions = CacheActions(parts)
    numbers = np.arange(len(actions) + 1)
    windows = np.array([*(actions.window(action) for action in range(len(actions))), epoch_steps])
    allocations = np.append(numbers[:-1] // len(WINDOWS), 0)
    shares = np.stack([*(actions.shares(action) for action in range(len(actions))), actions.shares(0)])
    return CacheChoices(actions, windows, allocations, shares)


@dataclass(frozen=True, slots=True, eq=False)
class CacheTables:
    """Costs of a step by choice and condition (C = A + 1 choices, K conditions, P parts).

    Attributes:
        step_s: (C, K) seconds.
        step_j: (C, K) joules of one part.
        miss_s: (C, K) seconds of the step for the slowest owner's misses.
        rebuild_s: (C, K) seconds of the step for rebuilding.
        hits: (C, P - 1) share of the rows requested from each owner that the cache contains.
        hit: (C,) the same over all owners.
        miss_bytes: (C, P - 1) bytes of the misses of each owner in a step.
    """

    step_s: Floats
    step_j: Floats
    miss_s: Floats
    rebuild_s: Floats
    hits: Floats
    hit: Floats
    miss_bytes: Floats


def cache_tables(costs: CacheCosts, choices: CacheChoices, trace: LinkTrace) -> CacheTables:
    """Return the costs of a step for every choice under every condition of a trace."""
    cost = costs.step(choices.windows[:, None], trace.delay_s, trace.bytes_per_s, choices.shares[:, None, :])
    hits = cost.hits[:, 0]
    return CacheTables(
        step_s=cost.seconds,
        step_j=cost.joules,
        miss_s=cost.miss_s,
        rebuild_s=cost.rebuild_s,
        hits=hits,
        hit=cost.hit[:, 0],
        miss_bytes=costs.row_bytes * costs.rows * np.array(costs.asked) * (1 - hits),
    )


_MS = 1e3


@dataclass(frozen=True, slots=True)
class RpcModel:
    """rtt = a + b bytes + trips delay + bytes / rate.

    Attributes:
        a_s: seconds to initiate a fetch.
        s_per_byte: b, seconds per byte on an unthrottled link.
        trips: number of the fetch's sequential messages; each one is delayed.

    References: SYSTEMS.md section 5, instead of GreenDyGNN's equation 4 (see :class:`PaperRpcModel`).
    """

    a_s: float
    s_per_byte: float
    trips: float = 1.0

    def rtt_s(self, nbytes: ArrayLike, delay_s: ArrayLike = 0.0, bytes_per_s: ArrayLike = np.inf) -> Vector:
        """Return seconds of a fetch of ``nbytes``; arguments broadcast."""
        sizes = np.asarray(nbytes, dtype=np.float64)
        added = self.trips * np.asarray(delay_s, dtype=np.float64) + sizes / np.asarray(bytes_per_s, dtype=np.float64)
        return np.asarray(self.a_s + self.s_per_byte * sizes + added)


@dataclass(frozen=True, slots=True)
class PaperRpcModel:
    """rtt = alpha + beta bytes + gamma bytes delay: the paper's model, for comparison.

    By this model, a delay of 20 ms makes a fetch of 200 kB only 0.8 ms slower, and one without bytes not at all.

    Attributes:
        alpha_s: seconds to initiate a fetch.
        s_per_byte: beta.
        s_per_byte_ms: gamma, seconds per byte and millisecond of delay.

    References: GreenDyGNN equations 4 and 8, with the constants of section IV-B.
    """

    alpha_s: float = 4.67e-3
    s_per_byte: float = 1.40e-9
    s_per_byte_ms: float = 2.01e-10

    def rtt_s(self, nbytes: ArrayLike, delay_s: ArrayLike = 0.0) -> Vector:
        """Return seconds of a fetch of ``nbytes``; arguments broadcast."""
        sizes, delay_ms = np.asarray(nbytes, dtype=np.float64), np.asarray(delay_s, dtype=np.float64) * _MS
        return np.asarray(self.alpha_s + self.s_per_byte * sizes + self.s_per_byte_ms * sizes * delay_ms)


PAPER = PaperRpcModel()
