"""Page Study: start, follow and read studies."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.runs.charts import drawn_charts
from dtdg_lab.runs.directory import ENDED
from dtdg_lab.studies.objective import finite_number
from dtdg_lab.studies.study import SWEEP_FILE, Study, open_study
from dtdg_lab.studies.trials import FILE, Trial
from dtdg_lab.visualization.chart import CaptionedFigure, ChartOptions
from dtdg_lab.visualization.numbers import short
from dtdg_lab.widgets.chart_cards import PanelCharts
from dtdg_lab.widgets.controls import tipped
from dtdg_lab.widgets.run_page import STRETCH, Page, describe, text_line

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

# Studies and their runs, which are read from disk for the page; errors become text.


_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StudyRequest:
    """A study, and the axes of its map; None lets the study choose."""

    path: Path
    x: str | None = None
    y: str | None = None
    colour: str | None = None


@dataclass(frozen=True, slots=True)
class StudySnapshot:
    """The content of the page for a study.

    Attributes:
        path: the study's folder; None if nothing could be read.
        words: its progress, or why it cannot be read.
        panels: name -> chart and caption.
        names: names of the studied settings.
        numbers: names of numbers of runs by which cells can be coloured.
        x: setting on the horizontal axis.
        y: setting on the vertical axis.
        colour: number that colours the cells.
        runs: label of a run -> key of its trial.
    """

    path: Path | None = None
    words: str = ""
    panels: Mapping[str, CaptionedFigure] = field(default_factory=lambda: _NOTHING)
    names: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    x: str | None = None
    y: str | None = None
    colour: str | None = None
    runs: dict[str, str] = field(default_factory=lambda: {"none": ""})


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """The content of the page for a run: text, charts with captions, names of wide charts, and its report if any."""

    words: str = ""
    panels: Mapping[str, CaptionedFigure] = field(default_factory=lambda: _NOTHING)
    wide: tuple[str, ...] = ()
    report: str | None = None
    report_name: str = "report.html"
    under_way: bool = False


def studies_in(folder: Path) -> list[str]:
    """Return the names of the studies in a folder, the last changed first."""
    if not folder.is_dir():
        return []
    folders = [path.parent for path in folder.glob(f"*/{SWEEP_FILE}")]
    return [path.name for path in sorted(folders, key=lambda path: (stamp_of(path), path.name), reverse=True)]


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return the sizes and times of a study's files, which change with every line that is written."""
    stamps = [file.stat() for name in (FILE, SWEEP_FILE) if (file := path / name).is_file()]
    return tuple(value for stamp in stamps for value in (stamp.st_mtime_ns, stamp.st_size))


def read_study(request: StudyRequest) -> StudySnapshot:
    """Return the study with its map over the requested axes and its runs, or why it cannot be read."""
    try:
        study = open_study(request.path)
        names, objective = list(study.sweep.names), study.sweep.objective
        values = (pair for trial in study.trials for pair in trial.values.items())
        names_of_numbers = sorted({name for name, value in values if finite_number(value) is not None})
        numbers = [objective, *(name for name in names_of_numbers if name != objective)]
        x = request.x if request.x in names else names[0]
        y = request.y if request.y in names and request.y != x else next((name for name in names if name != x), None)
        colour = request.colour if request.colour in numbers else objective
        panels = dict(study.analysis())
        if y is not None:
            panels = {"map": study.map_panel(x, y, colour)} | {name: panels[name] for name in panels if name != "map"}
        runs = {"none": "", **{_run_label(study, trial): trial.key for trial in study.trials if trial.run is not None}}
        return StudySnapshot(study.path, study.summary(), panels, names, numbers, x, y, colour, runs)
    except Exception as error:  # there is no caller, so the page shows the error
        return StudySnapshot(words=describe(error, f"the study {request.path} could not be read"))


def _run_label(study: Study, trial: Trial) -> str:
    settings = ", ".join(f"{name} {short(value)}" for name, value in trial.settings.items())
    value = finite_number(trial.values.get(study.sweep.objective))
    came = trial.status if value is None else f"{trial.status}, {study.sweep.objective} {value:.4g}"
    return f"{trial.number}: {settings}, seed {trial.seed} ({came})"


