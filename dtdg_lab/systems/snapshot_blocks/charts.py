"""Charts of time blocks: ownership, exchanges, memory, deltas, transfers and volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.visualization.grid import grid
from dtdg_lab.visualization.layout import Figure, frame, join_words, percent, with_note
from dtdg_lab.visualization.palette import BASELINE_COLOUR, GRID_COLOUR, TEXT_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.visualization.partition import SNAPSHOT, LinkLog, Sent, byte_unit, link_panels, sent_words
from dtdg_lab.visualization.run_view import PlanView
from dtdg_lab.visualization.series import StepSums, Sums
from dtdg_lab.visualization.style import ALWAYS, WAY_COLOURS, WAYS, Marks, Matrix

# What the pictures of blocks of time are made of: the facts of an event ``blocks``.


Span = tuple[int, int]  # first, and one past the last
AllToAllPhase = tuple[int, str, str, int]  # layer, way, leg, numbers a row


@dataclass(frozen=True, slots=True, eq=False)
class BlockFacts:
    """T snapshots in nb blocks of time on R ranks; groups of G ranks split each snapshot by rows.

    Attributes:
        layout: ``snapshot``, or ``halo_vertex``, whose ranks have all snapshots of their own nodes.
        ranks: R.
        row_ranks: G.
        nodes: N.
        blocks: nb.
        asked: blocks asked for; 0 took the fewest that fit the memory.
        bounds: (nb + 1,) block b has snapshots bounds[b] to bounds[b + 1] - 1.
        own: [block][rank] snapshots whose spatial part the rank computes; of the layout ``snapshot`` alone.
        rows: [rank] nodes whose rows of these snapshots it computes; of that layout alone.
        chunks: [rank] nodes that it runs through all snapshots of a block; of that layout alone.
        predicted: way -> (L, R, R) bytes from one rank to another in a step; without ``rerun`` where there is none.
        legs: what is sent in a step.
        note: why there are so many blocks.
    """

    layout: str
    ranks: int
    row_ranks: int
    nodes: int
    blocks: int
    asked: int
    bounds: NDArray[np.int64]
    own: tuple[tuple[Span, ...], ...]
    rows: tuple[Span, ...]
    chunks: tuple[Span, ...]
    predicted: Mapping[str, Matrix]
    legs: tuple[AllToAllPhase, ...]
    note: str

    @property
    def snapshots(self) -> int:
        """T."""
        return int(self.bounds[-1] - self.bounds[0])

    @property
    def label(self) -> str:
        """Its name in titles, such as ``4 blocks of 12 to 13 snapshots on 2 ranks``."""
        sizes = np.diff(self.bounds)
        low, high = int(sizes.min()), int(sizes.max())
        size = f"{low}" if low == high else f"{low} to {high}"
        text = (
            f"{self.blocks:,} block{_s(self.blocks)} of {size} snapshot{_s(high)} on {self.ranks} rank{_s(self.ranks)}"
        )
        return text if self.row_ranks == 1 else f"{text}, {self.row_ranks} to a snapshot"

    @property
    def redistributes(self) -> bool:
        """Whether ranks compute whole snapshots first and then nodes through time."""
        return self.layout == "snapshot"

    @property
    def sends(self) -> bool:
        """Whether ranks send each other rows, or anything else but gradients of the model."""
        return any(each.any() for each in self.predicted.values())

    def same(self, other: BlockFacts) -> bool:
        """Whether it is the same plan."""
        mine, theirs = (
            (f.layout, f.ranks, f.row_ranks, f.nodes, f.asked, f.bounds.tolist(), f.own, f.legs, f.predicted.keys())
            for f in (self, other)
        )
        return mine == theirs and all(
            np.array_equal(each, other.predicted[way]) for way, each in self.predicted.items()
        )


def block_facts(data: Mapping[str, Any]) -> BlockFacts:
    """The facts in the data of an event ``blocks``.

    Raises:
        DataError: something is missing or does not fit.
    """
    try:
        predicted = {way: np.asarray((data.get("predicted") or {}).get(way, ()), np.float64) for way in WAYS}
        facts = BlockFacts(
            layout=str(data["layout"]),
            ranks=int(data["ranks"]),
            row_ranks=int(data.get("row_ranks") or 1),
            nodes=int(data["nodes"]),
            blocks=int(data["blocks"]),
            asked=int(data["asked"]),
            bounds=np.asarray(data["bounds"], np.int64),
            own=tuple(_spans(block) for block in data.get("own") or ()),
            rows=_spans(data.get("rows") or ()),
            chunks=_spans(data.get("chunks") or ()),
            predicted={way: each for way, each in predicted.items() if each.size and (way in ALWAYS or each.any())},
            legs=tuple(
                (int(layer), str(way), str(leg), int(width)) for layer, way, leg, width in data.get("legs") or ()
            ),
            note=str(data.get("note") or ""),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the event of time blocks cannot be drawn ({error!r}): were they recorded by another version?"
        ) from error
    _check(facts)
    return facts


def _check(facts: BlockFacts) -> None:
    counts = {"own": len(facts.own) if facts.redistributes else facts.blocks, "bounds": len(facts.bounds) - 1}
    fit = set(counts.values()) == {facts.blocks} and (np.diff(facts.bounds) > 0).all() and facts.blocks > 0
    by_rank = [facts.rows, facts.chunks, *facts.own] if facts.redistributes else []
    shapes = [each.shape[1:] == (facts.ranks, facts.ranks) for each in facts.predicted.values()]
    if not (fit and all(len(each) == facts.ranks for each in by_rank) and all(shapes)):
        raise DataError(
            f"an event has {facts.blocks} blocks on {facts.ranks} ranks with bounds {facts.bounds.tolist()[:8]}, "
            f"which do not fit each other: was it recorded by another version?"
        )


def blocks_left(data: Mapping[str, Any]) -> bool:
    """Whether an event ``blocks`` says that the run went on in a layout without blocks of time."""
    return "layout" in data and data["layout"] is None


def blocks_words(facts: BlockFacts) -> str:
    """Blocks and what is sent between them in a sentence or two, as a row of a table of events."""
    how = "as set" if facts.asked else "the fewest that fit the memory"
    text = f"{facts.label} ({facts.note.rstrip('.') or how})."
    if not facts.sends:
        return f"{text} Ranks send each other gradients of the model, and no rows."
    counts = {way: sum(leg[1] == way for leg in facts.legs) for way in WAYS}
    described = [f"{count} {way}" for way, count in counts.items() if count]
    return f"{text} Legs of a step, over its layers: {join_words(described)}." if described else text


def _spans(pairs: Sequence[Sequence[Any]]) -> tuple[Span, ...]:
    return tuple((int(start), int(stop)) for start, stop in pairs)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


# Memory in use over one step, with the boundaries of its blocks of time.


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
            f"the event of memory over time cannot be drawn ({error!r}): was it recorded by another version?"
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
        title,
        "time within the probed step (ms)",
        f"tensors in use ({unit})",
        xaxis={"range": [0, float(milliseconds[-1]) or 1.0]},
        yaxis={"range": [0, _ROOM * top / factor or 1.0]},
    )
    data = _lines(facts, milliseconds, facts.bytes / factor, unit)
    if budget_bytes is not None:
        ends, level = [0.0, float(milliseconds[-1])], budget_bytes / factor
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"allowed: {format_bytes(budget_bytes)}",
                "x": ends,
                "y": [level, level],
                "line": {"color": WARNING_COLOUR, "width": 1.5, "dash": "dash"},
                "hoverinfo": "name",
            }
        )
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
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": way,
                "x": x,
                "y": y,
                "fill": "tozeroy",
                "line": {"color": colour, "width": 1.2, "shape": "hv"},
                "hovertemplate": "%{x:.2f} ms: %{y:.3~g} " + unit + "<extra>" + way + "</extra>",
            }
        )
    return data


def _line(milliseconds: float, way: str) -> dict[str, Any]:
    line = {"color": WAY_COLOURS.get(way, BASELINE_COLOUR), "width": 1, "dash": "dot"}
    at = milliseconds
    return {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}


def _label(milliseconds: float, number: int, way: str) -> dict[str, Any]:
    return {
        "text": f"{way} {number}",
        "x": milliseconds,
        "xref": "x",
        "y": 1,
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "top",
        "textangle": -90,
        "showarrow": False,
        "font": {"size": 9, "color": WAY_COLOURS.get(way, BASELINE_COLOUR)},
        "bgcolor": "rgba(255,255,255,0.6)",
    }


def _peak(facts: MemoryFacts, milliseconds: NDArray[np.float64], factor: float) -> dict[str, Any]:
    place = int(facts.bytes.argmax())
    late = milliseconds[place] > 0.5 * milliseconds[-1]
    return {
        "text": f"peak {format_bytes(float(facts.bytes[place]))}",
        "x": float(milliseconds[place]),
        "y": float(facts.bytes[place]) / factor,
        "xref": "x",
        "yref": "y",
        "xanchor": "right" if late else "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 10, "color": TEXT_COLOUR},
        "bgcolor": "rgba(255,255,255,0.8)",
    }


# Peak memory and time of a step against the number of blocks.


_PEAK, _TIME = series_colour(0), series_colour(1)


def block_peaks_figure(rows: Sequence[Mapping[str, Any]], *, title: str = "Peak memory against blocks") -> Figure:
    """Bars of the measured peak, a line of the seconds of a step, and crosses where a peak was predicted.

    Args:
        rows: ``blocks``, ``peak_bytes``, ``step_s`` and ``predicted_bytes`` (None where unknown) each.
        title: of the figure.
    """
    tops = [max(row["peak_bytes"], row.get("predicted_bytes") or 0) for row in rows]
    unit, factor = byte_unit(float(max(tops, default=0)))
    names = [str(row["blocks"]) for row in rows]
    layout = frame(
        title,
        "blocks of time (nb)",
        f"peak of a step ({unit})",
        bargap=0.45,
        xaxis={"type": "category", "showgrid": False},
        yaxis={"rangemode": "tozero"},
    )
    layout["yaxis2"] = {
        **layout["yaxis"],
        "title": {**layout["yaxis"]["title"], "text": "time of a step (ms)"},
        "side": "right",
        "overlaying": "y",
        "showgrid": False,
    }
    layout["margin"] = {**layout["margin"], "r": 56}
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": "peak, measured",
            "x": names,
            "marker": {"color": _PEAK},
            "y": [round(row["peak_bytes"] / factor, 4) for row in rows],
            "customdata": [format_bytes(row["peak_bytes"]) for row in rows],
            "hovertemplate": "%{x} blocks: %{customdata}<extra>peak</extra>",
        },
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "time",
            "x": names,
            "yaxis": "y2",
            "y": [round(1e3 * row["step_s"], 4) for row in rows],
            "line": {"color": _TIME, "width": 2},
            "hovertemplate": "%{x} blocks: %{y:.3~g} ms<extra>time</extra>",
        },
    ]
    known = [row for row in rows if row.get("predicted_bytes") is not None]
    if known:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "peak, predicted",
                "x": [str(row["blocks"]) for row in known],
                "y": [round(row["predicted_bytes"] / factor, 4) for row in known],
                "marker": {"symbol": "x", "size": 11, "color": "white", "line": {"color": TEXT_COLOUR, "width": 1.5}},
                "hovertemplate": "%{x} blocks: %{y:.3~g} " + unit + "<extra>predicted</extra>",
            }
        )
    return {"data": data, "layout": layout}


def block_peaks_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which number of blocks needs least memory, and what it costs, in a sentence or two."""
    if not rows:
        return "Nothing was measured."
    first, least = rows[0], min(rows, key=lambda row: row["peak_bytes"])
    if least is first:
        return f"{_blocks(first)} need least memory here, {format_bytes(first['peak_bytes'])}."
    text = (
        f"{_blocks(least)} hold {format_bytes(least['peak_bytes'])}, {_blocks(first).lower()} "
        f"{format_bytes(first['peak_bytes'])}: {percent(least['peak_bytes'] / first['peak_bytes'])} of it, in "
        f"{least['step_s'] / first['step_s']:.2f} times the time. "
    )
    if least is not rows[-1]:
        return text + "With still more blocks the states between them outweigh what a block's activations save."
    return text + "Bars fall as blocks shorten, until the states between blocks outweigh them."


