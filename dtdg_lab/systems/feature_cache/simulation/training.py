"""Training of a cache policy in the simulator, with constants frozen before the first episode."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.files import read_arrays, replacing, writable_file, write_arrays
from dtdg_lab.core.system_errors import reading
from dtdg_lab.rl.dqn import DISCOUNT, HIDDEN, Array, DoubleDQN, Transitions
from dtdg_lab.systems.feature_cache.actions import CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import products, reddit
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.policies.delay_estimator import LatenessMemory, memory_size
from dtdg_lab.systems.feature_cache.policies.interface import state_size
from dtdg_lab.systems.feature_cache.policies.learned import (
    DOUBLE_DQN,
    DOUBLE_DQN_PLUS,
    StoredPolicy,
    load_policy,
    save_policy,
)
from dtdg_lab.systems.feature_cache.simulation.cases import ARCHETYPES, PAPER_ARCHETYPES, CacheCase, training_cases
from dtdg_lab.systems.feature_cache.simulation.simulator import REFERENCE, CacheSimulator, StepInfo

SAVE_S = 60.0
CURVE_EPISODES = 100
# episodes so far; means of an episode: decisions, sum of rewards; of a decision: reward, steps; joules over those with
# W = 16, evenly shared; epsilon
CURVE = ("episodes", "decisions", "return", "reward", "window", "energy_ratio", "epsilon")


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
        precision: of the network while it learns; "float32" takes half of the time.

    Raises:
        ConfigError: a count is below 1, or another number is out of range.

    References: GreenDyGNN section IV-C2: epsilon over 5,000 episodes, gamma 0.99 (see
    :mod:`dtdg_lab.rl.dqn` for the rest). Final epsilon, lambda, the rate and the frequency of updates are not given
    there: ours.

    Differs from the paper: the defaults are those of the shipped ``double_dqn``. It has 15,000 episodes, after which
    the paper's policy is reported to be stable, instead of 50,000; an endless horizon; and an update for 16 decisions.
    :data:`PAPER_TRAINING` has the paper's. There every decision earns about -1, so in a run that ends, the policy with
    the fewest decisions earns most.
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
    precision: Literal["float64", "float32"] = "float64"

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
        later = {"archetypes": PAPER_ARCHETYPES, "precision": "float64"}  # defaults, left out of digests
        settings = {name: value for name, value in asdict(self).items() if value != later.get(name)}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def protocol(self) -> str:
        """Return what distinguishes trainings, in words."""
        every = "an update for each decision" if self.decisions == 1 else f"an update for {self.decisions} decisions"
        return f"{self.episodes:,} episodes, {self.horizon} horizon, {every}, reward {self.reward}, seed {self.seed}"

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

PAPER_TRAINING = replace(
    SHIPPED_TRAININGS[0], episodes=50_000, horizon="finite", decisions=1, lanes=16, precision="float32"
)


def shipped_training(name: str = DOUBLE_DQN) -> PolicyTraining:
    """Return the training of a shipped policy.

    ``double_dqn`` is a shorter training of the paper's, with an endless horizon (see :class:`PolicyTraining`). Its
    reward gives a decision for one step the same weight as one for 128 steps. ``double_dqn_plus`` is ours: rewards are
    weighted by a decision's steps, states have a memory, and the network is small.

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
    resume: bool = False,
    save_s: float = SAVE_S,
    progress: bool = False,
) -> StoredPolicy:
    """Train a policy for P parts, and write it to a file if one is given, with its learning curve beside it.

    The digests of the constants are taken before the first episode. On one machine, equal arguments give equal
    policies. With a file, the state of the training is kept beside it until the training is finished: a process may
    be killed at any moment, and ``resume`` continues with the same result, bit for bit.

    Args:
        parts: P, 2 or more.
        training: settings; those of the shipped ``double_dqn`` if None.
        costs: the simulator's constants; :func:`training_costs` if None.
        cases: congestion; the archetypes of ``training`` at the severities of training if None.
        out: file to write; see :func:`curve_path` and :func:`state_path` for those beside it.
        resume: continue an unfinished training of ``out``, or return its policy if it is finished.
        save_s: seconds between two saved states.
        progress: show a progress bar.

    Raises:
        ConfigError: the costs are for another number of parts, or ``out`` belongs to another training.
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
    cases = tuple(cases or training_cases(training.archetypes))
    identity = json.dumps([asdict(training), list(frozen), [repr(case) for case in cases]])
    if out is not None and resume and out.exists():
        return _finished(out, training, frozen)
    with torch_defaults(), tqdm(total=training.episodes, unit="episode", disable=not progress) as bar:
        run = _TrainingRun(training, parts, costs, cases)
        if out is not None:
            _load_state(run, state_path(out), identity, resume=resume)
        saved_s = time.monotonic()
        while run.ended < training.episodes:
            bar.update(min(run.ended, training.episodes) - bar.n)
            run.decide()
            if out is not None and time.monotonic() - saved_s >= save_s:
                write_arrays(state_path(out), {**run.state_dict(), "identity": np.array(identity)})
                saved_s = time.monotonic()
        bar.update(training.episodes - bar.n)
    copied_fields = ("name", "seed", "episodes", "double", "hidden", "remembers")
    policy = StoredPolicy(
        **{name: getattr(training, name) for name in copied_fields},
        parts=parts,
        constants=frozen,
        training=training.digest(),
        parameters=run.learner.online.parameters.astype(np.float32),
        protocol=training.protocol(),
    )
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(curve_path(out)) as draft:
            run.curve().to_csv(draft, index=False)
        save_policy(out, policy)
        state_path(out).unlink(missing_ok=True)
    return policy


def curve_path(out: Path) -> Path:
    """Return the path of the learning curve of a policy's file."""
    return out.with_suffix(".curve.csv")


