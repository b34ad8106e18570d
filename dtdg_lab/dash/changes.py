"""What was asked of a run here: which change waits, which was applied at which step, which was refused and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.units import format_seconds
from dtdg_lab.views import RunWindow
from dtdg_lab.views.marks import Mark, short

ACTIVE = ("starting", "running", "paused", "stopping")
TOLD = 2  # epoch changes whose outcome stays in the status line


class Asked(Protocol):
    """A run that changes were asked of."""

    @property
    def config(self) -> RunConfig:
        """The settings now."""

    @property
    def status(self) -> str:
        """Whether it goes on."""

    @property
    def reason(self) -> str:
        """What it refused last, in words."""

    @property
    def window(self) -> RunWindow:
        """What is shown of it."""


@dataclass(slots=True)
class Change:
    """One setting asked for; ``version`` is that under which the ranks apply it.

    What the run looked like then is kept: its epoch, and what it had refused.
    """

    name: str
    value: Any
    version: int
    at_epoch_end: bool
    epoch: int
    reason: str
    state: str = "waits"  # applied, refused, over

    @property
    def words(self) -> str:
        """Name and value."""
        return f"{self.name} {self.value}"


class Changes:
    """The changes asked for here, of one run; ``on_end(change)`` is told of those that no longer wait."""

    def __init__(self, on_end: Callable[[Change], None]) -> None:
        self._on_end = on_end
        self._now: list[Change] = []  # the last that take effect at a next step: those of one request
        self._waiting: dict[str, Change] = {}
        self._ended: list[Change] = []

    def forget(self) -> None:
        """Another run is shown."""
        self._now, self._waiting, self._ended = [], {}, []

    def add(self, name: str, value: Any, version: int, run: Asked, *, at_epoch_end: bool) -> None:
        """Note what the run has accepted; the same setting asked for before is no longer waited for."""
        change = Change(name, value, version, at_epoch_end, run.window.progress.epoch, run.reason)
        if at_epoch_end:
            self._waiting[name] = change
        else:
            self._now = [*(each for each in self._now if each.version == version), change]

    def look(self, run: Asked, status: str) -> None:
        """See which of the changes that waited for the end of the epoch were made since, or will not be.

        Args:
            run: of which they were asked.
            status: of the run, as whatever else is shown now was told: it may end in between.
        """
        for name, change in list(self._waiting.items()):
            change.state = _state(change, run, status)
            if change.state != "waits":
                del self._waiting[name]
                self._ended = [*self._ended, change][-TOLD:]
                self._on_end(change)

    def lines(self, window: RunWindow) -> list[str]:
        """What became of the changes, in words; the caller holds the run's lock."""
        shown = [*self._ended, *self._waiting.values()]
        lines = [_epoch_words(change, window) for change in shown]
        return [*lines, *(_step_words(change, window) for change in self._now)]


def _state(change: Change, run: Asked, status: str) -> str:
    """``waits``, ``applied``, ``refused``, or ``over`` where the run ended first."""
    config = run.config
    if _holds(config, change.name, change.value):
        return "applied"
    if f"{change.name}={change.value!r}" in run.reason and (
        run.reason != change.reason or run.window.progress.epoch > change.epoch
    ):
        return "refused"
    return "waits" if status in ACTIVE else "over"


def _holds(config: RunConfig, name: str, value: Any) -> bool:
    """Whether a config has a value, or what it stands for: 0 parts are as many as ranks."""
    if name not in config.flat:
        return False
    try:
        return bool(config.replace(**{name: value})[name] == config[name])
    except LabError:  # it does not go with what the run has become
        return False


def _epoch_words(change: Change, window: RunWindow) -> str:
    if change.state == "waits":
        return f"{change.words}: asked for, waits for the end of the epoch"
    if change.state == "refused":
        return f"{change.words}: refused, the run goes on as it was"
    if change.state == "over":
        return f"{change.words}: not applied, the run ended first"
    mark = _newest_mark(change, window)
    if mark is None:
        return f"{change.words}: as the run has it"
    took = f", the change took {format_seconds(mark.took_s)}" if mark.took_s else ""
    return f"{change.words}: {_where(mark)}{took}"


def _step_words(change: Change, window: RunWindow) -> str:
    mark = window.marks.applied(change.version)
    if mark is None:
        return f"{change.words}: asked for, waits for its control point"
    return f"{change.words}: {_where(mark)}"


def _newest_mark(change: Change, window: RunWindow) -> Mark | None:
    """Where the ranks applied it: as one of several changes of that epoch, under the newest version by then."""
    words = f"{change.name} {short(change.value)}"
    made = [mark for mark in window.marks if words in mark.label.split(", ")]
    return made[-1] if made else None


def _where(mark: Mark) -> str:
    if not mark.together:
        return f"NOT applied at one step ({mark.text})"
    ranks = "1 rank" if len(mark.steps) == 1 else f"{len(mark.steps)} ranks"
    return f"applied at step {mark.step} on {ranks}"
