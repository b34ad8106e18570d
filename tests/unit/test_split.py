"""Splits worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.protocols import PROTOCOLS, Protocol
from dtdg_lab.graphs import Split, split


@pytest.mark.parametrize(
    ("snapshots", "edge_life", "protocol", "expected"),
    [
        # 0.4 * 88 = 35.2, a quarter of 35 is 8.75
        (88, 1, "warm", Split(range(27), range(27, 35), range(35, 88))),
        # two gaps of 9 inside the first 35
        (88, 10, "warm", Split(range(9), range(18, 26), range(35, 88))),
        (88, 10, "cold", Split(range(9), range(18, 26), range(35, 88))),
        (88, 10, "leaky", Split(range(27), range(27, 35), range(35, 88))),
        (5, 1, "warm", Split(range(1), range(1, 2), range(2, 5))),
        # 0.4 * 35 is 14 and no less
        (35, 1, "warm", Split(range(11), range(11, 14), range(14, 35))),
    ],
)
def test_by_hand(snapshots, edge_life, protocol, expected):
    assert split(snapshots, edge_life, PROTOCOLS[protocol]) == expected


@pytest.mark.parametrize(("snapshots", "edge_life", "needed"), [(4, 1, 5), (1, 1, 5), (0, 1, 5), (8, 3, 15)])
def test_too_few_snapshots_says_how_many_are_needed(snapshots, edge_life, needed):
    with pytest.raises(DataError, match=f"{needed} are needed"):
        split(snapshots, edge_life, PROTOCOLS["warm"])
    assert split(needed, edge_life, PROTOCOLS["warm"]).train
    with pytest.raises(DataError):
        split(needed - 1, edge_life, PROTOCOLS["warm"])


def test_shares_that_leave_nothing_are_an_error_not_a_loop():
    with pytest.raises(DataError, match="whatever the number"):
        split(10, 1, Protocol(name="odd", meaning="all of it", train_share=1.0))


@given(st.integers(1, 400), st.integers(1, 12), st.sampled_from(sorted(PROTOCOLS)))
def test_purged_parts_share_no_label(snapshots, edge_life, name):
    protocol = PROTOCOLS[name]
    try:
        parts = split(snapshots, edge_life, protocol)
    except DataError:
        part = snapshots * 2 // 5
        gap = edge_life - 1 if protocol.purge else 0
        assert part - 2 * gap - max(1, part // 4) < 1  # nothing is left to train on
        return
    assert all((parts.train, parts.validation, parts.test))
    assert parts.train.start == 0
    assert parts.test.stop == snapshots
    for earlier, later in ((parts.train, parts.validation), (parts.validation, parts.test)):
        # the label of snapshot t counts base intervals t + 1 .. t + edge_life
        last_of_earlier, first_of_later = earlier[-1] + edge_life, later[0] + 1
        assert later[0] - earlier[-1] - 1 == (edge_life - 1 if protocol.purge else 0)
        assert (last_of_earlier < first_of_later) or not protocol.purge
    assert parts.test == split(snapshots, 1, PROTOCOLS["leaky"]).test
