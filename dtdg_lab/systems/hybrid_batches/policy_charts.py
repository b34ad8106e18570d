"""Charts of batch-size controllers: values, choices, rewards, regret, and comparisons with fixed sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.units import format_seconds
from dtdg_lab.systems.hybrid_batches.charts import HybridFacts, size_key, size_style
from dtdg_lab.visualization.layout import Figure, frame, join_words, percent, with_note
from dtdg_lab.visualization.loss import near_best, seconds_to
from dtdg_lab.visualization.palette import BASELINE_COLOUR, MARK_COLOUR, STEP_COLOUR, series_colour
from dtdg_lab.visualization.style import Marks

if TYPE_CHECKING:
    from dtdg_lab.visualization.run_window import RunWindow


# What an adjuster of batches saw and chose, in bounded memory.


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


class AdjusterLog:
    """Rows of the table ``decisions`` that are about sizes of batches; others are passed over.

    Args:
        kept: decisions.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._choices: dict[int, tuple[int, LoggedChoice]] = {}  # step -> attempt, choice

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row; that several ranks tell the same changes nothing."""
        state = row["state"]
        if not isinstance(state, Mapping) or "loss_reduction" not in state:
            return
        greedy = state.get("greedy")
        self._choices[int(row["step"])] = (
            attempt,
            LoggedChoice(
                int(row["step"]),
                str(row["policy"]),
                tuple(_number(value) for value in row["values"]),
                int(row["action"]),
                _number(row["reward"]),
                _number(state.get("epsilon")),
                None if greedy is None else bool(greedy),
                _number(state["loss_reduction"]),
                _number(state.get("step_s")),
            ),
        )
        while len(self._choices) > self._kept:
            del self._choices[min(self._choices)]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt decided after ``step``; what it decided at it was made of the steps before."""
        self._choices = {at: kept for at, kept in self._choices.items() if at <= step or kept[0] >= attempt}

    def choices(self, *, since: int = 0) -> list[LoggedChoice]:
        """The decisions from step ``since`` on, in order."""
        return [self._choices[at][1] for at in sorted(self._choices) if at >= since]


def rewarded(choices: Sequence[LoggedChoice]) -> list[Rewarded]:
    """What each action earned; a decision tells the reward of the one before it."""
    return [
        Rewarded(now.step, before.action, now.reward) for before, now in pairwise(choices) if now.reward is not None
    ]


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    return float(value) if value is not None and math.isfinite(value) else None


# What rewards say of an adjuster: what each size earned on average, and what was lost against the best of them.


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
    tried at different times are an estimate. Only runs with fixed sizes show whether one would have been better
    (``views.adjuster_verdict``).

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


