"""Patterns of congestion: which links are slow, and when."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.network.links import LinkState, slow_owners
from dtdg_lab.network.patterns import LEVELS, PatternSettings, made_table, make_pattern, parse_table
from tests.thinning import thinned

EPOCHS = 30


def _slow(links: LinkState) -> dict[int, float]:
    """Delay in ms of each owner that is slow, to all that ask it."""
    found = {}
    for owner, row in enumerate(links.delay_s * 1e3):
        asked = np.delete(row, owner)
        assert np.ptp(asked) == 0 and row[owner] == 0
        if asked[0]:
            found[owner] = float(asked[0])
    return found


def _over(name: str, shares: int = 1, **given: Any) -> list[dict[int, float]]:
    pattern = make_pattern(name, **{"parts": 4, "seed": 3, "epochs": EPOCHS, **given})
    return [_slow(pattern.at(epoch, part / shares)) for epoch in range(EPOCHS) for part in range(shares)]


@pytest.mark.parametrize("name", [name for name in catalogue.names("congestion") if name not in ("none", "recorded")])
@pytest.mark.parametrize("parts", thinned([4, 2, 7]))
def test_every_pattern_is_clean_first_then_congested_and_a_pure_function(name: str, parts: int) -> None:
    over = _over(name, shares=8, parts=parts, first_epoch=5)
    assert not any(over[: 5 * 8]) and any(over[5 * 8 :])
    assert over == _over(name, shares=8, parts=parts, first_epoch=5)
    assert {owner for slow in over for owner in slow} <= set(range(parts))
    assert max(delay for slow in over for delay in slow.values()) == pytest.approx(25 if name == "schedule" else 20)


def test_none_is_clean_with_any_number_of_parts() -> None:
    assert all(make_pattern("none", parts=parts).at(9, 0.5).is_clean for parts in (1, 2, 5))


def test_one_slow_owner_for_the_first_half_of_each_cycle() -> None:
    over = _over("one_slow", first_epoch=3, cycle=7, delay_ms=12.0)
    owners = {owner for slow in over for owner in slow}
    assert len(owners) == 1
    congested = [epoch for epoch, slow in enumerate(over) if slow]
    assert congested == [epoch for epoch in range(3, EPOCHS) if (epoch - 3) % 7 < 4]
    assert all(slow == {owner: 12.0} for slow in over if slow for owner in owners)


def test_one_fast_owner_in_bursts_shorter_than_an_epoch() -> None:
    over = _over("one_fast", shares=8, first_epoch=3)
    assert [bool(slow) for slow in over[24:]] == [True, True, False, False] * ((EPOCHS - 3) * 2)
    assert len({owner for slow in over for owner in slow}) == 1


def test_two_owners_alike_or_one_half_as_slow() -> None:
    alike, unlike = ([slow for slow in _over(name) if slow] for name in ("two_symmetric", "two_asymmetric"))
    assert {tuple(sorted(slow.values())) for slow in alike} == {(20.0, 20.0)}
    assert {tuple(sorted(slow.values())) for slow in unlike} == {(10.0, 20.0)}
    assert [set(slow) for slow in alike] == [set(slow) for slow in unlike]
    rates = make_pattern("two_asymmetric", parts=2, delay_ms=8, mbit=40).at(3)
    assert sorted((rates.bytes_per_s[[0, 1], [1, 0]] * 8e-6).tolist()) == pytest.approx([40, 80])


def test_an_oscillation_moves_congestion_from_one_owner_to_the_other_and_back() -> None:
    over = _over("oscillating", shares=8, first_epoch=0, cycle=2)
    first, second = ({0, 1, 2, 3} & set(over[0])).pop(), set(over[8]).pop()
    assert first != second
    assert over[0] == {first: pytest.approx(20)} and over[8] == {second: pytest.approx(20)}
    assert all(sum(slow.values()) == pytest.approx(20) for slow in over)
    assert over[:16] == over[16:32] and over[3] == pytest.approx(over[13])
    whole = make_pattern("oscillating", parts=4, seed=3, first_epoch=0, cycle=1, mbit=10)
    states = [whole.at(0, moment / 1000) for moment in range(1000)]
    changes = sum(before != after for before, after in pairwise(states))
    assert changes == LEVELS - 1, "every change is told to the servers: there must not be one a step"
    assert min(state.bytes_per_s.min() for state in states) == pytest.approx(10e6 / 8)


def test_owners_take_turns_are_slow_together_or_each_by_itself() -> None:
    turns = _over("rotating", shares=8, first_epoch=2, cycle=4)
    assert not any(turns[:16]) and all(list(slow.values()) == [20.0] for slow in turns[16:])
    assert [next(iter(slow)) for slow in turns[16:48:8]] == list(PatternSettings(4, seed=3).all_owners)
    assert turns[16:48] == turns[48:80]
    alike = _over("all_slow")
    assert {tuple(sorted(slow)) for slow in alike if slow} == {(0, 1, 2, 3)}
    assert [bool(slow) for slow in alike] == [bool(slow) for slow in _over("one_slow")]
    alone = _over("markov", shares=8, first_epoch=0, cycle=4)
    assert alone == _over("markov", shares=8, first_epoch=0, cycle=4)
    assert len({tuple(sorted(slow)) for slow in alone}) > 4
    share = np.mean([[owner in slow for owner in range(4)] for slow in alone])
    assert 0.08 < share < 0.5, "a quarter of the time, in the mean"


def test_the_seed_chooses_the_owners() -> None:
    chosen = {PatternSettings(4, seed=seed).owners for seed in range(60)}
    assert len(chosen) == 12, "all ordered pairs of four parts"
    assert PatternSettings(4, seed=5).owners == PatternSettings(4, seed=5, delay_ms=1.0, cycle=2).owners
    for seed in range(5):
        one, two = (_over(name, seed=seed)[3] for name in ("one_slow", "two_symmetric"))
        assert set(one) <= set(two)


def test_both_parts_of_two_can_be_slow() -> None:
    assert set(_over("two_symmetric", parts=2)[3]) == {0, 1}


@pytest.mark.parametrize("name", ["one_slow", "two_symmetric", "oscillating", "schedule"])
def test_one_part_has_no_links(name: str) -> None:
    with pytest.raises(ConfigError, match=r"parts=1: one part fetches nothing\. Set congestion=none"):
        make_pattern(name, parts=1)


def test_a_schedule_follows_its_table_and_ends_clean() -> None:
    table = "1:15 1:25 2:20 1+2:15 1+2:25 2:15 -"
    over = _over("schedule", table=table)
    cycle = [{1: 15}, {1: 25}, {2: 20}, {1: 15, 2: 15}, {1: 25, 2: 25}, {2: 15}, {}]
    assert over[:3] == [{}] * 3 and over[-1] == {}
    assert over[3:-1] == [pytest.approx(cycle[(epoch - 3) % 7]) for epoch in range(3, EPOCHS - 1)]
    limited = make_pattern("schedule", parts=3, table="-", cycle=1, mbit=9)
    assert limited.at(4).is_clean
    limited = make_pattern("schedule", parts=3, table="2:0", cycle=1, mbit=9)
    assert limited.at(4).bytes_per_s[2, 0] == pytest.approx(9e6 / 8)


@pytest.mark.parametrize("cycle", [1, 2, 7, 9])
def test_a_table_is_made_where_none_is_given(cycle: int) -> None:
    phases = parse_table(made_table((2, 0), cycle), parts=3, cycle=cycle)
    assert len(phases) == cycle and not phases[0].is_clean
    assert phases[-1].is_clean == (cycle > 1)
    over = _over("schedule", cycle=cycle)
    assert all(15 <= delay <= 25 + 1e-9 for slow in over for delay in slow.values())


@pytest.mark.parametrize(
    ("table", "described"),
    [
        ("1:15 2:20", "has 2 entries, but congestion_cycle=3"),
        ("1:15 4:20 -", "'4:20' names part 4: there are 4"),
        ("1:15 x:20 -", "'x:20' is no entry"),
        ("1:15 2:-20 -", "'2:-20': a delay of -20 ms"),
        ("1:15 2:inf -", "'2:inf': a delay of inf ms"),
        ("1:15 2:20ms -", "'2:20ms': a delay of nan ms"),
    ],
)
def test_a_bad_table_is_refused(table: str, described: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_pattern("schedule", parts=4, table=table, cycle=3)
    assert described in str(raised.value)


@pytest.mark.parametrize(
    ("given", "described"),
    [
        ({"delay_ms": -1.0}, "congestion_ms: a delay of -1 ms"),
        ({"mbit": -1.0}, "congestion_mbit: a rate of -1"),
        ({"mbit": float("nan")}, "congestion_mbit: a rate of nan"),
        ({"delay_ms": float("inf")}, "congestion_ms: a delay of inf"),
        ({"first_epoch": -1}, "first_epoch=-1"),
        ({"cycle": 0}, "cycle=0"),
        ({"parts": 0}, "parts=0"),
    ],
)
def test_bad_settings_are_refused(given: dict[str, Any], described: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_pattern("none", **{"parts": 2, **given})
    assert described in str(raised.value)


def test_owners_and_rates_are_checked() -> None:
    with pytest.raises(ConfigError, match="congestion names part 5"):
        slow_owners(4, {5: 1.0}, {})
    with pytest.raises(ConfigError, match="congestion of part 1: a rate of -3"):
        slow_owners(4, {1: 1.0}, {1: -3.0})


def test_patterns_have_the_names_of_the_catalogue() -> None:
    for name in catalogue.names("congestion"):
        assert catalogue.entry("congestion", name).load().__name__ == name
    with pytest.raises(UnknownNameError, match="one_slow"):
        make_pattern("one_slo", parts=2)
