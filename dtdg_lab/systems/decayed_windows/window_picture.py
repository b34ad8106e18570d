"""Picture of decayed windows: the window of the newest step over the training snapshots, and those of steps before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.decayed_windows import captions
from dtdg_lab.systems.decayed_windows.events import TrapezoidFacts
from dtdg_lab.systems.decayed_windows.proposal import handles, is_proposal, needs_text, outline, setting_text
from dtdg_lab.systems.decayed_windows.step_windows import (
    StepWindow,
    chunks_at,
    facts_now,
    has_decay,
    has_windows,
    is_sampled,
    newest_window,
    planned_facts,
    step_windows,
    training_snapshots,
)
from dtdg_lab.visualization.chart import FIRST_STEP, Chart, ChartOptions, Figure, Key, card
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.palette import (
    AMBER_COLOURS,
    EDGE_COLOUR,
    MARK_COLOUR,
    SOFT_COLOUR,
    TEXT_COLOUR,
    VERTEX_COLOUR,
)
from dtdg_lab.visualization.traces import Attributes, bars, box, heat, label, line

FULL, DECAYED, LEFT_OUT, OUTSIDE = EDGE_COLOUR, VERTEX_COLOUR, "#DDE2E8", "#F1F3F6"
FULL_TEXT, DECAYED_TEXT = "#0B5CAD", "#8A5A00"
TINTS: Mapping[str, str] = MappingProxyType({FULL: "rgba(0,114,178,0.16)", DECAYED: "rgba(230,159,0,0.22)"})
HEIGHT = 340  # pixels
SNAPSHOTS_SHOWN = 120
HISTORY = 40  # steps
UPPER, LOWER = (0.44, 1.0), (0.0, 0.36)  # shares of the height
PLOT_WIDTH = 900  # pixels, by which texts are fitted
LETTER = 6.3  # pixels of a letter
LABELLED = 40  # snapshots up to which each decayed one has its share written
SHARE_TITLE = "Share of nodes kept"
COVERED = 14  # percent between a bar's top and a circle up to which the circle covers its number
DECAYED_LEVEL = 0.88  # of the colour scale: up to here decayed snapshots by share, above it full ones
SCALE = (*zip((0.0, 0.25, 0.9), AMBER_COLOURS, strict=True), (0.9, FULL), (1.0, FULL))
NO_TRACE: Attributes = {"type": "scatter", "x": [None], "y": [None], "yaxis": "y2"}  # keeps the axes of an empty part


@dataclass(frozen=True, slots=True)
class _View:
    """The snapshots and windows that the picture draws.

    Attributes:
        facts: the shape of a whole window now.
        newest: the window of the newest step; None before the first.
        axis: snapshots on the axis.
        start: first snapshot of the whole window: that of ``newest``, or that which its segment will reach.
        is_reached: True if the training snapshots have room for that window.
        windows: of the newest steps.
    """

    facts: TrapezoidFacts
    newest: StepWindow | None
    axis: range
    start: int
    is_reached: bool
    windows: Sequence[StepWindow] = ()

    @property
    def is_short(self) -> bool:
        """True if the newest window is at the start of a segment, and lacks older snapshots."""
        return self.newest is not None and self.newest.length < self.facts.window

    @property
    def end(self) -> int:
        """Last snapshot of the whole window."""
        return self.start + self.facts.window - 1

    @property
    def proposed_end(self) -> int:
        """Last snapshot of a proposed window: that of the bars that are drawn, where there is room before it."""
        if self.newest is None or self.newest.target - self.facts.window + 1 < self.axis.start:
            return self.end
        return self.newest.target

    def has_bar_at(self, x: float) -> bool:
        """Return whether the window that is drawn has a bar at a place, or beside it."""
        first, last = (self.start, self.end) if self.newest is None else (self.newest.first, self.newest.target)
        return first - 0.5 <= x <= last + 0.5

    def pixels(self, snapshots: float) -> float:
        """Return about how wide some snapshots are drawn."""
        return PLOT_WIDTH * snapshots / (len(self.axis) + 0.2)


def _view(tables: RunTables, until: int | None) -> _View:
    facts = facts_now(tables) or planned_facts(tables.config)
    windows, train, window = step_windows(tables, until), training_snapshots(tables), facts.window
    if not windows:
        train = train or range(max(24, 3 * window))
        middle = train.start + (len(train) - window) // 2
        return _View(facts, None, _around(train, middle + (window + SNAPSHOTS_SHOWN) // 2), middle, True)
    if train is None:
        train = range(min(step.first for step in windows), max(step.target for step in windows) + 1)
    newest = windows[-1]
    start = newest.first if newest.length < window else newest.target - window + 1
    return _View(facts, newest, _around(train, newest.target + 20), start, start + window <= train.stop, windows)


def _around(train: range, end: int) -> range:
    """Return the snapshots of an axis: all, or those before about ``end``; it moves by ten."""
    if len(train) <= SNAPSHOTS_SHOWN:
        return train
    last = min(max(end - end % 10, train.start + SNAPSHOTS_SHOWN), train.stop)
    return range(last - SNAPSHOTS_SHOWN, last)


def window_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the window of the newest step, above the windows of the steps before on the same axis."""
    view = _view(tables, options.step)
    return _sampled_figure(tables, view) if is_sampled(tables) else _decayed_figure(tables, view, options.preview)


