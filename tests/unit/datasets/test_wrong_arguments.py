"""What people may pass by mistake to the functions that load graphs: a LabError says what, and what is allowed."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import dtdg_lab as lab
from dtdg_lab.core.errors import ConfigError, DataError, LabError, UnknownNameError, shortened
from dtdg_lab.graphs import windowing as room
from dtdg_lab.graphs.edge_list import MAX_ID_LENGTH

SRC, DST, TIME = [1, 2, 3, 1], [2, 3, 1, 2], [0, 1, 2, 3]
DAYS = [datetime.datetime(2024, 1, day) for day in (1, 2, 3, 4)]
CSV = b"1,2,0,5\n2,3,1,5\n3,1,2,5\n1,2,3,5\n"
MASKED = np.ma.array([1, 2, 3, 1], mask=[False, True, False, False])


@pytest.fixture(autouse=True)
def _own_cache_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DTDG_LAB_DATA", raising=False)


def named(value: Any) -> str:
    return shortened(value, 40) if isinstance(value, dict) else ""


def refused(function: Any, *given: Any, parts: list[str], error: type[LabError] = LabError, **named: Any) -> None:
    with pytest.raises(error) as caught:
        function(*given, **named)
    for part in parts:
        assert part in str(caught.value)
    assert len(str(caught.value)) < 1500


def edges(**changed: Any) -> Any:
    return lab.datasets.from_edges(**{"src": SRC, "dst": DST, "time": TIME, "cut": 4, **changed})


def frame(**changed: Any) -> pd.DataFrame:
    return pd.DataFrame({"src": SRC, "dst": DST, "time": TIME, "w": [1.0, 2, 3, 4], **changed})


# vectors


@pytest.mark.parametrize("name", ["src", "dst", "time", "weight"])
@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ([[1], [2, 3], 4, 5], ["rows have different lengths"]),
        (MASKED, ["[1] is masked (1 of 4 entries are)", "keep = ~np.ma.getmaskarray(array)"]),
        (5, ["is of type int", "a vector of"]),
        ("abcd", ["is of type str", "a vector of"]),
        ({1, 2, 3, 4}, ["is of type set", "a vector of"]),
        (iter([1, 2, 3, 4]), ["is of type list_iterator", "such as a list or an array"]),
        (np.ones((4, 1), int), ["has shape (4, 1)", "a vector of"]),
        ([1, None, 2, 3], ["[1] is None, of type NoneType"]),
        ([1, "a", 2, 3], ["mixes int and str", "[0] is 1", "[1] is 'a'"]),
        (["a", float("nan"), "b", "c"], ["mixes str and float", "[1] is nan"]),
        ([True, 2, 3, 4], ["mixes bool and int"]),
        ([True, False, True, True], ["[0] is True, of type bool"]),
        ([b"a", b"b", b"c", b"a"], ["[0] is b'a', of type bytes"]),
        ([1j, 2, 3, 4], ["of type complex128"]),
        (np.array([1, 2, 3, 4], "m8[s]"), ["[0] is 1 seconds, of type timedelta64[s]"]),
        ([slice(1)] * 4, ["of type slice"]),
        ([1, np.ma.masked, 2, 3], ["[1]", "is masked"]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else str(value)[:25],
)
def test_vectors_that_are_none(name, given, parts):
    refused(edges, parts=[name, *parts], error=DataError, **{name: given})


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"src": None}, ["src is None; a vector of whole numbers or text is needed"]),
        ({"time": None}, ["time is None; a vector of numbers or datetimes is needed"]),
        ({"src": [2**70, 1, 2, 3]}, ["src[0] is 1180591620717411303424", "-2^63 to below 2^63"]),
        ({"src": [2**63, 1, 2, 3]}, ["src[0] is 9223372036854775808", "-2^63 to below 2^63"]),
        ({"time": [2**63, 1, 2, 3]}, ["time[0] is 9223372036854775808"]),
        ({"weight": [10**400, 1, 2, 3]}, ["weight", "1.79769e+308"]),
        ({"src": [1.0, 2.5, 3.0, 1.0]}, ["src[1] is 2.5, of type float64", "Number the nodes, or use text"]),
        ({"src": [1.0, np.nan, 3.0, 1.0]}, ["src[1] is nan", "Drop edges without an id"]),
        ({"src": [1.0, np.inf, 3.0, 1.0]}, ["src[1] is inf"]),
        ({"src": ["a", "b" * 5000, "c", "d"], "dst": list("abcd")}, ["src[1] is 'bbb", "5,000 characters", "1,000"]),
        ({"src": pd.Series([1, 2, None, 1], dtype="Int64")}, ["src[2] is nan"]),
        ({"src": pd.Series(["a", None, "b", "c"])}, ["src[1]", "whole numbers or text"]),
        ({"time": ["2024-01-01"] * 4}, ["time[0] is '2024-01-01', which is text", "pandas.to_datetime"]),
        ({"time": [*DAYS[:3], DAYS[3].replace(tzinfo=datetime.UTC)]}, ["some have none"]),
        ({"time": [*DAYS[:3], None]}, ["time[3] is None, of type NoneType"]),
        ({"time": pd.Series([*DAYS[:3], None])}, ["time[3] is not a time (NaT)"]),
        ({"time": np.array([1, 2, 3, 2**60], "M8[Y]")}, ["time[3] is", "years 1678 to 2261"]),
        ({"time": pd.period_range("2024", periods=4, freq="D")}, ["time[0] is Period"]),
        ({"weight": np.full(4, np.longdouble("1e400"))}, ["weight[0] is inf"]),
        ({"src": ["1", "2", "3", "1"]}, ["both be text", "src[0] is '1', dst[0] is 2"]),
    ],
    ids=named,
)
def test_values_that_are_not_allowed(changed, parts):
    refused(edges, parts=parts, error=DataError, **changed)


@pytest.mark.parametrize(
    "time",
    [
        DAYS,
        [day.date() for day in DAYS],
        [day.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2))) for day in DAYS],
        [pd.Timestamp(day, tz="Europe/Berlin") for day in DAYS],
        pd.Series(DAYS),
        pd.Series(DAYS).dt.tz_localize("Europe/Berlin"),
        pd.DatetimeIndex(DAYS, tz="UTC"),
        np.array(DAYS, "M8[s]"),
    ],
    ids=lambda time: type(time).__name__,
)
def test_datetimes_of_every_kind(time):
    assert edges(time=time, cut=0, interval=datetime.timedelta(days=1)).num_edges.tolist() == [1, 1, 1]


def test_vectors_of_other_libraries():
    torch = pytest.importorskip("torch")
    expected = edges(weight=[1, 2, 3, 4]).data_hash
    weight = torch.tensor([1.0, 2, 3, 4], requires_grad=True)
    assert edges(src=torch.tensor(SRC), dst=np.ma.array(DST), time=range(4), weight=weight).data_hash == expected
    objects = [np.array(vector, dtype=object) for vector in (SRC, DST, TIME, [1, 2.0, 3, 4])]
    assert lab.datasets.from_edges(*objects, cut=4).data_hash == expected
    assert edges(src=pd.Categorical(list("abca")), dst=np.array(list("bcab"), dtype=object)).num_nodes == 3
    refused(edges, src=torch.tensor(SRC, dtype=torch.bfloat16), parts=["src cannot be read", "BFloat16"])


# options of graphs of one's own


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"strict_label": "x"}, ["strict_label='x' has type str: allowed True or False"]),
        ({"name": " "}, ["name=' ' is empty"]),
        ({"interval": 2.0}, ["cut=4 and interval=2 are both given"]),
        ({"cut": 0, "interval": 10**400}, ["interval=inf is not a finite number"]),
        ({"cut": 10**5000}, ["cut=a int that cannot be shown", "0 to 100000"]),
        ({"cut": 0, "interval": 3.1e-6}, ["interval=3.1e-06 makes 967,74", "0 to 3", "100,000", "above 3e-05"]),
        ({"cut": 0, "interval": datetime.timedelta(days=1)}, ["times that are numbers", "give a number"]),
        ({"labels": [-1, -1, -1]}, ["labels are all -1", "nothing to classify"]),
        ({"cutt": 4}, ["Unknown argument of from_edges() 'cutt'", "Did you mean 'cut'"]),
    ],
    ids=named,
)
def test_options_that_are_not_allowed(changed, parts):
    refused(edges, parts=parts, **changed)


@pytest.mark.parametrize(
    ("interval", "parts"),
    [
        (np.timedelta64(1, "M"), ["no fixed length", "days"]),
        (np.timedelta64(1), ["no fixed length"]),
        (np.timedelta64("NaT", "D"), ["no fixed length"]),
        (datetime.timedelta.max, ["is longer than the data", "2024-01-01 to 2024-01-04, a span of 3 days"]),
        (np.timedelta64(10**15, "W"), ["interval="]),
        (1, ["interval=1 ns makes 259,200,000,000,00", "above 0:00:02.592"]),
        (datetime.timedelta(days=7), ["interval=7 days, 0:00:00 is longer than the data"]),
    ],
    ids=str,
)
def test_intervals_of_dates_that_are_not_allowed(interval, parts):
    refused(edges, time=DAYS, cut=0, interval=interval, parts=parts)


def test_lengths_of_time_are_no_numbers_of_edges():
    day = datetime.timedelta(days=1)
    refused(edges, time=DAYS, cut=0, cut_by="edges", interval=day, parts=["are cut by edges", "give a number"])


def test_whole_days_in_nanoseconds_are_cut_exactly():
    """Years in nanoseconds leave no room for a product with the number of intervals, and days fall on boundaries."""
    days = 4000
    time = np.datetime64("2010-01-01", "D") + np.arange(days + 1)
    graph = lab.datasets.from_edges(np.arange(days + 1) % 50, np.arange(days + 1) % 49, time, cut=days // 8)
    assert graph.num_edges.tolist() == [8] * (days // 8 - 1)
    assert np.array_equal(
        graph.num_edges,
        lab.datasets.from_edges(
            np.arange(days + 1) % 50, np.arange(days + 1) % 49, time, interval=datetime.timedelta(days=8)
        ).num_edges[: days // 8 - 1],
    )


# features and labels


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"features": np.ma.array(np.eye(3), mask=np.eye(3))}, ["features[0, 0] is masked (3 of 9 entries are)"]),
        ({"features": [np.ma.array([1.0, 2], mask=[0, 1])] * 3}, ["features[0][1] is masked"]),
        ({"labels": np.ma.array([0, 1, 1], mask=[0, 0, 1])}, ["labels[2] is masked"]),
        ({"features": {(1, 2): [1], (2, 3): [2]}}, ["ids of features has shape (2, 2)"]),
        ({"features": {1: [1], (2, 3): [2]}}, ["ids of features cannot be read"]),
        ({"features": {1: [1], "2": [2], 3: [3]}}, ["ids of features mixes int and str"]),
        ({"features": {1.0: [1], 2.0: [2], 3.5: [3]}}, ["ids of features[2] is 3.5, of type float64"]),
        ({"features": [[1, 10**400]] * 3}, ["features", "1.79769e+308"]),
        ({"features": b"abc"}, ["features is b'abc', of type bytes"]),
        ({"labels": {1: None, 2: 0, 3: 1}}, ["labels[0] is None", "return_inverse"]),
        ({"labels": pd.Series([0, 1], index=[1, 2])}, ["labels are missing for 1 of 3 nodes, the first of them 3"]),
        ({"labels": pd.Series([0, 1, 0, 1], index=[1, 2, 3, 3])}, ["labels are given twice for 3"]),
    ],
    ids=named,
)
def test_values_of_vertices_that_are_not_allowed(changed, parts):
    refused(edges, parts=parts, error=DataError, **changed)


def test_tables_with_ids_as_their_index_are_read_by_them():
    table = pd.DataFrame({"x": [3.0, 1.0, 2.0, 9.0]}, index=[3, 1, 2, 8])
    graph = edges(features=table, labels=pd.Series([2, 0, 1], index=[3, 1, 2]))
    assert graph.features[0, :, 0].tolist() == [1, 2, 3]
    assert graph.classes[0].tolist() == [0, 1, 2]
    in_order = edges(features=pd.DataFrame({"x": [1.0, 2, 3]}))  # no ids: in the order of the nodes
    assert in_order.features[0, :, 0].tolist() == [1, 2, 3]


def test_masked_arrays_are_refused_wherever_a_graph_is_made():
    graph = edges()
    fields = {name: getattr(graph, name) for name in graph.__dataclass_fields__}
    targets = np.ma.array(graph.targets, mask=graph.targets > 0)
    refused(lab.DynamicGraph, **{**fields, "targets": targets}, parts=["targets[0, ", "is masked"], error=DataError)


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"name": 5}, ["name=5 is of type int; text is needed"]),
        ({"source": None}, ["source=None is of type NoneType"]),
        ({"edge_life": "x"}, ["edge_life='x' is of type str; a whole number"]),
        ({"edge_life": True}, ["edge_life=True is of type bool"]),
        ({"snapshots": None}, ["snapshots is of type NoneType"]),
        ({"following": 5}, ["following is of type int"]),
        ({"features": [[1.0]]}, ["features is a list", "np.asarray"]),
    ],
    ids=named,
)
def test_parts_of_a_graph_that_are_none(changed, parts):
    graph = edges()
    fields = {name: getattr(graph, name) for name in graph.__dataclass_fields__}
    refused(lab.DynamicGraph, **{**fields, **changed}, parts=parts, error=DataError)


# names, roots and seeds


@pytest.mark.parametrize("name", [None, 5, b"growing", ["sbm"], {"a": 1}])
def test_names_that_are_none(name):
    refused(lab.datasets.load, name, parts=["lab.datasets.load got", type(name).__name__, "growing"], error=ConfigError)
    refused(lab.RunConfig, dataset=name, parts=["dataset=", "lab.datasets.list()"], error=ConfigError)


def test_a_graph_is_no_name():
    refused(lab.datasets.load, edges(), parts=["It is a graph already"], error=ConfigError)


@pytest.mark.parametrize("name", ["collegemsg", "growing", "graph:0123456789abcdef"])
@pytest.mark.parametrize("root", [5, 0, False, b"/tmp", ["/tmp"], "", "a\0b", "~nosuchuser/x", "/nowhere", "x" * 5000])
def test_roots_that_are_none(name, root):
    known = "graph:" in name and isinstance(root, str) and root[:1] in ("/", "x")
    refused(lab.datasets.load, name, root=root, parts=["is not stored" if known else "root="], error=DataError)


@pytest.mark.parametrize("root", [5, b"/tmp", "", "/nowhere"])
def test_roots_that_are_none_are_said_by_the_list_too(root):
    refused(lab.datasets.list, root, parts=["root="], error=DataError)
    refused(lab.datasets.default, root=root, parts=["root="], error=DataError)


def test_a_folder_that_may_not_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    refused(lab.datasets.load, "collegemsg", root=tmp_path, parts=["may not be read"], error=DataError)


@pytest.mark.parametrize("given", [None, 5, b"x", ["a"], "", "a\0b", "~nosuchuser/x"])
def test_folders_of_graphs_that_are_none(given):
    graph = edges()
    refused(graph.save, given, parts=["folder="], error=DataError)
    refused(lab.DynamicGraph.load, given, parts=["folder="], error=DataError)
    if given is not None:
        refused(graph.store, given, parts=["root="], error=DataError)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"seed": None}, ["seed=None has type NoneType"]),
        ({"seed": -1}, ["seed=-1 is out of range"]),
        ({"strict_label": "x"}, ["strict_label='x' has type str"]),
        ({"strict_label": [1]}, ["strict_label=[1] has type list"]),
        ({"cut": np.array([1, 2])}, ["cut=array([1, 2]) has type ndarray"]),
        ({"epochs": 5}, ["epochs=5 has no meaning for data set 'growing'"]),
        ({"generated_node": 9}, ["Did you mean 'generated_nodes'", "what data set 'growing' reads"]),
        ({"churn": 10**400}, ["churn=inf is not a finite number"]),
    ],
    ids=str,
)
def test_settings_of_a_data_set_that_are_not_allowed(given, parts):
    refused(lab.datasets.load, "growing", **given, parts=parts, error=ConfigError)


def test_a_length_that_is_given_wins_over_the_number_that_a_data_set_brings(tmp_path):
    (tmp_path / "sx-stackoverflow.txt").write_bytes(b"1 2 0\n2 3 10\n3 1 20\n1 2 30\n")
    with pytest.warns(UserWarning, match="are published"):
        assert lab.datasets.load("stackoverflow", root=tmp_path).num_snapshots == 50  # cut=51 comes with it
    with pytest.warns(UserWarning, match="are published"):
        assert lab.datasets.load("stackoverflow", root=tmp_path, interval=10.0).num_snapshots == 3
    refused(
        lab.datasets.load,
        "stackoverflow",
        root=tmp_path,
        interval=10.0,
        cut=5,
        error=ConfigError,
        parts=["cut=5 and interval=10 are both given"],
    )


def test_what_cannot_be_cut_names_the_file(tmp_path):
    (tmp_path / "sx-askubuntu.txt").write_bytes(b"1 2 0\n2 3 10\n3 1 20\n1 2 30\n")
    with pytest.warns(UserWarning, match="are published"):
        refused(
            lab.datasets.load,
            "askubuntu",
            root=tmp_path,
            interval=1e6,
            error=DataError,
            parts=["file sx-askubuntu.txt in", "interval=1000000 is longer than the data", "from 0 to 30"],
        )


# text files


def written(folder: Path, data: bytes, name: str = "mine.csv") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


@pytest.mark.parametrize("path", [None, 5, b"x", ["a"], "", "a\0b", "~nosuchuser/x", object()])
@pytest.mark.parametrize("load", [lab.datasets.from_csv, lab.datasets.from_parquet])
def test_paths_that_are_none(load, path):
    refused(load, path, cut=4, parts=["path="], error=DataError)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"src": 1.5}, ["src=1.5 is of type float", "its number, from 0"]),
        ({"src": True}, ["src=True is of type bool"]),
        ({"src": None}, ["src=None is of type NoneType"]),
        ({"src": [0]}, ["src=[0] is of type list"]),
        ({"dst": 0}, ["src and dst are both column 0"]),
        ({"weight": 2}, ["time and weight are both column 2"]),
        ({"sep": None}, ["sep=None; the text between columns"]),
        ({"sep": 5}, ["sep=5; the text between columns"]),
        ({"sep": "é"}, ["sep='é'; the text between columns"]),
        ({"header": "x"}, ["header='x' has type str: allowed True or False"]),
        ({"cutt": 3}, ["Unknown argument of from_csv() 'cutt'", "Did you mean 'cut'"]),
        ({"node_ids": 3}, ["Unknown argument of from_csv()"]),
        ({"source": "x"}, ["Unknown argument of from_csv()"]),
        ({"name": 5}, ["name=5 has type int"]),
        ({"name": ""}, ["name='' is empty"]),
        ({"strict_label": "x"}, ["strict_label='x'"]),
    ],
    ids=str,
)
def test_arguments_for_a_text_file_that_are_not_allowed(tmp_path, given, parts):
    refused(lab.datasets.from_csv, written(tmp_path, CSV), **{"cut": 4, **given}, parts=parts)


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b"1" * 140_000 + b",2,3\n", ["line 1 of mine.csv is '111", "column 1 (src)", "1,000 characters"]),
        (b"1,2,3\n" + b"1" * 140_000 + b",2,x\n", ["mine.csv"]),
        (b"1,2,3\n" + b"1" * 140_000 + b",2,4,5\n", ["line 2 of mine.csv is '111", "it has 4 columns; 3 are needed"]),
        (
            CSV[:8] + b"\n" + b"1" * (MAX_ID_LENGTH + 1) + b",2,4,5\n",
            ["line 3 of mine.csv is '111", "1,000 characters"],
        ),
        (b",".join([b"1"] * 5000) + b"\n", ["line 1 of mine.csv has 5,000 columns; at most 4,096"]),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, bytes) else "",
)
def test_text_files_that_are_none(tmp_path, data, parts):
    refused(lab.datasets.from_csv, written(tmp_path, data), cut=4, parts=parts, error=DataError)


# tables


@pytest.mark.parametrize(
    "given", [None, 5, "x", {"src": SRC, "dst": DST, "time": TIME}, [1], frame()["src"], pd.DataFrame], ids=repr
)
def test_frames_that_are_none(given):
    refused(lab.datasets.from_pandas, given, cut=4, parts=["the frame is", "a data frame is needed"], error=DataError)


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"src": pd.array(["a", None, "b", "c"], dtype="string")}, ["row 1", "has no 'src'"]),
        ({"src": pd.array([1, None, 3, 1], dtype="Int64")}, ["row 1", "has no 'src'"]),
        ({"src": pd.Categorical(["a", None, "b", "c"]), "dst": list("abca")}, ["row 1", "has no 'src'"]),
        ({"time": pd.array([1.0, 2, None, 4], dtype="Float64")}, ["row 2", "has no 'time'"]),
        ({"src": [[1], [2, 3], [4], [5]]}, ["src[0] is", "whole numbers or text"]),
        ({"time": pd.to_timedelta([1, 2, 3, 4], unit="s")}, ["of type timedelta64"]),
        ({"src": [1.5, 2, 3, 4]}, ["src[0] is 1.5"]),
    ],
    ids=named,
)
def test_values_of_tables_that_are_not_allowed(tmp_path, changed, parts):
    table = frame(**changed)
    refused(lab.datasets.from_pandas, table, cut=4, parts=parts, error=DataError)
    table.to_parquet(tmp_path / "mine.parquet")
    refused(lab.datasets.from_parquet, tmp_path / "mine.parquet", cut=4, parts=parts, error=DataError)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"src": None}, ["has no column None for src"]),
        ({"src": ["src"]}, ["has no column ['src'] for src", "it has src, dst, time, w"]),
        ({"src": np.array([1, 2])}, ["has no column array([1, 2]) for src"]),
        ({"weight": "time"}, ["time and weight are both column 'time'"]),
        ({"dst": "src"}, ["src and dst are both column 'src'"]),
        ({"cutt": 3}, ["Unknown argument of from_", "Did you mean 'cut'"]),
        ({"name": 5}, ["name=5 has type int"]),
    ],
    ids=str,
)
def test_arguments_for_a_table_that_are_not_allowed(tmp_path, given, parts):
    frame().to_parquet(tmp_path / "mine.parquet")
    refused(lab.datasets.from_pandas, frame(), **{"cut": 4, **given}, parts=parts)
    refused(lab.datasets.from_parquet, tmp_path / "mine.parquet", **{"cut": 4, **given}, parts=parts)


def test_tables_without_rows_or_with_two_columns_of_a_name(tmp_path):
    refused(lab.datasets.from_pandas, frame().iloc[:0], cut=4, parts=["the frame holds no rows"], error=DataError)
    twice = frame().rename(columns={"w": "src"})
    refused(lab.datasets.from_pandas, twice, cut=4, parts=["several columns 'src' for src"], error=DataError)


def test_other_tables_and_names_of_columns(tmp_path):
    expected = edges().data_hash
    assert lab.datasets.from_pandas(pa.table(frame()), cut=4).data_hash == expected
    numbered = frame().rename(columns={"src": 0, "dst": 1, "time": 2})
    assert lab.datasets.from_pandas(numbered, 0, 1, 2, cut=4).data_hash == expected
    repeated = pa.table({"src": pa.array(list("abca")).dictionary_encode(), "dst": list("bcab"), "time": TIME})
    parquet.write_table(repeated, tmp_path / "mine.parquet")
    assert lab.datasets.from_parquet(tmp_path / "mine.parquet", cut=4).node_ids.tolist() == ["a", "b", "c"]
    half = pa.table({"src": pa.array(np.array(SRC, np.float16)), "dst": DST, "time": TIME})
    assert lab.datasets.from_pandas(half, cut=4).data_hash == expected


# DGL


class Graph:
    """What DGL's graphs answer, and no more."""

    def __init__(self, **edata: Any) -> None:
        self.ndata, self.edata = {}, edata

    def edges(self):
        return np.array([0]), np.array([1])

    def num_nodes(self):
        return 3


