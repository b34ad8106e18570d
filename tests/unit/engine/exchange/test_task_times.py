"""Predicted times of computing stretches and exchanges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.engine.exchange.task_times import FEATURES, TaskTimePredictor, task_features

COMPUTE = task_features("compute", rows=1000, edges=9000, width=32)
SEND = task_features("communicate", rows=1000, width=32, sent_bytes=128_000)


def measured_step(step: int, *, noise: float = 0.0) -> tuple[Any, Any]:
    """Return features of 8 stretches and 4 exchanges, and their seconds on a machine far from the prior."""
    rng = generator(step, "test/task times")
    rows = []
    for _ in range(8):
        count = 10 ** rng.uniform(2, 5)
        rows.append(task_features("compute", rows=count, edges=count * rng.uniform(2, 20), width=rng.choice([2, 64])))
    for _ in range(4):
        count, width = 10 ** rng.uniform(2, 4), rng.choice([2, 32])
        rows.append(task_features("communicate", rows=count, width=width, sent_bytes=4 * count * width))
    features = np.array(rows)
    misses = 1 + (features[:, 1] > 1e5)  # the rows of the neighbours no longer fit a cache
    compute_s = 3e-4 + 8e-9 * features[:, 0] * features[:, 2] + 2.5e-9 * misses * features[:, 1] * features[:, 2]
    communicate_s = 1.5e-3 + features[:, 3] / 2e8
    seconds = np.where(features[:, 5] == 1, communicate_s, compute_s)
    return features, seconds * np.exp(noise * rng.normal(size=len(rows)))


def fitted(steps: int, *, noise: float = 0.0) -> TaskTimePredictor:
    predictor = TaskTimePredictor()
    for step in range(steps):
        predictor.observe(*measured_step(step, noise=noise))
    return predictor


def median_error(predictor: TaskTimePredictor, *, slower: float = 1.0) -> float:
    features, seconds = measured_step(10_000)
    return float(np.median(np.abs(predictor.predict(features) / (slower * seconds) - 1)))


def test_before_any_observation_the_prior_is_predicted() -> None:
    predicted_s = TaskTimePredictor().predict([COMPUTE, SEND])
    np.testing.assert_allclose(predicted_s, [5e-5 + 1e-9 * 10_000 * 32, 2e-4 + 1e-9 * 128_000], rtol=1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_times_of_a_machine_are_learned_with_and_without_noise(noise: float) -> None:
    assert median_error(TaskTimePredictor()) > 0.5 and median_error(fitted(120, noise=noise)) < 0.2


def test_a_constant_offset_is_learned_within_a_few_steps() -> None:
    predictor = TaskTimePredictor()
    for _ in range(20):
        predictor.observe([COMPUTE, SEND], [0.05, 0.002])
    np.testing.assert_allclose(predictor.predict([COMPUTE, SEND]), [0.05, 0.002], rtol=0.25)


def test_a_machine_that_becomes_slower_is_followed() -> None:
    predictor = fitted(120)
    for step in range(120, 260):
        features, seconds = measured_step(step)
        predictor.observe(features, 5 * seconds)
    assert median_error(predictor, slower=5.0) < 0.2


def test_outliers_do_not_bend_the_fit() -> None:
    predictor = fitted(120)
    for step in range(120, 220):
        features, seconds = measured_step(step)
        seconds[step % 12] *= 100
        predictor.observe(features, seconds)
    assert median_error(predictor) < 0.25


def test_observations_beyond_the_newest_are_forgotten() -> None:
    forgetful, fresh = fitted(60), TaskTimePredictor()
    for predictor in (forgetful, fresh):
        predictor.observe(np.tile(COMPUTE, (512, 1)), np.full(512, 0.01))
    assert forgetful.predict([COMPUTE, SEND]).tolist() == fresh.predict([COMPUTE, SEND]).tolist()


def test_no_tasks_have_no_times() -> None:
    predictor = TaskTimePredictor()
    predictor.observe(np.empty((0, len(FEATURES))), [])
    assert predictor.predict(np.empty((0, len(FEATURES)))).shape == (0,)


@pytest.mark.parametrize(
    ("features", "seconds", "message"),
    [
        ([COMPUTE], [[0.1]], "give each task one time"),
        ([COMPUTE], [0.1, 0.1], "give each task one time"),
        ([COMPUTE], [-0.1], "give each task one time"),
        ([COMPUTE], [float("nan")], "give each task one time"),
        ([COMPUTE[:5]], [0.1], "give (n, 6)"),
        ([(-1.0, *COMPUTE[1:])], [0.1], "at least 0"),
        ([(float("inf"), *COMPUTE[1:])], [0.1], "at least 0"),
        ([(*COMPUTE[:5], 1.0)], [0.1], "one kind"),
    ],
)
def test_unusable_features_and_times_are_refused(features: Any, seconds: Any, message: str) -> None:
    with pytest.raises(PlanError) as error:
        TaskTimePredictor().observe(features, seconds)
    assert message in str(error.value)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(PlanError, match="the kinds are compute, communicate"):
        task_features("rest")
