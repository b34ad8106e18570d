"""Charts of time blocks: ownership, exchanges, memory, deltas, transfers and volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.events import MemoryFacts
from dtdg_lab.core.model_facts import PASSES
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.visualization.charts import (
    NOTHING_SENT,
    Drawn,
    Panel,
    byte_unit,
    chart,
    colour_bar,
    exposed_bars,
    flag,
    heat,
    label,
    line,
    rule,
    with_gaps,
)
from dtdg_lab.visualization.layout import Figure, grid, percent
from dtdg_lab.visualization.palette import BASELINE_COLOUR, GRID_COLOUR, TEXT_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.visualization.partition import SNAPSHOT, LinkLog, Sent, link_panels, sent_words
from dtdg_lab.visualization.run_view import PlanView
from dtdg_lab.visualization.series import StepSums, Sums
from dtdg_lab.visualization.style import PASS_COLOURS, Marks

# Memory in use over one step, with the boundaries of its blocks of time.


_LABELS = 24  # blocks of a step up to which each beginning is labelled
_OTHER = "outside blocks"
_ROOM = 1.6  # of the highest value: labels stand above it


def memory_figure(facts: MemoryFacts | None, *, budget_bytes: float | None = None, note: str = "") -> Figure:
    """Memory in use over the step; a colour for each pass, a line where a block begins.

    Args:
        facts: of the probed step; None before there is one.
        budget_bytes: drawn as a line, where the blocks were chosen to fit it.
        note: what the title ends with.
    """
    title = "Memory over a step" + (f" · {note}" if note else "")
    if facts is None or not len(facts.seconds):
        return chart(title, "time", "in use", [], empty="no step has been probed")
    top = max(float(facts.bytes.max()), budget_bytes or 0.0)
    unit, factor = byte_unit(top)
    milliseconds, live = 1e3 * facts.seconds, facts.bytes / factor
    data = _memory_lines(facts, milliseconds, live, unit)
    if budget_bytes is not None:
        ends, level = [0.0, float(milliseconds[-1])], budget_bytes / factor
        name = f"allowed: {format_bytes(budget_bytes)}"
        data.append(line(name, ends, [level, level], WARNING_COLOUR, width=1.5, dash="dash"))
    begun = [
        (1e3 * second, f"{pass_name} {number}", _pass_colour(pass_name)) for second, number, pass_name in facts.blocks
    ]
    named = begun if len(begun) <= _LABELS else ()
    peak = int(facts.bytes.argmax())
    late = milliseconds[peak] > 0.5 * milliseconds[-1]
    at_peak: Drawn = {"xanchor": "right" if late else "left", "yanchor": "bottom", "bgcolor": "rgba(255,255,255,0.8)"}
    said = f"peak {format_bytes(float(facts.bytes[peak]))}"
    return chart(
        title,
        "time within the probed step (ms)",
        f"tensors in use ({unit})",
        data,
        xaxis={"range": [0, float(milliseconds[-1]) or 1.0]},
        yaxis={"range": [0, _ROOM * top / factor or 1.0]},
        shapes=[rule(x=at, colour=colour, width=1) for at, _, colour in begun],
        annotations=[
            *(flag(name, at, colour, 9) for at, name, colour in named),
            label(said, float(milliseconds[peak]), float(live[peak]), size=10, **at_peak),
        ],
    )


def memory_words(facts: MemoryFacts | None, *, blocks: int, earlier: bool = False) -> str:
    """Where the peak is, and what the boundaries keep.

    Args:
        facts: of the probed step; None before there is one.
        blocks: blocks the run has now.
        earlier: whether the run has changed since the step was probed.
    """
    if facts is None or not len(facts.seconds):
        return "A run probes one step before it begins, and its memory is shown here."
    text = facts.words.removesuffix(".") + "; probing slows the step. "
    if not facts.blocks:
        return text.rstrip()
    if facts.count < 2:
        text += "With one block all activations of the step are held at once: more blocks hold those of one each."
    else:
        text += (
            f"{format_bytes(kept_bytes(facts))} are held where the last block begins: states of all blocks before. "
            "Peaks between lines are a block's activations: more blocks lower the peaks and raise what is held."
        )
    if facts.count != blocks:
        text += f" Probed with {facts.count} block{'s' * (facts.count > 1)}; the run has {blocks} now."
    elif earlier:
        text += " Probed before the run's last change."
    return text


def kept_bytes(facts: MemoryFacts) -> float:
    """Bytes in use when the last block begins its forward pass: states at the boundaries of those before."""
    begun = [second for second, _, pass_name in facts.blocks if pass_name == "forward"]
    if not begun:
        return 0.0
    place = int(np.searchsorted(facts.seconds, begun[-1], side="right")) - 1
    return float(facts.bytes[max(place, 0)])


def _memory_lines(
    facts: MemoryFacts, milliseconds: NDArray[np.float64], live: NDArray[np.float64], unit: str
) -> list[Drawn]:
    """One filled line for each pass, at 0 while it is another's turn: a fill would bridge gaps."""
    spans = [facts.span_of(place) for place in range(len(facts.seconds))]
    passes = [facts.blocks[span][2] if span >= 0 else _OTHER for span in spans]
    data = []
    for pass_name in (_OTHER, *PASSES):
        drawn = []
        for place in (place for place, each in enumerate(passes) if each == pass_name):
            drawn.append((round(float(milliseconds[place]), 4), round(float(live[place]), 4)))
            if place + 1 < len(passes) and passes[place + 1] != pass_name:
                drawn.append((round(float(milliseconds[place + 1]), 4), 0.0))
        if drawn:
            x, y = zip(*drawn, strict=True)
            colour = _pass_colour(pass_name)
            stroke = {"color": colour, "width": 1.2, "shape": "hv"}
            hover = "%{x:.2f} ms: %{y:.3~g} " + unit
            data.append(line(pass_name, x, y, colour, hover, line=stroke, mode="lines", fill="tozeroy"))
    return data


