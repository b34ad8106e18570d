"""The adjuster of batch sizes: watches steps, rewards the last choice by them, and makes the next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.control.agent import Agent, checked_action, checked_choices
from dtdg_lab.control.bandit import Bandit
from dtdg_lab.control.dqn import DQN
from dtdg_lab.control.fixed import Fixed
from dtdg_lab.control.progress_law import ProgressLaw
from dtdg_lab.control.rewards import checked_reward, progress_reward, reward
from dtdg_lab.control.uniform import Uniform
from dtdg_lab.core.errors import ConfigError, NotFiniteError, PlanError, UnknownNameError

POLICIES = ("none", "random", "bandit", "dqn", "law")


@dataclass(frozen=True, slots=True)
class Decision:
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
            loss: of its batch; None where it had no labels, or where the validation part's is given to :meth:`decide`.
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

    def decide(self, loss: float | None = None) -> Decision:
        """End the window: learn from it what the last choice was worth, and choose anew.

        Args:
            loss: what counts as the window's loss instead of the mean of its steps, such as the validation part's.

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
            "loss_reduction": reduction, "epsilon": chosen.epsilon, "greedy": chosen.greedy, "loss": now,
            "step_s": step_s, "steps": self._steps,
        }  # fmt: skip
        self._pending, self._choice, self._last_s = (state, chosen.action), chosen.action, step_s
        self._last_loss = self._last_loss if now is None else now
        self._last_reduction = self._last_reduction if reduction is None else reduction
        self._clear_window()
        return Decision(self.policy, seen, list(chosen.values), chosen.action, earned)

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
            "policy": self.policy, "choices": self.choices, "choice": self._choice,
            "pending": None if self._pending is None else list(self._pending),
            "last": [self._last_loss, self._last_s, self._last_reduction, self._best_rate],
            "window": [self._losses, self._loss_count, self._seconds, self._steps],
            "agent": self._agent.state_dict(),
        }  # fmt: skip

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
        agent = Uniform(choices, seed=seed)
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
