"""report.html: one file that shows a run without the lab, a server or the internet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dtdg_lab.core.units import format_bytes, format_joules, format_seconds
from dtdg_lab.runs import html as page
from dtdg_lab.runs.directory import RunDirectory, dumps, write_text
from dtdg_lab.runs.report_parts import (
    changed_settings,
    empty_parts,
    event_rows,
    explained,
    parts_line,
    python_cell,
    shell_command,
)
from dtdg_lab.runs.run import StoredRun, ground
from dtdg_lab.runs.summary import SUMMARY_MEANINGS
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.run_view import RunView
from dtdg_lab.visualization.run_window import CHARTS
from dtdg_lab.visualization.style import BASELINE, theme_script, words

_MOST_EVENTS = 400
# in the system's theme, on paper in the light one
DRAW = (
    theme_script()
    + """
const figures = JSON.parse(document.getElementById('figures').textContent);
function draw(dark) {
  for (const [name, figure] of Object.entries(figures)) {
    const shown = dlFigure(figure, dark);
    Plotly.react('plot-' + name, shown.data, shown.layout,
      {responsive: true, displaylogo: false, displayModeBar: false});
  }
}
draw(dlOsDark.matches);
dlOsDark.addEventListener('change', () => draw(dlOsDark.matches));
window.addEventListener('beforeprint', () => {
  draw(false);
  Object.keys(figures).forEach(name => Plotly.Plots.resize('plot-' + name));
});
window.addEventListener('afterprint', () => draw(dlOsDark.matches));
"""
)


def write_report(run_dir: str | Path | RunDirectory, *, status: dict[str, Any] | None = None) -> Path:
    """Write ``report.html`` into a run's folder and return its path.

    The file is self-contained: charts are drawn by plotly.js inside it, and its policy forbids any request. Where
    plotly is not installed the charts are missing and the page says so; their sentences are there in any case.

    Args:
        run_dir: the folder of the run.
        status: ``state`` and ``reason`` to show; what status.json says when not given.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: there is no run, or the file cannot be written.
    """
    run = StoredRun(run_dir if isinstance(run_dir, RunDirectory) else RunDirectory.open(run_dir))
    return write_text(run.directory.report_file, report_page(run, status=status))


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
    run.live.complete(run.summary or {})
    library = plotly_js()
    figures = run.figures()
    sections = [view for view in run.live.shown() if view.title]
    body = "".join(
        (
            _head(run, status or run.directory.status()),
            page.section("What happened", _charts(run, figures, drawn=library is not None)),
            *(_section(view, figures[view.name], drawn=library is not None) for view in sections),
            page.section("Numbers", _numbers_table(run.summary)) if run.summary else "",
            page.section("Events", _events(run)),
            page.section("Settings", _settings(run)),
            page.section("Environment", page.table(("what", "value"), _environment(run), value=1)),
            page.section("Do it again", _repeat(run)),
            more,
        )
    )
    scripts = () if library is None else (library, DRAW)
    return page.document(f"Run {run.id}", body, scripts=scripts)


def plotly_js() -> str | None:
    """The source of plotly.js; None where plotly is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        return None
    return get_plotlyjs()


def _head(run: StoredRun, status: dict[str, Any]) -> str:
    config = run.config
    said = (
        f"{config.system} · {config.model} on {config.dataset} · {config.ranks} rank{'s' if config.ranks > 1 else ''}"
    )
    reason = f": {status['reason']}" if status["reason"] else ""
    state = f"<span class='state {page.text(status['state'])}'>{page.text(status['state'])}</span>{page.text(reason)}"
    cards = "".join(
        f"<div class='number'><b>{page.text(value)}</b><span>{page.text(name)}</span></div>"
        for name, value in _headline(run.summary, run)
    )
    return (
        f"<h1>Run {page.text(run.id)}</h1><p class='soft'>{page.text(said)} · {page.text(config['task'])} · "
        f"{page.text(ground((run,)).removesuffix('.'))}</p>"
        f"<p>{state}</p><div class='numbers'>{cards}</div>{_parts(run)}"
    )


