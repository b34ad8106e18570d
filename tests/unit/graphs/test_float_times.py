"""Times and lengths that are floats: rounding decides no cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets import from_edges
from dtdg_lab.graphs.intervals import cut_edges


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
