"""Folded charts of a batch-size controller: values of the sizes, rewards, and regret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TypeVar

import numpy as np

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.hybrid_batches import captions
from dtdg_lab.systems.hybrid_batches.events import HybridFacts
from dtdg_lab.systems.hybrid_batches.observations import (
    CLOCK,
    Decision,
    action_now,
    controlled_facts,
    decisions,
    in_use,
    is_hybrid,
    moment_text,
    values_now,
)
from dtdg_lab.systems.hybrid_batches.time_cards import begin_of, size_keys, size_line, time_axis, time_card, time_of
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Figure, Key, XAxis
from dtdg_lab.visualization.numbers import three_digits
from dtdg_lab.visualization.palette import STEP_COLOUR, series_colour
from dtdg_lab.visualization.traces import Attributes, line, points

T = TypeVar("T")

_POINTS = 300  # of a line
_FIRST_DECISION = "Appears with the first decision"


def is_controlled(tables: RunTables) -> bool:
    """Return whether a controller chooses batch sizes, or did before a size was fixed."""
    if not is_hybrid(tables):
        return False
    return tables.config["batch_policy"] != "none" or controlled_facts(tables) is not None


def _choices(tables: RunTables) -> Sequence[Decision]:
    """Return the decisions of the newest controller."""
    facts = controlled_facts(tables)
    return [] if facts is None else in_use(decisions(tables), facts)


def _thinned(items: Sequence[T]) -> Sequence[T]:
    """Return about ``_POINTS`` items, the newest among them."""
    stride = -(-len(items) // _POINTS)
    return items[(len(items) - 1) % stride :: stride] if stride > 1 else items


def _hover(x: XAxis) -> str:
    return "%{x:.1f} s: %{y:.3~g}" if x == "seconds" else "step %{x}: %{y:.3~g}"


# The estimated value of each size.


VALUES_TITLE = "Values over time"


def values_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the value of each size at the decisions."""
    x, facts, choices = time_axis(tables, options), controlled_facts(tables), _choices(tables)
    current = action_now(tables, facts) if facts is not None and facts == tables.event(HybridFacts) else None
    sample, data = _thinned(choices), list[Attributes]()
    places = [time_of(decision, x) for decision in sample]
    for action in range(len(facts.sizes) if facts is not None and choices else 0):
        values = [decision.values[action] if action < len(decision.values) else None for decision in sample]
        if facts is not None and any(value is not None for value in values):
            style = size_line(facts.sizes, action, in_use=action == current)
            data.append(line(facts.name(action), places, _short(values), style.pop("colour"), _hover(x), **style))
    empty = "This controller estimates no values" if choices else _FIRST_DECISION
    keys = size_keys(facts.sizes) if facts is not None and data else []
    end = places[-1] if places else 0.0
    return time_card(tables, x, data, VALUES_TITLE, begin=begin_of(places[:1], end), keys=keys, empty=empty)


def values_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the size of the highest value in the newest decision."""
    facts, choices = controlled_facts(tables), _choices(tables)
    values = {} if facts is None else values_now(tables, facts)
    if facts is None or not choices:
        return NOTHING_YET
    if not values:
        return captions.NO_VALUES
    action, moment = max(values, key=lambda number: values[number]), moment_text(tables, choices[-1])
    return captions.VALUES.format(size=facts.name(action), value=three_digits(values[action]), moment=moment)


VALUES = Chart(
    name="batch_values",
    title=VALUES_TITLE,
    figure=values_figure,
    caption=values_caption,
    section="folded",
    applies=is_controlled,
    rollups=(CLOCK,),
    help="What the controller expects of each size. The choice is a guess until one line stays on top.",
)

# Rewards: a decision has the reward of the size that was chosen before it.


REWARDS_TITLE = "Rewards"
_MEAN_OF = 20  # rewards


@dataclass(frozen=True, slots=True)
class Rewarded:
    """The reward of a size, which the decision after it records.

    Attributes:
        decision: that says so.
        action: number of the size.
        reward: of its window of steps.
    """

    decision: Decision
    action: int
    reward: float


def rewarded(choices: Sequence[Decision]) -> list[Rewarded]:
    """Return the rewards of decisions in order."""
    return [
        Rewarded(decision, previous.action, decision.reward)
        for previous, decision in pairwise(choices)
        if decision.reward is not None
    ]


def rewards_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return each reward, and the mean of the newest twenty."""
    x, rewards = time_axis(tables, options), rewarded(_choices(tables))
    values = np.array([earned.reward for earned in rewards])
    sums = np.concatenate([[0.0], values.cumsum()])
    ends = np.arange(1, len(rewards) + 1)
    starts = np.maximum(ends - _MEAN_OF, 0)
    means = ((sums[ends] - sums[starts]) / np.maximum(ends - starts, 1)).tolist()
    sample = _thinned([*zip((time_of(earned.decision, x) for earned in rewards), values.tolist(), means, strict=True)])
    places = [time for time, _, _ in sample]
    keys: list[Key] = [("each", STEP_COLOUR, "dot"), (f"mean of {_MEAN_OF}", series_colour(0), "line")]
    data = [
        points("each", places, _short([value for _, value, _ in sample]), STEP_COLOUR, _hover(x), size=5),
        line(f"mean of {_MEAN_OF}", places, _short([mean for *_, mean in sample]), series_colour(0), _hover(x)),
    ]
    begin = begin_of(places[:1], places[-1] if places else 0.0)
    if not sample:
        return time_card(tables, x, [], REWARDS_TITLE, empty="Appears with the second decision")
    return time_card(tables, x, data, REWARDS_TITLE, begin=begin, keys=keys)


