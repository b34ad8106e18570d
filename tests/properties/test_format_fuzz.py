"""Parsers on any bytes: a table or a LabError, in little time and memory; never another exception."""

from __future__ import annotations

import bz2
import gzip
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtdg_lab.core.errors import LabError
from dtdg_lab.core.units import peak_rss_bytes
from dtdg_lab.datasets.archives import ArchiveMembers, read_pickle
from dtdg_lab.datasets.formats import snap, static, temporal
from dtdg_lab.datasets.tables import EdgeTable, StaticTable
from dtdg_lab.graphs.intervals import IntervalEdges
from tests import format_samples as samples

LIMIT_S = 5.0  # one file of a few hundred bytes takes a few milliseconds; machines are busy
LIMIT_BYTES = 400 << 20  # what all of them together may add to the process
Parse = Callable[[Any, str], Any]

ONE: dict[str, tuple[Parse, bytes]] = {
    "snap_text": (snap.parse_snap_text, samples.SNAP_TEXT),
    "snap_csv": (snap.parse_snap_csv, samples.SNAP_CSV),
    "edges": (snap.parse_network_repository, samples.EDGES_COMMA),
    "weighted edges": (snap.parse_network_repository, samples.EDGES_SPACE),
    "mtx": (partial(snap.parse_network_repository, bipartite=True), samples.MTX),
    "konect": (snap.parse_konect, samples.KONECT),
    "jodie": (temporal.parse_jodie, samples.JODIE),
    "reddit": (snap.parse_reddit_hyperlinks, samples.REDDIT),
    "amlsim": (temporal.parse_amlsim, samples.AMLSIM),
    "paysim": (temporal.parse_amlsim, samples.PAYSIM),
    "chickenpox": (partial(temporal.parse_pygt_json, variant="chickenpox"), samples.as_json(samples.CHICKENPOX)),
    "covid": (partial(temporal.parse_pygt_json, variant="covid", lags=3), samples.as_json(samples.COVID)),
    "tennis": (partial(temporal.parse_pygt_json, variant="twitter-tennis"), samples.as_json(samples.TENNIS)),
    "pickle": (read_pickle, samples.planetoid()["ind.tiny.allx"]),
    "pickled graph": (read_pickle, samples.planetoid()["ind.tiny.graph"]),
}
SEVERAL: dict[str, tuple[Parse, Mapping[str, bytes]]] = {
    "nodes and edges": (static.parse_nodes_edges, samples.NODES_EDGES),
    "elliptic": (temporal.parse_elliptic, samples.ELLIPTIC),
    "ogb csv": (static.parse_ogb, samples.OGB),
    "ogb npz": (static.parse_ogb, samples.OGB_NPZ),
    "planetoid": (static.parse_planetoid, samples.planetoid()),
}
ARCHIVES: dict[str, bytes] = {
    "zip": samples.zipped(samples.NODES_EDGES),
    "stored zip": samples.zipped(samples.NODES_EDGES, 0),
    "tar.bz2": samples.tarred({"a/out.x": samples.KONECT, "a/README": b"r"}),
    "tar.gz": samples.tarred({"a/out.x": samples.KONECT}, gzip.compress),
    "tar": samples.tarred({"a/out.x": samples.KONECT}, bytes),
    "gz": gzip.compress(samples.KONECT),
    "bz2": bz2.compress(samples.KONECT),
}
# what breaks readers: ids and sizes too large, no numbers, no text, other line ends, structure where none should be
TOKENS = (
    b"1099511627776",
    b"2147483647",
    b"2147483648",
    b"999999999 999999999 5\n",
    b"1000000000000",
    b"-1",
    b"1.5",
    b"0x10",
    b"nan",
    b"inf",
    b"1e308",
    b"1e400",
    b"99999999999999999999999",
    b"1" * 5000,
    b"\0",
    b"\xff\xfe",
    b"\xc3\x28",
    b"\n",
    b"\r",
    b"\r\n",
    b",",
    b"\t",
    b" ",
    b"%",
    b"#",
    b'"',
    b"[",
    b"]",
    b"{",
    b"}",
    b"[" * 3000,
    b"null",
    b"true",
    b'"a"',
    b"\xef\xbb\xbf",
    b"a" * 300,
    b"," * 5000,
    b"cposix\nsystem\n",
    b"../x",
    b"\xff\xff\xff\xff",
)
MUTATION = st.tuples(
    st.integers(0, 2000), st.integers(0, 12), st.sampled_from(TOKENS) | st.binary(max_size=8), st.integers(0, 3)
)
fuzzing = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def mutated(data: bytes, changes: list[tuple[int, int, bytes, int]]) -> bytes:
    """The bytes with slices replaced, taken out, repeated, or everything after them cut off."""
    for place, length, token, how in changes:
        at = place % (len(data) + 1)
        old = data[at : at + length]
        data = data[:at] + (token, b"", old * 3, b"")[how] + (b"" if how == 3 and length < 3 else data[at + length :])
    return data


