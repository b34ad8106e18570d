"""Windows of made-up runs: the event that tells their shape, batches and decisions, for tests of views and pages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from synthetic_lines import START_NS, line, step_row

from dtdg_lab.systems.decayed_windows.window import HybridBatch, Trapezoid, decayed_counts, epoch_batches

NODES, CHUNKS, RANKS = 640, 128, 2
TRAIN = range(20)
PER_EPOCH = len(TRAIN)


def trapezoid_data(**more: Any) -> dict[str, Any]:
    """The data of an event ``trapezoid``: 5 nodes a chunk on both ranks together, 3 on the larger one."""
    data = {
        "window": 8, "full_snapshots": 2, "alpha": 0.1, "decay": "ladder", "chunks": CHUNKS, "nodes": NODES,
        "row_counts": [5 * c for c in range(CHUNKS + 1)], "rank_row_counts": [3 * c for c in range(CHUNKS + 1)],
        "base_bytes": 1_000_000, "row_bytes": 1000.0, **more,
    }  # fmt: skip
    whole = data["window"] - min(data["full_snapshots"], data["window"])
    counts = decayed_counts(data["decay"], chunks=data["chunks"], alpha=data["alpha"], decayed=whole)
    return json.loads(json.dumps({**data, "counts": list(counts)}))


def event(data: dict[str, Any], *, step: int = 0, attempt: int = 1, at: int = 0) -> dict[str, Any]:
    return line("events", [[step, step // PER_EPOCH, START_NS + step + at, "trapezoid", data]], attempt=attempt)


def batches(data: dict[str, Any], epoch: int = 0) -> tuple[HybridBatch, ...]:
    """The steps of an epoch, one for each snapshot of ``TRAIN``."""
    full = min(data["full_snapshots"], data["window"])
    shape = Trapezoid(data["window"], full, data["chunks"], data["alpha"], data["decay"])
    return epoch_batches(TRAIN, shape, seed=0, epoch=epoch)


def batch_row(data: dict[str, Any], batch: HybridBatch, step: int, *, shrink_s: float = 0.0002) -> list[Any]:
    """A row of ``batches`` of one of two ranks."""
    chunks = [*batch.counts, *[None] * batch.full]
    rows = sum(5 * (data["chunks"] if count is None else count) for count in chunks) // RANKS
    numbers = [batch.target, batch.snapshots.start, batch.full, chunks, rows, 4 * sum(batch.counts)]
    return [step, step // PER_EPOCH, *numbers, shrink_s, None]


def step_lines(
    data: dict[str, Any], steps: Sequence[int], *, attempt: int = 1, shrink_s: float = 0.0002,
    ranks: Sequence[int] = range(RANKS),
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """What the ranks tell of steps."""
    for step in steps:
        batch = batches(data, step // PER_EPOCH)[step % PER_EPOCH]
        for rank in ranks:
            row = batch_row(data, batch, step, shrink_s=shrink_s)
            yield line("batches", [row], rank=rank, attempt=attempt)
            yield line("steps", [step_row(step, 1.0, per_epoch=PER_EPOCH)], rank=rank, attempt=attempt)


def decision_row(
    step: int, state: tuple[int, float], action: tuple[int, float], losses: dict[tuple[int, float], float | None],
    *, most_bytes: float = 1 << 30,
) -> list[Any]:  # fmt: skip
    """A row of ``decisions``, as training/tuning.py has it; neighbours without a loss are over the budget."""

    def named(setting: tuple[int, float]) -> dict[str, Any]:
        return {"full_snapshots": setting[0], "alpha": setting[1]}

    values = [named(setting) | {"bytes": 1e6 * setting[0], "loss": loss} for setting, loss in losses.items()]
    reward = (losses.get(state) or 0.0) - (losses.get(action) or 0.0)
    described = named(state) | {"bytes": 1e6 * state[0], "most_bytes": most_bytes}
    return [step, step // PER_EPOCH - 1, "greedy", described, values, named(action), reward]


LOOKS = (
    (40, (2, 0.1), (2, 0.2), {(2, 0.1): 0.5, (1, 0.1): 0.6, (2, 0.2): 0.4, (3, 0.1): 0.45}),
    (80, (2, 0.2), (3, 0.2), {(2, 0.2): 0.39, (1, 0.2): 0.5, (2, 0.1): 0.42, (2, 0.3): 0.4, (3, 0.2): 0.35}),
    (120, (3, 0.2), (3, 0.2), {(3, 0.2): 0.34, (2, 0.2): 0.37, (3, 0.1): 0.36, (3, 0.3): 0.35, (4, 0.2): None}),
)
