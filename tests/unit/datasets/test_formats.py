"""Parsers of data files: small files as their publishers write them, the real ones, and what each must refuse."""

from __future__ import annotations

import gzip
import json
import time
import traceback
from types import MappingProxyType

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, DataError
from dtdg_lab.datasets.archives import ArchiveMembers, find_part
from dtdg_lab.datasets.formats import snap, static, temporal
from dtdg_lab.datasets.formats.text import ID, NUMBER, read_rows
from dtdg_lab.datasets.tables import EdgeTable, StaticTable
from tests import format_samples as samples


def lists(table: EdgeTable) -> tuple:
    weight = None if table.weight is None else table.weight.tolist()
    return table.src.tolist(), table.dst.tolist(), table.time.tolist(), weight


def refused(parse, data, **options) -> str:
    with pytest.raises(DataError) as caught:
        parse(data, "tiny", **options)
    assert "tiny" in str(caught.value)
    return str(caught.value)


# tables


def vector(*values, dtype=np.int64):
    return np.array(values, dtype=dtype)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"src": vector(0.0, 1.0, dtype=float)}, "src has type float64; int64"),
        ({"src": [0, 1]}, "src is a list"),
        ({"dst": vector(1)}, r"dst has shape \(1,\)"),
        ({"src": vector(), "dst": vector(), "time": vector()}, "at least 1 edge"),
        ({"src": vector(0, -1)}, r"src\[1\] is -1; 0 to"),
        ({"dst": vector(2**31, 0)}, r"dst\[0\] is 2147483648; 0 to 2147483647"),
        ({"time": vector(0, np.nan, dtype=float)}, r"time\[1\] is nan; finite"),
        ({"time": vector(1, 2, dtype=np.int32)}, "time has type int32"),
        ({"weight": vector(1, np.inf, dtype=float)}, r"weight\[1\] is inf"),
        ({"weight": vector(1, 2, dtype=np.float32)}, "weight has type float32"),
        ({"node_ids": np.array(["a"])}, r"src\[1\] is 1; 0 to 0"),
        ({"node_ids": np.array([0.5, 1.5])}, "node_ids has type float64"),
    ],
)
def test_an_edge_table_is_checked(changed, words):
    right = {"src": vector(0, 1), "dst": vector(1, 0), "time": vector(5, 4)}
    assert EdgeTable(**right).src.flags.writeable is False
    with pytest.raises(DataError, match=words):
        EdgeTable(**{**right, **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_nodes": True}, "num_nodes=True"),
        ({"src": vector(0, 2)}, r"src\[1\] is 2; 0 to 1"),
        ({"features": np.zeros((2, 2, 1), np.float32)}, r"features has shape \(2, 2, 1\)"),
        ({"features": np.full((2, 1), np.inf, np.float32)}, r"features\[0, 0\] is inf"),
        ({"classes": np.zeros(3, np.int16)}, r"classes has shape \(3,\)"),
        ({"vertex_split": np.full(2, 3, np.int8)}, r"vertex_split\[0\] is 3; -1 to 2"),
    ],
)
def test_a_static_table_is_checked(changed, words):
    right = {"src": vector(0, 1), "dst": vector(1, 0), "num_nodes": 2}
    StaticTable(**right, features=np.zeros((2, 0), np.float32), vertex_split=np.zeros(2, np.int8))
    with pytest.raises(DataError, match=words):
        StaticTable(**{**right, **changed})


# rows


def test_a_bad_line_anywhere_is_found_quickly():
    text = b"".join(b"%d %d %d\n" % (row % 977, row % 1009, row) for row in range(200_000))
    lines = text.split(b"\n")
    for bad in (0, 123_456, 199_999):
        broken = b"\n".join([*lines[:bad], b"7 x 3", *lines[bad + 1 :]])
        message = refused(snap.parse_snap_text, broken)
        assert message.startswith(
            f"line {bad + 1:d} of tiny is '7 x 3': column 2 (target) is 'x'; a whole number from 0"
        )


def test_line_numbers_count_comments_blank_lines_and_the_header():
    assert "line 6 of" in refused(snap.parse_snap_text, b"# a\n\n1 2 3\r\n\n# b\n1 2\n")
    assert "line 4 of" in refused(temporal.parse_jodie, b"u,i,t,l\n0,0,1,0\n0,0,2,0\n0,a,3,0\n")
    assert "line 5 of" in refused(temporal.parse_jodie, b"u,i,t,l\n0,0,1,0\n\n0,0,2,0\n0,0,1,0\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"a 2 3", "column 1 (source) is 'a'; a whole number from 0 to 2,147,483,647"),
        (b"-1 2 3", "column 1 (source) is '-1'"),
        (
            b"1 1099511627776 3",
            "column 2 (target) is '1099511627776'; a whole number from 0 to 2,147,483,647 (from_csv",
        ),
        (b"1 0x10 3", "column 2 (target) is '0x10'"),
        (b"1 2 3.5", "column 3 (time) is '3.5'; a whole number is allowed"),
        (b"1 2 nan", "column 3 (time) is 'nan'"),
        (b"1 2", "it has 2 columns; 3 are needed, 'source target time' separated by spaces or tabs"),
        (b"1 \xff 3", r"column 2 (target) is '\\xff'"),
        (b"1 2 \0", "has a NUL byte; text is expected"),
    ],
)
def test_snap_text_refuses(line, words):
    message = refused(snap.parse_snap_text, b"# head\n1 2 3\n" + line + b"\n4 5 6\n")
    assert message.startswith("line 3 of tiny")
    assert words in message


