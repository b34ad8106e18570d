"""Edges of JODIE and AMLSim and sequences of PyG Temporal and Elliptic, and what each parser must refuse."""

from __future__ import annotations

import gzip
import json
import traceback

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, DataError
from dtdg_lab.datasets.formats import temporal
from tests import format_samples as samples
from tests.format_samples import lists, refused


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
