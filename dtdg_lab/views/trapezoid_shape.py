"""The trapezoid itself: snapshots across, chunks up, what is in the batch now, and the shape that is proposed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdg_lab.core.units import format_bytes
from dtdg_lab.views.layout import Figure, frame, share
from dtdg_lab.views.palette import BASELINE_COLOUR, EDGE_COLOUR, GRID_COLOUR, MARK_COLOUR, TEXT_COLOUR, VERTEX_COLOUR
from dtdg_lab.views.partition_maps import SNAPSHOT
from dtdg_lab.views.trapezoid_facts import Shape, TrapezoidFacts

FULL, DECAYED, DROPPED = EDGE_COLOUR, VERTEX_COLOUR, GRID_COLOUR
ALPHA, K = "alpha", "full_snapshots"  # the handles
_WRITTEN = 24  # snapshots up to which each has its number of chunks written
_ASIDE = 0.3  # of a bar: how far from its number a point to be dragged is
_FEW = 5  # chunks up to which the axis has each of them
_HEAD = 1.12  # of the chunks: numbers stand above whole snapshots


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step took, of all ranks.

    Attributes:
        step: updates of the model before it.
        epoch: from 0.
        target: its newest snapshot.
        first: its oldest snapshot.
        full: how many of the newest are full.
        counts: chunks of each part of the decayed ones, oldest first.
        rows: of vertices in all its snapshots; None while a rank has not told.
        edges: of its decayed snapshots; None likewise.
    """

    step: int
    epoch: int
    target: int
    first: int
    full: int
    counts: tuple[int, ...]
    rows: int | None = None
    edges: int | None = None

    def chunks(self, of: int) -> list[int]:
        """Chunks of each part of every snapshot, oldest first; ``of`` where it is full."""
        return [*self.counts, *[of] * self.full]


