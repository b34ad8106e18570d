"""Training of a cache policy in the simulator, with constants frozen before the first episode."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.files import writable_file
from dtdg_lab.rl.dqn import DISCOUNT, HIDDEN, Array, DoubleDQN, Transitions
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import products, reddit
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.policies.delay_estimator import LatenessMemory, memory_size
from dtdg_lab.systems.feature_cache.policies.interface import state_size
from dtdg_lab.systems.feature_cache.policies.learned import DOUBLE_DQN, DOUBLE_DQN_PLUS, StoredPolicy, save_policy
from dtdg_lab.systems.feature_cache.simulation.cases import ARCHETYPES, PAPER_ARCHETYPES, CacheCase, training_cases
from dtdg_lab.systems.feature_cache.simulation.simulator import REFERENCE, CacheSimulator, StepInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTraining:
    """Settings of a policy's training; together with the constants they determine the result.

    Attributes:
        name: name of the policy.
        seed: seed of weights, random choices and episodes.
        episodes: number of episodes, of about 30 epochs, after which training stops.
        double: True for Double DQN, False for DQN.
        reward: "ratio" is the paper's, -E / E_ref of each decision. "saved" is ours: 1 - E / E_ref per 16 steps of a
            decision, so that rewards sum to the savings of a run.
        horizon: "finite" gives the state after a run's last decision no value, "endless" its learned value.
        discount: gamma, per decision; per 16 steps if the reward is "saved".
        explored: number of episodes over which epsilon decreases linearly.
        epsilon: final probability of a random action; it starts at 1.
        lanes: number of episodes that run in parallel.
        decisions: number of decisions per update of the network.
        rate: Adam's learning rate until half of the episodes have ended.
        last_rate: final learning rate, reached exponentially.
        penalty: lambda.
        hidden: widths of the hidden layers.
        remembers: True if the policy's input includes averages of past delays besides the state.
        archetypes: archetypes of congestion to draw episodes from, if no cases are given.

    Raises:
        ConfigError: a count is below 1, or another number is out of range.

    References: GreenDyGNN section IV-C2: epsilon over 5,000 episodes, gamma 0.99 (see
    :mod:`dtdg_lab.rl.dqn` for the rest). Final epsilon, lambda, the rate and the frequency of updates are not given
    there: ours.

    Differs from the paper: 15,000 episodes, after which its policy is reported to be stable, instead of 50,000; and an
    endless horizon. Every decision earns about -1, so in a run that ends, the policy with the fewest decisions earns
    most: with the paper's finite horizon, ours always chose W = 128.
    """

    name: str = DOUBLE_DQN
    seed: int = 0
    episodes: int = 15_000
    double: bool = True
    reward: Literal["ratio", "saved"] = "ratio"
    horizon: Literal["endless", "finite"] = "endless"
    discount: float = DISCOUNT
    explored: int = 5_000
    epsilon: float = 0.05
    lanes: int = 128
    decisions: int = 16
    rate: float = 5e-4
    last_rate: float = 2e-5
    penalty: float = 0.01
    hidden: tuple[int, ...] = HIDDEN
    remembers: bool = False
    archetypes: tuple[str, ...] = PAPER_ARCHETYPES

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in ("episodes", "explored", "lanes", "decisions")}
        if (
            min(counts.values()) < 1
            or not (0 <= self.epsilon <= 1 and 0 <= self.discount <= 1)
            or not 0 < self.last_rate <= self.rate
        ):
            raise ConfigError(
                f"{counts}, epsilon={self.epsilon}, discount={self.discount}, rate={self.rate}, last_rate="
                f"{self.last_rate}: set counts >= 1, epsilon and discount from 0 to 1, 0 < last_rate <= rate."
            )

    def digest(self) -> str:
        """Return the SHA-256 of all settings."""
        settings = {
            name: value for name, value in asdict(self).items() if name != "archetypes" or value != PAPER_ARCHETYPES
        }
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def epsilon_at(self, ended: int) -> float:
        """Return the probability of a random action after ``ended`` episodes."""
        return max(self.epsilon, 1 - (1 - self.epsilon) * ended / self.explored)

    def rate_at(self, ended: int) -> float:
        """Return Adam's learning rate after ``ended`` episodes."""
        late = max(0.0, 2 * ended / self.episodes - 1)
        return float(self.rate * (self.last_rate / self.rate) ** min(late, 1.0))


SHIPPED_TRAININGS = (
    PolicyTraining(),
    PolicyTraining(
        name=DOUBLE_DQN_PLUS,
        episodes=5_000,
        explored=1_500,
        decisions=4,
        reward="saved",
        discount=0.9,
        rate=1e-3,
        hidden=(64, 64),
        remembers=True,
        archetypes=ARCHETYPES,
    ),
)