def _parts(run: StoredRun) -> str:
    """Which snapshots the numbers are of, and which of these have no edges."""
    described: dict[str, Any] | None = next((event["data"] for event in run.events if event["kind"] == "parts"), None)
    if not described:
        return ""
    few = run.summary.get("link_warning")
    said = [*empty_parts(described), *([few] if few else [])]
    notes = "".join(f"<p><b>{page.text(caption)}</b></p>" for caption in said)
    return f"<p class='soft'>{page.text(parts_line(described))}</p>{notes}"


def _headline(summary: dict[str, Any], run: StoredRun) -> list[tuple[str, str]]:
    energy = summary.get("energy_j") or {}
    loss, part = summary.get("test_loss"), "test"
    if loss is None:
        loss, part = summary.get("validation_loss"), "validation"
    skill, wait, imbalance = summary.get("skill"), summary.get("wait_share"), summary.get("imbalance")
    return [
        (f"{part} loss", _number(loss)),
        (
            f"skill against persistence ({_number(summary.get('persistence_loss'))}); the mean has "
            f"{_number(summary.get('mean_loss'))}",
            _share(skill),
        ),
        *_metric_cards(summary),
        (f"epochs of {run.config.epochs}", str(summary.get("epochs", "unknown"))),
        ("steps", str(summary.get("steps", "unknown"))),
        ("all steps, slowest rank", format_seconds(summary.get("total_time_s"))),
        ("per epoch, slowest rank: mean over epochs", _over_epochs(summary, "epoch_time{}_s", format_seconds)),
        ("imbalance, most over least loaded rank", _number(imbalance)),
        ("of the ranks' time waiting", _share(wait)),
        ("sent by all ranks", format_bytes(summary.get("bytes_sent"))),
        ("largest memory of a rank (RSS)", format_bytes(summary.get("peak_rss_bytes"))),
        (
            f"energy, every device once{_known_energy(summary)}",
            " + ".join(f"{format_joules(value)} {source}" for source, value in energy.items()) or format_joules(None),
        ),
        ("energy per epoch: mean over epochs", _over_epochs(summary, "epoch_j{}", format_joules)),
    ]


def _over_epochs(summary: dict[str, Any], name: str, words: Callable[[float | None], str]) -> str:
    """Mean and spread over epochs, the median, and clean epochs apart from congested ones where links were slow."""
    mean, spread, middle, clean, slow = (
        summary.get(name.format(part)) for part in ("", "_spread", "_median", "_clean", "_congested")
    )
    text = words(mean) + (f" ± {words(spread)}" if spread is not None else "")
    text += f" (median {words(middle)})" if middle is not None and spread is not None else ""
    described = [
        f"{which} {words(value)}" for which, value in (("clean", clean), ("congested", slow)) if value is not None
    ]
    return "; ".join([text, *described])


def _known_energy(summary: dict[str, Any]) -> str:
    """How the energy of all devices' time is known, in words."""
    shares = [f"{_share(value)} {kind}" for kind, value in (summary.get("energy_coverage") or {}).items() if value]
    return f", {', '.join(shares)} of their time" if shares else ""


