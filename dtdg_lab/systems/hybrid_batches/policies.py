"""Batch-size controllers: rewards, the law of progress, a manual plan, and a simulator to compare them in."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core import rng as streams
from dtdg_lab.core.errors import ConfigError, NotFiniteError, PlanError, UnknownNameError, shortened
from dtdg_lab.rl.dqn import DQN, Agent, Bandit, Choice, Fixed, UniformAgent, checked_action, checked_choices

# A law of progress and of time against the size of batches: the size of most progress per second is chosen.


FORGET = 0.98  # a window counts half after 34 decisions
OWN = 2.0  # windows of its own after which a size's mean counts as much as the law
NOISE_SCALES, AROUND = 15, 30.0  # noise scales tried, and how far beyond the smallest and largest batch
SNAPSHOT_POWERS = (0.0, 0.5, 1.0)  # of N_S: how much longer rollouts teach beyond their share of targets
WIDTH = 1.0  # standard errors by which a size may be better than thought
SURE = 0.1  # least relative error of a window that the law is believed to have

Array = NDArray[np.float64]


class ProgressLaw:
    """Fits progress per step and seconds per step against size, and takes the size with the best quotient.

    Progress of a step on b = N_S N_V targets is g N_S^p b / (b + B), with the noise scale B and the power p among a
    few values. Each pair (B, p) is fitted by discounted least squares over all windows and weighted by its likelihood;
    their mean is the law. A size with n windows of its own takes its own mean with weight n / (n + 2), so that sizes
    the law is wrong about are still found out. Seconds of a step are fitted by c_0 + c_1 N_S + c_2 b, none negative;
    a size that was timed has its own mean. A standard error of a size's own mean is added before the best is taken, so
    that what was hardly tried is tried again. The first two choices are the largest and the smallest batch. It draws
    nothing: the same rewards and seconds give the same choices. Old windows fade, so that a noise scale that rises, or
    steps that become slower, are followed.

    Args:
        sizes: (N_S, N_V) of each of A >= 2 actions, as numbers or as shares.
        forget: weight that a window keeps from one decision to the next, in (0, 1].

    Raises:
        ConfigError: there is nothing to choose from, or a size is not above 0.

    References: McCandlish, Kaplan, Amodei 2018, section 2 (noise scale); Garivier, Moulines 2011 (discounting).
    Differs from the paper: DynaHB has a DQN; this is ours.
    """

    def __init__(self, sizes: Sequence[tuple[float, float]], *, forget: float = FORGET) -> None:
        self.choices = checked_choices(len(sizes))
        given = np.array(sizes, dtype=np.float64)
        if not (given > 0).all():
            raise ConfigError(f"sizes of batches {sizes!r}: numbers above 0 are needed.")
        self._targets = given[:, 0] * given[:, 1]
        scales = np.geomspace(self._targets.min() / AROUND, self._targets.max() * AROUND, NOISE_SCALES)
        shapes = np.array(
            [
                given[:, 0] ** power * self._targets / (self._targets + scale)
                for scale in scales
                for power in SNAPSHOT_POWERS
            ]
        )
        self._shapes: Array = shapes / shapes.max(axis=1, keepdims=True)  # (H, A)
        self._times: Array = np.column_stack([np.ones(len(given)), given[:, 0], self._targets])
        self._forget = forget
        self._counts, self._gains, self._seconds = (np.zeros(self.choices) for _ in range(3))
        self._squares = 0.0

    def timed(self, action: int, step_s: float) -> None:
        """Note what a step of this size took in the window that :meth:`learn` is called for next."""
        self._step_s = step_s
        checked_action(action, self.choices)

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Add a window: ``reward`` is progress per second; with the noted seconds it is progress per step."""
        checked_action(action, self.choices)
        gain = reward * self._step_s
        self._counts *= self._forget
        self._gains *= self._forget
        self._seconds *= self._forget
        self._squares = self._forget * self._squares + gain * gain
        self._counts[action] += 1.0
        self._gains[action] += gain
        self._seconds[action] += self._step_s

    def choose(self, state: float) -> Choice:
        """The size that may make the most progress per second, whatever the state; ties go to the lower action."""
        values, more = self._rates() if self._counts.any() else (None, None)
        described: tuple[float | None, ...] = (None,) * self.choices if values is None else tuple(values.tolist())
        for probe in (int(self._targets.argmax()), int(self._targets.argmin())):
            if not self._counts[probe]:
                return Choice(probe, described, 0.0, False)
        assert values is not None and more is not None
        action = int((values + more).argmax())
        return Choice(action, described, 0.0, action == int(values.argmax()))

    def _rates(self) -> tuple[Array, Array]:
        """Progress per second of each size, and how much more it might be; at least one window was learned."""
        total = self._counts.sum()
        square = (self._shapes**2 @ self._counts).clip(min=np.finfo(float).tiny)
        crossed = self._shapes @ self._gains
        scales = crossed / square  # (H,) least squares of g
        errors = (self._squares - crossed * scales).clip(min=0.0)
        variance = max(errors.min() / total, SURE**2 * self._squares / total, np.finfo(float).tiny)
        likelihood = np.exp(-(errors - errors.min()) / (2 * variance))
        law = (likelihood * scales) @ self._shapes / likelihood.sum()
        weights = self._counts + OWN
        error = np.sqrt(max(errors.min(), 0.0) / total / weights)  # standard error of a size's progress per step
        seconds = self._step_seconds()
        return (self._gains + OWN * law) / weights / seconds, WIDTH * error / seconds

    def _step_seconds(self) -> Array:
        """Seconds of a step of each size: its own mean, or the fit of those that were timed."""
        seen = self._counts > 0
        means = self._seconds[seen] / self._counts[seen]
        found = np.full(self.choices, means.mean())
        if seen.sum() >= self._times.shape[1]:
            best = np.inf
            for some in (c for count in (1, 2, 3) for c in combinations(range(self._times.shape[1]), count)):
                columns = self._times[seen][:, some] / means[:, np.newaxis]  # relative errors
                fit = np.linalg.lstsq(columns, np.ones(len(means)), rcond=None)[0]
                error = float(((columns @ fit - 1) ** 2).sum())
                if (fit >= 0).all() and error < best * (1 - 1e-9):
                    best, found = error, self._times[:, some] @ fit
        found = found.clip(min=means.min() * 1e-3)
        found[seen] = means
        return found

    def state_dict(self) -> dict[str, Any]:
        """Faded ``counts`` of windows, sums of ``gains`` and of ``seconds`` of a step by action, and ``squares``."""
        return {
            "counts": self._counts.tolist(),
            "gains": self._gains.tolist(),
            "seconds": self._seconds.tolist(),
            "squares": self._squares,
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._counts, self._gains, self._seconds = (np.array(data[of]) for of in ("counts", "gains", "seconds"))
        self._squares = float(data["squares"])


# What a choice of batch size was worth: did steps get shorter, and did the loss fall faster?


MOST = 1.0  # of either term
REWARDS = ("paper", "progress")
LARGEST = 1e300  # rate, in 1/s
FADE = 0.97  # of the best rate of progress, from one decision to the next


def time_reward(last_s: float, now_s: float) -> float:
    """How much shorter a step became, as a share of the last one: (t_l - t_c) / t_l, within [-1, 1].

    Args:
        last_s: seconds of a step under the last choice.
        now_s: seconds of a step under the present one.

    Returns:
        Half the time earns 0.5, twice the time or more costs 1; from a last time of 0 every rise costs 1.
    """
    return _share(last_s - now_s, last_s)


def loss_reward(last_reduction: float | None, now_reduction: float | None) -> float:
    """How much faster the loss fell: (d_c - d_l) / |d_c|, within [-1, 1].

    Args:
        last_reduction: by how much the loss fell under the last choice; negative where it rose, None where unknown.
        now_reduction: by how much it fell under the present one.

    Returns:
        0 where either is unknown or both are the same; where ``now_reduction`` is 0, the sign of the difference, which
        is the limit.

    Differs from the paper: its denominator is signed, which would reward a loss that rises more than it rose before.
    """
    if last_reduction is None or now_reduction is None:
        return 0.0
    return _share(now_reduction - last_reduction, now_reduction)


def reward(last_s: float, now_s: float, last_reduction: float | None, now_reduction: float | None) -> float:
    """R = R_time + R_loss, within [-2, 2].

    Args:
        last_s: seconds of a step under the last choice.
        now_s: seconds of a step under the present one.
        last_reduction: by how much the loss fell under the last choice, None where unknown.
        now_reduction: by how much it fell under the present one, None where unknown.

    References: DynaHB definition 6, equation 3.
    Differs from the paper: each term is bounded to [-1, 1], since both are quotients of measurements that may be next
    to nothing; division by zero and the sign of a negative reduction are as the two terms say.
    """
    return time_reward(last_s, now_s) + loss_reward(last_reduction, now_reduction)


def checked_reward(name: str) -> str:
    """The name of a reward.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in REWARDS:
        raise ConfigError(f"reward={shortened(name)}: {' or '.join(REWARDS)} are allowed.")
    return name


def progress_reward(loss: float, last_loss: float, seconds: float, best: float) -> tuple[float, float]:
    """Progress per second against its own best, within [-1, 1], and the best from here on.

    Progress is the fall of the loss as a share of the last one. A size is rewarded for what it achieves, not for being
    better than the size before. The best rate so far fades by 3 % with every decision, since losses fall more slowly
    later on.

    Args:
        loss: at the end of the window.
        last_loss: at its beginning.
        seconds: of its steps.
        best: the largest rate so far, up or down, in 1/s; 0 at first.

    Returns:
        The reward, 0 where the last loss or the seconds are 0; and the best rate, this window's included.
    """
    whole = abs(last_loss) * seconds
    rate = (last_loss - loss) / whole if 0 < whole < math.inf else 0.0  # of nothing there is no share
    rate = max(-LARGEST, min(LARGEST, rate))
    best = max(FADE * best, abs(rate))
    return (_share(rate, best) if best else 0.0), best


def _share(gain: float, whole: float) -> float:
    """Gain over |whole|, bounded; over nothing it is the sign of the gain."""
    most = MOST * abs(whole)
    if abs(gain) >= most:  # no division: the quotient of tiny numbers may overflow
        return 0.0 if gain == 0 else MOST if gain > 0 else -MOST
    return gain / abs(whole)


# The adjuster of batch sizes: watches steps, rewards the last choice by them, and makes the next.


POLICIES = ("none", "random", "bandit", "dqn", "law")


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """One choice of a batch size, and what was seen since the one before.

    Attributes:
        policy: what decided, one of ``POLICIES``.
        state: ``loss_reduction`` (the loss of the window before less this one's, None where either is unknown),
            ``epsilon``, ``greedy``, ``loss`` (mean of the window, None where none was heard), ``step_s`` (mean seconds
            of its steps) and ``steps``.
        values: what each action was thought to be worth, None where unknown.
        action: the size from here on.
        reward: of the *last* action, None at the first decision.
    """

    policy: str
    state: dict[str, Any]
    values: list[float | None]
    action: int
    reward: float | None

    @property
    def row(self) -> tuple[Any, ...]:
        """The columns of the record table ``decisions`` after step and epoch."""
        return (self.policy, self.state, self.values, self.action, self.reward)


class BatchAdjuster:
    """Windows of steps under one size each: at the end of a window, the agent learns what it was worth and chooses.

    The state shown to the agent is the loss reduction, 0 where it is unknown. A window's loss is the mean over its
    steps, its time the mean of their seconds.

    Args:
        agent: what chooses.
        policy: its name in the catalogue.
        choices: number of sizes.
        initial: the size that steps have until the first decision.
        reward: what a size earns, ``paper`` or ``progress``; a :class:`ProgressLaw` earns progress always.

    Raises:
        ConfigError: the agent has another number of actions, or there is no such reward.
        PlanError: there is no size of the number ``initial``.

    References: DynaHB section 5.1 (definitions 4 to 6) and algorithm 2, lines 12 and 13.
    Differs from the paper: a decision looks at a window of steps, not at one, because losses of single batches scatter
    far more than they fall from one step to the next.
    """

    def __init__(self, agent: Agent, policy: str, choices: int, initial: int, reward: str = "paper") -> None:
        if agent.choices != choices:
            raise ConfigError(f"an agent of {agent.choices} actions for {choices} sizes: make it for as many.")
        self._agent, self.policy, self.choices = agent, policy, choices
        self._choice = checked_action(initial, choices)
        self._pending: tuple[float, int] | None = None
        self._last_loss: float | None = None
        self._last_s: float | None = None
        self._last_reduction: float | None = None
        self._best_rate = 0.0
        self.rewarded_by(reward)
        self._clear_window()

    def rewarded_by(self, reward: str) -> None:
        """Reward later windows so.

        Raises:
            ConfigError: there is no such reward.
        """
        self._progress = checked_reward(reward) == "progress" or isinstance(self._agent, ProgressLaw)

    @property
    def choice(self) -> int:
        """The size asked for at present."""
        return self._choice

    @property
    def steps(self) -> int:
        """Steps seen since the last decision."""
        return self._steps

    def is_due(self, every: int) -> bool:
        """Whether ``every`` steps were seen since the last decision."""
        return self._steps >= every

    def observe(self, loss: float | None, seconds: float, action: int | None = None) -> None:
        """Take in one step.

        Args:
            loss: of its batch; None where it had no labels, or where the validation split's is given to :meth:`decide`.
            seconds: the step took.
            action: the size it had, where ranks follow a choice later than it is made: a step of another size than the
                present choice is left out. None: the present one.

        Raises:
            NotFiniteError: the loss is not a number.
            PlanError: the seconds are negative or not finite.
        """
        if action is not None and action != self._choice:
            return
        if not (math.isfinite(seconds) and seconds >= 0):
            raise PlanError(f"a step of {seconds} s: seconds must be 0 or more, and finite.")
        if loss is not None:
            self._losses += _finite(loss)
            self._loss_count += 1
        self._seconds += seconds
        self._steps += 1

    def decide(self, loss: float | None = None) -> BatchDecision:
        """End the window: learn from it what the last choice was worth, and choose anew.

        Args:
            loss: what counts as the window's loss instead of the mean of its steps, such as the validation split's.

        Returns:
            What was seen, learned and chosen; :attr:`choice` is the new size.

        Raises:
            NotFiniteError: the loss is not a number.
            PlanError: no step was seen since the last decision.
        """
        if not self._steps:
            raise PlanError("decide() without a step since the last decision: observe() at least one first.")
        step_s = self._seconds / self._steps
        now = _finite(loss) if loss is not None else self._losses / self._loss_count if self._loss_count else None
        reduction = None if now is None or self._last_loss is None else self._last_loss - now
        earned = self._earned(now, step_s, reduction)
        state = 0.0 if reduction is None else reduction
        if earned is not None and self._pending is not None:
            if isinstance(self._agent, ProgressLaw):
                self._agent.timed(self._pending[1], step_s)
            self._agent.learn(*self._pending, earned, state)
        chosen = self._agent.choose(state)
        seen = {
            "loss_reduction": reduction,
            "epsilon": chosen.epsilon,
            "greedy": chosen.greedy,
            "loss": now,
            "step_s": step_s,
            "steps": self._steps,
        }
        self._pending, self._choice, self._last_s = (state, chosen.action), chosen.action, step_s
        self._last_loss = self._last_loss if now is None else now
        self._last_reduction = self._last_reduction if reduction is None else reduction
        self._clear_window()
        return BatchDecision(self.policy, seen, list(chosen.values), chosen.action, earned)

    def _earned(self, now: float | None, step_s: float, reduction: float | None) -> float | None:
        """What the window earned; None where that is not known."""
        if not self._progress:
            return None if self._last_s is None else reward(self._last_s, step_s, self._last_reduction, reduction)
        if now is None or self._last_loss is None:
            return None
        earned, self._best_rate = progress_reward(now, self._last_loss, self._seconds, self._best_rate)
        return earned

    def follow(self, action: int) -> None:
        """Go on with a size that somebody else chose: the present window is dropped, and nothing is learned of it.

        Raises:
            PlanError: there is no size of that number.
        """
        self._choice = checked_action(action, self.choices)
        self._pending = None
        self._clear_window()

    def state_dict(self) -> dict[str, Any]:
        """Everything that later decisions depend on, the window under way included, as plain lists and numbers."""
        return {
            "policy": self.policy,
            "choices": self.choices,
            "choice": self._choice,
            "pending": None if self._pending is None else list(self._pending),
            "last": [self._last_loss, self._last_s, self._last_reduction, self._best_rate],
            "window": [self._losses, self._loss_count, self._seconds, self._steps],
            "agent": self._agent.state_dict(),
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave.

        Raises:
            ConfigError: it is another policy's, or of another number of sizes.
        """
        if (data["policy"], data["choices"]) != (self.policy, self.choices):
            raise ConfigError(
                f"a {data['policy']} adjuster of {data['choices']} sizes was stored, and this is a {self.policy} one "
                f"of {self.choices}: make it as it was, or start this one without what was stored."
            )
        self._choice = checked_action(int(data["choice"]), self.choices)
        pending = data["pending"]
        self._pending = None if pending is None else (float(pending[0]), int(pending[1]))
        self._last_loss, self._last_s, self._last_reduction, self._best_rate = data["last"]
        self._losses, self._loss_count, self._seconds, self._steps = data["window"]
        self._agent.load_state_dict(data["agent"])

    def _clear_window(self) -> None:
        self._losses, self._loss_count, self._seconds, self._steps = 0.0, 0, 0.0, 0


def make_adjuster(
    name: str,
    *,
    choices: int,
    initial: int,
    seed: int = 0,
    discount: float = 0.99,
    epsilon_decay: float = 0.95,
    epsilon_min: float = 0.1,
    rate: float = 0.005,
    reward: str = "paper",
    sizes: Sequence[tuple[float, float]] | None = None,
) -> BatchAdjuster:
    """An adjuster by its name in the catalogue.

    Args:
        name: one of ``POLICIES``.
        choices: number of sizes to choose from, 2 or more; 1 or more for ``none``.
        initial: the size until the first decision, and always for ``none``.
        seed: of the agent's draws.
        discount: gamma of the DQN, as the rest are its own.
        epsilon_decay: factor by which its share of random choices falls with every decision.
        epsilon_min: where that share stays.
        rate: its learning rate.
        reward: what a size earns, ``paper`` or ``progress``; ``law`` earns progress always.
        sizes: (N_S, N_V) of each choice, which ``law`` needs.

    Raises:
        ConfigError: there is nothing to choose from, there is no such reward, or ``law`` has no sizes.
        UnknownNameError: there is no adjuster of that name.
        PlanError: there is no size of the number ``initial``.
    """
    if name not in POLICIES:
        raise UnknownNameError("adjuster", name, POLICIES)
    checked_choices(choices, least=1 if name == "none" else 2)
    agent: Agent
    if name == "none":
        agent = Fixed(choices, initial)
    elif name == "random":
        agent = UniformAgent(choices, seed=seed)
    elif name == "bandit":
        agent = Bandit(choices)
    elif name == "law":
        if sizes is None:
            raise ConfigError("adjuster='law' fits progress against size: give sizes, (N_S, N_V) of each choice.")
        agent = ProgressLaw(sizes)
    else:
        agent = DQN(
            choices, seed=seed, discount=discount, epsilon_decay=epsilon_decay, epsilon_min=epsilon_min, rate=rate
        )
    return BatchAdjuster(agent, name, choices, initial, reward)


def _finite(loss: float) -> float:
    if not math.isfinite(loss):
        raise NotFiniteError(
            f"a loss of {loss}: no adjuster can learn from it. Lower learning_rate, or look at the data."
        )
    return float(loss)


# Training in a formula: how long a step of a batch size takes and how far it gets, to compare adjusters in moments.


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What an adjuster made of a simulated training.

    Attributes:
        seconds: to the target, None where it was not reached. Of the last step only the share that was needed counts,
            so that no order of sizes can be faster than the best size alone where that stays the best.
        choices: size of each step.
        losses: without noise, after each step.
        decisions: all of them.
    """

    seconds: float | None
    choices: tuple[int, ...]
    losses: tuple[float, ...]
    decisions: tuple[BatchDecision, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSimulator:
    """A training run whose steps are a few lines of arithmetic.

    A batch holds a share b = (snapshots) x (nodes) of the training split. Its step takes
    ``fixed_s + per_snapshot_s * snapshots + per_share_s * b`` seconds and lowers the logarithm of the loss above its
    floor by ``progress / (1 + noise_share / b)``: batches far below the noise scale gain with their size, far above it
    no more. With ``growth`` the noise scale rises by that factor, linearly on the way to the target, and larger batches
    become the better ones: there an adjuster can beat every fixed size. With ``turn`` it does not rise but jumps, at
    that share of the way. With ``snapshot_scale`` S a batch's progress is multiplied by s / (s + S), where s is its
    share of snapshots: short rollouts from state zero teach less.

    What an adjuster hears is noisy: losses by ``loss_noise * sqrt(noise_share / b)`` and seconds by ``jitter``, both
    relative standard deviations. What counts in the end is not.

    Attributes:
        sizes: shares (snapshots, nodes) of each action, in (0, 1].
        fixed_s: seconds of a step of nothing.
        per_snapshot_s: seconds that all snapshots add.
        per_share_s: seconds that the whole training split adds.
        noise_share: the share at which a batch makes half the progress of the whole, at the start.
        growth: how many times larger it is at the target; 1 keeps it.
        turn: share of the way to the target at which it becomes so; None: linearly.
        snapshot_scale: share of snapshots at which a batch makes half the progress of a long one; 0: all alike.
        progress: of a step without noise.
        start: loss at the start.
        floor: the loss that training nears.
        loss_noise: of what is heard of a loss.
        jitter: of what is heard of a step's time.
        validation_noise: of what is heard of the validation loss.
        evaluation_s: seconds that an evaluation takes.
        seed: of the noise.

    Raises:
        ConfigError: a number is out of its bounds.

    References: McCandlish, Kaplan, Amodei 2018, An Empirical Model of Large-Batch Training, section 2 (noise scale).
    """

    sizes: tuple[tuple[float, float], ...]
    fixed_s: float = 2e-3
    per_snapshot_s: float = 1e-2
    per_share_s: float = 0.2
    noise_share: float = 0.01
    growth: float = 1.0
    turn: float | None = None
    snapshot_scale: float = 0.0
    progress: float = 0.05
    start: float = 1.0
    floor: float = 0.2
    loss_noise: float = 0.0
    jitter: float = 0.0
    validation_noise: float = 0.0
    evaluation_s: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sizes or any(not 0 < share <= 1 for size in self.sizes for share in size):
            raise ConfigError(f"sizes={self.sizes}: at least one pair of shares within (0, 1] is needed.")
        received = (self.loss_noise, self.jitter, self.validation_noise, self.evaluation_s, self.snapshot_scale)
        costs = (self.fixed_s, self.per_snapshot_s, self.per_share_s, *received)
        if min(costs) < 0 or sum(costs[:3]) <= 0 or min(self.noise_share, self.growth, self.progress) <= 0:
            raise ConfigError(
                f"{self}: seconds and noise must be 0 or more, and not all seconds 0; noise_share, growth and progress "
                "above 0."
            )
        if self.start <= self.floor:
            raise ConfigError(f"start={self.start}, floor={self.floor}: the loss must start above its floor.")

    def step_s(self, action: int) -> float:
        """Seconds of a step of this size."""
        snapshots, vertices = self.sizes[action]
        return self.fixed_s + self.per_snapshot_s * snapshots + self.per_share_s * snapshots * vertices

    def gain(self, action: int, done: float) -> float:
        """By how much a step of this size lowers ln(loss - floor), a share ``done`` of the way to the target."""
        snapshots, vertices = self.sizes[action]
        grown = done if self.turn is None else float(done >= self.turn)
        noise = self.noise_share * (1 + (self.growth - 1) * grown)
        whole = self.progress / (1 + noise / (snapshots * vertices))
        return whole * snapshots / (snapshots + self.snapshot_scale)

    def run(
        self,
        adjuster: BatchAdjuster,
        *,
        target: float,
        decide_every: int = 5,
        most_steps: int = 10_000,
        validated: bool = False,
    ) -> SimulatedRun:
        """Train until the loss is at the target.

        Args:
            adjuster: chooses among ``sizes``; it is changed.
            target: a loss between the floor and the start.
            decide_every: steps between its decisions.
            most_steps: after which it is given up.
            validated: decisions read the validation loss, whose evaluation takes time, instead of the batches'.

        Raises:
            ConfigError: the target is not between floor and start, or the adjuster has another number of choices.
        """
        if adjuster.choices != len(self.sizes):
            raise ConfigError(f"an adjuster of {adjuster.choices} choices for {len(self.sizes)} sizes.")
        whole = self._way(target)
        noise = streams.generator(self.seed, "control/simulator").standard_normal((most_steps, 3))
        left, seconds = whole, 0.0
        choices: list[int] = []
        losses: list[float] = []
        decisions: list[BatchDecision] = []
        for for_loss, for_time, for_validation in noise:
            action = adjuster.choice
            step_s, gain = self.step_s(action), self.gain(action, 1 - left / whole)
            needed = min(left / gain, 1.0)
            left, seconds = left - needed * gain, seconds + needed * step_s
            choices.append(action)
            losses.append(self.floor + (target - self.floor) * math.exp(left))
            if needed < 1 or left <= 0:
                return SimulatedRun(seconds, tuple(choices), tuple(losses), tuple(decisions))
            snapshots, vertices = self.sizes[action]
            spread = self.loss_noise * math.sqrt(self.noise_share / (snapshots * vertices))
            loss = None if validated else losses[-1] * (1 + spread * for_loss)
            adjuster.observe(loss, step_s * math.exp(self.jitter * for_time))
            if adjuster.is_due(decide_every):
                seconds += self.evaluation_s * validated
                loss = losses[-1] * (1 + self.validation_noise * for_validation) if validated else None
                decisions.append(adjuster.decide(loss))
        return SimulatedRun(None, tuple(choices), tuple(losses), tuple(decisions))

    def fixed_s_to(self, action: int, target: float) -> float:
        """Seconds to the target with one size throughout.

        Raises:
            ConfigError: the target is not between floor and start.
        """
        whole = self._way(target)
        left, seconds = whole, 0.0
        while left > 0:
            gain = self.gain(action, 1 - left / whole)
            seconds += min(left / gain, 1.0) * self.step_s(action)
            left -= gain
        return seconds

    def best_fixed(self, target: float) -> tuple[int, float]:
        """The best fixed size in hindsight: its action and its seconds to the target; ties go to the lower action."""
        times = [self.fixed_s_to(action, target) for action in range(len(self.sizes))]
        action = min(range(len(times)), key=times.__getitem__)
        return action, times[action]

    def regret_s(self, run: SimulatedRun, target: float) -> float | None:
        """Seconds lost against the best fixed size in hindsight; None where the run did not reach the target.

        Never negative where ``growth`` is 1; elsewhere what is below 0 is what adjusting won.
        """
        return None if run.seconds is None else run.seconds - self.best_fixed(target)[1]

    def _way(self, target: float) -> float:
        """By how much ln(loss - floor) must fall."""
        if not self.floor < target < self.start:
            raise ConfigError(f"target={target}: it must lie between floor={self.floor} and start={self.start}.")
        return math.log((self.start - self.floor) / (target - self.floor))


GRID = tuple(itertools.product((0.1, 0.2, 0.3), (0.01, 0.05, 0.1)))  # DynaHB's
_COMMON = BatchSimulator(
    sizes=GRID,
    fixed_s=1.5e-4,
    per_snapshot_s=0.01,
    per_share_s=0.6,
    noise_share=3e-3,
    progress=0.002,
    jitter=0.1,
    loss_noise=0.02,
    validation_noise=1e-3,
)
MOST_STEPS = 30_000  # of a comparison
TARGET = 0.25  # loss of the landscapes that adjusters are compared on
LANDSCAPES: Mapping[str, BatchSimulator] = MappingProxyType(
    {
        "small batches are best": _COMMON,
        "large batches are best": replace(_COMMON, noise_share=0.02),
        "short rollouts teach less": replace(_COMMON, noise_share=5e-4, snapshot_scale=0.5),
        "the noise scale rises": replace(_COMMON, noise_share=1.2e-4, growth=40.0),
        "the noise scale jumps": replace(_COMMON, noise_share=1.2e-4, growth=80.0, turn=0.5),
        "losses scatter": replace(_COMMON, noise_share=1.2e-4, growth=40.0, loss_noise=0.2, validation_noise=5e-3),
    }
)
# name -> the policy, what rewards it, and whether it reads the validation split
CONTROLLERS: Mapping[str, tuple[str, str, bool]] = MappingProxyType(
    {
        "random": ("random", "paper", False),
        "bandit": ("bandit", "paper", False),
        "dqn": ("dqn", "paper", False),
        "bandit, progress": ("bandit", "progress", True),
        "dqn, progress": ("dqn", "progress", True),
        "law": ("law", "progress", True),
    }
)


def compared(
    simulator: BatchSimulator,
    target: float,
    *,
    seeds: Sequence[int] = range(5),
    decide_every: int = 10,
    controllers: Mapping[str, tuple[str, str, bool]] = CONTROLLERS,
) -> dict[str, list[SimulatedRun]]:
    """Each controller's run with every seed, all beginning with the middle size.

    Args:
        simulator: of the training; its seed is replaced.
        target: loss to be reached.
        seeds: of controllers and of what they hear.
        decide_every: steps between two decisions.
        controllers: by name, the policy, its reward, and whether it reads the validation split.
    """
    found: dict[str, list[SimulatedRun]] = {}
    for name, (policy, reward, validated) in controllers.items():
        found[name] = []
        for seed in seeds:
            adjuster = make_adjuster(
                policy,
                choices=len(simulator.sizes),
                initial=len(simulator.sizes) // 2,
                seed=seed,
                reward=reward,
                sizes=simulator.sizes,
            )
            run = replace(simulator, seed=seed).run(
                adjuster, target=target, decide_every=decide_every, validated=validated, most_steps=MOST_STEPS
            )
            found[name].append(run)
    return found


def over_best_fixed(simulator: BatchSimulator, *, names: Sequence[str], seeds: Sequence[int]) -> dict[str, list[float]]:
    """Seconds of some ``CONTROLLERS`` over those of the best fixed size, which only hindsight knows.

    Args:
        simulator: of the training, to ``TARGET``.
        names: of controllers.
        seeds: of controllers and of what they hear.

    Returns:
        By name, a ratio for each seed, ascending; infinite where the target was never reached.
    """
    best_s = simulator.best_fixed(TARGET)[1]
    runs = compared(simulator, TARGET, seeds=seeds, controllers={name: CONTROLLERS[name] for name in names})
    return {
        name: sorted(math.inf if run.seconds is None else run.seconds / best_s for run in found)
        for name, found in runs.items()
    }


# Sizes of batches planned by hand: one for each stage of the way to the target.


def planned_s(simulator: BatchSimulator, plan: Sequence[int], target: float) -> float:
    """Seconds to the target of a simulated training whose sizes are known beforehand.

    The way, by which the logarithm of the loss above its floor must fall, has as many stages of equal length as the
    plan has sizes; a step has the size of the stage in which it begins. Of the last step only the share that was needed
    counts, as in :class:`BatchSimulator`.

    Args:
        simulator: of the training; its noise does not matter.
        plan: action of each stage, at least one.
        target: a loss between floor and start.

    Raises:
        ConfigError: there is no stage, or the target is not between floor and start.
        PlanError: there is no such action.
    """
    if not plan or not simulator.floor < target < simulator.start:
        raise ConfigError(
            f"a plan of {len(plan)} stages to a loss of {target}: give at least one stage, and a target between "
            f"floor={simulator.floor} and start={simulator.start}."
        )
    for action in plan:
        checked_action(action, len(simulator.sizes))
    whole = math.log((simulator.start - simulator.floor) / (target - simulator.floor))
    left, seconds = whole, 0.0
    while left > 0:
        done = 1 - left / whole
        action = plan[min(int(done * len(plan)), len(plan) - 1)]
        gain = simulator.gain(action, done)
        seconds += min(left / gain, 1.0) * simulator.step_s(action)
        left -= gain
    return seconds
