"""A proposed window: its outline and its cost, and the circles that are dragged to propose it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtdg_lab.core.units import join_words
from dtdg_lab.systems.decayed_windows.events import TrapezoidFacts
from dtdg_lab.systems.decayed_windows.step_windows import StepWindow
from dtdg_lab.visualization.numbers import bytes_text, percent_text
from dtdg_lab.visualization.palette import MARK_COLOUR
from dtdg_lab.visualization.traces import Attributes, line

PROPOSED = {
    "full_snapshots": "{:g} full snapshots",
    "alpha": "alpha {:.3g}",
    "decay": "decay shape {}",
    "window": "a window of {:g}",
}


def is_proposal(facts: TrapezoidFacts, preview: Mapping[str, Any]) -> bool:
    """Return True if the previewed settings change the window."""
    proposed = facts.changed(preview)
    return (proposed.window, proposed.shape) != (facts.window, facts.shape)


def setting_text(changes: Mapping[str, Any]) -> str:
    """Return the proposed settings as text, such as ``alpha 0.6``."""
    return join_words([text.format(changes[name]) for name, text in PROPOSED.items() if name in changes])


def outline(proposed: TrapezoidFacts, end: int) -> Attributes:
    """Return the outline of a proposed whole window that ends at a snapshot."""
    edges = np.repeat(np.arange(proposed.window + 1) + end - proposed.window + 0.5, 2).tolist()
    heights = [0, *(100 * np.repeat(proposed.shares(), 2)).round(2).tolist(), 0]
    return line("proposed", edges, heights, MARK_COLOUR, hoverinfo="skip", width=2.5, dash="dash")


def needs_text(facts: TrapezoidFacts, preview: Mapping[str, Any], *, are_nodes_known: bool) -> str:
    """Return the rows and the memory of a proposed window, as lines of HTML."""
    proposed, setting = facts.changed(preview), setting_text(preview)
    lines = [f"<b>{setting[:1].upper()}{setting[1:]}</b>"]
    rows = f"{proposed.rows():,} rows" if are_nodes_known else f"{percent_text(proposed.kept_share())} of all rows"
    lines.append(f"{rows} ({_difference(proposed.kept_share() * proposed.window, facts.kept_share() * facts.window)})")
    present_bytes, after = facts.peak_bytes(), proposed.peak_bytes()
    if present_bytes is not None and after is not None:
        lines.append(f"{bytes_text(after)} peak ({_difference(after, present_bytes)})")
    return "<br>".join([*lines, "Release to apply, Esc to cancel"])


def _difference(after: float, present: float) -> str:
    share = after / present - 1
    return f"+{percent_text(share)}" if share >= 0 else percent_text(share)


def handles(facts: TrapezoidFacts, end: int, *, bars: StepWindow | None = None) -> list[Attributes]:
    """Return the circles that are dragged: K between decayed and full snapshots, alpha on its bar.

    A handle has the name of its setting, whose value is ``scale * (position - origin)``.

    Args:
        facts: the shape of a whole window.
        end: last snapshot of that window.
        bars: the window whose bars are drawn, if any: the circle of alpha stands on one of them.
    """
    window, full = facts.window, facts.full
    border, edge = end - full + 0.5, end + 0.5
    circles: list[Attributes] = [
        {
            "name": "full_snapshots",
            "label": "K",
            "along": "x",
            "x": border,
            "y": 50,
            "low": edge - window,
            "high": edge - 1,
            "origin": edge,
            "scale": -1,
            "step": 1,
            "title": "Drag left or right: full snapshots",
            "said": f"{full} full snapshots",
        }
    ]
    if full < window:
        percent = 100 * float(np.clip(facts.shape.alpha, 1 / facts.chunks, 1.0))
        oldest = end - window + 1 if bars is None or bars.target != end else max(end - window + 1, bars.first)
        alpha: Attributes = {
            "name": "alpha",
            "label": "α",
            "along": "y",
            "x": min(oldest, end - full) if facts.shape.decay == "text" else end - full,
            "y": percent,
            "low": 100 / facts.chunks,
            "high": 100,
            "origin": 0,
            "scale": 0.01,
            "step": 1,
            "title": "Drag up or down: alpha",
            "said": f"alpha {percent / 100:.3g}",
        }
        circles.append(alpha)
    return circles
