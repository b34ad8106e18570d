"""Tiles, suggestions and sentences of ESDG."""

from __future__ import annotations

import numpy as np

from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups
from dtdg_lab.systems.snapshot_blocks import FAMILY
from tests.plan_events import blocks_data, memory_data, plan
from tests.tables import run_tables

STEPS = [(rank, step) for step in range(3) for rank in (0, 1)]


def tiles(run: RunTables) -> dict[str, tuple[str, str]]:
    return {tile.label: (tile.value, tile.note) for tile in FAMILY.tiles(run)}


def test_tiles_say_peak_bytes_and_hidden_share() -> None:
    data = blocks_data(plan())
    sent = np.sum([matrix for layers in data["predicted"].values() for matrix in layers], axis=0)
    links = [
        {"rank": rank, "step": step, "pass_name": "forward", "to": 1 - rank, "bytes": int(sent[rank, 1 - rank])}
        for rank, step in STEPS
    ]
    exchanges = [
        {"rank": rank, "step": step, "collective": name, "in_flight_s": 0.004, "exposed_s": 0.001}
        for rank, step in STEPS
        for name in ("to_vertices", "to_snapshots")
    ]
    tables = {"steps": [{"rank": rank, "step": step, "time_s": 0.1} for rank, step in STEPS]}
    events = [{"kind": "blocks", "data": data}, {"kind": "memory_trace", "step": 1, "data": memory_data(3)}]
    run = run_tables(
        {"system": "esdg"}, {**tables, "links": links, "exchanges": exchanges}, events=events, rollups=all_rollups()
    )
    texts = tiles(run)
    assert texts["Peak memory"] == ("1.22 KiB", "with 3 blocks")
    assert texts["Rows sent per step"] == ("15.9 KiB", "as predicted")
    assert texts["Row exchange hidden"] == ("75%", "of 8.00 ms per step")


def test_tiles_without_rows_are_dashes() -> None:
    texts = tiles(run_tables({"system": "esdg", "blocks": 0}, rollups=all_rollups()))
    assert texts["Peak memory"] == ("–", "limit 4.00 GiB")
    assert texts["Rows sent per step"] == ("–", "") and texts["Row exchange hidden"] == ("–", "")
    assert tiles(run_tables({"system": "esdg", "ranks": 1}, rollups=all_rollups()))["Rows sent per step"] == (
        "0 B",
        "one rank has all",
    )