def adjuster_facts(choices: Sequence[LoggedChoice], actions: int) -> AdjusterFacts:
    """The facts of decisions in order, of an adjuster with so many actions; there is at least one decision."""
    rewards = tuple(each for each in rewarded(choices) if 0 <= each.action < actions)
    arms = tuple(_arm([each.reward for each in rewards if each.action == action]) for action in range(actions))
    known = [(arm.mean, action) for action, arm in enumerate(arms) if arm is not None and arm.count >= FEWEST]
    described = [choice.greedy for choice in choices if choice.greedy is not None]
    return AdjusterFacts(
        policy=choices[-1].policy,
        decisions=len(choices),
        greedy=sum(described) / len(described) if described else None,
        epsilon=choices[-1].epsilon,
        rewards=rewards,
        arms=arms,
        best=max(known)[1] if known else None,
        late=_arm([each.reward for each in rewards[len(rewards) // 2 :]]),
    )


def adjuster_words(facts: AdjusterFacts, hybrid: HybridFacts, action: int) -> str:
    """What it chose, and how that stands against the best fixed size."""
    return (
        f"{choice_words(facts, hybrid, action)} {best_words(facts, hybrid)} Rewards compare a size with the one before "
        "it: compare runs with fixed sizes to see whether one is better."
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
    mean = sum(rewards) / count
    if count == 1:
        return ArmFacts(1, mean, None)
    variance = sum((reward - mean) ** 2 for reward in rewards) / (count - 1)
    return ArmFacts(count, mean, math.sqrt(variance / count))


# The adjuster of batches in pictures: values of the sizes, choices and epsilon, rewards, and regret.


Panel = tuple[Figure, str]
NO_DECISION = "nothing was decided yet"
_STEP = "step (model updates of rank 0)"
_POINTS = 300  # of a line, so that pictures stay small
_SMOOTHED = 20  # rewards that a mean is taken of


def adjuster_panels(choices: Sequence[LoggedChoice], hybrid: HybridFacts, marks: Marks) -> dict[str, Panel]:
    """``values``, ``choices``, ``rewards`` and ``regret`` of decisions in order; there may be none."""
    facts = adjuster_facts(choices, len(hybrid.sizes)) if choices else None
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


def _thinned(choices: Sequence[LoggedChoice]) -> Sequence[LoggedChoice]:
    """At most so many decisions, the newest among them."""
    stride = -(-len(choices) // _POINTS)
    return choices[(len(choices) - 1) % stride :: stride] if stride > 1 else choices


def _layout(title: str, y_title: str, steps: Sequence[int], marks: Marks, **more: Any) -> dict[str, Any]:
    return frame(title, _STEP, y_title, **{**more, **marks.over_steps(steps)})


def _values_figure(choices: Sequence[LoggedChoice], hybrid: HybridFacts, marks: Marks) -> Figure:
    shown = _thinned(choices)
    layout = _layout("What each size is thought to be worth", "value", [c.step for c in shown], marks, showlegend=False)
    data: list[dict[str, Any]] = []
    for action in range(len(hybrid.sizes)):
        y = [choice.values[action] if action < len(choice.values) else None for choice in shown]
        if any(value is not None for value in y):
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines" if len(shown) > 1 else "markers",
                    "name": hybrid.label(action),
                    "x": [choice.step for choice in shown],
                    "y": [_short(value) for value in y],
                    "showlegend": False,
                    **size_style(hybrid, action),
                    "hovertemplate": "step %{x}: %{y:.4~g}<extra>%{fullData.name}</extra>",
                }
            )
    if data:
        layout["annotations"] = [*layout["annotations"], size_key(hybrid)]
    note = "this policy keeps no values" if choices else NO_DECISION
    return {"data": data, "layout": layout if data else with_note(layout, note)}


def _choices_figure(choices: Sequence[LoggedChoice], hybrid: HybridFacts, marks: Marks) -> Figure:
    """Points at the sizes that were chosen; epsilon as a line against the right axis."""
    shown = choices[-_POINTS:]
    sizes = list(range(len(hybrid.sizes)))
    layout = _layout(
        "Choices",
        "snapshots x nodes",
        [choice.step for choice in shown],
        marks,
        showlegend=True,
        yaxis={
            "tickvals": sizes,
            "ticktext": [hybrid.label(action) for action in sizes],
            "range": [-0.5, len(sizes) - 0.5],
        },
    )
    if not choices:
        return {"data": [], "layout": with_note(layout, NO_DECISION)}
    kinds = (
        ("best value", series_colour(0), "circle", [c for c in shown if c.greedy is not False]),
        ("drawn", series_colour(4), "x", [c for c in shown if c.greedy is False]),
    )
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [c.step for c in found],
            "y": [c.action for c in found],
            "marker": {"color": colour, "symbol": symbol, "size": 7},
            "customdata": [hybrid.label(c.action) for c in found],
            "hovertemplate": "step %{x}: %{customdata}<extra>" + name + "</extra>",
        }
        for name, colour, symbol, found in kinds
        if found
    ]
    drawn = [choice for choice in shown if choice.epsilon is not None]
    if drawn:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "epsilon (right)",
                "x": [c.step for c in drawn],
                "y": [_short(c.epsilon) for c in drawn],
                "yaxis": "y2",
                "line": {"color": BASELINE_COLOUR, "width": 1.5},
                "hovertemplate": "step %{x}: %{y:.3~g}<extra>epsilon</extra>",
            }
        )
        layout["yaxis2"] = {
            "overlaying": "y",
            "side": "right",
            "showgrid": False,
            "zeroline": False,
            "range": [0, 1.03],
            "title": {"text": "epsilon", "standoff": 4, "font": {"size": 11}},
        }
        layout["margin"] = {**layout["margin"], "r": 44}
    return {"data": data, "layout": layout}


