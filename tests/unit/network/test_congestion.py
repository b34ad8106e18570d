"""Which links are slow, and when: texts by hand, patterns, tables, traces, and links between ranks."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError, DataError, PlanError, UnknownNameError
from dtdg_lab.network.patterns import (
    LEVELS,
    LinkState,
    PatternSettings,
    format_links,
    links_of_ranks,
    load_trace,
    made_table,
    make_pattern,
    parse_links,
    parse_table,
    save_trace,
    slow_owners,
)
from tests.thinning import thinned

EPOCHS = 30


# links by hand


def test_a_text_sets_the_links_it_names() -> None:
    links = parse_links("1>0 delay=20 rate=25; 2 delay=5", 4)
    delays_s, rates = np.zeros((4, 4)), np.full((4, 4), np.inf)
    delays_s[1, 0], rates[1, 0] = 0.02, 25e6 / 8
    delays_s[2, [0, 1, 3]] = 0.005
    assert links == LinkState(delays_s, rates)


def test_later_clauses_replace_what_earlier_ones_said() -> None:
    links = parse_links(" * delay=5 rate=100 ; * > 0 delay=1;1>0 rate=50; ", 3)
    np.testing.assert_allclose(links.delay_s * 1e3, [[0, 5, 5], [1, 0, 5], [1, 5, 0]])
    np.testing.assert_allclose(links.bytes_per_s[1], [50e6 / 8, np.inf, 100e6 / 8])


def test_no_text_is_clean() -> None:
    assert parse_links("", 3).is_clean and parse_links(" ; ;", 1).is_clean
    assert format_links(LinkState.clean(4)) == format_links(LinkState.clean(1)) == ""


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("7>0 delay=1", "'7>0 delay=1' names part 7: there are 4, numbered from 0 to 3"),
        ("0>4 delay=1", "names part 4"),
        ("2>2 delay=1", "part 2 does not ask itself"),
        ("0>1 delay=-1", "'delay=-1': a delay of -1 ms; it is 0 to 10000 ms"),
        ("0>1 rate=-5", "'rate=-5': a rate of -5 Mbit/s; it is 0.001 or more"),
        ("0>1 rate=0", "left out (0 in the options) for no limit"),
        ("0>1 rate=1e-300", "a rate of 1e-300"),
        ("0>1 delay=1e300", "a delay of 1e+300"),
        ("0>1 rate=inf", "a rate of inf"),
        ("0>1 delay=nan", "a delay of nan"),
        ("0>1 delay=soon", "'delay=soon'"),
        ("0>1", "neither delay= nor rate= is given"),
        ("0>1 delay=1 delay=2", "'delay=2' is not understood"),
        ("0>1 jitter=1", "'jitter=1' is not understood"),
        ("0>1 delay", "'delay' is not understood"),
        ("one delay=1", "'one' names no link"),
        ("0>1>2 delay=1", "'0>1>2' names no link"),
        ("-1 delay=1", "'-1' names no link"),
        ("1 delay=1, 2 delay=2", "'delay=1,'"),
        ("delay=1", "'delay=1' names no link"),
    ],
)
def test_a_text_that_means_nothing_is_refused(text: str, described: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_links(f"0 delay=3; {text}", 4)
    assert described in str(raised.value)


_NUMBERS = st.integers(0, 10**7).map(lambda thousandths: thousandths / 1000)


@given(st.data(), st.integers(1, 5))
def test_links_survive_their_text(data: st.DataObject, parts: int) -> None:
    delay_ms, mbit = ([[data.draw(_NUMBERS) for _ in range(parts)] for _ in range(parts)] for _ in range(2))
    rates = np.array([[rate * 1e6 / 8 if rate else np.inf for rate in row] for row in mbit])
    links = LinkState(np.array(delay_ms) / 1e3, rates)
    again = parse_links(format_links(links), parts)
    off = ~np.eye(parts, dtype=bool)
    np.testing.assert_allclose(again.delay_s[off], links.delay_s[off], rtol=1e-11)
    np.testing.assert_allclose(again.bytes_per_s[off], links.bytes_per_s[off], rtol=1e-11)
    assert parse_links(format_links(again), parts) == again
    assert not again.delay_s.diagonal().any() and np.isinf(again.bytes_per_s.diagonal()).all()


def test_a_text_is_as_short_as_it_can_be() -> None:
    assert format_links(parse_links("0 delay=3; 1 delay=3; 2 delay=3", 3)) == "* delay=3"
    assert format_links(parse_links("1>0 delay=3 rate=10; 1>2 rate=10 delay=3", 3)) == "1 delay=3 rate=10"
    assert format_links(parse_links("2>0 rate=10", 3)) == "2>0 rate=10"


@given(st.text(alphabet="0123 >*;=.-delayrate\n\0é", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        links = parse_links(text, 3)
    except ConfigError:
        return
    assert parse_links(format_links(links), 3).parts == 3


# patterns


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
        ("1:15 2:20 - -", "has 4 entries"),
        ("1:15 4:20 -", "'4:20' names part 4: there are 4"),
        ("1:15 1+9:20 -", "names part 9"),
        ("1:15 x:20 -", "'x:20' is no entry"),
        ("1:15 2:-20 -", "'2:-20': a delay of -20 ms"),
        ("1:15 2:inf -", "'2:inf': a delay of inf ms"),
        ("1:15 2:20ms -", "'2:20ms': a delay of nan ms"),
        ("1:15 2 -", "'2' is no entry"),
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


# traces


def _events(pattern: str, steps: int) -> list[dict[str, Any]]:
    made, last = make_pattern(pattern, parts=3, seed=1, mbit=50, cycle=2), None
    events: list[dict[str, Any]] = [{"kind": "started", "step": 0, "epoch": 0, "data": {}}]
    for step in range(10 * steps):
        epoch = step // steps
        if (links := made.at(epoch, step % steps / steps)) != last:
            data = {"pattern": pattern, "by": "emulated", **links.to_dict()}
            events.append({"kind": "congestion", "step": step, "epoch": epoch, "data": json.loads(json.dumps(data))})
            last = links
    return events


@pytest.mark.parametrize("pattern", ["one_fast", "oscillating", "two_asymmetric"])
def test_a_trace_repeats_what_was_recorded(pattern: str, tmp_path: Path) -> None:
    steps = 20
    file = save_trace(_events(pattern, steps), tmp_path / "trace.jsonl", steps_per_epoch=steps)
    made = make_pattern(pattern, parts=3, seed=1, mbit=50, cycle=2)
    again = make_pattern("recorded", parts=3, file=str(file))
    for step in range(10 * steps):
        expected, links = made.at(step // steps, step % steps / steps), again.at(step // steps, step % steps / steps)
        np.testing.assert_allclose(links.delay_s, expected.delay_s, rtol=1e-12)
        np.testing.assert_allclose(links.bytes_per_s, expected.bytes_per_s, rtol=1e-12)
    assert again.at(10_000) == again.at(9, 0.999), "the last links stay"
    assert [name.name for name in tmp_path.iterdir()] == ["trace.jsonl"]


def test_a_trace_made_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "by hand.jsonl"
    first = '{"epoch": 1, "delay_ms": [[0, 0], [7, 0]]}'
    then = '{"epoch": 1, "share": 0.5, "delay_ms": [[0, 0], [0, 0]], "mbit": [[null, null], [16, null]]}'
    file.write_text(f"{first}\n\n{then}\n")
    trace = load_trace(file, 2)
    assert trace.at(0, 0.9).is_clean
    assert trace.at(1).delay_s[1, 0] == trace.at(1, 0.49).delay_s[1, 0] == pytest.approx(0.007)
    assert trace.at(1, 0.5).bytes_per_s[1, 0] == pytest.approx(2e6) and not trace.at(2).delay_s.any()


@pytest.mark.parametrize(
    ("text", "error", "described"),
    [
        ("", DataError, "is no trace"),
        ("{}", DataError, "line 1 of"),
        ("[1]", DataError, "line 1 of"),
        ("what", DataError, "line 1 of"),
        ('{"epoch": 1, "share": 1.5, "delay_ms": [[0, 0], [1, 0]]}', DataError, "share=1.5"),
        ('{"epoch": 1, "delay_ms": [[0, 0], [-1, 0]]}', DataError, "negative"),
        ('{"epoch": 1, "delay_ms": [[0, 0], [1, 0]], "mbit": [[null, null], [-2, null]]}', DataError, "rate"),
        ('{"epoch": 1, "delay_ms": [[0, 0, 0], [1, 0, 0]]}', DataError, "square"),
        ('{"epoch": 1, "delay_ms": [["a", 0], [1, 0]]}', DataError, "line 1 of"),
        ('{"epoch": 1, "delay_ms": 3}', DataError, "line 1 of"),
        (
            '{"epoch": 2, "delay_ms": [[0, 0], [1, 0]]}\n{"epoch": 1, "delay_ms": [[0, 0], [1, 0]]}',
            DataError,
            "in order",
        ),
        ('{"epoch": 2, "delay_ms": [[0]]}', ConfigError, "a trace of 1 parts, this run has 2"),
    ],
)
def test_a_damaged_trace_is_refused(text: str, error: type[Exception], described: str, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(text)
    with pytest.raises(error) as raised:
        make_pattern("recorded", parts=2, file=str(tmp_path / "trace"))
    assert described in str(raised.value)


def test_a_missing_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"congestion_file=.*nothing\.jsonl.* cannot be read: No such file"):
        make_pattern("recorded", parts=2, file=str(tmp_path / "nothing.jsonl"))
    with pytest.raises(ConfigError, match="set congestion_file"):
        make_pattern("recorded", parts=2)
    with pytest.raises(DataError, match="no event of kind congestion"):
        save_trace([], tmp_path / "none.jsonl", steps_per_epoch=4)
    with pytest.raises(DataError, match="cannot write the trace"):
        save_trace(_events("one_fast", 4), tmp_path / "no folder" / "none.jsonl", steps_per_epoch=4)
    assert list(tmp_path.iterdir()) == []


# ranks


def test_ranks_have_the_slowest_links_of_their_parts() -> None:
    links = parse_links("0>3 delay=9; 1>2 delay=4 rate=10; 0>1 delay=50; 3>0 rate=5", 4)
    ranks = links_of_ranks(links, 2)
    np.testing.assert_allclose(ranks.delay_s * 1e3, [[0, 9], [0, 0]])
    np.testing.assert_allclose(ranks.bytes_per_s * 8e-6, [[np.inf, 10], [5, np.inf]])
    assert links_of_ranks(links, 4) == links
    assert links_of_ranks(links, 1).is_clean
    for ranks_given in (3, 0):
        with pytest.raises(PlanError, match="links of 4 parts cannot be those of"):
            links_of_ranks(links, ranks_given)
