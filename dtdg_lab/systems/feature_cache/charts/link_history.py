"""How slow each owner's links were made, from change to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.records.rows import Array
from dtdg_lab.systems.feature_cache.charts.run_facts import part_count
from dtdg_lab.systems.feature_cache.events import Congestion

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables


@dataclass(frozen=True, slots=True, eq=False)
class LinkHistory:
    """How slow each owner's replies were made, from one step to the next change.

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
