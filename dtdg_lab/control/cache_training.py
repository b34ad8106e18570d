"""Learns a cache policy in the simulator, from constants that are frozen before the first episode."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_cases import ARCHETYPES, PAPER_ARCHETYPES, CacheCase, training_cases
from dtdg_lab.control.cache_costs import CacheCosts
from dtdg_lab.control.cache_dqn import DOUBLE_DQN, DOUBLE_DQN_PLUS
from dtdg_lab.control.cache_memory import LatenessMemory, memory_size
from dtdg_lab.control.cache_simulator import REFERENCE, CacheSimulator, StepInfo
from dtdg_lab.control.cache_state import state_size
from dtdg_lab.control.double_dqn import DISCOUNT, HIDDEN, DoubleDQN
from dtdg_lab.control.policy_files import StoredPolicy, save_policy
from dtdg_lab.control.q_network import Array
from dtdg_lab.control.shipped_costs import products, reddit
from dtdg_lab.control.transitions import Transitions
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.feature_path import CacheActions


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTraining:
    """How a policy is learned: with the constants, everything that decides what comes out.

    Attributes:
        name: of the policy.
        seed: of weights, draws and episodes.
        episodes: of 30 epochs, about: those that have begun when so many have ended go on no more.
        double: Double DQN; False for DQN.
        reward: "ratio" is the paper's, -E / E_ref of each decision. "saved" is ours: 1 - E / E_ref of every 16 steps
            that a decision holds for, so that what is earned adds up to what a run saves.
        horizon: "finite" lets nothing follow the last decision of a run, "endless" what its state is worth.
        discount: gamma, of a decision; of 16 steps where the reward is "saved".
        explored: episodes over which epsilon falls, in a line.
        epsilon: probability of a drawn action from then on; 1 at first.
        lanes: episodes that go on side by side.
        decisions: for each update of the network.
        rate: Adam's learning rate until half of the episodes have ended.
        last_rate: what it falls to, in a line of its logarithm, at the end.
        penalty: lambda.
        hidden: widths of the hidden layers.
        remembers: tell the policy how late owners have been for a while, beside the state.
        archetypes: of congestion that episodes are drawn from, where no cases are given.

    Raises:
        ConfigError: a count below 1, or another number out of its bounds.

    References: GreenDyGNN section IV-C2: epsilon over 5,000 episodes, gamma 0.99 (see
    :mod:`dtdg_lab.control.double_dqn` for the rest). Epsilon's end, lambda, the rate and how often is learned are not
    given there: ours.

    Differs from the paper: 15,000 episodes, after which its policy is said to change no more, not 50,000; and an
    endless horizon. Where every decision earns about -1 and a run ends, the policy that decides least often earns most:
    with the paper's finite horizon ours took W = 128 always.
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
                f"{counts}, epsilon={self.epsilon}, discount={self.discount}, rates {self.rate} to {self.last_rate}: "
                "counts must be 1 or more, epsilon and discount from 0 to 1, and the rate above 0 and never rising."
            )

    def digest(self) -> str:
        """SHA-256 of all of it."""
        told = {name: of for name, of in asdict(self).items() if name != "archetypes" or of != PAPER_ARCHETYPES}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def epsilon_at(self, ended: int) -> float:
        """Probability of a drawn action when so many episodes have ended."""
        return max(self.epsilon, 1 - (1 - self.epsilon) * ended / self.explored)

    def rate_at(self, ended: int) -> float:
        """Adam's learning rate when so many episodes have ended."""
        late = max(0.0, 2 * ended / self.episodes - 1)
        return float(self.rate * (self.last_rate / self.rate) ** min(late, 1.0))


SHIPPED_TRAININGS = (
    PolicyTraining(),
    PolicyTraining(
        name=DOUBLE_DQN_PLUS, episodes=5_000, explored=1_500, decisions=4, reward="saved", discount=0.9, rate=1e-3,
        hidden=(64, 64), remembers=True, archetypes=ARCHETYPES,
    ),
)  # fmt: skip


def shipped_training(name: str = DOUBLE_DQN) -> PolicyTraining:
    """How the policy of a name that comes with the lab was learned.

    ``double_dqn`` is the paper's, whose reward counts a decision for one step as much as one for 128.
    ``double_dqn_plus`` is ours: what a decision earns is counted by the steps that it holds for, states look back, and
    the network is small.

    Raises:
        UnknownNameError: there is none of that name.
    """
    for training in SHIPPED_TRAININGS:
        if training.name == name:
            return training
    raise UnknownNameError("learned policy", name, [training.name for training in SHIPPED_TRAININGS])


