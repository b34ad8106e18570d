"""Judge fits by cells that are made up."""

from __future__ import annotations

import pytest

from dtdg_lab.systems.feature_cache.calibration.report import CellError, judge_fit

NAN = float("nan")


@pytest.mark.parametrize(
    ("cell_out_ms", "verdict"), [(11.0, "by 50 %."), (15.0, "no better than this guess"), (16.0, "no better")]
)
def test_a_fit_is_judged_beside_the_guess_without_one(cell_out_ms: float, verdict: str) -> None:
    windows = [CellError("own", "clean", window, 10.0, 10.0, cell_out_ms, 10.0, 10.0, 15.0) for window in range(5)]
    without_guess = CellError("own", "c4_5ms", 16, 10.0, 10.0, 20.0, 10.0)
    sentence = judge_fit([*windows, without_guess])
    error = 10 * cell_out_ms - 100
    assert f"off by {(5 * error + 100) / 6:.3g} % there in the mean, and by {error:.3g} % at the 5 cells" in sentence
    assert verdict in sentence


def test_a_fit_that_nothing_can_be_compared_with_is_not_judged() -> None:
    assert "cannot be compared" in judge_fit([CellError("own", "clean", 16, 10.0, 10.0, NAN, NAN)])


@pytest.mark.parametrize(("slow_ms", "is_plausible"), [(8.0, False), (9.9, True), (12.0, True)])
def test_steps_that_are_faster_on_slow_links_are_not_plausible(slow_ms: float, is_plausible: bool) -> None:
    measured_ms = {"clean": 10.0, "c4_20ms": slow_ms}
    cells = [CellError("own", condition, 16, ms, ms, ms, ms) for condition, ms in measured_ms.items()]
    assert ("Steps under c4_20ms were more than 4% faster than on clean links" in judge_fit(cells)) != is_plausible