def _decayed_figure(tables: RunTables, view: _View, preview: Mapping[str, Any]) -> Figure:
    proposed = view.facts.changed(preview)
    circles = handles(proposed, view.proposed_end, bars=view.newest) if has_decay(tables) else []
    data, notes, shapes = _share_bars(view, circles), _counts(view, exchanged=tables.ranks > 1), []
    proposes = is_proposal(view.facts, preview)
    if view.is_short and view.is_reached and not proposes:
        shapes = _reached(view)
        notes.append(_reached_note(view))
    decays = view.facts.shape.full_snapshots < view.facts.window or bool(view.newest and view.newest.counts)
    keys: list[Key] = [("full", FULL, "box")]
    keys += [("decayed", DECAYED, "box"), ("left out", LEFT_OUT, "box")] if decays else []
    if proposes:
        data.append(outline(proposed, view.proposed_end))
        notes.append(_needs_note(view, preview, are_nodes_known=facts_now(tables) is not None))
        keys.append(("proposed", MARK_COLOUR, "dash"))
    axis: Attributes = {"range": [0, 100], "tickvals": [0, 50, 100], "ticktext": ["0%", "50%", "100%"]}
    figure = _card(tables, view, data, keys, yaxis=axis, annotations=[*notes, *_share_title(view)], shapes=shapes)
    is_outlined = proposes or (view.is_short and view.is_reached)
    figure["layout"]["meta"]["handles"] = [
        circle for circle in circles if view.axis.start <= circle["x"] and (is_outlined or view.has_bar_at(circle["x"]))
    ]
    return figure


def _sampled_figure(tables: RunTables, view: _View) -> Figure:
    max_edges = max((edges for window in view.windows for edges in window.sampled), default=0)
    snapshots = list(range(view.start, view.end + 1)) if view.newest is None else _snapshots(view.newest)
    edges = list(view.newest.sampled) if view.newest is not None and view.newest.sampled else [1] * len(snapshots)
    top = 1.08 * (max_edges or 1)
    kind = _Bars("sampled edges", DECAYED, snapshots, edges, "snapshot %{x}: %{y:,} sampled edges")
    data = _bar_traces(view, [kind], top=top)
    axis: Attributes = {"range": [0, top], "tickformat": "~s", "nticks": 3, "showticklabels": bool(max_edges)}
    keys: list[Key] = [("sampled edges", DECAYED, "box")]
    length = f"<b>{len(snapshots)} snapshot{'s' * (len(snapshots) > 1)}</b>"
    notes = [_over(length, snapshots[0] - 0.45, DECAYED_TEXT), _corner("Sampled edges", 1)]
    return _card(tables, view, data, keys, yaxis=axis, annotations=notes)


def _card(
    tables: RunTables,
    view: _View,
    data: list[Attributes],
    keys: Sequence[Key],
    *,
    yaxis: Attributes,
    annotations: Sequence[Attributes],
    shapes: Sequence[Attributes] = (),
) -> Figure:
    """Return the bars over the windows of the steps before."""
    history, steps_axis, note = _history(tables, view)
    ticks: Attributes = {} if view.newest is not None or training_snapshots(tables) else {"showticklabels": False}
    return card(
        [*data, *history],
        "Window that a step will train on" if view.newest is None else f"Window of step {view.newest.step:,}",
        keys=keys,
        x_title="training snapshot, oldest to newest",
        barmode="overlay",
        height=HEIGHT,
        margin={"l": 70, "t": 20, "b": 34, "r": 10},
        xaxis={
            "range": [view.axis.start - 0.6, view.axis.stop - 0.4],
            "showgrid": False,
            "dtick": _tick_distance(len(view.axis)),
            "tickformat": "d",
            "anchor": "y2",
            **ticks,
        },
        yaxis={"domain": list(UPPER), "showgrid": False, **yaxis},
        yaxis2={"domain": list(LOWER), "showgrid": False, "zeroline": False, "tickfont": {"size": 11}, **steps_axis},
        annotations=[*annotations, note],
        shapes=list(shapes),
    )


