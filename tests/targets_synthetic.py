"""Hybrid batches of made-up runs: the event that tells them, batches, levels, rounds and decisions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from tests.synthetic_lines import START_NS, line, step_row

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
