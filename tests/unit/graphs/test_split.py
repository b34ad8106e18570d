"""Splits worked out by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.config.catalogue import PROTOCOLS, Protocol
from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs import split
from dtdg_lab.graphs.split import Split

ONE_OUT = Protocol(name="one out", meaning="test on the last one", test_snapshots=1, validation_share=0.0, purge=False)


@pytest.mark.parametrize(
    ("snapshots", "edge_life", "protocol", "expected"),
    [
        # 0.4 * 88 = 35.2, a quarter of 35 is 8.75
        (88, 1, PROTOCOLS["warm"], Split(range(27), range(27, 35), range(35, 88))),
        # two gaps of 9 inside the first 35
        (88, 10, PROTOCOLS["warm"], Split(range(9), range(18, 26), range(35, 88))),
        (88, 10, PROTOCOLS["cold"], Split(range(9), range(18, 26), range(35, 88))),
        (88, 10, PROTOCOLS["leaky"], Split(range(27), range(27, 35), range(35, 88))),
        (8, 1, PROTOCOLS["warm"], Split(range(2), range(2, 3), range(3, 8))),
        # 0.4 * 35 is 14 and no less
        (35, 1, PROTOCOLS["warm"], Split(range(11), range(11, 14), range(14, 35))),
        # no validation: nothing between, and one gap where one purges
        (88, 10, replace(PROTOCOLS["leaky"], validation_share=0.0), Split(range(35), range(35, 35), range(35, 88))),
        (88, 10, replace(PROTOCOLS["warm"], validation_share=0.0), Split(range(26), range(26, 26), range(35, 88))),
        # the last ones test, whatever the share
        (88, 10, ONE_OUT, Split(range(87), range(87, 87), range(87, 88))),
        (88, 10, replace(ONE_OUT, purge=True), Split(range(78), range(78, 78), range(87, 88))),
        (
            20,
            3,
            replace(ONE_OUT, test_snapshots=4, validation_share=0.25, purge=True),
            Split(range(8), range(10, 14), range(16, 20)),
        ),
        # 70/10/20 and 70/15/15
        (100, 1, PROTOCOLS["roland-2022"], Split(range(70), range(70, 80), range(80, 100))),
        (100, 1, PROTOCOLS["tgb"], Split(range(70), range(70, 85), range(85, 100))),
    ],
)
def test_by_hand(snapshots, edge_life, protocol, expected):
    assert split(snapshots, edge_life, protocol) == expected


@pytest.mark.parametrize(
    ("snapshots", "edge_life", "trained", "needed"), [(7, 1, 1, 8), (4, 1, 0, 8), (0, 1, 0, 8), (8, 3, 0, 18)]
)
def test_too_few_snapshots_says_what_there_is_and_what_is_needed(snapshots, edge_life, trained, needed):
    described = f"{snapshots} labelled snapshots with edge_life={edge_life} give protocol 'warm' {trained} to train on"
    with pytest.raises(DataError, match=f"{described}.*at least 2 must train, and {needed} labelled"):
        split(snapshots, edge_life, PROTOCOLS["warm"])
    assert len(split(needed, edge_life, PROTOCOLS["warm"]).train) >= 2
    with pytest.raises(DataError):
        split(needed - 1, edge_life, PROTOCOLS["warm"])


def test_shares_that_leave_nothing_are_an_error_not_a_loop():
    with pytest.raises(DataError, match="whatever the number"):
        split(10, 1, Protocol(name="odd", meaning="all of it", train_share=1.0))


@given(st.integers(1, 400), st.integers(1, 12), st.sampled_from(sorted(PROTOCOLS)))
def test_purged_parts_share_no_label(snapshots, edge_life, name):
    protocol = PROTOCOLS[name]
    before_test = snapshots - protocol.test_snapshots
    if not protocol.test_snapshots:
        before_test = int(Fraction(snapshots) * Fraction(protocol.train_share).limit_denominator(1000))
    gap = edge_life - 1 if protocol.purge else 0
    validated = bool(protocol.validation_share)
    try:
        parts = split(snapshots, edge_life, protocol)
    except DataError:
        share = Fraction(protocol.validation_share).limit_denominator(1000)
        validation = max(1, int(before_test * share)) if validated else 0
        assert before_test - gap * (1 + validated) - validation < 2  # fewer than two are left to train on
        return
    assert len(parts.train) >= 2
    assert parts.train.start == 0
    assert parts.test == range(before_test, snapshots)
    assert parts.test
    assert bool(parts.validation) == validated
    followed = [parts.train, parts.validation, parts.test] if validated else [parts.train, parts.test]
    for earlier, later in itertools.pairwise(followed):
        # the label of snapshot t counts base intervals t + 1 .. t + edge_life
        last_of_earlier, first_of_later = earlier[-1] + edge_life, later[0] + 1
        assert later[0] - earlier[-1] - 1 == gap
        assert (last_of_earlier < first_of_later) or not protocol.purge