@pytest.mark.parametrize("data", [b"", b"\n\n", b"# only a comment\n", b"\xef\xbb\xbf", b"1 2 3\n", b"1 2 3"])
def test_files_without_two_edges_are_refused(data):
    assert "at least 2 of 'source target time' separated by spaces or tabs are needed" in refused(
        snap.parse_snap_text, data
    )


def test_numbers_must_be_finite_and_are_named():
    columns = {"a": ID, "b": NUMBER}
    for bad in (b"nan", b"inf", b"-inf", b"1e400", b""):
        with pytest.raises(DataError, match=r"line 2 of x is .* column 2 \(b\) is"):
            read_rows(b"1,0.5\n2," + bad + b"\n", "x", columns)
    assert read_rows(b"1,-0.5\n2,1e3\n", "x", columns)["b"].tolist() == [-0.5, 1000.0]


# the formats, small


def test_snap_text():
    table = snap.parse_snap_text(samples.SNAP_TEXT, "tiny")
    assert lists(table) == ([1, 2, 3, 1], [2, 3, 1, 2], [30, 10, 25, -5], None)
    assert table.time.dtype == np.int64
    for other in (
        samples.SNAP_TEXT.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + samples.SNAP_TEXT,
        samples.SNAP_TEXT.replace(b" ", b"\t  ").replace(b"\n", b" \n "),
        samples.SNAP_TEXT.rstrip(),
    ):
        assert lists(snap.parse_snap_text(other, "tiny")) == lists(table)


def test_snap_csv_keeps_fractions_and_signs():
    table = snap.parse_snap_csv(samples.SNAP_CSV, "tiny")
    assert lists(table)[:2] == ([6, 6, 1], [2, 5, 15])
    assert table.time.tolist() == [1289241911.72836, 1289241941.53378, 1289243140.39049]
    assert table.weight.tolist() == [4, -10, 1]
    assert snap.parse_snap_csv(b"1,2,1,10\n2,1,-1,9\n", "tiny").time.dtype == np.int64
    assert "column 3 (rating) is 'good'" in refused(snap.parse_snap_csv, b"1,2,good,3\n1,2,1,3\n")
    assert "column 4 (time) is 'noon'" in refused(snap.parse_snap_csv, b"1,2,1,3\n1,2,1,noon\n")


def test_network_repository():
    comma = snap.parse_network_repository(samples.EDGES_COMMA, "fb.edges")
    assert lists(comma) == ([428, 374, 231], [538, 538, 452], [1084585996, 1084586048, 1084586140], None)
    space = snap.parse_network_repository(samples.EDGES_SPACE, "enron.edges")
    assert lists(space) == ([48, 67, 13], [13, 13, 48], [926389620, 926418960, 926418961], [1, 2.5, 1])
    assert lists(snap.parse_network_repository(samples.EDGES_SPACE.replace(b" ", b", "), "x")) == lists(space)
    market = snap.parse_network_repository(samples.MTX, "ia.mtx")
    assert lists(market) == ([48, 67, 13], [13, 13, 48], [92, 93, 94], [1, 2.5, 1])
    headless = samples.MTX.split(b"\n", 2)[2]
    assert lists(snap.parse_network_repository(headless, "ia.mtx")) == lists(market)
    assert lists(snap.parse_network_repository(headless, "ia.edges")) == lists(market)  # three columns, then four
    both = snap.parse_network_repository(samples.EDGES_COMMA, "x", bipartite=True)
    assert both.dst.tolist() == [538 + 429, 538 + 429, 452 + 429]


def test_network_repository_in_a_zip():
    data = samples.zipped({"fb-forum.edges": samples.EDGES_COMMA, "readme.html": b"<html>", "__MACOSX/._x.edges": b"?"})
    members = ArchiveMembers(data, "fb-forum.zip")
    table = snap.parse_network_repository(
        members.only("*.edges", "*.mtx"), find_part(members, members.where, "*.edges", "*.mtx")
    )
    assert len(table.src) == 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"1 2\n2 3\n", "line 1 of tiny is '1 2': it has 2 columns; 3 (source target time) or 4"),
        (b"1 2 3\n1 2 3 4\n1 2 3 4\n", "holds 2 edges; 3 are announced in its size line"),
        (b"%%MatrixMarket x\n999999999 999999999 5\n1 2 3\n1 2 4\n", "holds 2 edges; 5 are announced"),
        (b"%%MatrixMarket x\n1 2 3 4\n1 2 3 4\n", "line 2 of tiny is '1 2 3 4'; a size line of three whole numbers"),
        (b"1 2 3 4\n1 2 x 4\n", "line 2 of tiny is '1 2 x 4': column 3 (weight) is 'x'"),
        (b"", "holds 0 rows"),
    ],
)
def test_network_repository_refuses(data, words):
    assert words in refused(snap.parse_network_repository, data)


