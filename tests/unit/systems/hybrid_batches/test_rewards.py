"""Rewards of a batch size: their formulas, their bounds, and progress instead of change."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.systems.hybrid_batches.rewards import loss_reward, progress_reward, reward, time_reward

finite = st.floats(allow_nan=False, allow_infinity=False)
seconds = st.floats(0, allow_nan=False, allow_infinity=False)


@given(seconds, seconds, finite, finite)
def test_a_reward_is_within_its_bounds_whatever_was_measured(a: float, b: float, c: float, d: float) -> None:
    assert -1 <= time_reward(a, b) <= 1
    assert -1 <= loss_reward(c, d) <= 1
    assert reward(a, b, c, d) == time_reward(a, b) + loss_reward(c, d)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_within_the_bounds_a_reward_is_equation_3(t_l: float, t_c: float, d_l: float, d_c: float) -> None:
    in_bounds = max(-1.0, min(1.0, (t_l - t_c) / t_l)) + max(-1.0, min(1.0, (d_c - d_l) / d_c))
    assert reward(t_l, t_c, d_l, d_c) == pytest.approx(in_bounds)


@given(finite, finite)
def test_a_loss_that_falls_faster_is_never_punished(last: float, now: float) -> None:
    """Not so by the printed equation: with a negative denominator, losses that rise and rise faster earn 1."""
    earned = loss_reward(last, now)
    assert earned >= 0 if now > last else earned <= 0


@pytest.mark.parametrize(
    ("given_numbers", "expected"),
    [
        ((2.0, 1.0, 1.0, 2.0), 0.5 + 0.5),
        ((1.0, 2.0, 2.0, 1.0), -1.0 - 1.0),
        ((1.0, 9.0, 1.0, 1.0), -1.0),
        ((0.0, 0.0, 0.0, 0.0), 0.0),
        ((0.0, 1.0, -1.0, 0.0), -1.0 + 1.0),
        ((0.0, 1.0, 1.0, 0.0), -1.0 - 1.0),
        ((1.0, 0.0, -1.0, -2.0), 1.0 - 0.5),
        ((1.0, 1.0, None, 5.0), 0.0),
        ((1.0, 1.0, 5.0, None), 0.0),
        ((1.0, 1.0, 1e308, -1e308), -1.0),
    ],
)
def test_rewards_by_hand(given_numbers: tuple[float, float, float | None, float | None], expected: float) -> None:
    assert reward(*given_numbers) == expected


@given(finite, finite, seconds, seconds)
def test_progress_is_within_its_bounds_whatever_was_measured(now: float, last: float, took: float, best: float) -> None:
    earned, kept = progress_reward(now, last, took, best)
    assert -1 <= earned <= 1 and math.isfinite(kept) and kept >= 0
    if 0 < took < 1e9 and 1e-9 < abs(last) < 1e9 and abs(now - last) > 1e-6 * abs(last):
        assert earned * (last - now) >= 0, "a loss that falls is never punished"


def test_progress_pays_for_a_size_and_not_for_a_change() -> None:
    best = 0.0
    described = []
    for last, now, took in ((8.0, 4.0, 1.0), (4.0, 2.0, 1.0), (2.0, 1.0, 2.0), (1.0, 2.0, 4.0)):
        earned, best = progress_reward(now, last, took, best)
        described.append(earned)
    assert described == [1.0, 1.0, pytest.approx(0.25 / 0.485), pytest.approx(-0.25 / (0.485 * 0.97))]
    assert reward(1.0, 1.0, 4.0, 2.0) == -1.0, "by equation 3 the second window, as good as the first, is punished"
    assert progress_reward(1.0, 0.0, 1.0, 0.0) == progress_reward(1.0, 1.0, 0.0, 0.0) == (0.0, 0.0)
