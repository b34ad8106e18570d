"""The page of ESDG: its tiles, its suggestions, and the number compared after a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_blocks.ownership_chart import SENT, blocks_of, memory_limit, probed_memory
from dtdg_lab.systems.snapshot_blocks.periods import peaks_by_step
from dtdg_lab.visualization.numbers import bytes_text, percent_text, seconds_text
from dtdg_lab.visualization.runs.overview import common_tiles
from dtdg_lab.visualization.runs.transfers import EQUAL, measured_traffic, predicted_traffic
from dtdg_lab.visualization.runs.waiting import EXCHANGES, HIDDEN_HELP, communication_time
from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile, spark_of

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig

PEAK_MEMORY = Effect("Peak memory", bytes_text, peaks_by_step)


def esdg_tiles(tables: RunTables) -> Sequence[Tile]:
    """Return tiles for validation loss, step time, peak memory, bytes sent, and the hidden share of communication."""
    return [*common_tiles(tables), _peak_tile(tables), _sent_tile(tables), _hidden_tile(tables)]


def _peak_tile(tables: RunTables) -> Tile:
    memory, limit, facts = probed_memory(tables), memory_limit(tables), blocks_of(tables)
    if limit is not None:
        note = f"limit {bytes_text(limit)}"
    else:
        note = "" if facts is None else "with 1 block" if facts.blocks == 1 else f"with {facts.blocks:,} blocks"
    return Tile(
        label="Peak memory",
        value=bytes_text(None if memory is None else memory.peak_bytes),
        note=note,
        tooltip="Most memory a step used on rank 0 when it was last probed.",
        tone="bad" if memory is not None and limit is not None and memory.peak_bytes > limit else "",
    )


def _sent_tile(tables: RunTables) -> Tile:
    measured, predicted = measured_traffic(tables), predicted_traffic(tables)
    count, note = None if measured is None else measured.total, ""
    if tables.ranks == 1 or (predicted is not None and not predicted.total):
        count, note = count or 0.0, "one rank has all" if tables.ranks == 1 else "gradients only"
    elif measured is not None and predicted is not None:
        excess = measured.total / predicted.total - 1
        note = f"{percent_text(abs(excess))} {'more' if excess > 0 else 'less'} than predicted"
        note = "as predicted" if abs(excess) <= EQUAL else note
    rows = tables.rollup(SENT)
    return Tile(
        label="Rows sent per step",
        value=bytes_text(count),
        note=note,
        tooltip="Bytes of rows that all ranks send each other in one step, without gradients.",
        spark=spark_of(rows["bytes"] / (rows["step_most"] - rows["step_least"] + 1)),
    )


def _hidden_tile(tables: RunTables) -> Tile:
    time, rows = communication_time(tables), tables.rollup(EXCHANGES)
    in_flight_s = np.where(rows["in_flight_s"] > 0, rows["in_flight_s"], np.nan)
    return Tile(
        label="Row exchange hidden",
        value=percent_text(None if time is None else time.hidden_share),
        note="" if time is None else f"of {seconds_text(time.in_flight_s)} per step",
        tooltip=HIDDEN_HELP,
        spark=spark_of(1 - rows["exposed_s"] / in_flight_s),
    )


def esdg_suggestions(config: RunConfig) -> Sequence[Suggestion]:
    """Return changes to try; the page leaves out those that are already set."""
    suggestions = [Suggestion("Use 1 block", {"blocks": 1}), Suggestion("Use 8 blocks", {"blocks": 8})]
    if config.ranks > 1:
        suggestions.append(Suggestion("Turn overlap off", {"overlap": "off"}))
        suggestions.append(Suggestion("Slow down rank 1 by 20 ms", {"slow_rank": 1, "slow_ms": 20.0}))
    return suggestions