def _pass_colour(pass_name: str) -> str:
    return PASS_COLOURS.get(pass_name, BASELINE_COLOUR)


# How much of the time that rows are in flight is hidden behind computing, from the record table ``exchanges``.


RECENT = 50  # steps that bars and sentences are means of


def hidden_share(in_flight_s: float, exposed_s: float) -> float | None:
    """The share of the time in flight in which the ranks computed; None where nothing was in flight."""
    return max(0.0, 1 - exposed_s / in_flight_s) if in_flight_s > 0 else None


def exchange_panels(steps: Sequence[tuple[int, Sums]], ranks: int, *, marks: Marks, since: int = 0) -> dict[str, Panel]:
    """``hidden``: the hidden share over steps; ``flight``: the time exposed and hidden by pass and collective.

    Args:
        steps: from :meth:`StepSums.steps`.
        ranks: R, whose mean is drawn.
        marks: of the run's changes.
        since: steps before it had other blocks: they are in the first picture only.
    """
    now = [each for each in steps if each[0] >= since]
    means = _means(now, ranks)
    flying, exposed = ([each[place] for each in means.values()] for place in (0, 1))
    x_title = f"mean of a rank's last {RECENT} steps (ms)"
    flight = exposed_bars("Time in flight: exposed and hidden", x_title, list(means), flying, exposed)
    return {"hidden": (_share_figure(steps, marks), share_words(now)), "flight": (flight, _flight_words(means))}


def share_words(steps: Sequence[tuple[int, Sums]]) -> str:
    """How much is hidden over the recent steps, in a sentence or two."""
    recent = steps[-RECENT:]
    flying, exposed = _total(recent)
    hidden = hidden_share(flying, exposed)
    if hidden is None:
        return "No exchange recorded yet. The hidden share is the time in flight that overlaps with computing."
    over = f"the last {len(recent)} steps" if len(recent) > 1 else f"step {recent[0][0]}"
    text = f"In {over} {percent(hidden)} of the time in flight was hidden behind computing: high is good, and at 0 "
    return text + "every rank waited for all of it. An exchange that has ended when a rank needs it counts as hidden."


