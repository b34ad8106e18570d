"""The status line: what the run is doing, how far it is, and how the cluster is."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.dash.changes import Changes
from dtdg_lab.views.theme import coloured

COLOURS = {
    "running": coloured("good"), "finished": coloured("info"), "failed": coloured("bad"), "paused": coloured("care"),
}  # fmt: skip


def status_html(run: Any, engines: Mapping[int, bool], changes: Changes, *, ready: bool) -> str:
    """The status line as HTML; ``run`` is None before the first one. The caller holds the run's lock."""
    state = "idle" if run is None else run.status
    if run is None and not ready:
        state = "the cluster starts"
    parts = [f'<b style="color:{COLOURS.get(state, coloured("text"))}">{html.escape(state)}</b>']
    dropped = 0
    if run is not None:
        progress = run.window.progress
        dropped = run.window.dropped
        parts.append(f"step {progress.step}")
        parts.append(f"epoch {progress.epoch}/{progress.epochs}")
        if state == "running":
            left = progress.seconds_left
            parts.append("time left not known yet" if left is None else f"{format_seconds(left)} left")
        else:
            parts.append(f"after {format_seconds(progress.seconds)}")
    alive = sum(engines.values())
    cluster = f"engines {alive}/{len(engines)} alive · {dropped} lines dropped"
    lines = [" · ".join(parts[:3]), *parts[3:], cluster]
    dead = [f"rank {rank}" for rank, lives in sorted(engines.items()) if not lives]
    if dead:
        lines.append(f'<b style="color:{COLOURS["failed"]}">dead: {", ".join(dead)}</b>')
    if run is not None:
        lines += [html.escape(line) for line in changes.lines(run.window)]
    return f'<div class="dl-status" data-state="{html.escape(state)}">{"<br>".join(lines)}</div>'
