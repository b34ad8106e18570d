"""Whatever is given to from_edges and from_pandas: a graph, or a LabError that can be read; and the graph is right."""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis.extra import numpy as arrays

from dtdg_lab.core.errors import LabError
from dtdg_lab.datasets import from_edges, from_pandas

_DTYPES = st.one_of(
    arrays.integer_dtypes(),
    arrays.unsigned_integer_dtypes(),
    arrays.floating_dtypes(),
    arrays.boolean_dtypes(),
    arrays.complex_number_dtypes(),
    arrays.datetime64_dtypes(),
    arrays.timedelta64_dtypes(),
    arrays.unicode_string_dtypes(max_len=4),
    arrays.byte_string_dtypes(max_len=4),
)
_SCALARS = st.one_of(
    st.integers(-3, 5),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.none(),
    st.booleans(),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.dates(),
    st.timedeltas(),
    st.binary(max_size=3),
    st.decimals(),
    st.just(np.ma.masked),
    st.just(pd.NA),
    st.just(pd.NaT),
    st.just(pd.Timestamp(0, tz="UTC")),
    st.builds(decimal.Decimal, st.integers(0, 9)),
)
_ANY_ARRAYS = arrays.arrays(_DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
_LISTS = st.lists(_SCALARS, max_size=5) | st.lists(st.lists(_SCALARS, max_size=3), max_size=4)
_MASKED = st.builds(
    lambda array, seed: np.ma.array(array, mask=np.random.default_rng(seed).random(array.shape) < 0.5),
    _ANY_ARRAYS,
    st.integers(0, 9),
)
_SERIES = st.one_of(
    arrays.arrays(st.sampled_from("?bhqBQefdD") | arrays.datetime64_dtypes(min_period="s"), 4).map(
        lambda array: pd.Series(list(array), index=[3, 1, 2, 0])
    ),
    st.lists(st.none() | st.integers(0, 5), min_size=4, max_size=4).map(lambda some: pd.Series(some, dtype="Int64")),
    st.lists(st.none() | st.sampled_from("abc"), min_size=4, max_size=4).map(pd.Categorical),
)
_ANYTHING = st.one_of(
    _SCALARS,
    _ANY_ARRAYS,
    _LISTS,
    _MASKED,
    _SERIES,
    st.dictionaries(st.integers(0, 4) | st.text(max_size=1), _SCALARS),
    st.sets(st.integers(0, 3)),
    st.just(object()),
    st.just(range(4)),
    st.just(pd.DataFrame({"x": [1, 2]}, index=[1, 2])),
)
_GOOD = {
    "src": st.lists(st.integers(-2, 3), min_size=4, max_size=4),
    "dst": st.lists(st.integers(-2, 3), min_size=4, max_size=4),
    "time": st.lists(st.integers(0, 9), min_size=4, max_size=4),
    "weight": st.none() | st.lists(st.floats(0, 9), min_size=4, max_size=4),
    "features": st.sampled_from(["log_degrees", "constant"]),
    "labels": st.none(),
}
_OPTIONS = {
    "cut": st.sampled_from([2, 4]) | _SCALARS,
    "interval": st.just(0) | _SCALARS | st.timedeltas(),
    "cut_by": st.sampled_from(["time", "edges"]) | _SCALARS,
    "drop_first": st.booleans() | _SCALARS,
    "edge_life": st.just(1) | _SCALARS,
    "smoothing_window": st.sampled_from([1, 2]) | _SCALARS,
    "min_edges": st.just(0) | _SCALARS,
    "strict_label": st.booleans() | _SCALARS,
    "name": st.just("mine") | _SCALARS,
}


def _settled(make: Any) -> Any:
    """The graph; None where a LabError came, which is the only one allowed."""
    try:
        return make()
    except LabError as error:
        assert 20 < len(str(error)) < 2500
        return None


@pytest.mark.filterwarnings("ignore:Discarding nonzero nanoseconds:UserWarning")  # of pandas, while values are drawn
@hypothesis.given(wrong=st.sampled_from(list(_GOOD)), data=st.data())
def test_one_argument_of_any_kind(wrong, data):
    given_values = {name: data.draw(_ANYTHING if name == wrong else good, name) for name, good in _GOOD.items()}
    graph = _settled(lambda: from_edges(**given_values, cut=2))
    if graph is not None and wrong in {"src", "dst"}:  # what was taken is what is there
        ends = [np.asarray(given_values[name]).tolist() for name in ("src", "dst")]
        assert set(graph.node_ids.tolist()) == {end for side in ends for end in side}


@hypothesis.given(wrong=st.sampled_from(list(_OPTIONS)), data=st.data())
def test_one_option_of_any_kind(wrong, data):
    time = data.draw(st.sampled_from([[0, 1, 2, 5], np.array([0, 1, 2, 5], "M8[D]"), [0.0, 0.5, 1e300, -1e300]]))
    options = {"cut": 0 if wrong == "interval" else 2, wrong: data.draw(_OPTIONS[wrong], wrong)}
    _settled(lambda: from_edges([1, 2, 3, 1], [2, 3, 1, 2], time, **options))


@hypothesis.given(columns=st.lists(_SERIES, min_size=3, max_size=3))
def test_tables_of_any_columns(columns):
    frame = pd.DataFrame({name: list(column) for name, column in zip(("src", "dst", "time"), columns, strict=True)})
    _settled(lambda: from_pandas(frame, cut=2))
    frame = pd.DataFrame(
        {
            name: pd.Series(column).reset_index(drop=True)
            for name, column in zip(("src", "dst", "time"), columns, strict=True)
        }
    )
    _settled(lambda: from_pandas(frame, cut=2))


@hypothesis.given(
    rows=st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3),
            st.integers(0, 3),
            st.dates(datetime.date(1950, 1, 1), datetime.date(2200, 1, 1)),
        ),
        min_size=2,
        max_size=8,
    ),
    cut=st.integers(2, 5),
)
def test_what_is_taken_is_dealt_as_fractions_of_days_would_be(rows, cut):
    src, dst, days = (list(column) for column in zip(*rows, strict=True))
    graph = _settled(lambda: from_edges(src, dst, days, cut=cut))
    first, span = min(days).toordinal(), max(days).toordinal() - min(days).toordinal()
    if not span:
        assert graph is None
        return
    dealt = Counter({place: 0 for place in range(cut)})
    for interval, *_ in {(min((day.toordinal() - first) * cut // span, cut - 1), s, d) for s, d, day in rows}:
        dealt[interval] += 1
    assert graph.num_edges.tolist() == [dealt[place] for place in range(cut - 1)]