def test_konect():
    table = snap.parse_konect(samples.KONECT, "out.tiny")
    assert lists(table) == ([1, 1, 4], [2, 3, 1], [1162422000, 1162422000, 1162422001], [1, 1, -1])
    two_sides = snap.parse_konect(samples.KONECT.replace(b"asym", b"bip"), "out.tiny")
    assert two_sides.dst.tolist() == [7, 8, 6]
    one_side = snap.parse_konect(samples.KONECT.replace(b"asym", b"bip"), "out.tiny", bipartite=False)
    assert one_side.dst.tolist() == [2, 3, 1]
    bare = snap.parse_konect(b"1 2 30\n2 1 40\n", "out.tiny", columns=("source", "target", "time"))
    assert lists(bare) == ([1, 2], [2, 1], [30, 40], None)
    members = ArchiveMembers(
        samples.tarred({"tiny/README.tiny": b"?", "tiny/out.tiny": samples.KONECT}), "tiny.tar.bz2"
    )
    assert lists(snap.parse_konect(members.only("out.*"), find_part(members, members.where, "out.*"))) == lists(table)


def test_konect_refuses():
    assert "KONECT writes the time in the fourth" in refused(snap.parse_konect, b"% sym\n1 2 1\n1 2 1\n")
    assert "line 2 of tiny is '1 2 1 x': column 4 (time)" in refused(snap.parse_konect, b"% sym\n1 2 1 x\n1 2 1 3\n")
    assert "columns=('source',)" in refused_options(columns=("source",))
    assert "2,147,483,647" in refused(snap.parse_konect, b"% bip\n2147483647 1 1 1\n1 1 1 1\n")


def refused_options(**options) -> str:
    with pytest.raises(DataError) as caught:
        snap.parse_konect(samples.KONECT, "tiny", **options)
    return str(caught.value)


def test_jodie_shifts_items():
    table = temporal.parse_jodie(samples.JODIE, "tiny")
    assert lists(table) == ([0, 1, 0], [2, 3, 4], [0.0, 36.0, 77.5], None)
    no_features = b"user_id,item_id,timestamp,state_label\n0,0,0,0\n0,1,5,0\n"
    assert temporal.parse_jodie(no_features, "tiny").time.dtype == np.int64


@pytest.mark.parametrize(
    ("parse", "data", "words"),
    [
        (temporal.parse_jodie, samples.JODIE.replace(b"77.5", b"35"), "line 4 of tiny has time 35.0, after 36.0"),
        (temporal.parse_jodie, samples.JODIE.replace(b",2,0\n", b",2\n"), "line 3 of tiny"),
        (temporal.parse_jodie, samples.JODIE.split(b"\n")[0], "its only line is 'user_id"),
        (temporal.parse_jodie, b"", "it is empty"),
        (temporal.parse_jodie, b"user_id,item_id\n0,1\n0,1\n", "at least four columns are needed"),
        (temporal.parse_jodie, samples.JODIE.replace(b"\n1,1", b"\nx,1"), "line 3 of tiny"),
    ],
)
def test_jodie_refuses(parse, data, words):
    assert words in refused(parse, data)


def test_reddit_hyperlinks():
    table = snap.parse_reddit_hyperlinks(samples.REDDIT, "tiny")
    assert table.node_ids.tolist() == ["leagueoflegends", "soccer", "teamredditteams", "theredlion"]
    assert lists(table) == ([0, 3, 1], [2, 1, 0], [1388507998, 1388513917, 1388534400], [1, -1, 1])
    both = snap.parse_reddit_hyperlinks({"title.tsv": samples.REDDIT, "body.tsv": samples.REDDIT}, "tiny")
    assert both.src.tolist() == table.src.tolist() * 2
    assert both.node_ids.tolist() == table.node_ids.tolist()


@pytest.mark.parametrize(
    ("found", "put", "words"),
    [
        (b"2013-12-31 18:18:37", b"yesterday", "line 3 of tiny"),
        (b"2013-12-31 18:18:37", b"2013-13-31 18:18:37", "column 4 (time) is '2013-13-31 18:18:37'; a time such as"),
        (b"theredlion", b"", "column 1 (source) is ''; a name of 1 to 100 characters"),
        (b"theredlion", b"\xc3\x28", "line 3 of tiny"),
        (b"TIMESTAMP", b"WHEN", "none is time, which may be called TIMESTAMP"),
        (b"POST_ID", b"TIMESTAMP", "has 2 columns 'TIMESTAMP'"),
        (b"\t-1\t", b"\t", "it has 5 columns"),
    ],
)
def test_reddit_refuses(found, put, words):
    assert found in samples.REDDIT
    assert words in refused(snap.parse_reddit_hyperlinks, samples.REDDIT.replace(found, put))


