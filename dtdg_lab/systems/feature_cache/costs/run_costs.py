"""Costs of a run's steps, counted and timed before it begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.calibration.fits import least_squares
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts, RpcModel
from dtdg_lab.systems.feature_cache.pipeline.fetching import Fetcher, OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace
from dtdg_lab.systems.feature_cache.pipeline.window_schedule import Lookahead

REPEATS, FEW, MANY = 5, 1, 2000  # repetitions, and the smaller and the larger number of rows
LEAST = 1e-3
LOGS = 20.0  # bound of logarithms in the search, so that exponentials stay finite


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Measurements of a run.

    Attributes:
        name: name of the dataset.
        part: the part that owns the cache.
        space: the space of all keys.
        capacity: rows of the cache.
        row_bytes: bytes of a row.
        base_s: seconds of a step whose features are local.
        rpc: time model of a fetch on clean links.
        busy_w, stall_w: watts of a part while computing, and while waiting.
    """

    name: str
    part: int
    space: KeySpace
    capacity: int
    row_bytes: int
    base_s: float
    rpc: RpcModel
    busy_w: float
    stall_w: float


def timed_fetches(
    fetcher: Fetcher,
    part: int,
    space: KeySpace,
    *,
    row_bytes: int,
    note: Callable[[OwnerReply], None],
    loopback: bool = False,
) -> RpcModel:
    """Fit the time model of a fetch to medians of a few small and large fetches from each other part.

    With ``loopback`` the part's own rows are requested instead, to time a fetch without a slow link.
    """
    times: dict[int, list[float]] = {FEW: [], MANY: []}
    sizes: dict[int, list[int]] = {FEW: [], MANY: []}
    for owner in range(space.parts):
        keys = space.of_part(owner)
        if (owner == part) != loopback or not len(keys):
            continue
        for rows in (FEW, MANY):
            for _ in range(REPEATS):
                start = time.perf_counter()
                reply = fetcher.fetch({owner: keys[:rows]})[owner]
                times[rows].append(time.perf_counter() - start)
                note(reply)
                sizes[rows].append(reply.nbytes)
    few_s, many_s = (float(np.median(times[rows])) for rows in (FEW, MANY))
    few, many = (float(np.median(sizes[rows])) for rows in (FEW, MANY))
    per_byte = max((many_s - few_s) / max(many - few, row_bytes), 1e-12)
    return RpcModel(max(few_s - per_byte * few, 0.0), per_byte)


def run_costs(facts: RunFacts, batches: Sequence[NDArray[np.int64]]) -> CacheCosts:
    """Estimate the constants of a part's steps from the keys of its first batches.

    Hit rates and rows of a rebuild are counted for every window, and the functions of :class:`CacheCosts` are fitted to
    them. Training, fetching and rebuilding are concurrent: the longest determines the time. A rebuild delays training
    by the initiation of a fetch, so the longest of equally good windows is the cheapest.

    Args:
        facts: measurements of the run.
        batches: remote keys of the batches, distinct within each.
    """
    num_others = facts.space.parts - 1
    ahead = Lookahead(0, batches, facts.space, part=facts.part, capacity=facts.capacity, serving=None)
    windows = np.array([window for window in WINDOWS if window <= len(batches)] or [1])
    outlooks = [ahead.outlook(int(window), np.full(num_others, 1 / num_others)) for window in windows]
    rows = np.array([outlook.requested for outlook in outlooks])
    missed = np.array([outlook.missed.sum() for outlook in outlooks])
    fetched = np.maximum([outlook.fetched.sum() for outlook in outlooks], 1.0)
    hits = 1 - missed / np.maximum(rows.sum(axis=1), 1.0)
    highest, lowest, half, slope = _hit_law(windows, hits)
    exponent = float(np.polyfit(np.log(windows), np.log(fetched), 1)[0]) if len(windows) > 1 else 0.0
    shares = np.maximum(rows[-1], LEAST)
    return CacheCosts(
        name=facts.name,
        parts=facts.space.parts,
        base_s=facts.base_s,
        rows=float(max(rows[-1].sum(), 1.0)),
        row_bytes=float(facts.row_bytes),
        link_bytes_per_s=1 / facts.rpc.s_per_byte,
        trips=0.0,
        rebuild_trips=1.0,
        miss_trips=1.0,
        hit_max=highest,
        hit_min=lowest,
        hit_half=half,
        hit_slope=slope,
        capacity_exponent=0.5,
        rebuild_rows=float(fetched[0]),
        rebuild_exponent=float(np.clip(exponent, 0.0, 0.99)),
        overlap=1.0,
        rebuild_s=facts.rpc.a_s,
        busy_w=facts.busy_w,
        stall_w=facts.stall_w,
        asked=tuple((shares / shares.sum()).tolist()),
        rpc_s=facts.rpc.a_s,
    )


def _hit_law(windows: NDArray[np.int64], hits: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """Fit h_max, h_min, W_half and gamma of a logistic decay to counted hit rates."""
    highest, lowest = (float(np.clip(rate, 0.0, 1.0)) for rate in (hits[0], hits[-1]))
    if highest - lowest < LEAST:
        return highest, min(highest, lowest), 16.0, 1.0

    def errors(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        low, (half, slope) = lowest * _share(parameters[0]), np.exp(np.clip(parameters[1:], -LOGS, LOGS))
        power = np.exp(np.clip(slope * np.log(windows / half), -LOGS, LOGS))
        return np.asarray(low + (highest - low) / (1 + power) - hits)

    solution = least_squares(errors, np.array([3.0, np.log(16.0), 0.0]))
    half, slope = np.clip(np.exp(np.clip(solution[1:], -LOGS, LOGS)), 1e-2, [1e4, 8.0])
    return highest, float(lowest * _share(solution[0])), float(half), float(slope)


def _share(logit: float) -> float:
    return float(1 / (1 + np.exp(-np.clip(logit, -LOGS, LOGS))))
