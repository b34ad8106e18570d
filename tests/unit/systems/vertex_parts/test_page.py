"""Tiles, suggestions and the compared number of node parts."""

from __future__ import annotations

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.charts import all_rollups
from dtdg_lab.systems.vertex_parts import FAMILY
from tests.plan_events import partition_data
from tests.tables import run_tables


def test_tiles_and_effect_are_waiting_edges_cut_and_bytes() -> None:
    steps = [
        {"rank": rank, "step": step, "time_s": 0.1, "wait_s": 0.02 * rank, "bytes_sent": 2048}
        for step in range(10)
        for rank in (0, 1)
    ]
    events = [{"kind": "partition", "data": partition_data([[1, 1]] * 2)}]
    run = run_tables({"system": "adgnn-t"}, {"steps": steps}, events=events, rollups=all_rollups())
    tiles = {tile.label: tile for tile in FAMILY.tiles(run)}
    assert tiles["Waiting"].value == "10%" and tiles["Waiting"].spark == pytest.approx((0.1,) * 10)
    assert tiles["Edges cut"].value == "47%"
    assert (tiles["Sent per step"].value, tiles["Sent per step"].note) == ("4.00 KiB", "rows and gradients")
    steps_of_effect, shares = FAMILY.effect("adgnn-t").values(run)
    assert steps_of_effect.tolist() == [*range(10)] and shares == pytest.approx([0.1] * 10)


def test_suggested_parts_are_a_multiple_of_the_ranks() -> None:
    config = RunConfig(system="adgnn-t", ranks=3)
    for suggestion in FAMILY.suggestions(config):
        config.replace(**suggestion.changes)
    assert "Use 6 parts" in [suggestion.text for suggestion in FAMILY.suggestions(config)]
