"""Tiles, suggestions and the compared number of training in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.rows import Array
from dtdg_lab.systems.single.events import OverlapProfile
from dtdg_lab.systems.single.picture import is_shared
from dtdg_lab.visualization.numbers import bytes_text, joules_text, percent_text, seconds_text
from dtdg_lab.visualization.runs.overview import common_tiles
from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile, spark_of

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

RECENT = 50  # steps that tiles are means of


def single_tiles(tables: RunTables) -> list[Tile]:
    """Return validation loss, step time, computing, memory, and energy or snapshots that share a product."""
    last = _shared_snapshots(tables) if is_shared(tables) else _energy(tables)
    return [*common_tiles(tables), _computing(tables), _memory(tables), last]


def _computing(tables: RunTables) -> Tile:
    rows = tables.rows("steps")
    shares = np.nan_to_num(_numbers(rows["compute_s"])) / _numbers(rows["time_s"])
    return Tile(
        label="Computing",
        value=percent_text(_mean(shares[-RECENT:])),
        note="of each step",
        tooltip="Share of a step that is its forward and backward pass, mean of the last 50 steps.",
        spark=spark_of(shares),
    )


def _memory(tables: RunTables) -> Tile:
    peaks = _numbers(tables.rows("memory")["peak_bytes"])
    known = peaks[np.isfinite(peaks)]
    return Tile(
        label="Peak memory",
        value=bytes_text(float(known[-1]) if len(known) else None),
        note="of one step",
        tooltip="Most memory a step used when it was last probed.",
    )


def _energy(tables: RunTables) -> Tile:
    rows = tables.rows("steps")
    joules = _numbers(rows["energy_j"])
    source = "unknown here" if not np.isfinite(joules).any() else str(rows["energy_source"][-1])
    return Tile(
        label="Energy per step",
        value=joules_text(_mean(joules[-RECENT:])),
        note=source,
        tooltip="Joules that a step takes, mean of the last 50 steps.",
        spark=spark_of(joules),
    )


def _shared_snapshots(tables: RunTables) -> Tile:
    profile = tables.event(OverlapProfile)
    is_measured = profile is not None and bool(profile.sizes)
    common = profile.shares[profile.sizes.index(profile.chosen)] if profile and is_measured else None
    return Tile(
        label="Snapshots per product",
        value="–" if profile is None else str(profile.chosen),
        note="not measured" if common is None else f"{percent_text(common)} of edges in common",
        tooltip="Consecutive snapshots whose common edges are aggregated once.",
    )


def _numbers(column: Array) -> Array:
    return column.astype(np.float64)


def _mean(values: Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def single_suggestions(config: RunConfig) -> list[Suggestion]:
    """Return how many snapshots share a product, a learning rate and a slow process."""
    shared = [
        Suggestion("Share 4 snapshots", {"shared_snapshots": 4}),
        Suggestion("Share no product", {"shared_snapshots": 1}),
    ]
    return [
        *(shared if "shared_snapshots" in config.flat else ()),
        Suggestion("Learning rate 0.003", {"learning_rate": 0.003}),
        Suggestion("Slow down rank 0 by 20 ms", {"slow_rank": 0, "slow_ms": 20.0}),
    ]


def step_seconds(tables: RunTables) -> tuple[Array, Array]:
    """Return recent steps and their seconds."""
    rows = tables.rows("steps")
    return rows["step"], _numbers(rows["time_s"])


STEP_TIME = Effect("Step time", seconds_text, step_seconds)
