"""Tiles, suggestions and the compared number of runs with decayed windows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.decayed_windows.step_charts import window_means, windows_by_step
from dtdg_lab.systems.decayed_windows.step_windows import (
    RECENT,
    facts_now,
    held_share,
    is_sampled,
    mean_rows,
    newest_window,
)
from dtdg_lab.visualization.numbers import UNKNOWN, bytes_text, percent_text, three_digits
from dtdg_lab.visualization.runs.waiting import EXCHANGES, HIDDEN_HELP, communication_time
from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile, spark_of

SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        "flaredtdg": "FlareDTDG uses the newest snapshots in full and keeps ever fewer nodes of older ones.",
        "full-history": "Every step trains on a whole window of full snapshots, exchanged between ranks.",
        "recent-only": "Every step trains on the two newest snapshots alone, both in full.",
        "dynagraph": "DynaGraph samples a few neighbours of every node in each snapshot of a window.",
    }
)
MORE_ALPHA, LESS_ALPHA = 0.6, 0.1
FEW_NEIGHBOURS, MANY_NEIGHBOURS = 5, 20
SLOW_MS = 20.0


def window_tiles(tables: RunTables) -> list[Tile]:
    """Return the tiles of rows, memory and communication; of sampled edges where neighbours are sampled."""
    return [_rows(tables), _memory(tables), _edges(tables) if is_sampled(tables) else _communication(tables)]


def _rows(tables: RunTables) -> Tile:
    rows, share, note = mean_rows(tables), held_share(tables), ""
    if rows is not None:
        note = "with copies of neighbours" if share is None else f"{percent_text(share)} of full windows"
    return Tile(
        label="Rows per step",
        value=UNKNOWN if rows is None else f"{rows:,.0f}",
        note=note,
        tooltip=f"Node rows that a step computes, all ranks together. Mean of the last {RECENT} steps.",
        spark=spark_of(window_means(tables).rows),
    )


def _memory(tables: RunTables) -> Tile:
    facts = facts_now(tables)
    if facts is not None:
        peak_bytes, note = facts.peak_bytes(), "predicted"
        tooltip = "Memory one step needs at its peak on the busiest rank."
    else:
        peaks = tables.rows("memory")["peak_bytes"].astype(np.float64)
        peaks = peaks[np.isfinite(peaks)]
        peak_bytes, note = float(peaks[-tables.ranks :].max()) if len(peaks) else None, "measured"
        tooltip = "Most memory a step used when it was last probed, on the busiest rank."
    note = note if peak_bytes is not None else ""
    return Tile(label="Peak memory", value=bytes_text(peak_bytes), note=note, tooltip=tooltip)


def _communication(tables: RunTables) -> Tile:
    time = communication_time(tables)
    note = "one rank sends nothing" if tables.ranks == 1 else ""
    if time is not None:
        note = f"of {three_digits(1e3 * time.in_flight_s)} ms per step"
    return Tile(
        label="Row exchange hidden",
        value=UNKNOWN if time is None else percent_text(time.hidden_share),
        note=note,
        tooltip=HIDDEN_HELP,
        spark=spark_of(_hidden_shares(tables)),
    )


def _hidden_shares(tables: RunTables) -> Array:
    rows = tables.rollup(EXCHANGES)
    if not len(rows):
        return np.empty(0)
    in_flight_s = np.where(rows["in_flight_s"] > 0, rows["in_flight_s"], np.nan)
    return np.clip(1 - rows["exposed_s"] / in_flight_s, 0.0, 1.0)


def _edges(tables: RunTables) -> Tile:
    window = newest_window(tables)
    return Tile(
        label="Sampled edges",
        value=UNKNOWN if window is None else f"{window.edges:,}",
        note=f"up to {tables.config['fanout']} per node",
        tooltip="Edges that the current step aggregates over, all parts together.",
    )


# Suggestions


def window_suggestions(config: RunConfig) -> list[Suggestion]:
    """Return changes to try that differ from the settings, at most four."""
    flat = config.flat
    if "alpha" in flat:
        suggestions = [_alpha(flat), _full_snapshots(flat), _decay(flat)]
    else:
        suggestions = [_window(flat)]
        if "fanout" in flat:
            suggestions.append(_fanout(flat))
        elif flat["partitioner"] != "hash":
            suggestions.append(Suggestion("Partition by hash", {"partitioner": "hash"}))
    if config.ranks > 1:
        slow = {"slow_rank": 1, "slow_ms": SLOW_MS}
        suggestions.append(Suggestion(f"Slow down rank 1 by {SLOW_MS:.0f} ms", slow))
    return [tried for tried in suggestions if any(flat[name] != value for name, value in tried.changes.items())]


def _alpha(flat: Mapping[str, Any]) -> Suggestion:
    if flat["alpha"] < MORE_ALPHA:
        return Suggestion(f"Keep more of the past: alpha {MORE_ALPHA:g}", {"alpha": MORE_ALPHA})
    return Suggestion(f"Keep less of the past: alpha {LESS_ALPHA:g}", {"alpha": LESS_ALPHA})


def _full_snapshots(flat: Mapping[str, Any]) -> Suggestion:
    full = min(2, flat["window"]) if flat["full_snapshots"] != 2 else min(4, flat["window"])
    full = full if full != flat["full_snapshots"] else 1
    return Suggestion(f"Use {full} full snapshot{'s' * (full > 1)}", {"full_snapshots": full})


def _decay(flat: Mapping[str, Any]) -> Suggestion:
    if flat["decay"] == "text":
        return Suggestion("Decay faster: ladder", {"decay": "ladder"})
    return Suggestion("Decay evenly: text", {"decay": "text"})


def _window(flat: Mapping[str, Any]) -> Suggestion:
    window = flat["window"]
    if window < 4:
        return Suggestion(f"Double the window: {2 * window} snapshots", {"window": 2 * window})
    return Suggestion(f"Halve the window: {window // 2} snapshots", {"window": window // 2})


def _fanout(flat: Mapping[str, Any]) -> Suggestion:
    if flat["fanout"] > FEW_NEIGHBOURS:
        return Suggestion(f"Sample {FEW_NEIGHBOURS} neighbours of each node", {"fanout": FEW_NEIGHBOURS})
    return Suggestion(f"Sample {MANY_NEIGHBOURS} neighbours of each node", {"fanout": MANY_NEIGHBOURS})


# The compared number


def rows_effect() -> Effect:
    """Return rows per step, which is compared before and after each change."""
    return Effect("Rows per step", lambda rows: f"{rows:,.0f}", _rows_by_step)


def _rows_by_step(tables: RunTables) -> tuple[Array, Array]:
    windows = windows_by_step(tables)
    return windows.steps, windows.rows
