"""What steps of a run cost, as far as it can be counted and timed before it begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_costs import CacheCosts
from dtdg_lab.control.rpc_model import RpcModel
from dtdg_lab.control.small_fit import least_squares
from dtdg_lab.core.feature_path import WINDOWS, Fetcher, OwnerReply
from dtdg_lab.features.keys import KeySpace
from dtdg_lab.features.lookahead import Lookahead

REPEATS, FEW, MANY = 5, 1, 2000  # fetches of so many rows
LEAST = 1e-3
LOGS = 20.0  # a search may try any number: powers of e up to here stay finite, and are as good as 0 or infinity


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What was measured of a run.

    Attributes:
        name: of the data.
        part: whose cache it is.
        space: of all keys.
        capacity: rows of the cache.
        row_bytes: of a row.
        base_s: seconds of a step whose features are here.
        rpc: law of a fetch over clean links.
        busy_w, stall_w: watts of a part while it computes, and while it waits.
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
    fetcher: Fetcher, part: int, space: KeySpace, *, row_bytes: int, note: Callable[[OwnerReply], None],
    loopback: bool = False,
) -> RpcModel:  # fmt: skip
    """The law of a fetch, by medians of a few small and a few larger ones of each other part, told to ``note``.

    With ``loopback`` the part's own rows are asked for instead: what a fetch takes that no link slows.
    """
    times: dict[int, list[float]] = {FEW: [], MANY: []}
    sizes: dict[int, list[int]] = {FEW: [], MANY: []}
    for owner in range(space.parts):
        keys = space.of_part(owner)
        if (owner == part) != loopback or not len(keys):
            continue
        for rows in (FEW, MANY):
            for _ in range(REPEATS):
                began = time.perf_counter()
                reply = fetcher.fetch({owner: keys[:rows]})[owner]
                times[rows].append(time.perf_counter() - began)
                note(reply)
                sizes[rows].append(reply.nbytes)
    few_s, many_s = (float(np.median(times[rows])) for rows in (FEW, MANY))
    few, many = (float(np.median(sizes[rows])) for rows in (FEW, MANY))
    per_byte = max((many_s - few_s) / max(many - few, row_bytes), 1e-12)
    return RpcModel(max(few_s - per_byte * few, 0.0), per_byte)


def run_costs(of: RunFacts, asked: Sequence[NDArray[np.int64]]) -> CacheCosts:
    """Constants of a part's steps, from what its first batches ask for.

    Hit rates and rows of a rebuild are counted for every window, and the laws of :class:`CacheCosts` put through them.
    Training, fetching and rebuilding go on beside each other: the longest decides. A rebuild is taken to cost training
    as long as initiating a fetch, so that of windows that are as good the longest is the cheapest.

    Args:
        of: what was measured.
        asked: remote keys of the batches, distinct within each.
    """
    others = of.space.parts - 1
    ahead = Lookahead(0, asked, of.space, part=of.part, capacity=of.capacity, serving=None)
    windows = np.array([window for window in WINDOWS if window <= len(asked)] or [1])
    outlooks = [ahead.outlook(int(window), np.full(others, 1 / others)) for window in windows]
    rows = np.array([outlook.asked for outlook in outlooks])
    missed = np.array([outlook.missed.sum() for outlook in outlooks])
    fetched = np.maximum([outlook.fetched.sum() for outlook in outlooks], 1.0)
    hits = 1 - missed / np.maximum(rows.sum(axis=1), 1.0)
    most, least, half, slope = _hit_law(windows, hits)
    exponent = float(np.polyfit(np.log(windows), np.log(fetched), 1)[0]) if len(windows) > 1 else 0.0
    shares = np.maximum(rows[-1], LEAST)
    return CacheCosts(
        name=of.name, parts=of.space.parts, base_s=of.base_s, rows=float(max(rows[-1].sum(), 1.0)),
        row_bytes=float(of.row_bytes), link_bytes_per_s=1 / of.rpc.s_per_byte, trips=0.0,
        rebuild_trips=1.0, miss_trips=1.0,
        hit_max=most, hit_min=least, hit_half=half, hit_slope=slope, capacity_exponent=0.5,
        rebuild_rows=float(fetched[0]), rebuild_exponent=float(np.clip(exponent, 0.0, 0.99)), overlap=1.0,
        rebuild_s=of.rpc.a_s,
        busy_w=of.busy_w, stall_w=of.stall_w, asked=tuple((shares / shares.sum()).tolist()), rpc_s=of.rpc.a_s,
    )  # fmt: skip


def _hit_law(windows: NDArray[np.int64], hits: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """h_max, h_min, W_half and gamma of a logistic decay through counted hit rates."""
    most, least = (float(np.clip(of, 0.0, 1.0)) for of in (hits[0], hits[-1]))
    if most - least < LEAST:
        return most, min(most, least), 16.0, 1.0

    def left(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        low, (half, slope) = least * _share(parameters[0]), np.exp(np.clip(parameters[1:], -LOGS, LOGS))
        power = np.exp(np.clip(slope * np.log(windows / half), -LOGS, LOGS))
        return np.asarray(low + (most - low) / (1 + power) - hits)

    found = least_squares(left, np.array([3.0, np.log(16.0), 0.0]))
    half, slope = np.clip(np.exp(np.clip(found[1:], -LOGS, LOGS)), 1e-2, [1e4, 8.0])
    return most, float(least * _share(found[0])), float(half), float(slope)


def _share(of: float) -> float:
    return float(1 / (1 + np.exp(-np.clip(of, -LOGS, LOGS))))
