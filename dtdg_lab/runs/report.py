"""report.html: one file that shows a run without the lab, a server or the internet."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.extensions import Extension, register_statements
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.units import format_bytes, format_joules, format_seconds
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.records.events import RegisteredCode
from dtdg_lab.runs.charts import drawn_charts
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.html import plotly_js, render
from dtdg_lab.runs.json_files import write_text
from dtdg_lab.runs.run import StoredRun, ground
from dtdg_lab.runs.summary import SUMMARY_MEANINGS
from dtdg_lab.visualization.chart import Chart, ChartOptions
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.sheet import PLOT_HEIGHT

# The parts of a run's sequence in words, from its event ``parts``.


Part = Mapping[str, Any]
Runs = Sequence[Sequence[int]]


def parts_line(parts: Mapping[str, Part]) -> str:
    """Which snapshots are which part: ``train: snapshots 0 to 11, test: snapshots 15 to 38``."""
    return ", ".join(f"{name}: {_where(part)}" for name, part in parts.items())


def empty_parts(parts: Mapping[str, Part]) -> list[str]:
    """One sentence for each part that holds snapshots without edges."""
    captions = []
    for name, part in parts.items():
        runs: Runs = part["without_edges"]
        count, total = sum(last - first + 1 for first, last in runs), part["last"] - part["first"] + 1
        if count:
            named = {"train": "training"}.get(name, name)
            captions.append(
                f"{count} of {total} {named} snapshots have no edges ({', '.join(map(_ends, runs))}): "
                "read the scores of this part with that in mind."
            )
    return captions


def _where(part: Part) -> str:
    runs: Runs = part["without_edges"]
    empty = f" (no edges in {', '.join(map(_ends, runs))})" if runs else ""
    return f"snapshots {_ends((part['first'], part['last']))}{empty}"


def _ends(run: Sequence[int]) -> str:
    first, last = run
    return str(first) if first == last else f"{first} to {last}"


# A run's events as rows people read: changes once with the step they were applied at, checkpoints counted.


MOST_OF_A_KIND = 200  # of each rank, at most
# Shown elsewhere on the page, or so many that they would hide the rest.
_PASSED_OVER = ("epoch", "checkpoint", "requested", "control_received", "ended")

Row = tuple[str, str, str, str, str]
EventText = Callable[[dict[str, Any]], str]


def event_rows(events: Sequence[dict[str, Any]]) -> list[Row]:
    """Rows (time since the start, step, ranks, event, what) in order of time.

    Every rank logs a change of live settings: it becomes one row with the step at which it was applied, or with every
    rank's step where they differ. Ends of epochs are left out; checkpoints become one row that counts them, and so do
    events of a kind that were ``left_out``; see :meth:`RunTables.events`.
    """
    if not events:
        return []
    start_ns = min(event["time_ns"] for event in events)
    rows: list[tuple[int, Row]] = []
    for group in _groups(events):
        first = group[0]
        seconds = format_seconds((first["time_ns"] - start_ns) / 1e9)
        ranks = sorted({int(event["rank"]) for event in group})
        what = _words(first["kind"], first["data"])
        if first.get("left_out"):
            what = f"{first['left_out'] + 1} more events; this is the last: {what}"
        row = (seconds, _steps(group), ", ".join(map(str, ranks)), first["kind"], what)
        rows.append((first["time_ns"], row))
    saved = [event for event in events if event["kind"] == "checkpoint"]
    if saved:
        last = saved[-1]
        seconds = format_seconds((last["time_ns"] - start_ns) / 1e9)
        what = f"{len(saved) + last.get('left_out', 0)} written; this is the last"
        rows.append((last["time_ns"], (seconds, _step(last), str(last["rank"]), "checkpoint", what)))
    return [row for _, row in sorted(rows, key=lambda item: item[0])]


def _groups(events: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Events that are one: a change of a version in an attempt; a kind logged by several ranks for one step."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for event in events:
        if event["kind"] in _PASSED_OVER:
            continue
        if event.get("left_out"):
            key: tuple[Any, ...] = ("left out", event["kind"])
        elif event["kind"] == "settings":
            data = event["data"] or {}
            key = ("settings", event["attempt"], data.get("version"), data.get("when"))
        else:
            key = (event["kind"], event["attempt"], _step(event), repr(event["data"]))
        groups.setdefault(key, []).append(event)
    return list(groups.values())


def _step(event: dict[str, Any]) -> str:
    step = event["step"]
    return "" if step is None or math.isnan(step) else str(int(step))


def _steps(group: list[dict[str, Any]]) -> str:
    steps = {int(event["rank"]): _step(event) for event in group}
    if len(set(steps.values())) == 1:
        return next(iter(steps.values()))
    where = ", ".join(f"rank {rank} at {step}" for rank, step in sorted(steps.items()))
    return where if (group[0]["data"] or {}).get("own_steps") else f"NOT AT ONE STEP: {where}"


def _words(kind: str, data: Any) -> str:
    if not isinstance(data, dict):
        return "" if data is None else str(data)
    if kind == "settings":
        changes = ", ".join(f"{name} = {value}" for name, value in (data.get("changes") or {}).items())
        return f"{changes} (version {data.get('version')}, before the next {data.get('when', 'step')})"
    texts = _texts(tuple(catalogue.FAMILIES))
    if kind in texts:
        return texts[kind](data)
    return ", ".join(f"{name}: {value}" for name, value in data.items())


@cache
def _texts(families: tuple[str, ...]) -> Mapping[str, EventText]:
    """Kind of event -> a sentence: of plans and traces what matters, since all of it is drawn."""
    found: dict[str, EventText] = {
        "parts": parts_line,
        "partition": PartitionFacts.text,
        RegisteredCode.kind: RegisteredCode.text,
        "gathered": lambda data: (
            f"waited {format_seconds(data['wait_s'])} for the other ranks, and served their rounds of averaging"
        ),
    }
    for name in families:
        found |= catalogue.family(name).event_texts()
    return found


# How to do a run again: as a Python cell, as a command, and what the settings mean.


_NAMED = ("system", "dataset", "model")


def changed_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that make these: the three names, and whatever differs from their defaults."""
    names = {name: config[name] for name in _NAMED}
    usual = RunConfig(**names).flat
    chosen = {name: value for name, value in config.flat.items() if usual.get(name) != value and name != "parts"}
    return names | chosen | ({"parts": config.parts} if config.parts != config.ranks else {})


