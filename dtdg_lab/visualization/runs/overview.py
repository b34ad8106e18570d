"""Charts and tiles of every run, whatever its system: loss, time and energy."""

from __future__ import annotations

from statistics import fmean

import numpy as np

from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.chart import Chart
from dtdg_lab.visualization.numbers import UNKNOWN, seconds_text, three_digits
from dtdg_lab.visualization.runs.energy import energy_by_phase_chart, energy_chart
from dtdg_lab.visualization.runs.loss import SPLIT_NAMES, against_persistence, evaluations, judged_split, loss_chart
from dtdg_lab.visualization.runs.step_time import STEP_SECONDS, step_time_chart, step_times
from dtdg_lab.visualization.runs.timeline import timeline_chart
from dtdg_lab.visualization.tiles import Tile, spark_of


def common_charts() -> tuple[Chart, ...]:
    """Return the charts that every run has; a page sorts them by ``place`` first."""
    return loss_chart(), step_time_chart(), energy_chart(), timeline_chart(), energy_by_phase_chart()


def common_tiles(tables: RunTables) -> tuple[Tile, Tile]:
    """Return the tiles of validation loss and step time."""
    return loss_tile(tables), step_time_tile(tables)


def loss_tile(tables: RunTables) -> Tile:
    """Return the tile of the newest validation loss, or of the training loss where a protocol has no validation."""
    split = judged_split(tables)
    rows = evaluations(tables).get(split, [])
    newest = rows[-1] if rows else None
    against = "" if newest is None else against_persistence(newest)
    losses = [float(row["loss"]) for row in rows if row["loss"] is not None]
    return Tile(
        label=f"{SPLIT_NAMES[split].capitalize()} loss",
        value=UNKNOWN if newest is None else three_digits(newest["loss"]),
        note=against,
        tooltip=f"Mean error on the {SPLIT_NAMES[split]} snapshots. Persistence predicts that nothing changes.",
        tone="" if not against else "good" if "below" in against else "bad",
        spark=spark_of(losses),
    )


def step_time_tile(tables: RunTables) -> Tile:
    """Return the tile of the time per step over all ranks."""
    times = step_times(tables)
    mean_s = fmean(rank_times.time_s for rank_times in times.values()) if times else None
    rows = tables.rollup(STEP_SECONDS)
    means = rows["time_s"] / np.maximum(rows["time_s_known"], 1) if len(rows) else np.empty(0)
    return Tile(
        label="Step time",
        value=seconds_text(mean_s),
        note=f"{three_digits(1 / mean_s)} steps/s of training" if mean_s else "",
        tooltip="Mean of the last 50 steps of all ranks, without the evaluations and checkpoints between them.",
        spark=spark_of(means),
    )
