"""Charts of batch-size controllers: values, choices, rewards, regret, and comparisons with fixed sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any, TypeVar

from dtdg_lab.core import catalogue
from dtdg_lab.core.records import read_fields
from dtdg_lab.core.units import format_seconds
from dtdg_lab.systems.hybrid_batches.charts import size_key, size_style
from dtdg_lab.systems.hybrid_batches.events import HybridFacts
from dtdg_lab.visualization.charts import Drawn, Panel, chart, level_bars, line, points, right_axis, rule, whiskers
from dtdg_lab.visualization.layout import Figure, join_words, percent
from dtdg_lab.visualization.loss import near_best, seconds_to
from dtdg_lab.visualization.palette import BASELINE_COLOUR, MARK_COLOUR, STEP_COLOUR, series_colour
from dtdg_lab.visualization.series import PartLog
from dtdg_lab.visualization.style import Marks

T = TypeVar("T")

if TYPE_CHECKING:
    from dtdg_lab.visualization.run_window import RunWindow


# What a batch policy saw and chose, in bounded memory.


KEPT = 2000


@dataclass(frozen=True, slots=True)
class LoggedChoice:
    """One decision.

    Attributes:
        step: updates of rank 0's model before it.
        policy: what decided: ``random``, ``bandit`` or ``dqn``.
        values: what each action was thought to be worth; None where that is not known.
        action: chosen.
        reward: of the action chosen before; None where there was none.
        epsilon: share of decisions that are drawn; None where the policy has none.
        greedy: whether the best value was taken; None where unknown.
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
    """What an action earned: ``reward``, logged by the decision after it, at ``step``."""

    step: int
    action: int
    reward: float


class BatchPolicyLog(PartLog[LoggedChoice]):
    """Rows of the table ``decisions`` that are about sizes of batches; others are passed over."""

    kept = KEPT

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row; that several ranks tell the same changes nothing."""
        state = row["state"]
        if not isinstance(state, Mapping) or "loss_reduction" not in state:
            return
        choice = read_fields(LoggedChoice, {**state, **row})
        self.add(0, choice.step, attempt, choice)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt decided after ``step``; what it decided at it was made of the steps before."""
        super().truncate(step + 1, attempt)

    def choices(self, *, since: int = 0) -> list[LoggedChoice]:
        """The decisions from step ``since`` on, in order."""
        return self.of(0, since=since)


def rewarded(choices: Sequence[LoggedChoice]) -> list[Rewarded]:
    """What each action earned; a decision tells the reward of the one before it."""
    return [
        Rewarded(now.step, before.action, now.reward) for before, now in pairwise(choices) if now.reward is not None
    ]


# What rewards say of a batch policy: what each size earned on average, and what was lost against the best of them.


FEWEST = 3  # rewards from which on an action may be the best
_NOTHING = 1e-9  # of a reward: what rounding makes of equal ones


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """What one action earned: how often, on average, and the standard error of that (None below two rewards)."""

    count: int
    mean: float
    error: float | None


