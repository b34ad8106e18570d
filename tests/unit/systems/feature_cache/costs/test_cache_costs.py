"""The cost of a step by window, allocation and links."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import products, reddit
from dtdg_lab.systems.feature_cache.costs.cache_costs import PAPER, CacheCosts, RpcModel

EVEN = np.full(2, 0.5)
FREE = np.full(2, np.inf)
SIMPLE = CacheCosts(
    name="simple",
    parts=3,
    base_s=0.1,
    rows=1000.0,
    row_bytes=400.0,
    link_bytes_per_s=1e6,
    trips=2.0,
    rebuild_trips=4.0,
    hit_max=1.0,
    hit_min=0.5,
    hit_half=4.0,
    hit_slope=1.0,
    capacity_exponent=1.0,
    rebuild_rows=800.0,
    rebuild_exponent=0.5,
    rebuild_s=0.02,
    busy_w=100.0,
    stall_w=60.0,
    rpc_s=0.003,
)


def test_a_step_by_hand():
    # W = 4: h = 0.75, so 125 of 500 rows of each owner are missed: 50 kB; a rebuild fetches 800 * 2 / 2 rows: 320 kB
    cost = SIMPLE.step(4, [0.01, 0.0], FREE, EVEN)
    miss, rebuild = 2 * 0.01 + 0.05, 4 / 4 * 0.01 + 0.32 / 4
    assert cost.miss_s == pytest.approx(miss)
    assert cost.rebuild_s == pytest.approx(rebuild + 0.02 / 4)
    assert cost.seconds == pytest.approx(0.1 + miss + rebuild + 0.005)
    assert cost.joules == pytest.approx(0.1 * 100 + (miss + rebuild + 0.005) * 60)
    np.testing.assert_allclose(cost.hits, [0.75, 0.75])
    assert cost.hit == pytest.approx(0.75)


def test_an_owner_without_misses_causes_no_wait():
    waits = replace(SIMPLE, trips=0.0, rebuild_trips=0.0, miss_trips=1.0)
    # W = 4 misses 125 rows of each owner, so that every step waits for the late one; W = 1 hits all of them
    assert waits.step(4, [0.5, 0.0], FREE, EVEN).seconds == pytest.approx(
        waits.step(4, [0.0, 0.0], FREE, EVEN).seconds + 0.5
    )
    whole = replace(waits, hit_min=0.999)  # half a row in a step: 1 - exp(-0.5 * hits) of them wait
    missed = 500 * (1 - float(whole.hit_rate(4)))
    late, early = (whole.step(4, [delay, 0.0], FREE, EVEN).seconds for delay in (0.5, 0.0))
    assert 0 < missed < 1 and late - early == pytest.approx(0.5 * -np.expm1(-missed), rel=0.05)


def test_the_slowest_owner_decides():
    one = SIMPLE.step_s(4, [0.02, 0.0], FREE, EVEN)
    assert SIMPLE.step_s(4, [0.02, 0.019], FREE, EVEN) == pytest.approx(one)
    assert SIMPLE.step_s(4, [0.02, 0.03], FREE, EVEN) > one
    # a rate is that of the link, and one above what the link is capable of changes nothing
    assert SIMPLE.step_s(4, [0, 0], [0.5e6, np.inf], EVEN) == pytest.approx(0.1 + 2 * 0.13 + 0.005)
    assert SIMPLE.step_s(4, [0, 0], [2e6, 5e6], EVEN) == SIMPLE.step_s(4, [0, 0], FREE, EVEN)


def test_overlap_and_norm_join_stages():
    apart = SIMPLE.step_s(4, [0.01, 0.0], FREE, EVEN) - 0.1 - 0.005
    hidden = replace(SIMPLE, overlap=1.0).step_s(4, [0.01, 0.0], FREE, EVEN)
    assert hidden == pytest.approx(max(0.1, apart) + 0.005)
    joined = replace(SIMPLE, norm=2.0).step_s(4, [0.01, 0.0], FREE, EVEN)
    assert joined == pytest.approx(0.1 + np.hypot(0.03, 0.13) + 0.005)
    without_rebuild = replace(SIMPLE, exposed=0.0).step(4, [0.01, 0.0], FREE, EVEN)
    assert without_rebuild.rebuild_s == pytest.approx(0.005)


def test_overlapped_stages_take_their_maximum():
    # W = 4: 800 / 4 * 4 ** 0.5 = 400 rows a step are rebuilt, and with misses nearly the larger of both is sent
    beside = replace(SIMPLE, overlapped=True, trips=0.0, miss_trips=2.0, wait_rows=50.0, hidden_s=0.03)
    missed = (500**4 + 400**4) ** 0.25 - 400
    assert float(beside.hit_rate(4)) == pytest.approx(1 - missed / 1000)
    waits = 2 * -np.expm1(-missed / 2 / 50)
    assert waits > 4 / 4  # a rebuild's replies come meanwhile
    sent_s = (missed + 400) / 2 * 400 / 1e6
    late, early = (beside.step(4, [delay, 0.0], FREE, EVEN).seconds for delay in (0.2, 0.0))
    assert late == pytest.approx(0.1 + 0.2 * waits - 0.03 + 0.005)  # bytes pass while replies are late
    assert early == pytest.approx(0.1 + sent_s - 0.03 + 0.005)
    hidden = replace(beside, hidden_s=10.0).step(4, [0.0, 0.0], FREE, EVEN)
    assert hidden.seconds == pytest.approx(0.105) and hidden.miss_s > 0


@given(window=st.integers(1, 128), low=st.floats(0.01, 0.98), step=st.floats(0.001, 0.5), kappa=st.floats(0.0, 1.0))
def test_more_of_the_cache_never_hurts_and_helps_ever_less(window, low, step, kappa):
    costs = replace(SIMPLE, capacity_exponent=kappa)
    shares = np.minimum(low + step * np.arange(3), 1.0)
    if shares[2] - shares[1] != pytest.approx(step):
        return
    hits = costs.step(window, [0, 0], FREE, np.stack([shares, 1 - shares], axis=-1)).hits[:, 0]
    gains = np.diff(hits)
    assert (gains >= -1e-12).all()
    assert gains[1] <= gains[0] + 1e-9
    assert (hits >= 0).all() and (hits <= 1).all()


def test_edges_of_the_capacity():
    nothing = SIMPLE.step(16, [0, 0], FREE, [0.0, 1.0])
    assert nothing.hits[0] == 0.0  # no cache, no hits
    full = SIMPLE.step(1e-12, [0, 0], FREE, [0.2, 0.8])
    np.testing.assert_allclose(full.hits, 1.0, atol=1e-4)  # where a cache holds all, less of it does, too
    even = SIMPLE.step(16, [0, 0], FREE, EVEN)
    np.testing.assert_allclose(even.hits, SIMPLE.hit_rate(16))
    skewed = replace(SIMPLE, asked=(0.2, 0.8)).step(16, [0, 0], FREE, [0.2, 0.8])
    np.testing.assert_allclose(skewed.hits, even.hits)  # shares as rows are asked for are the even ones


@pytest.mark.parametrize("costs", [SIMPLE, products(), reddit(), products(2), reddit(3)])
def test_actions_are_steps_of_their_window_and_allocation(costs):
    actions = CacheActions(costs.parts)
    draw = np.random.default_rng(3)
    delays = draw.uniform(0, 0.03, (5, costs.parts - 1))
    rates = draw.uniform(1e6, 1e9, (5, costs.parts - 1))
    described = costs.of_actions(delays, rates)
    assert described.seconds.shape == (5, len(actions)) and described.hits.shape == (5, len(actions), costs.parts - 1)
    for action in range(len(actions)):
        own = costs.step(actions.window(action), delays, rates, actions.shares(action))
        for name in own._fields:
            np.testing.assert_allclose(getattr(described, name)[:, action], getattr(own, name), err_msg=name)
    np.testing.assert_allclose(costs.of_actions(delays).seconds, costs.of_actions(delays, np.inf * rates).seconds)


def test_short_windows_cost_more_where_one_owner_is_throttled():
    # what the campaign behind the figures found, and the paper did not: steady throttling does not want small windows
    for costs in (products(), reddit()):
        throttled = costs.step_s(WINDOWS, np.zeros(3), [50e6 / 8 / 3, np.inf, np.inf], np.full(3, 1 / 3))
        assert WINDOWS[int(throttled.argmin())] >= 8
        assert throttled[0] > 1.5 * throttled.min()


def test_the_digest_is_that_of_every_constant():
    assert replace(SIMPLE).digest() == SIMPLE.digest() and len(SIMPLE.digest()) == 64
    changed = {
        "name": "other",
        "asked": (0.4, 0.6),
        "norm": 1.5,
        "overlap": 0.5,
        "exposed": 0.5,
        "hit_max": 0.9,
        "miss_trips": 1.0,
        "overlapped": True,
        "hidden_s": 0.01,
    }
    for name, value in asdict(SIMPLE).items():
        if name == "parts":
            continue
        other = changed.get(name, value * 0.9 if isinstance(value, float) else value)
        assert replace(SIMPLE, **{name: other}).digest() != SIMPLE.digest(), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parts", 1),
        ("rows", 0.0),
        ("rows", np.nan),
        ("base_s", -1.0),
        ("base_s", np.inf),
        ("hit_min", 1.1),
        ("capacity_exponent", 1.5),
        ("norm", 0.5),
        ("rebuild_exponent", 1.5),
        ("link_bytes_per_s", 0.0),
        ("asked", (0.5, 0.6)),
        ("asked", (1.0,)),
        ("asked", (0.0, 1.0)),
        ("rtt_noise", -0.1),
        ("wait_rows", 0.0),
        ("hidden_s", -0.1),
    ],
)
def test_impossible_constants_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        replace(SIMPLE, **{name: value})


MODEL = RpcModel(1.3e-3, 3e-9)


def test_a_fetch_by_hand():
    assert MODEL.rtt_s(1e6) == pytest.approx(1.3e-3 + 3e-3)
    assert MODEL.rtt_s(1e6, 0.02, 1e8) == pytest.approx(1.3e-3 + 3e-3 + 0.02 + 0.01)
    assert replace(MODEL, trips=2.0).rtt_s(0, 0.02) == pytest.approx(1.3e-3 + 0.04)
    np.testing.assert_allclose(MODEL.rtt_s([0, 1e6], [[0], [1]]).shape, (2, 2))
    # 4.67 ms, and of 1 MB 1.4 ms and 0.201 ms for each ms of delay
    assert PAPER.rtt_s(1e6, 0.02) == pytest.approx(4.67e-3 + 1.4e-3 + 20 * 0.201e-3)
    assert PAPER.rtt_s(0, 0.02) == PAPER.rtt_s(0) == pytest.approx(4.67e-3)
