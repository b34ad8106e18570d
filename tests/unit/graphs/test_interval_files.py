"""Edges on disk are cut piece by piece into the graph that they make in memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from dtdg_lab.core.errors import ConfigError, DataError
from dtdg_lab.datasets import data_frame
from dtdg_lab.datasets.data_frame import from_parquet
from dtdg_lab.datasets.user_data import from_edges
from dtdg_lab.graphs import pieces
from dtdg_lab.graphs.interval_files import EdgePiece, IntervalFiles, TimeRange

NODES, EDGES = 30, 500
COLUMNS = ("src", "dst", "time", "weight")


def edges(*, dates: bool = False, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    time = draw.integers(7, 907, EDGES) * 10
    return {
        "src": draw.integers(0, NODES, EDGES).astype(np.int32),
        "dst": draw.integers(0, NODES, EDGES),
        "time": (time * 10**15).astype("datetime64[ns]") if dates else time,
        "weight": draw.random(EDGES).astype(np.float32),
    }


def mapped(folder: Path, **vectors: Any) -> dict[str, Any]:
    for name, vector in vectors.items():
        np.save(folder / f"{name}.npy", vector)
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in vectors}


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "AT_ONCE", 70)
    monkeypatch.setattr(data_frame, "AT_ONCE", 70)


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every list of edges that was cut in pieces."""
    cut: list[int] = []
    original = IntervalFiles.__init__

    def init(self: IntervalFiles, *given: Any, **more: Any) -> None:
        original(self, *given, **more)
        cut.append(self.rows)

    monkeypatch.setattr(IntervalFiles, "__init__", init)
    return cut


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(
    ("dates", "way"),
    [
        (False, {"cut": 7}),
        (False, {"interval": 900}),
        (True, {"cut": 9}),
        (True, {"interval": "4W"}),
        (True, {"interval": "MS"}),
    ],
)
def test_mapped_vectors_make_the_graph_of_vectors_in_memory(tmp_path, in_pieces, dates, way, weighted):
    vectors = edges(dates=dates)
    if not weighted:
        del vectors["weight"]
    whole = from_edges(**vectors, nodes=NODES, edge_life=2, **way)
    built = from_edges(**mapped(tmp_path, **vectors), nodes=NODES, edge_life=2, folder=tmp_path / "graph", **way)
    assert in_pieces == [EDGES]
    assert built.data_hash == whole.data_hash and built.counts == whole.counts
    assert built.source == "mapped from files (500 rows)"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["graph"]


def test_a_parquet_file_makes_the_same_graph_in_pieces(tmp_path, in_pieces):
    path = tmp_path / "edges.parquet"
    parquet.write_table(pa.table(edges()), path, row_group_size=40)
    settings = {"weight": "weight", "nodes": NODES, "cut": 6}
    built = from_parquet(path, **settings, folder=tmp_path / "graph")
    assert built.data_hash == from_parquet(path, **settings).data_hash
    assert in_pieces == [EDGES]


@pytest.mark.parametrize(
    "settings", [{"drop_first": True}, {"cut_by": "edges"}, {"nodes": None}, {"nodes": list(range(NODES))}]
)
def test_what_needs_all_edges_at_once_is_cut_in_memory(tmp_path, in_pieces, settings):
    given = {"nodes": NODES, "cut": 6, **settings}
    whole = from_edges(**edges(), **given)
    assert from_edges(**mapped(tmp_path, **edges()), folder=tmp_path / "graph", **given).data_hash == whole.data_hash
    assert not in_pieces


def test_a_missing_value_is_named_by_its_row_in_the_file(tmp_path):
    table = edges()
    table["time"] = pa.array([*table["time"][:200].tolist(), None, *table["time"][201:].tolist()])
    path = tmp_path / "edges.parquet"
    parquet.write_table(pa.table(table), path)
    with pytest.raises(DataError, match=r"row 200 of .*has no 'time'"):
        from_parquet(path, nodes=NODES, cut=6, folder=tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("src", NODES, r"in the edges from number 140 on: src\[3\] is 30; 0 to 29 is allowed"),
        ("weight", -1.0, r"in the edges from number 140 on: weight\[3\] is"),
    ],
)
def test_a_wrong_value_is_named_and_leaves_nothing_behind(tmp_path, name, value, text):
    vectors = edges()
    vectors[name][143] = value
    with pytest.raises(DataError, match=text):
        from_edges(**mapped(tmp_path, **vectors), nodes=NODES, cut=6, folder=tmp_path / "graph")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize("first", ["newest", "oldest"])
