"""Discounted UCB: the action whose recent rewards were best, or might be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dtdg_lab.rl.agent import Agent, Choice, checked_action, checked_choices

FORGET = 0.99  # a reward counts half after 69 decisions
WIDTH = 0.5


class Bandit(Agent):
    """An agent that takes the highest upper confidence bound over discounted rewards; blind to the state.

    With N(a) = sum over the times a was taken of forget^age, and m(a) the mean of its rewards so weighted, the bound is
    m(a) + width sqrt(ln(sum of N) / N(a)). Actions that were never tried come first, the lower number before.
    It draws nothing: the same rewards, the same choices.

    Args:
        choices: A, number of actions, 2 or more.
        forget: weight that a reward keeps from one decision to the next, in (0, 1].
        width: of the confidence bound, in units of the reward.

    Raises:
        ConfigError: there is nothing to choose from.

    References: Garivier, Moulines 2011 (discounted UCB), section 2.1; Kocsis, Szepesvári 2006.
    Differs from the paper: its width, 2 B sqrt(xi) with B the rewards' range, is one for the worst case (6 for rewards
    within [-2, 2]) and would try bad actions most of the time over the few hundred decisions of a run; ours is 0.5.
    """

    def __init__(self, choices: int, *, forget: float = FORGET, width: float = WIDTH) -> None:
        self.choices = checked_choices(choices)
        self._forget, self._width = forget, width
        self._counts = [0.0] * choices
        self._sums = [0.0] * choices

    def choose(self, state: float) -> Choice:
        """Return the action of the highest bound; ties go to the lower one."""
        total = math.log(max(sum(self._counts), 1.0))
        means = tuple(reward / count if count else None for reward, count in zip(self._sums, self._counts, strict=True))
        bounds = [
            math.inf if mean is None else mean + self._width * math.sqrt(total / count)
            for mean, count in zip(means, self._counts, strict=True)
        ]
        action = bounds.index(max(bounds))
        best = max((mean for mean in means if mean is not None), default=None)
        return Choice(action, means, 0.0, means[action] is not None and means[action] == best)

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        """Discount all rewards by one decision, and add the reward to its action."""
        checked_action(action, self.choices)
        self._counts = [self._forget * count for count in self._counts]
        self._sums = [self._forget * total for total in self._sums]
        self._counts[action] += 1.0
        self._sums[action] += float(reward)

    def state_dict(self) -> dict[str, Any]:
        """Return discounted ``counts`` and ``sums`` of rewards, one of each per action."""
        return {"counts": list(self._counts), "sums": list(self._sums)}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Continue from the output of :meth:`state_dict`."""
        self._counts = [float(count) for count in data["counts"]]
        self._sums = [float(total) for total in data["sums"]]
