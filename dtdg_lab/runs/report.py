"""report.html: one file that shows a run without the lab, a server or the internet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtdg_lab.core.units import format_bytes, format_joules, format_seconds
from dtdg_lab.runs.directory import RunDirectory, write_text
from dtdg_lab.runs.html import plotly_js, render
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
from dtdg_lab.visualization.run_window import CHARTS
from dtdg_lab.visualization.style import BASELINE, words

_MOST_EVENTS = 400


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
    captions, events = run.captions(), run.events
    parts: dict[str, Any] = next((event["data"] or {} for event in events if event["kind"] == "parts"), {})
    few = run.summary.get("link_warning")
    return render(
        "runs/templates/report.html",
        title=f"Run {run.id}",
        run=run,
        config=run.config,
        status=status or run.directory.status(),
        provenance=ground((run,)).removesuffix("."),
        headline=_headline(run.summary, run),
        parts=parts_line(parts),
        warnings=[*empty_parts(parts), *([few] if parts and few else [])],
        library=plotly_js(),
        figures=run.figures(),
        captions={name: captions[name] for name in CHARTS},
        sections=[view for view in run.live.shown() if view.title],
        numbers=_numbers(run.summary),
        events=event_rows(events),
        most_events=_MOST_EVENTS,
        settings=explained(run.config),
        changed=changed_settings(run.config),
        environment=_environment(run),
        cell=python_cell(run.config),
        command=shell_command(),
        more=more,
    )


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


def _numbers(summary: dict[str, Any]) -> list[tuple[str, str | None, str]]:
    known = ((name, meaning) for name, meaning in SUMMARY_MEANINGS.items() if name in summary)
    return [(name, _shown(name, summary[name]), meaning) for name, meaning in known]


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
