"""What rewards say of an adjuster: what each size earned on average, and what was lost against the best of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dtdg_lab.views.adjuster_log import Choice, Rewarded, rewarded
from dtdg_lab.views.hybrid_facts import HybridFacts
from dtdg_lab.views.layout import percent

FEWEST = 3  # rewards from which on an action may be the best
_NOTHING = 1e-9  # of a reward: what rounding makes of equal ones


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """What one action earned: how often, on average, and the standard error of that (None below two rewards)."""

    count: int
    mean: float
    error: float | None


@dataclass(frozen=True, slots=True)
class AdjusterFacts:
    """Rewards of a run's decisions.

    A reward compares a choice with the one before it, and losses fall more slowly later on: means of actions that were
    tried at different times are an estimate. Whether a fixed size would have been better is told by runs with fixed
    sizes (``views.adjuster_verdict``).

    Attributes:
        policy: what decides.
        decisions: so far.
        greedy: share of them in which the best value was taken; None where it was not told.
        epsilon: now; None where the policy has none.
        rewards: of actions, in order.
        arms: by action, what it earned; None where it was never rewarded.
        best: the action that earned most on average; None before any was rewarded ``FEWEST`` times.
        late: what the newer half of the decisions earned.
    """

    policy: str
    decisions: int
    greedy: float | None
    epsilon: float | None
    rewards: tuple[Rewarded, ...]
    arms: tuple[ArmFacts | None, ...]
    best: int | None
    late: ArmFacts | None

    def regret(self) -> list[float]:
        """After each reward, the sum of the best action's mean less the rewards received; empty without a best."""
        best = None if self.best is None else self.arms[self.best]
        if best is None:
            return []
        total, found = 0.0, []
        for each in self.rewards:
            total += best.mean - each.reward
            found.append(round(total, 9))
        return found

    @property
    def beats_best(self) -> bool | None:
        """Whether its newer half earned more than the best action does on average; None where errors are as large."""
        best = None if self.best is None else self.arms[self.best]
        if best is None or self.late is None or best.error is None or self.late.error is None:
            return None
        gain = self.late.mean - best.mean
        return None if abs(gain) < 2 * math.hypot(best.error, self.late.error) + _NOTHING else gain > 0


def adjuster_facts(choices: Sequence[Choice], actions: int) -> AdjusterFacts:
    """The facts of decisions in order, of an adjuster with so many actions; there is at least one decision."""
    rewards = tuple(each for each in rewarded(choices) if 0 <= each.action < actions)
    arms = tuple(_arm([each.reward for each in rewards if each.action == action]) for action in range(actions))
    known = [(arm.mean, action) for action, arm in enumerate(arms) if arm is not None and arm.count >= FEWEST]
    told = [choice.greedy for choice in choices if choice.greedy is not None]
    return AdjusterFacts(
        policy=choices[-1].policy, decisions=len(choices), greedy=sum(told) / len(told) if told else None,
        epsilon=choices[-1].epsilon, rewards=rewards, arms=arms, best=max(known)[1] if known else None,
        late=_arm([each.reward for each in rewards[len(rewards) // 2 :]]),
    )  # fmt: skip


def adjuster_words(facts: AdjusterFacts, hybrid: HybridFacts, action: int) -> str:
    """What it chose, and how that stands against the best fixed size."""
    return (
        f"{choice_words(facts, hybrid, action)} {best_words(facts, hybrid)} Rewards compare a size with the one before "
        "it: whether a fixed size is better is told by runs with each."
    )


def choice_words(facts: AdjusterFacts, hybrid: HybridFacts, action: int) -> str:
    """How often it has decided, and what it is at."""
    text = f"{facts.policy} made {facts.decisions:,} decision{'s' * (facts.decisions > 1)}"
    text += "" if facts.greedy is None else f", {percent(facts.greedy)} of them by the best value"
    return f"{text}, and is at {hybrid.label(action)}."


def best_words(facts: AdjusterFacts | None, hybrid: HybridFacts) -> str:
    """How it stands against the best fixed size by the rewards of its own run; empty before anything was decided."""
    if facts is None:
        return ""
    best = None if facts.best is None else facts.arms[facts.best]
    if facts.best is None or best is None or facts.late is None:
        return "No size was rewarded often enough to be called the best."
    verdict = {
        True: "it beats it",
        False: "the adjuster does not beat the best fixed size here",
        None: "not told apart",
    }
    return (
        f"Best on average was {hybrid.label(facts.best)}, {best.mean:.2g} in {best.count:,} decisions; the newer half "
        f"earned {facts.late.mean:.2g}: {verdict[facts.beats_best]} (estimated)."
    )


def _arm(rewards: Sequence[float]) -> ArmFacts | None:
    count = len(rewards)
    if not count:
        return None
    mean = sum(rewards) / count
    if count == 1:
        return ArmFacts(1, mean, None)
    variance = sum((reward - mean) ** 2 for reward in rewards) / (count - 1)
    return ArmFacts(count, mean, math.sqrt(variance / count))
