"""The fitted model of a fetch, and the throttled owner, are those of the measurements."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from dtdg_lab.core.errors import DataError
from dtdg_lab.systems.feature_cache.calibration.fits import fit_rpc, least_squares, relative_line
from dtdg_lab.systems.feature_cache.calibration.measurements import read_fetches
from tests.thinning import thinned

DATASETS = ("ogbn-products", "reddit")


@pytest.fixture(scope="module")
def fits(figures):
    return {name: fit_rpc(own) for name, own in read_fetches(figures).items()}


@pytest.mark.parametrize("dataset", thinned(DATASETS, [1]))
def test_the_throttled_owner_and_its_rate_are_found(fits, dataset):
    fit = fits[dataset]
    assert set(fit.owners) == {0, 1, 2, 3} and set(fit.throttled) == {"c1_50", "c1_100", "c1_200"}
    for model in fit.owners.values():
        assert 1e-3 < model.a_s < 2e-3 and 1 / model.s_per_byte == pytest.approx(350e6, rel=0.3)
    for name, link in fit.throttled.items():
        assert link.owner == 3
        shared = float(name.removeprefix("c1_")) * 1e6 / 8 / 3  # three ask it
        assert link.bytes_per_s == pytest.approx(shared, rel=0.15)
        assert 5e-3 < link.wait_s < 20e-3


@pytest.mark.parametrize("dataset", DATASETS)
def test_ours_is_nearer_than_equation_4_everywhere(fits, dataset):
    errors = fits[dataset].errors
    assert len(errors) == 8  # four conditions, in turn and at once
    for error in errors:
        assert error.median < 0.7 * error.paper_median, error
        assert error.mean < 0.8 * error.paper_mean, error
        assert error.median < 36
    assert 0.3 < fits[dataset].noise < 0.5


def test_a_known_model_is_found_again():
    fit = fit_rpc(made({"clean": {}, "c1_200": {2: (0.01, 8e6)}}, noise=0.1))
    for owner, model in fit.owners.items():
        assert model.a_s == pytest.approx(1e-3 * (owner + 1), rel=0.05)
        assert model.s_per_byte == pytest.approx(2e-9, rel=0.05)
    link = fit.throttled["c1_200"]
    assert link.owner == 2
    assert link.bytes_per_s == pytest.approx(8e6, rel=0.1) and link.wait_s == pytest.approx(0.01, rel=0.1)
    assert link.asking_wait_s < 1e-3 and link.asking_bytes_per_s > 1e8
    assert fit.noise == pytest.approx(0.1, rel=0.3)


def made(conditions, noise):
    """Fetches between three parts: owner o takes (o + 1) ms + 2 ns a byte; some wait and have a rate."""
    draw = np.random.default_rng(2)
    rows = []
    for name, slow in conditions.items():
        for asked in (10, 1000, 100_000):
            for requester, owner in ((r, o) for r in range(3) for o in range(3) if r != o):
                wait_s, rate = slow.get(owner, (0.0, np.inf))
                rtt = 1e-3 * (owner + 1) + wait_s + asked * 400 * (2e-9 + 1 / rate)
                rows += [(name, 0, requester, owner, asked, rtt * np.exp(noise * draw.normal())) for _ in range(12)]
    table = pandas.DataFrame(rows, columns=["condition", "concurrent", "requester", "owner", "rows", "rtt_s"])
    return table.assign(dataset="own", nbytes=table["rows"] * 400.0)


def test_too_few_fetches_are_rejected():
    fetches = made({"clean": {}, "c1_200": {}}, noise=0.1)
    with pytest.raises(DataError, match="slowed down"):
        fit_rpc(fetches)
    with pytest.raises(DataError, match="0 clean fetches"):
        fit_rpc(fetches[fetches["condition"] != "clean"])


def test_small_fits():
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    assert relative_line(x, 2 + 3 * x) == pytest.approx((2, 3), rel=1e-6)
    assert relative_line(x, np.array([2.0, 5, 8, 11, 1400])) == pytest.approx((2, 3), rel=0.01)  # one bad point of five
    assert relative_line(x, np.array([5.0, 4, 3, 2, 1]))[1] == 0.0  # never negative
    found = least_squares(lambda p: np.array([10 * (p[1] - p[0] ** 2), 1 - p[0]]), np.array([-1.2, 1.0]))  # Rosenbrock
    np.testing.assert_allclose(found, [1, 1], atol=1e-5)
