"""Memory in use over one step, with the boundaries of its blocks of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_bytes
from dtdg_lab.views.layout import Figure, frame, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, TEXT_COLOUR, WARNING_COLOUR
from dtdg_lab.views.partition_matrix import byte_unit
from dtdg_lab.views.ways import WAY_COLOURS, WAYS

NO_TRACE = "no step has been probed"
_LABELS = 24  # blocks of a step up to which each beginning is labelled
_OTHER = "outside blocks"
_ROOM = 1.6  # of the highest value: labels stand above it


@dataclass(frozen=True, slots=True, eq=False)
class MemoryFacts:
    """The course of memory in use over one probed step on rank 0.

    Attributes:
        seconds: (S,) since the step began.
        bytes: (S,) in use.
        blocks: (second, number, way) where a block of time begins, in order.
    """

    seconds: NDArray[np.float64]
    bytes: NDArray[np.float64]
    blocks: tuple[tuple[float, int, str], ...]

    @property
    def count(self) -> int:
        """Blocks that the step had."""
        return len({number for _, number, _ in self.blocks})

    def span_of(self, place: int) -> int:
        """Which of ``blocks`` a sample is in; -1 before the first."""
        return int(np.searchsorted([second for second, _, _ in self.blocks], self.seconds[place], side="right")) - 1


def memory_facts(data: Mapping[str, Any]) -> MemoryFacts:
    """The facts in the data of an event ``memory_trace``.

    Raises:
        DataError: something is missing or does not fit.
    """
    try:
        seconds, live = np.asarray(data["seconds"], np.float64), np.asarray(data["bytes"], np.float64)
        blocks = tuple((float(second), int(number), str(way)) for second, number, way in data["blocks"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"memory over time cannot be drawn from what is told of it ({error!r}): was it recorded by another version?"
        ) from error
    if seconds.shape != live.shape or seconds.ndim != 1:
        raise DataError(f"{len(seconds)} times of {len(live)} samples of memory: was it recorded by another version?")
    return MemoryFacts(seconds, live, blocks)


def memory_figure(facts: MemoryFacts | None, *, budget_bytes: float | None = None, note: str = "") -> Figure:
    """Memory in use over the step; a colour for each way, a line where a block begins.

    Args:
        facts: of the probed step; None before there is one.
        budget_bytes: drawn as a line, where the blocks were chosen to fit it.
        note: what the title ends with.
    """
    title = "Memory over a step" + (f" · {note}" if note else "")
    if facts is None or not len(facts.seconds):
        return {"data": [], "layout": with_note(frame(title, "time", "in use"), NO_TRACE)}
    top = max(float(facts.bytes.max()), budget_bytes or 0.0)
    unit, factor = byte_unit(top)
    milliseconds = 1e3 * facts.seconds
    layout = frame(
        title, "time within the probed step (ms)", f"tensors in use ({unit})",
        xaxis={"range": [0, float(milliseconds[-1]) or 1.0]}, yaxis={"range": [0, _ROOM * top / factor or 1.0]},
    )  # fmt: skip
    data = _lines(facts, milliseconds, facts.bytes / factor, unit)
    if budget_bytes is not None:
        ends, level = [0.0, float(milliseconds[-1])], budget_bytes / factor
        data.append({
            "type": "scatter", "mode": "lines", "name": f"allowed: {format_bytes(budget_bytes)}", "x": ends,
            "y": [level, level], "line": {"color": WARNING_COLOUR, "width": 1.5, "dash": "dash"}, "hoverinfo": "name",
        })  # fmt: skip
    layout["shapes"] = [_line(1e3 * second, way) for second, _, way in facts.blocks]
    named = facts.blocks if len(facts.blocks) <= _LABELS else ()
    labels = [_label(1e3 * second, number, way) for second, number, way in named]
    layout["annotations"] = [*labels, _peak(facts, milliseconds, factor)]
    return {"data": data, "layout": layout}


def memory_words(facts: MemoryFacts | None, *, blocks: int, earlier: bool = False) -> str:
    """Where the peak is, and what the boundaries keep.

    Args:
        facts: of the probed step; None before there is one.
        blocks: blocks the run has now.
        earlier: whether the run has changed since the step was probed.
    """
    if facts is None or not len(facts.seconds):
        return "Before its first step a run probes one and tells its memory here."
    place = int(facts.bytes.argmax())
    span = facts.span_of(place)
    _, number, way = facts.blocks[span] if span >= 0 else (0.0, -1, "")
    where = f" during {way} of block {number}" if span >= 0 else ""
    text = f"The peak, {format_bytes(float(facts.bytes[place]))}, is{where}; probing slows the step. "
    if facts.count < 2:
        text += "With one block all activations of the step are held at once: more blocks hold those of one each."
    else:
        text += (
            f"{format_bytes(kept_bytes(facts))} are held where the last block begins: states of all blocks before. "
            "Hills between lines are a block's activations; more blocks make hills lower and what is held higher."
        )
    if facts.count not in (0, blocks):
        text += f" Probed with {facts.count} block{'s' * (facts.count > 1)}; the run has {blocks} now."
    elif earlier:
        text += " Probed before the run's last change."
    return text


def kept_bytes(facts: MemoryFacts) -> float:
    """Bytes in use when the last block begins its forward pass: states at the boundaries of those before."""
    begun = [second for second, _, way in facts.blocks if way == "forward"]
    if not begun:
        return 0.0
    place = int(np.searchsorted(facts.seconds, begun[-1], side="right")) - 1
    return float(facts.bytes[max(place, 0)])


def _lines(
    facts: MemoryFacts, milliseconds: NDArray[np.float64], live: NDArray[np.float64], unit: str
) -> list[dict[str, Any]]:
    """One filled line for each way, at 0 while it is another's turn: a fill would bridge gaps."""
    begun = np.asarray([second for second, _, _ in facts.blocks])
    spans = np.searchsorted(begun, facts.seconds, side="right") - 1
    ways = [facts.blocks[span][2] if span >= 0 else _OTHER for span in spans]
    data = []
    for way in (_OTHER, *WAYS):
        places = [place for place, each in enumerate(ways) if each == way]
        if not places:
            continue
        x: list[float] = []
        y: list[float] = []
        for place in places:
            x.append(round(float(milliseconds[place]), 4))
            y.append(round(float(live[place]), 4))
            if place + 1 < len(ways) and ways[place + 1] != way:
                x.append(round(float(milliseconds[place + 1]), 4))
                y.append(0.0)
        colour = WAY_COLOURS.get(way, BASELINE_COLOUR)
        data.append({
            "type": "scatter", "mode": "lines", "name": way, "x": x, "y": y, "fill": "tozeroy",
            "line": {"color": colour, "width": 1.2, "shape": "hv"},
            "hovertemplate": "%{x:.2f} ms: %{y:.3~g} " + unit + "<extra>" + way + "</extra>",
        })  # fmt: skip
    return data


