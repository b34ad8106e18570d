"""Times of groups: the linear model fitted to a few of them, and the graphs that grow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.snapshot_groups.time_model import (
    fit,
    group_times,
    growth,
    modelled_times,
    snapshot_times,
)


def sizes(groups=24, window=4, seed=0):
    rng = generator(seed, "test/sizes")
    nodes = window * rng.integers(1_000, 9_000, groups)
    edges = window * rng.integers(5_000, 200_000, groups)
    return nodes, edges, np.full(groups, window)


def seconds(nodes, edges, snapshots, a1=2e-6, a2=3e-7, a3=4e-3):
    return a1 * nodes + a2 * edges + a3 * snapshots


def test_exact_times_give_their_coefficients_back() -> None:
    nodes, edges, snapshots = sizes()
    found = fit(nodes, edges, seconds(nodes, edges, snapshots), snapshots)
    assert (found.a1, found.a2, found.a3) == pytest.approx((2e-6, 3e-7, 4e-3), rel=1e-9)
    assert found.max_error < 1e-9
    more = sizes(seed=1)
    np.testing.assert_allclose(found.predict(*more), seconds(*more), rtol=1e-9)


def test_noise_of_three_percent_stays_within_the_papers_five() -> None:
    nodes, edges, snapshots = sizes(40)
    times = seconds(nodes, edges, snapshots) * (1 + 0.03 * generator(0, "test/noise").standard_normal(40))
    found = fit(nodes, edges, times, snapshots)
    more = sizes(40, seed=1)
    assert np.abs(found.predict(*more) / seconds(*more) - 1).max() < 0.05
    assert 0.01 < found.mean_error < 0.05
    assert found.max_error >= found.mean_error


@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize("bad", [0, 7, 23])
def test_one_outlier_does_not_bend_the_model(factor: float, bad: int) -> None:
    nodes, edges, snapshots = sizes()
    times = seconds(nodes, edges, snapshots) * (1 + 0.02 * generator(3, "test/noise").standard_normal(24))
    clean = fit(nodes, edges, times, snapshots)
    times[bad] *= factor
    bent = fit(nodes, edges, times, snapshots)
    more = sizes(seed=1)
    np.testing.assert_allclose(bent.predict(*more), clean.predict(*more), rtol=0.04)
    assert bent.max_error > 0.8  # what is out of the line is told


def test_the_held_out_error_is_no_better_than_that_of_the_fit_itself() -> None:
    nodes, edges, snapshots = sizes(10)
    times = seconds(nodes, edges, snapshots) * (1 + 0.1 * generator(5, "test/noise").standard_normal(10))
    found = fit(nodes, edges, times, snapshots)
    assert found.mean_error > found.errors(nodes, edges, times, snapshots).mean()


def test_no_coefficient_is_negative_and_none_is_better() -> None:
    """Times that fall with the nodes: the model may not say so, and its fit is the best of those that may."""
    nodes, edges = np.array([10.0, 20, 30, 40, 50]), np.array([5.0, 5, 6, 6, 7])
    times = 1.0 + 0.1 * edges - 0.004 * nodes
    found = fit(nodes, edges, times)
    assert min(found.a1, found.a2, found.a3) >= 0

    level = found.predict(nodes, edges)
    edge = 1.345 * 1.4826 * np.median(np.abs(level - times) / level)

    def cost(a1, a2, a3):
        rest = np.abs(a1 * nodes + a2 * edges + a3 - times) / level
        return np.where(rest < edge, rest**2, 2 * edge * rest - edge**2).sum()

    best = cost(found.a1, found.a2, found.a3)
    around = itertools.product((0, 1e-3, -1e-3), repeat=3)
    for step in around:
        other = np.maximum(np.array([found.a1, found.a2, found.a3]) + np.array(step) * [0.1, 1, 1], 0)
        assert cost(*other) >= best * (1 - 1e-6)


def test_vertices_that_never_change_are_no_obstacle() -> None:
    edges = np.linspace(1_000, 50_000, 12)
    nodes = np.full(12, 4 * 500.0)
    times = seconds(nodes, edges, 4)
    found = fit(nodes, edges, times, 4)
    np.testing.assert_allclose(found.predict(nodes, edges, 4), times, rtol=1e-9)
    assert found.max_error < 1e-6


def test_what_is_told_is_plain() -> None:
    nodes, edges, snapshots = sizes(8)
    described = fit(nodes, edges, seconds(nodes, edges, snapshots), snapshots).to_dict()
    assert list(described) == ["a1", "a2", "a3", "mean_error", "max_error"]
    assert all(type(value) is float for value in described.values())


@pytest.mark.parametrize(
    ("nodes", "edges", "times", "said"),
    [
        ([1, 2, 3], [1, 2, 3], [1, 2, 3], "Profile more"),
        ([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 0], "above 0"),
        ([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, np.nan], "finite"),
        ([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3], "one time"),
        ([1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 4], "shapes"),
        ([1, 2, 3, -4], [1, 2, 3, 4], [1, 2, 3, 4], "at least 0"),
    ],
)
def test_bad_measurements_are_refused(nodes, edges, times, said) -> None:
    with pytest.raises(PlanError, match=said):
        fit(nodes, edges, times)


def test_groups_without_any_size_are_refused() -> None:
    with pytest.raises(PlanError, match="cannot explain their times"):
        fit(np.zeros(5), np.zeros(5), np.ones(5), 0)


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
    nodes, edges, snapshots = sizes()
    found = fit(nodes, edges, seconds(nodes, edges, snapshots), snapshots)
    grown = modelled_times(found, 1_000, 10_000, 50, noise=0)
    assert grown[-1] == pytest.approx(seconds(10_000, 100_000, 1))
    still = modelled_times(found, 1_000, 10_000, 50, noise=0, nodes_grow=False)
    assert still[-1] == pytest.approx(seconds(1_000, 100_000, 1))
    assert still[0] == grown[0] == pytest.approx(seconds(1_000, 10_000, 1))


def test_groups_are_sums_of_their_snapshots() -> None:
    assert group_times([1, 2, 3, 4, 5]).tolist() == [10, 14]
    assert group_times([1, 2, 3, 4, 5], window=2, stride=2).tolist() == [3, 7]


@pytest.mark.parametrize(
    "bad",
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
def test_what_makes_no_sense_is_refused(bad) -> None:
    with pytest.raises(ConfigError):
        bad()


def test_an_unknown_curve_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="exponential"):
        growth(5, "exponental")
