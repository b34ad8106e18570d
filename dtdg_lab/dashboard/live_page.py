"""The page of the run on display: tiles, its picture with suggestions, all other charts, and effects of changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.dashboard.change_log import HEADS, entries_of, listed, rows_of, undo_of
from dtdg_lab.dashboard.live_charts import LiveCharts
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.changes.effects import STEP_TIME, MeasuredEffect, effect_of
from dtdg_lab.visualization.changes.log import RequestedChange, requested_changes
from dtdg_lab.visualization.runs.overview import common_tiles
from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile
from dtdg_lab.widgets.changes import ChangeLog, EffectsTable
from dtdg_lab.widgets.component import Defer
from dtdg_lab.widgets.run_page import STRETCH
from dtdg_lab.widgets.tiles import Tiles, TryChips

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

MOST_CHIPS = 4


def tiles_of(tables: RunTables) -> Sequence[Tile]:
    """Return the tiles of a run: those of its system's family, or else those of all runs."""
    family = catalogue.family(catalogue.system(tables.system).family)
    return family.tiles(tables) or common_tiles(tables)


def suggestions_of(config: RunConfig) -> list[Suggestion]:
    """Return what could be tried in a run with these settings, except what is already set."""
    family = catalogue.family(catalogue.system(config.system).family)
    flat = config.flat
    return [
        suggestion
        for suggestion in family.suggestions(config)
        if any(flat.get(name) != value for name, value in suggestion.changes.items())
    ][:MOST_CHIPS]


def effects_of(tables: RunTables) -> list[Effect]:
    """Return the numbers that are compared before and after each change."""
    family = catalogue.family(catalogue.system(tables.system).family)
    effect = family.effect(tables.system)
    return [STEP_TIME] if effect is None or effect.label == STEP_TIME.label else [STEP_TIME, effect]


class LivePage:
    """The components of the page, which are updated from a run's tables.

    Args:
        defer: lets the event loop make a call.
        request: function called with changes of settings that a person requests here.
        problem: function called with a description of what went wrong.
        other_runs: returns the session's other runs; it may read from disk.

    Attributes:
        tiles, picture, rest, log: components of the layout.
    """

    def __init__(
        self,
        defer: Defer,
        request: Callable[[Mapping[str, Any]], None],
        problem: Callable[[str], None],
        other_runs: Callable[[], Sequence[Run]],
    ) -> None:
        self._request = request
        self.charts = LiveCharts(defer, request, problem, other_runs)
        self.tiles = Tiles(lambda message: None, defer=defer, **STRETCH)
        self.chips = TryChips(request, defer=defer, css_classes=["dl-try-chips"], **STRETCH)
        self.log = ChangeLog(self._hear, defer=defer, **STRETCH)
        self.effects = EffectsTable(self._hear, defer=defer, **STRETCH)
        self.picture = pn.Column(self.charts.picture, self.chips, **STRETCH)
        self.rest = pn.Column(self.charts.others, self.effects, **STRETCH)
        self._run: Run | None = None
        self._next: RunConfig | None = None  # settings that were chosen since the run ended
        self._changes: tuple[RequestedChange, ...] = ()
        self._version = -1
        self._applied = 0  # number of applied changes
        self._effects_open = False
        self._final: dict[tuple[Any, ...], MeasuredEffect] = {}

    @property
    def changes(self) -> tuple[RequestedChange, ...]:
        """The changes of settings that were requested for the run so far."""
        return self._changes

    def follow(self, run: Run | None, config: RunConfig) -> None:
        """Show another run; without one, show what is known before a run with these settings."""
        self._run, self._version, self._changes, self._next = run, -1, (), None
        self._final.clear()
        if run is None:
            self.charts.wait_with(config)
        else:
            self.charts.follow(run.id, run.live, run.lock)
        self._draw_log(set(), 0, {})

    def wait_with(self, config: RunConfig) -> None:
        """Show what is known before a run with other settings."""
        self.follow(None, config)
        self._show_tiles(config)

    def suggest_for(self, config: RunConfig) -> None:
        """Suggest what to try in the next run, which will have these settings, after the run on display has ended."""
        self._next, self._version = config, -1

    def tick(self) -> None:
        """Send the chart whose turn it is."""
        self.charts.tick()

    def update(self, own_versions: set[int], *, slow: bool, is_active: bool) -> None:
        """Update the texts if the run has made progress.

        Args:
            own_versions: versions of changes that this page has requested.
            slow: whether a second has passed since the last call with ``slow``.
            is_active: whether the run had not ended when this update of the page began.
        """
        run = self._run
        if slow:
            self.charts.age_frozen()
        if run is None:
            if self._version < 0:
                self._version = 0
                tables = self.charts.tables
                assert tables is not None
                self._show_tiles(tables.config)
            return
        self.charts.ended = not is_active
        if run.version == self._version and not slow:
            return
        self._version = run.version
        with run.lock:
            tables = run.live
            config = tables.config if is_active or self._next is None else self._next
            tiles, suggestions = tiles_of(tables), suggestions_of(config)
            self._changes = requested_changes(tables, ended=not is_active)
            applied = sum(change.outcome == "applied" for change in self._changes)
            epoch = tables.progress.epoch
            settings = tables.config.flat if is_active else {}
            if self._effects_open and slow:
                self._draw_effects(tables, own_versions, epoch, settings)
        if applied != self._applied:
            self.charts.order.hurry()  # the change's number must appear in all charts
        self._applied = applied
        self.tiles.draw(tiles)
        self.chips.draw(suggestions, is_running=is_active)
        self._draw_log(own_versions, epoch, settings)

    def _show_tiles(self, config: RunConfig) -> None:
        tables = self.charts.tables
        assert tables is not None
        self.tiles.draw(tiles_of(tables))
        self.chips.draw(suggestions_of(config), is_running=False)

    def _draw_log(self, own_versions: set[int], epoch: int, settings: Mapping[str, Any]) -> None:
        changes = listed(self._changes)
        self.log.draw(entries_of(changes, own_versions, epoch, settings))
        if not self._effects_open:  # the title has the number of changes
            self.effects.draw(HEADS, rows_of(changes, own_versions, epoch, settings))

    def _draw_effects(self, tables: RunTables, own_versions: set[int], epoch: int, settings: Mapping[str, Any]) -> None:
        effects, changes = effects_of(tables), listed(self._changes)
        texts = {change.number: self._measured(change, tables, effects) for change in changes}
        rows = rows_of(changes, own_versions, epoch, settings, effects=texts, columns=len(effects))
        self.effects.draw([*HEADS, *(f"{effect.label}, before → after" for effect in effects)], rows)

    def _measured(self, change: RequestedChange, tables: RunTables, effects: Sequence[Effect]) -> list[str]:
        """Return the effects of a change; those that later steps cannot change are measured once."""
        texts = []
        for effect in effects:
            key = (change.number, change.version, effect.label)
            measured = self._final.get(key) or effect_of(change, tables, effect)
            if measured.is_final:
                self._final[key] = measured
            texts.append(measured.text)
        return texts

    def _hear(self, message: Mapping[str, Any]) -> None:
        if "open" in message:
            self._effects_open = message["open"]
        else:
            self._undo(message["undo"])

    def _undo(self, number: int) -> None:
        changes = undo_of(self._changes, number)
        if changes:
            self._request(changes)