def state_path(out: Path) -> Path:
    """Return the path of the state of an unfinished training, beside the policy's future file."""
    return out.with_suffix(".state.npz")


def _finished(out: Path, training: PolicyTraining, constants: tuple[str, ...]) -> StoredPolicy:
    """Return the policy of a finished training.

    Raises:
        ConfigError: the file is not a policy, or belongs to another training.
    """
    policy = load_policy(out)
    if (policy.training, policy.constants) != (training.digest(), constants):
        raise ConfigError(f"{out} is a policy of another training. Choose another file, or delete it.")
    state_path(out).unlink(missing_ok=True)  # of a process that was killed after its last episode
    return policy


def _load_state(run: _TrainingRun, path: Path, identity: str, *, resume: bool) -> None:
    """Continue a training from its state, if there is one.

    Raises:
        ConfigError: there is one although the training is not resumed, it is damaged, or belongs to another training.
    """
    if not path.exists():
        return
    if not resume:
        raise ConfigError(f"{path} is the state of an unfinished training. Resume it (--resume), or delete the file.")
    with reading(path, remedy="Delete it to train again.", damaged="is not a training's state", raises=ConfigError):
        state = read_arrays(path)
    if str(state["identity"]) != identity:
        raise ConfigError(f"{path} is the state of a training with other settings. Repeat these, or delete the file.")
    run.load_state_dict(state)


