"""Tiles, suggestions and the compared number of decayed windows."""

from __future__ import annotations

from typing import Any

from dtdg_lab.config.catalogue import family
from dtdg_lab.visualization.tiles import SPARK_POINTS, Tile
from tests.window_tables import window_tables

FAMILY = family("decayed_windows")
SYSTEMS = ("flaredtdg", "full-history", "recent-only", "dynagraph")


def tiles(tables: Any) -> dict[str, Tile]:
    return {tile.label: tile for tile in FAMILY.tiles(tables)}


def exchanges(count: int) -> list[dict[str, Any]]:
    row = {"layer": 0, "pass_name": "forward", "in_flight_s": 0.01, "exposed_s": 0.003}
    return [{"rank": rank, "step": step, **row} for step in range(count) for rank in (0, 1)]


def test_tiles_have_the_newest_window_its_memory_and_what_is_hidden() -> None:
    shown = tiles(window_tables(steps=range(80), tables={"exchanges": exchanges(80)}))
    assert list(shown) == ["Validation loss", "Step time", "Rows per step", "Peak memory", "Row exchange hidden"]
    rows, memory, hidden = list(shown.values())[2:]
    assert (rows.value, rows.note) == ("1,371", "33% of full windows")  # means, as in the caption of the chart
    assert 1 < len(rows.spark) <= SPARK_POINTS
    assert (memory.value, memory.note) == ("1.78 MiB", "predicted"), "a MB, and 1000 B of each of the rank's 864 rows"
    assert (hidden.value, hidden.note) == ("70%", "of 10.0 ms per step")


def test_sampled_windows_have_measured_memory_and_sampled_edges() -> None:
    memory = [{"rank": rank, "step": 9, "peak_bytes": 2**20 * (1 + rank)} for rank in (0, 1)]
    shown = tiles(window_tables({"system": "dynagraph"}, range(10), tables={"memory": memory}))
    assert (shown["Peak memory"].value, shown["Peak memory"].note) == ("2.00 MiB", "measured")
    assert shown["Rows per step"].value == "800"
    assert (shown["Sampled edges"].value, shown["Sampled edges"].note) == ("248", "up to 10 per node")


SETTINGS = (
    {"system": "flaredtdg"},
    {"system": "flaredtdg", "alpha": 0.6, "decay": "text", "full_snapshots": 3},
    {"system": "flaredtdg", "window": 2},
    {"system": "flaredtdg", "window": 1, "full_snapshots": 1},
    {"system": "full-history", "slow_rank": 1, "slow_ms": 20.0},
    {"system": "recent-only"},
    {"system": "dynagraph"},
    {"system": "dynagraph", "fanout": 5, "window": 1},
)


def test_rows_per_step_are_compared_before_and_after_changes() -> None:
    effect = FAMILY.effect("flaredtdg")
    assert effect is not None
    steps, rows = effect.values(window_tables(steps=range(20)))
    assert steps.tolist() == list(range(20)) and effect.text(float(rows[-1])) == "1,440"
