"""What is said of a fit."""

from __future__ import annotations

import pytest

from dtdg_lab.systems.feature_cache.calibration.report import CellError, judge_fit


@pytest.mark.parametrize(
    ("predicted_ms", "verdict"), [(11.0, "5 cells)."), (15.0, "no better than this guess"), (16.0, "no better")]
)
def test_a_fit_is_judged_beside_the_guess_without_one(predicted_ms: float, verdict: str) -> None:
    windows = [CellError("own", "clean", window, 10.0, 10.0, predicted_ms, 10.0, 10.0, 15.0) for window in range(5)]
    lone = CellError("own", "c4_5ms", 16, 10.0, 10.0, 90.0, 10.0)  # has no guess, so it does not count
    told = judge_fit([*windows, lone])
    assert f"a mean error of {10 * predicted_ms - 100:.3g} %" in told and "is off by 50 %" in told
    assert verdict in told
