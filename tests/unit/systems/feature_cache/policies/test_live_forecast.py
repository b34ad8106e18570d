"""The live forecast follows the times of recent fetches."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.pipeline.window_schedule import Outlook
from dtdg_lab.systems.feature_cache.policies.live_forecast import LiveForecast

ROW_BYTES, START_S = 400, 1e-3


class Fetch:
    def __init__(self, owner: int, nbytes: int, rtt_s: float) -> None:
        self.owner, self.nbytes, self.rtt_s = owner, nbytes, rtt_s


class Heard:
    """A boundary of part 0 of 2, after fetches of a few and of many rows."""

    part = 0

    def __init__(self, per_byte: float, delay_s: float) -> None:
        sizes = [ROW_BYTES * rows for rows in (10, 50, 200, 800, 3000)] * 8
        self.fetches = tuple(Fetch(1, size, START_S + delay_s + per_byte * size) for size in sizes)


class Ahead:
    """Batches of which a window of W steps misses 10 W rows a step, and whose rebuild fetches 100."""

    steps, capacity = 128, 1000

    def outlook(self, window: int, shares: np.ndarray) -> Outlook:
        return Outlook(window, np.array([1e4]), np.array([10.0 * window]), np.array([100.0]), 0)


def law(window: int, per_byte: float, delay_s: float) -> float:
    missed, fetched = 10.0 * window, 100.0
    miss_s, rebuild_s = (START_S + delay_s + per_byte * ROW_BYTES * rows for rows in (missed, fetched))
    return max(1e-3, miss_s, rebuild_s / window)


@pytest.mark.parametrize(("per_byte", "delay_s"), [(1e-9, 0.0), (1e-9, 0.02), (6.4e-7, 0.0), (6.4e-7, 0.01)])
def test_the_forecast_follows_recent_fetches(per_byte: float, delay_s: float) -> None:
    actions = CacheActions(2)
    forecast = LiveForecast(actions, row_bytes=ROW_BYTES)
    forecast.observe(Heard(1e-9, 0.0))
    assert forecast.predict(Ahead(), base_s=1e-3, late_s=np.zeros(1)) is not None
    for _ in range(2):  # so that nothing of before is left among the recent ones
        forecast.observe(Heard(per_byte, delay_s))
    late_s = np.array([delay_s + per_byte * 200 * ROW_BYTES if per_byte > 1e-8 else delay_s])  # as an estimator hears
    prediction = forecast.predict(Ahead(), base_s=1e-3, late_s=late_s)
    assert prediction is not None
    found = prediction.steps(late_s)
    for action in range(len(actions)):
        window = actions.window(action)
        start_s = (START_S + delay_s) / window  # what a rebuild costs training
        assert found[action] == pytest.approx(law(window, per_byte, delay_s) + start_s, rel=0.05)
    free = prediction.steps(np.zeros(1))
    assert (free <= found + 1e-9).all(), "links that recover cost no more"


def test_the_processor_time_of_decisions_makes_short_windows_dear() -> None:
    actions, cpu_s = CacheActions(2), 0.016
    forecast = LiveForecast(actions, row_bytes=ROW_BYTES)
    forecast.observe(Heard(1e-9, 0.0))
    without, with_it = (
        forecast.predict(Ahead(), base_s=1e-3, late_s=np.zeros(1), decision_cpu_s=seconds) for seconds in (0.0, cpu_s)
    )
    assert without is not None and with_it is not None
    windows = np.array([actions.window(action) for action in range(len(actions))])
    np.testing.assert_allclose(with_it.steps(np.zeros(1)) - without.steps(np.zeros(1)), cpu_s / windows)


def test_batches_are_counted_anew_at_decisions_alone() -> None:
    """Counting at every reconsideration took a quarter of all processor time."""

    class Counting(Ahead):
        outlooks = 0

        def outlook(self, window: int, shares: np.ndarray) -> Outlook:
            self.outlooks += 1
            return super().outlook(window, shares)

    forecast, ahead = LiveForecast(CacheActions(2), row_bytes=ROW_BYTES), Counting()
    forecast.observe(Heard(1e-9, 0.0))
    found = []
    for recounts in (False, False, True):
        prediction = forecast.predict(ahead, base_s=1e-3, late_s=np.zeros(1), recounts=recounts)
        assert prediction is not None
        found.append((prediction.steps(np.zeros(1)).tolist(), ahead.outlooks))
    (first, once), (second, still_once), (third, twice) = found
    assert first == second == third and once == still_once and twice == 2 * once
    ahead.capacity = 2000  # changed while training
    larger = forecast.predict(ahead, base_s=1e-3, late_s=np.zeros(1), recounts=False)
    assert larger is not None and larger.steps(np.zeros(1)).tolist() == first and ahead.outlooks == 3 * once


def test_the_clean_line_is_that_of_the_fastest_fetches() -> None:
    forecast = LiveForecast(CacheActions(2), row_bytes=ROW_BYTES)
    assert forecast.clean_line() is None
    forecast.observe(Heard(2e-9, 0.0))
    forecast.predict(Ahead(), base_s=1e-3, late_s=np.zeros(1))
    forecast.observe(Heard(5e-7, 0.03))
    forecast.predict(Ahead(), base_s=1e-3, late_s=np.array([0.03]))
    start_s, per_byte = forecast.clean_line() or (0.0, 0.0)
    assert start_s == pytest.approx(START_S, rel=0.1) and per_byte == pytest.approx(2e-9, rel=0.1)
