"""Batch-size controllers: rewards, the progress law, a fixed plan, and a simulator to compare them in."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.core import rng
from dtdg_lab.core.errors import ConfigError, NotFiniteError, PlanError, shortened
from dtdg_lab.engine.capabilities import Decision
from dtdg_lab.rl.agent import Agent, Choice, Fixed, UniformAgent, checked_action, checked_choices
from dtdg_lab.rl.bandit import Bandit
from dtdg_lab.rl.dqn import DQN

# A model of progress and time as functions of batch size: the size with the most progress per second is chosen.


FORGET = 0.98  # a window's weight halves after 34 decisions
OWN = 2.0  # number of own windows after which a size's mean has the same weight as the model
NOISE_SCALES, AROUND = 15, 30.0  # noise scales tried, and how far they extend beyond the smallest and largest batch
SNAPSHOT_POWERS = (0.0, 0.5, 1.0)  # of N_S: additional benefit of longer rollouts beyond their share of targets
WIDTH = 1.0  # standard errors added to an estimate, for exploration
SURE = 0.1  # lower limit of the assumed relative error of a window

Array = NDArray[np.float64]


class ProgressLaw(Agent):
    """Fits progress per step and seconds per step against size, and chooses the size with the best quotient.

    Progress of a step on b = N_S N_V targets is g N_S^p b / (b + B), with the noise scale B and the power p from a few
    values. Each pair (B, p) is fitted by discounted least squares over all windows and weighted by its likelihood; the
    model is their mean. A size with n windows of its own uses its own mean with weight n / (n + 2), so that errors of
    the model are discovered. Seconds of a step are fitted by c_0 + c_1 N_S + c_2 b, none negative; a size that was
    timed has its own mean. A standard error of a size's own mean is added before the best is chosen, so that rarely
    tried sizes are tried again. The first two choices are the largest and the smallest batch. It is deterministic: the
    same rewards and seconds give the same choices. Old windows are discounted, so that it follows a rising noise scale
    and slower steps.

    Args:
        sizes: (N_S, N_V) of each of A >= 2 actions, as numbers or as shares.
        forget: factor by which a window's weight decreases with each decision, in (0, 1].

    Raises:
        ConfigError: there is only one size, or a size is not above 0.

    References: McCandlish, Kaplan, Amodei 2018, section 2 (noise scale); Garivier, Moulines 2011 (discounting).
    Differs from the paper: DynaHB has a DQN; this is ours.
    """

    def __init__(self, sizes: Sequence[tuple[float, float]], *, forget: float = FORGET) -> None:
        from scipy.optimize import nnls  # here, not in the first step that needs it: it takes 0.3 s

        self._fit = nnls
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
        """Record the seconds of a step of this size in the window of the next call of :meth:`learn`."""
        self._step_s = step_s
        checked_action(action, self.choices)

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Add a window: ``reward`` is progress per second; with the recorded seconds it gives progress per step."""
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
        """The size that may make the most progress per second in any state; ties go to the lower action."""
        values, more = self._rates() if self._counts.any() else (None, None)
        described: tuple[float | None, ...] = (None,) * self.choices if values is None else tuple(values.tolist())
        for probe in (int(self._targets.argmax()), int(self._targets.argmin())):
            if not self._counts[probe]:
                return Choice(probe, described, 0.0, False)
        assert values is not None and more is not None
        action = int((values + more).argmax())
        return Choice(action, described, 0.0, action == int(values.argmax()))

    def _rates(self) -> tuple[Array, Array]:
        """Progress per second of each size, and its uncertainty; at least one window was learned."""
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
            columns = self._times[seen] / means[:, np.newaxis]  # relative errors
            found = self._times @ self._fit(columns, np.ones(len(means)))[0]
        found = found.clip(min=means.min() * 1e-3)
        found[seen] = means
        return found

    def state_dict(self) -> dict[str, Any]:
        """Discounted ``counts`` of windows, sums of ``gains`` and step ``seconds`` by action, and ``squares``."""
        return {
            "counts": self._counts.tolist(),
            "gains": self._gains.tolist(),
            "seconds": self._seconds.tolist(),
            "squares": self._squares,
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._counts, self._gains, self._seconds = (np.array(data[of]) for of in ("counts", "gains", "seconds"))
        self._squares = float(data["squares"])


# Rewards of a choice of batch size: shorter steps, and a faster decrease of the loss.


MOST = 1.0  # limit of either term
REWARDS = ("paper", "progress")
LARGEST = 1e300  # rate, in 1/s
FADE = 0.97  # factor of the best rate of progress per decision


def time_reward(last_s: float, now_s: float) -> float:
    """Relative reduction of the seconds of a step: (t_l - t_c) / t_l, within [-1, 1].

    Args:
        last_s: seconds of a step under the last choice.
        now_s: seconds of a step under the current choice.

    Returns:
        0.5 for half the time, -1 for twice the time or more; if the last time is 0, any increase gives -1.
    """
    return _share(last_s - now_s, last_s)


def loss_reward(last_reduction: float | None, now_reduction: float | None) -> float:
    """Relative gain in the decrease of the loss: (d_c - d_l) / |d_c|, within [-1, 1].

    Args:
        last_reduction: decrease of the loss under the last choice; negative if it rose, None if unknown.
        now_reduction: decrease under the current choice.

    Returns:
        0 if either is unknown or both are equal; if ``now_reduction`` is 0, the sign of the difference, which is the
        limit.

    Differs from the paper: its denominator is signed, which would reward an increase that is faster than before.
    """
    if last_reduction is None or now_reduction is None:
        return 0.0
    return _share(now_reduction - last_reduction, now_reduction)


def reward(last_s: float, now_s: float, last_reduction: float | None, now_reduction: float | None) -> float:
    """R = R_time + R_loss, within [-2, 2].

    Args:
        last_s: seconds of a step under the last choice.
        now_s: seconds of a step under the current choice.
        last_reduction: decrease of the loss under the last choice, None if unknown.
        now_reduction: decrease under the current choice, None if unknown.

    References: DynaHB definition 6, equation 3.
    Differs from the paper: each term is bounded to [-1, 1], since both are quotients of measurements that may be nearly
    0; see the two terms for division by zero and the sign of a negative decrease.
    """
    return time_reward(last_s, now_s) + loss_reward(last_reduction, now_reduction)


def checked_reward(name: str) -> str:
    """Check the name of a reward, and return it.

    Raises:
        ConfigError: the reward is unknown.
    """
    if name not in REWARDS:
        raise ConfigError(f"reward={shortened(name)}: {' or '.join(REWARDS)} are allowed.")
    return name


def progress_reward(loss: float, last_loss: float, seconds: float, best: float) -> tuple[float, float]:
    """Progress per second relative to its best, within [-1, 1], and the updated best.

    Progress is the relative decrease of the loss. A size is rewarded for its progress, not for being better than the
    size before. The best rate so far is reduced by 3 % with every decision, since losses fall more slowly later on.

    Args:
        loss: at the end of the window.
        last_loss: at its beginning.
        seconds: of its steps.
        best: the largest absolute rate so far, in 1/s; 0 at first.

    Returns:
        The reward, 0 if the last loss or the seconds are 0; and the best rate, including this window.
    """
    whole = abs(last_loss) * seconds
    rate = (last_loss - loss) / whole if 0 < whole < math.inf else 0.0  # of nothing there is no share
    rate = max(-LARGEST, min(LARGEST, rate))
    best = max(FADE * best, abs(rate))
    return (_share(rate, best) if best else 0.0), best


def _share(gain: float, whole: float) -> float:
    """Gain over |whole|, bounded; the sign of the gain if the whole is 0."""
    most = MOST * abs(whole)
    if abs(gain) >= most:  # no division: the quotient of tiny numbers may overflow
        return 0.0 if gain == 0 else MOST if gain > 0 else -MOST
    return gain / abs(whole)


# The batch-size controller: observes steps, rewards the last choice, and makes the next.


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """One choice of a batch size, and the observations since the one before.

    Attributes:
        policy: name of the controller in the catalogue.
        state: ``loss_reduction`` (the loss of the window before minus this one's, None if either is unknown),
            ``epsilon``, ``greedy``, ``loss`` (mean of the window, None if there was none), ``step_s`` (mean seconds of
            its steps) and ``steps``.
        values: estimated value of each action, None if unknown.
        action: the size from here on.
        reward: of the *last* action, None at the first decision.
    """

    policy: str
    state: dict[str, Any]
    values: list[float | None]
    action: int
    reward: float | None

    @property
    def row(self) -> Decision:
        """Its row of the record table ``decisions``."""
        return Decision(self.policy, self.state, self.values, self.action, self.reward)


class BatchPolicy:
    """Windows of steps of one size each: at the end of a window the agent learns its reward and chooses the next size.

    The agent's state is the decrease of the loss, 0 if unknown. A window's loss is the mean over its steps, its time
    the mean of their seconds.

    Args:
        agent: makes the choices.
        policy: its name in the catalogue.
        choices: number of sizes.
        initial: index of the size until the first decision.
        reward: ``paper`` or ``progress``; a :class:`ProgressLaw` always uses progress.

    Raises:
        ConfigError: the agent has a different number of actions, or the reward is unknown.
        PlanError: ``initial`` is not the index of a size.

    References: DynaHB section 5.1 (definitions 4 to 6) and algorithm 2, lines 12 and 13.
    Differs from the paper: a decision uses a window of steps instead of one, because losses of single batches vary far
    more than they decrease from one step to the next.
    """

    def __init__(self, agent: Agent, policy: str, choices: int, initial: int, reward: str = "paper") -> None:
        if agent.choices != choices:
            raise ConfigError(f"an agent of {agent.choices} actions for {choices} sizes: the numbers must be equal.")
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
        """Set the reward of later windows.

        Raises:
            ConfigError: the reward is unknown.
        """
        self._progress = checked_reward(reward) == "progress" or isinstance(self._agent, ProgressLaw)

    @property
    def choice(self) -> int:
        """Index of the current size."""
        return self._choice

    @property
    def steps(self) -> int:
        """Steps observed since the last decision."""
        return self._steps

    def is_due(self, every: int) -> bool:
        """Whether ``every`` steps were observed since the last decision."""
        return self._steps >= every

    def observe(self, loss: float | None, seconds: float, action: int | None = None) -> None:
        """Record one step.

        Args:
            loss: of its batch; None if it had no labels, or if the validation loss is passed to :meth:`decide`.
            seconds: duration of the step.
            action: its size, if ranks follow a choice with a delay: a step of another size than the current choice is
                ignored. None: the current one.

        Raises:
            NotFiniteError: the loss is not finite.
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
        """End the window: learn the reward of the last choice, and make the next.

        Args:
            loss: replaces the mean loss of the window's steps, for example the validation loss.

        Returns:
            The observations, the reward and the choice; :attr:`choice` is the new size.

        Raises:
            NotFiniteError: the loss is not finite.
            PlanError: no step was observed since the last decision.
        """
        if not self._steps:
            raise PlanError("decide() without a step since the last decision: call observe() at least once first.")
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
        """The reward of the window; None if unknown."""
        if not self._progress:
            return None if self._last_s is None else reward(self._last_s, step_s, self._last_reduction, reduction)
        if now is None or self._last_loss is None:
            return None
        earned, self._best_rate = progress_reward(now, self._last_loss, self._seconds, self._best_rate)
        return earned

    def follow(self, action: int) -> None:
        """Continue with a size chosen elsewhere: the current window is dropped without learning from it.

        Raises:
            PlanError: the size does not exist.
        """
        self._choice = checked_action(action, self.choices)
        self._pending = None
        self._clear_window()

    def state_dict(self) -> dict[str, Any]:
        """Everything that later decisions depend on, including the current window, as plain lists and numbers."""
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
        """Restore what :meth:`state_dict` returned.

        Raises:
            ConfigError: it is from another controller, or from another number of sizes.
        """
        if (data["policy"], data["choices"]) != (self.policy, self.choices):
            raise ConfigError(
                f"the stored state is of a {data['policy']} controller of {data['choices']} sizes, and this is a "
                f"{self.policy} controller of {self.choices}: use the same settings, or start without the stored state."
            )
        self._choice = checked_action(int(data["choice"]), self.choices)
        pending = data["pending"]
        self._pending = None if pending is None else (float(pending[0]), int(pending[1]))
        last = (*data["last"], 0.0)[:4]  # checkpoints of schema 1 have no best rate
        self._last_loss, self._last_s, self._last_reduction, self._best_rate = last
        self._losses, self._loss_count, self._seconds, self._steps = data["window"]
        self._agent.load_state_dict(data["agent"])

    def _clear_window(self) -> None:
        self._losses, self._loss_count, self._seconds, self._steps = 0.0, 0, 0.0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSettings:
    """What agents that choose batch sizes are made of; each reads what it needs.

    Attributes:
        choices: number of sizes to choose from.
        initial: index of the size until the first decision.
        seed: of random numbers.
        discount: gamma of the DQN.
        epsilon_decay: factor of an exploration rate per decision.
        epsilon_min: lower limit of the exploration rate.
        rate: learning rate.
        sizes: (N_S, N_V) of each choice; empty where they are unknown.
        settings: options of the run that the controller's entry names, by name.
    """

    choices: int
    initial: int = 0
    seed: int = 0
    discount: float = 0.99
    epsilon_decay: float = 0.95
    epsilon_min: float = 0.1
    rate: float = 0.005
    sizes: tuple[tuple[float, float], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


class SizeRule(Protocol):
    """A function that makes an agent; ``lab.register(rule, "batch-size controller")`` adds one of a user's own."""

    def __call__(self, of: SizeSettings) -> Agent:
        """Return an agent of ``of.choices`` actions.

        Raises:
            ConfigError: it cannot choose among these sizes.
        """


def keep_size(of: SizeSettings) -> Agent:
    """Return the agent that keeps the initial size."""
    return Fixed(of.choices, of.initial)


def draw_size(of: SizeSettings) -> Agent:
    """Return the agent that draws a size uniformly at random."""
    return UniformAgent(checked_choices(of.choices), seed=of.seed)


def pull_arms(of: SizeSettings) -> Agent:
    """Return the multi-armed bandit."""
    return Bandit(of.choices)


def learn_values(of: SizeSettings) -> Agent:
    """Return the deep Q-network."""
    exploring: dict[str, Any] = {"epsilon_decay": of.epsilon_decay, "epsilon_min": of.epsilon_min}
    return DQN(of.choices, seed=of.seed, discount=of.discount, rate=of.rate, **exploring)


def fit_law(of: SizeSettings) -> Agent:
    """Return the progress law.

    Raises:
        ConfigError: the sizes are unknown.
    """
    if not of.sizes:
        raise ConfigError("batch_policy='law' fits progress against size: give sizes, (N_S, N_V) of each choice.")
    return ProgressLaw(of.sizes)


def make_batch_policy(
    name: str, *, reward: str = "paper", sizes: Sequence[tuple[float, float]] | None = None, **settings: Any
) -> BatchPolicy:
    """A batch-size controller by its name in the catalogue.

    Args:
        name: of the catalogue's kind ``control``.
        reward: ``paper`` or ``progress``; ``law`` always uses progress.
        sizes: (N_S, N_V) of each choice, which ``law`` needs.
        settings: attributes of :class:`SizeSettings`; ``choices`` is 2 or more, 1 or more for ``none``.

    Raises:
        ConfigError: there is only one size, the reward is unknown, or ``law`` has no sizes.
        UnknownNameError: the controller is unknown.
        PlanError: ``initial`` is not the index of a size.
    """
    make: SizeRule = catalogue.entry("control", name).load()
    of = SizeSettings(sizes=tuple(sizes or ()), **settings)
    return BatchPolicy(make(of), name, of.choices, of.initial, reward)


def _finite(loss: float) -> float:
    if not math.isfinite(loss):
        raise NotFiniteError(
            f"a loss of {loss}: no batch-size controller can learn from it. Lower learning_rate, or check the data."
        )
    return float(loss)


# A closed-form model of training: seconds and progress of a step by batch size, to compare controllers quickly.


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """Result of a controller in a simulated training run.

    Attributes:
        seconds: to the target, None if it was not reached. Only the needed share of the last step counts, so that no
            sequence of sizes can be faster than the best size alone where that stays the best.
        choices: size of each step.
        losses: without noise, after each step.
        decisions: all decisions.
    """

    seconds: float | None
    choices: tuple[int, ...]
    losses: tuple[float, ...]
    decisions: tuple[BatchDecision, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSimulator:
    """A training run whose steps are a few lines of arithmetic.

    A batch contains a share b = (snapshots) x (nodes) of the training split. Its step takes
    ``fixed_s + per_snapshot_s * snapshots + per_share_s * b`` seconds and lowers the logarithm of the loss above its
    floor by ``progress / (1 + noise_share / b)``: progress grows with size far below the noise scale and saturates far
    above it. With ``growth`` the noise scale rises by that factor, linearly in the progress to the target, and larger
    batches become better: there a controller can beat every fixed size. With ``turn`` the noise scale jumps at that
    share of the progress instead. With ``snapshot_scale`` S a batch's progress is multiplied by s / (s + S), where s is
    its share of snapshots: short rollouts from a zero state are less useful.

    A controller observes noisy values: losses with ``loss_noise * sqrt(noise_share / b)`` and seconds with ``jitter``,
    both relative standard deviations. The result is measured without noise.

    Attributes:
        sizes: shares (snapshots, nodes) of each action, in (0, 1].
        fixed_s: constant seconds of a step.
        per_snapshot_s: additional seconds for all snapshots.
        per_share_s: additional seconds for the whole training split.
        noise_share: the share at which a batch makes half the progress of a full one, at the start.
        growth: factor of the noise scale at the target; 1 keeps it constant.
        turn: share of the progress to the target at which the factor applies; None: linearly.
        snapshot_scale: share of snapshots at which a batch makes half the progress of a long one; 0: no effect.
        progress: of a step without noise.
        start: initial loss.
        floor: limit of the loss.
        loss_noise: noise of observed losses.
        jitter: noise of observed seconds.
        validation_noise: noise of the observed validation loss.
        evaluation_s: seconds of an evaluation.
        seed: of the noise.

    Raises:
        ConfigError: a number is out of range.

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
            raise ConfigError(f"start={self.start}, floor={self.floor}: the initial loss must be above the floor.")

    def step_s(self, action: int) -> float:
        """Seconds of a step of this size."""
        snapshots, vertices = self.sizes[action]
        return self.fixed_s + self.per_snapshot_s * snapshots + self.per_share_s * snapshots * vertices

    def gain(self, action: int, done: float) -> float:
        """Decrease of ln(loss - floor) in a step of this size, at a share ``done`` of the progress to the target."""
        snapshots, vertices = self.sizes[action]
        grown = done if self.turn is None else float(done >= self.turn)
        noise = self.noise_share * (1 + (self.growth - 1) * grown)
        whole = self.progress / (1 + noise / (snapshots * vertices))
        return whole * snapshots / (snapshots + self.snapshot_scale)

    def run(
        self,
        batch_policy: BatchPolicy,
        *,
        target: float,
        decide_every: int = 5,
        most_steps: int = 10_000,
        validated: bool = False,
    ) -> SimulatedRun:
        """Train until the loss is at the target.

        Args:
            batch_policy: controller that chooses among ``sizes``; it is modified.
            target: a loss between the floor and the start.
            decide_every: steps between its decisions.
            most_steps: limit after which the run is stopped.
            validated: decisions use the validation loss, whose evaluation takes time, instead of the batches' loss.

        Raises:
            ConfigError: the target is not between floor and start, or the controller has another number of choices.
        """
        if batch_policy.choices != len(self.sizes):
            raise ConfigError(f"a controller of {batch_policy.choices} choices for {len(self.sizes)} sizes.")
        whole = self.distance(target)
        noise = rng.generator(self.seed, "control/simulator").standard_normal((most_steps, 3))
        left, seconds = whole, 0.0
        choices: list[int] = []
        losses: list[float] = []
        decisions: list[BatchDecision] = []
        for for_loss, for_time, for_validation in noise:
            action = batch_policy.choice
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
            batch_policy.observe(loss, step_s * math.exp(self.jitter * for_time))
            if batch_policy.is_due(decide_every):
                seconds += self.evaluation_s * validated
                loss = losses[-1] * (1 + self.validation_noise * for_validation) if validated else None
                decisions.append(batch_policy.decide(loss))
        return SimulatedRun(None, tuple(choices), tuple(losses), tuple(decisions))

    def fixed_s_to(self, action: int, target: float) -> float:
        """Seconds to the target with one size throughout.

        Raises:
            ConfigError: the target is not between floor and start.
        """
        return planned_s(self, (action,), target)

    def best_fixed(self, target: float) -> tuple[int, float]:
        """The best fixed size in hindsight: its action and its seconds to the target; ties go to the lower action."""
        times = [self.fixed_s_to(action, target) for action in range(len(self.sizes))]
        action = min(range(len(times)), key=times.__getitem__)
        return action, times[action]

    def regret_s(self, run: SimulatedRun, target: float) -> float | None:
        """Seconds lost against the best fixed size in hindsight; None where the run did not reach the target.

        Never negative if ``growth`` is 1; otherwise a negative value is what the controller gained.
        """
        return None if run.seconds is None else run.seconds - self.best_fixed(target)[1]

    def distance(self, target: float) -> float:
        """Total decrease of ln(loss - floor) to the target."""
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
TARGET = 0.25  # loss to reach in the scenarios that controllers are compared in
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
# name -> the policy, its reward, and whether it uses the validation loss
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
    """Each controller's run with every seed, all starting with the middle size.

    Args:
        simulator: of the training; its seed is replaced.
        target: loss to reach.
        seeds: of controllers and of observation noise.
        decide_every: steps between two decisions.
        controllers: by name, the policy, its reward, and whether it uses the validation loss.
    """
    found: dict[str, list[SimulatedRun]] = {}
    for name, (policy, reward, validated) in controllers.items():
        found[name] = []
        for seed in seeds:
            batch_policy = make_batch_policy(
                policy,
                choices=len(simulator.sizes),
                initial=len(simulator.sizes) // 2,
                seed=seed,
                reward=reward,
                sizes=simulator.sizes,
            )
            run = replace(simulator, seed=seed).run(
                batch_policy, target=target, decide_every=decide_every, validated=validated, most_steps=MOST_STEPS
            )
            found[name].append(run)
    return found


def over_best_fixed(simulator: BatchSimulator, *, names: Sequence[str], seeds: Sequence[int]) -> dict[str, list[float]]:
    """Seconds of some ``CONTROLLERS`` relative to the best fixed size, which is known in hindsight only.

    Args:
        simulator: of the training, to ``TARGET``.
        names: of controllers.
        seeds: of controllers and of observation noise.

    Returns:
        By name, a ratio per seed, ascending; infinite if the target was never reached.
    """
    best_s = simulator.best_fixed(TARGET)[1]
    runs = compared(simulator, TARGET, seeds=seeds, controllers={name: CONTROLLERS[name] for name in names})
    return {
        name: sorted(math.inf if run.seconds is None else run.seconds / best_s for run in found)
        for name, found in runs.items()
    }


# Fixed plans of batch sizes: one size for each stage of the progress to the target.


def planned_s(simulator: BatchSimulator, plan: Sequence[int], target: float) -> float:
    """Seconds to the target of a simulated training with a fixed plan of sizes.

    The total decrease of the logarithm of the loss above its floor is divided into equal stages, one per size of the
    plan; a step has the size of the stage in which it begins. Only the needed share of the last step counts, as in
    :class:`BatchSimulator`.

    Args:
        simulator: of the training; its noise is ignored.
        plan: action of each stage, at least one.
        target: a loss between floor and start.

    Raises:
        ConfigError: the plan is empty, or the target is not between floor and start.
        PlanError: an action does not exist.
    """
    whole = simulator.distance(target)
    if not plan:
        raise ConfigError(f"a plan of no stages to a loss of {target}: give at least one stage.")
    for action in plan:
        checked_action(action, len(simulator.sizes))
    left, seconds = whole, 0.0
    while left > 0:
        done = 1 - left / whole
        action = plan[min(int(done * len(plan)), len(plan) - 1)]
        gain = simulator.gain(action, done)
        seconds += min(left / gain, 1.0) * simulator.step_s(action)
        left -= gain
    return seconds
