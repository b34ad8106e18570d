"""A race on one screen: a card per contestant, and losses against four costs, redrawn while the race runs."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.units import format_bytes, format_joules, format_seconds, join_words
from dtdg_lab.lessons.checks import Shown
from dtdg_lab.studies.race_result import UNDER_WAY, Race
from dtdg_lab.studies.trials import FAILED, FINISHED
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.palette import BASELINE_COLOUR, series_colour
from dtdg_lab.visualization.runs.curves import judged_evaluations
from dtdg_lab.visualization.studies.race import COSTS, Curve, race_cards, race_figure
from dtdg_lab.visualization.traces import label, rule

_EVERY_S = 0.7  # shortest time between two drawings, since drawing takes time from the runs
_PLOT_HEIGHT = 210  # height of each of four charts, so that they and the cards fit on one screen
_LOOK = {
    "waiting": "The race has not begun.",
    "running": "Thin lines are seeds, thick lines their medians. Look at one height: who is furthest left there?",
    "over": "Pick a loss, go right along it in each chart: the first line that you meet is the cheapest by that cost.",
}
_LEAST = {"seconds": "least time", "joules": "least energy", "bytes": "fewest bytes", "peak": "least memory"}
_CARD = (
    '<div style="flex:1 1 112px;min-width:112px;box-sizing:border-box;border:1px solid rgba(128,128,128,.35);'
    "border-left:5px solid {colour};"
    'border-radius:4px;padding:3px 6px;line-height:1.3;font-size:11.5px"><b>{name}</b> {state}<br>'
    '<span style="opacity:.75">{idea}</span><br>{numbers}</div>'
)


class RaceScreen(Shown):
    """Cards and charts of a race; pass ``show`` to ``lab.race`` as ``on_change``.

    Args:
        configs: contestants by name, as for ``lab.race``.
        ideas: one sentence for each card; by default the start of the system's summary.
    """

    def __init__(self, configs: Mapping[str, RunConfig], ideas: Mapping[str, str] | None = None) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        self.labels = tuple(configs)
        sentences = ideas or {}
        self._ideas = {name: sentences.get(name) or _idea(config.system) for name, config in configs.items()}
        self._cards, self._look = ipywidgets.HTML(), ipywidgets.HTML()
        self._lay_out(self._cards, self._look)
        self._drawn_s, self._seen = -_EVERY_S, [""]
        self._write(None)

    def __repr__(self) -> str:
        return f"<RaceScreen of {join_words(self.labels)}: {self.words}>"

    @property
    def words(self) -> str:
        """What is happening, and what to look for."""
        return self._words

    def show(self, race: Race) -> None:
        """Draw the race as it is; at most every 0.7 s while no run changes its state."""
        states, now_s = [run.state for run in race.runs], time.monotonic()
        if states == self._seen and now_s - self._drawn_s < _EVERY_S:
            return
        self._write(race)
        self._drawn_s, self._seen = time.monotonic(), states

    def figure(self, race: Race) -> Figure:
        """Return the four charts without bounds, with the loss of persistence as a horizontal line."""
        panels = race_cards(race.curves(), (), self.labels)
        naive = self._persistence(race)
        if naive is not None:
            for figure, _ in panels.values():
                figure["layout"]["shapes"].append(rule(y=naive, colour=BASELINE_COLOUR, dash="dash"))
            beside: dict[str, Any] = {"xref": "x domain", "xanchor": "right", "yanchor": "bottom"}
            note = label("persistence: nothing is trained", 0.99, naive, BASELINE_COLOUR, 10, **beside)
            panels[COSTS[0]][0]["layout"]["annotations"].append(note)
        for figure, _ in panels.values():
            figure["layout"]["meta"]["card"]["keys"] = []  # the cards above have the colours
        return race_figure({cost: (figure, "") for cost, (figure, _) in panels.items()}, "", plot_height=_PLOT_HEIGHT)

    def _persistence(self, race: Race) -> float | None:
        """Return the median loss of persistence over finished seeds, on the split that decides the race."""
        judged = [judged_evaluations(run.live) for runs in race.finished().values() for run in runs]
        naive_losses = [evaluations[-1].persistence_loss for evaluations in judged if evaluations]
        losses = [loss for loss in naive_losses if loss is not None]
        return median(losses) if losses else None

    def _write(self, race: Race | None) -> None:
        phase = "waiting" if race is None else "over" if race.over else "running"
        active = [] if race is None else [run for run in race.runs if run.state == UNDER_WAY]
        prefix = f"Training: {join_words([f'{run.label}, seed {run.seed}' for run in active])}. " if active else ""
        self._words = prefix + _LOOK[phase] + (f" {_cheapest(race)}" if race is not None and race.over else "")
        cards = [self._card(number, name, race) for number, name in enumerate(self.labels)]
        self._cards.value = f'<div style="display:flex;flex-wrap:wrap;gap:6px">{"".join(cards)}</div>'
        self._look.value = f"<i>{html.escape(self._words)}</i>"
        if race is not None:
            self._draw_below(self.figure(race), self._words)

    def _card(self, number: int, name: str, race: Race | None) -> str:
        runs = [] if race is None else [run for run in race.runs if run.label == name]
        finished = sum(run.state == FINISHED for run in runs)
        states = {run.state for run in runs}
        state = "waits" if not runs else "<b>trains</b>" if UNDER_WAY in states else f"{finished} done"
        state = "failed" if FAILED in states else state
        numbers = "" if race is None else self._numbers(name, race)
        idea = html.escape(self._ideas[name])
        return _CARD.format(
            colour=series_colour(number),
            name=html.escape(name),
            state=state,
            idea=idea,
            numbers=numbers or "&nbsp;",
        )

    def _numbers(self, name: str, race: Race) -> str:
        """Return the newest loss and the costs so far, as medians over the seeds."""
        curves = [curve for curve in race.curves() if curve.label == name and curve.losses]
        if not curves:
            return ""
        writers = {"seconds": format_seconds, "joules": format_joules, "bytes": format_bytes, "peak": format_bytes}
        spent: dict[str, Sequence[float]] = {
            cost: [curve.cost(cost)[-1] for curve in curves if curve.cost(cost)] for cost in writers
        }
        texts = [html.escape(writers[cost](median(values))) for cost, values in spent.items() if values]
        return f"<b>loss {median(curve.losses[-1] for curve in curves):.3f}</b><br>{' · '.join(texts)}"


def _cheapest(race: Race) -> str:
    """Return the contestant with the lowest median of each cost, and of the final loss."""
    by_label: dict[str, list[Curve]] = {}
    for curve in race.curves():
        if curve.losses:
            by_label.setdefault(curve.label, []).append(curve)
    sentences = []
    for cost, title in _LEAST.items():
        spent = {
            name: median(curve.cost(cost)[-1] for curve in curves)
            for name, curves in by_label.items()
            if all(curve.cost(cost) for curve in curves)
        }
        sentences += [f"{title} {min(spent, key=lambda name: spent[name])}"] if spent else []
    losses = {name: median(curve.losses[-1] for curve in curves) for name, curves in by_label.items()}
    return (
        f"Medians: {join_words([*sentences, f'the lowest final loss {min(losses, key=lambda name: losses[name])}'])}."
    )


def _idea(system: str) -> str:
    summary = catalogue.system(system).summary
    return min((summary.split(mark)[0] for mark in (";", ".", ":")), key=len) + "."