def _share_figure(steps: Sequence[tuple[int, Sums]], marks: Marks) -> Figure:
    x = [step for step, _ in steps]
    collectives = list(dict.fromkeys(collective for _, sums in steps for _, _, collective in sums))
    lines = [(_direction(collective), collective, series_colour(at), 1.2) for at, collective in enumerate(collectives)]
    data = []
    for name, collective, colour, width in [*lines, ("all", None, TEXT_COLOUR, 2)] if len(collectives) > 1 else lines:
        shares = [hidden_share(*_total([each], collective)) for each in steps]
        y = [None if each is None else round(100 * each, 2) for each in shares]
        data.append(line(name, x, y, colour, "step %{x}: %{y:.0f} %", width=width))
    looks: Drawn = {"empty": NOTHING_SENT, "yaxis": {"range": [-2, 102]}}
    return marks.chart("Share of the exchanges that is hidden", "hidden (% of time in flight)", data, x, **looks)


def _total(steps: Sequence[tuple[int, Sums]], collective: str | None = None) -> tuple[float, float]:
    """Seconds in flight and exposed, of all collectives or of one."""
    found = [values for _, sums in steps for key, values in sums.items() if collective is None or key[2] == collective]
    return sum(values[1] for values in found), sum(values[2] for values in found)


def _means(steps: Sequence[tuple[int, Sums]], ranks: int) -> dict[str, tuple[float, float]]:
    """Pass and collective -> milliseconds of a step and rank in flight and exposed, of all layers together."""
    recent = steps[-RECENT:]
    keys = sorted({key for _, sums in recent for key in sums}, key=lambda key: (PASSES.index(key[1]), key[2], key[0]))
    found: dict[str, tuple[float, float]] = {}
    scale = 1e3 / max(ranks, 1) / len(recent) if recent else 0.0
    for key in keys:
        values = [sums[key] for _, sums in recent if key in sums]
        name = f"{key[1]} {_direction(key[2])}"
        before = found.get(name, (0.0, 0.0))
        found[name] = (
            before[0] + scale * sum(value[1] for value in values),
            before[1] + scale * sum(value[2] for value in values),
        )
    return found


def _flight_words(means: Mapping[str, tuple[float, float]]) -> str:
    flying, exposed = (sum(each[place] for each in means.values()) for place in (0, 1))
    if not flying:
        return "Exposed time is what a rank waited for; it computed during the rest of the time in flight."
    still = format_seconds(exposed / 1e3)
    text = f"Exchanges are in flight {format_seconds(flying / 1e3)} of a rank's step; the rank is idle for {still}"
    if not exposed:
        return f"{text}: all is hidden."
    worst = max(means, key=lambda name: means[name][1])
    return f"{text}, most in {worst}: where exposed is long, more computing between start and wait would help."


def _direction(collective: str) -> str:
    return "to nodes" if collective == "to_vertices" else collective.replace("_", " ")


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
        return {"alone": (_ownership_map(facts, ALONE, before, columns, rows), f"{_before_words(facts)} {stays}{cut}")}
    return {
        "before": (_ownership_map(facts, BEFORE, before, columns, rows), _before_words(facts) + cut),
        "after": (_ownership_map(facts, AFTER, after, columns, rows), _after_words(facts)),
    }


def owners(facts: BlockFacts, blocks: int | None = None) -> tuple[Owners, Owners]:
    """Owning ranks before and after the redistribution, (spans of nodes, spans of snapshots) of the first blocks."""
    shown = facts.blocks if blocks is None else blocks
    columns, rows = _edges(facts, shown)
    before = np.full((len(rows) - 1, len(columns) - 1), -1)
    after = before.copy()

    def within(edges: NDArray[np.int64], span: Sequence[int]) -> slice:
        """The spans between edges that lie in one from edge to edge."""
        return slice(*np.searchsorted(edges, span).tolist())

    for block in range(shown):
        whole = within(columns, facts.bounds[block : block + 2].tolist())
        for rank in range(facts.ranks):
            before[within(rows, facts.rows[rank]), within(columns, facts.own[block][rank])] = rank
            after[within(rows, facts.chunks[rank]), whole] = rank
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
    if any(collective in ("to_vertices", "to_snapshots") for _, _, collective, _ in facts.collectives):
        return ""
    return "No row of a node goes to another rank then: the model runs no node through time, or reuses what went."