def test_amlsim_finds_columns_by_their_names():
    table = temporal.parse_amlsim(samples.AMLSIM, "tiny")
    assert table.node_ids.tolist() == [4, 76, 1443]  # numbers in the order of numbers
    assert lists(table) == ([1, 0, 2], [2, 1, 0], [1483228800, 1483315200, 1483315201], [161.25, 1000, 0.5])
    other = temporal.parse_amlsim(samples.PAYSIM, "tiny")
    assert other.node_ids.tolist() == ["C1231", "C1666", "M1979"]
    assert lists(other) == ([0, 1], [2, 0], [0, 3], [9839.64, 1864.28])
    assert temporal.parse_amlsim(samples.AMLSIM.replace(b"Z,", b","), "tiny").time.tolist() == table.time.tolist()
    odd = temporal.parse_amlsim(
        samples.PAYSIM.replace(b"C1231", b"007").replace(b"C1666", b"7").replace(b"M1979", b"8"), "x"
    )
    assert odd.node_ids.tolist() == ["007", "7", "8"]  # 007 is not 7


@pytest.mark.parametrize(
    ("found", "put", "words"),
    [
        (b"base_amt", b"value", "none is amount, which may be called base_amt, amount, TX_AMOUNT"),
        (b"1000,", b"much,", "line 3 of tiny"),
        (b"1000,", b"nan,", "column 5 (amount) is 'nan'; a finite number"),
        (b"2017-01-01T00:00:00Z", b"12", "line 3 of tiny"),
    ],
)
def test_amlsim_refuses(found, put, words):
    assert words in refused(temporal.parse_amlsim, samples.AMLSIM.replace(found, put))


def test_chickenpox():
    table = temporal.parse_pygt_json(samples.as_json(samples.CHICKENPOX), "tiny", variant="chickenpox")
    assert (table.num_intervals, table.num_nodes, len(table.src)) == (3, 3, 12)
    assert table.src[4:8].tolist() == [0, 1, 1, 2]
    assert table.interval.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert table.features[1, 2].tolist() == [1.5, 2.5, 3.5, 4.5]
    assert table.targets[1].tolist() == [5, 5.25, 5.5]
    assert table.persistence[1].tolist() == [4, 4.25, 4.5]
    assert table.node_ids.tolist() == ["BACS", "BARANYA", "BEKES"]
    two = temporal.parse_pygt_json(samples.as_json(samples.CHICKENPOX), "tiny", variant="chickenpox", lags=2)
    assert two.features.shape == (5, 3, 2)


def test_england_covid():
    table = temporal.parse_pygt_json(samples.as_json(samples.COVID), "tiny", variant="covid", lags=3, standardize=False)
    assert (table.num_intervals, table.num_nodes) == (3, 3)
    assert table.interval.tolist() == [0, 1, 1, 2, 2, 2]
    assert table.dst.tolist() == [1, 1, 1, 1, 1, 0]
    assert table.weight.tolist() == [10, 10, 20, 10, 20, 30.5]
    assert table.features[2].tolist() == [[2, 3, 4], [8, 18, 32], [7, 7, 7]]
    assert table.targets[2].tolist() == [5, 50, 7]
    scaled = temporal.parse_pygt_json(samples.as_json(samples.COVID), "tiny", variant="covid", lags=3)
    days = np.arange(6.0)
    np.testing.assert_allclose(scaled.targets[:, 0], ((days - 2.5) / days.std())[3:], rtol=1e-6)
    assert (scaled.features[:, 2] == 0).all()  # a region that never changes


def test_twitter_tennis():
    table = temporal.parse_pygt_json(samples.as_json(samples.TENNIS), "tiny", variant="twitter-tennis")
    assert (table.num_intervals, table.num_nodes) == (4, 3)
    assert table.interval.tolist() == [0, 1, 1, 2, 3, 3]
    np.testing.assert_allclose(table.targets[:, 0], np.log1p([1, 2, 3, 3]), rtol=1e-6)
    np.testing.assert_allclose(table.persistence[:, 0], np.log1p([0, 1, 2, 3]), rtol=1e-6)
    assert np.flatnonzero(table.features[0, 0]).tolist() == [4, 5]  # degree 148, transitivity 0.01
    assert np.flatnonzero(table.features[0, 1]).tolist() == [3, 15]  # ceil(log 11), and the largest transitivity
    assert np.flatnonzero(table.features[0, 2]).tolist() == [0, 8]
    raw = temporal.parse_pygt_json(samples.as_json(samples.TENNIS), "tiny", variant="twitter-tennis", encoding="raw")
    assert raw.features[3, 1].tolist() == [10, 1]


SEQUENCES = {"chickenpox": samples.CHICKENPOX, "covid": samples.COVID, "twitter-tennis": samples.TENNIS}


def json_with(sample, path, value):
    data = json.loads(json.dumps(sample))
    place = data
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return samples.as_json(data)