def _tick_distance(snapshots: int) -> int:
    return next(distance for distance in (1, 2, 5, 10, 20) if snapshots <= 16 * distance or distance == 20)


def _corner(text: str, y: float) -> Attributes:
    """Return a title at the right end above one of the two parts."""
    return label(text, 1, y, SOFT_COLOUR, xref="paper", yref="paper", xanchor="right", yanchor="bottom")


# The window of the newest step


def _snapshots(window: StepWindow) -> list[int]:
    return list(range(window.first, window.target + 1))


def _share_bars(view: _View, circles: Sequence[Attributes]) -> list[Attributes]:
    """Return full, decayed and left out shares of nodes, in percent; texts make room for circles."""
    if view.newest is None:
        first, shares, full = view.start, view.facts.shares(), view.facts.full
    else:
        first, shares, full = view.newest.first, view.newest.shares(view.facts.chunks), view.newest.full
    percents = np.round(100 * np.array(shares), 2).tolist()
    snapshots, border = list(range(first, first + len(shares))), len(shares) - full
    decayed, heights = snapshots[:border], percents[:border]
    left_out = [round(100 - percent, 2) for percent in heights]
    kinds = (
        _Bars("decayed", DECAYED, decayed, heights, "snapshot %{x}: %{y:.0f}% of the nodes of every part"),
        _Bars("left out", LEFT_OUT, decayed, left_out, "snapshot %{x}: %{y:.0f}% left out", base=heights),
        _Bars("full", FULL, snapshots[border:], percents[border:], "snapshot %{x}: all nodes"),
    )
    data = _bar_traces(view, kinds, top=100)
    return [*data, _share_texts(decayed, heights, circles)] if border and len(view.axis) <= LABELLED else data


@dataclass(frozen=True, slots=True)
class _Bars:
    """Bars of one colour, from ``base`` up where there is one: such bars are never stacked."""

    name: str
    colour: str
    snapshots: Sequence[int]
    heights: Sequence[float]
    hover: str
    base: Sequence[float] | None = None

    def trace(self, axis: range) -> Attributes:
        """Return the bars of the snapshots on the axis."""
        visible = [number for number, snapshot in enumerate(self.snapshots) if snapshot in axis]
        x, y = ([values[number] for number in visible] for values in (self.snapshots, self.heights))
        style: Attributes = {"width": 0.86, "marker": {"color": self.colour, "line": {"width": 0}}}
        if self.base is not None:
            style["base"] = [self.base[number] for number in visible]
        return bars(self.name, x, y, None, f"{self.hover}<extra></extra>", **style)


def _bar_traces(view: _View, kinds: Sequence[_Bars], *, top: float) -> list[Attributes]:
    """Return bars by kind; pale ones stand for all other snapshots."""
    in_window = {snapshot for kind in kinds for snapshot in kind.snapshots}
    outside = [snapshot for snapshot in view.axis if snapshot not in in_window]
    pale = _Bars("other snapshots", OUTSIDE, outside, [top] * len(outside), "snapshot %{x}: not in this window")
    traces = [kind.trace(view.axis) for kind in (pale, *kinds)]
    return [trace for trace in traces if trace["x"]]


def _share_texts(snapshots: list[int], percents: list[float], circles: Sequence[Attributes]) -> Attributes:
    """Return the share on each decayed bar; above or below a circle that covers it."""
    heights = []
    for snapshot, percent in zip(snapshots, percents, strict=True):
        is_covered = any(circle["x"] == snapshot and abs(circle["y"] - percent) < COVERED for circle in circles)
        heights.append(percent + (0 if not is_covered else 9 if percent < 80 else -24))
    texts = [percent_text(percent / 100) for percent in percents]
    style: Attributes = {"mode": "text", "text": texts, "textposition": "top center", "hoverinfo": "skip"}
    return line("shares", snapshots, heights, textfont={"size": 11, "color": TEXT_COLOUR}, cliponaxis=False, **style)


