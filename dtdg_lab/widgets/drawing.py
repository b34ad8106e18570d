"""The order in which charts are drawn: one at a time, only those in view, the picture more often than the others."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

PICTURE_S, OTHERS_S = 0.25, 1.0  # least time between two drawings of a chart
CALM_PICTURE_S = 1.0  # where a viewer prefers reduced motion
PATIENCE_S = 5.0  # for a display's answer; after that it is taken for closed until it speaks again
SMOOTHING = 0.2  # of the mean time of a drawing, so that one slow drawing makes no busy page
BUSY_S = 1.0  # a page whose drawings take longer on average is busy


@dataclass(slots=True)
class _Display:
    """One place where charts are shown: which are in view, and the message that it has not acknowledged yet."""

    visible: frozenset[str] = frozenset()
    is_calm: bool = False  # its viewer prefers reduced motion
    owes: int | None = None
    sent_s: float = -math.inf
    took_s: float = 0.0


@dataclass(slots=True)
class _Turn:
    """When a chart was looked at last, and whether it must be sent even if it has not changed."""

    looked_s: float = -math.inf
    forced: bool = True


@dataclass(slots=True)
class DrawingOrder:
    """Decides which chart is due. Displays say what is in view, and acknowledge what they have drawn."""

    _displays: dict[str, _Display] = field(default_factory=dict)
    _turns: dict[str, _Turn] = field(default_factory=dict)
    _pictures: frozenset[str] = frozenset()
    _number: int = 0
    _last: str = ""  # chart that was sent last

    def place(self, names: Sequence[str], pictures: Collection[str] = ()) -> None:
        """Take over the charts that exist now; those that stay keep their turn."""
        self._turns = {name: self._turns.get(name, _Turn()) for name in names}
        self._pictures = frozenset(pictures)

    def hear(self, display: str, visible: Collection[str]) -> None:
        """Note what is in view of a display; what has come into view is due at once."""
        state = self._displays.setdefault(display, _Display())
        for name in set(visible) - state.visible:
            self.force(name)
        state.visible = frozenset(visible)

    def calm(self, display: str, is_calm: bool) -> None:
        """Note whether the viewer of a display prefers reduced motion."""
        self._displays.setdefault(display, _Display()).is_calm = is_calm

    def acknowledge(self, display: str, number: int, took_ms: float | None, chart: str = "") -> None:
        """Note that a display has dealt with a message; without a time it did not draw the chart."""
        state = self._displays.setdefault(display, _Display())
        if state.owes == number:
            state.owes = None
        if took_ms is None:
            self.force(chart)
        else:
            state.took_s += SMOOTHING * (took_ms / 1e3 - state.took_s)

    def forget(self, display: str) -> None:
        """Forget a display that was closed."""
        self._displays.pop(display, None)

    def force(self, name: str) -> None:
        """Let a chart be sent as soon as possible, even if it has not changed."""
        if name in self._turns:
            self._turns[name].forced = True

    def hurry(self) -> None:
        """Let all charts be due now."""
        for turn in self._turns.values():
            turn.looked_s = -math.inf

    @property
    def is_busy(self) -> bool:
        """Whether drawing a chart takes a page so long that charts come late."""
        return any(display.took_s > BUSY_S for display in self._displays.values())

    def in_view(self) -> frozenset[str]:
        """Return the charts that some display shows."""
        return frozenset().union(*(display.visible for display in self._displays.values()))

    def is_free(self, now_s: float) -> bool:
        """Return whether all displays have acknowledged what they were sent; silent ones are given up."""
        for display in self._displays.values():
            if display.owes is not None and now_s - display.sent_s > PATIENCE_S:
                display.owes, display.visible = None, frozenset()
        return all(display.owes is None for display in self._displays.values())

    def due(self, now_s: float) -> Iterator[tuple[str, bool]]:
        """Yield the charts that are due, most urgent first, each with whether it is sent even if unchanged.

        The picture takes every second turn; of the others, the one that waits longest is first.
        """
        in_view = self.in_view()
        names = [name for name in self._turns if name in in_view]
        yield from ((name, True) for name in names if self._turns[name].forced)
        waiting = {name: self._wait_s(name, now_s) for name in names if not self._turns[name].forced}
        due = sorted((name for name, wait_s in waiting.items() if wait_s <= 0), key=waiting.__getitem__)
        is_pictures_turn = self._last not in self._pictures
        due.sort(key=lambda name: (name in self._pictures) != is_pictures_turn)
        yield from ((name, False) for name in due)

    def _wait_s(self, name: str, now_s: float) -> float:
        """Return for how long a chart is not due yet; below 0 where it is overdue."""
        is_calm = any(display.is_calm for display in self._displays.values())
        least_s = (CALM_PICTURE_S if is_calm else PICTURE_S) if name in self._pictures else OTHERS_S
        return self._turns[name].looked_s + least_s - now_s

    def looked(self, name: str, now_s: float) -> None:
        """Note that a chart was looked at now."""
        self._turns[name].looked_s = now_s

    def sent(self, name: str, now_s: float) -> int:
        """Note that a chart is sent now; return the number of the message."""
        self._number += 1
        self._last = name
        self._turns[name] = _Turn(now_s, forced=False)
        for display in self._displays.values():
            if name in display.visible:
                display.owes, display.sent_s = self._number, now_s
        return self._number