def _blocks(row: Mapping[str, Any]) -> str:
    return f"{row['blocks']:,} block{'' if row['blocks'] == 1 else 's'}"


# How much of the time that rows are in flight is hidden behind computing, from the record table ``exchanges``.


Panel = tuple[Figure, str]
RECENT = 50  # steps that bars and sentences are means of
NOTHING_SENT = "no exchange yet"
_HIDDEN = "#9FC3DC"


def exchange_log() -> StepSums:
    """Where rows of the table ``exchanges`` are summed."""
    return StepSums(("layer", "way", "leg"), ("exchanges", "in_flight_s", "exposed_s"))


def hidden_share(in_flight_s: float, exposed_s: float) -> float | None:
    """The share of the time in flight in which the ranks computed; None where nothing was in flight."""
    return max(0.0, 1 - exposed_s / in_flight_s) if in_flight_s > 0 else None


def exchange_panels(steps: Sequence[tuple[int, Sums]], ranks: int, *, marks: Marks, since: int = 0) -> dict[str, Panel]:
    """``hidden``: the hidden share over steps; ``flight``: the time exposed and hidden by way and leg.

    Args:
        steps: from :meth:`StepSums.steps`.
        ranks: R, whose mean is drawn.
        marks: of the run's changes.
        since: steps before it had other blocks: they are in the first picture only.
    """
    now = [each for each in steps if each[0] >= since]
    return {
        "hidden": (_share_figure(steps, marks), share_words(now)),
        "flight": (_bars_figure(now, ranks), _bars_words(now, ranks)),
    }


