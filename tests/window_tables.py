"""Tables of made-up runs with windows: 640 nodes in 128 chunks, an epoch of 20 training snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtdg_lab.config.catalogue import family
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.decayed_windows.window import Trapezoid, Window, epoch_windows
from dtdg_lab.visualization.runs.overview import common_charts
from tests.tables import run_tables

NODES, CHUNKS = 640, 128
TRAIN = range(20)
PER_CHUNK = NODES // CHUNKS
PHASES = {"time_s": 0.01, "batch_s": 0.001, "compute_s": 0.006, "wait_s": 0.002, "communicate_s": 0.001}


def trapezoid_data(config: RunConfig, **changes: Any) -> dict[str, Any]:
    """Return the data of an event ``trapezoid``: 5 nodes a chunk on both ranks together, 3 on the larger one."""
    flat = config.flat
    shape = {"window": flat["window"], "full_snapshots": flat["window"], "alpha": 1.0, "decay": "ladder"}
    shape |= {name: flat[name] for name in shape if name in flat}
    counts = {"row_counts": PER_CHUNK, "rank_row_counts": 3}
    sizes = {name: [size * chunks for chunks in range(CHUNKS + 1)] for name, size in counts.items()}
    memory = {"base_bytes": 1_000_000, "row_bytes": 1000.0}
    return {**shape, "chunks": CHUNKS, "nodes": NODES, **sizes, **memory, **changes}


def events(config: RunConfig, train: range = TRAIN, **changes: Any) -> list[dict[str, Any]]:
    """Return what a run tells before its first step."""
    parts = {"train": {"first": train.start, "last": train.stop - 1, "without_edges": []}}
    shape = {"kind": "trapezoid", "data": trapezoid_data(config, **changes)}
    return [{"kind": "parts", "data": parts}, *([shape] if config.system != "dynagraph" else [])]


def planned_windows(config: RunConfig, epoch: int = 0, train: range = TRAIN) -> tuple[Window, ...]:
    """Return the windows of an epoch, one for each training snapshot."""
    data = trapezoid_data(config)
    full = min(data["full_snapshots"], data["window"])
    shape = Trapezoid(data["window"], full, CHUNKS, data["alpha"], data["decay"])
    return epoch_windows(train, shape, seed=0, epoch=epoch)


def window_rows(config: RunConfig, steps: Sequence[int], train: range = TRAIN, **more: Any) -> list[dict[str, Any]]:
    """Return rows of ``batches``: each rank holds half of the nodes."""
    rows = []
    epochs = {step // len(train) for step in steps}
    windows = {epoch: planned_windows(config, epoch, train) for epoch in epochs}
    for step in steps:
        window = windows[step // len(train)][step % len(train)]
        chunks = [*window.counts, *[None] * window.full]
        held = sum(PER_CHUNK * (CHUNKS if count is None else count) for count in chunks)
        row = {
            "step": step,
            "epoch": step // len(train),
            "target": window.target,
            "first": window.snapshots.start,
            "full": window.full,
            "chunks": chunks,
            "rows": held / config.ranks,
            "edges": 0,
            "shrink_s": 0.0005,
        }
        rows += [{**row, "rank": rank, **more} for rank in range(config.ranks)]
    return rows


def sampled_rows(config: RunConfig, steps: Sequence[int]) -> list[dict[str, Any]]:
    """Return rows of ``batches`` with 10 edges of snapshot 0, 11 of snapshot 1 and so on, on each rank."""
    rows = []
    for step in steps:
        window = range(max(0, step % len(TRAIN) - config["window"] + 1), step % len(TRAIN) + 1)
        sampled = [10 + snapshot for snapshot in window]
        row = {"step": step, "epoch": step // len(TRAIN), "target": window[-1], "first": window[0]}
        row |= {"full": len(window), "chunks": [None] * len(window), "rows": 400, "edges": sum(sampled)}
        row |= {"shrink_s": 0.001, "sampled": sampled}
        rows += [{**row, "rank": rank} for rank in range(config.ranks)]
    return rows


def step_rows(config: RunConfig, steps: Sequence[int]) -> list[dict[str, Any]]:
    """Return rows of ``steps``: 10 ms each, 60% of it computing."""
    return [
        {"rank": rank, "step": step, "epoch": step // len(TRAIN), **PHASES}
        for step in steps
        for rank in range(config.ranks)
    ]


def window_tables(
    settings: Mapping[str, Any] | None = None,
    steps: Sequence[int] = (),
    *,
    train: range = TRAIN,
    tables: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    more_events: Sequence[Mapping[str, Any]] = (),
    **changes: Any,
) -> RunTables:
    """Return the tables of a run that has made some steps.

    Args:
        settings: of the run.
        steps: that both ranks have made.
        train: the training snapshots.
        tables: further tables.
        more_events: further events.
        changes: of the event ``trapezoid``.
    """
    config = RunConfig(**{"system": "flaredtdg", "ranks": 2, **(settings or {})})
    made = sampled_rows(config, steps) if config.system == "dynagraph" else window_rows(config, steps, train)
    return run_tables(
        config,
        {"batches": made, "steps": step_rows(config, steps), **(tables or {})},
        events=[*events(config, train, **changes), *more_events],
        rollups=window_rollups(),
    )


def window_rollups() -> list[Rollup]:
    """Return the sums that charts and tiles of windows need."""
    charts = (*common_charts(), *family("decayed_windows").charts())
    return [rollup for chart in charts for rollup in chart.rollups]
