"""All charts that a run may have, and the same charts as files."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import NotAvailableError, RunStoreError, UnknownNameError
from dtdg_lab.core.files import draft_path
from dtdg_lab.core.system_errors import store_error
from dtdg_lab.core.units import as_path
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.chart import (
    APPEARS,
    FIRST_EPOCH,
    FIRST_STEP,
    NOT_RECORDED,
    NOTHING_MEASURED,
    NOTHING_YET,
    SECTIONS,
    CaptionedFigure,
    Chart,
    ChartOptions,
    Figure,
    XAxis,
)
from dtdg_lab.visualization.runs.curves import CURVE_ROLLUPS
from dtdg_lab.visualization.runs.overview import common_charts
from dtdg_lab.visualization.runs.timeline import is_over
from dtdg_lab.visualization.sheet import PICTURE_HEIGHT, as_figure, standalone

SETTLED = {FIRST_STEP: 50, FIRST_EPOCH: 2}  # after so many, an active run lacks data that come with the first one
ALWAYS_DRAWN = ("picture", "common")  # without data they say when data will appear


def all_charts() -> tuple[Chart, ...]:
    """Return the charts of all runs and of every registered family, since a run may change its system."""
    return *common_charts(), *(chart for family in catalogue.families() for chart in family.charts())


def all_rollups() -> tuple[Rollup, ...]:
    """Return the rollups that any chart or comparison needs; tables are created with them."""
    of_charts = (rollup for chart in all_charts() for rollup in chart.rollups)
    return tuple(dict.fromkeys([*of_charts, *CURVE_ROLLUPS]))


def charts_of(tables: RunTables) -> tuple[Chart, ...]:
    """Return the charts that a run can currently have, in the order of the page; its picture comes first."""
    visible = (chart for chart in all_charts() if chart.applies(tables))
    return tuple(sorted(visible, key=lambda chart: SECTIONS.index(chart.section)))


def chart_of(tables: RunTables, name: str) -> Chart:
    """Return the chart of a run by its name.

    Raises:
        UnknownNameError: the run has no such chart.
    """
    charts = {chart.name: chart for chart in charts_of(tables)}
    if name not in charts:
        raise UnknownNameError("chart of this run", name, charts)
    return charts[name]


def draw(chart: Chart, tables: RunTables, options: ChartOptions) -> CaptionedFigure:
    """Return a chart as a card with its caption.

    A chart that will never get data says so, instead of when data will appear.
    """
    figure, caption = chart.figure(tables, options), chart.caption(tables, options)
    ended = (options.ended or is_over(tables)) and chart.question is None  # which may still be asked
    notes = figure["layout"].get("annotations", [])
    at_last = [
        note | {"text": _words_at_last(note["text"], tables, ended=ended)} if _is_waiting(note) else note
        for note in notes
    ]
    if at_last != notes:
        figure = {**figure, "layout": {**figure["layout"], "annotations": at_last}}
    elif not ended:
        return figure, caption
    return figure, NOTHING_MEASURED if caption == NOTHING_YET else caption


def _is_waiting(note: Mapping[str, Any]) -> bool:
    return str(note.get("text", "")).startswith(APPEARS)


def _words_at_last(note_text: str, tables: RunTables, *, ended: bool) -> str:
    """Return the reason why a plot has no data if it will never get any; otherwise the unchanged note."""
    epoch = tables.complete_epoch
    reached = {FIRST_STEP: tables.common_step + 1, FIRST_EPOCH: 0 if epoch is None else epoch + 1}
    if note_text in reached and reached[note_text] >= (1 if ended else SETTLED[note_text]):
        return NOT_RECORDED
    if not ended:
        return note_text
    _, is_first, what = note_text.partition(" with the first ")
    what = "complete epoch" if note_text == FIRST_EPOCH else what
    return f"This run has no {what}" if is_first else "This run has none of it"


def drawn_charts(tables: RunTables, options: ChartOptions) -> dict[Chart, CaptionedFigure]:
    """Return the charts of a run as cards with captions, in the order of the page.

    Supporting and folded charts without data are left out.
    """
    cards: dict[Chart, CaptionedFigure] = {}
    for chart in charts_of(tables):
        figure, caption = draw(chart, tables, options)
        if chart.section == "picture":
            figure = {**figure, "layout": {"height": PICTURE_HEIGHT, **figure["layout"]}}
        if figure["data"] or chart.section in ALWAYS_DRAWN:
            cards[chart] = figure, caption
    return cards


def lock_of(run: Any) -> AbstractContextManager[Any]:
    """Return the lock for reading a run's tables: an active run's lock; none for a stored run."""
    return run.lock if hasattr(run, "lock") else nullcontext()


@contextmanager
def held(*locks: AbstractContextManager[Any]) -> Iterator[None]:
    """Hold the locks of several runs, always in the same order, so that threads do not block each other."""
    with ExitStack() as stack:
        for lock in sorted(dict.fromkeys(locks), key=id):  # a resumed run shares the lock of its earlier attempt
            stack.enter_context(lock)
        yield


def figures_of(tables: RunTables, x: XAxis = "steps", *, ended: bool = False) -> dict[str, Figure]:
    """Return the charts of a run by name, as plotly figure dicts; the picture of its system comes first."""
    cards = drawn_charts(tables, ChartOptions(x=x, whole_run=True, ended=ended))
    return {chart.name: as_figure(*card) for chart, card in cards.items()}


def captions_of(tables: RunTables, *, ended: bool = False) -> dict[str, str]:
    """Return the caption of each chart of a run."""
    return {chart.name: caption for chart, (_, caption) in drawn_charts(tables, ChartOptions(ended=ended)).items()}


WIDTH, HEIGHT = 1000, 500  # pixels of a chart without its own height
SCALE = 2  # resolution of PNG files


def save_figures(figures: Mapping[str, Figure], folder: str | Path, *, overwrite: bool = False) -> list[Path]:
    """Write each chart to a folder, as PNG and SVG if kaleido is installed, otherwise as HTML with plotly.js.

    Either all files appear, or none.

    Args:
        figures: charts by name; ``phase_energy`` is written to ``phase-energy.png``.
        folder: an empty or new folder.
        overwrite: replace files of the same names in a folder that is not empty.

    Returns:
        The paths of the files.

    Raises:
        DataError: the folder is not a path.
        NotAvailableError: plotly is not installed, or kaleido is installed but cannot draw.
        RunStoreError: the folder is not empty, or cannot be written.
    """
    target = as_path(folder, "folder")
    try:
        if target.exists() and (not target.is_dir() or (any(target.iterdir()) and not overwrite)):
            raise RunStoreError(
                f"cannot save figures to {target}, because it is {'not empty' if target.is_dir() else 'a file'}. Give "
                "another folder, or overwrite=True to replace figures of the same names."
            )
        target.mkdir(parents=True, exist_ok=True)
        hidden = draft_path(target / "figures")
        hidden.mkdir()
        try:
            names = _draw(figures, hidden)
            for name in names:
                if (target / name).is_dir():
                    raise RunStoreError(
                        f"cannot save {name} to {target}, because a folder has this name. Move it away."
                    )
            for name in names:
                os.replace(hidden / name, target / name)
        finally:
            shutil.rmtree(hidden)
    except OSError as error:
        if isinstance(error, RunStoreError):
            raise
        raise store_error("write", target, error) from error
    return [target / name for name in names]


def _draw(figures: Mapping[str, Figure], folder: Path) -> list[str]:
    """Write the files; return their names."""
    try:
        import plotly.graph_objects as go
        import plotly.io
    except ImportError as error:
        raise NotAvailableError("figures need plotly: pip install 'dtdg-lab[lab]'.") from error
    charts = {name.replace("_", "-"): go.Figure(standalone(figure)) for name, figure in figures.items()}
    if importlib.util.find_spec("kaleido") is None:
        for name, figure in charts.items():
            plotly.io.write_html(figure, folder / f"{name}.html", include_plotlyjs=True, full_html=True)
        return [f"{name}.html" for name in charts]
    images = [
        {
            "fig": figure.to_dict(),
            "path": folder / f"{name}.{kind}",
            "opts": {"format": kind, "width": WIDTH, "height": figure.layout.height or HEIGHT, "scale": SCALE},
        }
        for name, figure in charts.items()
        for kind in ("png", "svg")
    ]
    _write_images(images)
    return [image["path"].name for image in images]


def _write_images(images: list[dict[str, Any]]) -> None:
    # plotly.io.write_images would skip failing charts, and load MathJax from the internet
    if int(importlib.metadata.version("kaleido").partition(".")[0]) < 1:
        raise NotAvailableError(
            "this kaleido is too old to write PNG and SVG. Run: pip install --upgrade 'kaleido>=1'."
        )
    import kaleido
    from kaleido.errors import ChromeNotFoundError, KaleidoError

    try:
        kaleido.write_fig_from_object_sync(images, cancel_on_error=True, kopts={"mathjax": False})
    except ChromeNotFoundError as error:
        raise NotAvailableError(
            "kaleido is installed, but finds no Chrome or Chromium, which it needs to write PNG and SVG. Install one "
            "(`apt-get install chromium`, or `plotly_get_chrome`), or set BROWSER_PATH to its program. Without kaleido "
            "the figures are written as HTML: `pip uninstall kaleido`."
        ) from error
    except (RuntimeError, KaleidoError) as error:  # an error of the browser (RuntimeError) or of a chart
        raise NotAvailableError(
            f"kaleido cannot write PNG and SVG with the browser that it found: {' '.join(str(error).split())}. "
            "Set BROWSER_PATH to another Chrome or Chromium."
        ) from error