@pytest.mark.parametrize(
    ("variant", "path", "value", "words"),
    [
        ("chickenpox", ["edges", 1], [0, 3], "step 0 has an edge [0, 3]; nodes 0 to 2"),
        ("chickenpox", ["edges", 1], [0, 10**9], "step 0 has an edge [0, 1000000000]"),
        ("chickenpox", ["edges", 1], [0, 2**70], "edges.1.1 is 1180591620717411303424"),
        ("chickenpox", ["edges", 1], [0], "edges.1.1 is missing"),
        ("chickenpox", ["edges"], [], "at least 1 edge"),
        ("chickenpox", ["FX", 2], [1, 2], "FX[2] has 2 entries; 3 are needed"),
        ("chickenpox", ["FX", 2, 1], float("nan"), "FX.2.1 is nan: Input should be a finite"),
        ("chickenpox", ["FX", 2, 1], 1e300, "a value of 1e+300; float32 holds"),
        ("chickenpox", ["FX"], [[1, 2, 3]] * 4, "has 4 times; more than lags=4"),
        ("chickenpox", ["FX"], [], "shape (0, 0)"),
        ("chickenpox", ["node_ids", "BACS"], 7, "node_ids does not give each"),
        ("covid", ["edge_mapping"], 3, "edge_mapping is 3: Input should be an object"),
        ("covid", ["edge_mapping", "edge_index", "1"], [[0, 1]], "step 1 has 1 edges and 2 weights"),
        ("covid", ["y"], [[1e300] * 3, [-1e300] * 3] * 3, "float32 holds 3.40282e+38 at most"),
        ("twitter-tennis", ["time_periods"], 10**12, "has no '4', one of its 1000000000000 steps"),
        ("twitter-tennis", ["1", "y"], [1, 2], "y[1] has 2 entries; 3 are needed"),
        ("twitter-tennis", ["1", "y"], [1, -2, 1], "mentions from -2"),
        ("twitter-tennis", ["1", "X"], [[1, 0]], "(step 1): X has 1 rows; 3 are needed"),
        ("twitter-tennis", ["1", "X", 2], [1, 2], "transitivities from 0.0118 to 2"),
    ],
)
def test_sequences_in_json_refuse(variant, path, value, words):
    assert words in refused_or_edgeless(variant, json_with(SEQUENCES[variant], path, value), words)


def refused_or_edgeless(variant, data, words) -> str:
    lags = {} if variant == "twitter-tennis" else {"lags": 3 if variant == "covid" else 4}
    with pytest.raises(DataError) as caught:
        temporal.parse_pygt_json(data, "tiny", variant=variant, **lags)
    assert "tiny" in str(caught.value) or "edge" in words
    return str(caught.value)


def test_a_list_of_wrong_items_gives_one_short_error():
    data = samples.as_json({**samples.CHICKENPOX, "edges": [["a", "b"]] * 500, "FX": [["x"] * 3] * 500})
    with pytest.raises(DataError) as caught:
        temporal.parse_pygt_json(data, "tiny", variant="chickenpox")
    assert len("".join(traceback.format_exception(caught.value))) < 2_000
    data = samples.as_json({**samples.COVID, "edge_mapping": {"edge_index": dict.fromkeys(map(str, range(500)), "a")}})
    with pytest.raises(DataError) as caught:
        temporal.parse_pygt_json(data, "tiny", variant="covid")
    assert len("".join(traceback.format_exception(caught.value))) < 2_000


def test_a_missing_field_is_named_without_the_file():
    data = samples.as_json({"FX": samples.CHICKENPOX["FX"]})
    with pytest.raises(DataError, match=r"^tiny: edges is missing\. Fetch the file again\.$"):
        temporal.parse_pygt_json(data, "tiny", variant="chickenpox")


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"FX": ' + b"1" * 5000 + b"}", b"nul"])
def test_what_is_no_json_object_is_refused(data):
    refused(temporal.parse_pygt_json, data, variant="chickenpox")


def test_options_of_sequences_are_checked():
    for options in ({"variant": "wikimaths"}, {"variant": "covid", "lags": 0}, {"variant": "covid", "encoding": "x"}):
        with pytest.raises(ConfigError):
            temporal.parse_pygt_json(samples.as_json(samples.COVID), "tiny", **options)


def test_planetoid_with_papers_that_are_not_described():
    table = static.parse_planetoid(samples.planetoid(), "tiny")
    assert (table.src.tolist(), table.dst.tolist()) == ([0, 0, 1, 2, 4, 6], [1, 2, 0, 0, 6, 4])
    assert table.num_nodes == 7
    assert table.classes.tolist() == [2, 0, 1, -1, 1, -1, 0]
    assert table.vertex_split.tolist() == [0, 1, 1, -1, 2, -1, 2]
    assert table.features[6].tolist() == [1, 0, 0, 0, 1]  # test.index names 6 first, so tx's first row is its
    assert table.features[4].tolist() == [0, 0, 0, 0, 0.25]
    assert not table.features[[3, 5]].any()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("graph", {0: [99]}, "the graph names paper 99"),
        ("graph", {0: [-1]}, "the graph names a paper -1"),
        ("graph", {0: 1}, "something else than lists"),
        ("graph", [1], "the graph is a list"),
        ("y", np.zeros((2, 3), np.int32), "1 rows of features and labels of shape (2, 3)"),
        ("ally", np.zeros((3, 40_000), np.int32), "1 to 32767 are allowed"),
        ("tx", samples.csr_matrix(np.ones((2, 6), np.float32)), "allx has 5 features and tx 6"),
        ("allx", samples.csr_matrix(np.full((3, 5), np.nan, np.float32)), "is nan; finite numbers"),
        ("x", [1, 2], "a sparse matrix, and an array of one-hot labels"),
    ],
)
def test_planetoid_refuses(name, value, words):
    files = {**samples.planetoid(), f"ind.tiny.{name}": samples.pickled(value)}
    assert words in refused(static.parse_planetoid, files)