def _counts(view: _View, *, exchanged: bool) -> list[Attributes]:
    """Return how many snapshots are decayed and full, over their bars; how they are used where there is room."""
    window = view.facts.window
    if view.newest is not None and view.is_short:
        count, text = f"{view.newest.length} of {window}", ": the segment starts here"
        begin, end = view.newest.first - 0.45, view.axis.stop - _title_snapshots(view)
        fits = _fits(view, count + text, end - begin)
        return [_over(f"<b>{count}</b>{text}", begin if fits else end, FULL_TEXT, xanchor="left" if fits else "right")]
    full = view.facts.full if view.newest is None else view.newest.full
    decayed = (window if view.newest is None else view.newest.length) - full
    border, notes = view.end - full + 0.55, []
    if decayed:
        text = f"{decayed} decayed"
        detail = ", not exchanged" if exchanged and _fits(view, f"{text}, not exchanged", decayed) else ""
        if _fits(view, text, decayed):
            notes.append(_over(f"<b>{text}</b>{detail}", view.end - full - decayed + 0.55, DECAYED_TEXT))
        else:  # beside the border, where full ones begin
            notes.append(_over(f"<b>{text}</b>", border - 0.2, DECAYED_TEXT, xanchor="right"))
    text = f"{full} full"
    room = view.axis.stop - border - _title_snapshots(view)
    detail = ", exchanged between ranks" if exchanged and _fits(view, f"{text}, exchanged between ranks", room) else ""
    return [*notes, _over(f"<b>{text}</b>{detail}", border, FULL_TEXT)]


def _share_title(view: _View) -> list[Attributes]:
    """Return the title of the bars at the right end; where the window is, at the left one if there is room."""
    width, of_count = _title_snapshots(view), LETTER * len("2 full") / view.pixels(1)
    if view.is_short or view.end + max(0.5, of_count - 0.5) < view.axis.stop - width:
        return [_corner(SHARE_TITLE, 1)]
    return [{**_corner(SHARE_TITLE, 1), "x": 0, "xanchor": "left"}] if view.start - view.axis.start > width else []


def _title_snapshots(view: _View) -> float:
    """Return how many snapshots are as wide as the title at the right end, with a gap before it."""
    return (len(SHARE_TITLE) + 2) * LETTER * len(view.axis) / PLOT_WIDTH


def _fits(view: _View, text: str, snapshots: float) -> bool:
    return LETTER * len(text) <= view.pixels(snapshots)


def _over(text: str, x: float, colour: str, *, xanchor: str = "left") -> Attributes:
    return label(text, x, 1, colour, yref="paper", xanchor=xanchor, yanchor="bottom", yshift=1)


def _reached(view: _View) -> list[Attributes]:
    """Return dotted outlines of the window that the segment will reach, tinted where it has no bars yet."""
    assert view.newest is not None
    shares, full = view.facts.shares(), view.facts.full
    outlines = []
    for snapshot, share in zip(range(view.start, view.end + 1), shares, strict=True):
        if snapshot in view.axis:
            colour = FULL if snapshot > view.end - full else DECAYED
            tint = "rgba(0,0,0,0)" if view.has_bar_at(snapshot) else TINTS[colour]
            style: Attributes = {
                "line": {"color": colour, "width": 1.2, "dash": "dot"},
                "fillcolor": tint,
                "layer": "above",
            }
            outlines.append(box((snapshot - 0.43, snapshot + 0.43), (0, 100 * share), **style))
    return outlines


def _reached_note(view: _View) -> Attributes:
    assert view.newest is not None
    steps = view.facts.window - view.newest.length
    text = f"dotted: the window<br>in {steps} step{'' if steps == 1 else 's'}"
    x, anchor = _beside(view, view.end)
    return label(text, x, 40, SOFT_COLOUR, align="left", xanchor=anchor)


def _needs_note(view: _View, preview: Mapping[str, Any], *, are_nodes_known: bool) -> Attributes:
    """Return what a proposed window needs, beside it."""
    text = needs_text(view.facts, preview, are_nodes_known=are_nodes_known)
    x, anchor = _beside(view, view.proposed_end)
    return label(text, x, 78, MARK_COLOUR, 12, align="left", xanchor=anchor, bgcolor="rgba(255,255,255,0.8)")


def _beside(view: _View, end: int) -> tuple[float, str]:
    """Return a place right of a whole window and the anchor of a text there; left of it where there is more room."""
    start = end - view.facts.window + 1
    right, room_left = view.axis.stop - end, start - view.axis.start
    return (end + 0.9, "left") if right >= room_left else (start - 0.9, "right")


# The windows of the steps before