def shape_figure(
    facts: TrapezoidFacts, batch: Batch | None, proposed: Shape | None = None, *, handles: Collection[str] = ()
) -> Figure:
    """One bar a snapshot, as high as the chunks it has, those that survive longest at the bottom.

    Args:
        facts: of the run.
        batch: the newest; a whole window up to no snapshot in particular where there is none yet.
        proposed: drawn as an outline over the window, with what it is predicted to need.
        handles: of ``full_snapshots`` and ``alpha`` those that get a point to be dragged (``layout.meta``).
    """
    target = facts.window - 1 if batch is None else batch.target
    oldest = target - facts.window + 1
    chunks = facts.counts() if batch is None else batch.chunks(facts.chunks)
    full = min(facts.shape.full_snapshots, facts.window) if batch is None else batch.full
    snapshots = list(range(target - len(chunks) + 1, target + 1))
    ticks = {"tickvals": snapshots[:: max(1, facts.window // 16)], "tickformat": "d", "showgrid": False}
    layout = frame(
        _title(batch), SNAPSHOT if batch is not None else "snapshot of a window", "chunks of each part",
        xaxis={"range": [oldest - 0.6, target + 0.6], **ticks}, barmode="stack", bargap=0.06,
        yaxis={"range": [0, _HEAD * facts.chunks], **({"dtick": 1} if facts.chunks <= _FEW else {})},
    )  # fmt: skip
    data = _bars(facts, snapshots, chunks, full)
    layout["shapes"], layout["annotations"] = [], _numbers(facts, snapshots, chunks)
    if len(snapshots) < facts.window:
        layout["annotations"].append(_missing(facts, oldest, snapshots[0]))
    if proposed is not None:
        data.append(_outline(facts, proposed, oldest))
        layout["annotations"].append(_prediction(facts, proposed, target))
    if handles:
        points = _handles(facts, proposed or facts.shape, oldest)
        layout["meta"] = {"handles": [point for point in points if point["name"] in handles]}
    return {"data": data, "layout": layout}


def shape_words(facts: TrapezoidFacts, batch: Batch | None) -> str:
    """What the newest batch has of a whole window."""
    if batch is None:
        return "No step has told its batch yet: this is what a whole window would take."
    length = len(batch.counts) + batch.full
    text = f"Step {batch.step} took the loss at snapshot {batch.target} from {length} snapshot{'s' * (length > 1)}"
    if length < facts.window:
        text += ": its segment begins there, and decayed ones lack first"
    if batch.rows is not None:
        whole = facts.window * facts.nodes
        text += f". {batch.rows:,} rows of vertices, {share(batch.rows / whole)} of {facts.window} full snapshots"
    if batch.counts and batch.edges:
        text += f"; {batch.edges:,} edges in decayed ones, none of which leaves its part"
    return text + "."


def proposal_words(facts: TrapezoidFacts, proposed: Shape | None) -> str:
    """What a proposed shape would need, against the one in use, in a sentence."""
    now = facts.shape
    text = f"Now {now.words}: {_needs(facts, now)}."
    if proposed is None or proposed == now:
        return text
    return f"{text} Proposed {proposed.words}: {_needs(facts, proposed)}{_more(facts, proposed)}."


def snapped(facts: TrapezoidFacts, shape: Shape, handle: str, value: float) -> Shape:
    """The shape that a handle dragged to a place of the figure means.

    Args:
        facts: of the run.
        shape: what the handles stood at.
        handle: ``full_snapshots``, dragged across, or ``alpha``, dragged up and down.
        value: its place: chunks up, or snapshots before the end of the newest (negative).
    """
    if handle == K:
        return Shape(min(max(round(-value), 1), facts.window), shape.alpha, shape.decay)
    least = 1 / facts.chunks
    return Shape(shape.full_snapshots, round(min(max(value / facts.chunks, least), 1.0), 3), shape.decay)


def _title(batch: Batch | None) -> str:
    if batch is None:
        return "A whole window"
    return f"Batch of step {batch.step}: target snapshot {batch.target}"


def _bars(facts: TrapezoidFacts, snapshots: Sequence[int], chunks: Sequence[int], full: int) -> list[dict[str, Any]]:
    """Full, decayed, and what decayed ones lack."""
    decayed = len(snapshots) - full
    kept = facts.row_counts
    said = [
        f"{count:,} of {facts.chunks:,} chunks a part, about {kept[count]:,.0f} of {facts.nodes:,} rows"
        for count in chunks
    ]
    pieces = (
        ("full", FULL, snapshots[decayed:], chunks[decayed:], said[decayed:]),
        ("decayed", DECAYED, snapshots[:decayed], chunks[:decayed], said[:decayed]),
        ("left out", DROPPED, snapshots[:decayed], [facts.chunks - each for each in chunks[:decayed]], said[:decayed]),
    )
    return [
        {
            "type": "bar", "name": name, "x": list(x), "y": list(y), "marker": {"color": colour, "line": {"width": 0}},
            "customdata": list(words), "hovertemplate": "snapshot %{x}: %{customdata}<extra>" + name + "</extra>",
        }
        for name, colour, x, y, words in pieces if len(x)
    ]  # fmt: skip


def _numbers(facts: TrapezoidFacts, snapshots: Sequence[int], chunks: Sequence[int]) -> list[dict[str, Any]]:
    if facts.window > _WRITTEN:
        return []
    return [
        {
            "text": f"{count:,}", "x": snapshot, "y": count, "xref": "x", "yref": "y", "yanchor": "bottom",
            "showarrow": False, "font": {"size": 11, "color": TEXT_COLOUR},
        }
        for snapshot, count in zip(snapshots, chunks, strict=True)
    ]  # fmt: skip


def _missing(facts: TrapezoidFacts, oldest: int, first: int) -> dict[str, Any]:
    return {
        "text": "before the segment", "x": (oldest + first - 1) / 2, "y": facts.chunks / 2, "xref": "x", "yref": "y",
        "textangle": -90, "showarrow": False, "font": {"size": 11, "color": BASELINE_COLOUR},
    }  # fmt: skip


def _outline(facts: TrapezoidFacts, proposed: Shape, oldest: int) -> dict[str, Any]:
    counts = facts.counts(proposed)
    x = [oldest - 0.5, *(each for place in range(len(counts)) for each in (oldest + place - 0.5, oldest + place + 0.5))]
    y = [0, *(count for count in counts for _ in range(2))]
    return {
        "type": "scatter", "mode": "lines", "name": f"proposed: {proposed.words}", "x": [*x, x[-1]], "y": [*y, 0],
        "line": {"color": MARK_COLOUR, "width": 2.5, "dash": "dash"}, "hoverinfo": "name",
    }  # fmt: skip


def _prediction(facts: TrapezoidFacts, proposed: Shape, target: int) -> dict[str, Any]:
    """Beside the outline's lower, older end, where there is room."""
    oldest = target - facts.window + 1
    return {
        "text": f"<b>proposed</b><br>{_needs(facts, proposed).replace(', ', '<br>')}", "x": oldest - 0.45,
        "y": 1, "xref": "x", "yref": "paper", "xanchor": "left", "yanchor": "top", "align": "left", "showarrow": False,
        "font": {"size": 11, "color": MARK_COLOUR}, "bgcolor": "rgba(255,255,255,0.85)", "borderpad": 3,
    }  # fmt: skip


def _needs(facts: TrapezoidFacts, shape: Shape) -> str:
    peak = facts.peak_bytes(shape)
    text = f"about {facts.rows(shape):,} rows ({share(facts.kept(shape))} of full)"
    return text if peak is None else f"{text}, {format_bytes(peak)} at a step's peak by prediction"


def _more(facts: TrapezoidFacts, proposed: Shape) -> str:
    """Rows, and bytes where they are known, as multiples of what is now."""
    text = f"; {facts.rows(proposed) / facts.rows():.2f} times the rows"
    now, then = facts.peak_bytes(), facts.peak_bytes(proposed)
    return f"{text} and {then / now:.2f} times the bytes" if now and then is not None else text


def _handles(facts: TrapezoidFacts, shape: Shape, oldest: int) -> list[dict[str, Any]]:
    """Where full snapshots begin, dragged across; and alpha, dragged up and down.

    By rule ``text`` the oldest snapshot has the share alpha of its chunks, by ``ladder`` the newest decayed one.
    """
    full = min(shape.full_snapshots, facts.window)
    edge = oldest + facts.window - full
    found = [
        {
            "name": K, "along": "x", "x": edge - 0.5, "y": 0.5 * facts.chunks, "low": oldest - 0.5,
            "high": oldest + facts.window - 1.5, "origin": oldest + facts.window - 0.5,
            "title": "drag: full snapshots (K)", "step": 1, "said": f"{full} full snapshots",
        }
    ]  # fmt: skip
    if full < facts.window:
        at = oldest if shape.decay == "text" else edge - 1
        level = float(np.clip(shape.alpha, 1 / facts.chunks, 1.0)) * facts.chunks
        found.append({
            "name": ALPHA, "along": "y", "x": at + _ASIDE, "y": level, "low": 1, "high": facts.chunks, "origin": 0,
            "title": "drag: alpha", "step": 1, "said": f"alpha {level / facts.chunks:.3g}",
        })  # fmt: skip
    return found