def test_planetoid_refuses_a_test_index_that_does_not_fit():
    files = samples.planetoid()
    for index, words in (
        (b"6\n", "test.index 1 entries"),
        (b"6\n6\n", "each test paper once"),
        (b"6\n1\n", "from 1 on"),
        (b"6\n2147483647\n", "2,147,483,648 cells"),
        (b"6\nx\n", "column 1 (paper) is 'x'"),
    ):
        assert words in refused(static.parse_planetoid, {**files, "ind.tiny.test.index": index})
    del files["ind.tiny.ally"]
    assert "has no file '*.ally'" in refused(static.parse_planetoid, files)


def test_nodes_and_edges():
    table = static.parse_nodes_edges(samples.NODES_EDGES, "tiny")
    assert (table.src.tolist(), table.dst.tolist()) == ([0, 0, 1, 1, 2, 3], [1, 3, 0, 2, 1, 0])
    assert table.features.tolist() == [[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 1, 1]]
    assert table.classes.tolist() == [3, 0, -1, 1]
    assert table.vertex_split.tolist() == [0, 1, -1, 2]
    head, *rows = samples.NODES_EDGES["nodes.csv"].splitlines(keepends=True)
    shuffled = {**samples.NODES_EDGES, "nodes.csv": head + b"".join(reversed(rows))}
    other = static.parse_nodes_edges(shuffled, "tiny")
    assert np.array_equal(other.features, table.features)
    assert np.array_equal(other.classes, table.classes)
    assert np.array_equal(other.vertex_split, table.vertex_split)


@pytest.mark.parametrize(
    ("file", "found", "put", "words"),
    [
        ("nodes.csv", b"\n1,0", b"\n7,0", "lists node 2 where 1 is expected"),
        ("nodes.csv", b"train", b"trian", "line 2 of tiny (nodes.csv) has the split 'trian'"),
        ("nodes.csv", b",3,train", b",40000,train", "a class from -1 (none) to 32,767"),
        ("nodes.csv", b"1 4", b"1 x", "feature_indices"),
        ("nodes.csv", b"1 4", b"1 -4", "lists position -4"),
        ("nodes.csv", b"1 4", b"1 999999999", "1,000,000,000 cells"),
        ("nodes.csv", b"label", b"class", "none is label"),
        ("edges.csv", b"2,1", b"2,4", "line 3 of tiny (edges.csv) has dst 4; 0 to 3"),
        ("edges.csv", b"2,1", b"2,1,1", "line 3 of tiny (edges.csv)"),
        ("edges.csv", b"\n0,1\n2,1\n1,0\n3,3\n3,0\n", b"\n", "holds no rows"),
    ],
)
def test_nodes_and_edges_refuse(file, found, put, words):
    assert found in samples.NODES_EDGES[file]
    broken = {**samples.NODES_EDGES, file: samples.NODES_EDGES[file].replace(found, put)}
    assert words in refused(static.parse_nodes_edges, broken)


def test_elliptic():
    table = temporal.parse_elliptic({f"folder/{name}": data for name, data in samples.ELLIPTIC.items()}, "tiny")
    assert (table.num_intervals, table.num_nodes) == (2, 4)
    assert list(zip(table.src.tolist(), table.dst.tolist(), table.interval.tolist(), strict=True)) == [
        (0, 1, 0),
        (1, 0, 0),
        (2, 3, 1),
    ]
    assert table.node_ids.tolist() == [230, 5530, 232, 7]
    np.testing.assert_allclose(table.features, [[0.5, -1], [0.25, 2], [1, 0.01], [0, 0]], rtol=1e-6)
    assert table.classes.tolist() == [[-1, 0, -1, -1], [-1, -1, 1, -1]]