@pytest.mark.parametrize("given", [None, 5, "abc", {}, Graph()], ids=lambda given: type(given).__name__)
def test_lists_of_graphs_that_are_none(given):
    refused(lab.datasets.from_dgl, given, parts=["graphs is", "a list of DGLGraphs is needed"], error=DataError)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({"features": ["feat"]}, ["features=['feat'] is of type list", "the name"]),
        ({"features": np.eye(3)}, ["features=array", "the name"]),
        ({"weight": 5}, ["weight=5 is of type int", "the name"]),
        ({"weight": "flat"}, ["graphs[0].flat has shape ()", "each of the 1 edges"]),
        ({"weight": "text"}, ["graphs[0].text[0] is 'a', of type str"]),
        ({"weight": "masked"}, ["is masked"]),
        ({"cut": 3}, ["Unknown argument of from_dgl() 'cut'"]),
        ({"edge_lif": 3}, ["Did you mean 'edge_life'"]),
        ({"strict_label": "x"}, ["strict_label='x'"]),
        ({"name": 5}, ["name=5"]),
    ],
    ids=str,
)
def test_arguments_for_graphs_of_dgl_that_are_not_allowed(given, parts):
    weights = {"flat": np.array(1.0), "text": np.array(["a"]), "masked": np.ma.array([1.0], mask=[True])}
    refused(lab.datasets.from_dgl, [Graph(**weights)] * 3, **{"features": None, **given}, parts=parts)