def shipped_training(name: str = DOUBLE_DQN) -> PolicyTraining:
    """Return the training of a shipped policy.

    ``double_dqn`` is the paper's, whose reward gives a decision for one step the same weight as one for 128 steps.
    ``double_dqn_plus`` is ours: rewards are weighted by a decision's steps, states have a memory, and the network is
    small.

    Raises:
        UnknownNameError: no policy of this name is shipped.
    """
    for training in SHIPPED_TRAININGS:
        if training.name == name:
            return training
    raise UnknownNameError("learned policy", name, [training.name for training in SHIPPED_TRAININGS])


def training_costs(parts: int) -> tuple[CacheCosts, ...]:
    """Return the constants that the shipped policies are trained with, for P parts."""
    return products(parts), reddit(parts)


def train_policy(
    parts: int,
    training: PolicyTraining | None = None,
    *,
    costs: Sequence[CacheCosts] | None = None,
    cases: Sequence[CacheCase] | None = None,
    out: Path | None = None,
    progress: bool = False,
) -> StoredPolicy:
    """Train a policy for P parts, and write it to a file if one is given.

    The digests of the constants are taken before the first episode. On one machine, equal arguments give equal
    policies.

    Args:
        parts: P, 2 or more.
        training: settings; the paper's if None.
        costs: the simulator's constants; :func:`training_costs` if None.
        cases: congestion; the archetypes of ``training`` at the severities of training if None.
        out: file to write.
        progress: show a progress bar.

    Raises:
        ConfigError: the costs are for another number of parts.
    """
    from dtdg_lab.kernels.torch_defaults import torch_defaults  # what only shows policies works without torch

    out = None if out is None else writable_file(out, "out", ConfigError)
    training = training or PolicyTraining()
    costs = tuple(costs or training_costs(parts))
    if {cost.parts for cost in costs} != {parts}:
        raise ConfigError(
            f"costs of {sorted({cost.parts for cost in costs})} parts for a policy of {parts}. Give equal numbers."
        )
    frozen = tuple(cost.digest() for cost in costs)
    simulator = CacheSimulator(
        costs,
        tuple(cases or training_cases(training.archetypes)),
        episodes=training.lanes,
        seed=training.seed,
        penalty=training.penalty,
        restart=True,
    )
    with torch_defaults(), tqdm(total=training.episodes, unit="episode", disable=not progress) as bar:
        learner = _train(simulator, training, parts, bar)
    copied_fields = ("name", "seed", "episodes", "double", "hidden", "remembers")
    policy = StoredPolicy(
        **{name: getattr(training, name) for name in copied_fields},
        parts=parts,
        constants=frozen,
        training=training.digest(),
        parameters=learner.online.parameters.astype(np.float32),
    )
    if out is not None:
        save_policy(out, policy)
    return policy


def _train(simulator: CacheSimulator, training: PolicyTraining, parts: int, bar: tqdm[NoReturn]) -> DoubleDQN:
    """Train a learner on all episodes."""
    memory = LatenessMemory(training.lanes, parts)
    inputs = state_size(parts) + (memory_size(parts) if training.remembers else 0)
    learner = DoubleDQN(
        inputs, len(CacheActions(parts)), seed=training.seed, double=training.double, hidden=training.hidden
    )

    def with_memory(states: NDArray[np.float32], steps: NDArray[np.int64]) -> NDArray[np.float32]:
        return memory.take_in(states, steps) if training.remembers else states

    states = with_memory(simulator.reset(), np.zeros(training.lanes, dtype=np.int64))
    ended, owed, earned = 0, 0, 0.0
    while ended < training.episodes:
        actions = learner.choose(states, training.epsilon_at(ended))
        begun, rewards, done, info = simulator.step(actions)
        follows = np.full(training.lanes, training.discount)
        if training.reward == "saved":
            rewards, follows = _savings(info, training)
        if training.horizon == "finite":
            follows[done] = 0.0
        after = with_memory(info.final_states, info.passed)
        learner.remember(Transitions(states, actions, _float32(rewards), after, _float32(follows)))
        owed += training.lanes
        for _ in range(owed // training.decisions):
            learner.learn(training.rate_at(ended))
        owed %= training.decisions
        states = after
        if done.any():
            memory.forget(done)
            states = np.where(done[:, np.newaxis], with_memory(begun, np.zeros_like(info.steps)), after)
        earned += 0.01 * (float(rewards.mean()) - earned)
        ended += int(done.sum())
        if done.any():
            bar.set_postfix_str(f"reward {earned:.3f}", refresh=False)
            bar.update(min(int(done.sum()), training.episodes - bar.n))
    return learner


def _float32(values: Array) -> NDArray[np.float32]:
    return values.astype(np.float32)


def _savings(info: StepInfo, training: PolicyTraining) -> tuple[Array, Array]:
    """Return the (B,) discounted savings per 16 steps of each decision, and the discount of later rewards."""
    lasted = info.steps / REFERENCE
    follows = training.discount**lasted
    weights = (1 - follows) / (1 - training.discount) if training.discount < 1 else lasted
    saved = 1 - info.joules / np.where(info.steps > 0, info.reference_j, 1.0)
    return saved * weights - training.penalty * info.changed, follows
