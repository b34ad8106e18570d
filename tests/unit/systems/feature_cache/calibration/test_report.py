"""What is said of a fit."""

from __future__ import annotations

import pytest

from dtdg_lab.systems.feature_cache.calibration.report import CellError, judge_fit

NAN = float("nan")


@pytest.mark.parametrize(
    ("cell_out_ms", "verdict"), [(11.0, "by 50 %."), (15.0, "no better than this guess"), (16.0, "no better")]
)
def test_a_fit_is_judged_beside_the_guess_without_one(cell_out_ms: float, verdict: str) -> None:
    windows = [CellError("own", "clean", window, 10.0, 10.0, cell_out_ms, 10.0, 10.0, 15.0) for window in range(5)]
    without_guess = CellError("own", "c4_5ms", 16, 10.0, 10.0, 90.0, 10.0)
    sentence = judge_fit([*windows, without_guess])
    assert f"Steps at 5 windows: a fit without the window is off by {10 * cell_out_ms - 100:.3g} %" in sentence
    assert verdict in sentence


def test_a_fit_that_nothing_can_be_compared_with_is_not_judged() -> None:
    assert "cannot be compared" in judge_fit([CellError("own", "clean", 16, 10.0, 10.0, NAN, NAN)])
