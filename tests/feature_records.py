"""Fetched features of made-up runs: the events that tell them, batches, calls, caches and decisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions

PARTS, PER_EPOCH, ROW_BYTES, REMOTE, CAPACITY, STEP_NS = 4, 20, 400, 1200, 900, 20_000_000
SLOW_OWNER, SLOW_MS = 2, 20.0
FROM, TO = 40, 80  # steps in which the slow owner is slow


def features_data(**more: Any) -> dict[str, Any]:
    """The data of an event ``features``."""
    data = {
        "parts": PARTS,
        "rows": 8000,
        "row_bytes": ROW_BYTES,
        "remote_share": 0.62,
        "policy": "double_dqn",
        "window": 16,
        "cache_rows": CAPACITY,
        "steps_per_epoch": PER_EPOCH,
        "batch_size": 512,
        "batch_length": 1,
        "fanouts": "10 25",
        **more,
    }
    return json.loads(json.dumps(data))


def congestion_data(
    delay_ms: dict[int, float] | None = None,
    mbit: dict[int, float] | None = None,
    *,
    parts: int = PARTS,
    pattern: str = "one_slow",
    by: str = "emulated",
) -> dict[str, Any]:
    """The data of an event ``congestion``: what is added to every link of some owners."""
    late = [[(delay_ms or {}).get(o, 0.0) * (o != r) for r in range(parts)] for o in range(parts)]
    rate = [[(mbit or {}).get(o) if o != r else None for r in range(parts)] for o in range(parts)]
    return {"pattern": pattern, "delay_ms": late, "mbit": rate, "by": by}


def slow_at(step: int) -> bool:
    return FROM <= step < TO


def resolved_row(
    step: int, part: int, *, rate: float = 0.75, window: int = 0, parts: int = PARTS, wait_s: float = 0.002
) -> list[Any]:
    """A row of ``resolved``: the same number of rows of each other part, of which the cache has ``rate``."""
    each = REMOTE // (parts - 1)
    hit = round(rate * each)
    hits = [0 if owner == part else hit for owner in range(parts)]
    misses = [0 if owner == part else each - hit for owner in range(parts)]
    calls = sum(count > 0 for count in misses)
    return [
        step,
        step // PER_EPOCH,
        part,
        window,
        each * (parts - 1),
        hits,
        misses,
        calls,
        sum(misses) * ROW_BYTES,
        0.004,
        wait_s,
    ]


def fetch_row(
    step: int,
    part: int,
    owner: int,
    *,
    purpose: str = "miss",
    rows: int = 100,
    late_ms: float | None = None,
    rtt_s: float = 0.0012,
) -> list[Any]:
    """A row of ``fetches``; later by what is added to the owner."""
    late = late_ms if late_ms is not None else SLOW_MS * (slow_at(step) and owner == SLOW_OWNER)
    return [step, step // PER_EPOCH, part, owner, purpose, rows, rows * ROW_BYTES, rtt_s + late / 1e3]


def window_row(
    step: int,
    part: int,
    number: int,
    length: int,
    *,
    late: int = 0,
    biased: int = -1,
    parts: int = PARTS,
    policy: str = "double_dqn",
    exposed_s: float = 0.0,
) -> list[Any]:
    """A row of ``windows``: the whole capacity is held, 60 % of one owner where that is preferred."""
    others = [owner for owner in range(parts) if owner != part]
    shares = {owner: 1 / len(others) for owner in others}
    if biased in shares and len(others) > 1:
        shares = {owner: 0.6 if owner == biased else 0.4 / (len(others) - 1) for owner in others}
    by_owner = [round(CAPACITY * shares.get(owner, 0.0)) for owner in range(parts)]
    action = -1
    if length in WINDOWS:
        action = CacheActions(parts).action(length, others.index(biased) if biased in others else None)
    held = sum(by_owner)
    return [
        step,
        step // PER_EPOCH,
        part,
        number,
        step - late,
        length,
        late,
        policy,
        action,
        biased,
        CAPACITY,
        held,
        held // 2,
        held - held // 2,
        by_owner,
        0.03,
        exposed_s,
    ]


def decision_row(
    step: int,
    part: int,
    window: int,
    *,
    biased: int = -1,
    greedy: bool = True,
    delays_ms: Sequence[float] | None = None,
    parts: int = PARTS,
    policy: str = "double_dqn",
    reward: float | None = -1.1,
    values: bool = True,
) -> list[Any]:
    """A row of ``cache_decisions``: values that fall with the distance from what was chosen."""
    others = [owner for owner in range(parts) if owner != part]
    actions = CacheActions(parts)
    action = actions.action(window, others.index(biased) if biased in others else None)
    chosen = divmod(action, len(WINDOWS))
    worth = [
        round(-1 - 0.1 * abs(w - chosen[1]) - 0.05 * (b != chosen[0]), 4)
        for b in range(parts)
        for w in range(len(WINDOWS))
    ]
    late = [SLOW_MS * 0.95 * (slow_at(step) and owner == SLOW_OWNER) for owner in others]
    delays = list(delays_ms) if delays_ms is not None else late
    return [
        step,
        step // PER_EPOCH,
        part,
        policy,
        {"state": [0.0] * (3 * parts + 11)},
        worth if values else [],
        action,
        window,
        biased,
        0.05,
        greedy,
        reward,
        delays,
        [],
        0,
        False,
    ]