def python_cell(config: RunConfig, extensions: Sequence[Extension] = ()) -> str:
    """A cell that trains with these settings on a local cluster, and registers what they need."""
    register = register_statements(extensions)
    settings = "".join(f"    {name}={value!r},\n" for name, value in changed_settings(config).items())
    return (
        f"import dtdg_lab as lab\n\n{register}config = lab.RunConfig(\n{settings})\n"
        f"with lab.Session(ranks={config.ranks}) as session:\n"
        "    run = session.train(config)\n    run.wait()\n    print(run.summary)\n"
    )


def shell_command(config_file: str = "config.json", extensions: Sequence[Extension] = ()) -> str:
    """The command that trains with a config file; code of a notebook needs a file of its own first."""
    arguments = dict.fromkeys(f"--register {extension.argument}" for extension in extensions)
    return " ".join(["python -m dtdg_lab run", *arguments, config_file])


def explained(config: RunConfig) -> list[tuple[str, Any, str, str]]:
    """(name, value, unit, meaning) of every setting, in the config's order."""
    return [(name, value, *_meaning(name, value)) for name, value in config.flat.items()]


def _meaning(name: str, value: Any) -> tuple[str, str]:
    if name in OPTIONS:
        return OPTIONS[name].unit, OPTIONS[name].meaning
    if name == "protocol":
        return "", f"What an evaluation number means: {catalogue.PROTOCOLS[value].meaning}."
    return "", {"system": "How training is distributed.", "dataset": "What is learnt.", "model": "What learns."}[name]


