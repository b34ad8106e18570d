"""Tiles, suggestions and the effects column of systems that fetch features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.energy.total import MEASURED
from dtdg_lab.network.links import with_link
from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.charts.batches import batch_sums, hit_rate_now, hits_by_step, wait_now_s, waits
from dtdg_lab.systems.feature_cache.charts.caches import mean_lengths
from dtdg_lab.systems.feature_cache.charts.captions import CHOSEN_BY, ms_text
from dtdg_lab.systems.feature_cache.charts.picture import window_text
from dtdg_lab.systems.feature_cache.charts.step_chart import has_cache, policy_in_use
from dtdg_lab.systems.feature_cache.events import CACHELESS, FeatureFacts
from dtdg_lab.visualization.numbers import UNKNOWN, joules_text, percent_text
from dtdg_lab.visualization.runs.energy import energy_total, joules_so_far
from dtdg_lab.visualization.runs.overview import loss_tile
from dtdg_lab.visualization.tiles import SPARK_POINTS, Effect, Suggestion, Tile, spark_of

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig

_STEP_TIMES = 50  # steps of the mean time of a step
_LONG_WINDOW, _DELAY_MS, _DELAYED_PART, _SMALL_CACHE = 64, 60.0, 1, 300


def cache_tiles(tables: RunTables) -> list[Tile]:
    """Return validation loss, hits, waiting, window and energy."""
    return [loss_tile(tables), _hit_tile(tables), _wait_tile(tables), _window_tile(tables), _energy_tile(tables)]


def _hit_tile(tables: RunTables) -> Tile:
    cached = has_cache(tables)
    return Tile(
        label="Cache hit rate",
        value=percent_text(hit_rate_now(tables)),
        note="of remote rows" if cached else "this policy keeps no cache",
        tooltip="Share of the other parts' rows that batches found in a cache, last 100 steps.",
        spark=spark_of(batch_sums(tables).rates(SPARK_POINTS)[1]),
    )


def _wait_tile(tables: RunTables) -> Tile:
    times = tables.last("steps", _STEP_TIMES)["time_s"]
    step = ms_text(float(np.nanmean(times)) if len(times) else None)
    return Tile(
        label="Waiting for features",
        value=ms_text(wait_now_s(tables)),
        note=f"of {step} per step",
        tooltip="Time that training stands still for missing rows, mean of the parts and of the last 100 steps.",
        spark=spark_of(waits(tables).mean_s),
    )


def _window_tile(tables: RunTables) -> Tile:
    policy = policy_in_use(tables)
    text, cached = window_text(tables), has_cache(tables)
    part, _, length = mean_lengths(tables)
    return Tile(
        label="Cache window (W)",
        value=text if text and cached else UNKNOWN,
        note=CHOSEN_BY.get(policy, f"chosen by {policy}") if cached else "no cache",
        tooltip="Steps that a cache serves before it is replaced.",
        spark=spark_of(length[part == part[0]]) if len(part) and cached else (),
    )


def _energy_tile(tables: RunTables) -> Tile:
    joules, epochs = joules_so_far(tables), _epochs_done(tables)
    kinds = {"measured" if source in MEASURED else source for source in energy_total(tables).joules()}
    return Tile(
        label="Energy per epoch",
        value=joules_text(joules / epochs if joules is not None and epochs else None),
        note=" and ".join(sorted(kinds)) or "unknown on this machine",
        tooltip="Joules of all ranks per epoch so far.",
    )


def _epochs_done(tables: RunTables) -> float:
    """Return how many epochs the ranks have done, with the share of the one they are in."""
    facts, rows = tables.event(FeatureFacts), tables.last("steps", 1)
    if facts is None or not len(rows):
        return 0.0
    return float((rows["epoch"] + (rows["iteration"] + 1) / facts.steps_per_epoch).mean())


def cache_suggestions(config: RunConfig) -> Sequence[Suggestion]:
    """Return what to try: slow links, a long window, the paper's network, and a small cache."""
    suggestions = []
    if config.parts > _DELAYED_PART:
        slowed = with_link(str(config["links"]), config.parts, (_DELAYED_PART, None), delay_ms=_DELAY_MS)
        suggestions.append(Suggestion(f"Delay part {_DELAYED_PART} by {_DELAY_MS:.0f} ms", {"links": slowed}))
    fixed = {"cache_policy": "fixed", "cache_window": _LONG_WINDOW}
    suggestions.append(Suggestion(f"Fix the window at {_LONG_WINDOW} steps", fixed))
    suggestions.append(Suggestion("Use a Double DQN", {"cache_policy": "double_dqn"}))
    rows = int(config["cache_rows"])
    if config["cache_policy"] not in CACHELESS and rows > 1:
        # half of a cache that is never full changes nothing
        text, fewer = ("Halve the cache", rows // 2) if rows <= 2 * _SMALL_CACHE else ("Small caches", _SMALL_CACHE)
        suggestions.append(Suggestion(f"{text}: {fewer:,} rows", {"cache_rows": fewer}))
    return suggestions


def _hit_rates(tables: RunTables) -> tuple[Array, Array]:
    steps, remote, hit = hits_by_step(tables)
    has_requests = remote > 0
    return steps[has_requests], hit[has_requests] / remote[has_requests]


HIT_RATE = Effect("Cache hit rate", percent_text, _hit_rates)
