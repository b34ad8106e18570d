"""Predicted times of stretches and exchanges: the prior, what is learned, and states that go on."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.engine.exchange.task_times import FEATURES, TaskTimePredictor, task_features

COMPUTE = task_features("compute", rows=1000, edges=9000, width=32)
SEND = task_features("communicate", rows=1000, width=32, sent_bytes=128_000)


def a_step(step: int, *, noise: float = 0.0) -> tuple[Any, Any]:
    """Features of 8 stretches and 4 exchanges of all sizes, and what they take on a machine far from the prior."""
    rng = generator(step, "test/task times")
    rows = []
    for _ in range(8):
        count = 10 ** rng.uniform(2, 5)
        rows.append(task_features("compute", rows=count, edges=count * rng.uniform(2, 20), width=rng.choice([2, 64])))
    for _ in range(4):
        count, width = 10 ** rng.uniform(2, 4), rng.choice([2, 32])
        rows.append(task_features("communicate", rows=count, width=width, sent_bytes=4 * count * width))
    features = np.array(rows)
    bent = 1 + (features[:, 1] > 1e5)  # as where the rows of the neighbours no longer fit a cache
    computing = 3e-4 + 8e-9 * features[:, 0] * features[:, 2] + 2.5e-9 * bent * features[:, 1] * features[:, 2]
    sending = 1.5e-3 + features[:, 3] / 2e8
    seconds = np.where(features[:, 5] == 1, sending, computing)
    return features, seconds * np.exp(noise * rng.normal(size=len(rows)))


def trained(steps: int, *, seed: int = 0, noise: float = 0.0) -> TaskTimePredictor:
    predictor = TaskTimePredictor(seed)
    for step in range(steps):
        predictor.observe(*a_step(step, noise=noise))
    return predictor


def test_before_any_observation_it_is_the_prior() -> None:
    found = TaskTimePredictor(3).predict([COMPUTE, SEND])
    np.testing.assert_allclose(found, [5e-5 + 1e-9 * 10_000 * 32, 2e-4 + 1e-9 * 128_000], rtol=1e-12)
    assert TaskTimePredictor().error() is None


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_learns_what_a_machine_takes(seed: int) -> None:
    features, seconds = a_step(10_000)
    before = np.abs(TaskTimePredictor(seed).predict(features) / seconds - 1)
    predictor = trained(120, seed=seed)
    after = np.abs(predictor.predict(features) / seconds - 1)
    assert np.median(before) > 0.5 and np.median(after) < 0.06 and after.max() < 0.35
    assert predictor.error("compute") < 0.12 and predictor.error("communicate") < 0.12


def test_a_constant_offset_is_learned_within_a_few_steps() -> None:
    predictor = TaskTimePredictor()
    for _ in range(20):
        predictor.observe([COMPUTE, SEND], [0.05, 0.002])
    np.testing.assert_allclose(predictor.predict([COMPUTE, SEND]), [0.05, 0.002], rtol=0.25)


def test_it_follows_a_machine_that_becomes_slower() -> None:
    predictor = trained(120)
    features, seconds = a_step(10_000)
    for step in range(120, 260):
        sizes, took = a_step(step)
        predictor.observe(sizes, 5 * took)
    assert np.median(np.abs(predictor.predict(features) / (5 * seconds) - 1)) < 0.1


def test_noise_is_not_learned() -> None:
    features, seconds = a_step(10_000)
    found = trained(200, noise=0.2).predict(features)
    assert np.median(np.abs(found / seconds - 1)) < 0.1


def test_times_in_a_bad_moment_do_not_bend_it() -> None:
    predictor = trained(120)
    for step in range(120, 220):
        sizes, took = a_step(step)
        took[step % 12] *= 100
        predictor.observe(sizes, took)
    features, seconds = a_step(10_000)
    assert np.median(np.abs(predictor.predict(features) / seconds - 1)) < 0.25


def test_the_error_is_that_of_predictions_made_before_learning() -> None:
    predictor = TaskTimePredictor()
    prior = predictor.predict([COMPUTE])[0]
    predictor.observe([COMPUTE], [2 * prior])
    assert predictor.error() == pytest.approx(0.5) == predictor.error("compute")
    assert predictor.error("communicate") is None
    described = predictor.predict([SEND, COMPUTE])
    predictor.observe([SEND, COMPUTE], [4 * described[0], described[1]])
    assert predictor.error("communicate") == pytest.approx(0.75)
    assert predictor.error() == pytest.approx(0.5), "the median of 0.5, 0.75 and 0"


def test_it_learns_whatever_many_come_at_once() -> None:
    predictor = TaskTimePredictor()
    predictor.observe(np.tile(COMPUTE, (2_000, 1)), np.full(2_000, 0.01))
    predictor.observe(np.empty((0, len(FEATURES))), [])
    assert len(predictor.state_dict()["kept"]) == len(predictor.state_dict()["errors"]) == 512
    assert predictor.predict(np.empty((0, len(FEATURES)))).shape == (0,)


def test_only_the_newest_observations_are_kept() -> None:
    predictor = TaskTimePredictor()
    for step in range(60):
        predictor.observe(*a_step(step))
    kept = np.array(predictor.state_dict()["kept"])
    assert kept.shape == (512, len(FEATURES) + 1)
    newest = TaskTimePredictor()
    newest.observe(*a_step(59))
    described = {tuple(row) for row in kept.tolist()}
    assert all(tuple(row) in described for row in newest.state_dict()["kept"])
    first = TaskTimePredictor()
    first.observe(*a_step(0))
    assert not any(tuple(row) in described for row in first.state_dict()["kept"])


@pytest.mark.parametrize("steps", [0, 5, 60])
def test_a_state_goes_on_bit_for_bit(steps: int) -> None:
    predictor = trained(steps)
    other = trained(3, seed=9)
    other.load_state_dict(json.loads(json.dumps(predictor.state_dict())))
    for step in range(steps, steps + 10):
        features, seconds = a_step(step)
        np.testing.assert_array_equal(other.predict(features), predictor.predict(features))
        assert other.error() == predictor.error()
        predictor.observe(features, seconds)
        other.observe(features, seconds)
    assert other.state_dict() == predictor.state_dict()


def test_a_state_is_not_changed_by_what_is_learned_after_it() -> None:
    predictor = trained(4)
    state = predictor.state_dict()
    before = json.dumps(state)
    predictor.observe(*a_step(4))
    assert json.dumps(state) == before != json.dumps(predictor.state_dict())


def test_the_seed_draws_the_first_weights() -> None:
    one, same, other = (trained(10, seed=seed).predict([COMPUTE])[0] for seed in (0, 0, 1))
    assert one == same != other


def test_predictions_stay_finite_whatever_was_seen() -> None:
    predictor = TaskTimePredictor()
    for _ in range(100):
        predictor.observe([COMPUTE, SEND], [0.0, 1e6])
    found = predictor.predict([COMPUTE, SEND, task_features("compute", rows=1e12, edges=1e15, width=1e6)])
    assert np.isfinite(found).all() and (found > 0).all()


@pytest.mark.parametrize(
    ("features", "said"),
    [(COMPUTE, "shape"), ([COMPUTE[:5]], "shape"), ([(-1.0, *COMPUTE[1:])], "at least 0"),
     ([(float("nan"), *COMPUTE[1:])], "at least 0"), ([(*COMPUTE[:4], 1, 1)], "one kind"),
     ([(*COMPUTE[:4], 0, 0)], "one kind"), ([(*COMPUTE[:4], 0.5, 0.5)], "one kind")],
)  # fmt: skip
def test_features_that_are_none_are_refused(features: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        TaskTimePredictor().predict(features)


@pytest.mark.parametrize("seconds", [[1.0, 2.0], [-1.0], [float("nan")], [float("inf")], []])
def test_times_that_are_none_are_refused_and_nothing_is_learned(seconds: list[float]) -> None:
    predictor = TaskTimePredictor()
    with pytest.raises(PlanError, match="finite and at least 0 s"):
        predictor.observe([COMPUTE], seconds)
    assert predictor.state_dict() == TaskTimePredictor().state_dict()


def test_a_kind_that_is_none_and_a_state_of_another_shape_are_refused() -> None:
    with pytest.raises(PlanError, match="compute, communicate"):
        task_features("wait")
    predictor = TaskTimePredictor()
    with pytest.raises(PlanError, match="another version"):
        predictor.load_state_dict({**predictor.state_dict(), "weights": [0.0]})