def share_words(steps: Sequence[tuple[int, Sums]]) -> str:
    """How much is hidden over the recent steps, in a sentence or two."""
    recent = steps[-RECENT:]
    flying, exposed = _total(recent)
    hidden = hidden_share(flying, exposed)
    if hidden is None:
        return "No exchange recorded yet. The hidden share is the time in flight that overlaps with computing."
    over = f"the last {len(recent)} steps" if len(recent) > 1 else f"step {recent[0][0]}"
    text = f"In {over} {percent(hidden)} of the time in flight was hidden behind computing: high is good, 0 is as if "
    return text + "every rank stood still for all of it. What has ended when a rank looks counts as hidden."


def _share_figure(steps: Sequence[tuple[int, Sums]], marks: Marks) -> Figure:
    layout = frame(
        "Share of the exchanges that is hidden",
        "step (model updates)",
        "hidden (% of time in flight)",
        yaxis={"range": [-2, 102]},
        **marks.over_steps([step for step, _ in steps]),
    )
    legs = list(dict.fromkeys(leg for _, sums in steps for _, _, leg in sums))
    data = [_share_line(steps, leg, {"color": series_colour(at), "width": 1.2}) for at, leg in enumerate(legs)]
    if len(legs) > 1:
        data.append(_share_line(steps, None, {"color": TEXT_COLOUR, "width": 2}))
    return {"data": data, "layout": layout if data else with_note(layout, NOTHING_SENT)}


def _share_line(steps: Sequence[tuple[int, Sums]], leg: str | None, line: dict[str, Any]) -> dict[str, Any]:
    shares = [hidden_share(*_total([each], leg)) for each in steps]
    name = "all" if leg is None else _direction(leg)
    return {
        "type": "scatter",
        "mode": "lines" if len(steps) > 1 else "markers",
        "name": name,
        "line": line,
        "marker": {"color": line["color"]},
        "x": [step for step, _ in steps],
        "y": [None if each is None else round(100 * each, 2) for each in shares],
        "hovertemplate": "step %{x}: %{y:.0f} %<extra>" + name + "</extra>",
    }


def _total(steps: Sequence[tuple[int, Sums]], leg: str | None = None) -> tuple[float, float]:
    """Seconds in flight and exposed, of all legs or of one."""
    found = [values for _, sums in steps for key, values in sums.items() if leg is None or key[2] == leg]
    return sum(values[1] for values in found), sum(values[2] for values in found)