def _rewards_figure(facts: AdjusterFacts | None, marks: Marks) -> Figure:
    rewards = () if facts is None else facts.rewards[-_POINTS:]
    layout = _layout("Rewards", "reward of the size before", [each.step for each in rewards], marks, showlegend=True)
    if not rewards:
        return {"data": [], "layout": with_note(layout, "nothing was rewarded yet")}
    x, y = [each.step for each in rewards], [each.reward for each in rewards]
    means = [sum(y[max(0, at - _SMOOTHED + 1) : at + 1]) / min(at + 1, _SMOOTHED) for at in range(len(y))]
    hover = "step %{x}: %{y:.3~g}<extra>%{fullData.name}</extra>"
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "each",
            "x": x,
            "y": [_short(each) for each in y],
            "marker": {"color": STEP_COLOUR, "size": 5},
            "hovertemplate": hover,
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"mean of {_SMOOTHED}",
            "x": x,
            "y": [_short(m) for m in means],
            "line": {"color": series_colour(0), "width": 2},
            "hovertemplate": hover,
        },
    ]
    return {"data": data, "layout": layout}


def _regret_figure(facts: AdjusterFacts | None, hybrid: HybridFacts, marks: Marks) -> Figure:
    regret = facts.regret() if facts else []
    rewards = facts.rewards if facts else ()
    stride = max(1, -(-len(regret) // _POINTS))
    shown = list(range((len(regret) - 1) % stride, len(regret), stride)) if regret else []
    layout = _layout(
        "Regret, estimated", "sum of reward missed", [rewards[at].step for at in shown], marks, showlegend=True
    )
    if not shown or facts is None or facts.best is None:
        return {"data": [], "layout": with_note(layout, "no size was rewarded often enough")}
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"against always {hybrid.label(facts.best)}",
            "x": [rewards[at].step for at in shown],
            "y": [_short(regret[at]) for at in shown],
            "line": {"color": MARK_COLOUR, "width": 2},
            "hovertemplate": "step %{x}: %{y:.3~g}<extra></extra>",
        }
    ]
    return {"data": data, "layout": layout}


def _regret_words(facts: AdjusterFacts | None, hybrid: HybridFacts) -> str:
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


# Adjusters of batches against runs with fixed sizes: does choosing beat the best fixed size here?


Labelled = Sequence[tuple[str, "RunWindow"]]
_SIZES = ("batch_snapshots", "batch_vertices")
# in which runs may differ and yet be compared: what steers sizes, the seed, and how long they may go on
_FREE = frozenset({*_SIZES, "system", "seed", "epochs", "name"})


