"""How slow links were made when: what events ``congestion`` told, and how it is drawn behind other charts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdg_lab.core.errors import DataError
from dtdg_lab.views.layout import join_words
from dtdg_lab.views.thin import shown_indices

_KEPT = 4000  # changes: an oscillating pattern tells many
_SHADE = "230,159,0"  # amber
_FAINT, _FULL = 0.10, 0.34  # how strongly the least and the worst congestion are drawn
_MOST_BANDS, _MOST_DRAWN = 200, 400


@dataclass(frozen=True, slots=True)
class Links:
    """What was added to every link from a step on.

    Attributes:
        step: the first one.
        pattern: its name.
        delay_ms: by owner, then by requester; (P, P).
        mbit: likewise the rate; None where a link is not limited.
        by: ``emulated`` or ``netem``.
        slowest_ms: of every owner, the most of its delays.
        narrowest: of every owner, the least of its rates; None where none of its links is limited.
    """

    step: int
    pattern: str
    delay_ms: tuple[tuple[float, ...], ...]
    mbit: tuple[tuple[float | None, ...], ...]
    by: str
    slowest_ms: tuple[float, ...]
    narrowest: tuple[float | None, ...]

    @property
    def parts(self) -> int:
        """P."""
        return len(self.delay_ms)

    def delay_of(self, owner: int) -> float:
        """Milliseconds added to the slowest of an owner's links; 0 for one that these links do not have."""
        return self.slowest_ms[owner] if owner < self.parts else 0.0

    def rate_of(self, owner: int) -> float | None:
        """Mbit/s of the narrowest of an owner's links; None where none is limited."""
        return self.narrowest[owner] if owner < self.parts else None

    @property
    def congested(self) -> list[int]:
        """Owners with a link that is late or limited."""
        return [owner for owner in range(self.parts) if self.delay_of(owner) > 0 or self.rate_of(owner) is not None]

    @property
    def words(self) -> str:
        """What is added, in words, such as ``part 1 +20 ms, part 2 at 25 Mbit/s``; empty for nothing."""
        told = []
        for owner in self.congested:
            delay, rate = self.delay_of(owner), self.rate_of(owner)
            late = f" +{delay:.3g} ms" if delay else ""
            told.append(f"part {owner}{late}" + ("" if rate is None else f" at {rate:.4g} Mbit/s"))
        return join_words(told)


def links_of(data: Mapping[str, Any], step: int) -> Links:
    """The links in the data of an event ``congestion``.

    Raises:
        DataError: something is missing or does not fit.
    """
    try:
        delay = tuple(tuple(float(each or 0.0) for each in row) for row in data["delay_ms"])
        mbit = tuple(tuple(None if each is None else float(each) for each in row) for row in data["mbit"])
        pattern, by = str(data["pattern"]), str(data.get("by") or "emulated")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"congestion cannot be drawn from what is told of it ({error!r}): was it recorded by another version?"
        ) from error
    if {len(row) for row in (*delay, *mbit)} - {len(delay)} or len(mbit) != len(delay):
        raise DataError(
            "an event told congestion of links that are not a square of parts: was it recorded by another version?"
        )
    others = [[asker for asker in range(len(delay)) if asker != owner] for owner in range(len(delay))]
    slowest = tuple(max((delay[owner][each] for each in asking), default=0.0) for owner, asking in enumerate(others))
    narrowest = tuple(
        min((rate for each in asking if (rate := mbit[owner][each]) is not None), default=None)
        for owner, asking in enumerate(others)
    )
    return Links(step, pattern, delay, mbit, by, slowest, narrowest)


class CongestionLog:
    """Events ``congestion`` of one run, in bounded memory."""

    def __init__(self) -> None:
        self._changes: dict[int, tuple[int, Links]] = {}  # step -> attempt, links
        self._ordered: list[Links] | None = None  # None where they have changed since

    def event(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event; of several at one step the last one holds."""
        step = int(row["step"] or 0)
        self._changes[step], self._ordered = (attempt, links_of(row["data"], step)), None
        while len(self._changes) > _KEPT:
            del self._changes[min(self._changes)]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt had from ``step`` on."""
        self._changes = {at: kept for at, kept in self._changes.items() if at < step or kept[0] >= attempt}
        self._ordered = None

    @property
    def now(self) -> Links | None:
        """The links in force; None where nothing was told."""
        changes = self.changes()
        return changes[-1] if changes else None

    def changes(self) -> list[Links]:
        """All that are kept, in order."""
        if self._ordered is None:
            self._ordered = [self._changes[at][1] for at in sorted(self._changes)]
        return self._ordered

    def at(self, step: int) -> Links | None:
        """The links in force at a step; None before the first were told."""
        changes = self.changes()
        place = bisect_right(changes, step, key=lambda links: links.step)
        return changes[place - 1] if place else None

    def stretches(self, first: float, last: float) -> list[tuple[float, float, Links]]:
        """What held between two steps: from, to, links; from the first change on."""
        changes = self.changes()
        ends = [*(float(links.step) for links in changes[1:]), last][: len(changes)]
        return [
            (max(first, float(links.step)), min(last, end), links)
            for links, end in zip(changes, ends, strict=True) if end > first and links.step < last
        ]  # fmt: skip

    def bands(self, first: float, last: float) -> list[dict[str, Any]]:
        """Shapes to be drawn behind a chart over steps: the darker, the slower its slowest link."""
        found = [(begin, end, links) for begin, end, links in self.stretches(first, last) if links.congested]
        worst = max((_severity(links) for *_, links in found), default=0.0) or 1.0
        return [
            {
                "type": "rect", "layer": "below", "line": {"width": 0},
                "xref": "x", "yref": "paper", "x0": begin, "x1": end, "y0": 0, "y1": 1,
                "fillcolor": f"rgba({_SHADE},{_FAINT + (_FULL - _FAINT) * _severity(links) / worst:.2f})",
            }
            for begin, end, links in found[-_MOST_BANDS:]
        ]  # fmt: skip

    def injected(self, owner: int, first: float, last: float) -> tuple[list[float], list[float]]:
        """Steps from which an owner's delay is how many milliseconds, and the last step; none where it has none."""
        found = self.stretches(first, last)
        late = np.array([links.delay_of(owner) for *_, links in found])
        if not late.any():
            return [], []
        shown = shown_indices(late, _MOST_DRAWN).tolist()
        return [*(found[at][0] for at in shown), found[-1][1]], [*late[shown].tolist(), float(late[-1])]


def shaded(layout: dict[str, Any], congestion: CongestionLog, steps: Sequence[int]) -> dict[str, Any]:
    """A layout over steps with the congestion behind it."""
    if not steps:
        return layout
    bands = congestion.bands(steps[0] - 0.5, steps[-1] + 0.5)
    return {**layout, "shapes": [*bands, *layout["shapes"]]}


def _severity(links: Links) -> float:
    """How slow the slowest link is: milliseconds, or those that a megabit takes at its rate, whichever is more."""
    rates = [rate for owner in range(links.parts) if (rate := links.rate_of(owner)) is not None]
    late = max((links.delay_of(owner) for owner in range(links.parts)), default=0.0)
    return max([late, *(1000.0 / rate for rate in rates if rate > 0)])
