"""The page of node parts: its tiles, its suggestions, and the number compared after a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.vertex_parts.charts import STEPS, exchanges_rows
from dtdg_lab.visualization.numbers import bytes_text, percent_text
from dtdg_lab.visualization.runs.overview import common_tiles
from dtdg_lab.visualization.runs.waiting import waiting_share
from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile, spark_of

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig

RECENT = 50  # number of newest steps whose mean bytes are shown
_SUGGESTED_PARTS = 8


def part_tiles(tables: RunTables) -> Sequence[Tile]:
    """Return tiles for validation loss, step time, waiting, edges cut and bytes sent."""
    return [*common_tiles(tables), _waiting_tile(tables), _cut_tile(tables), _sent_tile(tables)]


def waiting_share_by_step(tables: RunTables) -> tuple[Array, Array]:
    """Return recent steps that all ranks have completed, and the share of the ranks' time spent waiting."""
    steps, waited_s = _sums_by_step(tables, "wait_s")
    time_s = _sums_by_step(tables, "time_s")[1]
    return steps, waited_s / np.where(time_s > 0, time_s, np.nan)


WAITING = Effect("Waiting", percent_text, waiting_share_by_step)


def _sums_by_step(tables: RunTables, column: str) -> tuple[Array, Array]:
    """Return recent steps that all ranks have completed, and the sum of a column of ``steps`` over ranks."""
    rows = tables.rows("steps")
    rows = rows.where(rows["step"] <= tables.common_step)
    steps, index = np.unique(rows["step"], return_inverse=True)
    return steps, np.bincount(index, np.nan_to_num(rows[column].astype(np.float64)), len(steps))


def _waiting_tile(tables: RunTables) -> Tile:
    rows = tables.rollup(STEPS)
    return Tile(
        label="Waiting",
        value=percent_text(waiting_share(tables)),
        note="of the ranks' time",
        tooltip="Time that ranks wait for the slowest rank.",
        spark=spark_of(rows["wait_s"] / np.where(rows["time_s"] > 0, rows["time_s"], np.nan)),
    )


def _cut_tile(tables: RunTables) -> Tile:
    facts = tables.event(PartitionFacts)
    return Tile(
        label="Edges cut",
        value=percent_text(None if facts is None else facts.shares["cut"]),
        note="join two parts",
        tooltip="Share of edges whose ends belong to different parts.",
    )


def _sent_tile(tables: RunTables) -> Tile:
    recent, rows = tables.last("steps", RECENT), tables.rollup(STEPS)
    count = len(np.unique(recent["step"]))
    return Tile(
        label="Sent per step",
        value=bytes_text(float(np.nansum(recent["bytes_sent"].astype(np.float64))) / count if count else None),
        note="rows and gradients" if exchanges_rows(tables) else "gradients",
        tooltip="Bytes that all ranks send in one step.",
        spark=spark_of(rows["bytes_sent"] / (rows["step_most"] - rows["step_least"] + 1)),
    )


def part_suggestions(config: RunConfig) -> Sequence[Suggestion]:
    """Return changes to try; the page leaves out those that are already set."""
    parts = _SUGGESTED_PARTS if _SUGGESTED_PARTS % config.ranks == 0 else 2 * config.ranks
    suggestions = [
        Suggestion("Partition by hash", {"partitioner": "hash"}),
        Suggestion("Partition by hypergraph", {"partitioner": "hypergraph"}),
        Suggestion(f"Use {parts} parts", {"parts": parts}),
    ]
    if config.ranks > 1:
        suggestions.append(Suggestion("Slow down rank 1 by 20 ms", {"slow_rank": 1, "slow_ms": 20.0}))
    return suggestions
