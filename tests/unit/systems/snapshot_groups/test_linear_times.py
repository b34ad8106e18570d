"""Linear model of group times, fitted to a few groups."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.systems.snapshot_groups.linear_times import fit


def sizes(groups=24, window=4, seed=0):
    rng = generator(seed, "test/sizes")
    nodes = window * rng.integers(1_000, 9_000, groups)
    edges = window * rng.integers(5_000, 200_000, groups)
    return nodes, edges, np.full(groups, window)


def seconds(nodes, edges, snapshots, a1=2e-6, a2=3e-7, a3=4e-3):
    return a1 * nodes + a2 * edges + a3 * snapshots


def test_exact_times_give_their_coefficients_back() -> None:
    nodes, edges, snapshots = sizes()
    model = fit(nodes, edges, seconds(nodes, edges, snapshots), snapshots)
    assert (model.a1, model.a2, model.a3) == pytest.approx((2e-6, 3e-7, 4e-3), rel=1e-9)
    assert model.max_error < 1e-9
    unseen = sizes(seed=1)
    np.testing.assert_allclose(model.predict(*unseen), seconds(*unseen), rtol=1e-9)


def test_noise_of_three_percent_stays_within_the_papers_five() -> None:
    nodes, edges, snapshots = sizes(40)
    times = seconds(nodes, edges, snapshots) * (1 + 0.03 * generator(0, "test/noise").standard_normal(40))
    model = fit(nodes, edges, times, snapshots)
    unseen = sizes(40, seed=1)
    assert np.abs(model.predict(*unseen) / seconds(*unseen) - 1).max() < 0.05
    assert 0.01 < model.mean_error < 0.05
    assert model.max_error >= model.mean_error


@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize("bad", [0, 7, 23])
def test_one_outlier_does_not_bend_the_model(factor: float, bad: int) -> None:
    nodes, edges, snapshots = sizes()
    times = seconds(nodes, edges, snapshots) * (1 + 0.02 * generator(3, "test/noise").standard_normal(24))
    clean = fit(nodes, edges, times, snapshots)
    times[bad] *= factor
    bent = fit(nodes, edges, times, snapshots)
    unseen = sizes(seed=1)
    np.testing.assert_allclose(bent.predict(*unseen), clean.predict(*unseen), rtol=0.04)
    assert bent.max_error > 0.8  # what is out of the line is told


def test_the_held_out_error_is_no_better_than_that_of_the_fit_itself() -> None:
    nodes, edges, snapshots = sizes(10)
    times = seconds(nodes, edges, snapshots) * (1 + 0.1 * generator(5, "test/noise").standard_normal(10))
    model = fit(nodes, edges, times, snapshots)
    assert model.mean_error > model.errors(nodes, edges, times, snapshots).mean()


def test_no_coefficient_is_negative_and_none_is_better() -> None:
    """Times that fall with the nodes: the model may not say so, and its fit is the best of those that may."""
    nodes, edges = np.array([10.0, 20, 30, 40, 50]), np.array([5.0, 5, 6, 6, 7])
    times = 1.0 + 0.1 * edges - 0.004 * nodes
    model = fit(nodes, edges, times)
    assert min(model.a1, model.a2, model.a3) >= 0

    level = model.predict(nodes, edges)
    edge = 1.345 * 1.4826 * np.median(np.abs(level - times) / level)

    def cost(a1, a2, a3):
        rest = np.abs(a1 * nodes + a2 * edges + a3 - times) / level
        return np.where(rest < edge, rest**2, 2 * edge * rest - edge**2).sum()

    best = cost(model.a1, model.a2, model.a3)
    for step in itertools.product((0, 1e-3, -1e-3), repeat=3):
        neighbour = np.maximum(np.array([model.a1, model.a2, model.a3]) + np.array(step) * [0.1, 1, 1], 0)
        assert cost(*neighbour) >= best * (1 - 1e-6)


def test_vertices_that_never_change_are_no_obstacle() -> None:
    edges = np.linspace(1_000, 50_000, 12)
    nodes = np.full(12, 4 * 500.0)
    times = seconds(nodes, edges, 4)
    model = fit(nodes, edges, times, 4)
    np.testing.assert_allclose(model.predict(nodes, edges, 4), times, rtol=1e-9)
    assert model.max_error < 1e-6


def test_the_dictionary_has_plain_numbers() -> None:
    nodes, edges, snapshots = sizes(8)
    numbers = fit(nodes, edges, seconds(nodes, edges, snapshots), snapshots).to_dict()
    assert list(numbers) == ["a1", "a2", "a3", "mean_error", "max_error"]
    assert all(type(value) is float for value in numbers.values())


@pytest.mark.parametrize(
    ("nodes", "edges", "times", "message"),
    [
        ([1, 2, 3], [1, 2, 3], [1, 2, 3], "too few"),
        ([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 0], "above 0"),
        ([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, np.nan], "finite"),
        ([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3], "one time"),
        ([1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 4], "shapes"),
        ([1, 2, 3, -4], [1, 2, 3, 4], [1, 2, 3, 4], "at least 0"),
    ],
)
def test_bad_measurements_are_refused(nodes, edges, times, message) -> None:
    with pytest.raises(PlanError, match=message):
        fit(nodes, edges, times)


def test_groups_without_any_size_are_refused() -> None:
    with pytest.raises(PlanError, match="cannot explain their times"):
        fit(np.zeros(5), np.zeros(5), np.ones(5), 0)
