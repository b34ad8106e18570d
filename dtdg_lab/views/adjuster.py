"""The adjuster of batches in pictures: values of the sizes, choices and epsilon, rewards, and regret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtdg_lab.views.adjuster_facts import AdjusterFacts, adjuster_facts, best_words, choice_words
from dtdg_lab.views.adjuster_log import Choice
from dtdg_lab.views.hybrid_facts import HybridFacts
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import BASELINE_COLOUR, MARK_COLOUR, STEP_COLOUR, series_colour
from dtdg_lab.views.size_style import size_key, size_style

Panel = tuple[Figure, str]
NO_DECISION = "nothing was decided yet"
_STEP = "step (model updates of rank 0)"
_POINTS = 300  # of a line, so that pictures stay small
_SMOOTHED = 20  # rewards that a mean is taken of


def adjuster_panels(choices: Sequence[Choice], hybrid: HybridFacts, marks: Marks) -> dict[str, Panel]:
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


def _values_words(choices: Sequence[Choice], hybrid: HybridFacts) -> str:
    look = "Look for one line that stays on top: until then the choice is a guess."
    known = [(value, action) for action, value in enumerate(choices[-1].values if choices else ()) if value is not None]
    if not known:
        return look
    best, least = max(known), min(known)
    return (
        f"Worth most now: {hybrid.label(best[1])} ({best[0]:.3g}); least: {hybrid.label(least[1])} ({least[0]:.3g}). "
        f"{look}"
    )


def _thinned(choices: Sequence[Choice]) -> Sequence[Choice]:
    """At most so many decisions, the newest among them."""
    stride = -(-len(choices) // _POINTS)
    return choices[(len(choices) - 1) % stride :: stride] if stride > 1 else choices


def _layout(title: str, y_title: str, steps: Sequence[int], marks: Marks, **more: Any) -> dict[str, Any]:
    return frame(title, _STEP, y_title, **{**more, **marks.over_steps(steps)})


def _values_figure(choices: Sequence[Choice], hybrid: HybridFacts, marks: Marks) -> Figure:
    shown = _thinned(choices)
    layout = _layout("What each size is thought to be worth", "value", [c.step for c in shown], marks, showlegend=False)
    data: list[dict[str, Any]] = []
    for action in range(len(hybrid.sizes)):
        y = [choice.values[action] if action < len(choice.values) else None for choice in shown]
        if any(value is not None for value in y):
            data.append({
                "type": "scatter", "mode": "lines" if len(shown) > 1 else "markers", "name": hybrid.label(action),
                "x": [choice.step for choice in shown], "y": [_short(value) for value in y], "showlegend": False,
                **size_style(hybrid, action), "hovertemplate": "step %{x}: %{y:.4~g}<extra>%{fullData.name}</extra>",
            })  # fmt: skip
    if data:
        layout["annotations"] = [*layout["annotations"], size_key(hybrid)]
    note = "this policy keeps no values" if choices else NO_DECISION
    return {"data": data, "layout": layout if data else with_note(layout, note)}


def _choices_figure(choices: Sequence[Choice], hybrid: HybridFacts, marks: Marks) -> Figure:
    """Points at the sizes that were chosen; epsilon as a line against the right axis."""
    shown = choices[-_POINTS:]
    sizes = list(range(len(hybrid.sizes)))
    layout = _layout(
        "Choices", "snapshots x vertices", [choice.step for choice in shown], marks, showlegend=True,
        yaxis={"tickvals": sizes, "ticktext": [hybrid.label(action) for action in sizes],
               "range": [-0.5, len(sizes) - 0.5]},
    )  # fmt: skip
    if not choices:
        return {"data": [], "layout": with_note(layout, NO_DECISION)}
    kinds = (
        ("best value", series_colour(0), "circle", [c for c in shown if c.greedy is not False]),
        ("drawn", series_colour(4), "x", [c for c in shown if c.greedy is False]),
    )
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "markers", "name": name, "x": [c.step for c in found],
            "y": [c.action for c in found], "marker": {"color": colour, "symbol": symbol, "size": 7},
            "customdata": [hybrid.label(c.action) for c in found],
            "hovertemplate": "step %{x}: %{customdata}<extra>" + name + "</extra>",
        }
        for name, colour, symbol, found in kinds if found
    ]  # fmt: skip
    drawn = [choice for choice in shown if choice.epsilon is not None]
    if drawn:
        data.append({
            "type": "scatter", "mode": "lines", "name": "epsilon (right)", "x": [c.step for c in drawn],
            "y": [_short(c.epsilon) for c in drawn], "yaxis": "y2", "line": {"color": BASELINE_COLOUR, "width": 1.5},
            "hovertemplate": "step %{x}: %{y:.3~g}<extra>epsilon</extra>",
        })  # fmt: skip
        layout["yaxis2"] = {
            "overlaying": "y", "side": "right", "showgrid": False, "zeroline": False, "range": [0, 1.03],
            "title": {"text": "epsilon", "standoff": 4, "font": {"size": 11}},
        }  # fmt: skip
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
        {"type": "scatter", "mode": "markers", "name": "each", "x": x, "y": [_short(each) for each in y],
         "marker": {"color": STEP_COLOUR, "size": 5}, "hovertemplate": hover},
        {"type": "scatter", "mode": "lines", "name": f"mean of {_SMOOTHED}", "x": x, "y": [_short(m) for m in means],
         "line": {"color": series_colour(0), "width": 2}, "hovertemplate": hover},
    ]  # fmt: skip
    return {"data": data, "layout": layout}


def _regret_figure(facts: AdjusterFacts | None, hybrid: HybridFacts, marks: Marks) -> Figure:
    regret = facts.regret() if facts else []
    rewards = facts.rewards if facts else ()
    stride = max(1, -(-len(regret) // _POINTS))
    shown = list(range((len(regret) - 1) % stride, len(regret), stride)) if regret else []
    layout = _layout(
        "Regret, estimated", "sum of reward missed", [rewards[at].step for at in shown], marks, showlegend=True
    )  # fmt: skip
    if not shown or facts is None or facts.best is None:
        return {"data": [], "layout": with_note(layout, "no size was rewarded often enough")}
    data = [{
        "type": "scatter", "mode": "lines", "name": f"against always {hybrid.label(facts.best)}",
        "x": [rewards[at].step for at in shown], "y": [_short(regret[at]) for at in shown],
        "line": {"color": MARK_COLOUR, "width": 2}, "hovertemplate": "step %{x}: %{y:.3~g}<extra></extra>",
    }]  # fmt: skip
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
