"""Sums of rows by keys, against sums that are added one row after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.records.rollups import Rollup, Sums
from dtdg_lab.records.rows import Rows, as_column

PHASES = st.sampled_from(["compute", "wait", None])
PARTS = st.sampled_from([0, 3, 10**9])  # far apart: no slot for each number between them
STEPS = st.one_of(st.integers(0, 400), st.integers(0, 10**7))
ROWS = st.lists(st.tuples(PHASES, PARTS, st.one_of(st.none(), st.integers(0, 4)), STEPS), min_size=1, max_size=30)
BY = ("phase", "part", "owner")


def rows_of(rows: list[tuple[Any, ...]]) -> Rows:
    columns = dict(zip((*BY, "step"), map(as_column, zip(*rows, strict=True)), strict=True))
    return Rows.of({**columns, "value": np.arange(len(rows), dtype=np.float64)})


@given(ROWS, st.integers(1, 30))
def test_rows_with_equal_keys_are_summed(rows: list[tuple[Any, ...]], cut: int) -> None:
    sums = Sums(Rollup("steps", by=BY, sums=("value",), along="step", points=3))
    for some in (rows[:cut], rows[cut:]):
        if some:
            sums.add(rows_of(some))
    width = int(sums.width)
    whole: dict[tuple[Any, ...], float] = {}
    for part in (rows[:cut], rows[cut:]):
        for value, (*key, step) in enumerate(part):
            whole[*key, step // width] = whole.get((*key, step // width), 0) + value
    found = sums.rows().to_dicts(*BY, "bucket", "value", "value_known")
    assert {tuple(row[name] for name in (*BY, "bucket")): row["value"] for row in found} == whole
    assert sum(row["value_known"] for row in found) == len(rows)
    assert len({key[-1] for key in whole}) <= 6, "buckets are few"


def test_keys_are_in_the_order_of_their_first_rows() -> None:
    sums = Sums(Rollup("steps", by=("phase",), sums=("value",), last=("step",), along=""))
    sums.add(rows_of([("wait", 0, 0, 5), ("compute", 0, 0, 6), ("wait", 0, 0, 7)]))
    found = sums.rows().to_dicts("phase", "value", "step")
    assert found == [{"phase": "wait", "value": 2.0, "step": 7}, {"phase": "compute", "value": 1.0, "step": 6}]


def test_a_column_cannot_be_summed_and_kept() -> None:
    with pytest.raises(ValueError, match="loss cannot be summed and kept as newest"):
        Rollup("steps", sums=("loss",), last=("loss",))
