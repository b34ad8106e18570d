"""Races in the dashboard: contestants are added from the settings on display; charts and table are live."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, RunFailedError
from dtdg_lab.core.units import join_words
from dtdg_lab.dashboard.actions import Actions
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.studies.race import RaceRunner, prepare
from dtdg_lab.studies.race_plan import StopRule, labels_for, races_in
from dtdg_lab.studies.race_result import open_race
from dtdg_lab.visualization.chart import CaptionedFigure
from dtdg_lab.widgets import run_page
from dtdg_lab.widgets.chart_cards import PanelCharts
from dtdg_lab.widgets.controls import tipped
from dtdg_lab.widgets.run_page import STRETCH, TEXT, Page, describe, text_line

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session
    from dtdg_lab.studies.race_result import Race


MOST = 8  # maximum number of contestants, which is the number of colours
HERE = "the race started here"
_EMPTY = (
    "Set up a run on the left and press “Add the settings shown”. Change the system or another setting, and add "
    "that too. All contestants get the same data, split, seeds, evaluation and stopping rule."
)


class RacePage(Page):
    """The contestants, the rules, Start and Stop; below them losses over time, joules, bytes and memory, and the table.

    One thread runs the race and another one draws it, so the page itself never waits.

    Args:
        settings: the dashboard's settings, which contestants take.
        session: the session whose engines run the race.
        actions: makes requests outside the event loop.
        runs_dir: folder in which ``races/`` is created.
    """

    title = "Race"

    def __init__(
        self, settings: Settings, session: Session, actions: Actions, *, runs_dir: str | Path = "runs"
    ) -> None:
        super().__init__()
        self._settings, self._session, self._actions, self._runs_dir = settings, session, actions, Path(runs_dir)
        self.configs: list[RunConfig] = []
        self._runner: RaceRunner | None = None
        self._thread: threading.Thread | None = None
        self._to_stop = False
        self._problem = self._shown_problem = ""
        self._asked: Any = None
        self._past: Race | None = None
        self._drawn: tuple[dict[str, CaptionedFigure], str] = ({}, "")
        self._shown: tuple[dict[str, CaptionedFigure], str] = ({}, "")
        self._drawer = self.in_background(self._draw, "dashboard-race")  # ends with the page, while a race continues
        self.charts = PanelCharts("race", defer=actions.later, chart_height=330, **STRETCH)
        self._make_controls()
        self.words = text_line(_EMPTY)
        self.alert = text_line(visible=False, styles=run_page.ALERT)
        wide = {**TEXT, "overflow-x": "auto", "min-width": "0"}  # so that a wide table scrolls instead of the page
        self.table = text_line(styles=wide)
        rules = (self.seeds, self.epochs, self.patience, self.seconds, self.loss)
        rows = (
            (self.add, self.start, self.stop),
            (self.chosen, self.remove),
            rules,
            (self.name, self.parallel, self.past),
        )
        controls = [pn.FlexBox(*row, margin=0) for row in rows]  # what does not fit goes to the next line
        self.panel = pn.Column(*controls, self.alert, self.words, self.table, self.place(self.charts), **STRETCH)
        self._offer()

    def _make_controls(self) -> None:
        self.add = self._button("Add the settings shown", "primary", self._add, "Add these settings as a contestant.")
        self.start = self._button("Start the race", "success", self._start, "Train every contestant with every seed.")
        self.stop = self._button("Stop the race", "danger", self._stop, "Stop the race. The same name resumes it.")
        self.remove = self._button("Remove selected", "default", self._remove, "Remove the selected contestants.")

        def box(label: str, width: int, tip: str, **extra: Any) -> pn.widgets.TextInput:
            tip = f"{tip} A change takes effect in the next race."
            return pn.widgets.TextInput(label=label, width=width, stylesheets=[tipped(tip)], **extra)

        self.chosen = pn.widgets.MultiSelect(
            label="Contestants", options={}, value=[], size=4, width=420, stylesheets=[tipped("Settings that race.")]
        )
        self.seeds = box("Seeds", 110, "Seeds that each contestant is trained with.", value="0 1 2")
        self.epochs = box("Epochs at most", 120, "Epochs after which a run ends.", placeholder="as set")
        self.patience = box("Evaluations without gain", 165, "A run ends after so many.", placeholder="any")
        self.seconds = box("Seconds a run", 120, "Seconds after which a run ends.", placeholder="any")
        self.loss = box("Validation loss reached", 155, "A run ends at this loss.", placeholder="none")
        self.name = box("Race name (needed to resume)", 240, "Name of the race's folder.", placeholder="none")
        self.parallel = pn.widgets.Checkbox(
            label="Run two contestants in parallel (half the engines each)",
            value=False,
            margin=(28, 10),
            stylesheets=[tipped("Two runs at once finish sooner, but share the machine: compare losses, not times.")],
        )
        tip = "Race whose charts are shown: the one started here, or a stored one."
        self.past = pn.widgets.Select(label="Shown", options={HERE: ""}, value="", width=300, stylesheets=[tipped(tip)])
        self.past.param.watch(lambda event: self._actions.later(self._choose), "value")

    def _button(self, label: str, colour: str, act: Callable[[], None], tip: str) -> pn.widgets.Button:
        button = pn.widgets.Button(label=label, color=colour, width=190, margin=(6, 6), stylesheets=[tipped(tip)])
        button.on_click(lambda event: self._actions.later(act))
        return button

    @property
    def racing(self) -> bool:
        """Whether a race that was started here is running."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def race(self) -> Race | None:
        """The race on display: the chosen past race, otherwise the last one that was started here."""
        return self._past or (None if self._runner is None else self._runner.race)

    # a person's actions

    def _add(self) -> None:
        self._show_problem("")
        try:
            config = self._settings.config()
            if config.to_json() in [contestant.to_json() for contestant in self.configs]:
                raise ConfigError("These settings are already a contestant. Change the system or another setting.")
            if len(self.configs) >= MOST:
                raise ConfigError(f"A race has at most {MOST} contestants here. Remove one.")
        except LabError as error:
            self._show_problem(str(error))
            return
        self.configs.append(config)
        self._list()

    def _remove(self) -> None:
        removed = set(self.chosen.value)
        self.configs = [config for index, config in enumerate(self.configs) if index not in removed]
        self._list()

    def _list(self) -> None:
        labels = labels_for(self.configs)
        self.chosen.param.update(options={label: index for index, label in enumerate(labels)}, value=[])
        self._offer()

    def _start(self) -> None:
        if self.racing:
            return
        self._show_problem("")
        try:
            rules = {
                "seeds": [
                    int(_number(word, "Seeds", is_whole=True)) for word in _text(self.seeds).replace(",", " ").split()
                ],
                "stop": self._rule(),
                "parallel": bool(self.parallel.value),
                "name": _text(self.name),
            }
        except LabError as error:
            self._show_problem(str(error))
            return
        self._runner, self._past, self._to_stop = None, None, False
        self.past.value = ""
        self._thread = threading.Thread(
            target=self._race, args=(list(self.configs), rules), name="dashboard-race-runs", daemon=True
        )
        self._thread.start()
        self._offer()

    def _rule(self) -> StopRule | None:
        fields = {"epochs": self.epochs, "patience": self.patience, "seconds": self.seconds, "loss": self.loss}
        limits: dict[str, Any] = {}
        for name, widget in fields.items():
            text = _text(widget)
            if text:
                limits[name] = _number(text, widget.label, is_whole=name in ("epochs", "patience"))
        return StopRule(**limits) if limits else None

    def _race(self, configs: list[RunConfig], rules: dict[str, Any]) -> None:
        """Run the whole race; there is no caller, so the page shows errors."""
        try:
            self._runner = prepare(configs, session=self._session, runs_dir=self._runs_dir, progress=False, **rules)
            if self._to_stop:  # the stop came while the race was prepared
                self._runner.stop()
            self._runner.run()
        except Exception as error:
            if self._runner is not None and self._runner.stopped and isinstance(error, RunFailedError):
                return  # the stop was requested
            self._problem = describe(error, "the race failed")

    def _stop(self) -> None:
        self._to_stop = True
        if self._runner is not None and self.racing:
            self._actions.do("Stop the race", self._runner.stop)

    def _choose(self) -> None:
        """Show a past race, or again the one that was started here."""
        self._show_problem("")
        if self.past.value:
            self._actions.do("Open the race", partial(open_race, self.past.value), then=self._show_past)
        elif self._past is not None:
            self._show_past(None)

    def _show_past(self, race: Race | None) -> None:
        self._past, self._asked = race, None
        if self.race is None:
            self._drawn = {}, ""
        self.update(slow=True)

    # display

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Show what was drawn; if ``slow``, which is once per second, draw again what has changed."""
        if self._shown_problem != self._problem:
            self._show_problem(self._problem)
        if self._drawn is not self._shown:
            self._shown = self._drawn
            self.table.value = self._shown[1]
            self.charts.draw(self._shown[0])
        if slow:
            self._offer()
            self._list_past()
            race = self.race
            if race is not None and (race, race.version) != self._asked:
                self._asked = race, race.version
                self._drawer.ask(race)

    def _list_past(self) -> None:
        options = {HERE: "", **{path.name: str(path) for path in races_in(self._runs_dir)}}
        if options != self.past.options:
            self.past.options = options

    def _draw(self, race: Race) -> None:
        """Draw charts and table of the race in the drawing thread."""
        try:
            self._drawn = race.panels(), race.html()
        except Exception as error:  # there is no caller, so the page shows the error
            self._problem = describe(error, "the race could not be drawn")

    def _offer(self) -> None:
        """Enable the buttons that apply, and show what to do while there is no race."""
        racing = self.racing
        self.start.disabled = racing or len(self.configs) < 2
        self.stop.disabled = not racing
        self.remove.disabled = not self.configs
        status = _EMPTY if len(self.configs) < 2 else f"Contestants: {join_words(labels_for(self.configs))}."
        if racing:
            status = "Preparing the race: loading and comparing the data." if self._runner is None else "Racing."
        elif self._past is not None:
            status = f"A past race. lab.races.open({str(self._past.folder)!r}) opens it in a notebook."
        elif self._runner is not None:
            end = "was stopped. The same name resumes it." if self._runner.stopped else "has ended."
            status = f"The race {end} It is kept in {self._runner.race.folder}, which lab.races.open(...) reads."
        self.words.value = html.escape(status, quote=False)

    def _show_problem(self, text: str) -> None:
        self._problem = self._shown_problem = text
        self.alert.param.update(value=run_page.alert_html(text) if text else "", visible=bool(text))


def _text(widget: pn.widgets.TextInput) -> str:
    return (widget.value or "").strip()


def _number(text: str, label: str, *, is_whole: bool) -> float:
    try:
        return int(text) if is_whole else float(text)
    except ValueError as error:
        kind = "whole numbers" if is_whole else "a number"
        raise ConfigError(f"{label}: cannot read {text!r}. Enter {kind}.") from error