def read_run(path: Path, key: str) -> RunSnapshot:
    """Return the run of a study's trial, or why it cannot be read."""
    try:
        study = open_study(path)
        trial = study.trial(key)
        run = study.open(trial)
        report, options = run.directory.report_file, ChartOptions(whole_run=True, ended=run.status in ENDED)
        text = f"Run {run.id} of trial {trial.number}, seed {trial.seed}: {run.status}. {trial.reason or run.reason}"
        charts = drawn_charts(run.live, options)
        return RunSnapshot(
            f"{text} lab.runs.open({str(run.path)!r})",
            {chart.name: panel for chart, panel in charts.items()},
            tuple(chart.name for chart in charts if chart.section == "picture"),
            str(report) if report.is_file() else None,
            f"{run.id}.html",
            run.status not in ENDED,
        )
    except Exception as error:  # there is no caller, so the page shows the error
        return RunSnapshot(words=describe(error, f"a run of the study {path} could not be read"))


# A growing or a past study: its heat map, in which a click selects a run, and that run's charts and report.


AGAIN_TICKS = 2  # seconds between two readings of the selected run while it is active
_HOW = (
    "No study here yet. Start one: lab.run_study('figure8', quick=True), or lab.run_study(lab.Sweep(config, "
    "over={'full_snapshots': (1, 2, 4), 'alpha': (0.1, 0.6)}), name='my-study')."
)


