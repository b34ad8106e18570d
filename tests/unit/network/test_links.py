"""Links between parts: their text, and links between ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.network.links import LinkState, format_links, links_of_ranks, parse_links


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
        ("2>2 delay=1", "part 2 does not ask itself"),
        ("0>1 delay=-1", "'delay=-1': a delay of -1 ms is not between 0 and 10000 ms"),
        ("0>1 rate=-5", "'rate=-5': a rate of -5 Mbit/s is not a finite number of 0.001 or more"),
        ("0>1 rate=0", "Leave it out (0 in the options) for no limit"),
        ("0>1 rate=inf", "a rate of inf"),
        ("0>1 delay=nan", "a delay of nan"),
        ("0>1 delay=soon", "'delay=soon'"),
        ("0>1", "neither delay= nor rate= is given"),
        ("0>1 delay=1 delay=2", "'delay=2' is not understood"),
        ("one delay=1", "'one' names no link"),
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


def test_ranks_have_the_slowest_links_of_their_parts() -> None:
    links = parse_links("0>3 delay=9; 1>2 delay=4 rate=10; 0>1 delay=50; 3>0 rate=5", 4)
    ranks = links_of_ranks(links, 2)
    np.testing.assert_allclose(ranks.delay_s * 1e3, [[0, 9], [0, 0]])
    np.testing.assert_allclose(ranks.bytes_per_s * 8e-6, [[np.inf, 10], [5, np.inf]])
    assert links_of_ranks(links, 4) == links
    assert links_of_ranks(links, 1).is_clean
    for ranks_given in (3, 0):
        with pytest.raises(PlanError, match="links of 4 parts do not fit"):
            links_of_ranks(links, ranks_given)
