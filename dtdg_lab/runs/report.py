"""report.html: one file that shows a run without the lab, and how to do the run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.extensions import Extension, register_statements
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.units import format_bytes, format_joules, format_seconds
from dtdg_lab.runs.charts import drawn_charts
from dtdg_lab.runs.event_rows import EXCLUDED_KINDS, MOST_OF_A_KIND, empty_parts, event_rows, parts_line
from dtdg_lab.runs.handle import ReadableRun
from dtdg_lab.runs.html import plotly_js, render
from dtdg_lab.runs.json_files import write_text
from dtdg_lab.runs.provenance import evaluation_summary
from dtdg_lab.runs.summary import SUMMARY_MEANINGS
from dtdg_lab.visualization.chart import CaptionedFigure, ChartOptions, Figure, Section
from dtdg_lab.visualization.run_names import run_title
from dtdg_lab.visualization.sheet import PLOT_HEIGHT, STUDY_HEIGHT

_NAMED = ("system", "dataset", "model")


def changed_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that make these: the three names, and whatever differs from their defaults."""
    names = {name: config[name] for name in _NAMED}
    usual = _defaults(config, names)
    changed = {name: value for name, value in config.flat.items() if usual.get(name) != value and name != "parts"}
    return names | changed | ({"parts": config.parts} if config.parts != config.ranks else {})


def _defaults(config: RunConfig, names: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the default settings for a system, data set and model; of each option by itself if these are refused."""
    try:
        return RunConfig(**names).flat
    except UnsupportedError:  # such as a loss that does not reach the older snapshots of a window
        fields = RunConfig.model_fields
        return {name: OPTIONS[name].default if name in OPTIONS else fields[name].default for name in config.flat}


def python_cell(config: RunConfig, extensions: Sequence[Extension] = ()) -> str:
    """Return a cell that trains with these settings on a local cluster, and registers what they need."""
    register = register_statements(extensions)
    settings = "".join(f"    {name}={value!r},\n" for name, value in changed_settings(config).items())
    return (
        f"import dtdg_lab as lab\n\n{register}config = lab.RunConfig(\n{settings})\n"
        f"with lab.Session(ranks={config.ranks}) as session:\n"
        "    run = session.train(config)\n    run.wait()\n    print(run.summary)\n"
    )


def shell_command(config_file: str = "config.json", extensions: Sequence[Extension] = ()) -> str:
    """Return the command that trains with a config file; code of a notebook needs a file of its own first."""
    arguments = dict.fromkeys(f"--register {extension.argument}" for extension in extensions)
    return " ".join(["python -m dtdg_lab run", *arguments, config_file])


def explained(config: RunConfig) -> list[tuple[str, Any, str, str]]:
    """Return (name, value, unit, meaning) of every setting, in the config's order."""
    return [(name, value, *_meaning(name, value)) for name, value in config.flat.items()]


def _meaning(name: str, value: Any) -> tuple[str, str]:
    if name in OPTIONS:
        return OPTIONS[name].unit, OPTIONS[name].meaning
    if name == "protocol":
        return "", f"What an evaluation number means: {catalogue.PROTOCOLS[value].meaning}."
    return "", {"system": "How training is distributed.", "dataset": "What is learnt.", "model": "What learns."}[name]


_MOST_EVENTS = 400


def write_report(run: ReadableRun, *, status: dict[str, Any] | None = None) -> Path:
    """Write ``report.html`` into a run's folder and return its path.

    The file is self-contained: charts are drawn by plotly.js inside it, and its policy forbids any request. Where
    plotly is not installed the charts are missing and the page says so; their captions are there in any case.

    Args:
        run: that is reported.
        status: ``state`` and ``reason`` to show; by default those of status.json.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the file cannot be written.
    """
    return write_text(run.directory.report_file, report_page(run, status=status))


def report_page(run: ReadableRun, *, status: dict[str, Any] | None = None, more: str = "") -> str:
    """Return the page that :func:`write_report` writes.

    Args:
        run: that is reported.
        status: ``state`` and ``reason`` to show; by default those of status.json.
        more: HTML at the end of the page, before the scripts.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    summary = run.summary
    cards = drawn_charts(run.live, ChartOptions(whole_run=True, ended=True))
    excluded = set(EXCLUDED_KINDS) - {"checkpoint"}
    events = run.tables.events(without=excluded, limit=MOST_OF_A_KIND * run.config.ranks)
    parts = _first_data(events, "parts")
    link_warning = summary.get("link_warning")
    family_errors = (summary.get("family_errors") or {}).items()
    extensions = run.directory.extensions()
    return render(
        "runs/templates/report.html",
        title=run_title(run.config),
        run=run,
        config=run.config,
        status=status or run.directory.status(),
        provenance=evaluation_summary(run).removesuffix("."),
        summary=summary,
        in_seconds=format_seconds,
        in_joules=format_joules,
        parts=parts_line(parts),
        warnings=[
            *empty_parts(parts),
            *([link_warning] if parts and link_warning else []),
            *(
                f"The numbers of family {name!r} are missing, because its summary failed: {error}"
                for name, error in family_errors
            ),
        ],
        library=plotly_js(),
        figures={chart.name: figure for chart, (figure, _) in cards.items()},
        cards=[
            page_card(chart.name, *card, section=chart.section, height=PLOT_HEIGHT) for chart, card in cards.items()
        ],
        numbers=[
            (name, _with_unit(name, summary[name]), meaning)
            for name, meaning in SUMMARY_MEANINGS.items()
            if name in summary
        ],
        events=event_rows(events),
        most_events=_MOST_EVENTS,
        settings=explained(run.config),
        changed=changed_settings(run.config),
        started=_first_data(events, "started"),
        cell=python_cell(run.config, extensions),
        command=shell_command(extensions=extensions),
        more=more,
    )


def _first_data(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the data of the first event of a kind; empty without one."""
    return next((event["data"] or {} for event in events if event["kind"] == kind), {})


def page_card(name: str, figure: Figure, caption: str, *, section: Section, height: int) -> dict[str, Any]:
    """Return the texts of a chart: title, unit and colour keys stand above the plot, the caption below.

    Args:
        name: of the chart on the page.
        figure: a card.
        caption: of the chart.
        section: of the page.
        height: pixels of a plot that has no height of its own.
    """
    layout = figure["layout"]
    texts = {"name": name, "section": section, "caption": caption, "height": layout.get("height", height)}
    return {**texts, **layout["meta"]["card"]}


def page_cards(cards: Mapping[str, CaptionedFigure]) -> list[dict[str, Any]]:
    """Return the texts of charts of equal rank, by their names on the page."""
    return [page_card(name, *card, section="supporting", height=STUDY_HEIGHT) for name, card in cards.items()]


def _with_unit(name: str, value: Any) -> str | None:
    """Return a number of the summary with its unit, by the suffix of its name."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_with_unit(name, item) or 'unknown'}" for key, item in value.items())
    if value is None or isinstance(value, list):
        return None if value is None else " .. ".join(f"{number:.4g}" for number in value)
    if name.endswith("_s"):
        return format_seconds(value)
    if name.startswith("bytes_") or name.endswith("_bytes"):
        return format_bytes(value)
    if name.endswith("_j") or name.startswith("epoch_j"):
        return format_joules(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