class StudyPage(Page):
    """Studies in a folder, which a thread reads from disk, so that any process may run them.

    Args:
        defer: lets the event loop make a call.
        folder: folder of studies.
    """

    title = "Study"

    def __init__(self, defer: Callable[[Callable[[], None]], None], folder: str | Path = "runs/studies") -> None:
        super().__init__()
        self._defer = defer
        self._snapshot = StudySnapshot()
        self._asked: StudyRequest | None = None
        self._stamp: Any = None
        self._run = RunSnapshot()
        self._run_key, self._ticks = "", 0
        self._reader = self.in_background(self._read, "study-reader")
        self._run_reader = self.in_background(self._read_run, "study-run-reader")
        self._make_widgets(folder)
        self.map = PanelCharts("study", defer=defer, chart_height=430, **STRETCH)
        self.map.on_click(self._clicked)
        self.charts = PanelCharts("study-run", defer=defer, chart_height=330, **STRETCH)
        choices = pn.Row(self.study, self.across, self.up, self.colour, **STRETCH)
        of_run = (pn.Row(self.trial, self.report, **STRETCH), self.run_words, self.place(self.charts))
        self.panel = pn.Column(self.folder, choices, self.words, self.place(self.map), *of_run, **STRETCH)

    def _make_widgets(self, folder: str | Path) -> None:
        wide = {"sizing_mode": "stretch_width", "margin": (3, 8)}

        def menu(label: str, tip: str, options: Any) -> pn.widgets.Select:
            return pn.widgets.Select(label=label, options=options, stylesheets=[tipped(tip)], **wide)

        tip = "Folder in which studies are looked for."
        self.folder = pn.widgets.TextInput(label="Studies folder", value=str(folder), stylesheets=[tipped(tip)], **wide)
        self.study = menu("Study", "Study that is shown; the last changed is first.", [])
        self.across = menu("Across", "Setting on the horizontal axis of the map.", [])
        self.up = menu("Up", "Setting on the vertical axis of the map.", [])
        self.colour = menu("Coloured by", "Number of the runs that colours the map.", [])
        self.trial = menu("Selected run (or click on a cell)", "Run whose charts are shown below.", {"none": ""})
        self.report = pn.widgets.FileDownload(
            label="Run report",
            filename="report.html",
            callback=lambda: b"",
            disabled=True,
            margin=(20, 8),
            width=190,
            stylesheets=[tipped("Download the report of the selected run, one HTML file.")],
        )
        self.words, self.run_words = text_line(_HOW), text_line(margin=(2, 10))
        self.folder.param.watch(lambda event: self._defer(self._look), "value")
        self.study.param.watch(lambda event: self._defer(self._new_study), "value")
        for widget in (self.across, self.up, self.colour):
            widget.param.watch(lambda event: self._defer(self._look), "value")
        self.trial.param.watch(lambda event: self._defer(self._new_run), "value")

    # called by the dashboard

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """If ``slow``, which is once per second, check whether the study or the selected run has grown."""
        if not slow:
            return
        self._offer_studies()
        self._look()
        self._ticks += 1
        if self._run.under_way and self._ticks % AGAIN_TICKS == 0:
            self._ask_run()

    # the study

    def _offer_studies(self) -> None:
        names = studies_in(Path(self.folder.value or "."))
        if names != list(self.study.options):
            selected = self.study.value if self.study.value in names else (names[0] if names else None)
            self.study.param.update(options=names, value=selected)

    def _new_study(self) -> None:
        self._snapshot, self._stamp = StudySnapshot(), None
        self.map.draw({})
        for widget in (self.across, self.up, self.colour):
            widget.param.update(options=[], value=None)
        self._look()

    def _look(self) -> None:
        """Read the study again if it, or the choice of axes, has changed."""
        if not self.study.value:
            self._show_text(_HOW)
            return
        path = Path(self.folder.value or ".") / self.study.value
        request = StudyRequest(path, self.across.value, self.up.value, self.colour.value)
        stamp = stamp_of(path)
        if (request, stamp) != (self._asked, self._stamp):
            self._asked, self._stamp = request, stamp
            self._reader.ask(request)

    def _read(self, request: StudyRequest) -> None:
        """Read a study in the reader's thread."""
        result = read_study(request)
        self._defer(lambda: self._take_study(request, result))

    def _take_study(self, request: StudyRequest, result: StudySnapshot) -> None:
        if request != self._asked:
            return
        self._snapshot = result
        self._show_text(result.words)
        for widget, options, value in (
            (self.across, result.names, result.x),
            (self.up, result.names, result.y),
            (self.colour, result.numbers, result.colour),
        ):
            if list(widget.options) != options or widget.value != value:
                widget.param.update(options=options, value=value, disabled=len(options) < 2)
        self._asked = StudyRequest(request.path, self.across.value, self.up.value, self.colour.value)
        if dict(self.trial.options) != result.runs:
            selected = self.trial.value if self.trial.value in result.runs.values() else ""
            self.trial.param.update(options=result.runs, value=selected)
        self.map.draw(result.panels)

    def _show_text(self, text: str) -> None:
        self.words.value = html.escape(text, quote=False)

    # the run

    def _clicked(self, chart: str, x: Any, y: Any, customdata: Any) -> None:
        """Select the run of the cell that was clicked."""
        key = customdata[1] if isinstance(customdata, list) and len(customdata) > 1 else ""
        if key and key in self._snapshot.runs.values():
            self.trial.value = key
        elif isinstance(customdata, list):
            self.run_words.value = "That cell has no run yet."

    def _new_run(self) -> None:
        if self.trial.value != self._run_key:
            self._run_key = self.trial.value or ""
            self._run = RunSnapshot()
            self._show_run()
            self._ask_run()

    def _ask_run(self) -> None:
        if self._run_key and self._snapshot.path is not None:
            self._run_reader.ask((self._snapshot.path, self._run_key))

    def _read_run(self, request: tuple[Path, str]) -> None:
        """Read a run in the reader's thread."""
        result = read_run(*request)
        self._defer(lambda: self._take_run(request[1], result))

    def _take_run(self, key: str, result: RunSnapshot) -> None:
        if key == self._run_key:
            self._run = result
            self._show_run()

    def _show_run(self) -> None:
        self.run_words.value = html.escape(self._run.words, quote=False)
        report = self._run.report
        if report is None:
            self.report.disabled = True
        else:
            self.report.param.update(callback=lambda: report, filename=self._run.report_name, disabled=False)
        self.charts.draw(self._run.panels, self._run.wide)