def test_a_calendar_over_centuries_is_cut(tmp_path, in_pieces, first):
    days = np.arange("1700-01-01", "2020-01-01", 400, dtype="datetime64[D]").astype("datetime64[ns]")
    vectors = {"src": np.arange(len(days)) % NODES, "dst": np.arange(len(days)) % 7, "time": days}
    vectors["time"] = days[::-1].copy() if first == "newest" else days
    settings = {"nodes": NODES, "interval": "10YS"}
    built = from_edges(**mapped(tmp_path, **vectors), folder=tmp_path / "graph", **settings)
    assert built.data_hash == from_edges(**vectors, **settings).data_hash and in_pieces == [len(days)]


def test_a_span_that_64_bits_do_not_hold_is_refused_as_in_memory(tmp_path):
    vectors = edges()
    vectors["time"][:100], vectors["time"][400:] = 2**62, -(2**62) - 1
    with pytest.raises(DataError, match=r"a span below 2\^63 is needed"):
        from_edges(**mapped(tmp_path, **vectors), nodes=NODES, interval=5, folder=tmp_path / "graph")


@pytest.mark.parametrize("unset", [{"drop_first": 0}, {"time_format": ""}, {"bipartite": 0}])
def test_options_are_checked_as_in_memory(tmp_path, unset):
    with pytest.raises((ConfigError, DataError)):
        from_edges(**mapped(tmp_path, **edges()), nodes=NODES, cut=6, folder=tmp_path / "graph", **unset)


@pytest.mark.parametrize("kind", ["zoned", "days"])
def test_dates_of_parquet_are_read_in_pieces(tmp_path, in_pieces, kind):
    table, path = edges(dates=True), tmp_path / "edges.parquet"
    table["time"] = pd.Series(table["time"]).dt.tz_localize(
        "Europe/Berlin", ambiguous=True, nonexistent="shift_forward"
    )
    if kind == "days":
        table["time"] = pa.array(table["time"].dt.date)
    parquet.write_table(pa.table(table), path)
    settings = {"nodes": NODES, "interval": "MS"}
    assert (
        from_parquet(path, **settings, folder=tmp_path / "graph").data_hash == from_parquet(path, **settings).data_hash
    )
    assert in_pieces == [EDGES]


def test_what_looks_wrong_is_warned_of(tmp_path):
    vectors = edges()
    vectors["time"] = 20240101 + vectors["time"] % 27
    with pytest.warns(UserWarning, match="look like dates"):
        from_edges(**mapped(tmp_path, **vectors), nodes=NODES, cut=6, folder=tmp_path / "graph")
    path = tmp_path / "edges.parquet"
    parquet.write_table(pa.table({"user": vectors["src"], "item": vectors["dst"], "time": edges()["time"]}), path)
    with pytest.warns(UserWarning, match="two kinds"):
        from_parquet(path, "user", "item", nodes=NODES, cut=6, folder=tmp_path / "other")


def test_vectors_of_several_lengths_are_refused(tmp_path):
    vectors = {**edges(), "dst": np.zeros(EDGES + 1, int)}
    with pytest.raises(DataError, match="the same number, at least 1, is needed"):
        from_edges(**mapped(tmp_path, **vectors), nodes=NODES, cut=6, folder=tmp_path / "graph")


@example([-(2**63), 2**63 - 1, 2], 3)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20), st.integers(1, 7))
def test_a_few_times_stand_for_all(times, size):
    parts = [np.array(times[start : start + size]) for start in range(0, len(times), size)]
    found = TimeRange(lambda: (EdgePiece(part, part, part) for part in parts))
    assert (found.first, found.last) == (min(times), max(times))
    distances = [math.gcd(*(int(time) - min(times) for time in some)) for some in (found.sample, times)]
    assert distances[0] == distances[1]
