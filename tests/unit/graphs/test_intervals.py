"""Cuts: by hand, within the rounding of floats, with partial intervals, and edge lists that cannot be cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import DataError, UnknownNameError
from dtdg_lab.datasets import from_edges
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.intervals import MAX_INTERVALS, IntervalEdges, IntervalStream, cut_edges
from dtdg_lab.graphs.snapshot import snapshot_of_keys

TIMES = [4, -2, 0, 8, 8, 1.5]  # span 10, unsorted, negative, fractional, one twice


def dealt(times, **options):
    edges = cut_edges([1] * len(times), [2] * len(times), times, **options)
    return edges.interval.tolist(), edges.num_intervals


@pytest.mark.parametrize(
    ("options", "intervals", "count"),
    [
        ({"cut": 5}, [3, 0, 1, 4, 4, 1], 5),  # boundaries -2 0 2 4 6 8: 0 and 4 start theirs, 8 is in the last
        ({"cut": 1}, [0] * 6, 1),
        ({"window": 4}, [1, 0, 0, 2, 2, 0], 3),  # -2..2, 2..6, 6..10
        ({"window": 10}, [0, 0, 0, 1, 1, 0], 2),
        ({"window": 0.5}, [12, 0, 4, 20, 20, 7], 21),
        # by time: -2, 0, 1.5 | 4, 8, 8; then pairs, of which the two at time 8 stay together
        ({"cut": 2, "cut_by": "edges"}, [1, 0, 0, 1, 1, 0], 2),
        ({"cut": 3, "cut_by": "edges"}, [1, 0, 0, 2, 2, 1], 3),
        ({"window": 5, "cut_by": "edges"}, [0, 0, 0, 0, 0, 0], 2),  # the sixth has the time of the fifth
        ({"window": 4, "cut_by": "edges"}, [0, 0, 0, 1, 1, 0], 2),
    ],
)
def test_by_hand(options, intervals, count):
    assert dealt(TIMES, **options) == (intervals, count)


def test_the_first_distinct_time_can_be_left_out():
    edges = cut_edges([9, 7, 5, 1], [8, 6, 4, 2], [3, 1, 5, 1], cut=2, drop_first=True)
    assert edges.node_ids.tolist() == [1, 2, 4, 5, 6, 7, 8, 9]  # V counts all nodes of the file
    assert edges.node_ids[edges.src].tolist() == [9, 5]
    assert edges.interval.tolist() == [0, 1]  # the span begins with the second time
    weighted = cut_edges([9, 7, 5], [8, 6, 4], [3, 1, 5], weight=[2, 3, 4], cut=2, drop_first=True)
    assert weighted.weight.tolist() == [2, 4]


def test_text_ids_and_datetimes():
    times = np.array(["2024-01-01", "2024-01-02", "2024-01-04"], dtype="datetime64[s]")
    edges = cut_edges(np.array(["b", "a", "c"], dtype=object), ["a", "b", "a"], times, cut=3)
    assert edges.node_ids.tolist() == ["a", "b", "c"]
    assert edges.src.tolist() == [1, 0, 2]
    assert edges.interval.tolist() == [0, 1, 2]


def test_large_whole_times_stay_exact():
    # floats of this size are 256 apart
    start = 2**60
    assert dealt([start, start + 1, start + 2, start + 3], cut=3)[0] == [0, 1, 2, 2]
    assert dealt([-(2**62), 0, 2**62 - 1], cut=4) == ([0, 2, 3], 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time": [1, 2]}, "3, 3 and 2 entries"),
        ({"src": [], "dst": [], "time": []}, "at least 1"),
        ({"src": [0.5, 1, 2]}, r"src\[0\] is 0.5, of type float64"),
        ({"src": [[0, 1, 2]]}, r"src has shape \(1, 3\); a vector"),
        ({"src": ["a", "b", "c"]}, "both be text"),
        ({"src": np.uint64([1, 2**63, 2])}, r"src\[1\] is 9223372036854775808; whole numbers from -2\^63 to"),
        ({"time": [0, np.nan, 1]}, r"time\[1\] is not finite \(nan\)"),
        ({"time": [0, 1, -np.inf]}, r"time\[2\] is not finite"),
        ({"time": ["a", "b", "c"]}, r"time\[0\] is 'a', which is text"),
        ({"time": [-1e308, 0, 1e308]}, "span is too large"),
        ({"time": [-(2**63), 0, 2**63 - 1]}, r"a span below 2\^63"),
        ({"time": np.array(["2024-01-01", "NaT", "2024-01-02"], dtype="datetime64[s]")}, r"time\[1\] is not a time"),
        ({"time": np.array(["2024-01-01", "3024-01-01", "2024-01-02"], dtype="datetime64[s]")}, r"time\[1\] is 3024"),
        ({"time": [5, 5, 5]}, "cut=2 over a time span of 0: all edges have time 5"),
        ({"time": [5, 5, 5], "drop_first": True}, "all 3 edges have time 5, and drop_first"),
        ({"cut": 0}, "give cut=n"),
        ({"cut": 0, "window": 0}, "give cut=n"),
        ({"cut": 0, "window": np.nan}, "give cut=n"),
        ({"cut": 0, "window": np.inf}, "give cut=n"),
        ({"cut": 0, "window": 3}, "interval=3 is longer than the data: times run from 0 to 2, a span of 2"),
        ({"cut": 0, "window": 1e-9}, "interval=1e-09 makes 2,000,000,00[01] base.*a span of 2. At most 100,000"),
        ({"cut": MAX_INTERVALS + 1}, "cut=100001 base intervals; 1 to 100,000"),
        ({"cut": -1}, "cut=-1 base intervals"),
        ({"cut": 4, "cut_by": "edges"}, "cut=4 by edges, and there are 3 edges"),
        ({"cut": 0, "window": 4, "cut_by": "edges"}, "interval=4 edges, and there are 3"),
        ({"cut": 0, "window": 1.5, "cut_by": "edges"}, "interval=1.5 edges"),
        ({"weight": [1, -2, 3]}, r"weight\[1\] is -2"),
        ({"weight": [1, 2, np.inf]}, r"weight\[2\] is inf"),
        ({"weight": [1, 2]}, "3 numbers are needed"),
    ],
)
def test_edges_that_cannot_be_cut(changes, message):
    given = {"src": [0, 1, 2], "dst": [1, 2, 0], "time": [0, 1, 2], "cut": 2, **changes}
    with pytest.raises(DataError, match=message):
        cut_edges(given.pop("src"), given.pop("dst"), given.pop("time"), **given)


def test_an_unknown_way_of_cutting_names_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"Did you mean 'edges'.*edges, time"):
        cut_edges([1], [2], [3], cut=1, cut_by="edge")


def ring(**given):
    """Three nodes, four base intervals, one edge in each."""
    return IntervalEdges(np.arange(4) % 3, np.arange(1, 5) % 3, np.arange(4), 4, 3, **given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.zeros((4, 2), np.float32)}, r"features has shape \(4, 2\); \(3, any\) is needed"),
        ({"features": np.zeros((3, 3, 2), np.float32)}, r"features has shape \(3, 3, 2\); \(4, 3, any\) is needed"),
        ({"features": np.zeros((3, 2))}, "features has type float64"),
        ({"features": np.float32([[0], [np.nan], [0]])}, r"features\[1, 0\] is nan"),
        ({"targets": np.zeros((4, 2), np.float32)}, r"targets has shape \(4, 2\); \(4, 3\) is needed"),
        ({"targets": np.full((4, 3), np.inf, np.float32)}, r"targets\[0, 0\] is inf"),
        ({"persistence": np.zeros((4, 3), np.float32)}, "persistence is given without targets"),
        ({"classes": np.zeros((3, 3), np.int16)}, r"classes has shape \(3, 3\); \(4, 3\) is needed"),
        ({"classes": np.int16([0, -2, 0])}, r"classes\[1\] is -2"),
        ({"vertex_split": np.int8([0, 1, 5])}, r"vertex_split\[2\] is 5"),
    ],
)
def test_what_is_given_must_fit_the_intervals(changes, message):
    with pytest.raises(DataError, match=message):
        ring().stream(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src": np.array([0, 1, 2, 3])}, r"src\[3\] is 3; 0 to 2 is allowed"),
        ({"src": np.array([0.0, 1, 2, 0])}, "src has type float64"),
        ({"interval": np.arange(3)}, "equal vectors are needed"),
        ({"interval": np.arange(1, 5)}, r"interval\[3\] is 4; 0 to 3"),
        ({"weight": np.ones(3)}, "one weight for each of 4 edges"),
        ({"weight": np.array([1.0, 2, -3, 4])}, r"weight\[2\] is -3"),
        ({"node_ids": np.arange(4)}, r"node_ids has shape \(4,\)"),
    ],
)
def test_intervals_that_are_none(changes, message):
    fields = {"src": np.arange(4) % 3, "dst": np.arange(4) % 3, "interval": np.arange(4), **changes}
    with pytest.raises(DataError, match=message):
        IntervalEdges(**fields, num_intervals=4, num_nodes=3).stream()


def stream(**changes):
    def make():
        for _ in range(3):
            yield snapshot_of_keys(np.int64([1]), None, 2)

    return IntervalStream(**{"num_intervals": 3, "num_nodes": 2, "weighted": False, "make": make, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_intervals": 4}, "did not yield the 4 base intervals"),
        ({"num_intervals": 2}, "did not yield the 2 base intervals"),
        ({"num_nodes": 3}, "base interval 0 has 2 nodes and weighted=False; the stream says 3"),
        ({"weighted": True}, "the stream says 2 nodes and weighted=True"),
        ({"num_intervals": 0}, "0 base intervals over 2 nodes"),
    ],
)
def test_streams_that_do_not_keep_their_word(changes, message):
    assert build_graph(stream(), name="x", source="a test").num_snapshots == 2
    with pytest.raises(DataError, match=message):
        build_graph(stream(**changes), name="x", source="a test")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edge_life": 5}, "edge_life=5 with 4 base intervals: allowed 1 to 4"),
        ({"edge_life": 0}, "edge_life=0"),
        ({"edge_life": 4}, "4 base intervals make 1 snapshot with edge_life=4; at least 2 are needed"),
        ({"edge_life": 2, "min_edges": 3}, "make 3 snapshots with edge_life=2, 0 of them with min_edges=3 edges"),
        ({"smoothing_window": 0}, "smoothing_window=0"),
        ({"min_edges": -1}, "min_edges=-1"),
        ({"features": "given"}, "this data set gives none"),
    ],
)
def test_graphs_that_cannot_be_built(options, message):
    with pytest.raises(DataError, match=message):
        build_graph(ring(), name="x", source="a test", **options)


def test_weights_too_large_to_be_kept_are_refused():
    heavy = np.full(4, 3e38)
    twice = IntervalEdges(np.arange(4) % 3, np.zeros(4, int), np.array([0, 0, 1, 1]), 3, 3, heavy)
    with pytest.raises(DataError, match=r"a degree is 6\.0.*e\+38"):
        build_graph(twice, name="x", source="a test", features="degrees")
    same = IntervalEdges(np.zeros(4, int), np.zeros(4, int), np.array([0, 0, 1, 2]), 3, 3, heavy)
    with pytest.raises(DataError, match=r"weights of equal edges sum to 6\.?0*e\+38"):
        build_graph(same, name="x", source="a test")


def test_features_of_every_kind_by_hand():
    # node 0 points to 1 and 2 in interval 0; weights 2 and 3
    edges = IntervalEdges(np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([0, 0, 1]), 2, 3, np.array([2.0, 3, 1]))
    given = np.arange(6, dtype=np.float32).reshape(3, 2)

    def features(kind):
        graph = build_graph(edges.stream(features=given), name="x", source="a test", features=kind)
        assert graph.num_snapshots == 1
        return graph.features[0].tolist()

    assert features("degrees") == [[0, 5], [2, 0], [3, 0]]
    np.testing.assert_array_equal(features("log_degrees"), np.log1p([[0, 5], [2, 0], [3, 0]]).astype(np.float32))
    assert features("constant") == [[1], [1], [1]]
    assert features("given") == given.tolist()
    one_hot = np.array(features("one_hot_degree"))
    assert one_hot.shape == (3, 64)
    assert one_hot.argmax(axis=1).tolist() == [2, 0, 0]  # edges, not weights
    assert one_hot.sum(axis=1).tolist() == [1, 1, 1]


def test_the_last_class_of_the_one_hot_degree_is_all_larger_ones():
    star = IntervalEdges(np.zeros(80, int), np.arange(1, 81), np.zeros(80, int), 2, 81)
    graph = build_graph(star, name="x", source="a test", features="one_hot_degree")
    assert graph.features[0, 0].argmax() == 63


@given(st.integers(1, 90_000), st.integers(2, 400), st.sampled_from([0.0, -3.5, 1e4, 1.7e9]), st.booleans())
def test_every_grid_of_floats_is_cut_on_its_points(parts, count, first, by_length):
    times = first + np.arange(count) / parts
    way = {"window": 1 / parts} if by_length else {"cut": count - 1}
    expected = np.arange(count) if by_length else np.minimum(np.arange(count), count - 2)
    assert cut_edges(np.arange(count), np.arange(count), times, **way).interval.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("times", "time_format", "interval"),
    [
        (np.arange(48) / 24, "D", "1h"),
        (19_000 + np.arange(48) / 24, "D", "1h"),
        (1.7e9 + np.arange(48) * 0.1, "s", "100ms"),
        ((np.arange(48) / 24).astype(np.float32), "D", "1h"),
        (np.arange(48) * 0.1, "ms", np.timedelta64(100, "us")),
    ],
)
def test_floats_since_1970_are_cut_on_the_times_that_they_mean(times, time_format, interval):
    nodes = np.arange(48)
    graph = from_edges(nodes, nodes, times, interval=interval, time_format=time_format)
    assert graph.num_edges.tolist() == [1] * 47


def test_floats_that_no_date_has_are_refused():
    for times in ([0.0, 1e300], [0.0, np.nan], [0.0, 1e10]):
        with pytest.raises(DataError):
            from_edges([0, 1], [1, 0], times, cut=2, time_format="D")


@given(st.integers(2, 300), st.integers(1, 50))
def test_float32_is_cut_within_its_own_rounding(count, parts):
    times = (np.arange(count) / parts).astype(np.float32)
    assert cut_edges(np.arange(count), np.arange(count), times, window=1 / parts).interval.tolist() == list(
        range(count)
    )


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=30).filter(lambda times: max(times) > min(times)))
def test_whole_numbers_and_the_same_as_floats_are_cut_alike(times):
    nodes = np.arange(len(times))
    for way in ({"cut": 7}, {"window": 0.1}, {"window": 3.0}):
        try:
            whole = cut_edges(nodes, nodes, times, **way)
        except DataError as error:
            assert "longer than the data" in str(error)
            continue
        floats = cut_edges(nodes, nodes, [float(time) for time in times], **way)
        assert whole.interval.tolist() == floats.interval.tolist()


def test_a_time_just_before_a_boundary_stays_before_it():
    times = [0.0, 0.99, 0.999_99, 0.999_999_9, 1.0, 3.0]
    assert cut_edges(range(6), range(6), times, window=1.0).interval.tolist() == [0, 0, 0, 1, 1, 3]


def test_floats_that_are_too_coarse_for_the_interval_are_refused():
    with pytest.raises(DataError, match=r"interval=0\.1 is too short for times up to 1e\+16 in float64"):
        cut_edges([0, 1], [1, 0], [1e16 - 100, 1e16], window=0.1)


@pytest.mark.parametrize(
    ("name", "windows", "edges"), [("bitcoin-otc", 137, 35_588), ("bitcoin-alpha", 136, 24_173)]
)  # the time steps and edges of EvolveGCN, table 1: 95 + 14 + 28 and 95 + 13 + 28
def test_full_intervals_are_those_that_evolvegcn_counts(name: str, windows: int, edges: int, real_data: Path) -> None:
    kept, full = (load_dataset(name, root=real_data, drop_partial=drop) for drop in (False, True))
    assert (full.counts.windows, full.counts.interval_edges) == (windows, edges)
    assert kept.counts.windows == windows + 1
    assert full.num_nodes == kept.num_nodes and full.num_snapshots == kept.num_snapshots - 1


@pytest.mark.parametrize(
    ("times", "window", "by", "kept"),
    [
        (range(10), 5, "time", 2),  # 0 .. 4 and 5 .. 9: full to the unit
        (range(11), 5, "time", 2),  # 10 alone begins a third
        ([0, 7, 14, 21], 7, "time", 4),  # days as weeks tell them: each stands for the whole one
        ([0, 7, 14, 20], 7, "time", 3),
        ([0, 7, 14, 19], 7, "time", 2),
        ([0.0, 0.5, 1.0, 1.5], 1.0, "time", 2),
        ([0.0, 0.5, 1.0, 1.4], 1.0, "time", 1),
        (range(9), 3, "edges", 3),
        (range(10), 3, "edges", 3),
    ],
)
def test_an_interval_that_is_not_full_is_left_out(times: list[float], window: float, by: str, kept: int) -> None:
    src = np.arange(len(times))
    made = cut_edges(src, src + 1, list(times), window=window, cut_by=by, drop_partial=True)
    assert made.num_intervals == kept
    assert made.num_nodes == len(times) + 1
    assert made.interval.max() == kept - 1
    everything = cut_edges(src, src + 1, list(times), window=window, cut_by=by)
    assert len(everything.src) == len(times) >= len(made.src)


def test_dropping_the_only_interval_is_refused_and_equal_cuts_have_none_to_drop() -> None:
    with pytest.raises(DataError, match="the only interval is not full"):
        cut_edges([0, 1], [1, 2], [5, 5], window=3, drop_partial=True)
    assert cut_edges([0, 1, 2], [1, 2, 0], [0, 3, 4], cut=3, drop_partial=True).num_intervals == 3