# report.html: one file that shows a run without the lab, a server or the internet.


_MOST_EVENTS = 400


def write_report(of: str | Path | RunDirectory | StoredRun, *, status: dict[str, Any] | None = None) -> Path:
    """Write ``report.html`` into a run's folder and return its path.

    The file is self-contained: charts are drawn by plotly.js inside it, and its policy forbids any request. Where
    plotly is not installed the charts are missing and the page says so; their sentences are there in any case.

    Args:
        of: the run, or its folder.
        status: ``state`` and ``reason`` to show; what status.json says when not given.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: there is no run, or the file cannot be written.
    """
    if not isinstance(of, StoredRun):
        of = StoredRun(of if isinstance(of, RunDirectory) else RunDirectory.open(of))
    return write_text(of.directory.report_file, report_page(of, status=status))


def report_page(run: StoredRun, *, status: dict[str, Any] | None = None, more: str = "") -> str:
    """The page that :func:`write_report` writes.

    Args:
        run: what it is of.
        status: ``state`` and ``reason`` to show; what status.json says when not given.
        more: HTML that stands at its end, before the scripts.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    summary = run.summary
    cards = drawn_charts(run.live, ChartOptions(whole_run=True, ended=True))
    unlisted = set(_PASSED_OVER) - {"checkpoint"}
    events = run.tables.events(without=unlisted, most=MOST_OF_A_KIND * run.config.ranks)
    parts: dict[str, Any] = next((event["data"] or {} for event in events if event["kind"] == "parts"), {})
    few = summary.get("link_warning")
    return render(
        "runs/templates/report.html",
        title=f"Run {run.id}",
        run=run,
        config=run.config,
        status=status or run.directory.status(),
        provenance=ground((run,)).removesuffix("."),
        summary=summary,
        in_seconds=format_seconds,
        in_joules=format_joules,
        parts=parts_line(parts),
        warnings=[
            *empty_parts(parts),
            *([few] if parts and few else []),
            *(
                f"The numbers of family {name!r} are missing, because its summary failed: {error}"
                for name, error in (summary.get("family_errors") or {}).items()
            ),
        ],
        library=plotly_js(),
        figures={chart.name: figure for chart, (figure, _) in cards.items()},
        cards=[_card(chart, *card) for chart, card in cards.items()],
        numbers=[
            (name, _shown(name, summary[name]), words) for name, words in SUMMARY_MEANINGS.items() if name in summary
        ],
        events=event_rows(events),
        most_events=_MOST_EVENTS,
        settings=explained(run.config),
        changed=changed_settings(run.config),
        started=next((event["data"] or {} for event in events if event["kind"] == "started"), {}),
        cell=python_cell(run.config, run.directory.extensions()),
        command=shell_command(extensions=run.directory.extensions()),
        more=more,
    )


def _card(chart: Chart, figure: Figure, caption: str) -> dict[str, Any]:
    """Return the words of a chart: title, unit and colour keys stand above the plot, the caption below."""
    layout = figure["layout"]
    height = layout.get("height", PLOT_HEIGHT)
    return {"name": chart.name, "place": chart.place, "caption": caption, "height": height, **layout["meta"]["card"]}


def _shown(name: str, value: Any) -> str | None:
    """A number of the summary with its unit, by the suffix of its name."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(name, item) or 'unknown'}" for key, item in value.items())
    if value is None or isinstance(value, list):
        return None if value is None else " .. ".join(f"{each:.4g}" for each in value)
    if name.endswith("_s"):
        return format_seconds(value)
    if name.startswith("bytes_") or name.endswith("_bytes"):
        return format_bytes(value)
    if name.endswith("_j") or name.startswith("epoch_j"):
        return format_joules(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
