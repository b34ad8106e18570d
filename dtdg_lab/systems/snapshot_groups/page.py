"""The page of snapshot groups: its tiles, its suggestions, and the number compared after a change."""

from __future__ import annotations

import numpy as np

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_groups.balance import balance_by_epoch, iterations, last_balance
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.gantt import measured_bound, schedule_of, shown_epoch
from dtdg_lab.systems.snapshot_groups.group_times import group_times, planned_seconds, predicted_seconds
from dtdg_lab.visualization.numbers import UNKNOWN, percent_text, seconds_text, three_digits
from dtdg_lab.visualization.runs.overview import loss_tile
from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile, spark_of


def schedule_tiles(tables: RunTables) -> list[Tile]:
    """Return tiles for validation loss, epoch time, distance from the bound, waiting and imbalance."""
    return [loss_tile(tables), _epoch_time(tables), _above_bound(tables), _waiting(tables), _imbalance(tables)]


def _epoch_time(tables: RunTables) -> Tile:
    seconds = [event["data"]["time_s"] for event in tables.events("epoch") if event["data"].get("time_s") is not None]
    return Tile(
        label="Epoch time",
        value=seconds_text(seconds[-1] if seconds else None),
        note=f"predicted: {seconds_text(predicted_seconds(tables))}",
        tooltip="Wall-clock time of the last whole epoch. Predicted: by the times of its groups, without exchanges.",
        spark=spark_of(seconds),
    )


def _above_bound(tables: RunTables) -> Tile:
    excess, bound_s = excess_and_bound(tables)
    return Tile(
        label="Above the bound",
        value=percent_text(excess),
        note="no bound is known" if bound_s is None else f"groups alone: {seconds_text(bound_s)} at best",
        tooltip="How much longer this schedule takes than the shortest one, by the groups' work without exchanges.",
    )


def _waiting(tables: RunTables) -> Tile:
    balance, epochs = last_balance(tables), balance_by_epoch(tables)
    return Tile(
        label="Waiting",
        value=percent_text(None if balance is None else balance.waiting_share),
        note="of the ranks' time",
        tooltip="Time that ranks wait for the slowest rank of an iteration.",
        spark=spark_of(_ratios(epochs["wait_s"], epochs["time_s"])),
    )


def _imbalance(tables: RunTables) -> Tile:
    balance, epochs = last_balance(tables), balance_by_epoch(tables)
    ratio = None if balance is None else balance.imbalance
    return Tile(
        label="Imbalance",
        value=UNKNOWN if ratio is None else f"{three_digits(ratio)}×",
        note="slowest rank over mean",
        tooltip="Mean over the iterations of the last epoch.",
        spark=spark_of(_ratios(epochs["critical_s"], epochs["own_s"])),
    )


def excess_and_bound(tables: RunTables) -> tuple[float | None, float | None]:
    """Return by which share the schedule should take longer than the bound, and the bound in seconds.

    Both use the times of groups measured in the epoch on display, or else those that the scheduler knew.
    """
    blocks, schedule = shown_epoch(tables), tables.event(ScheduleFacts)
    if schedule is None or tables.config.flat.get("pipelined"):  # groups of a rank overlap, so their times are unknown
        return None, None
    if blocks is not None and blocks.schedule is schedule:
        bound_s = measured_bound(blocks, pipelined=False)
        if bound_s:
            return max(0.0, planned_seconds(schedule, blocks.times_s()) / bound_s - 1), bound_s
    times = group_times(tables)
    scale = None if times is None else times.scale
    excess = None if schedule.excess is None else max(0.0, schedule.excess)
    return excess, None if scale is None else scale * schedule.bound_s


def _ratios(values: Array, totals: Array) -> Array:
    ratios: Array = values / np.where(totals > 0, totals, np.nan)
    return ratios


# Suggestions, and the number that is compared before and after a change.


def schedule_suggestions(config: RunConfig) -> list[Suggestion]:
    """Return suggestions for the schedule, and a slow rank."""
    by_turns, pairs = config["scheduler"] == "round_robin", config["groups_per_rank"] > 1
    greedy = Suggestion("Pair groups by time: dygnex_greedy", {"scheduler": "dygnex_greedy"})
    suggestions = [
        greedy if by_turns else Suggestion("Use round robin", {"scheduler": "round_robin"}),
        Suggestion("Allow 1 group per rank", {"groups_per_rank": 1})
        if pairs
        else Suggestion("Allow 2 groups per rank", {"groups_per_rank": 2}),
        Suggestion("Solve it exactly: dygnex_ilp", {"scheduler": "dygnex_ilp"}),
    ]
    if config.ranks > 1:
        suggestions.append(Suggestion("Slow down rank 1 by 20 ms", {"slow_rank": 1, "slow_ms": 20.0}))
    return suggestions


def epoch_pace(tables: RunTables) -> tuple[Array, Array]:
    """Return recent steps, and each step's time multiplied by the number of iterations in its epoch."""
    rows = iterations(tables.rows("steps"))
    schedules = {epoch: schedule_of(tables, epoch) for epoch in np.unique(rows["epoch"]).tolist()}
    iterations_by_epoch = {epoch: np.nan if plan is None else plan.iterations for epoch, plan in schedules.items()}
    counts = np.array([iterations_by_epoch[epoch] for epoch in rows["epoch"].tolist()], np.float64)
    return rows["step"], rows["time_s"] * counts


EPOCH_TIME = Effect("Epoch time", seconds_text, epoch_pace)
