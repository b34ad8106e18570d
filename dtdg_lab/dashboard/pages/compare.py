"""Pages Compare and Code: runs, races and studies, one of them at a time; the settings as code."""

from __future__ import annotations

import html
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.core.errors import LabError
from dtdg_lab.dashboard.actions import Actions
from dtdg_lab.dashboard.config_code import as_cell, as_json
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.runs.run import StoredRun, open_run
from dtdg_lab.visualization.chart import XAxis
from dtdg_lab.visualization.energy import SO_FAR, energy_panel, energy_rows
from dtdg_lab.visualization.loss import compare_figure, ground_words, wall_time_figure, wall_time_words
from dtdg_lab.visualization.style import coloured
from dtdg_lab.widgets.live import WholeCharts, labelled, tipped
from dtdg_lab.widgets.run_page import ACTIVE, Page, Pages

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

COMPARED = 6
LISTED = 100  # newest stored runs


class ComparePage(Pages):
    """Comparisons of several kinds; one is shown at a time.

    Args:
        parts: the pages of the kinds.
    """

    def __init__(self, parts: Sequence[Page]) -> None:
        super().__init__("Compare", parts)
        tips = "Which runs are compared: those of this session, those of a race, or those of a study."
        self.choice = pn.widgets.RadioButtonGroup(
            options=[*self.parts], value=parts[0].title, margin=(4, 8), stylesheets=[labelled("Compare"), tipped(tips)]
        )
        self.panel.insert(0, self.choice)

    def shown(self) -> list[Page]:
        """The chosen part."""
        return [self.parts[self.choice.value]]


class RunsPage(Page):
    """Chosen stored runs and the session's last runs: validation losses, losses over wall time, energy by phase.

    Args:
        actions: where requests are executed.
        runs_dir: the folder of stored runs, of this session and of earlier ones.
    """

    title = "Runs"
    compares_runs = True

    def __init__(self, actions: Actions, runs_dir: Path) -> None:
        super().__init__()
        self._actions, self._runs_dir = actions, runs_dir
        self._labels: dict[str, str] = {}  # of stored runs, by name of the folder
        self._read: dict[str, StoredRun] = {}  # by name of the folder
        self._drawn: tuple[Any, ...] = ()
        self._x: XAxis = "steps"
        self.figure = compare_figure([])
        self.wall_time, self.words = wall_time_figure([]), wall_time_words([])
        self.energy, self.spent = energy_panel([], SO_FAR)
        self.charts = WholeCharts(
            lambda: {"compare": self.figure, "wall-time": self.wall_time, "energy-by-run": self.energy},
            lambda: {"wall-time": self.words, "energy-by-run": self.spent},
            defer=actions.later,
            chart_height=620,
            sizing_mode="stretch_width",
        )
        tip = f"Ended runs to compare with the active one, up to {COMPARED}. Without a choice: the session's last runs."
        self.stored = pn.widgets.MultiSelect(
            label="Stored runs",
            options={},
            value=[],
            size=5,
            stylesheets=[tipped(tip)],
            max_width=620,
            sizing_mode="stretch_width",
        )
        self.stored.param.watch(lambda event: actions.later(self._open), "value")
        self.panel = pn.Column(self.stored, self.place(self.charts), sizing_mode="stretch_width")

    def over(self, x: XAxis) -> None:
        """Draw the losses over ``steps`` or ``seconds``."""
        self._x = x

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Draw again where something changed; costs a whole figure, so at most once a second."""
        if not slow:
            return
        self._list_stored()
        chosen = [run for name, run in self._read.items() if name in self.stored.value]
        others = [run for run in runs if run.id not in self.stored.value]
        last = [run for run in others[-1:] if run.status in ACTIVE] if self.stored.value else others[-COMPARED:]
        drawn = (self._x, *(run.path.name for run in chosen), *((run.id, run.version) for run in last))
        if drawn == self._drawn:
            return
        with ExitStack() as locks:
            for lock in dict.fromkeys(run.lock for run in last):
                locks.enter_context(lock)
            labelled = [*((run.path.name, run.live) for run in chosen), *((run.id, run.live) for run in last)]
            self.figure = compare_figure(labelled, self._x)
            self.wall_time = wall_time_figure(labelled)
            self.words = f"{ground_words(labelled)} {wall_time_words(labelled)}"
            self.energy, self.spent = energy_panel(energy_rows(labelled), SO_FAR)
        self._drawn = drawn
        self.charts.redraw()

    def _list_stored(self) -> None:
        ended = sorted((file.parent for file in self._runs_dir.glob("*/summary.json")), reverse=True)[:LISTED]
        for path in ended:
            if path.name not in self._labels:
                self._labels[path.name] = _label(path)
        options = {self._labels[path.name]: path.name for path in ended}
        if options != self.stored.options:
            kept = [name for name in self.stored.value if name in options.values()]
            self.stored.param.update(options=options, value=kept)

    def _open(self) -> None:
        """Read the chosen runs that are not open yet; what cannot be read is shown as a problem and not chosen."""
        chosen = self.stored.value
        if len(chosen) > COMPARED:
            self.stored.value = chosen[:COMPARED]
            return
        for name in chosen:
            if name not in self._read:
                self._actions.do(
                    f"Open {name}",
                    partial(_with_charts, self._runs_dir / name),
                    then=partial(self._read.__setitem__, name),
                    otherwise=partial(self._drop, name),
                )

    def _drop(self, name: str) -> None:
        self.stored.value = [other for other in self.stored.value if other != name]


def _label(path: Path) -> str:
    """A stored run in a list: its name, what it trained on what, and how it ended."""
    try:
        run = open_run(path)
        loss = run.summary.get("validation_loss")
        ended = run.status if loss is None else f"{run.status}, validation loss {loss:.3g}"
        return f"{run.id}: {run.config.model} on {run.config.dataset}, {ended}"
    except LabError:
        return f"{path.name}: cannot be read"


def _with_charts(path: Path) -> StoredRun:
    """A stored run whose charts are computed."""
    run = open_run(path)
    assert run.live is not None
    return run


class CodePage(Page):
    """The present settings as a Python cell and as JSON."""

    title = "Code"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self.cell = pn.widgets.StaticText(value="", sizing_mode="stretch_width")
        self.json = pn.widgets.StaticText(value="", sizing_mode="stretch_width")
        self.panel = pn.Row(
            pn.Column("#### As a cell", self.cell, sizing_mode="stretch_width"),
            pn.Column("#### As JSON, for `python -m dtdg_lab run CONFIG.json`", self.json, sizing_mode="stretch_width"),
            sizing_mode="stretch_width",
        )
        settings.watch(self._write)
        self._write()

    def _write(self) -> None:
        """The settings of the controls, or why they are no valid run."""
        try:
            config = self._settings.config()
        except LabError as error:
            self.cell.value, self.json.value = _block(str(error)), ""
            return
        self.cell.value, self.json.value = _block(as_cell(config)), _block(as_json(config))


def _block(text: str) -> str:
    edge, back = coloured("line"), coloured("back")
    style = f"font-size:12px;background:{back};border:1px solid {edge};padding:10px;white-space:pre-wrap"
    return f'<pre class="dl-code" style="{style}">{html.escape(text)}</pre>'