def _shown(facts: BlockFacts) -> int:
    """Blocks that are drawn: all, or as many of the first as make a picture that a browser can draw."""
    return max(1, min(facts.blocks, MOST_COLUMNS * facts.row_ranks // facts.ranks))


def _edges(facts: BlockFacts, blocks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where owners may change: snapshots, and nodes."""
    spans = [edge for block in facts.own[:blocks] for span in block for edge in span]
    columns = np.unique([*spans, *facts.bounds[: blocks + 1]])
    rows = np.unique([*facts.rows, *facts.chunks, (0, facts.nodes)])
    return columns[(columns >= facts.bounds[0]) & (columns <= facts.bounds[blocks])], rows


def _ownership_map(
    facts: BlockFacts, title: str, owning: Owners, columns: NDArray[np.int64], rows: NDArray[np.int64]
) -> Figure:
    ranks = facts.ranks
    owning, columns, rows = _joined(owning, columns, rows, facts.bounds)
    down, right = ([(int(a), int(b)) for a, b in pairwise(each)] for each in (rows, columns))
    said = [
        [f"rank {rank}: {_span('node', *down[y])}, {_span('snapshot', *right[x])}" for x, rank in enumerate(across)]
        for y, across in enumerate(owning.tolist())
    ]
    # one colour for each rank, without shades between them
    scale = [[edge / ranks, series_colour(rank)] for rank in range(ranks) for edge in (rank, rank + 1)]
    written = owning.size and max(owning.shape) <= _WRITTEN
    looks: Drawn = {"texttemplate": "%{z}", "textfont": {"size": 11}} if written else {}
    looks |= {"colorbar": colour_bar("rank", tickvals=list(range(0, ranks, -(-ranks // 8)))), "xgap": 0.5, "ygap": 0.5}
    x, y = (columns - 0.5).tolist(), (rows - 0.5).tolist()
    trace = heat(title, owning.tolist(), x, y, scale, span=(-0.5, ranks - 0.5), customdata=said, **looks)
    bounds = [int(at) for at in facts.bounds if at <= columns[-1]]
    low: Drawn = {"yref": "paper", "xanchor": "left", "yanchor": "bottom", "bgcolor": GRID_COLOUR, "opacity": 0.85}
    named = enumerate(bounds[:-1] if 1 < len(bounds) - 1 <= _NAMED else [])
    return chart(
        title,
        SNAPSHOT,
        "node (number)",
        [trace],
        xaxis={"showgrid": False, "range": [x[0], x[-1]]},
        yaxis={"showgrid": False, "range": [y[-1], y[0]]},
        shapes=[rule(x=at - 0.5, colour=TEXT_COLOUR, width=1.5, dash="dash") for at in bounds[1:-1]],
        annotations=[label(f"block {number}", at - 0.5, 0, size=9, **low) for number, at in named],
    )


def _joined(
    owning: Owners, columns: NDArray[np.int64], rows: NDArray[np.int64], bounds: NDArray[np.int64]
) -> tuple[Owners, NDArray[np.int64], NDArray[np.int64]]:
    """One span where neighbours have one owner, for all nodes or in all snapshots; blocks stay apart."""
    across = np.append(True, (owning[:, 1:] != owning[:, :-1]).any(axis=0) | np.isin(columns[1:-1], bounds))
    down = np.append(True, (owning[1:] != owning[:-1]).any(axis=1))
    return owning[down][:, across], columns[np.append(across, True)], rows[np.append(down, True)]


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
        f"{text}A cell whose colour differs from the chart before sends its row: {moved} of the cells, once forward "
        "and once backward."
    )


def _span(what: str, start: int, stop: int) -> str:
    several = f"{what}s"
    return f"{what} {start:,}" if stop == start + 1 else f"{several} {start:,} to {stop - 1:,}"


Row = Mapping[str, Any]

# Bytes of graphs that a step brings to the device, as they came and each whole, from the table ``transfers``.


NOTHING_BROUGHT = "no step has transferred a graph"
_ALIKE = 1.005  # whole over brought up to which they are called alike


def transfers_figure(steps: Sequence[tuple[int, Sums]], marks: Marks) -> Figure:
    """Bytes that the ranks' graphs took together, and what they would have taken whole, over steps.

    Args:
        steps: from :meth:`StepSums.steps`.
        marks: of the run's changes.
    """
    brought = _to_dict(steps)
    at = [int(each[0]) for each in brought]
    unit, factor = byte_unit(max((max(each[2:]) for each in brought), default=0.0))
    data = []
    for name, place, colour, dash in (
        ("transferred", 2, series_colour(0), "solid"),
        ("each in full", 3, BASELINE_COLOUR, "dash"),
    ):
        x, y = with_gaps(at, [round(each[place] / factor, 4) for each in brought])
        data.append(line(name, x, y, colour, "step %{x}: %{y:.4~g} " + unit, dash=dash))
    looks: Drawn = {"empty": NOTHING_BROUGHT, "yaxis": {"rangemode": "tozero"}}
    y_title = f"bytes of a step, all ranks ({unit})"
    return marks.chart("Graphs transferred to the ranks", y_title, data if brought else [], at, **looks)


def transfers_words(steps: Sequence[tuple[int, Sums]], *, since: int = 0) -> str:
    """What the newest step brought, and what differences saved.

    Args:
        steps: from :meth:`StepSums.steps`.
        since: from this step on the run is as it is now.
    """
    described = _to_dict(steps)
    if not described:
        return (
            "With one block or resident graphs nothing is transferred; with several, each block's graphs are "
            "transferred for its forward pass and again for its recomputation."
        )
    step, snapshots, brought, whole = described[-1]
    if step < since:
        return f"Graphs are resident now: no step has transferred any since step {step}."
    text = f"Step {step} transferred {snapshots:,.0f} snapshots in {format_bytes(brought)}"
    if brought <= 0 or whole / brought <= _ALIKE:
        return f"{text}, each in full: deltas (delta_transfer=True) save what neighbouring snapshots share."
    return (
        f"{text}; in full they take {format_bytes(whole)}, {whole / brought:.2f} times as much. The gap closes where "
        "snapshots share few edges, and where a rank has few snapshots of a block: the first is sent in full."
    )


def _to_dict(steps: Sequence[tuple[int, Sums]]) -> list[tuple[float, ...]]:
    """Step, snapshots, bytes and whole bytes of every step that brought any."""
    found = [(step, *sums.get((), (0.0, 0.0, 0.0))) for step, sums in steps]
    return [each for each in found if each[1]]


# The view of blocks of time: owners, bytes sent, bytes hidden, memory held, data transferred.


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
    plan = BlockFacts
    subject = "blocks of time"

    def __init__(self, links: LinkLog, marks: Marks, memory_gib: float | None = None) -> None:
        super().__init__()
        self.exchanges = StepSums(("layer", "pass_name", "collective"), ("exchanges", "in_flight_s", "exposed_s"))
        self.transfers = StepSums((), ("snapshots", "bytes", "whole_bytes"))
        self.tables = {"steps": self.step, "exchanges": self.exchanges.row, "transfers": self.transfers.row}
        self.events = {**self.events, "memory_trace": self.memory}
        self.memory_gib = memory_gib
        self._links, self._marks = links, marks
        self._memory: list[tuple[int, int, MemoryFacts]] = []  # attempt, step

    def memory(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event ``memory_trace``."""
        if self._is_new(row, attempt, "memory"):
            known = (attempt, int(row["step"] or 0), MemoryFacts.read(row["data"]))
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

    def named_panels(self) -> dict[str, Panel]:
        """The panels by names that stay theirs where others come and go."""
        facts = self.facts
        if facts is None:
            return {}
        since, memory = self.since, self.probed
        budget = None if facts.requested or self.memory_gib is None else GIB * self.memory_gib
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
        return grid(self.panels(), title=f"Blocks: {self._in_use().label}")

    def caption(self) -> str:
        """The blocks, what a step sends and hides, and its peak, in words."""
        facts = self.facts
        if facts is None:
            return ""
        text = facts.words
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