def survives(parse: Parse, data: Any) -> None:
    start = time.perf_counter()
    try:
        table = parse(data, "a file")
    except LabError as error:
        assert str(error)
    else:
        check(table)
    assert time.perf_counter() - start < LIMIT_S


def check(table: Any) -> None:
    """What is not refused can be trusted."""
    if isinstance(table, EdgeTable | IntervalEdges | StaticTable):
        assert len(table.src) == len(table.dst) > 0
        assert min(table.src.min(), table.dst.min()) >= 0
        assert isinstance(table, IntervalEdges) or not table.src.flags.writeable
    if isinstance(table, EdgeTable):
        assert np.isfinite(table.time).all()
    features = getattr(table, "features", None)
    assert features is None or np.isfinite(features).all()


def everything_in(data: bytes, where: str) -> dict[str, bytes]:
    return dict(ArchiveMembers(data, where))


@pytest.fixture(scope="module", autouse=True)
def little_memory() -> Any:
    """All examples together leave the process about as large as it was."""
    before = peak_rss_bytes()
    yield
    assert peak_rss_bytes() - before < LIMIT_BYTES


@pytest.mark.parametrize("name", ONE)
@fuzzing
@given(data=st.binary(max_size=200) | st.lists(st.sampled_from(TOKENS), max_size=8).map(b"".join))
def test_any_bytes(name: str, data: bytes) -> None:
    survives(ONE[name][0], data)


@pytest.mark.parametrize("name", ONE)
@fuzzing
@given(changes=st.lists(MUTATION, min_size=1, max_size=4))
def test_changed_files(name: str, changes: list[tuple[int, int, bytes, int]]) -> None:
    parse, data = ONE[name]
    survives(parse, mutated(data, changes))


@pytest.mark.parametrize("name", SEVERAL)
@fuzzing
@given(changes=st.lists(MUTATION, min_size=1, max_size=4), which=st.integers(0, 20), inside=st.booleans())
def test_changed_files_of_several(
    name: str, changes: list[tuple[int, int, bytes, int]], which: int, inside: bool
) -> None:
    parse, files = SEVERAL[name]
    file = sorted(files)[which % len(files)]
    if inside and file.endswith(".gz"):
        changed = gzip.compress(mutated(gzip.decompress(files[file]), changes), 1)
    else:
        changed = mutated(files[file], changes)
    survives(parse, {**files, file: changed})


@pytest.mark.parametrize("name", ARCHIVES)
@fuzzing
@given(changes=st.lists(MUTATION, min_size=1, max_size=4))
def test_changed_archives(name: str, changes: list[tuple[int, int, bytes, int]]) -> None:
    survives(everything_in, mutated(ARCHIVES[name], changes))


@given(data=st.binary(max_size=300) | st.binary(max_size=300).map(lambda rest: b"PK\x03\x04" + rest))
@fuzzing
def test_any_bytes_as_an_archive(data: bytes) -> None:
    survives(everything_in, data)


@pytest.mark.parametrize("name", [*ONE, *SEVERAL])
def test_the_files_that_are_changed_are_valid(name: str) -> None:
    parse, data = {**ONE, **SEVERAL}[name]
    check(parse(data, "a file"))


@given(
    edges=st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1)), min_size=2
    ),
    ends=st.sampled_from([b"\n", b"\r\n", b"\n\n", b" \n"]),
    between=st.sampled_from([b" ", b"\t", b"  "]),
)
def test_what_is_written_is_read(edges: list[tuple[int, int, int]], ends: bytes, between: bytes) -> None:
    text = ends.join(between.join(b"%d" % number for number in edge) for edge in edges)
    table = snap.parse_snap_text(text, "a file")
    assert list(zip(table.src.tolist(), table.dst.tolist(), table.time.tolist(), strict=True)) == edges
