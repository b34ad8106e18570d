"""The user's own data: edges in memory, csv and Parquet files, data frames; and what is wrong with them."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import ConfigError, DataError, LabError
from dtdg_lab.datasets import from_csv, from_edges, from_pandas, from_parquet
from dtdg_lab.graphs import pieces
from tests.factories import edges_by_snapshot

ROOT = Path(__file__).resolve().parents[3]
SRC, DST, TIME = [1, 2, 3, 1], [2, 3, 1, 2], [0, 1, 2, 3]
CSV = b"1,2,0\n2,3,1\n3,1,2\n1,2,3\n"


@pytest.fixture(autouse=True)
def _own_cache_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "cache"))


# in memory


def test_edges_and_options():
    graph = from_edges(SRC, DST, TIME, cut=4, edge_life=2, features="degrees")
    assert (graph.name, graph.num_snapshots, graph.source) == ("mine", 2, "given in memory (4 rows)")
    assert [snapshot.indices.tolist() for snapshot in graph.snapshots] == [[0, 1], [2, 1]]
    assert from_edges(SRC, DST, TIME, interval=1.0).num_snapshots == 3
    assert from_edges(SRC, DST, TIME, cut=2, cut_by="edges").num_edges.tolist() == [2]
    assert from_edges(SRC, DST, TIME, interval=1, cut_by="edges").num_snapshots == 3
    assert from_edges(SRC, DST, TIME, cut=3, drop_first=True).num_snapshots == 2
    assert from_edges(SRC, DST, TIME, cut=4, smoothing_window=2).snapshots[0].weights is not None
    assert from_edges(SRC, DST, [0, 0, 5, 9], cut=9, min_edges=1).num_edges.tolist() == [2, 1]
    assert from_edges(SRC, DST, TIME, cut=4, edge_life=2, strict_label=True).strict_label


def test_a_graph_is_built_into_a_folder(tmp_path):
    graph = from_edges(SRC, DST, TIME, cut=4)
    stored = from_edges(SRC, DST, TIME, cut=4, folder=tmp_path / "mine")
    assert stored.data_hash == graph.data_hash == lab.DynamicGraph.load(tmp_path / "mine").data_hash
    (tmp_path / "empty").mkdir()
    assert from_edges(SRC, DST, TIME, cut=4, folder=tmp_path / "empty").data_hash == graph.data_hash


def test_a_folder_in_use_is_refused_before_anything_is_built(tmp_path, monkeypatch):
    graph = from_edges(SRC, DST, TIME, cut=4, name="first", folder=tmp_path / "mine")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr("dtdg_lab.datasets.user_data.cut_own", lambda *given, **more: pytest.fail("edges are cut"))
    for make in (
        lambda folder: from_edges(SRC, DST, TIME, cut=5, folder=folder),
        lambda folder: from_csv("no such file", cut=5, folder=folder),
        lambda folder: from_parquet("no such file", cut=5, folder=folder),
        lambda folder: from_pandas("no frame", cut=5, folder=folder),
        lambda folder: lab.datasets.from_dgl("no graphs", folder=folder),
        lambda folder: lab.datasets.from_snapshots("no snapshots", folder=folder),
    ):
        for name, parts in {
            "mine": ["holds a graph named 'first'", f"DynamicGraph.load({str(tmp_path / 'mine')!r})", "another folder"],
            "notes": ["holds 'a.txt'", "a new or an empty folder"],
            "file": ["is a file", "a new or an empty folder"],
        }.items():
            with pytest.raises(DataError) as refused:
                make(tmp_path / name)
            assert all(part in str(refused.value) for part in parts), str(refused.value)
    assert lab.DynamicGraph.load(tmp_path / "mine").data_hash == graph.data_hash
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["a.txt"]


def test_many_edges_are_numbered_a_piece_at_a_time(monkeypatch):
    """Beside the vectors as given, an edge takes its two nodes, its interval and its place: 18 bytes."""
    monkeypatch.setattr(pieces, "AT_ONCE", 2**14)
    random, edges = np.random.default_rng(0), 400_000
    src, dst = random.integers(0, 4000, (2, edges))
    time = {"float": random.random(edges), "whole": random.integers(0, 10**15, edges)}
    time["nanoseconds"] = time["whole"].view("datetime64[ns]")
    for given in ({"time": each, "cut": 40} for each in time.values()):
        tracemalloc.start()
        graph = from_edges(src, dst, **given)
        (_, peak), _ = tracemalloc.get_traced_memory(), tracemalloc.stop()
        assert peak < 34 * edges, f"{peak / edges:.1f} bytes an edge"
        shares = (given["time"] - given["time"].min()) / (given["time"].max() - given["time"].min())
        first = np.floor(shares * 40) == 0
        assert edges_by_snapshot(graph)[0] == sorted({(u, v, 1) for u, v in zip(src[first], dst[first], strict=True)})
    hashes = {from_edges(src, dst, time["whole"], **given).data_hash for given in ({"cut": 9}, {"cut": 9, "name": "x"})}
    monkeypatch.setattr(pieces, "AT_ONCE", edges)
    assert hashes == {from_edges(src, dst, time["whole"], cut=9).data_hash}


def test_intervals_of_dates_are_lengths_of_time():
    dates = np.array(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-05"], dtype="datetime64[s]")
    for day in (np.timedelta64(1, "D"), datetime.timedelta(days=1), 86_400e9):
        assert from_edges(SRC, DST, dates, interval=day).num_edges.tolist() == [1, 1, 1, 0]
    with pytest.raises(ConfigError, match="interval=-"):
        from_edges(SRC, DST, dates, interval=datetime.timedelta(days=-1))


def test_ids_of_any_kind_are_numbered_anew():
    huge = from_edges([2**40, -7, 2**62], [-7, 2**62, 2**40], [0, 1, 2], cut=3)
    assert huge.node_ids.tolist() == [-7, 2**40, 2**62]
    assert edges_by_snapshot(huge) == [[(2**40, -7, 1)], [(-7, 2**62, 1)], [(2**62, 2**40, 1)]]
    named = from_edges(["b", "a", "ä"], ["a", "ä", "b"], TIME[:3], [1, 2.5, 3], cut=3)
    assert named.node_ids.tolist() == ["a", "b", "ä"]
    assert edges_by_snapshot(named) == [[("b", "a", 1)], [("a", "ä", 2.5)], [("ä", "b", 3)]]


def test_features_that_are_given():
    table = np.arange(6).reshape(3, 2)
    graph = from_edges([30, 10, 20], [10, 20, 30], [0, 1, 2], features=table, cut=3)
    assert graph.features.shape == (2, 3, 2)
    assert graph.static_features
    np.testing.assert_array_equal(graph.features[1], table)  # in the order of the sorted ids 10, 20, 30
    moving = np.arange(18).reshape(3, 3, 2) / 4
    graph = from_edges([30, 10, 20], [10, 20, 30], [0, 1, 2], features=moving, cut=3)
    np.testing.assert_array_equal(graph.features, moving[:2])
    by_id = {20: [2, 3], 30: [4, 5], 99: [7, 7], 10: [0, 1]}  # 99 has no edge
    graph = from_edges([30, 10, 20], [10, 20, 30], [0, 1, 2], features=by_id, cut=3)
    np.testing.assert_array_equal(graph.features[0], table)
    named = from_edges(["b", "a", "b"], ["a", "b", "a"], [0, 1, 2], features={"b": [1], "a": [2]}, cut=3)
    assert named.features[0].tolist() == [[2], [1]]


def test_labels_that_are_given():
    graph = from_edges([30, 10, 20], [10, 20, 30], [0, 1, 2], labels=[0, -1, 2], cut=3)
    assert graph.num_classes == 3
    assert graph.classes.tolist() == [[0, -1, 2]] * 2
    assert graph.tasks == ("regression", "link", "classification")
    graph = from_edges([30, 10, 20], [10, 20, 30], [0, 1, 2], labels={30: 1, 20: 0, 10: 1}, cut=3)
    assert graph.classes[0].tolist() == [1, 0, 1]
    changing = [[0, 0, 1], [1, 0, 0], [1, 1, 1]]
    graph = from_edges([30, 10, 20], [10, 20, 30], [0, 1, 2], labels=changing, cut=3)
    assert graph.classes.tolist() == changing[:2]
    assert "classification" not in from_edges(SRC, DST, TIME, cut=4).tasks


def test_classes_that_never_change_are_tested_on_vertices_held_back():
    draws = np.random.default_rng(0)
    src, dst = draws.integers(0, 50, (2, 400))
    labels = np.where(np.arange(50) < 10, -1, draws.integers(0, 3, 50))
    graph = from_edges(src, dst, np.arange(400), labels=labels, cut=5)
    assert [int((graph.vertex_split == part).sum()) for part in (0, 1, 2)] == [24, 8, 8]
    assert (graph.vertex_split[:10] == -1).all()
    again = from_edges(src, dst, np.arange(400), labels=np.tile(labels, (5, 1)), cut=5)
    assert np.array_equal(again.vertex_split, graph.vertex_split)
    changing = np.tile(labels, (5, 1))
    changing[3, 20] = 2 - changing[2, 20]
    changing[2, 20] = 1 if changing[3, 20] != 1 else 0
    assert from_edges(src, dst, np.arange(400), labels=changing, cut=5).vertex_split is None


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({}, ["cut=0 and interval=0", "give cut=n"]),
        ({"cut": -1}, ["cut=-1 is out of range"]),
        ({"cut": 4, "features": np.zeros((2, 2))}, ["features have shape (2, 2)", "(3, F)"]),
        (
            {"cut": 4, "features": [[1], [2, 3], [4]]},
            ["features cannot be read as an array: rows have different lengths"],
        ),
        ({"cut": 4, "features": [["x"]] * 3}, ["features[0, 0] is 'x', of type str; numbers are needed"]),
        ({"cut": 4, "features": [[0.0], [np.nan], [1.0]]}, ["features[1, 0] (node 2) is nan", "finite"]),
        ({"cut": 4, "features": [[0.0], [1e300], [1.0]]}, ["features[1, 0] (node 2) is inf"]),
        ({"cut": 4, "features": {1: [1], 2: [2]}}, ["missing for 1 of 3 nodes", "first of them", "3"]),
        ({"cut": 4, "features": {"1": [1], "2": [2], "3": [1]}}, ["ids that are text", "ids such as 1"]),
        ({"cut": 4, "features": {}}, ["Use the ids"]),
        ({"cut": 4, "labels": [0, 1]}, ["labels have shape (2,)", "(3,)"]),
        ({"cut": 4, "labels": [0, 1.5, 2]}, ["labels[1] (node 2) is 1.5", "whole numbers"]),
        ({"cut": 4, "labels": [0, -2, 2]}, ["labels[1] (node 2) is -2"]),
        ({"cut": 4, "labels": [0, 40_000, 2]}, ["labels[1] (node 2) is 40000", "32767"]),
        (
            {"cut": 4, "labels": ["a", "b", "c"]},
            ["labels[0] is 'a', of type str; classes as whole numbers, as of np.unique"],
        ),
        ({"cut": 4, "labels": [0.0, np.nan, 1.0]}, ["labels[1] (node 2) is nan"]),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_said(changed, parts):
    with pytest.raises((DataError, ConfigError)) as caught:
        from_edges(**{"src": SRC, "dst": DST, "time": TIME, **changed})
    for part in parts:
        assert part in str(caught.value)


# csv


def write(folder: Path, data: bytes, name: str = "mine.csv") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_a_csv_is_its_edges(tmp_path):
    graph = from_csv(write(tmp_path, CSV), cut=4)
    expected = from_edges(SRC, DST, TIME, cut=4)
    assert graph.data_hash == expected.data_hash
    assert graph.name == "mine.csv"
    assert graph.source == f"file mine.csv in {tmp_path}"
    assert from_csv(tmp_path / "mine.csv", name="other", cut=4, edge_life=2).edge_life == 2


@pytest.mark.parametrize(
    ("data", "given"),
    [
        (b"s,d,t\n" + CSV, {"src": "s", "dst": "d", "time": "t"}),
        (b"t,x,s,d\n0,a,1,2\n1,a,2,3\n2,a,3,1\n3,a,1,2\n", {"src": "s", "dst": "d", "time": "t"}),
        (b"0,9,1,2\n1,9,2,3\n2,9,3,1\n3,9,1,2\n", {"src": 2, "dst": 3, "time": 0}),
        (b"a,b,c\n" + CSV, {"header": True}),
        (CSV.replace(b",", b";"), {"sep": ";"}),
        (CSV.replace(b",", b"\t"), {"sep": "\t"}),
        (CSV.replace(b",", b"  "), {"sep": " "}),
        (CSV.replace(b",", b" \t "), {"sep": " "}),
        (CSV.replace(b",", b" , "), {}),
        (CSV.replace(b"\n", b"\r\n"), {}),
        (b"\xef\xbb\xbf" + CSV[:-1], {}),
        (b"\n\n" + CSV.replace(b"\n", b"\n\n"), {}),
        (b'"1","2","0"\n"2","3","1"\n"3","1","2"\n"1","2","3"\n', {}),
        (CSV.replace(b",0\n", b",0.0\n"), {}),
    ],
    ids=str,
)
def test_csv_of_every_make(tmp_path, data, given):
    graph = from_csv(write(tmp_path, data), **given, cut=4)
    assert edges_by_snapshot(graph) == edges_by_snapshot(from_edges(SRC, DST, TIME, cut=4))


@pytest.mark.parametrize("pack", ["gz", "bz2", "zip"])
def test_packed_csv(tmp_path, pack):
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w") as archive:
        archive.writestr("folder/mine.csv", CSV)
    data = {"gz": gzip.compress(CSV), "bz2": bz2.compress(CSV), "zip": kept.getvalue()}[pack]
    graph = from_csv(write(tmp_path, data, f"mine.{pack}"), cut=4)
    assert graph.data_hash == from_edges(SRC, DST, TIME, cut=4).data_hash


def test_weights_features_and_labels_of_a_csv(tmp_path):
    path = write(tmp_path, b"s,d,w,t\n1,2,0.5,0\n2,3,2,1\n3,1,1,2\n1,2,3,3\n")
    graph = from_csv(path, "s", "d", "t", "w", features={1: [1.0], 2: [2.0], 3: [3.0]}, labels=[0, 1, 1], cut=4)
    assert edges_by_snapshot(graph) == [[(1, 2, 0.5)], [(2, 3, 2)], [(3, 1, 1)], [(1, 2, 3)]]
    assert graph.features[0, :, 0].tolist() == [1, 2, 3]
    assert graph.classes[0].tolist() == [0, 1, 1]


def test_text_and_huge_ids_of_a_csv(tmp_path):
    graph = from_csv(write(tmp_path, b'ann,bob,0\nbob,"c,d",1\n"c,d",ann,2\n'), cut=3)
    assert graph.node_ids.tolist() == ["ann", "bob", "c,d"]
    graph = from_csv(write(tmp_path, b"1099511627776,-5,0\n-5,7,1\n7,1099511627776,2\n"), cut=3)
    assert graph.node_ids.tolist() == [-5, 7, 2**40]
    graph = from_csv(write(tmp_path, b"10,x,0\nx,9,1\n9,10,2\n"), cut=3)
    assert graph.node_ids.tolist() == ["10", "9", "x"]  # text as soon as one of them is


@pytest.mark.parametrize(
    "times",
    [
        ["2014-01-31", "2014-02-01", "2014-02-02", "2014-02-03"],
        ["2014-01-31 16:39:58", "2014-02-01 16:39:58", "2014-02-02 16:39:58", "2014-02-03 16:39:58"],
        ["2014-01-31T16:39:58Z", "2014-02-01T16:39:58Z", "2014-02-02T16:39:58Z", "2014-02-03T16:39:58Z"],
        ["2014-01-31T23:00:00+02:00", "2014-02-01T21:00:00Z", "2014-02-02T21:00:00Z", "2014-02-03T21:00:00Z"],
        ["-1.5", "-0.5", "0.5", "1.5"],
        ["1e3", "2e3", "3e3", "4e3"],
        ["1391186398000000000", "1391186398000000001", "1391186398000000002", "1391186398000000003"],
    ],
    ids=lambda times: times[0],
)
def test_times_of_every_kind(tmp_path, times):
    lines = [f"{s},{d},{t}" for s, d, t in zip(SRC, DST, times, strict=True)]
    graph = from_csv(write(tmp_path, "\n".join(lines).encode()), cut=4)
    assert edges_by_snapshot(graph) == edges_by_snapshot(from_edges(SRC, DST, TIME, cut=4))
    shuffled = from_csv(write(tmp_path, "\n".join(lines[::-1]).encode()), cut=4)
    assert edges_by_snapshot(shuffled) == edges_by_snapshot(graph)  # in any order


@pytest.mark.parametrize(
    ("data", "given", "parts"),
    [
        (b"", {}, ["mine.csv holds no rows"]),
        (b"src,dst,time\n", {"header": True}, ["mine.csv holds no rows under its header"]),
        (
            b"src,dst,time\n" + CSV,
            {},
            ["line 1 of mine.csv is", "(time) is 'time'; ", "a number, or a date", "header=True"],
        ),
        (CSV + b"4,5\n", {}, ["line 5 of mine.csv is '4,5'", "it has 2 columns; 3 are needed, 'src dst time'"]),
        (CSV + b"\n\n4,5,6,7\n", {}, ["line 7 of mine.csv is '4,5,6,7'", "4 columns"]),
        (CSV + b"4,5,soon\n", {}, ["line 5 of mine.csv is", "(time) is 'soon'; ", "a number, or a date"]),
        (CSV + b"4,5,nan\n", {}, ["line 5 of mine.csv is", "(time) is 'nan'; "]),
        (CSV + b"4,5,inf\n", {}, ["line 5 of mine.csv is", "(time) is 'inf'; "]),
        (CSV + b"4,5,\n", {}, ["line 5 of mine.csv is", "(time) is ''; "]),
        (CSV + b"\n4,,6\n", {}, ["line 6 of mine.csv is", "(dst) is ''; ", "an id"]),
        (b"1,2,2014-01-31\n2,3,2014-02-31\n", {}, ["line 2 of mine.csv is", "(time) is '2014-02-31'; "]),
        (b"1,2,0,5\n2,3,1,-5\n", {"weight": 3}, ["line 2 of mine.csv is", "(weight) is '-5'; ", "at least 0"]),
        (b"1,2,0,5\n2,3,1,x\n", {"weight": 3}, ["line 2 of mine.csv is", "(weight) is 'x'; "]),
        (b"1,2,0,5\n2,3,1,inf\n", {"weight": 3}, ["line 2 of mine.csv is", "(weight) is 'inf'; "]),
        (CSV, {"weight": 3}, ["line 1 of mine.csv has 3 columns: weight=3 is none of 0 to 2"]),
        (CSV, {"sep": ";"}, ["line 1 of mine.csv has 1 columns", "another sep than ';'"]),
        (b"a,b,c\n" + CSV, {"src": "x"}, ["src='x', and it has the columns 'a, b, c'"]),
        (b"a,a,c\n" + CSV, {"src": "a"}, ["src='a'", "Give the name of one column"]),
        (CSV, {"src": "x", "header": False}, ["src='x', and it has no header"]),
        (b"1,2\x00,0\n", {}, ["line 1 of mine.csv has a NUL byte"]),
        (b"\xff\xfe,2,0\n", {}, ["mine.csv is text in UTF-16, not in UTF-8: give encoding='utf-16'"]),
        (b"1,2,0\n\xff,2,0\n", {}, ["mine.csv"]),
        (b"\x1f\x8b\x08broken", {}, ["mine.csv", "damaged"]),
        (b"1,2,0\n", {}, ["span of 0"]),
    ],
    ids=lambda value: repr(value)[:50] if isinstance(value, bytes) else "",
)
def test_what_is_wrong_with_a_csv_is_said(tmp_path, data, given, parts):
    with pytest.raises(LabError) as caught:
        from_csv(write(tmp_path, data), **given, cut=4)
    for part in parts:
        assert part in str(caught.value)


def test_a_csv_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv is not a file\. Give"):
        from_csv(tmp_path / "none.csv", cut=4)


@hypothesis.given(st.binary(max_size=60) | st.text("0123456789,\n \"'.-eabc#", max_size=60).map(str.encode))
@hypothesis.example(b"0,0,0\n0,0,1")
@hypothesis.example(b'"')
@hypothesis.example(b'1,"2\n3",4\n1,2,3')
@hypothesis.example(b",,\n,,")
def test_any_bytes_give_a_graph_or_a_lab_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(data)
    try:
        graph = from_csv(path, cut=2)
    except LabError as error:
        assert len(str(error)) < 2000
    else:
        assert graph.num_snapshots == 1


@pytest.mark.slow  # a benchmark
def test_half_a_million_rows_of_a_csv_take_about_a_second(tmp_path):
    import pandas

    rows = np.random.default_rng(0).integers(0, 20_000, (500_000, 3))
    path = tmp_path / "large.csv"
    pandas.DataFrame(rows).to_csv(path, header=False, index=False)
    code = (
        "import sys, time\nfrom dtdg_lab.datasets import from_csv\nimport pyarrow.csv\n"
        "start = time.perf_counter()\ngraph = from_csv(sys.argv[1], cut=50)\n"
        "print(time.perf_counter() - start, graph.num_edges.sum())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    seconds, edges = map(float, done.stdout.split())
    assert edges > 480_000
    assert seconds < 6  # a second when nothing else runs


# tables


def frame_of(**changed):
    import pandas

    dates = pandas.date_range("2024-01-01", periods=4, freq="D")
    return pandas.DataFrame(
        {
            "src": ["ann", "bob", "cem", "ann"],
            "dst": ["bob", "cem", "ann", "cem"],
            "time": dates,
            "much": [1, 2, 3, 4],
            **changed,
        }
    )


def test_a_data_frame_and_its_parquet_file(tmp_path):
    frame = frame_of()
    graph = from_pandas(frame, weight="much", cut=3, labels={"ann": 0, "bob": 1, "cem": 1})
    assert graph.node_ids.tolist() == ["ann", "bob", "cem"]
    assert [snapshot.weights.tolist() for snapshot in graph.snapshots] == [[1], [2]]
    assert lab.datasets.load(graph.store()).node_ids.tolist() == ["ann", "bob", "cem"]
    frame.rename(columns={"src": "from", "dst": "to"}).to_parquet(tmp_path / "mine.parquet")
    again = from_parquet(
        tmp_path / "mine.parquet", "from", "to", weight="much", cut=3, labels={"ann": 0, "bob": 1, "cem": 1}
    )
    assert again.data_hash == graph.data_hash
    assert again.name == "mine.parquet"
    columns = from_edges(frame.src, frame.dst, frame.time, frame.much, cut=3, labels=[0, 1, 1])
    assert columns.data_hash == graph.data_hash


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_with_a_zone(tmp_path, zone):
    frame = frame_of()
    frame["time"] = frame.time.dt.tz_localize(zone)
    assert edges_by_snapshot(from_pandas(frame, cut=4)) == edges_by_snapshot(from_pandas(frame_of(), cut=4))
    frame.to_parquet(tmp_path / "mine.parquet")
    assert edges_by_snapshot(from_parquet(tmp_path / "mine.parquet", cut=4)) == edges_by_snapshot(
        from_pandas(frame_of(), cut=4)
    )


def test_other_tables_and_types(tmp_path):
    polars = pytest.importorskip("polars")
    numbers = {"src": SRC, "dst": DST, "time": TIME}
    expected = from_edges(SRC, DST, TIME, cut=4).data_hash
    assert from_pandas(polars.DataFrame(numbers), cut=4).data_hash == expected
    assert from_pandas(frame_of(**{**numbers, "src": [1.0, 2.0, 3.0, 1.0]}), cut=4).data_hash == expected
    days = [datetime.date(2024, 1, day) for day in (1, 2, 3, 4)]
    polars.DataFrame({**numbers, "time": days}).write_parquet(tmp_path / "mine.parquet")
    assert edges_by_snapshot(from_parquet(tmp_path / "mine.parquet", cut=4)) == edges_by_snapshot(
        from_edges(SRC, DST, TIME, cut=4)
    )


def test_columns_that_are_not_there(tmp_path):
    frame = frame_of()
    frame.to_parquet(tmp_path / "mine.parquet")
    with pytest.raises(
        DataError, match=r"the frame has no column 'from' for src; it has src, dst, time, much\. Say which"
    ):
        from_pandas(frame, src="from", cut=3)
    with pytest.raises(DataError, match=r"mine\.parquet has no column 'w' for weight; it has src, dst, time, much"):
        from_parquet(tmp_path / "mine.parquet", weight="w", cut=3)
    for name, data in (("mine.csv", CSV), ("empty.parquet", b"")):
        with pytest.raises(DataError, match=f"{name} cannot be read as Parquet"):
            from_parquet(write(tmp_path, data, name), cut=3)
    with pytest.raises(DataError, match=r"none\.parquet is not a file"):
        from_parquet(tmp_path / "none.parquet", cut=3)


# graphs without times


def _edges(nodes: int = 40, edges: int = 200) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return np.concatenate([np.arange(nodes), draw.integers(0, nodes, edges)]), np.concatenate(
        [np.roll(np.arange(nodes), 1), draw.integers(0, nodes, edges)]
    )


def test_snapshots_are_one_object_with_all_edges() -> None:
    src, dst = _edges()
    features = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    graph = lab.datasets.from_static(src, dst, features=features, labels=np.arange(40) % 3, snapshots=9)
    assert graph.num_snapshots == 9
    assert len({id(snapshot) for snapshot in graph.snapshots}) == 1
    assert graph.num_edges[0] == len({*zip(src.tolist(), dst.tolist(), strict=True)})
    assert graph.static_features
    assert np.array_equal(graph.features[5], features)
    assert set(np.unique(graph.vertex_split)) == {0, 1, 2}
    assert "classification" in graph.tasks


def test_it_is_what_edges_at_every_time_give() -> None:
    src, dst = _edges()
    weight = np.random.default_rng(2).random(len(src))
    graph = lab.datasets.from_static(src, dst, weight)
    times = np.repeat(np.arange(9), len(src))
    timed = lab.datasets.from_edges(np.tile(src, 9), np.tile(dst, 9), times, np.tile(weight, 9), interval=1.0)
    assert graph.num_snapshots == timed.num_snapshots
    assert all(ours.equals(theirs) for ours, theirs in zip(graph.snapshots, timed.snapshots, strict=True))
    assert np.array_equal(graph.targets, timed.targets)
    assert np.array_equal(graph.features, timed.features)


def test_too_few_snapshots_are_refused() -> None:
    with pytest.raises(DataError, match="snapshots=3; at least 8"):
        lab.datasets.from_static(*_edges(), snapshots=3)
