"""Charts of decayed windows: shapes, batches, chunks, heat maps, and the tuner's decisions."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dtdg_lab.core.records import PHASES, read_fields
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.systems.decayed_windows.decay_map import DecayMap, Setting, decay_map_panels
from dtdg_lab.systems.decayed_windows.events import Shape, TrapezoidFacts
from dtdg_lab.visualization import palette
from dtdg_lab.visualization.charts import (
    Drawn,
    Panel,
    bars,
    chart,
    colour_bar,
    heat,
    label,
    line,
    points,
)
from dtdg_lab.visualization.layout import Figure, join_words, percent, share
from dtdg_lab.visualization.partition import SNAPSHOT
from dtdg_lab.visualization.series import STEP_SUMS_KEPT, PartLog, StepSums
from dtdg_lab.visualization.style import Marks

# The trapezoid itself: snapshots across, chunks up, what is in the batch now, and the shape that is proposed.


FULL, DECAYED, DROPPED = palette.EDGE_COLOUR, palette.VERTEX_COLOUR, palette.GRID_COLOUR
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
        rows: of nodes in all its snapshots; None while a rank's row is missing.
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
    data, notes = _bars(facts, snapshots, chunks, full), []
    if facts.window <= _WRITTEN:
        numbers = zip(snapshots, chunks, strict=True)
        notes = [label(f"{count:,}", snapshot, count, yanchor="bottom") for snapshot, count in numbers]
    if len(snapshots) < facts.window:
        middle = (oldest + snapshots[0] - 1) / 2
        notes.append(label("before the segment", middle, facts.chunks / 2, palette.BASELINE_COLOUR, textangle=-90))
    if proposed is not None:
        data.append(_outline(facts, proposed, oldest))
        # beside the outline's lower, older end, where there is room
        said = f"<b>proposed</b><br>{_needs(facts, proposed).replace(', ', '<br>')}"
        corner: Drawn = {"yref": "paper", "xanchor": "left", "yanchor": "top", "align": "left", "borderpad": 3}
        notes.append(label(said, oldest - 0.45, 1, palette.MARK_COLOUR, bgcolor="rgba(255,255,255,0.85)", **corner))
    ticks: Drawn = {"tickvals": snapshots[:: max(1, facts.window // 16)], "tickformat": "d", "showgrid": False}
    few: Drawn = {"dtick": 1} if facts.chunks <= _FEW else {}
    figure = chart(
        "A whole window" if batch is None else f"Batch of step {batch.step}: target snapshot {batch.target}",
        SNAPSHOT if batch is not None else "snapshot of a window",
        "chunks of each part",
        data,
        xaxis={"range": [oldest - 0.6, target + 0.6], **ticks},
        yaxis={"range": [0, _HEAD * facts.chunks], **few},
        barmode="stack",
        bargap=0.06,
        annotations=notes,
    )
    if handles:
        dragged = _handles(facts, proposed or facts.shape, oldest)
        figure["layout"]["meta"] = {"handles": [point for point in dragged if point["name"] in handles]}
    return figure


def shape_words(facts: TrapezoidFacts, batch: Batch | None) -> str:
    """What the newest batch has of a whole window."""
    if batch is None:
        return "No batch recorded yet: this is what a whole window would take."
    length = len(batch.counts) + batch.full
    text = f"Step {batch.step} took the loss at snapshot {batch.target} from {length} snapshot{'s' * (length > 1)}"
    if length < facts.window:
        text += ": its segment begins there, and decayed ones lack first"
    if batch.rows is not None:
        whole = facts.window * facts.nodes
        text += f". {batch.rows:,} rows of nodes, {share(batch.rows / whole)} of {facts.window} full snapshots"
    if batch.counts and batch.edges:
        text += f"; {batch.edges:,} edges in decayed ones, each within one partition"
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


def _bars(facts: TrapezoidFacts, snapshots: Sequence[int], chunks: Sequence[int], full: int) -> list[Drawn]:
    """Full, decayed, and what decayed ones lack."""
    decayed = len(snapshots) - full
    said = [
        f"{count:,} of {facts.chunks:,} chunks a part, about {facts.row_counts[count]:,.0f} of {facts.nodes:,} rows"
        for count in chunks
    ]
    newer, older = slice(decayed, None), slice(0, decayed)
    missing = [facts.chunks - each for each in chunks]
    kinds = (("full", FULL, newer, chunks), ("decayed", DECAYED, older, chunks), ("left out", DROPPED, older, missing))
    return [
        bars(name, snapshots[of], y[of], colour, "snapshot %{x}: %{customdata}", customdata=said[of])
        for name, colour, of, y in kinds
        if snapshots[of]
    ]


def _outline(facts: TrapezoidFacts, proposed: Shape, oldest: int) -> Drawn:
    counts = np.repeat(facts.counts(proposed), 2).tolist()
    edges = np.repeat(np.arange(facts.window + 1) + oldest - 0.5, 2).tolist()
    return line(f"proposed: {proposed.words}", edges, [0, *counts, 0], palette.MARK_COLOUR, width=2.5, dash="dash")


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
    edge, end = oldest + facts.window - full, oldest + facts.window - 0.5
    across: Drawn = {
        "along": "x",
        "low": oldest - 0.5,
        "high": end - 1,
        "origin": end,
        "title": "drag: full snapshots (K)",
    }
    place: Drawn = {"x": edge - 0.5, "y": 0.5 * facts.chunks, "said": f"{full} full snapshots"}
    found = [{"name": K, "step": 1, **across, **place}]
    if full < facts.window:
        at = oldest if shape.decay == "text" else edge - 1
        level = float(np.clip(shape.alpha, 1 / facts.chunks, 1.0)) * facts.chunks
        up: Drawn = {"along": "y", "low": 1, "high": facts.chunks, "origin": 0, "title": "drag: alpha"}
        place = {"x": at + _ASIDE, "y": level, "said": f"alpha {level / facts.chunks:.3g}"}
        found.append({"name": ALPHA, "step": 1, **up, **place})
    return found


# What the newest steps took as their batches, and what each spent in which phase, in bounded memory.


@dataclass(frozen=True, slots=True)
class BatchStep:
    """One complete step.

    Attributes:
        batch: with rows and edges of all ranks.
        shrink_s: seconds of taking decayed snapshots' edges, the mean of the ranks.
        time_s: seconds of the step, likewise.
        phase_s: the same by phase.
    """

    batch: Batch
    shrink_s: float
    time_s: float
    phase_s: Mapping[str, float]


class BatchLog:
    """Rows of the tables ``batches`` and ``steps`` for the newest steps."""

    def __init__(self) -> None:
        self._sums = StepSums((), ("rows", "edges", "shrink_s"))
        self._seconds = StepSums((), ("time_s", *(f"{phase}_s" for phase in PHASES)))
        self._shapes: PartLog[Batch] = PartLog(STEP_SUMS_KEPT)

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of ``batches``."""
        self._sums.row(rank, row, attempt)
        counts = tuple(int(count) for count in row["chunks"] or () if count is not None)
        batch = read_fields(Batch, row, counts=counts, rows=None, edges=None)
        self._shapes.add(0, batch.step, attempt, batch)

    def step(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of ``steps``."""
        self._seconds.row(rank, row, attempt)
        for sums in (self._sums, self._seconds):
            sums.step(rank, int(row["step"]))

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for log in (self._sums, self._seconds, self._shapes):
            log.truncate(step, attempt)

    def steps(self, ranks: int, *, first: int = 0) -> list[BatchStep]:
        """Every step from ``first`` on that all ranks have logged, in order."""
        seconds = dict(self._seconds.steps(ranks, first=first))
        shapes = {batch.step: batch for batch in self._shapes.of(0, since=first)}
        found = []
        for step, sums in self._sums.steps(ranks, first=first):
            if step not in shapes or step not in seconds:
                continue
            rows, edges, shrink_s = sums[()]
            time_s, *phases = seconds[step][()]
            batch = replace(shapes[step], rows=round(rows), edges=round(edges))
            phase_s = {phase: value / ranks for phase, value in zip(PHASES, phases, strict=True)}
            found.append(BatchStep(batch, shrink_s / ranks, time_s / ranks, phase_s))
        return found


# Windows over steps: where they were in time, how many rows they had, what cutting them out cost, and the phases.


NO_BATCH = "no batch recorded yet"
RECENT = 50  # steps that sentences are means of
_ROWS = 40  # steps that the map of windows has
_BARS = 80  # steps that the phases are drawn of
_NAMED = 0.005  # share of the time from which a phase has a place in the legend
_TOP = 0.9  # of the scale of colours up to which a share of chunks is drawn; what is full is above
_KEPT_SCALE = [[0.0, "#FBEBCB"], [0.2, "#F3C25F"], [_TOP, "#A86F00"], [_TOP, FULL], [1.0, FULL]]


def batch_panels(
    steps: Sequence[BatchStep], facts: TrapezoidFacts, marks: Marks, *, since: int = 0
) -> dict[str, Panel]:
    """``windows``, ``rows``, ``phases`` and ``shrinking``, by the steps that are complete.

    Args:
        steps: from :meth:`BatchLog.steps`.
        facts: of the run as it is now.
        marks: of the run's changes.
        since: from this step on it is so.
    """
    now = [each for each in steps if each.batch.step >= since]
    batches = [each.batch for each in steps]
    full = [facts.nodes * (each.target - each.first + 1) for each in batches]
    shares = [round(100 * each.shrink_s / each.time_s, 3) if each.time_s else None for each in steps]
    x, drawn = [each.step for each in batches], steps[-_BARS:]
    whole = sum(each.time_s for each in drawn)
    rows = [
        line("in the batch", x, [each.rows for each in batches], DECAYED, "step %{x}: %{y:,}"),
        line("the same snapshots, all full", x, full, hover="step %{x}: %{y:,}", dash="dot"),
    ]
    phases = [
        bars(phase, x[-_BARS:], milliseconds, palette.PHASE_COLOURS[phase], "step %{x}: %{y:.3~g} ms")
        for phase in PHASES
        if whole and sum(each.phase_s[phase] for each in drawn) >= _NAMED * whole
        for milliseconds in [[round(1e3 * each.phase_s[phase], 4) for each in drawn]]
    ]
    cut = [line("share of the step", x, shares, palette.series_colour(0), "step %{x}: %{y:.2~f} %", width=1.5)]
    stacked: Drawn = {"barmode": "stack", "bargap": 0}

    def over_steps(title: str, y_title: str, data: list[Drawn], of: list[int], **looks: Any) -> Figure:
        looks |= {"empty": NO_BATCH, "yaxis": {"rangemode": "tozero"}}
        return marks.chart(title, y_title, data if steps else [], of, **looks)

    of_phases = f"Phases of the last {len(drawn)} steps" if drawn else "Phases of steps"
    return {
        "windows": (_windows_figure(steps[-_ROWS:], facts), _windows_words(steps[-_ROWS:])),
        "rows": (over_steps("Rows of a batch", "nodes x snapshots, all ranks", rows, x), _rows_words(now, facts)),
        "phases": (over_steps(of_phases, "mean of the ranks (ms)", phases, x[-_BARS:], **stacked), _phases_words(now)),
        "shrinking": (
            over_steps("Cutting out decayed snapshots", "share of the step (%)", cut, x),
            shrinking_words(now),
        ),
    }


def shrinking_words(steps: Sequence[BatchStep]) -> str:
    """What cutting out decayed snapshots takes of a step, in a sentence."""
    recent = steps[-RECENT:]
    whole = sum(each.time_s for each in recent)
    if not whole:
        return "Decayed snapshots are prefixes of one order of nodes, so that cutting them out costs little."
    cut = sum(each.shrink_s for each in recent)
    if not cut:
        return "Nothing is cut out: all snapshots are full."
    each = format_seconds(cut / len(recent))
    return (
        f"{_over(recent).capitalize()} cutting out the edges of decayed snapshots took a rank {each}, "
        f"{share(cut / whole)} of the step: each is a prefix of one order of nodes, which an epoch makes once."
    )


def _windows_figure(steps: Sequence[BatchStep], facts: TrapezoidFacts) -> Figure:
    """Steps up, snapshots across: decayed ones pale, full ones dark, as a band that climbs to the right."""
    if not steps:
        return chart("Windows of steps", SNAPSHOT, "step", [], empty=NO_BATCH)
    batches = [each.batch for each in steps]
    low, high = min(each.first for each in batches), max(each.target for each in batches)
    across = list(range(low, high + 1))
    z: list[list[float | None]] = []
    said: list[list[str]] = []
    for each in batches:
        kept = dict(enumerate(each.chunks(facts.chunks), each.first))
        level = {at: 1.0 if at > each.target - each.full else _TOP * kept[at] / facts.chunks for at in kept}
        z.append([round(level[at], 4) if at in kept else None for at in across])
        said.append([f"{kept[at]:,} of {facts.chunks:,} chunks" if at in kept else "" for at in across])
    ticks: Drawn = {"tickvals": [0, _TOP / 2, (1 + _TOP) / 2], "ticktext": ["none", "half", "full"]}
    hover = "step %{y}, snapshot %{x}: %{customdata}<extra></extra>"
    looks: Drawn = {"hover": hover, "hoverongaps": False, "xgap": 0.5, "ygap": 0.5, "customdata": said}
    bar, up = colour_bar("share of chunks", **ticks), [each.step for each in batches]
    trace = heat("chunks", z, across, up, _KEPT_SCALE, span=(0, 1), colorbar=bar, **looks)
    axis = {"showgrid": False, "tickformat": "d"}
    return chart(
        f"Windows of the last {len(steps)} steps",
        SNAPSHOT,
        "step",
        [trace],
        xaxis={"range": [low - 0.5, high + 0.5], **axis},
        yaxis={"range": [up[0] - 0.5, up[-1] + 0.5], **axis},
    )


def _windows_words(steps: Sequence[BatchStep]) -> str:
    if not steps:
        return "A row for each step, a column for each snapshot: the window climbs through time."
    batches = [each.batch for each in steps]
    # segments of an epoch come later ones first
    starts = sum(two.epoch != one.epoch or two.target < one.target for one, two in pairwise(batches))
    text = "The window climbs through time, a snapshot a step; the newest are full (blue), the older the fainter."
    if starts:
        text += f" It jumped {starts} time{'s' * (starts > 1)}, to a segment that begins with a zero state."
    return f"{text} Each epoch uses a new cut of the training split and trains the later segment first."


def _rows_words(steps: Sequence[BatchStep], facts: TrapezoidFacts) -> str:
    text = f"A whole window keeps {share(facts.kept())} of the rows of {facts.window} full snapshots."
    recent = steps[-RECENT:]
    if not recent:
        return text
    had = sum(each.batch.rows or 0 for each in recent)
    full = sum(facts.nodes * (each.batch.target - each.batch.first + 1) for each in recent)
    return (
        f"{text} {_over(recent).capitalize()} batches had {share(had / full)}: at a segment's start windows are short, "
        "and full snapshots weigh more."
    )


def _phases_words(steps: Sequence[BatchStep]) -> str:
    recent = steps[-RECENT:]
    whole = sum(each.time_s for each in recent)
    if not whole:
        return "What a step of a rank spends its time on, step by step."
    shares = {phase: sum(each.phase_s[phase] for each in recent) / whole for phase in PHASES}
    most = sorted((phase for phase in PHASES if shares[phase] >= 0.05), key=lambda phase: -shares[phase])[:3]
    described = [f"{phase} {percent(shares[phase])}" for phase in most]
    mean = format_seconds(whole / len(recent))
    return f"{_over(recent).capitalize()} a step took {mean}, the mean of the ranks: {join_words(described)}."


def _over(steps: Sequence[BatchStep]) -> str:
    return f"in the last {len(steps)} steps" if len(steps) > 1 else f"in step {steps[0].batch.step}"


# What a tuner of K and alpha saw and chose: losses of the neighbours at each look, and its path over K x alpha.


POLICY = "greedy"
NO_LOOK = "the tuner has not looked yet"
_KEPT = 200


@dataclass(frozen=True, slots=True)
class Look:
    """One decision.

    Attributes:
        step: updates of the model before it.
        epoch: after which it was made, from 0.
        state: the setting it found.
        action: the setting it left.
        losses: of the settings it asked about; finite ones only.
        bytes: predicted peaks of all neighbours.
        over: neighbours that it did not ask about, as they need more than the budget.
        most_bytes: the budget; None where there was none.
    """

    step: int
    epoch: int
    state: Setting
    action: Setting
    losses: Mapping[Setting, float]
    bytes: Mapping[Setting, float]
    over: tuple[Setting, ...]
    most_bytes: float | None


class DecisionLog(PartLog[Look]):
    """Rows of the table ``decisions`` whose policy is the tuner of K and alpha; other policies' are passed over."""

    kept = _KEPT

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row; that every rank tells the same changes nothing."""
        if row["policy"] == POLICY:
            self.add(0, int(row["step"]), attempt, _look(row))

    def looks(self) -> list[Look]:
        """The decisions in order."""
        return self.of(0)

    def path(self) -> list[Setting]:
        """The settings that the tuner went through; empty before its first look."""
        return path(self.looks())


def path(looks: Sequence[Look]) -> list[Setting]:
    """Settings in order, each once where it stayed, with manual changes in between."""
    found: list[Setting] = []
    for look in looks:
        for setting in (look.state, look.action):
            if not found or found[-1] != setting:
                found.append(setting)
    return found


def decision_panels(looks: Sequence[Look]) -> dict[str, Panel]:
    """``tuner-losses``: losses of each look; ``tuner-path``: the newest loss of every setting, and the path."""
    return {"tuner-losses": (_losses_figure(looks), decision_words(looks)), "tuner-path": _path_panel(looks)}


def decision_words(looks: Sequence[Look]) -> str:
    """What the newest look found, in a sentence or two."""
    if not looks:
        return "Every few epochs the tuner compares the validation losses of neighbouring settings."
    last = looks[-1]
    text = f"After epoch {last.epoch + 1} the tuner "
    if last.action == last.state:
        text += f"stayed at {_named(last.state)}: no neighbour it asked about was better"
    else:
        text += f"went from {_named(last.state)} to {_named(last.action)}"
        before, after = last.losses.get(last.state), last.losses.get(last.action)
        if before is not None and after is not None:
            text += f", validation loss {before:.4g} to {after:.4g}"
    if last.over and last.most_bytes is not None:
        text += (
            f"; {len(last.over)} neighbour{'s' * (len(last.over) > 1)} would need more than "
            f"{format_bytes(last.most_bytes)}"
        )
    moves = sum(look.action != look.state for look in looks)
    return f"{text}. {moves} move{'' if moves == 1 else 's'} in {len(looks)} look{'' if len(looks) == 1 else 's'}."


def _losses_figure(looks: Sequence[Look]) -> Figure:
    """Neighbours as points, the chosen ones joined by a line."""
    kinds = {
        "stay": (palette.BASELINE_COLOUR, "circle"),
        "K + 1": (palette.series_colour(0), "triangle-right"),
        "K - 1": (palette.series_colour(5), "triangle-left"),
        "alpha up": (palette.series_colour(1), "triangle-up"),
        "alpha down": (palette.series_colour(4), "triangle-down"),
    }
    seen: dict[str, list[tuple[int, float, str]]] = {name: [] for name in kinds}
    for look in looks:
        for setting, loss in look.losses.items():
            seen[_kind(look.state, setting)].append((look.epoch + 1, loss, _named(setting)))
    data = []
    for name, (colour, symbol) in kinds.items():
        if seen[name]:
            x, y, said = zip(*seen[name], strict=True)
            looks_: Drawn = {"size": 9, "marker": {"symbol": symbol}, "customdata": list(said)}
            data.append(points(name, x, y, colour, "epoch %{x}, %{customdata}: %{y:.4g}", **looks_))
    chosen = [(look.epoch + 1, look.losses[look.action]) for look in looks if look.action in look.losses]
    if looks:
        epochs, losses = ([each[place] for each in chosen] for place in (0, 1))
        data.append(line("chosen", epochs, losses, palette.MARK_COLOUR, mode="lines", hoverinfo="skip"))
    titles = ("What the tuner saw", "epoch after which it looked", "validation loss")
    return chart(*titles, data, empty=NO_LOOK, xaxis={"tickformat": "d"})


def _path_panel(looks: Sequence[Look]) -> Panel:
    """Losses of different looks are of different models: the newest of each setting is drawn."""
    newest = {setting: loss for look in looks for setting, loss in look.losses.items()}
    rows = [{"full_snapshots": k, "alpha": alpha, "mse": loss} for (k, alpha), loss in newest.items()]
    figure, _ = decay_map_panels(DecayMap(rows, path=path(looks), loss="newest validation loss of each setting"))["mse"]
    text = (
        "Path over K and alpha, from the circle to the star; the palest cell has the least loss. Cells were measured "
    )
    return {**figure, "layout": {**figure["layout"], "shapes": []}}, text + "at different times of training."


def _kind(state: Setting, setting: Setting) -> str:
    if setting == state:
        return "stay"
    if setting[0] != state[0]:
        return "K + 1" if setting[0] > state[0] else "K - 1"
    return "alpha up" if setting[1] > state[1] else "alpha down"


def _look(row: Mapping[str, Any]) -> Look:
    asked = [(_setting(each), each.get("loss"), each.get("bytes")) for each in row["values"]]
    budget = row["state"].get("most_bytes")
    return Look(
        int(row["step"]),
        int(row["epoch"]),
        _setting(row["state"]),
        _setting(row["action"]),
        {setting: float(loss) for setting, loss, _ in asked if loss is not None and math.isfinite(loss)},
        {setting: float(size) for setting, _, size in asked if size is not None},
        tuple(setting for setting, loss, _ in asked if loss is None),
        None if budget is None else float(budget),
    )


def _setting(named: Mapping[str, Any]) -> Setting:
    return int(named["full_snapshots"]), float(named["alpha"])


def _named(setting: Setting) -> str:
    return f"K {setting[0]}, alpha {setting[1]:g}"