@dataclass(frozen=True, slots=True)
class BatchPolicyFacts:
    """Rewards of a run's decisions.

    A reward compares a choice with the one before it, and losses fall more slowly later on: means of actions that were
    tried at different times are an estimate. Only runs with fixed sizes show whether one would have been better
    (``views.batch_policy_verdict``).

    Attributes:
        policy: what decides.
        decisions: so far.
        greedy: share of them in which the best value was taken; None where unknown.
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


def batch_policy_facts(choices: Sequence[LoggedChoice], actions: int) -> BatchPolicyFacts:
    """The facts of decisions in order, of a batch policy with so many actions; there is at least one decision."""
    rewards = tuple(each for each in rewarded(choices) if 0 <= each.action < actions)
    arms = tuple(_arm([each.reward for each in rewards if each.action == action]) for action in range(actions))
    known = [(arm.mean, action) for action, arm in enumerate(arms) if arm is not None and arm.count >= FEWEST]
    described = [choice.greedy for choice in choices if choice.greedy is not None]
    return BatchPolicyFacts(
        policy=choices[-1].policy,
        decisions=len(choices),
        greedy=sum(described) / len(described) if described else None,
        epsilon=choices[-1].epsilon,
        rewards=rewards,
        arms=arms,
        best=max(known)[1] if known else None,
        late=_arm([each.reward for each in rewards[len(rewards) // 2 :]]),
    )


def batch_policy_words(facts: BatchPolicyFacts, hybrid: HybridFacts, action: int) -> str:
    """What it chose, and how that stands against the best fixed size."""
    return (
        f"{choice_words(facts, hybrid, action)} {best_words(facts, hybrid)} Rewards compare a size with the one before "
        "it: compare runs with fixed sizes to see whether one is better."
    )


def choice_words(facts: BatchPolicyFacts, hybrid: HybridFacts, action: int) -> str:
    """How often it has decided, and what it is at."""
    text = f"{facts.policy} made {facts.decisions:,} decision{'s' * (facts.decisions > 1)}"
    text += "" if facts.greedy is None else f", {percent(facts.greedy)} of them by the best value"
    return f"{text}, and is at {hybrid.label(action)}."


def best_words(facts: BatchPolicyFacts | None, hybrid: HybridFacts) -> str:
    """How it stands against the best fixed size by the rewards of its own run; empty before anything was decided."""
    if facts is None:
        return ""
    best = None if facts.best is None else facts.arms[facts.best]
    if facts.best is None or best is None or facts.late is None:
        return "No size was rewarded often enough to be called the best."
    verdict = {
        True: "it beats it",
        False: "the batch policy does not beat the best fixed size here",
        None: "inconclusive",
    }
    return (
        f"Best on average was {hybrid.label(facts.best)}, {best.mean:.2g} in {best.count:,} decisions; the newer half "
        f"earned {facts.late.mean:.2g}: {verdict[facts.beats_best]} (estimated)."
    )


def _arm(rewards: Sequence[float]) -> ArmFacts | None:
    count = len(rewards)
    if not count:
        return None
    return ArmFacts(count, fmean(rewards), stdev(rewards) / math.sqrt(count) if count > 1 else None)


# The batch policy in pictures: values of the sizes, choices and epsilon, rewards, and regret.


NO_DECISION = "nothing was decided yet"
_STEP = "step (model updates of rank 0)"
_POINTS = 300  # of a line, so that pictures stay small
_SMOOTHED = 20  # rewards that a mean is taken of


def batch_policy_panels(choices: Sequence[LoggedChoice], hybrid: HybridFacts, marks: Marks) -> dict[str, Panel]:
    """``values``, ``choices``, ``rewards`` and ``regret`` of decisions in order; there may be none."""
    facts = batch_policy_facts(choices, len(hybrid.sizes)) if choices else None
    said = choice_words(facts, hybrid, choices[-1].action) if facts else "Every so many steps it chooses a size."
    return {
        "values": (_values_figure(choices, hybrid, marks), _values_words(choices, hybrid)),
        "choices": (_choices_figure(choices, hybrid, marks), f"{said} {_CHOICES}"),
        "rewards": (_rewards_figure(facts, marks), f"{_REWARDS} {best_words(facts, hybrid)}".strip()),
        "regret": (_regret_figure(facts, hybrid, marks), _regret_words(facts, hybrid)),
    }


_CHOICES = "Look whether crosses, which were drawn, get rarer, and points gather at one size."
_REWARDS = "Above 0: steps got shorter, or the loss fell faster, than under the size before."


def _values_words(choices: Sequence[LoggedChoice], hybrid: HybridFacts) -> str:
    look = "Look for one line that stays on top: until then the choice is a guess."
    known = [(value, action) for action, value in enumerate(choices[-1].values if choices else ()) if value is not None]
    if not known:
        return look
    best, least = max(known), min(known)
    return (
        f"Worth most now: {hybrid.label(best[1])} ({best[0]:.3g}); least: {hybrid.label(least[1])} ({least[0]:.3g}). "
        f"{look}"
    )


def _thinned(items: Sequence[T]) -> Sequence[T]:
    """At most so many, the newest among them."""
    stride = -(-len(items) // _POINTS)
    return items[(len(items) - 1) % stride :: stride] if stride > 1 else items


def _values_figure(choices: Sequence[LoggedChoice], hybrid: HybridFacts, marks: Marks) -> Figure:
    shown = _thinned(choices)
    x, data = [choice.step for choice in shown], []
    for action in range(len(hybrid.sizes)):
        y = [_short(choice.values[action]) if action < len(choice.values) else None for choice in shown]
        if any(value is not None for value in y):
            looks = size_style(hybrid, action) | {"showlegend": False}
            data.append(line(hybrid.label(action), x, y, hover="step %{x}: %{y:.4~g}", **looks))
    note = "this policy keeps no values" if choices else NO_DECISION
    looks = {"x_title": _STEP, "empty": note, "showlegend": False}
    figure = marks.chart("Estimated value of each size", "value", data, x, **looks)
    figure["layout"]["annotations"] += [size_key(hybrid)] if data else []
    return figure


def _choices_figure(choices: Sequence[LoggedChoice], hybrid: HybridFacts, marks: Marks) -> Figure:
    """Points at the sizes that were chosen; epsilon as a line against the right axis."""
    shown = choices[-_POINTS:]
    sizes = list(range(len(hybrid.sizes)))
    data = []
    for name, colour, symbol in (("best value", series_colour(0), "circle"), ("drawn", series_colour(4), "x")):
        found = [choice for choice in shown if (choice.greedy is False) == (name == "drawn")]
        x, y = [choice.step for choice in found], [choice.action for choice in found]
        looks: Drawn = {"marker": {"symbol": symbol}, "customdata": [hybrid.label(action) for action in y]}
        if found:
            data.append(points(name, x, y, colour, "step %{x}: %{customdata}", **looks))
    drawn = [choice for choice in shown if choice.epsilon is not None]
    if drawn:
        x, shares = [choice.step for choice in drawn], [_short(choice.epsilon) for choice in drawn]
        looks = {"hover": "step %{x}: %{y:.3~g}<extra>epsilon</extra>", "width": 1.5, "mode": "lines", "yaxis": "y2"}
        data.append(line("epsilon (right)", x, shares, **looks))
    axis = {"tickvals": sizes, "ticktext": [hybrid.label(a) for a in sizes], "range": [-0.5, len(sizes) - 0.5]}
    looks = {"x_title": _STEP, "empty": NO_DECISION, "showlegend": True, "yaxis": axis}
    figure = marks.chart("Choices", "snapshots x nodes", data, [choice.step for choice in shown], **looks)
    if drawn:
        right_axis(figure["layout"], "epsilon", 44, range=[0, 1.03])
    return figure


def _rewards_figure(facts: BatchPolicyFacts | None, marks: Marks) -> Figure:
    rewards = () if facts is None else facts.rewards[-_POINTS:]
    x, y = [each.step for each in rewards], [each.reward for each in rewards]
    means = [_short(fmean(y[max(0, at - _SMOOTHED + 1) : at + 1])) for at in range(len(y))]
    hover = "step %{x}: %{y:.3~g}"
    data = [
        points("each", x, [_short(each) for each in y], STEP_COLOUR, hover, size=5),
        line(f"mean of {_SMOOTHED}", x, means, series_colour(0), hover, mode="lines"),
    ]
    looks: Drawn = {"x_title": _STEP, "empty": "nothing was rewarded yet", "showlegend": True}
    return marks.chart("Rewards", "reward of the size before", data if rewards else [], x, **looks)


def _regret_figure(facts: BatchPolicyFacts | None, hybrid: HybridFacts, marks: Marks) -> Figure:
    regret = facts.regret() if facts else []
    rewards = facts.rewards if facts else ()
    steps = [each.step for each, _ in _thinned([*zip(rewards, regret, strict=False)])]
    sums, data = [_short(each) for each in _thinned(regret)], []
    if facts is not None and facts.best is not None and steps:
        name = f"against always {hybrid.label(facts.best)}"
        data = [line(name, steps, sums, MARK_COLOUR, "step %{x}: %{y:.3~g}<extra></extra>", mode="lines")]
    looks: Drawn = {"x_title": _STEP, "empty": "no size was rewarded often enough", "showlegend": True}
    return marks.chart("Regret, estimated", "sum of reward missed", data, steps, **looks)


def _regret_words(facts: BatchPolicyFacts | None, hybrid: HybridFacts) -> str:
    look = "Flat: it has learned what is best; still rising: it has not."
    regret = facts.regret() if facts else []
    if facts is None or facts.best is None or not regret:
        return f"The best size's mean reward less the reward received, summed up. {look}"
    return (
        f"Estimated: the mean reward of {hybrid.label(facts.best)}, best by this run's rewards, less what was "
        f"received, summed up: {regret[-1]:.3g} in {len(regret):,} decisions. {look}"
    )


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


# BatchPolicys of batches against runs with fixed sizes: does choosing beat the best fixed size here?


Labelled = Sequence[tuple[str, "RunWindow"]]
_SIZES = ("batch_snapshots", "batch_nodes")
# in which runs may differ and yet be compared: what steers sizes, the seed, and how long they may go on
_FREE = frozenset({*_SIZES, "system", "seed", "epochs", "name"})


def batch_policy_verdict(runs: Labelled) -> str:
    """Whether batch policies come near the least loss of all before the best fixed size does, in hindsight.

    Compared are runs of the same settings, but for sizes, batch policies and seeds; of several seeds the
    median counts. A run whose sizes or batch policy were changed on the way is left out.

    Args:
        runs: labelled windows of runs.

    Returns:
        A sentence for each such comparison; empty where there is none.
    """
    groups: dict[tuple[tuple[str, str], ...], list[RunWindow]] = {}
    for _, window in runs:
        if window.view("hybrid").unchanged:
            groups.setdefault(_settings(window), []).append(window)
    return " ".join(filter(None, (_verdict(group) for group in groups.values())))


def _verdict(windows: Sequence[RunWindow]) -> str:
    loss = near_best(windows)
    if loss is None:
        return ""
    taken: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for window in windows:
        seconds, facts = seconds_to(window, loss), window.view("hybrid").facts
        if facts is not None:
            name = facts.batch_policy if facts.adjusted else facts.size.label
            taken[facts.adjusted].setdefault(name, []).append(math.inf if seconds is None else seconds)
    adjusted, fixed = ({name: median(each) for name, each in taken[of].items()} for of in (True, False))
    return verdict_words(adjusted, fixed, loss)


def verdict_words(adjusted: Mapping[str, float], fixed: Mapping[str, float], loss: float) -> str:
    """The verdict on batch policies, by seconds to a loss; empty where there is nothing to compare with.

    Args:
        adjusted: seconds by batch policy; infinite where it did not get there.
        fixed: seconds by fixed size.
        loss: to be reached.
    """
    if not adjusted or not fixed:
        return ""
    sizes = f"{len(fixed)} fixed size{'s' * (len(fixed) > 1)}"
    best = min(fixed, key=lambda name: fixed[name])
    if fixed[best] == math.inf:
        there = [name for name in adjusted if adjusted[name] < math.inf]
        got = f"{join_words(sorted(there))} got" if there else "nothing of these got"
        return f"None of {sizes} got to loss {loss:.4g}; {got} there."
    text = f"The best of {sizes}, in hindsight, is {best}: {format_seconds(fixed[best])} to loss {loss:.4g}."
    for ahead, one, several in ((True, "beats", "beat"), (False, "does not beat", "do not beat")):
        names = sorted(name for name, seconds in adjusted.items() if (seconds < fixed[best]) == ahead)
        taken = {name: format_seconds(adjusted[name]) if adjusted[name] < math.inf else "not there" for name in names}
        if names:
            said = join_words([f"{name} ({seconds})" for name, seconds in taken.items()])
            text += f" {said} {one if len(names) == 1 else several} it here."
    return text


def _settings(window: RunWindow) -> tuple[tuple[str, str], ...]:
    """What must be the same for times to be compared."""
    steering = {name for entry in catalogue.names("control") for name in catalogue.entry("control", entry).options}
    flat = window.config.flat
    return tuple(sorted((name, repr(value)) for name, value in flat.items() if name not in _FREE | steering))


# Manually planned batch sizes against batch policies and fixed sizes: time to the target.


BY_HAND = "manual"


def sizes_by_hand_figure(
    hand_s: float, batch_policies: Mapping[str, Sequence[float]], fixed: Mapping[str, float]
) -> Figure:
    """Seconds to the target as bars, the fastest on top.

    Args:
        hand_s: seconds of the plan.
        batch_policies: of each policy, seconds by seed; the bar is their median, the whisker their range.
        fixed: seconds of each fixed size. The dotted line is the least.

    Those that never arrive, in infinitely many seconds, are left out.
    """
    rows = [(hand_s, BY_HAND, 1), *((median(seconds), policy, 0) for policy, seconds in batch_policies.items())]
    rows = sorted(row for row in [*rows, *((seconds, size, 7) for size, seconds in fixed.items())] if row[0] < math.inf)
    # where a seed never arrives, whiskers reach up to the most that does
    arrived = [
        [each for each in batch_policies.get(name, ()) if each < math.inf] or [seconds] for seconds, name, _ in rows
    ]
    ends = [min(each) for each in arrived], [seconds for seconds, *_ in rows], [max(each) for each in arrived]
    bars = level_bars(
        "",
        [name for _, name, _ in rows],
        [round(seconds, 6) for seconds, _, _ in rows],
        [series_colour(colour) for _, _, colour in rows],
        "%{y}: %{x:.3f} s<extra></extra>",
        text=[f"{seconds:.3g} s" for seconds, _, _ in rows],
        error_x=whiskers(*ends, BASELINE_COLOUR),
        **{"textposition": "inside", "insidetextanchor": "start", "showlegend": False},
    )
    return chart(
        "Seconds to the target",
        "seconds",
        "",
        [bars],
        xaxis={"rangemode": "tozero"},
        yaxis={"autorange": "reversed", "showgrid": False},
        showlegend=False,
        height=96 + 24 * len(rows),
        margin={"l": 96, "r": 14, "t": 34, "b": 40},
        shapes=[rule(x=min(fixed.values(), default=0.0))],
    )
