"""Tiles of a run with hybrid batches, suggestions of changes, and the number that changes are compared by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.hybrid_batches.events import HybridFacts, SizeFacts, span_text
from dtdg_lab.systems.hybrid_batches.observations import (
    averaging,
    in_use,
    newest_sources,
    size_now,
    spread_decisions,
    staleness_text,
    step_clock,
    steps_per_second,
)
from dtdg_lab.visualization.numbers import UNKNOWN, percent_text, three_digits
from dtdg_lab.visualization.tiles import SPARK_POINTS, Effect, Suggestion, Tile, spark_of

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig

_NAMED = 3  # ranks that a second line has room for


def size_tile(tables: RunTables) -> Tile:
    """Return the size of the batches now."""
    facts = tables.event(HybridFacts)
    sizes = () if facts is None else facts.sizes
    choices = () if facts is None else in_use(spread_decisions(tables), facts)
    size = None if facts is None else size_now(tables, facts)
    spark = [_targets(sizes[decision.action]) for decision in choices if decision.action < len(sizes)]
    return Tile(
        label="Batch size",
        value=UNKNOWN if size is None else size.name,
        note="snapshots × nodes" if size is None else _counts_text(size),
        tooltip="Shares of the snapshots and of each part's nodes in one step, or numbers of them.",
        spark=spark_of(spark),
    )


def _counts_text(size: SizeFacts) -> str:
    return f"{size.snapshots} snapshots × {span_text(size.least_targets, size.most_targets)} nodes"


def _targets(size: SizeFacts) -> float:
    return float(size.snapshots * size.most_targets)


def rate_tile(tables: RunTables) -> Tile:
    """Return the steps a second of all ranks together."""
    rates = steps_per_second(tables)
    if len(rates) <= _NAMED:
        note = ", ".join(f"rank {rank}: {rate:.3g}" for rank, rate in sorted(rates.items()))
    else:
        note = f"{min(rates.values()):.3g} to {max(rates.values()):.3g} on {len(rates)} ranks"
    return Tile(
        label="Steps per second",
        value=three_digits(sum(rates.values())) if rates else UNKNOWN,
        note=note or "of all ranks together",
        tooltip="Updates of all ranks together; ranks don't wait for each other.",
        spark=_rates_over_time(tables),
    )


def _rates_over_time(tables: RunTables) -> tuple[float, ...]:
    """Return the steps a second of all ranks over the run."""
    clock = step_clock(tables)
    if not clock or tables.seconds <= 0:
        return ()
    bounds = np.linspace(0.0, tables.seconds, min(SPARK_POINTS, max(2, int(tables.seconds))) + 1)
    steps_made = sum(np.interp(bounds, seconds, steps + 1, left=0.0) for steps, seconds in clock.values())
    return tuple((np.diff(steps_made) / np.diff(bounds)).tolist())


def reservoir_tile(tables: RunTables) -> Tile:
    """Return the share of the newest batches that came from the reservoir."""
    keeps, sources = bool(tables.config["reservoir"]), newest_sources(tables)
    is_kept = (tables.rows("targets")["source"].astype(str) == "reservoir").astype(np.float64)
    return Tile(
        label="From the reservoir",
        value=percent_text(sources.count("reservoir") / len(sources)) if keeps and sources else UNKNOWN,
        note=f"of the last {len(sources) or 200} batches" if keeps else "no reservoir is kept",
        tooltip="Share of batches that were ready before the step needed them.",
        spark=spark_of(is_kept) if keeps and len(is_kept) > SPARK_POINTS else (),
    )


def staleness_tile(tables: RunTables) -> Tile:
    """Return the mean staleness of the newest averaged models."""
    averages = tables.config["exchange"] == "models"
    rounds = averaging(tables) if averages else {}
    recent = [rank_rounds.recent for rank_rounds in rounds.values()]
    spark = next(iter(rounds.values())).staleness if rounds else ()
    return Tile(
        label="Staleness",
        value=f"{staleness_text(float(np.mean(recent)))} steps" if recent else UNKNOWN if averages else "0 steps",
        note="of averaged models" if averages else "gradients are summed",
        tooltip="Steps a rank makes between handing in its model and taking over the average. Fewer is better.",
        spark=spark_of(spark),
    )


def suggest(config: RunConfig) -> list[Suggestion]:
    """Return changes to try on a run with these settings."""
    fixed: dict[str, Any] = {"batch_policy": "none", "batch_snapshots": 0.2, "batch_nodes": 0.05}
    suggestions = [
        Suggestion("Fix the size at 20% × 5%", fixed),
        Suggestion("Let the DQN choose", {"batch_policy": "dqn"}),
    ]
    if config["exchange"] == "models":
        suggestions.append(Suggestion("Average every 5 s", {"average_every_s": 5.0}))
    else:
        suggestions.append(Suggestion("Keep batches in a reservoir", {"reservoir": True}))
    if config.ranks > 1:
        suggestions.append(Suggestion("Slow down rank 1 by 100 ms", {"slow_rank": 1, "slow_ms": 100.0}))
    return suggestions


def _rates(tables: RunTables) -> tuple[Array, Array]:
    """Return the steps of rank 0, and the steps a second of all ranks at the time of each."""
    clock = step_clock(tables)
    if 0 not in clock:
        return np.empty(0), np.empty(0)
    by_rank = tables.rows("steps").by("rank")
    first_rank = by_rank[0]
    if not tables.own_steps:
        return first_rank["step"], 1 / first_rank["time_s"].clip(1e-9)
    rates = [
        1 / np.interp(first_rank["seconds"], rows["seconds"], np.maximum(rows["time_s"], 1e-9))
        for rows in by_rank.values()
    ]
    return first_rank["step"], np.sum(rates, axis=0)


STEPS_PER_SECOND = Effect("Steps per second", three_digits, _rates)