def _line(milliseconds: float, way: str) -> dict[str, Any]:
    line = {"color": WAY_COLOURS.get(way, BASELINE_COLOUR), "width": 1, "dash": "dot"}
    at = milliseconds
    return {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}


def _label(milliseconds: float, number: int, way: str) -> dict[str, Any]:
    return {
        "text": f"{way} {number}", "x": milliseconds, "xref": "x", "y": 1, "yref": "paper", "xanchor": "left",
        "yanchor": "top", "textangle": -90, "showarrow": False,
        "font": {"size": 9, "color": WAY_COLOURS.get(way, BASELINE_COLOUR)}, "bgcolor": "rgba(255,255,255,0.6)",
    }  # fmt: skip


def _peak(facts: MemoryFacts, milliseconds: NDArray[np.float64], factor: float) -> dict[str, Any]:
    place = int(facts.bytes.argmax())
    late = milliseconds[place] > 0.5 * milliseconds[-1]
    return {
        "text": f"peak {format_bytes(float(facts.bytes[place]))}", "x": float(milliseconds[place]),
        "y": float(facts.bytes[place]) / factor, "xref": "x", "yref": "y", "xanchor": "right" if late else "left",
        "yanchor": "bottom", "showarrow": False, "font": {"size": 10, "color": TEXT_COLOUR},
        "bgcolor": "rgba(255,255,255,0.8)",
    }  # fmt: skip
