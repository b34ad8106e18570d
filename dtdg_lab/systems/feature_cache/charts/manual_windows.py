"""Cache windows that a learner chooses on a simulated run: choices, estimated delays, and the energy they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.units import join_words
from dtdg_lab.network.links import BITS
from dtdg_lab.records.rows import as_objects
from dtdg_lab.systems.feature_cache.charts.decisions import decision_points, windows_axis
from dtdg_lab.systems.feature_cache.charts.step_chart import LinkHistory, slow_shades
from dtdg_lab.systems.feature_cache.simulation.episode import CacheEpisode
from dtdg_lab.visualization.axes import FROM_ZERO, STEPS
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, card, trace_keys
from dtdg_lab.visualization.numbers import joules_text
from dtdg_lab.visualization.palette import series_colour
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, sheet
from dtdg_lab.visualization.traces import Attributes, line

CLAIRVOYANT, FIXED, BEST = "clairvoyant", "fixed", "best fixed"
BY_HAND = "manual"
NO_CHOICE = "nothing was chosen yet"
_POINTS = 300
Windows = Sequence[tuple[int, int]]  # first step, choice


def regret_lines(episode: CacheEpisode, windows: Mapping[str, Windows]) -> dict[str, list[float]]:
    """Return joules beyond the clairvoyant's after each step, by policy; the clairvoyant itself is left out.

    A line may fall for a while: the optimum spends early what it saves later. At the end no line is below 0.

    Args:
        episode: what all of them met.
        windows: by policy, its windows in the episode; those of ``clairvoyant`` among them.

    Raises:
        ConfigError: the clairvoyant is missing.
    """
    if CLAIRVOYANT not in windows:
        raise ConfigError(
            f"regret of {', '.join(windows) or 'no policy'}: the windows of {CLAIRVOYANT} are needed too."
        )
    costs = episode.step_costs()
    spent = {name: np.cumsum(_per_step(costs, choices)) for name, choices in windows.items()}
    return {name: (joules - spent[CLAIRVOYANT]).tolist() for name, joules in spent.items() if name != CLAIRVOYANT}


def _per_step(costs: NDArray[np.float64], windows: Windows) -> NDArray[np.float64]:
    """Return (steps,) joules of each step, of (choices, steps) of all choices."""
    steps = costs.shape[1]
    joules = np.empty(steps)
    for (first, choice), (end, _) in pairwise([*windows, (steps, 0)]):
        joules[first:end] = costs[choice, first:end]
    return joules


@dataclass(frozen=True, slots=True)
class Move:
    """One choice.

    Attributes:
        first: step that it holds from.
        window: W.
        preferred: part that gets most of the cache; None for none.
        heard_at: step of the boundary where it was chosen.
        late_ms: delay observed there of each other part, (P - 1,).
    """

    first: int
    window: int
    preferred: int | None
    heard_at: int
    late_ms: tuple[float, ...]


def windows_by_hand_figure(
    episode: CacheEpisode,
    moves: Sequence[Move],
    played: Mapping[str, Windows],
    *,
    late_ms: tuple[float, ...],
    current_step: int,
) -> Figure:
    """Return choices over the congestion, observed delays, and joules beyond the clairvoyant, up to the present step.

    Args:
        episode: what the run meets.
        moves: so far, in order.
        played: windows by name, including the manual ones: see ``regret_lines``; empty before the first choice.
        late_ms: delay observed now, (P - 1,).
        current_step: the step up to which all is shown.
    """
    links = _links_until(episode, current_step)
    lines = {name: joules[:current_step] for name, joules in regret_lines(episode, played).items()} if played else {}
    cards = [
        _choices_card(moves, links, current_step),
        _delays_card(moves, links, late_ms, current_step),
        _regret_card(lines, current_step),
    ]
    return sheet(cards, title="Your run", wide=(2,), plot_height=STUDY_HEIGHT)


def _choices_card(moves: Sequence[Move], links: LinkHistory, current_step: int) -> CaptionedFigure:
    """Return W of each choice; shaded where links are slow."""
    preferred = np.array([-1 if move.preferred is None else move.preferred for move in moves], np.int64)
    choices = {
        "step": np.array([move.first for move in moves]),
        "part": np.zeros(len(moves), np.int64),
        "window": np.array([move.window for move in moves]),
        "biased": preferred,
        "greedy": as_objects([True] * len(moves)),
    }
    data = decision_points(choices) if moves else []
    figure = _over_steps("Decisions", "W (steps between rebuilds)", data, links, current_step, yaxis=windows_axis())
    return figure, f"Shaded: links are slow. At step {current_step}: {_links_text(links)}."


def _delays_card(
    moves: Sequence[Move], links: LinkHistory, late_ms: tuple[float, ...], current_step: int
) -> CaptionedFigure:
    """Return the delay that a policy observes of each part, and the one that is added, dashed."""
    heard = [(move.heard_at, move.late_ms) for move in moves] + ([(current_step, late_ms)] if moves else [])
    steps = [step for step, _ in heard]
    data: list[Attributes] = []
    for index in range(len(late_ms) if heard else 0):
        part, colour = index + 1, series_colour(index + 1)
        y = [round(delays[index], 4) for _, delays in heard]
        style: Attributes = {"line": {"color": colour, "width": 1.8, "shape": "hv"}, "mode": "lines+markers"}
        data.append(line(f"part {part}", steps, y, colour, "step %{x}: %{y:.3~g} ms estimated", **style))
        added = links.stairs(links.delay_ms[:, part], 0.0, float(max(current_step, 1)))
        if added[0]:
            data.append(line(f"part {part}, added", *added, colour, "%{y:.3~g} ms added", dash="dash"))
    figure = _over_steps("Delay as it is estimated", "delay (ms)", data, links, current_step, yaxis=FROM_ZERO)
    return figure, "Each estimate is the median of the last 30 calls; dashed: the delay that is added."


def _regret_card(lines: Mapping[str, Sequence[float]], current_step: int) -> CaptionedFigure:
    """Return joules beyond the clairvoyant, summed up."""
    data = []
    for index, (name, joules) in enumerate(lines.items()):
        stride = max(1, -(-len(joules) // _POINTS))
        places = range((len(joules) - 1) % stride, len(joules), stride)
        x, y = [index + 1 for index in places], [float(f"{joules[index]:.5g}") for index in places]
        data.append(line(name, x, y, series_colour(index), "step %{x}: %{y:.4~g} J", mode="lines"))
    layout: Attributes = {"x_title": STEPS, "yaxis": FROM_ZERO, "empty": NO_CHOICE}
    figure = card(data, "Beyond the clairvoyant", unit="joules beyond the optimum", keys=trace_keys(data), **layout)
    ends = sorted((joules[-1], name) for name, joules in lines.items() if len(joules))
    texts = [f"{name} {joules_text(joules)}" for joules, name in ends]
    return figure, f"Up to step {current_step}: {join_words(texts) or 'nothing yet'}."


def _over_steps(
    title: str, unit: str, data: Sequence[Attributes], links: LinkHistory, current_step: int, **settings: Any
) -> Figure:
    """Return a chart over the steps so far, slow links shaded."""
    span = (-0.5, current_step + 0.5)
    slow: Attributes = {"xaxis": {"range": [*span]}, "shapes": slow_shades(links, span)} if data else {}
    texts: Attributes = {"unit": unit, "x_title": STEPS, "empty": NO_CHOICE}
    return card(data, title, keys=trace_keys(data), **texts, **slow, **settings)


def _links_until(episode: CacheEpisode, current_step: int) -> LinkHistory:
    """Return the links of the other parts up to a step."""
    trace = episode.trace
    steps = np.flatnonzero(np.diff(trace.which[: max(current_step, 1)], prepend=-1))
    states = trace.which[steps]
    delay_ms = np.zeros((len(steps), trace.parts))
    mbit = np.full((len(steps), trace.parts), np.inf)
    delay_ms[:, 1:] = 1e3 * trace.delay_s[states]
    mbit[:, 1:] = trace.bytes_per_s[states] * BITS
    return LinkHistory(steps.astype(np.float64), delay_ms, mbit)


def _links_text(links: LinkHistory) -> str:
    """Return what is added now, such as ``part 1 +20 ms, part 2 at 25 Mbit/s``."""
    texts = []
    for part, (delay, rate) in enumerate(zip(links.delay_ms[-1], links.mbit[-1], strict=True)):
        if delay or np.isfinite(rate):
            limit = f" at {rate:.4g} Mbit/s" if np.isfinite(rate) else ""
            texts.append(f"part {part}" + (f" +{delay:.3g} ms" if delay else "") + limit)
    return ", ".join(texts) or "nothing is added"
