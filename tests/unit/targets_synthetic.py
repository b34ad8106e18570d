"""Hybrid batches of made-up runs: the event that tells them, batches, levels, rounds and decisions."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from synthetic_lines import START_NS, line, step_row

PARTS, RANKS, PER_EPOCH, STEP_NS = 2, 2, 20, 20_000_000
CANDIDATES = (240, 200)
SNAPSHOTS, FIRST = 20, 3
GRID = tuple((snapshots, vertices) for snapshots in (0.1, 0.2, 0.3) for vertices in (0.01, 0.05, 0.1))


def sizes_of(shares: Sequence[tuple[float, float]]) -> list[list[int]]:
    """N_S, and N_V of the smallest and the largest part, of each pair of shares."""
    return [
        [math.ceil(s * SNAPSHOTS), math.ceil(v * min(CANDIDATES)), math.ceil(v * max(CANDIDATES))] for s, v in shares
    ]  # fmt: skip


def hybrid_data(*, batch_policy: str = "none", choice: int = 0, **more: Any) -> dict[str, Any]:
    """The data of an event ``hybrid``; nine sizes where a batch policy chooses, else 20 % x 5 %."""
    shares = [list(each) for each in GRID] if batch_policy != "none" else [[0.2, 0.05]]
    sizes = sizes_of([(s, v) for s, v in shares])
    capacities = [
        [max(1, n * SNAPSHOTS // (size[0] * size[1] * len(sizes))) for n in CANDIDATES] for size in sizes
    ]  # fmt: skip
    data = {
        "sizes": sizes, "shares": shares, "snapshots": SNAPSHOTS, "first": FIRST, "nodes": 460,
        "candidates": list(CANDIDATES), "choice": choice, "batch_policy": batch_policy, "reservoir": False,
        "exchange": "gradients", "average_every_s": 0.5, "capacities": capacities, "load_groups": 10,
        "cache_bytes": 3 << 20, **more,
    }  # fmt: skip
    return json.loads(json.dumps(data))


def dynahb_data(**more: Any) -> dict[str, Any]:
    """The same with all that the system ``dynahb`` has."""
    return hybrid_data(**{"batch_policy": "dqn", "reservoir": True, "exchange": "models"} | more)


def event(data: dict[str, Any], *, step: int = 0, attempt: int = 1, at: int = 0) -> dict[str, Any]:
    return line("events", [[step, step // PER_EPOCH, START_NS + step + at, "hybrid", data]], attempt=attempt)


def spread(targets: int, candidates: int, step: int = 0) -> list[int]:
    """Targets in each sixtieth of the candidates: about as many in every one."""
    runs = [0] * 60
    for place in range(targets):
        runs[((place * candidates // targets) + step) % candidates * 60 // candidates] += 1
    return runs


def target_row(
    step: int, part: int, data: dict[str, Any], *, source: str | None = None, drawn: bool = True
) -> list[Any]:  # fmt: skip
    """A row of ``targets``: half of the batches from the reservoir where there is one."""
    action = data["choice"]
    snapshots, least, most = data["sizes"][action]
    candidates = data["candidates"][part]
    targets = most if candidates == max(data["candidates"]) else least
    kind = source or ("reservoir" if data["reservoir"] and step % 2 else "new")
    targets = candidates if kind == "snapshot" else targets
    first = data["first"] + (7 * step + 3 * part) % (data["snapshots"] - snapshots + 1)
    drawn_map = spread(targets, candidates, step) if drawn else None
    return [step, step // PER_EPOCH, part, action, step, kind, first, snapshots, targets, 3 * targets * snapshots,
            7 * targets, 0.004, drawn_map]  # fmt: skip


def step_lines(
    data: dict[str, Any], steps: Sequence[int], *, attempt: int = 1, ranks: Sequence[int] = range(RANKS), **more: Any
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """What ranks tell of steps, a part each."""
    for step in steps:
        for rank in ranks:
            yield line("targets", [target_row(step, rank, data, **more)], rank=rank, attempt=attempt)
            yield line("steps", [step_row(step, 1.0, per_epoch=PER_EPOCH)], rank=rank, attempt=attempt)


def level_lines(data: dict[str, Any], count: int, *, step: int = 0, attempt: int = 1) -> Iterator[dict[str, Any]]:
    """Levels of every part and size, told ``count`` times half a second apart: one more batch each time."""
    for at in range(count):
        for part in range(len(data["candidates"])):
            rows = []
            for action, capacities in enumerate(data["capacities"]):
                held = min(at, capacities[part])
                time_ns = START_NS + at * 500_000_000 + part
                rows.append(
                    [step + at, 0, time_ns, part, action, held, capacities[part], 1000 * held, held, 0.01 * at, held]
                )  # fmt: skip
            yield line("reservoir", rows, rank=part, attempt=attempt)


def round_row(number: int, joined: int, applied: int, *, weight: float = 1.0) -> list[Any]:
    """A row of ``rounds``."""
    return [applied, applied // PER_EPOCH, number, joined, applied, weight, 0, 0, weight == 0 or number == 0]


def decision_row(
    number: int, action: int, reward: float | None, *, policy: str = "dqn", values: Sequence[float | None] = (),
    every: int = 5,
) -> list[Any]:  # fmt: skip
    """A row of ``decisions`` of a batch policy; epsilon falls from 1 by 0.95 to 0.1."""
    epsilon = max(0.1, 0.95**number)
    state = {"loss_reduction": 0.1 / (1 + number), "epsilon": epsilon, "greedy": number % 3 != 0, "loss": 1.0,
             "step_s": 0.014, "steps": every}  # fmt: skip
    described = list(values) or [0.1 * action - 0.01 * number for action in range(len(GRID))]
    step = every * (number + 1)
    return [step, step // PER_EPOCH, policy, state, described, action, reward]


def decisions(count: int, *, best: int = 4, policy: str = "dqn", seed: int = 0) -> list[list[Any]]:
    """Decisions that come to prefer ``best``, which earns most."""
    draws, rows, before = random.Random(seed), [], None
    for number in range(count):
        action = best if draws.random() > max(0.1, 0.95**number) else draws.randrange(len(GRID))
        reward = None if before is None else 0.2 - 0.05 * abs(before - best) + draws.gauss(0, 0.05)
        values = [0.2 - 0.05 * abs(each - best) - 0.5 / (1 + number) * (each % 3) for each in range(len(GRID))]
        rows.append(decision_row(number, action, reward, policy=policy, values=values))
        before = action
    return rows
