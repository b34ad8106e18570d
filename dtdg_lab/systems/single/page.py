"""The page of training in one process: its tiles, its suggestions, and the number compared after a change."""

from __future__ import annotations

import numpy as np

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.single.charts import is_shared
from dtdg_lab.systems.single.events import OverlapProfile
from dtdg_lab.visualization.numbers import bytes_text, joules_text, percent_text, seconds_text
from dtdg_lab.visualization.runs.overview import common_tiles
from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile, spark_of

RECENT = 50  # number of newest steps whose mean tiles show


def single_tiles(tables: RunTables) -> list[Tile]:
    """Return tiles for validation loss, step time, computing, memory, and energy or snapshots that share a product."""
    last = _shared_snapshots(tables) if is_shared(tables) else _energy(tables)
    return [*common_tiles(tables), _computing(tables), _memory(tables), last]


def _computing(tables: RunTables) -> Tile:
    rows = tables.rows("steps")
    shares = np.nan_to_num(_floats(rows["compute_s"])) / _floats(rows["time_s"])
    return Tile(
        label="Computing",
        value=percent_text(_mean(shares[-RECENT:])),
        note="of each step",
        tooltip="Share of a step that is its forward and backward pass, mean of the last 50 steps.",
        spark=spark_of(shares),
    )


def _memory(tables: RunTables) -> Tile:
    peaks = _floats(tables.rows("memory")["peak_bytes"])
    probed = peaks[np.isfinite(peaks)]
    return Tile(
        label="Peak memory",
        value=bytes_text(float(probed[-1]) if len(probed) else None),
        note="of one step",
        tooltip="Most memory a step used when it was last probed.",
    )


def _energy(tables: RunTables) -> Tile:
    rows = tables.rows("steps")
    joules = _floats(rows["energy_j"])
    source = "unknown here" if not np.isfinite(joules).any() else str(rows["energy_source"][-1])
    return Tile(
        label="Energy per step",
        value=joules_text(_mean(joules[-RECENT:])),
        note=source,
        tooltip="Joules that a step takes, mean of the last 50 steps.",
        spark=spark_of(joules),
    )


def _shared_snapshots(tables: RunTables) -> Tile:
    profile, note = tables.event(OverlapProfile), "not measured"
    if profile is not None and profile.sizes:
        note = f"{percent_text(profile.shares[profile.sizes.index(profile.chosen)])} of edges in common"
    return Tile(
        label="Snapshots per product",
        value="–" if profile is None else str(profile.chosen),
        note=note,
        tooltip="Consecutive snapshots whose common edges are aggregated once.",
    )


def _floats(column: Array) -> Array:
    return column.astype(np.float64)


def _mean(values: Array) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def single_suggestions(config: RunConfig) -> list[Suggestion]:
    """Return suggestions for sharing products of snapshots, the learning rate and a slow process."""
    sharing = [
        Suggestion("Share 4 snapshots", {"shared_snapshots": 4}),
        Suggestion("Share no product", {"shared_snapshots": 1}),
    ]
    return [
        *(sharing if "shared_snapshots" in config.flat else ()),
        Suggestion("Learning rate 0.003", {"learning_rate": 0.003}),
        Suggestion("Slow down rank 0 by 20 ms", {"slow_rank": 0, "slow_ms": 20.0}),
    ]


def step_seconds(tables: RunTables) -> tuple[Array, Array]:
    """Return recent steps and their seconds."""
    rows = tables.rows("steps")
    return rows["step"], _floats(rows["time_s"])


STEP_TIME = Effect("Step time", seconds_text, step_seconds)
