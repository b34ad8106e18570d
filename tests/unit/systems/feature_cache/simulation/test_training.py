"""Training repeats by its seed, stores its policy, and rejects invalid settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.feature_cache.calibration.calibration import products, reddit
from dtdg_lab.systems.feature_cache.policies.learned import CacheDQN, learned_policy
from dtdg_lab.systems.feature_cache.simulation import training as training_module
from dtdg_lab.systems.feature_cache.simulation.cases import CacheCase
from dtdg_lab.systems.feature_cache.simulation.comparison import compare
from dtdg_lab.systems.feature_cache.simulation.training import (
    CURVE,
    PAPER_TRAINING,
    PolicyTraining,
    curve_path,
    state_path,
    train_policy,
    training_costs,
)
from tests.feature_world import view_of
from tests.thinning import thinned

SHORT = PolicyTraining(episodes=24, explored=12, lanes=8, decisions=32, hidden=(16, 16))
THROTTLED = CacheCase("one_slow", "bad", 0.0, 1e7, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("remembers", [False, True])
def test_the_same_seed_gives_the_same_policy_and_another_does_not(remembers: bool) -> None:
    training = replace(SHORT, remembers=remembers, reward="saved" if remembers else "ratio")
    one, two = train_policy(3, training), train_policy(3, training)
    assert one.digest() == two.digest()
    assert np.array_equal(one.parameters, two.parameters)
    other = train_policy(3, replace(training, seed=1))
    assert not np.array_equal(one.parameters, other.parameters)


@pytest.mark.parametrize("parts", thinned([2, 3, 4]))
def test_a_policy_is_learned_for_any_number_of_parts_and_written_down(parts: int, tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    policy = train_policy(parts, SHORT, out=path)
    loaded = learned_policy(parts, file=str(path))
    assert loaded.stored.digest() == policy.digest()
    assert loaded.stored.sizes == (3 * parts + 11, 16, 16, 8 * parts)
    assert loaded.stored.constants == tuple(cost.digest() for cost in training_costs(parts))
    assert products(parts).digest() in loaded.stored.constants
    assert replace(products(parts), base_s=1.0).digest() not in loaded.stored.constants
    assert loaded.stored.training == SHORT.digest() != replace(SHORT, penalty=0.02).digest()


def test_a_policy_that_looks_back_decides_for_many_runs_as_for_one() -> None:
    from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator

    policy = train_policy(4, replace(SHORT, remembers=True))
    simulator = CacheSimulator([reddit()], [THROTTLED], episodes=3, epochs=8, seed=5)
    many, ones = CacheDQN(policy), [CacheDQN(policy) for _ in range(3)]
    for _ in range(2):  # a second run begins anew
        simulator.reset(many.first, number=0)
        decided: list[list[int]] = []
        while not simulator.done.all():
            views = simulator.views()
            chosen = many.decide_all(views)
            assert chosen.tolist() == [one.decide(view_of(views, place)).action for place, one in enumerate(ones)]
            decided.append(chosen.tolist())
            simulator.step(chosen)
    assert len(decided) > 2


@pytest.mark.slow
def test_a_short_training_learns_to_prefer_a_throttled_owner() -> None:
    """Where one of two other parts is often slow, a short training beats chance and the reference window."""
    training = PolicyTraining(
        name="double_dqn_plus",
        episodes=120,
        explored=50,
        lanes=16,
        decisions=8,
        hidden=(32, 32),
        reward="saved",
        discount=0.8,
        remembers=True,
        rate=2e-3,
        last_rate=2e-4,
    )
    case = CacheCase("one_slow", "bad", 0.0, 4e6, 0.1)
    policy = train_policy(3, training, costs=[reddit(3)], cases=[case])
    rows = compare({"learned": CacheDQN(policy)}, [reddit(3)], [case], episodes=6)
    joules = {row.policy: row.joules for row in rows}
    assert joules["learned"] < 0.97 * joules["fixed-16"] < joules["random"], joules


class Killed(Exception):
    """Ends a training in the middle."""


def stop_after(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """Let the next training end with an exception after some rounds of decisions."""
    decide, left = training_module._TrainingRun.decide, iter(range(rounds))

    def counted(run: Any) -> None:
        if next(left, None) is None:
            raise Killed
        decide(run)

    monkeypatch.setattr(training_module._TrainingRun, "decide", counted)


@pytest.mark.parametrize("precision", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_a_resumed_training_gives_the_policy_and_curve_of_an_uninterrupted_one(
    precision: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = replace(SHORT, episodes=24, remembers=True, reward="saved", decisions=8, precision=precision)
    whole, parted = tmp_path / "whole.npz", tmp_path / "parted.npz"
    train_policy(3, training, out=whole)
    for rounds in (12, 30):
        with monkeypatch.context() as patched:
            stop_after(patched, rounds)
            with pytest.raises(Killed):
                train_policy(3, training, out=parted, resume=True, save_s=0.0)
        assert state_path(parted).exists() and not parted.exists()
    train_policy(3, training, out=parted, resume=True)
    assert parted.read_bytes() == whole.read_bytes()
    assert curve_path(parted).read_bytes() == curve_path(whole).read_bytes()
    assert not state_path(parted).exists()
    assert (
        train_policy(3, training, out=parted, resume=True).digest()
        == learned_policy(3, file=str(whole)).stored.digest()
    )


def test_an_unfinished_training_is_not_replaced_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "policy.npz"
    with monkeypatch.context() as patched:
        stop_after(patched, 2)
        with pytest.raises(Killed):
            train_policy(3, SHORT, out=out, save_s=0.0)
    with pytest.raises(ConfigError, match=r"policy\.state\.npz is the state of an unfinished training.*--resume"):
        train_policy(3, SHORT, out=out)
    with pytest.raises(ConfigError, match="other settings"):
        train_policy(3, replace(SHORT, seed=1), out=out, resume=True)
    state_path(out).write_bytes(b"text")
    with pytest.raises(ConfigError, match=r"is not a training's state.*Delete it"):
        train_policy(3, SHORT, out=out, resume=True)
    state_path(out).unlink()
    train_policy(3, SHORT, out=out, resume=True)
    with pytest.raises(ConfigError, match="a policy of another training"):
        train_policy(3, replace(SHORT, seed=1), out=out, resume=True)


def test_the_learning_curve_counts_every_hundred_episodes(tmp_path: Path) -> None:
    out = tmp_path / "policy.npz"
    train_policy(3, replace(SHORT, episodes=104), out=out)
    curve = pd.read_csv(curve_path(out))
    assert tuple(curve) == CURVE and curve["episodes"].tolist() == [100]
    assert (curve["decisions"] * curve["window"]).tolist() == pytest.approx([734], abs=1)  # 750 but the first 16
    assert (curve["return"] / curve["decisions"]).tolist() == pytest.approx(curve["reward"].tolist())
    assert curve["energy_ratio"].between(0.5, 2.0).all() and (curve["reward"] < 0).all()


def test_the_papers_training_has_its_protocol() -> None:
    assert (PAPER_TRAINING.episodes, PAPER_TRAINING.explored, PAPER_TRAINING.discount) == (50_000, 5_000, 0.99)
    assert (PAPER_TRAINING.horizon, PAPER_TRAINING.decisions, PAPER_TRAINING.reward) == ("finite", 1, "ratio")
    assert PAPER_TRAINING.hidden == (256, 256) and PAPER_TRAINING.double
    assert "50,000 episodes, finite horizon, an update for each decision" in PAPER_TRAINING.protocol()


def test_epsilon_and_the_rate_fall_as_they_are_said_to() -> None:
    training = PolicyTraining(episodes=1000, explored=100, epsilon=0.1, rate=1e-3, last_rate=1e-5)
    assert [training.epsilon_at(ended) for ended in (0, 50, 100, 900)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    rates = [training.rate_at(ended) for ended in (0, 500, 750, 1000, 1100)]
    assert rates == pytest.approx([1e-3, 1e-3, 1e-4, 1e-5, 1e-5])


@pytest.mark.parametrize(
    ("wrong", "described"),
    [
        ({"episodes": 0}, "'episodes': 0"),
        ({"lanes": 0}, "'lanes': 0"),
        ({"epsilon": 1.5}, "epsilon=1.5"),
        ({"discount": -0.1}, "discount=-0.1"),
        ({"rate": 1e-6}, "last_rate <= rate"),
    ],
)
def test_invalid_trainings_are_rejected(wrong: dict[str, Any], described: str) -> None:
    with pytest.raises(ConfigError, match=described):
        PolicyTraining(**wrong)


def test_costs_of_other_parts_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"costs of \[4\] parts for a policy of 3"):
        train_policy(3, SHORT, costs=[products()])
