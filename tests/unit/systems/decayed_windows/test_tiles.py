"""Tiles, suggestions and the compared number of decayed windows."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.config.catalogue import family
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.visualization.tiles import SPARK_POINTS, Tile
from tests.tables import run_tables
from tests.window_tables import window_rollups, window_tables

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


@pytest.mark.parametrize("system", SYSTEMS)
def test_tiles_without_data_are_dashes(system: str) -> None:
    shown = tiles(run_tables({"system": system}, rollups=window_rollups()))
    assert len(shown) == 5
    assert [tile.value for tile in list(shown.values())[2:]] == ["–"] * 3


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


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_suggestions_are_changes_that_a_run_takes(settings: dict[str, Any]) -> None:
    config = RunConfig(**{"ranks": 2, **settings})
    suggestions = FAMILY.suggestions(config)
    assert 1 <= len(suggestions) <= 4
    for suggestion in suggestions:
        assert config.replace(**suggestion.changes) != config


def test_suggestions_say_what_they_request() -> None:
    config = RunConfig(system="flaredtdg", ranks=2, full_snapshots=3, decay="text")
    assert [suggestion.text for suggestion in FAMILY.suggestions(config)] == [
        "Keep more of the past: alpha 0.6",
        "Use 2 full snapshots",
        "Decay faster: ladder",
        "Slow down rank 1 by 20 ms",
    ]
    assert "Slow down" not in str(FAMILY.suggestions(config.replace(ranks=1, parts=2)))


def test_rows_per_step_are_compared_before_and_after_changes() -> None:
    effect = FAMILY.effect("flaredtdg")
    assert effect is not None
    steps, rows = effect.values(window_tables(steps=range(20)))
    assert steps.tolist() == list(range(20)) and effect.text(float(rows[-1])) == "1,440"


def test_every_system_has_a_sentence() -> None:
    sentences = {FAMILY.sentence(system) for system in SYSTEMS}
    assert len(sentences) == len(SYSTEMS) and all(len(sentence.split()) <= 20 for sentence in sentences)