def _metric_cards(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Each score of the model with its interval, that of persistence in brackets, and the pairs that it is of."""
    metrics, part = summary.get("metrics") or {}, summary.get("skill_split")
    ends, pairs, ranked = (summary.get(f"link_{name}") for name in ("intervals", "pairs", "ranked"))
    cards = []
    for name, value in metrics.items():
        if name.startswith(BASELINE):
            continue
        title, described = f"{part} {words(name)}", _number(value)
        if BASELINE + name in metrics:
            title += f" (persistence {_number(metrics[BASELINE + name])})"
        if name in (ends or {}):
            described += " [{:.3g} .. {:.3g}]".format(*(ends or {})[name])
        of = ranked if name == "mrr" else pairs
        if of is not None:
            title += f", of {of:,} {'ranked edges' if name == 'mrr' else 'pairs'}"
        cards.append((title, described))
    return cards


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"


def _charts(run: StoredRun, figures: Mapping[str, Figure], *, drawn: bool) -> str:
    captions = run.captions()
    boxes = "".join(
        f"<div class='chart'>{_plot(name, drawn=drawn)}<p>{page.text(captions[name])}</p></div>" for name in CHARTS
    )
    note = (
        ""
        if drawn
        else "<p>Charts need plotly: pip install 'dtdg-lab[lab]', then dtdg_lab.runs.open(path).report().</p>"
    )
    data = dumps(figures).replace("<", "\\u003c")
    return f"{note}<div class='charts'>{boxes}</div><script type='application/json' id='figures'>{data}</script>"


def _section(view: RunView, figure: Figure, *, drawn: bool) -> str:
    """The section of one chart, drawn over the whole width; a figure of many panels is as high as these are."""
    height = figure["layout"].get("height")
    chart = _plot(view.name, drawn=drawn, style="" if height is None else f" style='height: {int(height)}px'")
    return page.section(view.title, f"<p>{page.text(view.caption())}</p>{chart}")


def _plot(name: str, *, drawn: bool, style: str = "") -> str:
    described = f"role='img' aria-label='{page.text(name)}: the sentence beside it says what it shows'"
    box = f"<div class='plot'{style} id='plot-{page.text(name)}' {described}></div>"
    return box if drawn else f"<b>{page.text(name)}</b>"


def _numbers_table(summary: dict[str, Any]) -> str:
    rows = [
        (name, _shown(name, summary[name]), meaning) for name, meaning in SUMMARY_MEANINGS.items() if name in summary
    ]
    return page.table(("number", "value", "meaning"), rows, value=1)


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


def _events(run: StoredRun) -> str:
    rows = event_rows(run.events)
    left_out = len(rows) - _MOST_EVENTS
    note = f"<p class='soft'>The first {_MOST_EVENTS} of {len(rows)}; all are in records/.</p>" if left_out > 0 else ""
    return note + page.table(("time", "step", "rank", "event", "what"), rows[:_MOST_EVENTS]) if rows else "<p>None.</p>"


def _settings(run: StoredRun) -> str:
    settings = explained(run.config)
    changed = frozenset(number for number, row in enumerate(settings) if row[0] in changed_settings(run.config))
    note = "<p class='soft'>Marked rows are the ones that were chosen; the others have their defaults.</p>"
    return note + page.table(("setting", "value", "unit", "meaning"), settings, value=1, changed=changed)


def _environment(run: StoredRun) -> list[tuple[str, Any]]:
    facts = run.environment
    cpu, git, data = facts.get("cpu") or {}, facts.get("git"), facts.get("data") or {}
    gpus = ", ".join(f"{gpu['name']} ({format_bytes(gpu['memory_bytes'])})" for gpu in facts.get("gpus") or ())
    started = next((event["data"] or {} for event in run.events if event["kind"] == "started"), {})
    versions = [f"{name} {version}" for name, version in (facts.get("versions") or {}).items() if version]
    return [
        ("data", f"{data.get('dataset')} · {data.get('source') or started.get('source') or 'source not told'}"),
        ("data SHA-256", data.get("sha256")),
        ("processor", f"{cpu.get('model')} · {cpu.get('cores')} cores, {cpu.get('usable')} usable threads"),
        ("memory", format_bytes(facts.get("memory_bytes"))),
        ("GPUs", gpus or f"none: {facts.get('gpus_note')}"),
        ("system", facts.get("system")),
        ("Python", facts.get("python")),
        ("packages", ", ".join(versions)),
        ("commit", f"{git['commit']}{' with uncommitted changes' if git['dirty'] else ''}" if git else None),
    ]


def _repeat(run: StoredRun) -> str:
    note = ""
    if run.config.dataset.startswith("graph:"):
        note = "<p>The data set is a graph of your own: store it on that machine first with graph.store().</p>"
    return (
        f"{note}<p>In a notebook cell:</p><pre>{page.text(python_cell(run.config))}</pre>"
        f"<p>In a terminal, with the config.json beside this report:</p><pre>{page.text(shell_command())}</pre>"
        f"<p>config.json:</p><pre>{page.text(run.config.to_json())}</pre>"
    )