def _means(steps: Sequence[tuple[int, Sums]], ranks: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Way and leg -> milliseconds of a step and rank in flight and exposed, of all layers together."""
    recent = steps[-RECENT:]
    keys = sorted({key for _, sums in recent for key in sums}, key=lambda key: (WAYS.index(key[1]), key[2], key[0]))
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for key in keys:
        values = [sums[key] for _, sums in recent if key in sums]
        scale = 1e3 / max(ranks, 1) / len(recent)
        flying, exposed = found.get(key[1:], (0.0, 0.0))
        found[key[1:]] = (
            flying + scale * sum(value[1] for value in values),
            exposed + scale * sum(value[2] for value in values),
        )
    return found


def _bars_figure(steps: Sequence[tuple[int, Sums]], ranks: int) -> Figure:
    means = _means(steps, ranks)
    layout = frame(
        "Time in flight: exposed and hidden",
        f"mean of a rank's last {RECENT} steps (ms)",
        "",
        barmode="stack",
        bargap=0.35,
        xaxis={"rangemode": "tozero"},
        yaxis={
            "autorange": "reversed",
            "type": "category",
            "showgrid": False,
            "ticksuffix": " ",
            "tickfont": {"size": 10},
        },
    )
    bars = (
        ("exposed", WARNING_COLOUR, [exposed for _, exposed in means.values()]),
        ("hidden", _HIDDEN, [max(0.0, flying - exposed) for flying, exposed in means.values()]),
    )
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": [_name(*key) for key in means],
            "x": [round(each, 4) for each in widths],
            "marker": {"color": colour},
            "hovertemplate": "%{y}: %{x:.3f} ms<extra>" + name + "</extra>",
        }
        for name, colour, widths in bars
    ]
    return {"data": data if means else [], "layout": layout if means else with_note(layout, NOTHING_SENT)}


def _bars_words(steps: Sequence[tuple[int, Sums]], ranks: int) -> str:
    means = _means(steps, ranks)
    flying, exposed = (sum(each[place] for each in means.values()) for place in (0, 1))
    if not flying:
        return "Exposed is what a rank stood still for; the rest of the time in flight it computed."
    still = format_seconds(exposed / 1e3)
    text = f"Exchanges are in flight {format_seconds(flying / 1e3)} of a rank's step; the rank is idle for {still}"
    if not exposed:
        return f"{text}: all is hidden."
    worst = max(means, key=lambda key: means[key][1])
    return f"{text}, most in {_name(*worst)}: where exposed is long, more computing between start and wait would help."


def _name(way: str, leg: str) -> str:
    return f"{way} {_direction(leg)}"


def _direction(leg: str) -> str:
    return "to nodes" if leg == "to_vertices" else leg.replace("_", " ")


# Who owns which (node, snapshot): while whole snapshots are computed, and while nodes run through time.


Owners = NDArray[np.int64]
BEFORE, AFTER = "Before: spatial part, by snapshot", "After: temporal part, by node"
ALONE = "Who computes which snapshot"
MOST_COLUMNS = 512  # of spans of snapshots; a browser draws no more in good time
_WRITTEN = 16  # spans up to which the owner's number is written into each
_NAMED = 12  # blocks up to which each has its number


def ownership_panels(facts: BlockFacts) -> dict[str, Panel]:
    """Two maps, snapshots across and nodes down, in the colours of the ranks; one where no row changes hands.

    ``before`` and ``after``, or ``alone``. None where ranks have all snapshots of their own nodes: the pictures of
    the partition show who owns these.
    """
    if not facts.redistributes:
        return {}
    shown = _shown(facts)
    columns, rows = _edges(facts, shown)
    before, after = owners(facts, shown)
    cut = "" if shown == facts.blocks else f" Shown are the first {shown:,} of {facts.blocks:,} blocks."
    stays = _stays(facts)
    if stays:
        return {"alone": (_map(facts, ALONE, before, columns, rows), f"{_before_words(facts)} {stays}{cut}")}
    return {
        "before": (_map(facts, BEFORE, before, columns, rows), _before_words(facts) + cut),
        "after": (_map(facts, AFTER, after, columns, rows), _after_words(facts)),
    }


def owners(facts: BlockFacts, blocks: int | None = None) -> tuple[Owners, Owners]:
    """Owning ranks before and after the redistribution, (spans of nodes, spans of snapshots) of the first blocks."""
    shown = facts.blocks if blocks is None else blocks
    columns, rows = _edges(facts, shown)
    before = np.full((len(rows) - 1, len(columns) - 1), -1)
    after = before.copy()
    for block in range(shown):
        whole = _places(columns, (int(facts.bounds[block]), int(facts.bounds[block + 1])))
        for rank in range(facts.ranks):
            before[_places(rows, facts.rows[rank]), _places(columns, facts.own[block][rank])] = rank
            after[_places(rows, facts.chunks[rank]), whole] = rank
    return before, after


def moved_share(facts: BlockFacts) -> float:
    """Share of all (node, snapshot) whose owner is another after the redistribution."""
    columns, rows = _edges(facts, facts.blocks)
    before, after = owners(facts)
    area = np.outer(np.diff(rows), np.diff(columns))
    return float(area[before != after].sum() / area.sum())


def _stays(facts: BlockFacts) -> str:
    """Why no row goes to another rank after the spatial part; empty where some do."""
    if 1 < facts.ranks == facts.row_ranks:
        return "It then runs the same nodes through time: all ranks share every snapshot, and no row changes hands."
    if any(leg in ("to_vertices", "to_snapshots") for _, _, leg, _ in facts.legs):
        return ""
    return "No row of a node goes to another rank then: the model runs no node through time, or reuses what went."


def _shown(facts: BlockFacts) -> int:
    """Blocks that are drawn: all, or as many of the first as make a picture that a browser can draw."""
    return max(1, min(facts.blocks, MOST_COLUMNS * facts.row_ranks // facts.ranks))


def _edges(facts: BlockFacts, blocks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where owners may change: snapshots, and nodes."""
    spans = [span for block in facts.own[:blocks] for span in block]
    first, end = int(facts.bounds[0]), int(facts.bounds[blocks])
    columns = _distinct([*spans, *((int(at), int(at)) for at in facts.bounds[: blocks + 1])])
    rows = _distinct([*facts.rows, *facts.chunks, (0, facts.nodes)])
    return columns[(columns >= first) & (columns <= end)], rows


def _distinct(spans: Sequence[Span]) -> NDArray[np.int64]:
    return np.unique(np.asarray(spans, np.int64))


def _places(edges: NDArray[np.int64], span: Span) -> slice:
    """The spans between edges that lie in one from edge to edge."""
    start, stop = np.searchsorted(edges, span)
    return slice(int(start), int(stop))


def _map(facts: BlockFacts, title: str, owning: Owners, columns: NDArray[np.int64], rows: NDArray[np.int64]) -> Figure:
    ranks = facts.ranks
    owning, columns, rows = _joined(owning, columns, rows, facts.bounds)
    down, right = ([(int(a), int(b)) for a, b in pairwise(each)] for each in (rows, columns))
    said = [
        [f"rank {rank}: {_span('node', *down[y])}, {_span('snapshot', *right[x])}" for x, rank in enumerate(across)]
        for y, across in enumerate(owning.tolist())
    ]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": owning.tolist(),
        "x": (columns - 0.5).tolist(),
        "y": (rows - 0.5).tolist(),
        "zmin": -0.5,
        "zmax": ranks - 0.5,
        "colorscale": _scale(ranks),
        "name": title,
        "customdata": said,
        "colorbar": {
            "title": {"text": "rank", "side": "right", "font": {"size": 10}},
            "thickness": 9,
            "outlinewidth": 0.5,
            "tickfont": {"size": 10},
            "tickvals": list(range(0, ranks, -(-ranks // 8))),
        },
        "hovertemplate": "%{customdata}<extra></extra>",
        "xgap": 0.5,
        "ygap": 0.5,
    }
    if owning.size and max(owning.shape) <= _WRITTEN:
        trace |= {"texttemplate": "%{z}", "textfont": {"size": 11}}
    layout = frame(
        title,
        SNAPSHOT,
        "node (number)",
        xaxis={"showgrid": False, "range": [columns[0] - 0.5, columns[-1] - 0.5]},
        yaxis={"showgrid": False, "range": [rows[-1] - 0.5, rows[0] - 0.5]},
    )
    bounds = [int(at) for at in facts.bounds if at <= columns[-1]]
    layout["shapes"] = [_line_ownership(at) for at in bounds[1:-1]]
    if 1 < len(bounds) - 1 <= _NAMED:
        layout["annotations"] = [_name_ownership(number, at) for number, at in enumerate(bounds[:-1])]
    return {"data": [trace], "layout": layout}


def _joined(
    owning: Owners, columns: NDArray[np.int64], rows: NDArray[np.int64], bounds: NDArray[np.int64]
) -> tuple[Owners, NDArray[np.int64], NDArray[np.int64]]:
    """One span where neighbours have one owner, for all nodes or in all snapshots; blocks stay apart."""
    across = np.append(True, (owning[:, 1:] != owning[:, :-1]).any(axis=0) | np.isin(columns[1:-1], bounds))
    down = np.append(True, (owning[1:] != owning[:-1]).any(axis=1))
    return owning[down][:, across], columns[np.append(across, True)], rows[np.append(down, True)]


def _scale(ranks: int) -> list[list[Any]]:
    """One colour for each rank, without shades between them."""
    return [[edge / ranks, series_colour(rank)] for rank in range(ranks) for edge in (rank, rank + 1)]


def _line_ownership(snapshot: int) -> dict[str, Any]:
    at = snapshot - 0.5
    line = {"color": TEXT_COLOUR, "width": 1.5, "dash": "dash"}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}


def _name_ownership(number: int, snapshot: int) -> dict[str, Any]:
    return {
        "text": f"block {number}",
        "x": snapshot - 0.5,
        "xref": "x",
        "y": 0,
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 9, "color": TEXT_COLOUR},
        "bgcolor": GRID_COLOUR,
        "opacity": 0.85,
    }


def _before_words(facts: BlockFacts) -> str:
    idle = sum(start == stop for block in facts.own for start, stop in block)
    start, stop = facts.own[0][0]
    mine = "no snapshot" if start == stop else f"{_span('snapshot', start, stop)}"
    text = f"In block 0 rank 0 computes {mine}"
    text += f" for {_span('node', *facts.rows[0])}." if facts.row_ranks > 1 else " for all nodes."
    if idle:
        return f"{text} {idle} times a rank has none: blocks of fewer snapshots than ranks leave ranks without work."
    return f"{text} Within a block no edge leaves a snapshot, so nothing is exchanged here" + (
        " but rows of neighbours within a group of ranks." if facts.row_ranks > 1 else "."
    )


def _after_words(facts: BlockFacts) -> str:
    text = f"Then it runs {_span('node', *facts.chunks[0])} through the block's snapshots. "
    if facts.ranks == 1:
        return f"{text}One rank keeps everything."
    moved = percent(moved_share(facts))
    return (
        f"{text}Where a place has another colour than in the picture before, its row is sent: {moved} of them, on the "
        "way here and again on the way back."
    )


def _span(what: str, start: int, stop: int) -> str:
    several = f"{what}s"
    return f"{what} {start:,}" if stop == start + 1 else f"{several} {start:,} to {stop - 1:,}"


# Bytes of graphs that a step brings to the device, as they came and each whole, from the table ``transfers``.


NOTHING_BROUGHT = "no graph has been brought in a step"
_ALIKE = 1.005  # whole over brought up to which they are called alike


def transfer_log() -> StepSums:
    """Where rows of the table ``transfers`` are summed."""
    return StepSums((), ("snapshots", "bytes", "whole_bytes"))


def transfers_figure(steps: Sequence[tuple[int, Sums]], marks: Marks) -> Figure:
    """Bytes that the ranks' graphs took together, and what they would have taken whole, over steps.

    Args:
        steps: from :meth:`StepSums.steps`.
        marks: of the run's changes.
    """
    described = _to_dict(steps)
    top = max((max(brought, whole) for _, _, brought, whole in described), default=0.0)
    unit, factor = byte_unit(top)
    layout = frame(
        "Graphs brought to the ranks",
        "step (model updates)",
        f"bytes of a step, all ranks ({unit})",
        yaxis={"rangemode": "tozero"},
        **marks.over_steps([each[0] for each in described]),
    )
    lines = (("brought", 2, series_colour(0), "solid"), ("each whole", 3, BASELINE_COLOUR, "dash"))
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines" if len(described) > 1 else "markers",
            "name": name,
            **_with_gaps([each[0] for each in described], [round(each[place] / factor, 4) for each in described]),
            "line": {"color": colour, "width": 2, "dash": dash},
            "marker": {"color": colour},
            "hovertemplate": "step %{x}: %{y:.4~g} " + unit + "<extra>" + name + "</extra>",
        }
        for name, place, colour, dash in lines
    ]
    return {"data": data if described else [], "layout": layout if described else with_note(layout, NOTHING_BROUGHT)}