class _TrainingRun:
    """A training between two decisions of all of its lanes.

    Attributes:
        learner: the network that learns.
        ended: number of episodes that have ended.
    """

    def __init__(
        self, training: PolicyTraining, parts: int, costs: tuple[CacheCosts, ...], cases: tuple[CacheCase, ...]
    ) -> None:
        self._training, lanes = training, training.lanes
        self._simulator = CacheSimulator(
            costs, cases, episodes=lanes, seed=training.seed, penalty=training.penalty, restart=True
        )
        self._memory = LatenessMemory(lanes, parts)
        inputs = state_size(parts) + (memory_size(parts) if training.remembers else 0)
        self.learner = DoubleDQN(
            inputs,
            len(CacheActions(parts)),
            seed=training.seed,
            double=training.double,
            hidden=training.hidden,
            precision=training.precision,
        )
        self._states = self._with_memory(self._simulator.reset(), np.zeros(lanes, dtype=np.int64))
        self.ended = self._owed = 0
        self._sums = np.zeros((lanes, len(SUMS)))  # of each lane's episode so far
        self._bucket = np.zeros(
            len(SUMS) + 1
        )  # of the ended episodes since the last row of the curve, and their number
        self._curve: list[list[float]] = []

    def decide(self) -> None:
        """Decide once in every lane, and update the network."""
        training, lanes = self._training, self._training.lanes
        actions = self.learner.choose(self._states, training.epsilon_at(self.ended))
        begun, rewards, done, info = self._simulator.step(actions)
        follows = np.full(lanes, training.discount)
        if training.reward == "saved":
            rewards, follows = _savings(info, training)
        if training.horizon == "finite":
            follows[done] = 0.0
        after = self._with_memory(info.final_states, info.passed)
        self.learner.remember(Transitions(self._states, actions, _float32(rewards), after, _float32(follows)))
        self._owed += lanes
        for _ in range(self._owed // training.decisions):
            self.learner.learn(training.rate_at(self.ended))
        self._owed %= training.decisions
        self._states = after
        if done.any():
            self._memory.forget(done)
            self._states = np.where(done[:, np.newaxis], self._with_memory(begun, np.zeros_like(info.steps)), after)
        self._note(rewards, done, info)
        self.ended += int(done.sum())

    def curve(self) -> pd.DataFrame:
        """Return means over the episodes that ended since the row before; see :data:`CURVE`."""
        return pd.DataFrame(self._curve, columns=list(CURVE))

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return everything that later decisions depend on, as arrays."""
        return {
            **{f"simulator/{name}": values for name, values in self._simulator.state_dict().items()},
            **{f"learner/{name}": values for name, values in self.learner.state_dict().items()},
            **{f"memory/{name}": values for name, values in self._memory.state_dict().items()},
            "states": self._states,
            "counts": np.array([self.ended, self._owed]),
            "sums": self._sums,
            "bucket": self._bucket,
            "curve": np.array(self._curve).reshape(-1, len(CURVE)),
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the output of :meth:`state_dict`, bit for bit."""
        for prefix, holder in (("simulator", self._simulator), ("learner", self.learner), ("memory", self._memory)):
            start = f"{prefix}/"
            holder.load_state_dict(
                {name.removeprefix(start): values for name, values in state.items() if name.startswith(start)}
            )
        self._states = state["states"].copy()
        self._sums, self._bucket = state["sums"].copy(), state["bucket"].copy()
        self.ended, self._owed = map(int, state["counts"])
        self._curve = state["curve"].tolist()

    def _with_memory(self, states: NDArray[np.float32], steps: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._memory.take_in(states, steps) if self._training.remembers else states

    def _note(self, rewards: Array, done: NDArray[np.bool_], info: StepInfo) -> None:
        """Add a decision to the sums of its episode, and ended episodes to the learning curve."""
        self._sums += np.stack([np.ones_like(rewards), rewards, info.steps, info.joules, info.reference_j], axis=1)
        for lane in np.flatnonzero(done):
            self._bucket += [*self._sums[lane], 1.0]
            self._sums[lane] = 0.0
            if self._bucket[-1] < CURVE_EPISODES:
                continue
            decisions, earned, steps, joules, reference_j, episodes = self._bucket
            done_before = self._curve[-1][0] if self._curve else 0
            self._curve.append(
                [
                    done_before + episodes,
                    decisions / episodes,
                    earned / episodes,
                    earned / decisions,
                    steps / decisions,
                    joules / reference_j,
                    self._training.epsilon_at(self.ended),
                ]
            )
            self._bucket[:] = 0.0


SUMS = ("decisions", "reward", "steps", "joules", "reference_j")


def _float32(values: Array) -> NDArray[np.float32]:
    return values.astype(np.float32)


def _savings(info: StepInfo, training: PolicyTraining) -> tuple[Array, Array]:
    """Return the (B,) discounted savings per 16 steps of each decision, and the discount of later rewards."""
    lasted = info.steps / REFERENCE
    follows = training.discount**lasted
    weights = (1 - follows) / (1 - training.discount) if training.discount < 1 else lasted
    saved = 1 - info.joules / np.where(info.steps > 0, info.reference_j, 1.0)
    return saved * weights - training.penalty * info.changed, follows
