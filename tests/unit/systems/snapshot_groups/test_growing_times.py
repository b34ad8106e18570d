"""Times of the snapshots of growing graphs, and of their groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.systems.snapshot_groups.growing_times import group_times, growth, modelled_times, snapshot_times
from dtdg_lab.systems.snapshot_groups.linear_times import LinearTimes


def test_growth_ends_where_it_says() -> None:
    linear, exponential = growth(101), growth(101, "exponential")
    assert (linear[0], linear[-1], exponential[0], exponential[-1]) == pytest.approx((1, 10, 1, 20))
    np.testing.assert_allclose(np.diff(linear), 0.09)
    np.testing.assert_allclose(exponential[1:] / exponential[:-1], 20**0.01)
    assert growth(1).tolist() == [1.0]
    assert growth(3, last=3).tolist() == [1, 2, 3]


def test_noise_has_mean_one_is_seeded_and_never_negative() -> None:
    times = snapshot_times(20_000, noise=0.05, seed=3)
    factors = times / growth(20_000)
    assert abs(factors.mean() - 1) < 0.002
    assert abs(factors.std() - 0.05) < 0.002
    np.testing.assert_array_equal(times, snapshot_times(20_000, noise=0.05, seed=3))
    assert (times != snapshot_times(20_000, noise=0.05, seed=4)).all()
    assert snapshot_times(1_000, noise=2.0).min() > 0
    np.testing.assert_array_equal(snapshot_times(50, noise=0), growth(50))


def test_a_constant_part_does_not_grow() -> None:
    model = LinearTimes(2e-6, 3e-7, 4e-3, 0.0, 0.0, 9)
    grown = modelled_times(model, 1_000, 10_000, 50, noise=0)
    assert grown[-1] == pytest.approx(2e-6 * 10_000 + 3e-7 * 100_000 + 4e-3)
    still = modelled_times(model, 1_000, 10_000, 50, noise=0, nodes_grow=False)
    assert still[-1] == pytest.approx(2e-6 * 1_000 + 3e-7 * 100_000 + 4e-3)
    assert still[0] == grown[0] == pytest.approx(2e-6 * 1_000 + 3e-7 * 10_000 + 4e-3)


def test_groups_are_sums_of_their_snapshots() -> None:
    assert group_times([1, 2, 3, 4, 5]).tolist() == [10, 14]
    assert group_times([1, 2, 3, 4, 5], window=2, stride=2).tolist() == [3, 7]


@pytest.mark.parametrize(
    "build",
    [
        lambda: growth(0),
        lambda: growth(5, last=0),
        lambda: growth(5, last=float("nan")),
        lambda: snapshot_times(5, noise=-0.1),
        lambda: snapshot_times(5, noise=float("nan")),
        lambda: group_times([1, 2, 3]),
        lambda: group_times([1, 2, 3], window=0),
        lambda: group_times([1, 2, 3], window=1, stride=0),
    ],
)
def test_impossible_sizes_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        build()


def test_an_unknown_curve_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="exponential"):
        growth(5, "exponental")
