"""What an adjuster of batches saw and chose, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

KEPT = 2000


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision.

    Attributes:
        step: updates of rank 0's model before it.
        policy: what decided: ``random``, ``bandit`` or ``dqn``.
        values: what each action was thought to be worth; None where that is not known.
        action: chosen.
        reward: of the action chosen before; None where there was none.
        epsilon: share of decisions that are drawn; None where the policy has none.
        greedy: whether the best value was taken; None where that was not told.
        loss_reduction: by how much the loss fell under the action before; None where it is not known.
        step_s: seconds that a step took under it; None where it is not known.
    """

    step: int
    policy: str
    values: tuple[float | None, ...]
    action: int
    reward: float | None
    epsilon: float | None
    greedy: bool | None
    loss_reduction: float | None
    step_s: float | None


@dataclass(frozen=True, slots=True)
class Rewarded:
    """What an action earned: ``reward``, told by the decision after it, at ``step``."""

    step: int
    action: int
    reward: float


class AdjusterLog:
    """Rows of the table ``decisions`` that are about sizes of batches; others are passed over.

    Args:
        kept: decisions.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._choices: dict[int, tuple[int, Choice]] = {}  # step -> attempt, choice

    def row(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row; that several ranks tell the same changes nothing."""
        state = row["state"]
        if not isinstance(state, Mapping) or "loss_reduction" not in state:
            return
        greedy = state.get("greedy")
        self._choices[int(row["step"])] = (attempt, Choice(
            int(row["step"]), str(row["policy"]), tuple(_number(value) for value in row["values"]), int(row["action"]),
            _number(row["reward"]), _number(state.get("epsilon")), None if greedy is None else bool(greedy),
            _number(state["loss_reduction"]), _number(state.get("step_s")),
        ))  # fmt: skip
        while len(self._choices) > self._kept:
            del self._choices[min(self._choices)]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt decided after ``step``; what it decided at it was made of the steps before."""
        self._choices = {at: kept for at, kept in self._choices.items() if at <= step or kept[0] >= attempt}

    def choices(self, *, since: int = 0) -> list[Choice]:
        """The decisions from step ``since`` on, in order."""
        return [self._choices[at][1] for at in sorted(self._choices) if at >= since]


def rewarded(choices: Sequence[Choice]) -> list[Rewarded]:
    """What each action earned; a decision tells the reward of the one before it."""
    return [
        Rewarded(now.step, before.action, now.reward)
        for before, now in pairwise(choices) if now.reward is not None
    ]  # fmt: skip


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    return float(value) if value is not None and math.isfinite(value) else None