# sizes


def test_a_graph_that_cannot_fit_is_refused_before_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "memory_bytes", lambda: 1000)
    refused(edges, interval=1e-3, cut=0, parts=["snapshots of 3 nodes", "1e-06 GB of memory"], error=DataError)
    assert edges(interval=1e-3, cut=0, min_edges=1).num_snapshots == 3
    monkeypatch.setattr(room, "free_bytes", lambda folder: 1000)
    refused(lab.datasets.load, "growing", parts=["49 snapshots of 600 nodes", "GB free"], error=DataError)
    assert not list((tmp_path / "cache").glob("graphs/*"))


@pytest.mark.slow
def test_empty_intervals_cost_little():
    graph = edges(cut=100_000)
    assert graph.num_snapshots == 99_999
    assert graph.num_edges.sum() == 3
    assert len({id(snapshot) for snapshot in graph.snapshots}) == 4  # those without edges are one
    living = edges(cut=100_000, edge_life=2)
    assert np.flatnonzero(living.num_edges).tolist() == [0, 33_332, 33_333, 66_665, 66_666]
    np.testing.assert_array_equal(living.features[:, :, 0] > 0, living.features[:, [2, 0, 1], 1] > 0)


def test_every_refusal_suggests_what_is_close():
    with pytest.raises(UnknownNameError) as caught:
        lab.datasets.load("x" * 10**6)
    assert len(str(caught.value)) < 1500
