"""Text files as they are published: comments, footers, archives, encodings, quotes, dates, two kinds of nodes."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dtdg_lab.core.errors import ConfigError, DataError, LabError
from dtdg_lab.datasets import from_csv, from_edges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from tests.format_samples import tarred, zipped

CSV = b"1,2,0\n2,3,1\n3,1,2\n1,2,3\n"
TABS = CSV.replace(b",", b"\t")
NAMES = "José,Zoë,0\nZoë,José,1\nJosé,bob,2\nbob,Zoë,3\n"


def read(folder: Path, data: bytes, *, file_name: str = "mine.csv", **options: object) -> DynamicGraph:
    """Return the graph of a file with these bytes; four base intervals unless the options say otherwise."""
    path = folder / file_name
    path.write_bytes(data)
    return from_csv(path, **({} if "interval" in options else {"cut": 4}), **options)


def patched(archive: bytes, offset: int, value: int) -> bytes:
    """Return a zip of one member with another byte at an offset of its local header, and in the directory."""
    changed, directory = bytearray(archive), archive.index(b"PK\x01\x02")
    changed[offset], changed[directory + offset + 2] = value, value
    return bytes(changed)


def packed(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(CSV)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (b"# Directed graph\n# Nodes: 3 Edges: 4\n# FromNodeId\tToNodeId\tTime\n" + TABS, {"sep": "\t"}),
        (b"# a graph\n# From\tTo\tTime\n" + TABS, {"sep": "\t", "src": "From", "dst": "To", "time": "Time"}),
        (b"% sym unweighted\n% 4 3 3\n" + CSV.replace(b",", b" "), {"sep": " "}),
        (b"# u  v  t\n" + CSV.replace(b",", b"  "), {"sep": " ", "src": "u", "dst": "v", "time": "t"}),
        (b"% sym unweighted\n% 4 3 3\n" + TABS, {"sep": "\t"}),
        (b"// made by a tool\n" + CSV + b"  # the end\n", {}),
        (b"#1,2,0\n" + CSV, {"comment": "#"}),
        (b'1,2,0,"hello\nworld"\n2,3,1,"x\n\ny"\n3,1,2,z\n1,2,3,\n', {}),
        (b"a,b,c\n" + CSV.replace(b"\n", b",0.5,0.5\n"), {"header": True}),  # more columns than names
        (CSV.replace(b"1,2", b"1.0,2.0"), {}),
        (CSV.replace(b"1,", b"1.,"), {}),
        (CSV.replace(b"1,", b"+1,").replace(b"2,", b"2e0,"), {}),
        (CSV.replace(b",", b"::"), {"sep": "::"}),
    ],
)
def test_comments_quotes_and_heads_leave_the_rows(tmp_path, data, options):
    assert (
        read(tmp_path, data, **options).data_hash == from_edges([1, 2, 3, 1], [2, 3, 1, 2], range(4), cut=4).data_hash
    )


@pytest.mark.parametrize(
    ("file_name", "data"),
    [
        ("mine.csv.xz", lzma.compress(CSV)),
        ("mine.csv.zst", packed("zstd")),
        ("mine.csv.lz4", packed("lz4")),
        ("mine.bin", bz2.compress(CSV)),
        (
            "mine.zip",
            zipped({"README.md": b"-", "a/edges.csv": CSV, "__MACOSX/._edges.csv": b"-", "a/.DS_Store": b"-"}),
        ),
        ("mine.zip", zipped({"LICENSE": b"-", "edges.csv.gz": gzip.compress(CSV)})),
        ("mine.tar.xz", tarred({"x/README.x": b"-", "x/meta.x": b"-", "x/out.x": b"% asym\n" + CSV}, lzma.compress)),
    ],
)
def test_packed_files_and_archives_with_one_table(tmp_path, file_name, data):
    assert read(tmp_path, data, file_name=file_name).num_edges.tolist() == [1, 1, 1]


def test_a_member_chooses_one_of_several_tables(tmp_path):
    data = zipped({"README": b"-", "edges.csv": CSV, "old/edges2.csv": CSV[:12]})
    with pytest.raises(
        DataError, match=r"2 files may be the table\. It has edges\.csv, old/edges2\.csv\. Choose one by"
    ):
        read(tmp_path, data, file_name="mine.zip")
    for member, rows in (("edges.csv", 3), ("old/edges2.csv", 1), ("edges2.csv", 1), ("old/*", 1), ("e*.csv", 3)):
        assert read(tmp_path, data, file_name="mine.zip", member=member, interval=1).num_edges.sum() == rows
    with pytest.raises(DataError, match=r"no file fits member='z\*'\. It has edges\.csv, old/edges2\.csv"):
        read(tmp_path, data, file_name="mine.zip", member="z*")


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (CSV + b"Total,60,61\n", {}, "line 5 of mine.csv looks like a footer"),
        (b"a,b,0\nb,c,1\nc,a,2\na,b,3\nTotal,4,4\n", {}, "line 5 of mine.csv looks like a footer"),
        (CSV + b"4 rows\n", {}, "line 5 of mine.csv is '4 rows': it has 1 columns"),
        (b"#1,2,0\n" + CSV, {}, "line 1 of mine.csv is '#1,2,0': it begins like a comment and has the columns"),
        (b"#cats,bob,0\nann,bob,1\n", {}, "comment=None if they are rows"),
        (b"src,dst,time\nann,bob,1\n#cats,bob,2\n", {"header": True}, "line 3 of mine.csv is '#cats,bob,2'"),
        (b"ann,bob,Jan 02 2020\n//h/a,b,Jan 03 2020\n", {"time_format": "%b %d %Y"}, "line 2 of mine.csv is '//h/a"),
        (CSV + b"NA,2,4\n", {}, "line 5 of mine.csv: src is 'NA', which stands for a missing id"),
        (CSV + b"1,nan,4\n", {}, "line 5 of mine.csv: dst is 'nan', which stands for a missing id"),
        (CSV + b",2,4\n", {}, "line 5 of mine.csv is ',2,4': column 1"),
        (b'"a\nb",c,0\nc,"a\nb",1\nd,c,x\n', {}, "line 5 of mine.csv is 'd,c,x': column 3"),
        (b'"a\nb",c,0\nc,"a\nb",1\nd,NA,2\n', {}, "line 5 of mine.csv: dst is 'NA'"),
        (b'1,2,0,"hello\n2,3,1,x\n3,1,2,z\n', {}, "line 1 of mine.csv is '1,2,0,\"hello': it has a quotation mark"),
        (NAMES.encode("latin-1"), {}, "it is not text in UTF-8 but reads 'José' in Latin-1: give encoding='latin-1'"),
        (NAMES.encode("utf-16"), {}, "mine.csv is text in UTF-16, not in UTF-8: give encoding='utf-16'"),
        (NAMES.encode("latin-1"), {"encoding": "utf-16"}, "is not in utf-16"),
        (CSV, {"encoding": "klingon"}, "encoding='klingon' is none that Python knows"),
        (b"1,2,1066-10-14\n2,3,1100-01-01\n", {}, "kept to the nanosecond, in the years 1678 to 2261"),
        (b"1,2,2014-01-31T16:39:58Z\n2,3,2014-02-01T16:39:58\n", {}, "it has no time zone, and the first row has one"),
        (b"1,2,2014-01-31\n2,3,2014-02-01T16:39:58+02:00\n", {}, "it has a time zone, and the first row has none"),
        (b"1,2,28.03.2024\n2,3,29.03.2024\n", {}, "others by time_format='%d.%m.%Y'"),
        (b"1,2,28.03.2024\n2,3,29.13.2024\n", {"time_format": "%d.%m.%Y"}, "line 2 of mine.csv: time is '29.13.2024'"),
        (b"1;2;0,5\n2;1;1,5\n", {"sep": ";"}, "it has a decimal comma; write a point"),
        (CSV.replace(b",", b"::"), {}, "such as sep='::'"),
        (b"PAR1\x15\x04", {}, "mine.csv is a Parquet file: use from_parquet"),
        (b"\x89HDF\r\n\x1a\n", {}, "an HDF5 file"),
        (b"\n <!DOCTYPE html><html>", {}, "a web page, not a table"),
        (b"version https://git-lfs.github.com/spec/v1\n", {}, "a pointer of Git LFS"),
        (b"%%MatrixMarket matrix coordinate\n3 3 3\n1 2 1\n", {}, "scipy.io.mmread"),
        (lzma.compress(CSV)[:-9], {}, "cut short or damaged"),
        (packed("zstd")[:-5], {}, "cut short or damaged"),
        (zipped({"xl/workbook.xml": b"-"}), {}, "a workbook of Excel"),
        (patched(zipped({"a.csv": CSV}), 6, 1), {}, "(a.csv) is encrypted. Unpack it with its password"),
        (patched(zipped({"a.csv": CSV}), 8, 9), {}, "(a.csv) is packed by method 9 of zip, which Python does not read"),
        (CSV, {"nodes": [1, 2]}, "src has the id 3, which nodes does not list"),
    ],
)
def test_what_is_no_row_is_refused_with_its_line(tmp_path, data, options, message):
    with pytest.raises(LabError) as refusal:
        read(tmp_path, data, **options)
    assert message in str(refusal.value)


def test_text_ids_keep_what_is_in_quotes(tmp_path):
    graph = read(tmp_path, b'"#cats","a\nb",0\n"a\nb",bob,1\nbob,"#cats",2\n"a\nb",bob,3\n')
    assert graph.node_ids.tolist() == ["#cats", "a\nb", "bob"]
    tags = read(tmp_path, b"#cats,bob,0\nbob,#cats,1\nbob,ann,2\n", comment=None, interval=1)
    assert tags.node_ids.tolist() == ["#cats", "ann", "bob"]
    for encoding in ("latin-1", "cp1252", "utf-16", "utf-8"):
        assert read(tmp_path, NAMES.encode(encoding), encoding=encoding).node_ids.tolist() == ["José", "Zoë", "bob"]
    with pytest.raises(ConfigError, match="comment=3"):
        read(tmp_path, CSV, comment=3)


def test_a_footer_is_left_out_or_an_edge_as_is_said(tmp_path):
    data = CSV + b"Total,60,61\nMean,3,4\n"
    with pytest.raises(DataError, match=r"line 5 of mine\.csv looks like a footer.*skip_footer=2 to leave them out"):
        read(tmp_path, data)
    assert read(tmp_path, data, skip_footer=2).num_nodes == 3
    assert read(tmp_path, CSV + b"3,unknown,61\n", skip_footer=0).num_nodes == 4
    assert read(tmp_path, b"a,b,0\nb,c,1\nend,a,2\n", interval=1).num_nodes == 4  # a name like the others
    with pytest.raises(ConfigError, match="skip_footer=-1"):
        read(tmp_path, data, skip_footer=-1)


def test_texts_that_begin_like_other_files_are_texts(tmp_path):
    assert read(tmp_path, b"ORCID,paper,time\na,b,0\nb,a,1\n", header=True, interval=1).num_nodes == 2
    assert read(tmp_path, b"PAR1,PAR2,0\nPAR2,PAR1,1\n", interval=1).node_ids.tolist() == ["PAR1", "PAR2"]


def test_a_separator_of_several_characters_stays_in_quotes(tmp_path):
    graph = read(tmp_path, b'"a::0"::b::0\nb::"a::0"::1\n', sep="::", interval=1)
    assert graph.node_ids.tolist() == ["a::0", "b"]


def test_spellings_of_numbers_with_leading_zeros_stay_text(tmp_path):
    assert read(tmp_path, b"007,7,0\n7,8,1\n8,007,2\n7,8,3\n").node_ids.tolist() == ["007", "7", "8"]
    assert read(tmp_path, b"1.0,x,0\nx,2,1\n2,1.0,2\n2,x,3\n").node_ids.tolist() == ["1.0", "2", "x"]


OFFSETS = ["2024-03-28T23:30+02:00", "2024-03-29T00:30+02:00", "2024-03-29T23:30+02:00", "2024-03-30T00:30+02:00"]


@pytest.mark.parametrize(
    ("times", "options", "edges"),
    [
        (["20240328", "20240329", "20240331", "20240401"], {"time_format": "%Y%m%d", "interval": "1d"}, [1, 1, 0]),
        (["8.3.2024", "9.3.2024", "11.3.2024", "12.3.2024"], {"time_format": "%d.%m.%Y", "interval": "1d"}, [1, 1, 0]),
        (["1711584000", "1711670400", "1711843200", "1711929600"], {"time_format": "s", "interval": "D"}, [1, 1, 0]),
        (OFFSETS, {"interval": "D"}, [1, 2]),  # two of them are on 29 March in their own zone, in UTC two others
    ],
)
def test_times_by_their_format(tmp_path, times, options, edges):
    lines = [f"{row % 3},{(row + 1) % 3},{time}" for row, time in enumerate(times)]
    assert read(tmp_path, "\n".join(lines).encode(), **options).num_edges.tolist()[:3] == edges


def test_numbers_that_look_like_dates_are_named(tmp_path):
    with pytest.warns(UserWarning, match=r"times such as 20240328 look like dates .*time_format='%Y%m%d'"):
        read(tmp_path, b"1,2,20240328\n2,3,20240329\n3,1,20240401\n1,2,20240402\n")


def test_users_and_items_that_count_from_0(tmp_path):
    rows = b"".join(b"%d,%d,%d,0,0.1,0.2\n" % (row % 23, row % 11, row) for row in range(253))
    data = b"user_id,item_id,timestamp,state_label,features\n" + rows
    with pytest.warns(
        UserWarning, match="look like nodes of two kinds: both count from 0 without a gap, to 22 and to 10"
    ):
        merged = read(tmp_path, data, header=True)
    apart = read(tmp_path, data, header=True, bipartite=True)
    assert (merged.num_nodes, apart.num_nodes) == (23, 34)
    assert apart.node_ids.tolist() == list(range(34))
    assert read(tmp_path, data, header=True, bipartite=False).data_hash == merged.data_hash  # and no warning
    ratings = b"userId,movieId,t\n" + b"".join(b"%d,%d,%d\n" % (row % 5, 3 * row % 7, row) for row in range(20))
    for columns in ({"src": "userId", "dst": "movieId", "time": "t"}, {"header": True}):
        with pytest.warns(UserWarning, match="userId and movieId look like nodes of two kinds: they are called so"):
            read(tmp_path, ratings, **columns)


def test_jodie_s_wikipedia_has_9227_nodes(tmp_path):
    random = np.random.default_rng(0)
    users = np.concatenate([np.arange(8227), random.integers(0, 8227, 3000)])
    items = np.concatenate([np.arange(1000), random.integers(0, 1000, len(users) - 1000)])
    pd.DataFrame({"u": users, "i": items, "t": np.arange(len(users))}).to_csv(tmp_path / "ml.csv", index=False)
    assert from_csv(tmp_path / "ml.csv", "u", "i", "t", cut=4, bipartite=True).num_nodes == 9227


def test_nodes_without_edges(tmp_path):
    graph = read(tmp_path, CSV, nodes=[9, 3, 2, 1], features=np.arange(4.0).reshape(4, 1))
    assert graph.node_ids.tolist() == [9, 3, 2, 1]
    assert graph.features[0, :, 0].tolist() == [0, 1, 2, 3]
