"""Cuts against their definitions: every edge in one interval, whatever the order, the times and the way."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.intervals import cut_edges

WHOLE = st.lists(st.integers(-50, 50), min_size=2, max_size=30)
FRACTIONS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=30)


def intervals(times, **options):
    """The base interval of every time, and their number; every edge has the place of its time as its nodes."""
    places = range(len(times))
    edges = cut_edges(places, places, times, **options)
    return edges.interval[np.argsort(edges.src)].tolist(), edges.num_intervals


@given(WHOLE, st.integers(1, 20), st.integers(1, 30))
def test_times_fall_into_the_interval_that_contains_them(times, cut, window):
    start, span = min(times), max(times) - min(times)
    if span:
        equal, count = intervals(times, cut=cut)
        assert count == cut
        for time, i in zip(times, equal, strict=True):
            assert i * span <= (time - start) * cut
            assert (time - start) * cut < (i + 1) * span or (time == max(times) and i == cut - 1)
        as_float, _ = intervals([float(time) for time in times], cut=cut)
        assert np.abs(np.subtract(as_float, equal)).max() <= 1  # a boundary is not exact in floating point
    if window <= span or not span:
        fixed, count = intervals(times, window=window)
        assert fixed == [(time - start) // window for time in times]
        assert count == span // window + 1


@given(st.one_of(WHOLE, FRACTIONS), st.sampled_from(["time", "edges"]), st.integers(1, 20), st.booleans())
def test_every_way_of_cutting_deals_every_edge_once_and_in_the_order_of_time(times, cut_by, cut, drop_first):
    left = [time for time in times if time > min(times)] if drop_first else times
    places = range(len(times))
    try:
        edges = cut_edges(places, places, times, cut=cut, cut_by=cut_by, drop_first=drop_first)
    except DataError:
        too_many = cut_by == "edges" and cut > len(left)
        assert not left or too_many or (cut > 1 and len(set(left)) == 1)
        return
    assert edges.num_intervals == cut
    assert edges.num_nodes == len(times)  # also those whose edges are dropped
    assert sorted(times[place] for place in edges.src.tolist()) == sorted(left)
    dealt = sorted((times[place], i) for place, i in zip(edges.src.tolist(), edges.interval.tolist(), strict=True))
    numbers = [i for _, i in dealt]
    assert numbers == sorted(numbers)
    assert len(set(dealt)) == len({time for time, _ in dealt})  # equal times are not parted


@given(st.one_of(WHOLE, FRACTIONS), st.integers(1, 20))
def test_equal_edge_counts_are_equal_but_for_edges_of_one_time(times, cut):
    order = sorted(times)
    if cut > len(times):
        return
    found, _ = intervals(times, cut=cut, cut_by="edges")
    for time, i in zip(times, found, strict=True):
        first = order.index(time)
        assert Fraction(i * len(times), cut) <= first < Fraction((i + 1) * len(times), cut)
    if len(set(times)) == len(times):
        sizes = np.bincount(found, minlength=cut)
        assert sizes.max() - sizes.min() <= 1
    share = -(-len(times) // cut)
    fixed, count = intervals(times, window=share, cut_by="edges")
    assert fixed == [order.index(time) // share for time in times]
    assert count == -(-len(times) // share)


@given(WHOLE, st.sampled_from(["time", "edges"]), st.randoms())
def test_the_order_of_the_rows_does_not_matter(times, cut_by, random):
    if len(set(times)) < 2:
        return
    places = list(range(len(times)))
    random.shuffle(places)
    plain, _ = intervals(times, cut=2, cut_by=cut_by)
    mixed = cut_edges(places, places, [times[place] for place in places], cut=2, cut_by=cut_by)
    assert mixed.interval[np.argsort(mixed.src)].tolist() == plain


@given(
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12)), min_size=1, max_size=20),
)
def test_vertices_are_numbered_in_the_order_of_their_ids(shrink, ends):
    src, dst = zip(*((u // 10 ** (4 * shrink), v // 10 ** (4 * shrink)) for u, v in ends), strict=True)
    edges = cut_edges(src, dst, range(len(ends)), window=1)
    assert edges.node_ids.tolist() == sorted({*src, *dst})
    assert edges.node_ids[edges.src].tolist() == list(src)
    assert edges.node_ids[edges.dst].tolist() == list(dst)
