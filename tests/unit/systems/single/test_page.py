"""Tiles, suggestions and the compared number of training in one process."""

from __future__ import annotations

from dtdg_lab.runs.charts import all_rollups
from dtdg_lab.systems.single.page import STEP_TIME, single_tiles
from tests.tables import run_tables

SHARED = {"chosen": 4, "sizes": [1, 4], "seconds": [0.004, 0.002], "shares": [1.0, 0.6], "note": ""}


def test_tiles_have_the_numbers_of_recent_steps() -> None:
    step = {"time_s": 0.02, "compute_s": 0.015, "energy_j": 2.0, "energy_source": "modelled"}
    steps = [{"step": number, **step} for number in range(3)]
    records = {"steps": steps, "memory": [{"step": 1, "peak_bytes": 3 * 2**20}]}
    run = run_tables({"system": "single", "ranks": 1}, records, rollups=all_rollups())
    tiles = {tile.label: (tile.value, tile.note) for tile in single_tiles(run)}
    assert list(tiles) == ["Validation loss", "Step time", "Computing", "Peak memory", "Energy per step"]
    assert tiles["Computing"] == ("75%", "of each step") and tiles["Peak memory"] == ("3.00 MiB", "of one step")
    assert tiles["Energy per step"] == ("2.00 J", "modelled")
    events = [{"kind": "shared_edges", "data": SHARED}]
    shared = run_tables({"system": "pipad", "ranks": 1}, records, events=events, rollups=all_rollups())
    assert (single_tiles(shared)[-1].value, single_tiles(shared)[-1].note) == ("4", "60% of edges in common")


def test_compared_number_is_the_step_time() -> None:
    run = run_tables({"system": "single", "ranks": 1}, {"steps": [{"step": 0, "time_s": 0.5}]})
    steps, seconds = STEP_TIME.values(run)
    assert (steps.tolist(), seconds.tolist()) == ([0], [0.5])