def training_costs(parts: int) -> tuple[CacheCosts, ...]:
    """Constants that the shipped policies are learned with, for P parts."""
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
    """Learn a policy for P parts, and write it to a file where one is named.

    The digests of the constants are taken before the first episode; the same arguments give the same policy.

    Args:
        parts: P, 2 or more.
        training: how; as the paper's where None.
        costs: the simulator's constants; those of :func:`training_costs` where None.
        cases: congestion to learn under; the training's archetypes at the severities of training where None.
        out: the file.
        progress: show a bar with the time that is left.

    Raises:
        ConfigError: costs of another number of parts.
    """
    training = training or PolicyTraining()
    costs = tuple(costs or training_costs(parts))
    if {cost.parts for cost in costs} != {parts}:
        raise ConfigError(
            f"costs of {sorted({cost.parts for cost in costs})} parts for a policy of {parts}: give others."
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
    with _bar(training.episodes, shown=progress) as advance:
        learner = _learned(simulator, training, parts, advance)
    policy = StoredPolicy(
        name=training.name,
        parts=parts,
        seed=training.seed,
        episodes=training.episodes,
        double=training.double,
        hidden=training.hidden,
        remembers=training.remembers,
        constants=frozen,
        training=training.digest(),
        parameters=learner.online.parameters.astype(np.float32),
    )
    if out is not None:
        save_policy(out, policy)
    return policy


def _learned(
    simulator: CacheSimulator, training: PolicyTraining, parts: int, advance: Callable[[int, float], None]
) -> DoubleDQN:
    """A learner that has lived through all episodes."""
    memory = LatenessMemory(training.lanes, parts)
    inputs = state_size(parts) + (memory_size(parts) if training.remembers else 0)
    learner = DoubleDQN(
        inputs, len(CacheActions(parts)), seed=training.seed, double=training.double, hidden=training.hidden
    )

    def told(states: NDArray[np.float32], steps: NDArray[np.int64]) -> NDArray[np.float32]:
        return memory.take_in(states, steps) if training.remembers else states

    states = told(simulator.reset(), np.zeros(training.lanes, dtype=np.int64))
    ended, owed, earned = 0, 0, 0.0
    while ended < training.episodes:
        actions = learner.choose(states, training.epsilon_at(ended))
        begun, rewards, done, info = simulator.step(actions)
        follows = np.full(training.lanes, training.discount)
        if training.reward == "saved":
            rewards, follows = _saved(info, training)
        if training.horizon == "finite":
            follows[done] = 0.0
        after = told(info.final_states, info.passed)
        learner.remember(Transitions(states, actions, _short(rewards), after, _short(follows)))
        owed += training.lanes
        for _ in range(owed // training.decisions):
            learner.learn(training.rate_at(ended))
        owed %= training.decisions
        states = after
        if done.any():
            memory.forget(done)
            states = np.where(done[:, np.newaxis], told(begun, np.zeros_like(info.steps)), after)
        earned += 0.01 * (float(rewards.mean()) - earned)
        ended += int(done.sum())
        advance(int(done.sum()), earned)
    return learner


def _short(values: Array) -> NDArray[np.float32]:
    return values.astype(np.float32)


def _saved(info: StepInfo, training: PolicyTraining) -> tuple[Array, Array]:
    """(B,) what was saved while the decisions held, discounted by 16 steps, and by how much what follows counts."""
    lasted = info.steps / REFERENCE
    follows = training.discount**lasted
    weights = (1 - follows) / (1 - training.discount) if training.discount < 1 else lasted
    saved = 1 - info.joules / np.where(info.steps > 0, info.reference_j, 1.0)
    return saved * weights - training.penalty * info.changed, follows


@contextmanager
def _bar(episodes: int, *, shown: bool) -> Iterator[Callable[[int, float], None]]:
    """What to call with episodes that have ended and the mean reward of late."""
    from tqdm.auto import tqdm

    with tqdm(total=episodes, unit="episode", disable=not shown) as bar:

        def advance(count: int, earned: float) -> None:
            if count:
                bar.set_postfix_str(f"reward {earned:.3f}", refresh=False)
                bar.update(min(count, episodes - bar.n))

        yield advance
