"""The batch-size controller: it observes steps, rewards the last choice, and makes the next one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError, NotFiniteError
from dtdg_lab.engine.capabilities import DecisionRow
from dtdg_lab.rl.agent import Agent, Bandit, Fixed, UniformAgent, checked_action, checked_choices
from dtdg_lab.rl.dqn import DQN
from dtdg_lab.systems.hybrid_batches.progress_law import ProgressLaw

LIMIT = 1.0  # of each term of the reward
MAX_RATE = 1e300  # in 1/s
FADE = 0.97  # factor of the best rate of progress per decision


def time_reward(last_s: float, now_s: float) -> float:
    """Return the relative reduction of the seconds of a step: (t_l - t_c) / t_l, within [-1, 1].

    Args:
        last_s: seconds of a step under the last choice.
        now_s: seconds of a step under the current choice.

    Returns:
        0.5 for half the time, -1 for twice the time or more; if the last time is 0, -1 for any increase.
    """
    return _share(last_s - now_s, last_s)


def loss_reward(last_reduction: float | None, now_reduction: float | None) -> float:
    """Return the relative gain in the decrease of the loss: (d_c - d_l) / |d_c|, within [-1, 1].

    Args:
        last_reduction: decrease of the loss under the last choice; negative if it rose, None if unknown.
        now_reduction: decrease under the current choice.

    Returns:
        0 if either is unknown or both are equal. If ``now_reduction`` is 0, the sign of the difference, which is the
            limit.

    Differs from the paper: its denominator is signed, which would reward an accelerating increase of the loss.
    """
    if last_reduction is None or now_reduction is None:
        return 0.0
    return _share(now_reduction - last_reduction, now_reduction)


def reward(last_s: float, now_s: float, last_reduction: float | None, now_reduction: float | None) -> float:
    """Return R = R_time + R_loss, within [-2, 2].

    Args:
        last_s: seconds of a step under the last choice.
        now_s: seconds of a step under the current choice.
        last_reduction: decrease of the loss under the last choice, None if unknown.
        now_reduction: decrease under the current choice, None if unknown.

    References: DynaHB definition 6, equation 3.
    Differs from the paper: each term is bounded to [-1, 1], since both are quotients of measurements that may be nearly
        0. See the terms for division by zero and the sign of a negative decrease.
    """
    return time_reward(last_s, now_s) + loss_reward(last_reduction, now_reduction)


def progress_reward(last_loss: float, loss: float, seconds: float, best: float) -> tuple[float, float]:
    """Return progress per second relative to its best so far, within [-1, 1], and the updated best.

    Progress is the relative decrease of the loss. A size is rewarded for its progress, not for beating the previous
    size. The best rate is reduced by 3 % with every decision, since losses fall more slowly later on.

    Args:
        last_loss: at the beginning of the round.
        loss: at its end.
        seconds: seconds of its steps.
        best: the largest absolute rate so far, in 1/s; 0 at first.

    Returns:
        The reward, 0 if the last loss or the seconds are 0; and the best rate, including this round.
    """
    scale = abs(last_loss) * seconds
    rate = (last_loss - loss) / scale if 0 < scale < math.inf else 0.0
    rate = max(-MAX_RATE, min(MAX_RATE, rate))
    best = max(FADE * best, abs(rate))
    return (_share(rate, best) if best else 0.0), best


def _share(gain: float, scale: float) -> float:
    """Return gain / |scale|, bounded; the sign of the gain if the scale is 0."""
    if abs(gain) >= LIMIT * abs(scale):  # avoid dividing: the quotient of tiny numbers may overflow
        return 0.0 if gain == 0 else math.copysign(LIMIT, gain)
    return gain / abs(scale)


class BatchSizeController:
    """Rounds of steps of one batch size: after a round the agent learns its reward and chooses the next size.

    The agent's state is the decrease of the loss since the round before, 0 if unknown. A round's loss is the mean over
    its steps, its time the mean of their seconds.

    Args:
        agent: makes the choices.
        policy: name of the controller in the catalogue.
        initial: index of the size until the first decision.
        reward_rule: ``paper`` or ``progress``; a :class:`ProgressLaw` always uses progress.

    Attributes:
        choice: index of the current size.
        steps: steps observed since the last decision.

    Raises:
        PlanError: ``initial`` is not the index of a size.

    References: DynaHB section 5.1 (definitions 4 to 6) and algorithm 2, lines 12 and 13.
    Differs from the paper: a decision uses a round of steps instead of one, because losses of single batches vary far
    more than they decrease from one step to the next.
    """

    def __init__(self, agent: Agent, policy: str, initial: int, reward_rule: str = "paper") -> None:
        self._agent, self.policy, self.choices = agent, policy, agent.choices
        self.choice = checked_action(initial, agent.choices)
        self._pending: tuple[float, int] | None = None  # state and action whose reward is still unknown
        self._last_loss: float | None = None
        self._last_s: float | None = None
        self._last_reduction: float | None = None
        self._best_rate = 0.0
        self.set_reward(reward_rule)
        self._begin_round()

    def set_reward(self, rule: str) -> None:
        """Set the reward of later rounds: ``paper`` or ``progress``."""
        self._progress = rule == "progress" or isinstance(self._agent, ProgressLaw)

    def is_due(self, every: int) -> bool:
        """Return True if ``every`` steps were observed since the last decision."""
        return self.steps >= every

    def observe(self, loss: float | None, seconds: float, action: int | None = None) -> None:
        """Record one step.

        Args:
            loss: loss of its batch; None if it had no labels, or if :meth:`decide` gets the validation loss.
            seconds: duration of the step.
            action: its size, if ranks follow a choice with a delay: a step of another size than the current choice is
                ignored. None for the current size.

        Raises:
            NotFiniteError: the loss is not finite.
        """
        if action is not None and action != self.choice:
            return
        if loss is not None:
            self._losses += _finite(loss)
            self._loss_count += 1
        self._seconds += seconds
        self.steps += 1

    def decide(self, loss: float | None = None) -> DecisionRow:
        """End the round of at least one step: learn the reward of the last choice, and make the next.

        Args:
            loss: replaces the mean loss of the round's steps, for example the validation loss.

        Returns:
            The new size, which is :attr:`choice` as well, the reward of the last one, and the values of all. Its
            observations are ``loss_reduction`` (the loss of the round before minus this one's, None if either is
            unknown), ``epsilon``, ``greedy``, ``loss`` (None if there was none), ``step_s`` (mean seconds of
            the round's steps) and ``steps``.

        Raises:
            NotFiniteError: the loss is not finite.
        """
        step_s = self._seconds / self.steps
        if loss is not None:
            loss = _finite(loss)
        elif self._loss_count:
            loss = self._losses / self._loss_count
        reduction = None if loss is None or self._last_loss is None else self._last_loss - loss
        reward = self._round_reward(loss, step_s, reduction)
        state = 0.0 if reduction is None else reduction
        if reward is not None and self._pending is not None:
            if isinstance(self._agent, ProgressLaw):
                self._agent.timed(self._pending[1], step_s)
            self._agent.learn(*self._pending, reward, state)
        choice = self._agent.choose(state)
        observations = {
            "loss_reduction": reduction,
            "epsilon": choice.epsilon,
            "greedy": choice.greedy,
            "loss": loss,
            "step_s": step_s,
            "steps": self.steps,
        }
        self._pending, self.choice, self._last_s = (state, choice.action), choice.action, step_s
        self._last_loss = self._last_loss if loss is None else loss
        self._last_reduction = self._last_reduction if reduction is None else reduction
        self._begin_round()
        return DecisionRow(self.policy, observations, list(choice.values), choice.action, reward)

    def _round_reward(self, loss: float | None, step_s: float, reduction: float | None) -> float | None:
        """Return the reward of the round; None if unknown."""
        if not self._progress:
            return None if self._last_s is None else reward(self._last_s, step_s, self._last_reduction, reduction)
        if loss is None or self._last_loss is None:
            return None
        progress, self._best_rate = progress_reward(self._last_loss, loss, self._seconds, self._best_rate)
        return progress

    def follow(self, action: int) -> None:
        """Continue with a size chosen elsewhere: the current round is dropped without learning from it.

        Raises:
            PlanError: the size does not exist.
        """
        self.choice = checked_action(action, self.choices)
        self._pending = None
        self._begin_round()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that later decisions depend on, including the current round, as lists and numbers."""
        return {
            "policy": self.policy,
            "choices": self.choices,
            "choice": self.choice,
            "pending": None if self._pending is None else list(self._pending),
            "last": [self._last_loss, self._last_s, self._last_reduction, self._best_rate],
            "window": [self._losses, self._loss_count, self._seconds, self.steps],
            "agent": self._agent.state_dict(),
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Restore a state dict of :meth:`state_dict`, of the same policy and sizes."""
        self.choice = int(data["choice"])
        pending = data["pending"]
        self._pending = None if pending is None else (float(pending[0]), int(pending[1]))
        last = (*data["last"], 0.0)[:4]  # checkpoints of schema 1 have no best rate
        self._last_loss, self._last_s, self._last_reduction, self._best_rate = last
        self._losses, self._loss_count, self._seconds, self.steps = data["window"]
        self._agent.load_state_dict(data["agent"])

    def _begin_round(self) -> None:
        self._losses, self._loss_count, self._seconds, self.steps = 0.0, 0, 0.0, 0


def _finite(loss: float) -> float:
    if not math.isfinite(loss):
        raise NotFiniteError(
            f"the loss is {loss}: no batch-size controller can learn from it. Lower learning_rate, or check the data."
        )
    return float(loss)


# Agents by their names in the catalogue.


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSettings:
    """The settings of agents that choose batch sizes; each agent reads the ones it needs.

    Attributes:
        choices: number of sizes to choose from.
        initial: index of the size until the first decision.
        seed: seed of random numbers.
        discount: gamma of the DQN.
        epsilon_decay: factor of the exploration rate per decision.
        epsilon_min: lower limit of the exploration rate.
        rate: learning rate.
        sizes: (N_S, N_V) of each choice; empty if unknown.
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
    """A function that returns an agent; add your own by ``lab.register(rule, "batch-size controller")``."""

    def __call__(self, settings: SizeSettings, /) -> Agent:
        """Return an agent of ``settings.choices`` actions.

        Raises:
            ConfigError: the agent cannot choose among these sizes.
        """


def keep_size(settings: SizeSettings) -> Agent:
    """Return the agent that keeps the initial size."""
    return Fixed(settings.choices, settings.initial)


def draw_size(settings: SizeSettings) -> Agent:
    """Return the agent that draws a size uniformly at random."""
    return UniformAgent(checked_choices(settings.choices), seed=settings.seed)


def pull_arms(settings: SizeSettings) -> Agent:
    """Return the multi-armed bandit."""
    return Bandit(settings.choices)


def learn_values(settings: SizeSettings) -> Agent:
    """Return the deep Q-network."""
    return DQN(
        settings.choices,
        seed=settings.seed,
        discount=settings.discount,
        rate=settings.rate,
        epsilon_decay=settings.epsilon_decay,
        epsilon_min=settings.epsilon_min,
    )


def fit_law(settings: SizeSettings) -> Agent:
    """Return the progress law.

    Raises:
        ConfigError: the sizes are unknown.
    """
    if not settings.sizes:
        raise ConfigError("batch_policy='law' fits progress against size. Give sizes, (N_S, N_V) of each choice.")
    return ProgressLaw(settings.sizes)


def make_controller(
    name: str, *, reward: str = "paper", sizes: Sequence[tuple[float, float]] = (), **settings: Any
) -> BatchSizeController:
    """Build a batch-size controller of the catalogue.

    Args:
        name: name in the catalogue's kind ``control``.
        reward: ``paper`` or ``progress``; ``law`` always uses progress.
        sizes: (N_S, N_V) of each choice, required by ``law``.
        settings: fields of :class:`SizeSettings`; ``choices`` is 2 or more, 1 or more for ``none``.

    Raises:
        ConfigError: there is only one size, ``law`` has no sizes, or the agent's number of actions differs.
        UnknownNameError: the controller is unknown.
        PlanError: ``initial`` is not the index of a size.
    """
    make_agent: SizeRule = catalogue.entry("control", name).load()
    size_settings = SizeSettings(sizes=tuple(sizes), **settings)
    agent = make_agent(size_settings)
    if agent.choices != size_settings.choices:
        raise ConfigError(
            f"the agent of batch_policy={name!r} has {agent.choices} actions for {size_settings.choices} sizes. "
            "Define one action per size."
        )
    return BatchSizeController(agent, name, size_settings.initial, reward)