@pytest.mark.parametrize(
    ("file", "found", "put", "words"),
    [
        ("features", b"232,2", b"232,0", "line 3 of tiny (elliptic_txs_features.csv) has step 0; 1 to"),
        ("features", b"232,2", b"232,4", "no transaction in step 3"),
        ("features", b"232,2", b"230,2", "line 3 of tiny (elliptic_txs_features.csv) has transaction 230 again"),
        ("features", b"0.25,2", b"0.25", "line 2 of"),
        ("features", b"0.25,2", b"nan,2", "column 3 (feature 1) is 'nan'"),
        (
            "edgelist",
            b"232,7",
            b"232,230",
            "line 2 of tiny (elliptic_txs_edgelist.csv) joins transactions of steps 2 and 1",
        ),
        ("edgelist", b"232,7", b"232,8", "line 2 of tiny (elliptic_txs_edgelist.csv) names transaction 8"),
        ("edgelist", b"txId2", b"to", "none is to, which may be called txId2"),
        ("classes", b"5530,2", b"5530,3", "line 3 of tiny (elliptic_txs_classes.csv) has class '3'; 1, 2, unknown"),
        ("classes", b"5530,2", b"99,2", "line 3 of tiny (elliptic_txs_classes.csv) names transaction 99"),
    ],
)
def test_elliptic_refuses(file, found, put, words):
    name = f"elliptic_txs_{file}.csv"
    assert found in samples.ELLIPTIC[name]
    broken = {**samples.ELLIPTIC, name: samples.ELLIPTIC[name].replace(found, put)}
    assert words in refused(temporal.parse_elliptic, broken)


@pytest.mark.parametrize("files", [samples.OGB, samples.OGB_NPZ], ids=["csv", "npz"])
def test_ogb(files):
    table = static.parse_ogb(MappingProxyType(files), "tiny")
    assert (table.src.tolist(), table.dst.tolist()) == ([0, 2, 3, 1], [1, 1, 0, 0])
    assert table.num_nodes == 4
    np.testing.assert_allclose(table.features, [[0.5, 1], [-0.25, 2], [1e-3, 3], [0, 4]], rtol=1e-6)
    assert table.classes.tolist() == ([4, 0, 39, 1] if files is samples.OGB else [4, 0, 39, -1])
    assert table.vertex_split.tolist() == [0, 1, 0, 2]
    assert static.parse_ogb(files, "tiny", features=False).features is None
    both = static.parse_ogb(files, "tiny", both_directions=True)
    assert (both.src.tolist(), both.dst.tolist()) == ([0, 0, 1, 1, 2, 3], [1, 3, 0, 2, 1, 0])
    packed = ArchiveMembers(samples.zipped(files), "tiny.zip")
    assert np.array_equal(static.parse_ogb(packed, "tiny.zip").features, table.features)
    unpacked = {
        name.removesuffix(".gz"): gzip.decompress(data) if name.endswith("gz") else data for name, data in files.items()
    }
    assert np.array_equal(static.parse_ogb(unpacked, "tiny").classes, table.classes)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("raw/edge", b"0,1\n2,4\n", "line 2 of tiny (edge.csv) joins 2 and 4; 0 to 3"),
        ("raw/edge", b"0,1,2\n", "it has 3 columns"),
        ("raw/edge", b"", "holds 0 rows"),
        ("raw/num-node-list", b"1000000000000\n", "[1000000000000]; one graph of 1 to 2,147,483,647"),
        ("raw/num-node-list", b"2000000000\n", "4 labels for 2,000,000,000 nodes"),
        ("raw/node-label", b"4\n0\n", "2 labels for 4 nodes"),
        ("raw/node-label", b"4\n0\n1\nx\n", "line 4 of tiny (node-label.csv)"),
        ("raw/node-feat", b"1,2\n1,2\n1\n1,2\n", "line 3 of tiny (node-feat.csv)"),
        ("raw/node-feat", b"1,2\n1,2\n1,nan\n1,2\n", "column 2 (feature 1) is 'nan'"),
        ("raw/node-feat", b"1,2\n", "features of 1 nodes"),
        ("raw/node-feat", b"1," * 5000 + b"1\n", "5,001 columns; at most 4,096"),
        ("split/time/train", b"0\n4\n", "line 2 of tiny (train.csv) is node 4"),
        ("split/time/train", b"0\n1\n", "nodes of another split"),
    ],
)
def test_ogb_refuses(file, text, words):
    broken = {**samples.OGB, f"arxiv/{file}.csv.gz": gzip.compress(text)}
    assert words in refused(static.parse_ogb, broken)
    assert "cannot be read" in refused(static.parse_ogb, {**broken, f"arxiv/{file}.csv.gz": gzip.compress(text)[:-5]})


def test_ogb_refuses_missing_files_and_odd_arrays():
    for name in ("raw/edge", "raw/num-node-list", "raw/node-label", "split/time/valid"):
        left = {key: data for key, data in samples.OGB.items() if name not in key}
        assert f"has no file '{name.rpartition('/')[2]}.csv.gz'" in refused(static.parse_ogb, left)
    right = {
        "edge_index": np.array([[0, 1], [1, 0]]),
        "num_nodes_list": np.array([4]),
        "node_feat": np.ones((4, 1), np.float32),
    }
    for changed, words in (
        ({"edge_index": np.array([[0, 4], [1, 0]])}, "edges of 0 to 4; 0 to 3"),
        ({"edge_index": np.array([0, 1])}, "(2, E) is needed"),
        ({"edge_index": np.array([["a"]])}, "whole numbers or floats are needed"),
        ({"edge_index": np.array([[None]])}, "Object arrays cannot be loaded"),
        ({"num_nodes_list": np.array([10**12])}, "one graph of 1 to"),
        ({"node_feat": np.full((4, 1), np.nan, np.float32)}, "finite (N, F)"),
        ({"node_feat": np.full((4, 1), 1e300)}, "float32 cannot hold"),
        ({"node_feat": np.ones((3, 1), np.float32)}, "features of 3 nodes"),
    ):
        data = {**samples.OGB_NPZ, "papers/raw/data.npz": samples.npz(**{**right, **changed})}
        assert words in refused(static.parse_ogb, data)
    del right["edge_index"]
    lacking = {**samples.OGB_NPZ, "papers/raw/data.npz": samples.npz(**right)}
    assert "has no 'edge_index'" in refused(static.parse_ogb, lacking)
    label = samples.npz(node_label=np.array([1, 2, 0.5, 1]))
    assert "labels from 0.5 to 2" in refused(static.parse_ogb, {**samples.OGB_NPZ, "papers/raw/node-label.npz": label})


