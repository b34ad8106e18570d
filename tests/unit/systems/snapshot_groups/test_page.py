"""Tiles, suggestions and the compared number of runs that schedule snapshot groups."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_groups.page import EPOCH_TIME, schedule_tiles
from dtdg_lab.visualization.tiles import Tile
from tests.schedule_records import add_epoch, add_schedule, schedule_data, scheduled_tables

TIMES = [0.1, 0.2, 0.2, 0.1, 0.4]
ASSIGNMENT = [[[0, 1], [2]], [[3], [4]]]


def tiles(tables: RunTables) -> dict[str, Tile]:
    return {tile.label: tile for tile in schedule_tiles(tables)}


def test_tiles_have_the_numbers_of_the_last_epoch() -> None:
    tiles_by_label = tiles(scheduled_tables(TIMES, ASSIGNMENT, epochs=3))
    assert list(tiles_by_label) == ["Validation loss", "Epoch time", "Above the bound", "Waiting", "Imbalance"]
    assert {label: (tile.value, tile.note) for label, tile in tiles_by_label.items() if label != "Validation loss"} == {
        "Epoch time": ("704 ms", "predicted: 700 ms"),
        "Above the bound": ("40%", "groups alone: 500 ms at best"),
        "Waiting": ("28%", "of the ranks' time"),
        "Imbalance": ("1.40×", "slowest rank over mean"),
    }
    assert (
        tiles_by_label["Epoch time"].spark == pytest.approx([0.704] * 3) and len(tiles_by_label["Imbalance"].spark) == 3
    )


def test_the_bound_is_the_scheduler_s_until_an_epoch_was_measured() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT)
    assert tiles(tables)["Above the bound"].note == "groups alone: 500 ms at best"
    add_epoch(tables, ASSIGNMENT, [2 * time for time in TIMES])
    assert tiles(tables)["Above the bound"].note == "groups alone: 1.00 s at best"


def test_sizes_have_no_seconds_before_a_group_was_measured() -> None:
    data = schedule_data([1e6 * time for time in TIMES], ASSIGNMENT, source="size")
    tiles_by_label = tiles(scheduled_tables(TIMES, ASSIGNMENT, data=data))
    assert tiles_by_label["Epoch time"].note == "predicted: –"
    assert (tiles_by_label["Above the bound"].value, tiles_by_label["Above the bound"].note) == (
        "40%",
        "no bound is known",
    )


def test_groups_that_overlap_have_no_bound() -> None:
    tiles_by_label = tiles(scheduled_tables(TIMES, ASSIGNMENT, epochs=1, config={"system": "blad"}))
    assert (tiles_by_label["Above the bound"].value, tiles_by_label["Above the bound"].note) == (
        "–",
        "no bound is known",
    )


def test_the_compared_number_is_the_epoch_at_the_pace_of_each_step() -> None:
    tables = scheduled_tables(TIMES, ASSIGNMENT, epochs=2)
    add_schedule(tables, schedule_data(TIMES, [[[0, 1, 2, 3], [4]]]), step=4, epoch=2)
    add_epoch(tables, [[[0, 1, 2, 3], [4]]], TIMES, epoch=2, first_step=4)
    steps, seconds = EPOCH_TIME.values(tables)
    assert steps.tolist() == [0, 1, 2, 3, 4]
    assert seconds == pytest.approx(np.array([0.608, 0.808, 0.608, 0.808, 0.604]), abs=1e-3)
