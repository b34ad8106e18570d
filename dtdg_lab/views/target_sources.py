"""Where batches came from, step by step, and what waiting for them took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import Figure, frame, join_words, percent, share, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.target_log import PartBatch
from dtdg_lab.views.target_map import NO_BATCH

Panel = tuple[Figure, str]
Steps = Sequence[tuple[int, Sequence[PartBatch]]]
# name in a legend, in a sentence, colour
SOURCES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "reservoir": ("from the reservoir", "came from the reservoir", "#0072B2"),
        "snapshot": ("all vertices of its snapshots", "took all vertices of their snapshots", "#56B4E9"),
        "new": ("built in the step", "were built in the step", "#E69F00"),
    }
)
_BARS = 80


def target_sources_panel(steps: Steps, marks: Marks, batch_share: float | None, *, reservoir: bool) -> Panel:
    """Shares of the parts' batches by source, and what they mean.

    Args:
        steps: from ``TargetLog.steps``.
        marks: of the run's changes.
        batch_share: of the ranks' time that went into batches; None where it is not known.
        reservoir: whether there is one.
    """
    return _figure(steps, marks), target_sources_words(steps, batch_share, reservoir=reservoir)


def target_sources_words(steps: Steps, batch_share: float | None, *, reservoir: bool) -> str:
    """What share came from where, what building one takes, and what training waited for it."""
    batches = [batch for _, each in steps for batch in each]
    if not batches:
        return "Batches from the reservoir cost a step nothing; those built in the step are what it waits for."
    counts = {name: sum(batch.source == name for batch in batches) for name in SOURCES}
    shares = {name: percent(count / len(batches)) for name, count in counts.items() if count}
    told = [f"{shares[name]} {words}" for name, (_, words, _) in SOURCES.items() if name in shares]
    text = f"Of the last {len(batches):,} batches {join_words(told)}"
    built = [batch.built_s for batch in batches if batch.built_s > 0]
    if built:
        text += f"; building one takes {format_seconds(sum(built) / len(built))}"
    if batch_share is not None:
        text += f". Lately ranks spent {share(batch_share)} of their time on batches"
        text += "; once the reservoir is warm, look for under 1 %" if reservoir else ""
    return f"{text}."


def _figure(steps: Steps, marks: Marks) -> Figure:
    """Bars of as many steps each, so that there are not more than fit."""
    at = [step for step, _ in steps]
    layout = frame(
        "Where batches came from", "step (model updates)", "share of batches (%)", barmode="stack", bargap=0,
        yaxis={"range": [0, 100]}, **marks.over_steps(at),
    )  # fmt: skip
    if not at:
        return {"data": [], "layout": with_note(layout, NO_BATCH)}
    span = max(1, -(-(at[-1] - at[0] + 1) // _BARS))
    bars: dict[int, list[PartBatch]] = {}
    for step, batches in steps:
        bars.setdefault((step - at[0]) // span, []).extend(batches)
    x = [at[0] + bar * span + (span - 1) / 2 for bar in bars]
    data: list[dict[str, Any]] = []
    for name, (words, _, colour) in SOURCES.items():
        y = [round(100 * sum(b.source == name for b in batches) / len(batches), 2) for batches in bars.values()]
        if any(y):
            data.append({
                "type": "bar", "name": words, "x": x, "y": y, "width": span,
                "marker": {"color": colour, "line": {"width": 0}},
                "hovertemplate": "about step %{x:.0f}: %{y:.0f} %<extra>" + words + "</extra>",
            })  # fmt: skip
    return {"data": data, "layout": layout}