def _with_gaps(steps: list[int], values: list[float]) -> dict[str, list[Any]]:
    """Points of a line that ends at steps without a value and restarts after them."""
    x: list[Any] = []
    y: list[Any] = []
    for step, value in zip(steps, values, strict=True):
        if x and step > x[-1] + 1:
            x.append(x[-1] + 1)
            y.append(None)
        x.append(step)
        y.append(value)
    return {"x": x, "y": y}


def transfers_words(steps: Sequence[tuple[int, Sums]], *, since: int = 0) -> str:
    """What the newest step brought, and what differences saved.

    Args:
        steps: from :meth:`StepSums.steps`.
        since: from this step on the run is as it is now.
    """
    described = _to_dict(steps)
    if not described:
        return (
            "Graphs of one block stay where they are, and so do kept ones; of several each block's are brought for its "
            "forward pass and again for its rerun."
        )
    step, snapshots, brought, whole = described[-1]
    if step < since:
        return f"Graphs stay where they are now: no step has brought any since step {step}."
    text = f"Step {step} brought {snapshots:,.0f} snapshots in {format_bytes(brought)}"
    if brought <= 0 or whole / brought <= _ALIKE:
        return f"{text}, each whole: differences (the setting difference) save what neighbouring snapshots share."
    return (
        f"{text}; whole they take {format_bytes(whole)}, {whole / brought:.2f} times as much. The gap closes where "
        "snapshots share few edges, and where a rank's part of a block is short: its first graph comes whole."
    )


