"""Predictions, costs and tables of a calibration, and what it rejects."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, DataError, UnknownNameError
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.calibration.calibration import SHIPPED, calibrate, predict
from dtdg_lab.systems.feature_cache.calibration.fits import StepTimeModel
from dtdg_lab.systems.feature_cache.calibration.measurements import condition_named
from dtdg_lab.systems.feature_cache.calibration.report import regrets

DATASETS = ("ogbn-products", "reddit")
CONDITIONS = ("clean", "c1_1000mbit", "c1_50mbit", "c4_5ms", "c4_20ms")


def test_held_out_cells_get_errors_and_regret():
    true = StepTimeModel(100.0, 10.0, 40.0, 450.0, 0.0, 10.0, 5000.0)
    asked = [("clean", w) for w in WINDOWS] + [(f"c1_{x}", 16) for x in (50, 200)] + [("c4_5", 16), ("c4_20", 16)]
    found = calibrate([cell_of(true, name, window, 1.0) for name, window in asked])
    kept = found.errors_on([cell_of(true, "c4_20", window, 1.0) for window in (2, 8, 32)])
    assert [error.window for error in kept] == [2, 8, 32]
    middle = float(true.step_ms(16, delay_ms=20.0))
    assert all(error.middle_ms == pytest.approx(middle) for error in kept)
    assert max(abs(error.percent) for error in kept) < 25 and not np.isnan(kept[0].condition_out_ms)
    (late,) = [each for each in regrets([*found.errors(), *kept]) if each.condition == "c4_20"]
    assert late.windows == 4 and late.best == late.cell_out == 2 and late.cell_out_percent == 0
    assert late.middle_percent > 30
    with pytest.raises(UnknownNameError, match="own"):
        found.errors_on([{"dataset": "other", "condition": "clean", "window": 4, "measured_ms": 1.0}])


@pytest.mark.parametrize(
    ("dataset", "condition", "batches", "joules"),
    [
        ("ogbn-products", "clean", 25, 2190),
        ("ogbn-products", "c1_200", 25, 9690),
        ("ogbn-products", "c1_50", 25, 34400),
        ("reddit", "c1_200", 20, 3750),
        ("reddit", "c1_50", 20, 12300),
    ],
)
def test_joules_that_nothing_was_fitted_to(calibration, dataset, condition, batches, joules):
    # the same campaign's energy of an epoch on four hosts, at W = 16
    costs = calibration.costs(dataset)
    described = costs.step(16, *links(condition), np.full(3, 1 / 3)).joules * 4 * batches
    assert described == pytest.approx(joules, rel=0.12)


def links(name):
    """Delays and rates of the three links of a requester, the first of which is in a condition."""
    under = condition_named(name)
    return np.array([under.delay_ms / 1e3, 0, 0]), np.array([under.mbit * 1e6 / 8 / 3, np.inf, np.inf])


@pytest.mark.parametrize("dataset", DATASETS)
def test_costs_are_the_same_model(calibration, dataset):
    costs = calibration.costs(dataset)
    for name in CONDITIONS:
        described = costs.step_s(WINDOWS, *links(name), np.full(3, 1 / 3)) * 1e3
        np.testing.assert_allclose(
            described, [calibration.predict(name, w, dataset=dataset) for w in WINDOWS], rtol=1e-9
        )


def test_shipped_constants_are_those_of_the_figures(calibration):
    for dataset in DATASETS:
        np.testing.assert_allclose(
            astuple(SHIPPED.steps[dataset]), astuple(calibration.steps[dataset]), rtol=2e-3, err_msg=dataset
        )
        ours, theirs = SHIPPED.costs(dataset), calibration.costs(dataset)
        assert ours.rpc_s == pytest.approx(theirs.rpc_s, rel=1e-3)
        assert ours.rtt_noise == pytest.approx(theirs.rtt_noise, rel=0.1)
        assert (ours.busy_w, ours.stall_w) == pytest.approx((theirs.busy_w, theirs.stall_w))
        assert predict("c1_200", 4, dataset=dataset) == pytest.approx(
            predict("c1_200", 4, dataset=dataset, calibration=calibration), rel=5e-3
        )


def test_table_says_what_was_left_out(calibration):
    text = calibration.table()
    assert "### reddit" in text and "### ogbn-products" in text
    assert "| c1_200mbit | 16 | 288.6 |" in text
    assert "condition left out" in text and "Eq. 4" in text
    only = replace(SHIPPED, dataset="reddit").table()
    assert "### reddit" in only and "products" not in only


def cell_of(model, name, window, noise):
    under = condition_named(name)
    described = float(model.step_ms(window, under.mbit, under.delay_ms)) * noise
    return {"dataset": "own", "condition": name, "window": window, "measured_ms": described}


def test_invalid_predictions_are_rejected():
    for wrong in (0, -1, 1.5, True, "16", None):
        with pytest.raises(ConfigError, match="window"):
            predict("clean", wrong, dataset="reddit")
    with pytest.raises(UnknownNameError, match="reddit"):
        predict("clean", 16, dataset="redit")
    with pytest.raises(ConfigError, match="dataset is ambiguous"):
        SHIPPED.predict("clean", 16)
    assert predict("clean", np.int64(16), dataset="products") == predict("clean", 16, dataset="ogbn-products")


def test_invalid_measurements_are_rejected(tmp_path):
    row = {"dataset": "own", "condition": "clean", "window": 4, "measured_ms": 10.0}
    for source, said in [
        (tmp_path, "step_time.csv"),
        ([], "no measured steps"),
        ([row] * 3, "At least 7"),
        ([{"dataset": "own", "window": 1}], "row 1"),
        ([row, {**row, "measured_ms": "fast"}], "row 2"),
        ([{**row, "measured_ms": -1}], "above 0"),
        ([{**row, "window": 0}], "at least 1"),
        ([[1, 2]], "mapping"),
    ]:
        with pytest.raises(DataError, match=said):
            calibrate(source)
    with pytest.raises(ConfigError, match="c1_<X>mbit"):
        calibrate([{**row, "condition": "slow"}])
    with pytest.raises(UnknownNameError, match="own"):
        calibrate([{**row, "window": w} for w in range(1, 9)], dataset="other")
