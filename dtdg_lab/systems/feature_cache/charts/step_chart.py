"""A chart over steps with slow links shaded, and the facts of a run that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.records.rows import Array, Rows
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.events import CACHELESS, Congestion, FeatureFacts
from dtdg_lab.visualization.changes.marks import with_changes
from dtdg_lab.visualization.chart import STEPS_TITLE, card
from dtdg_lab.visualization.traces import Attributes, box

if TYPE_CHECKING:
    from dtdg_lab.visualization.chart import Figure


STACKED_PARTS = 8  # parts up to which caches are drawn by whose rows they hold
RECENT = 100  # steps of numbers "now"


def fetches_features(tables: RunTables) -> bool:
    """Return whether the run's system fetches features of other parts."""
    return "features" in catalogue.system(tables.system).parts


def part_count(tables: RunTables) -> int:
    """Return P."""
    facts = tables.event(FeatureFacts)
    return tables.config.parts if facts is None else facts.parts


def policy_in_use(tables: RunTables) -> str:
    """Return the cache policy in use; before the first step, the one that is set."""
    facts = tables.event(FeatureFacts)
    return str(tables.config["cache_policy"]) if facts is None else facts.policy


def has_cache(tables: RunTables) -> bool:
    """Return whether the policy in use keeps caches."""
    return policy_in_use(tables) not in CACHELESS


def first_step(tables: RunTables) -> int:
    """Return the step from which numbers of parts mean the present parts."""

    def find() -> int:
        plans, since = tables.typed(FeatureFacts), 0
        for (record, facts), (_, previous) in zip(plans[:0:-1], plans[-2::-1], strict=True):
            if facts is None or previous is None or (facts.parts, facts.rows) != (previous.parts, previous.rows):
                since = int(record["step"] or 0)
                break
        return since

    return tables.once("features since", find)


def recent_rows(tables: RunTables, table: str, steps: int | None = None) -> Rows:
    """Return the exact rows of a table of the present parts, of the newest steps or all in memory."""
    rows, first = tables.rows(table), first_step(tables)
    if steps is not None:
        first = max(first, newest_step(tables) + 1 - steps)
    return rows.where(rows["step"] >= first)


def newest_step(tables: RunTables) -> int:
    """Return the newest step that any rank has done; -1 before there is one."""
    return max(tables.steps.values(), default=-1)


@dataclass(frozen=True, slots=True, eq=False)
class LinkHistory:
    """Delays and rates set for each owner's replies, from one step to the next change.

    Attributes:
        steps: (C,) at which a state begins.
        delay_ms: (C, P) added to the slowest link of each owner.
        mbit: (C, P) rate of its narrowest link; infinite where none is limited.
    """

    steps: Array
    delay_ms: Array
    mbit: Array

    @property
    def is_slow(self) -> Array:
        """(C,) whether a link is late or limited."""
        return np.any((self.delay_ms > 0) | np.isfinite(self.mbit), axis=1)

    def ends(self, last: float) -> Array:
        """Return (C,) the end of each state; the newest one ends at ``last``."""
        return np.append(self.steps[1:], last)[: len(self.steps)]

    def between(self, first: float, last: float) -> LinkHistory:
        """Return the states that hold between two steps."""
        in_span = (self.ends(last) > first) & (self.steps < last)
        return LinkHistory(self.steps[in_span], self.delay_ms[in_span], self.mbit[in_span])

    def delay_at(self, step: float, owner: int) -> float:
        """Return the delay of an owner at a step, in milliseconds."""
        index = int(np.searchsorted(self.steps, step, side="right")) - 1
        return float(self.delay_ms[index, owner]) if index >= 0 and owner < self.delay_ms.shape[1] else 0.0

    def stretches(self, values: Array, first: float, last: float) -> Iterator[tuple[float, float, float]]:
        """Yield begin, end and value between two steps, of states in a row with the same value."""
        ends = self.ends(last)
        bounds = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)] if len(values) else []
        for begin, until in pairwise(bounds):
            start, stop = max(first, float(self.steps[begin])), min(last, float(ends[until - 1]))
            if stop > start:
                yield start, stop, float(values[begin])

    def stairs(self, values: Array, first: float, last: float) -> tuple[list[float], list[float]]:
        """Return corners of a line over the values between two steps; none where all are 0."""
        x: list[float] = []
        y: list[float] = []
        for begin, end, value in self.stretches(values, first, last):
            x += [begin, end]
            y += [value, value]
        return (x, y) if any(y) else ([], [])


def link_history(tables: RunTables) -> LinkHistory:
    """Return the states of the links; of several changes at one step, the last one holds."""

    def read() -> LinkHistory:
        parts = part_count(tables)
        plans: dict[int, Congestion] = {}  # equal events are one object, and a pattern repeats few
        states: dict[int, int] = {}
        for record, links in tables.typed(Congestion):
            if links is not None and links.parts == parts:
                plans[id(links)] = links
                states[int(record["step"] or 0)] = id(links)
        delays = np.array([links.owner_delays_ms for links in plans.values()], np.float64).reshape(-1, parts)
        rates = np.array([links.owner_mbit for links in plans.values()], np.float64).reshape(-1, parts)
        index_of_plan = {key: number for number, key in enumerate(plans)}
        of_state = np.array([index_of_plan[key] for key in states.values()], np.int64)
        limits = np.where(np.isnan(rates), np.inf, rates)
        return LinkHistory(np.array([*states], np.float64), delays[of_state], limits[of_state])

    return tables.once("link history", read)


_SHADE, _MOST_SHADES = "rgba(230,159,0,0.13)", 200


def over_steps(
    data: list[Attributes], tables: RunTables, span: tuple[float, float], title: str, **settings: Any
) -> Figure:
    """Return a chart over steps: slow links shaded, changed settings marked."""
    figure = card(data, title, x_title=STEPS_TITLE, **{"xaxis": {"range": [*span]}, **settings})
    if not data:
        return figure
    figure["layout"]["shapes"] = [*slow_shades(link_history(tables), span), *figure["layout"]["shapes"]]
    return with_changes(figure, tables, "steps", *span)


def slow_shades(links: LinkHistory, span: tuple[float, float]) -> list[Attributes]:
    """Return shapes over the steps in which a link is slow."""
    slow = [(begin, end) for begin, end, is_slow in links.stretches(links.is_slow.astype(int), *span) if is_slow]
    style: Attributes = {"yref": "paper", "layer": "below", "line": {"width": 0}, "fillcolor": _SHADE}
    return [box(stretch, (0, 1), **style) for stretch in slow[-_MOST_SHADES:]]