def adjuster_verdict(runs: Labelled) -> str:
    """Whether adjusters come near the least loss of all before the best fixed size does, in hindsight.

    Compared are runs of the same settings, but for sizes, adjusters and seeds; of several that differ in the seed alone
    the median counts. A run whose sizes or adjuster were changed on the way is left out.

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
    adjusted: dict[str, list[float]] = {}
    fixed: dict[str, list[float]] = {}
    for window in windows:
        seconds, facts = seconds_to(window, loss), window.view("hybrid").facts
        if facts is not None:
            into, name = (adjusted, facts.adjuster) if facts.adjusted else (fixed, facts.size.label)
            into.setdefault(name, []).append(math.inf if seconds is None else seconds)
    return verdict_words(_medians(adjusted), _medians(fixed), loss)


def _medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: median(each) for name, each in seconds.items()}


def verdict_words(adjusted: Mapping[str, float], fixed: Mapping[str, float], loss: float) -> str:
    """The verdict on adjusters, by seconds to a loss; empty where there is nothing to compare with.

    Args:
        adjusted: seconds by adjuster; infinite where it did not get there.
        fixed: seconds by fixed size.
        loss: to be reached.
    """
    if not adjusted or not fixed:
        return ""
    if min(fixed.values()) == math.inf:
        there = [name for name in adjusted if adjusted[name] < math.inf]
        got = f"{join_words(sorted(there))} got" if there else "nothing of these got"
        return f"None of {len(fixed)} fixed size{'s' * (len(fixed) > 1)} got to loss {loss:.4g}; {got} there."
    best = min(fixed, key=lambda name: fixed[name])
    text = (
        f"The best of {len(fixed)} fixed size{'s' * (len(fixed) > 1)}, in hindsight, is {best}: "
        f"{format_seconds(fixed[best])} to loss {loss:.4g}."
    )
    ahead = [name for name in adjusted if adjusted[name] < fixed[best]]
    behind = [name for name in adjusted if name not in ahead]
    for names, one, several in ((ahead, "beats", "beat"), (behind, "does not beat", "do not beat")):
        if names:
            described = join_words([f"{name} ({_taken(adjusted[name])})" for name in sorted(names)])
            text += f" {described} {one if len(names) == 1 else several} it here."
    return text


def _taken(seconds: float) -> str:
    return format_seconds(seconds) if seconds < math.inf else "not there"


def _settings(window: RunWindow) -> tuple[tuple[str, str], ...]:
    """What must be the same for times to be compared."""
    steering = {name for entry in catalogue.names("control") for name in catalogue.entry("control", entry).options}
    flat = window.config.flat
    return tuple(sorted((name, repr(value)) for name, value in flat.items() if name not in _FREE | steering))


# Manually planned batch sizes against adjusters and fixed sizes: time to the target.


BY_HAND = "manual"
_ROW_PX, _AROUND_PX = 24, 96


def sizes_by_hand_figure(hand_s: float, adjusters: Mapping[str, Sequence[float]], fixed: Mapping[str, float]) -> Figure:
    """Seconds to the target as bars, the fastest on top.

    Args:
        hand_s: seconds of the plan.
        adjusters: of each policy, seconds by seed; the bar is their median, the whisker reaches from least to most.
        fixed: seconds of each fixed size. The dotted line is the least.

    Those that never arrive, in infinitely many seconds, are left out.
    """
    medians = {policy: median(seconds) for policy, seconds in adjusters.items()}
    rows = [(hand_s, BY_HAND, 1)] + [(seconds, policy, 0) for policy, seconds in medians.items()]
    rows += [(seconds, size, 7) for size, seconds in fixed.items()]
    rows = sorted(row for row in rows if math.isfinite(row[0]))
    least = min(fixed.values(), default=0.0)
    bars: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "y": [name for _, name, _ in rows],
        "x": [round(seconds, 6) for seconds, _, _ in rows],
        "marker": {"color": [series_colour(colour) for _, _, colour in rows]},
        "text": [f"{seconds:.3g} s" for seconds, _, _ in rows],
        "textposition": "inside",
        "insidetextanchor": "start",
        "showlegend": False,
        "hovertemplate": "%{y}: %{x:.3f} s<extra></extra>",
        "error_x": {
            "type": "data",
            "symmetric": False,
            "thickness": 1.2,
            "color": BASELINE_COLOUR,
            "array": [_spread(adjusters.get(name, ()), seconds)[1] for seconds, name, _ in rows],
            "arrayminus": [_spread(adjusters.get(name, ()), seconds)[0] for seconds, name, _ in rows],
        },
    }
    layout = frame(
        "Seconds to the target",
        "seconds",
        "",
        xaxis={"rangemode": "tozero"},
        showlegend=False,
        yaxis={"autorange": "reversed", "showgrid": False},
        height=_AROUND_PX + _ROW_PX * len(rows),
        margin={"l": 96, "r": 14, "t": 34, "b": 40},
    )
    layout["shapes"] += [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": least,
            "x1": least,
            "y0": 0,
            "y1": 1,
            "line": {"color": BASELINE_COLOUR, "width": 1.2, "dash": "dot"},
        }
    ]
    return {"data": [bars], "layout": layout}


def _spread(seconds: Sequence[float], middle: float) -> tuple[float, float]:
    """How far the least and the most are from the middle; where one never arrives, up to the most that does."""
    arrived = [each for each in seconds if math.isfinite(each)]
    return (middle - min(arrived), max(arrived) - middle) if arrived else (0.0, 0.0)