def _history(tables: RunTables, view: _View) -> tuple[list[Attributes], Attributes, Attributes]:
    """Return the windows of the newest steps, a row each, with the axis of steps and a title."""
    windows = view.windows[-HISTORY:]
    if not windows:
        waiting = label(FIRST_STEP, 0.5, sum(LOWER) / 2, SOFT_COLOUR, 12, xref="paper", yref="paper")
        return [NO_TRACE], {"range": [0, 1], "showticklabels": False}, waiting
    newest, oldest = windows[-1].step, windows[0].step
    max_edges = max((edges for window in windows for edges in window.sampled), default=1) or 1
    rows = []
    for window in windows:
        levels = zip(_snapshots(window), _levels(window, chunks_at(tables, window.step), max_edges), strict=True)
        by_snapshot = {snapshot: round(float(level), 3) for snapshot, level in levels}
        rows.append([by_snapshot.get(snapshot) for snapshot in view.axis])
    hover: Attributes = {"hover": "step %{y}, snapshot %{x}<extra></extra>", "hoverongaps": False}
    style: Attributes = {"yaxis": "y2", "showscale": False, "xgap": 1, "ygap": 0.5, **hover}
    trace = heat("windows", rows, view.axis, [window.step for window in windows], SCALE, span=(0, 1), **style)
    ticks = {newest: f"step {newest:,}" if newest < 100_000 else f"{newest:,}", oldest: f"{oldest:,}"}
    axis: Attributes = {
        "range": [newest - HISTORY + 0.5, newest + 0.5],
        "tickvals": [*ticks],
        "ticktext": [*ticks.values()],
    }
    title = "Windows of the last step" if len(windows) == 1 else f"Windows of the last {len(windows)} steps"
    return [trace], axis, _corner(title, LOWER[1] + 0.005)


def _levels(window: StepWindow, chunks: int, most_edges: int) -> Sequence[float]:
    """Return where every snapshot is on the colour scale."""
    if window.sampled:
        return [DECAYED_LEVEL * edges / most_edges for edges in window.sampled]
    border = window.length - window.full
    return [DECAYED_LEVEL * share for share in window.shares(chunks)[:border]] + [1.0] * window.full


# Caption


def window_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return what the newest step trains on, or what a proposed window would hold."""
    window, facts = newest_window(tables, options.step), facts_now(tables)
    if is_sampled(tables):
        return _sampled_caption(tables, window)
    are_nodes_known, facts = facts is not None, facts or planned_facts(tables.config)
    if is_proposal(facts, options.preview):
        return _proposal_caption(facts, options.preview, are_nodes_known=are_nodes_known)
    if window is None:
        return _planned_caption(facts, are_nodes_known=are_nodes_known)
    step = f"{window.step:,}"
    if window.length < facts.window:
        return captions.SEGMENT_START.format(step=step, length=window.length, window=facts.window)
    fields = {"step": step, "full": window.full, "rows": f"{window.rows:,}"}
    if not window.counts:
        return captions.WHOLE_WINDOW.format(**fields)
    return captions.WINDOW.format(**fields, decayed=len(window.counts), all_rows=f"{facts.full_rows:,}")


def _proposal_caption(facts: TrapezoidFacts, preview: Mapping[str, Any], *, are_nodes_known: bool) -> str:
    setting, proposed = setting_text(preview), facts.changed(preview)
    if are_nodes_known:
        return captions.PROPOSAL.format(setting=setting, rows=f"{proposed.rows():,}", now=f"{facts.rows():,}")
    share, present = percent_text(proposed.kept_share()), percent_text(facts.kept_share())
    return captions.PROPOSED_SHARE.format(setting=setting, share=share, now=present)


def _planned_caption(facts: TrapezoidFacts, *, are_nodes_known: bool) -> str:
    if are_nodes_known:
        return captions.PLANNED.format(rows=f"{facts.rows():,}", all_rows=f"{facts.full_rows:,}")
    if facts.full == facts.window:
        return captions.PLANNED_WHOLE.format(window=facts.window)
    return captions.PLANNED_SHARE.format(share=percent_text(facts.kept_share()), window=facts.window)


def _sampled_caption(tables: RunTables, window: StepWindow | None) -> str:
    if window is None:
        flat = tables.config.flat
        return captions.PLANNED_SAMPLE.format(fanout=flat["fanout"], window=flat["window"])
    return captions.SAMPLED_WINDOW.format(step=f"{window.step:,}", length=window.length, edges=f"{window.edges:,}")


WINDOW = Chart(
    name="window",
    title="Window of a step",
    figure=window_figure,
    caption=window_caption,
    section="picture",
    applies=has_windows,
    help="Above, the share of nodes that each snapshot of the newest window keeps. Below, a row for each of the "
    "last 40 steps, the newest on top.",
)