def test_an_npz_that_announces_more_than_it_has_takes_no_memory():
    whole = samples.npz(edge_index=np.zeros((2, 10), np.int64), num_nodes_list=np.array([4]))
    for shape, words in ((b"(2, 99999999999999999), }", "announces"), (b"(2, 99), }", "it is cut short")):
        header = whole.replace(b"(2, 10), }" + b" " * (len(shape) - 10), shape)
        assert header != whole
        message = refused(static.parse_ogb, {**samples.OGB_NPZ, "papers/raw/data.npz": header})
        assert words in message or "CRC" in message or "cannot be read" in message


# the real files


def test_half_a_million_rows_are_read_in_two_seconds(real_data):
    data = gzip.decompress((real_data / "sx-mathoverflow.txt.gz").read_bytes())

    def rows_a_second() -> float:
        start = time.perf_counter()
        table = snap.parse_snap_text(data, "sx-mathoverflow.txt")
        assert (table.src == table.dst).sum() == 116_109  # self loops, which its publisher counts
        return len(table.src) / (time.perf_counter() - start)

    assert any(rows_a_second() > 250_000 for _ in range(4))  # half of what is asked for: test machines are busy


def test_real_ratings_keep_their_sign_and_fractions(real_data):
    for name, positive in (("otc", 32_029), ("alpha", 22_650)):
        file = f"soc-sign-bitcoin{name}.csv.gz"
        table = snap.parse_snap_csv(gzip.decompress((real_data / file).read_bytes()), file)
        assert (table.weight.min(), table.weight.max()) == (-10, 10)
        assert (table.weight > 0).sum() == positive
        assert table.time.dtype == (np.float64 if name == "otc" else np.int64)


def test_real_wikipedia_is_bipartite(real_data):
    file = "jodie-wikipedia-nofeatures.csv.gz"
    data = gzip.decompress((real_data / file).read_bytes())
    table = temporal.parse_jodie(data, file)
    assert (table.src.max(), table.dst.min(), table.dst.max()) == (8_226, 8_227, 9_226)
    assert len(table.src) == 157_474


@pytest.mark.parametrize(
    ("file", "variant", "steps", "nodes", "edges", "features"),
    [
        ("chickenpox", "chickenpox", 517, 20, 517 * 102, 4),
        ("england_covid", "covid", 53, 129, None, 8),
        ("twitter_tennis_rg17", "twitter-tennis", 120, 1_000, 40_839, 16),
    ],
)
def test_real_sequences_have_their_published_counts(real_data, file, variant, steps, nodes, edges, features):
    data = gzip.decompress((real_data / f"{file}.json.gz").read_bytes())
    table = temporal.parse_pygt_json(data, file, variant=variant)
    assert (table.num_intervals, table.num_nodes) == (steps, nodes)
    assert table.features.shape == (steps, nodes, features)
    assert table.targets.shape == table.persistence.shape == (steps, nodes)
    if edges is None:  # the last 8 days are only targets: with one lag less a step more is kept
        edges = sum(len(day) for key, day in json.loads(data)["edge_mapping"]["edge_index"].items() if int(key) < 53)
        every = temporal.parse_pygt_json(data, file, variant=variant, lags=1)
        last = len(json.loads(data)["edge_mapping"]["edge_index"]["60"])
        assert len(every.src) == 82_529 - last
    assert len(table.src) == edges


def test_real_cora_is_the_same_as_pickles_and_as_text(real_data):
    pickled = static.parse_planetoid(ArchiveMembers(real_data / "planetoid-cora.zip"), "planetoid-cora.zip")
    plain = static.parse_nodes_edges(ArchiveMembers(real_data / "cora-plain.zip"), "cora-plain.zip")
    for table in (pickled, plain):
        assert (len(table.src), table.num_nodes, table.features.shape) == (2 * 5_278, 2_708, (2_708, 1_433))
        assert np.bincount(table.classes).tolist() == [351, 217, 418, 818, 426, 298, 180]
        assert np.bincount(table.vertex_split + 1).tolist() == [1_068, 140, 500, 1_000]
    for name in ("src", "dst", "features", "classes", "vertex_split"):
        assert np.array_equal(getattr(pickled, name), getattr(plain, name))