def _to_dict(steps: Sequence[tuple[int, Sums]]) -> list[tuple[int, float, float, float]]:
    """Step, snapshots, bytes and whole bytes of every step that brought any."""
    found = []
    for step, sums in steps:
        snapshots, brought, whole = sums.get((), (0.0, 0.0, 0.0))
        if snapshots:
            found.append((step, snapshots, brought, whole))
    return found


# The view of blocks of time: who owns what, what ranks send, what is hidden, what is held, what is brought.


GIB = 1024**3


class BlocksView(PlanView[BlockFacts]):
    """The blocks of one run as its newest plan has them, and the rows that its ranks logged since.

    Args:
        links: rows that the run's ranks sent, which the view of its partition reads too.
        marks: the run's changes.
        memory_gib: what the blocks are to fit where they are chosen.
    """

    name = "blocks"
    title = "Blocks of time"

    def __init__(self, links: LinkLog, marks: Marks, memory_gib: float | None = None) -> None:
        super().__init__()
        self.exchanges, self.transfers = exchange_log(), transfer_log()
        self.tables = {"steps": self.step, "exchanges": self.exchanges.row, "transfers": self.transfers.row}
        self.events = {self.name: self.event, "memory_trace": self.memory}
        self.memory_gib = memory_gib
        self._links, self._marks = links, marks
        self._memory: list[tuple[int, int, MemoryFacts]] = []  # attempt, step

    def event(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event ``blocks``."""
        if self._is_new(row, attempt):
            facts = None if blocks_left(row["data"]) else block_facts(row["data"])
            if not self._known or not _same(facts, self.facts):  # an attempt that resumes logs it again
                self._add_plan(facts, row, attempt)

    def memory(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event ``memory_trace``."""
        if self._is_new(row, attempt, "memory"):
            known = (attempt, int(row["step"] or 0), memory_facts(row["data"]))
            self._memory = [*self._memory, known][-self.plans_kept :]

    def step(self, rank: int, row: Row, attempt: int) -> None:
        """Note that a rank has recorded a step, by a row of ``steps``."""
        self.exchanges.step(rank, row["step"])
        self.transfers.step(rank, row["step"])

    def setting_changed(self, row: Row, attempt: int) -> None:
        """Note another budget."""
        self.memory_gib = row["data"]["changes"].get("memory_gib", self.memory_gib)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on; a plan made just before ``step`` stays."""
        super().truncate(step, attempt)
        self.exchanges.truncate(step, attempt)
        self.transfers.truncate(step, attempt)
        self._memory = [known for known in self._memory if known[1] <= step or known[0] >= attempt]

    @property
    def probed(self) -> MemoryFacts | None:
        """Memory over the step that was probed last."""
        return self._memory[-1][2] if self._memory else None

    @property
    def _probed_earlier(self) -> bool:
        """Whether the run has changed since."""
        return bool(self._known and self._memory) and self._known[-1][:2] > self._memory[-1][:2]

    def sent(self) -> Sent | None:
        """Bytes of the last complete step of these blocks."""
        facts = self.facts
        if facts is None or not facts.predicted:
            return None
        layers = max(len(each) for each in facts.predicted.values())
        return self._links.last(facts.ranks, layers=layers, first=self.since)

    def panels(self) -> list[Panel]:
        """Ownership, memory, hidden share, bytes from rank to rank, transfers; none where the run has no blocks."""
        return list(self.named_panels().values())

    def named_panels(self) -> dict[str, Panel]:
        """The panels by names that stay theirs where others come and go."""
        facts = self.facts
        if facts is None:
            return {}
        since, memory = self.since, self.probed
        budget = None if facts.asked or self.memory_gib is None else GIB * self.memory_gib
        found = ownership_panels(facts)
        note = f"{memory.count} blocks" if memory is not None and memory.count > 1 else ""
        found["memory"] = (
            memory_figure(memory, budget_bytes=budget, note=note),
            memory_words(memory, blocks=facts.blocks, earlier=self._probed_earlier),
        )
        brought = self.transfers.steps(facts.ranks)
        found["transfers"] = (transfers_figure(brought, self._marks), transfers_words(brought, since=since))
        if facts.ranks > 1 and facts.sends:
            if facts.redistributes:
                steps = self.exchanges.steps(facts.ranks)
                found |= exchange_panels(steps, facts.ranks, marks=self._marks, since=since)
            links = link_panels(facts.predicted, self.sent())
            last = {"flight": found.pop("flight")} if len(found) % 2 and "flight" in found else {}
            found |= {f"links-{place}": panel for place, panel in enumerate(links)}  # two and two beside each other
            found |= last
        return found

    def figure(self) -> Figure:
        """All panels as one figure."""
        facts = self.facts
        if facts is None:
            raise LookupError("this run has no blocks of time: ask for `facts` first")
        return grid(self.panels(), title=f"Blocks: {facts.label}")

    def caption(self) -> str:
        """The blocks, what a step sends and hides, and its peak, in words."""
        facts = self.facts
        if facts is None:
            return ""
        text = blocks_words(facts)
        if facts.ranks > 1 and facts.sends:
            sent = self.sent()
            predicted = sum(float(each.sum()) for each in facts.predicted.values())
            text += " " + sent_words(predicted, sent, None if sent is None else sent.total)
            steps = self.exchanges.steps(facts.ranks, first=self.since)
            text += f" {share_words(steps)}" if steps else ""
        if self.probed is not None and len(self.probed.bytes):
            when = ", probed before these blocks" if self._probed_earlier else ""
            text += f" A step's peak: {format_bytes(float(self.probed.bytes.max()))}{when}."
        return text


def _same(facts: BlockFacts | None, other: BlockFacts | None) -> bool:
    return facts is other if facts is None or other is None else facts.same(other)


# What the graphs of a block cost to bring: bytes and times, whole and as differences, and how many can benefit.


Row = Mapping[str, Any]
SAID = {"csr32": "CSR int32", "coo64": "pairs int64"}
_SHORT = {"csr32": "CSR", "coo64": "pairs"}
_COLOURS = {"csr32": ("#9FC3DC", "#0072B2"), "coo64": ("#F2C09A", "#D55E00")}  # whole, difference
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "triangle-down", "cross", "x", "star")


def difference_figure(rows: Sequence[Row], shares: Sequence[Row], *, title: str) -> Figure:
    """Bytes, times, ratios beside what the overlap allows, and the share of snapshots that benefit, as four panels.

    Args:
        rows: one for each model and format, as ``runs.difference_study.MEANINGS`` says.
        shares: one for each model, format, number of blocks and of ranks: ``share`` and ``ratio``.
        title: of the whole.
    """
    return grid([_bytes(rows), _times(rows), _ratios(rows), _shares(shares)], title=title)


def _bytes(rows: Sequence[Row]) -> Panel:
    largest = max((row["whole_bytes"] for row in rows), default=1)
    unit, size = next(
        (each for each in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if largest >= each[1]), ("B", 1)
    )
    data = _bars(rows, ("whole_bytes", "difference_bytes"), 1 / size, format_bytes)
    layout = _by_model(rows, "Bytes of all snapshots", f"bytes ({unit})")
    if not rows:
        return {"data": data, "layout": with_note(layout, "nothing was compared")}, ""
    best = max(rows, key=lambda row: float(row["ratio"]))
    words = (
        f"Compare the strong bar of a pair with the faint one: at most {best['ratio']:.2f} times fewer bytes "
        f"({best['model']}, {SAID[best['form']]}), where {percent(best['overlap'])} of a snapshot's edges were in the "
        "one before."
    )
    return {"data": data, "layout": layout}, words


def _times(rows: Sequence[Row]) -> Panel:
    timed = [row for row in rows if row.get("time_ratio") is not None]
    longest = max((max(row["whole_s"], row["difference_s"]) for row in timed), default=1.0)
    unit, factor = ("ms", 1e3) if longest < 1 else ("s", 1.0)
    data = _bars(timed, ("whole_s", "difference_s"), factor, format_seconds)
    layout = _by_model(timed, "Time until all are usable", f"time ({unit})")
    if not timed:
        return {"data": data, "layout": with_note(layout, "no times were taken")}, ""
    faster = [row for row in timed if row["time_ratio"] > 1]
    unpacking = sum(row["difference_unpack_s"] for row in timed) / sum(row["difference_s"] for row in timed)
    which = join_words([f"{row['model']} ({SAID[row['form']]}, {row['time_ratio']:.2f} times)" for row in faster])
    words = f"Differences are faster for {which}. " if faster else "Differences are slower throughout. "
    words += f"Of their time {percent(unpacking)} is unpacking, which the light bars hardly have"
    limits = [row["worth_below"] / 1e9 for row in timed if row.get("worth_below")]
    if limits:
        words += f": it pays over links slower than {_span_difference(min(limits), max(limits))} GB/s"
    return {"data": data, "layout": layout}, f"{words}."


def _span_difference(least: float, most: float) -> str:
    low, high = f"{least:.2g}", f"{most:.2g}"
    return low if low == high else f"{low} to {high}"


def _ratios(rows: Sequence[Row]) -> Panel:
    data: list[dict[str, Any]] = []
    for form in _forms(rows):
        mine = [row for row in rows if row["form"] == form]
        names = [row["model"] for row in mine]
        data.append(
            {
                "type": "bar",
                "name": SAID[form],
                "x": names,
                "y": [round(row["ratio"], 4) for row in mine],
                "text": [f"{row['ratio']:.2f}" for row in mine],
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {"color": _COLOURS[form][1]},
                "offsetgroup": form,
                "hovertemplate": "%{x}: %{y:.3f} times fewer bytes",
            }
        )
        data.append(
            {
                "type": "bar",
                "name": f"{SAID[form]}: what the overlap allows",
                "x": names,
                "offsetgroup": form,
                "y": [round(row["bound"], 4) for row in mine],
                "showlegend": form == _forms(rows)[0],
                "marker": {"color": "rgba(0,0,0,0)", "line": {"color": WARNING_COLOUR, "width": 1.6}},
                "hovertemplate": "%{x}: at most %{y:.3f}",
            }
        )
    if data:
        data[1]["name"] = "what the overlap allows"
    layout = _by_model(rows, "How many times fewer bytes", "whole / difference (1)")
    layout["shapes"] = [_at_one()]
    least = min((row["reached"] for row in rows), default=1.0)
    words = (
        f"Red frames: no more is possible with these overlaps; at least {100 * least:.1f} % of it is reached. If "
        "nothing changes, 5 bounds pairs, 2 bounds CSR with values and long rows, nothing bounds CSR without values."
    )
    return {"data": data, "layout": layout if rows else with_note(layout, "nothing was compared")}, words


def _shares(shares: Sequence[Row]) -> Panel:
    found: dict[int, dict[int, float]] = {}
    for row in shares:
        found.setdefault(int(row["blocks"]), {})[int(row["ranks"])] = 100 * row["share"]
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"{blocks} block{'s' * (blocks > 1)}",
            "x": sorted(line),
            "y": [round(line[ranks], 3) for ranks in sorted(line)],
            "line": {"color": series_colour(index), "width": 2},
            "marker": {"symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 7},
            "hovertemplate": "%{x} ranks: %{y:.1f} %",
        }
        for index, (blocks, line) in enumerate(sorted(found.items()))
    ]
    counts = sorted({ranks for line in found.values() for ranks in line})
    axis = {"type": "log", "tickvals": counts, "ticktext": [str(count) for count in counts]}
    y_axis = {"range": [0, 104], "ticksuffix": " %"}
    layout = frame(
        "Snapshots that a difference can bring",
        "ranks",
        "share of all snapshots",
        xaxis=axis,
        yaxis=y_axis,
        showlegend=True,
    )
    if not data:
        return {"data": [{"type": "scatter", "x": [], "y": []}], "layout": with_note(layout, "no plans were given")}, ""
    words = (
        "The first snapshot of a block on a rank is always whole: of blocks of b snapshots on R ranks (b - R) / b "
        "benefit. Lines fall with more blocks and more ranks."
    )
    return {"data": data, "layout": layout}, words


def _bars(rows: Sequence[Row], keys: tuple[str, str], factor: float, said: Any) -> list[dict[str, Any]]:
    """A pair of bars for each model and format; over the second stands what it is of the first."""
    data: list[dict[str, Any]] = []
    for form in _forms(rows):
        mine = [row for row in rows if row["form"] == form]
        for key, way, colour in zip(keys, ("whole", "difference"), _COLOURS[form], strict=True):
            data.append(
                {
                    "type": "bar",
                    "name": f"{_SHORT[form]}, {way}",
                    "x": [row["model"] for row in mine],
                    "y": [round(row[key] * factor, 6) for row in mine],
                    "marker": {"color": colour},
                    "text": [_less(row[keys[0]] / row[key]) for row in mine] if key == keys[1] else "",
                    "textposition": "outside",
                    "textangle": 0,
                    "textfont": {"size": 10},
                    "constraintext": "none",
                    "cliponaxis": False,
                    "offsetgroup": f"{form}/{way}",
                    "customdata": [said(row[key]) for row in mine],
                    "hovertemplate": "%{x}, " + f"{SAID[form]}, {way}: " + "%{customdata}<extra></extra>",
                }
            )
    return data or [{"type": "bar", "x": [], "y": []}]


def _less(ratio: float) -> str:
    return f"÷{ratio:.2g}" if ratio >= 1 else f"×{1 / ratio:.2g}"


def _forms(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["form"]) for row in rows))


def _by_model(rows: Sequence[Row], title: str, y_title: str) -> dict[str, Any]:
    labels = {row["model"]: f"{row['model']}<br>({row['smoothing']})" for row in rows}
    axis = {"type": "category", "showgrid": False, "tickvals": list(labels), "ticktext": list(labels.values())}
    return frame(title, "", y_title, barmode="group", xaxis=axis, yaxis={"rangemode": "tozero"}, showlegend=True)


def _at_one() -> dict[str, Any]:
    line = {"color": BASELINE_COLOUR, "width": 1.2, "dash": "dot"}
    return {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": line}


# Numbers sent in a step over the number of ranks: snapshot partition beside hypergraph node partition.


_UNITS = ((1e9, "billion numbers"), (1e6, "million numbers"), (1e3, "thousand numbers"), (1.0, "numbers"))
_LINES = (
    ("snapshot", "snapshot", {"color": series_colour(0), "width": 2}, "circle"),
    ("hypergraph", "hypergraph", {"color": series_colour(1), "width": 2}, "diamond"),
    (
        "snapshot_as_paper",
        "snapshot, paper's rule",
        {"color": BASELINE_COLOUR, "width": 1.5, "dash": "dash"},
        "circle-open",
    ),
)


def volume_figure(rows: Sequence[Row], *, title: str = "") -> Figure:
    """A panel for each model: numbers sent over ranks, and a sentence that names where one passes the other.

    Args:
        rows: ``model``, ``ranks``, ``snapshot``, ``hypergraph`` and ``snapshot_as_paper`` of each, as
            ``lab.estimate.volumes`` has them.
        title: of the whole.
    """
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    panels = [_panel(name, sorted((row for row in rows if row["model"] == name), key=_ranks)) for name in models]
    if not rows:
        layout = with_note(frame("Volume", "ranks", "numbers sent in a step"), "nothing counted")
        panels = [({"data": [{"type": "scatter", "x": [], "y": []}], "layout": layout}, "")]
    return grid(panels, title=title or "Numbers sent in one step, by how the work is divided")


def crossing(rows: Sequence[Row]) -> str:
    """Which of both sends less on how many ranks, in a sentence.

    Args:
        rows: of one model, at least one.
    """
    mine = sorted(rows, key=_ranks)
    name, first, last = str(mine[0]["model"]), mine[0], mine[-1]
    if not any(row["snapshot"] for row in mine):
        return f"{name}: snapshot partition sends nothing between ranks but gradients of parameters."
    gaps = [(row["ranks"], row["hypergraph"] - row["snapshot"]) for row in mine]
    for (before, low), (after, high) in pairwise(gaps):
        if low < 0 <= high or high < 0 <= low:
            less, more = ("hypergraph", "snapshot") if low < 0 else ("snapshot", "hypergraph")
            met = round(exp(log(before) + (log(after) - log(before)) * low / (low - high)))
            return (
                f"{name}: {less} partition sends less on {before} ranks, {more} partition on {after}; drawn straight, "
                f"the lines meet near {met} ranks."
            )
    less = "hypergraph" if gaps[-1][1] < 0 else "snapshot"
    ends = " and ".join(f"{_share(row)} on {row['ranks']}" for row in ([first, last] if last is not first else [first]))
    return f"{name}: {less} partition sends less on every number of ranks; hypergraph over snapshot is {ends}."


def _ranks(row: Row) -> int:
    return int(row["ranks"])


def _share(row: Row) -> str:
    return f"{row['hypergraph'] / row['snapshot']:.3g}" if row["snapshot"] else "without bound"


def _panel(name: str, rows: list[Row]) -> tuple[Figure, str]:
    top = max(max(int(row[key]) for row in rows) for key, *_ in _LINES)
    factor, unit = next((each for each in _UNITS if top >= each[0]), _UNITS[-1])
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": said,
            "x": [_ranks(row) for row in rows],
            "y": [round(row[key] / factor, 6) for row in rows],
            "line": line,
            "showlegend": True,
            "marker": {"symbol": symbol, "size": 7},
            "hovertemplate": f"%{{x}} ranks: %{{y:.4g}} {unit}",
        }
        for key, said, line, symbol in _LINES
    ]
    counts = sorted({_ranks(row) for row in rows})
    layout = frame(
        name,
        "ranks",
        f"{unit} sent in a step",
        showlegend=True,
        yaxis={"rangemode": "tozero"},
        xaxis={"type": "log", "tickvals": counts, "ticktext": [str(count) for count in counts]},
    )
    said = crossing(rows)
    look = "Look at the gap between the full lines, and how it changes with the ranks."
    if not any(row["snapshot"] for row in rows):
        look = "Look at the orange line: all of it is what snapshot partition saves."
    elif "the lines meet" in said:
        look = "Look at where the full lines meet: to the right of it the flatter one wins."
    return {"data": data, "layout": layout}, f"{said} {look}"
