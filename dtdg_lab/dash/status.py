"""The status line: what the run is doing, how far it is, and how the cluster is."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views import RunWindow

ACTIVE = ("starting", "running", "paused", "stopping")
COLOURS = {"running": "#009E73", "finished": "#0072B2", "failed": "#B3261E", "paused": "#E69F00"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A knob change that was asked for here, and the version under which the ranks apply it."""

    words: str
    version: int

    def outcome(self, window: RunWindow) -> str:
        """Asked for, or applied where."""
        mark = window.marks.applied(self.version)
        if mark is None:
            return f"{self.words}: asked for, waits for its control point"
        if not mark.together:
            return f"{self.words}: NOT applied at one step ({mark.text})"
        ranks = "1 rank" if len(mark.steps) == 1 else f"{len(mark.steps)} ranks"
        return f"{self.words}: applied at step {mark.step} on {ranks}"


def status_html(run: Any, engines: Mapping[int, bool], asked: Asked | None, *, ready: bool) -> str:
    """The status line as HTML; ``run`` is None before the first one. The caller holds the run's lock."""
    state = "idle" if run is None else run.status
    if run is None and not ready:
        state = "the cluster starts"
    parts = [f'<b style="color:{COLOURS.get(state, "#24292f")}">{html.escape(state)}</b>']
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
    if asked is not None and run is not None:
        lines.append(html.escape(asked.outcome(run.window)))
    return f'<div class="dl-status" data-state="{html.escape(state)}">{"<br>".join(lines)}</div>'