def rewards_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the mean of the newest rewards."""
    recent = [earned.reward for earned in rewarded(_choices(tables))[-_MEAN_OF:]]
    return captions.REWARDS.format(count=len(recent), reward=three_digits(fmean(recent))) if recent else NOTHING_YET


REWARDS = Chart(
    name="batch_rewards",
    title=REWARDS_TITLE,
    figure=rewards_figure,
    caption=rewards_caption,
    section="folded",
    applies=is_controlled,
    rollups=(CLOCK,),
    help="Above 0, steps got shorter or the loss fell faster than under the size before.",
)

# Regret: what always choosing the best size would have earned more, by this run's own rewards.


REGRET_TITLE = "Regret"
_FEWEST = 3  # rewards from which on a size may be the best
_RECENT_REGRET = 50  # decisions


def best_size(rewards: Sequence[Rewarded]) -> tuple[int, float] | None:
    """Return the size that earned most on average and its mean; None before one was rewarded three times."""
    by_action: dict[int, list[float]] = {}
    for earned in rewards:
        by_action.setdefault(earned.action, []).append(earned.reward)
    means = [(fmean(earned), action) for action, earned in by_action.items() if len(earned) >= _FEWEST]
    if not means:
        return None
    mean, action = max(means)
    return action, mean


def regret(rewards: Sequence[Rewarded]) -> list[float]:
    """Return after each reward the best size's mean less the rewards, summed up; nothing without a best size."""
    best = best_size(rewards)
    if best is None:
        return []
    sums: list[float] = (best[1] - np.array([earned.reward for earned in rewards])).cumsum().tolist()
    return sums


def regret_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the sum of the rewards that were missed."""
    x, choices = time_axis(tables, options), _choices(tables)
    rewards = rewarded(choices)
    sample = _thinned([*zip((time_of(earned.decision, x) for earned in rewards), regret(rewards), strict=False)])
    places, best = [time for time, _ in sample], best_size(rewards)
    name = f"against always {choices[-1].facts.name(best[0])}" if best is not None else ""
    data = [line(name, places, _short([value for _, value in sample]), series_colour(0), _hover(x))] if sample else []
    begin = begin_of(places[:1], places[-1] if places else 0.0)
    keys: list[Key] = [(name, series_colour(0), "line")] if data else []
    empty = "Appears when a size was rewarded three times"
    return time_card(tables, x, data, REGRET_TITLE, begin=begin, unit="sum of rewards missed", keys=keys, empty=empty)


def regret_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the growth of the regret over the newest decisions."""
    sums = regret(rewarded(_choices(tables)))
    if not sums:
        return NOTHING_YET
    count = min(_RECENT_REGRET, len(sums))
    start = sums[-count - 1] if len(sums) > count else 0.0
    grown = sums[-1] - start
    template = captions.REGRET if grown >= 0 else captions.REGRET_FELL
    return template.format(regret=three_digits(abs(grown)), count=count)


REGRET = Chart(
    name="batch_regret",
    title=REGRET_TITLE,
    figure=regret_figure,
    caption=regret_caption,
    section="folded",
    applies=is_controlled,
    rollups=(CLOCK,),
    help="Estimated from this run's rewards. A flat line means that the controller has learned what is best.",
)


def _short(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.5g}") for value in values]
