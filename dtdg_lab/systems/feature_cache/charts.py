"""Charts of remote features: traffic, cache contents, windows, latency and congestion."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby
from math import log10
from statistics import fmean, median
from typing import Any

import numpy as np

from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.events import Links, links_of
from dtdg_lab.systems.feature_cache.log import CacheChoice, CacheWindow, EpochHits, Fetched, ResolvedStep
from dtdg_lab.visualization.charts import (
    FROM_ZERO,
    STEPS,
    Drawn,
    Panel,
    bars,
    box,
    byte_unit,
    chart,
    colour_bar,
    heat,
    label,
    level_bars,
    line,
    points,
    right_axis,
)
from dtdg_lab.visualization.layout import Figure, join_words, percent
from dtdg_lab.visualization.palette import (
    BASELINE_COLOUR,
    HEAT_SCALES,
    MARK_COLOUR,
    PHASE_COLOURS,
    STEP_COLOUR,
    TEXT_COLOUR,
    WARNING_COLOUR,
    series_colour,
)
from dtdg_lab.visualization.partition import part_axis
from dtdg_lab.visualization.series import PartLog
from dtdg_lab.visualization.style import Marks, shown_indices

# Link delays and rates over time, from events ``congestion``, also drawn behind other charts.


_SHADE = "230,159,0"  # amber
_FAINT, _FULL = 0.10, 0.34  # how strongly the least and the worst congestion are drawn
_MOST_BANDS, _MOST_DRAWN = 200, 400


class CongestionLog(PartLog[Links]):
    """Events ``congestion`` of one run, in bounded memory."""

    kept = 4000  # changes: an oscillating pattern tells many

    def __init__(self, marks: Marks | None = None) -> None:
        super().__init__()
        self._marks = Marks() if marks is None else marks
        self._ordered: list[Links] | None = None  # None where they have changed since

    def event(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event; of several at one step the last one holds."""
        step = int(row["step"] or 0)
        self.add(0, step, attempt, links_of(row["data"], step))
        self._ordered = None

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt had from ``step`` on."""
        super().truncate(step, attempt)
        self._ordered = None

    @property
    def now(self) -> Links | None:
        """The links in force; None where none were logged."""
        changes = self.changes()
        return changes[-1] if changes else None

    def changes(self) -> list[Links]:
        """All that are kept, in order."""
        if self._ordered is None:
            self._ordered = self.of(0)
        return self._ordered

    def at(self, step: int) -> Links | None:
        """The links in force at a step; None before the first were logged."""
        changes = self.changes()
        place = bisect_right(changes, step, key=lambda links: links.step)
        return changes[place - 1] if place else None

    def stretches(self, first: float, last: float) -> list[tuple[float, float, Links]]:
        """What held between two steps: from, to, links; from the first change on."""
        changes = self.changes()
        ends = [*(float(links.step) for links in changes[1:]), last][: len(changes)]
        return [
            (max(first, float(links.step)), min(last, end), links)
            for links, end in zip(changes, ends, strict=True)
            if end > first and links.step < last
        ]

    def bands(self, first: float, last: float) -> list[dict[str, Any]]:
        """Shapes to be drawn behind a chart over steps: the darker, the slower its slowest link."""
        found = [(begin, end, links) for begin, end, links in self.stretches(first, last) if links.congested]
        worst = max((_severity(links) for *_, links in found), default=0.0) or 1.0
        return [
            box((begin, end), (0, 1), yref="paper", layer="below", line={"width": 0}, fillcolor=_shade(links, worst))
            for begin, end, links in found[-_MOST_BANDS:]
        ]

    def injected(self, owner: int, first: float, last: float) -> tuple[list[float], list[float]]:
        """Steps from which an owner's delay is how many milliseconds, and the last step; none where it has none."""
        found = self.stretches(first, last)
        late = np.array([links.delay_of(owner) for *_, links in found])
        if not late.any():
            return [], []
        shown = shown_indices(late, _MOST_DRAWN).tolist()
        return [*(found[at][0] for at in shown), found[-1][1]], [*late[shown].tolist(), float(late[-1])]

    def chart(self, title: str, y_title: str, data: list[Drawn], steps: Sequence[int], **looks: Any) -> Figure:
        """A chart over steps with the run's changes, and the congestion behind it."""
        figure = self._marks.chart(title, y_title, data, steps, showlegend=True, **looks)
        if data:
            bands = self.bands(steps[0] - 0.5, steps[-1] + 0.5)
            figure["layout"]["shapes"] = [*bands, *figure["layout"]["shapes"]]
        return figure


def _stairs(name: str, x: Sequence[Any], y: Sequence[Any], colour: str, hover: str, **more: Any) -> Drawn:
    """A line that holds each value up to the next."""
    width, dash = more.pop("width", 2), more.pop("dash", "solid")
    looks = {"color": colour, "width": width, "shape": "hv", "dash": dash}
    return line(name, x, y, colour, hover, line=looks, **more)


def _shade(links: Links, worst: float) -> str:
    return f"rgba({_SHADE},{_FAINT + (_FULL - _FAINT) * _severity(links) / worst:.2f})"


def _severity(links: Links) -> float:
    """How slow the slowest link is: milliseconds, or those that a megabit takes at its rate, whichever is more."""
    rates = [rate for owner in range(links.parts) if (rate := links.rate_of(owner)) is not None]
    late = max((links.delay_of(owner) for owner in range(links.parts)), default=0.0)
    return max([late, *(1000.0 / rate for rate in rates if rate > 0)])


# Windows and hit rates over time, with the congestion behind them (Figure 7 of GreenDyGNN).


_POINTS = 300  # of a line, so that pictures stay small
NO_CACHE = "this policy keeps no cache"
NO_WINDOW = "no cache was swapped in yet"
NO_BATCH = "no batch was resolved yet"
_ENOUGH = 2  # epochs from which there is a line


def windows_panel(
    windows: Mapping[tuple[int, ...], Sequence[CacheWindow]],
    congestion: CongestionLog,
    *,
    cached: bool,
    now: int | None = None,
) -> Panel:
    """W of every part over steps, congestion behind; crosses where a cache came late.

    Args:
        windows: by part, in order.
        congestion: of the run.
        cached: whether the policy has windows at all.
        now: the newest step, up to which the last window is drawn.
    """
    every = [window for each in windows.values() for window in each]
    steps = [window.step for window in every]
    span = [min(steps), max([*steps, now or 0])] if steps else []
    data: list[Drawn] = []
    for (part, *_), each in windows.items():
        shown = [*each[-_POINTS:], each[-1]]
        x, y = [*(window.step for window in shown[:-1]), span[1]], [window.length for window in shown]
        dots: Drawn = {"mode": "lines+markers", "marker": {"size": 4}}
        said = [_window_words(window) for window in shown]
        data.append(_stairs(f"part {part}", x, y, series_colour(part), "%{customdata}", customdata=said, **dots))
    late = [window for each in windows.values() for window in each[-_POINTS:] if window.late_steps > 0]
    if late:
        x, y = [window.step for window in late], [window.length for window in late]
        crosses: Drawn = {"size": 8, "marker": {"symbol": "x"}, "customdata": [_window_words(each) for each in late]}
        data.append(points("came late", x, y, WARNING_COLOUR, "%{customdata}<extra>late</extra>", **crosses))
    lengths = [max(window.length, 1) for window in every] or [1]  # a note cannot stand on an axis of powers
    bounds = [log10(min(lengths) / 1.4), log10(max(lengths) * 1.4)]
    axis: Drawn = {"type": "log", "tickvals": list(WINDOWS), "range": bounds} if every else {}
    looks: Drawn = {"empty": NO_WINDOW if cached else NO_CACHE, "yaxis": axis}
    figure = congestion.chart("Window of the cache", "W (steps between rebuilds)", data, span, **looks)
    return figure, _windows_words(every, congestion) if every else _WINDOWS_READING


_WINDOWS_READING = "Shaded: links are congested, the stronger the slower. Look whether W follows."


def _window_words(window: CacheWindow) -> str:
    late = f", {window.late_steps} steps late" if window.late_steps > 0 else ""
    liked = f", most for part {window.biased}" if window.biased >= 0 else ""
    return (
        f"window {window.number} from step {window.step}: W {window.length}{late}{liked}; {window.held:,} rows, "
        f"{window.copied:,} kept, {window.fetched:,} fetched"
    )


def _windows_words(every: Sequence[CacheWindow], congestion: CongestionLog) -> str:
    calm, slow = ([w.length for w in every if _is_congested(congestion, w.step) is wanted] for wanted in (False, True))
    late = sum(window.late_steps > 0 for window in every)
    text = f"{len(every):,} caches were swapped in, {late:,} of them late."
    if calm and slow:
        text += f" W is {fmean(calm):.3g} in the mean where links are free and {fmean(slow):.3g} where they are not."
    return f"{text} {_WINDOWS_READING}"


def _is_congested(congestion: CongestionLog, step: int) -> bool:
    links = congestion.at(step)
    return links is not None and bool(links.congested)


def hits_panel(
    steps: Mapping[int, Sequence[ResolvedStep]],
    epochs: Mapping[int, EpochHits],
    congestion: CongestionLog,
    *,
    cached: bool,
) -> Panel:
    """Share of the remote rows that caches had: by epoch, and of the newest steps; congestion behind.

    Args:
        steps: of the newest steps, what every part asked for.
        epochs: of all epochs, the sums.
        congestion: of the run.
        cached: whether the policy has a cache.
    """
    ended = {epoch: each for epoch, each in epochs.items() if each.rate is not None}
    ends = [*(each.first for each in ended.values()), *(each.last for each in ended.values())]
    span = [min(ends), max(ends)] if ends else []
    newest = _binned(steps)
    x, y = [each.middle for each in ended.values()], [round(100 * (each.rate or 0.0), 2) for each in ended.values()]
    hover, colour = "epoch %{customdata}: %{y:.1f} %<extra></extra>", series_colour(0)
    dots: Drawn = {"mode": "lines+markers" if len(ended) >= _ENOUGH else "markers", "customdata": list(ended)}
    data = [
        line("newest steps", *newest, STEP_COLOUR, "step %{x}: %{y:.1f} %<extra></extra>", width=1.2, mode="lines"),
        line("epochs", x, y, colour, hover, marker={"size": 5, "color": colour}, **dots),
    ]
    looks: Drawn = {"empty": NO_BATCH, "yaxis": {"range": [0, 101]}}
    figure = congestion.chart("Hit rate", "rows found in the cache (%)", data if ended else [], span, **looks)
    return figure, _hits_words(ended, cached)


def _binned(steps: Mapping[int, Sequence[ResolvedStep]]) -> tuple[list[float], list[float]]:
    """Hit rates of stretches of the newest steps: about ``_POINTS`` of them."""
    span = max(1, -(-len(steps) // _POINTS))
    x: list[float] = []
    y: list[float] = []
    for _, found in groupby(enumerate(steps.items()), key=lambda each: each[0] // span):
        stretch = [each for _, each in found]
        rows = [row for _, each in stretch for row in each]
        if remote := sum(row.remote for row in rows):
            x.append(round(fmean(step for step, _ in stretch), 1))
            y.append(round(100 * sum(row.hit for row in rows) / remote, 2))
    return x, y


def _hits_words(epochs: Mapping[int, EpochHits], cached: bool) -> str:
    if not cached:
        return "Without a cache every remote row is fetched: the hit rate is 0 %."
    if not epochs:
        return "Share of other parts' rows that the cache had; the rest is fetched while training may wait."
    newest = max(epochs)
    best = max(epochs, key=lambda epoch: epochs[epoch].rate or 0.0)
    return (
        f"Epoch {newest}: {percent(epochs[newest].rate or 0.0)} of {epochs[newest].remote:,} remote rows were in a "
        f"cache; the most was {percent(epochs[best].rate or 0.0)}, in epoch {best}. A smaller window knows better what "
        "is asked next, and costs more rebuilds."
    )


# Whose rows caches hold, and what they are good for: by owner, now and over time.


Windows = Mapping[tuple[int, ...], Sequence[CacheWindow]]
_RECENT = 50  # steps that hits by owner are counted over
_MISSED = "#D5DAE0"


def contents_panel(windows: Windows, *, cached: bool) -> Panel:
    """The newest cache of every part: rows by owner, and a mark at what it may hold."""
    newest = {part[0]: each[-1] for part, each in windows.items() if each}
    names = [f"part {part}" for part in newest]
    owners = 1 + max((owner for window in newest.values() for owner in range(len(window.by_owner))), default=0)
    data: list[Drawn] = []
    for owner in range(owners if newest else 0):
        held = [window.by_owner[owner] if owner < len(window.by_owner) else 0 for window in newest.values()]
        if any(held):
            hover = f"%{{y}} holds %{{x:,}} rows of part {owner}<extra></extra>"
            data.append(level_bars(f"rows of part {owner}", names, held, series_colour(owner), hover))
    if newest:
        room = [window.capacity for window in newest.values()]
        mark = {"symbol": "line-ns", "line": {"width": 2, "color": BASELINE_COLOUR}}
        hover = "%{y} may hold %{x:,}<extra></extra>"
        data.append(points("at most", room, names, BASELINE_COLOUR, hover, size=16, marker=mark))
    named = {"type": "category", "categoryarray": names[::-1], "categoryorder": "array"}
    axes: Drawn = {"xaxis": FROM_ZERO, "yaxis": {**(named if newest else {}), "showgrid": False}}
    looks: Drawn = {"barmode": "stack", "bargap": 0.35, "empty": NO_WINDOW if cached else NO_CACHE}
    figure = chart("Caches now", "rows held", "", data, showlegend=True, **axes, **looks)
    return figure, _contents_words(newest) if newest else _CONTENTS


_CONTENTS = "A cache holds the rows that its part is about to ask others for most often."


def _contents_words(newest: Mapping[int, CacheWindow]) -> str:
    held, room = (sum(getattr(window, name) for window in newest.values()) for name in ("held", "capacity"))
    kept = sum(window.copied for window in newest.values())
    liked = [f"part {part} prefers part {window.biased}" for part, window in newest.items() if window.biased >= 0]
    text = f"{held:,} of {room:,} rows are held"
    text += f", {percent(kept / held)} of them kept from the cache before" if held else ""
    return f"{text}. {join_words(liked) + '. ' if liked else ''}{_CONTENTS}"


def shares_panel(windows: Windows, congestion: CongestionLog, *, cached: bool) -> Panel:
    """Share of the rows held that each owner has, over all caches, at every swap; marked where one is preferred."""
    swaps = sorted((window for each in windows.values() for window in each), key=lambda window: window.step)
    now: dict[int, tuple[int, ...]] = {}
    at: dict[int, list[int]] = {}
    for window in swaps:
        now[window.part] = window.by_owner
        owners = max(len(each) for each in now.values())
        at[window.step] = [sum(each[owner] for each in now.values() if owner < len(each)) for owner in range(owners)]
    shown = sorted(at)[-_POINTS:]
    span = [shown[0], shown[-1]] if shown else []
    data: list[Drawn] = []
    for owner in range(max((len(at[step]) for step in shown), default=0)):
        y = [_percent_of(at[step], owner) for step in shown]
        hover = f"step %{{x}}: %{{y:.0f}} %<extra>rows of part {owner}</extra>"
        data.append(_stairs(f"part {owner}", shown, y, series_colour(owner), hover))
    liked = [window for window in swaps if window.biased >= 0 and window.step >= shown[0]]
    if liked:
        y = [_percent_of(at[window.step], window.biased) for window in liked]
        said = [f"part {window.part} prefers part {window.biased}" for window in liked]
        stars: Drawn = {"size": 8, "marker": {"symbol": "star"}, "customdata": said}
        hover = "step %{x}: %{customdata}<extra></extra>"
        data.append(points("preferred", [window.step for window in liked], y, MARK_COLOUR, hover, **stars))
    looks: Drawn = {"empty": NO_WINDOW if cached else NO_CACHE, "yaxis": {"range": [0, 101]}}
    return congestion.chart("Shares of the cache", "of the rows held (%)", data, span, **looks), _SHARES


_SHARES = "Shaded: links are congested. A star: the policy gives most of the cache to that owner's rows."


def _percent_of(counts: Sequence[int], owner: int) -> float | None:
    whole = sum(counts)
    return round(100 * counts[owner] / whole, 2) if whole and owner < len(counts) else None


def owners_panel(steps: Mapping[int, Sequence[ResolvedStep]]) -> Panel:
    """Rows asked for in the newest steps by owner: those that caches had, and those that were fetched."""
    recent = [row for step in list(steps)[-_RECENT:] for row in steps[step]]
    owners = max((len(row.hits) for row in recent), default=0)
    count = min(len(steps), _RECENT)
    hits, misses = (
        [sum(getattr(row, name)[owner] for row in recent if owner < len(getattr(row, name))) for owner in range(owners)]
        for name in ("hits", "misses")
    )
    asked = any(hits) or any(misses)
    data = [
        bars(name, range(owners), [round(each / count, 2) for each in counts], colour, _OF_OWNER)
        for name, counts, colour in (("in the cache", hits, series_colour(0)), ("fetched", misses, _MISSED))
        if asked
    ]
    axes: Drawn = {"xaxis": {"dtick": 1, "showgrid": False}, "yaxis": FROM_ZERO}
    looks: Drawn = {"barmode": "stack", "bargap": 0.35, "empty": NO_BATCH, "showlegend": True}
    figure = chart("Rows asked for by owner", "owner", "rows of a step, all parts", data, **axes, **looks)
    described = [
        f"part {owner} {percent(hits[owner] / (hits[owner] + misses[owner]))}"
        for owner in range(owners)
        if hits[owner] + misses[owner]
    ]
    words = f"In the cache, of the last {count} steps: {join_words(described)}. {_OWNERS}"
    return figure, words if asked else _OWNERS


_OF_OWNER = "of part %{x}: %{y:,.4~g} rows of a step"
_OWNERS = "The slowest owner decides how long a batch waits: look whether its grey part is small."


# What is added to the links now, owner by requester.


_WRITTEN = 8  # parts up to which every cell has room for its numbers
_DARK = 0.55  # share of the largest delay from which writing is white


def congestion_panel(links: Links | None, parts: int) -> Panel:
    """Delay of every link as a colour, with its rate written where it is limited.

    Args:
        links: in force; None where none were logged.
        parts: P.
    """
    count = links.parts if links is not None else parts
    titles = ("Links now", "asked by part", "owner")
    axes: Drawn = {"xaxis": {**part_axis(count), "range": [-0.5, count - 0.5]}, "yaxis": part_axis(count)}
    if links is None:
        return chart(*titles, [], empty="no congestion is added", **axes), _words(links)
    cells = [
        [None if owner == other else links.delay_ms[owner][other] for other in range(count)] for owner in range(count)
    ]
    top = max((each for row in cells for each in row if each is not None), default=0.0)
    bar = {"colorbar": colour_bar("ms added")} if top else {"showscale": False}
    said = [[_to_dict(links, owner, other) for other in range(count)] for owner in range(count)]
    hover = "part %{y} to part %{x}: %{customdata}<extra></extra>"
    looks: Drawn = {"span": (0, top or 1.0), "xgap": 2, "ygap": 2, "customdata": said, "hover": hover, **bar}
    trace = heat("Links now", cells, range(count), range(count), HEAT_SCALES["halo"], **looks)
    notes = _written(links, top) if count <= _WRITTEN else []
    return chart(*titles, [trace], annotations=notes, **axes), _words(links)


def _to_dict(links: Links, owner: int, other: int) -> str:
    rate = links.mbit[owner][other]
    return f"{links.delay_ms[owner][other]:.3g} ms" + (", any rate" if rate is None else f", {rate:.4g} Mbit/s")


def _written(links: Links, top: float) -> list[Drawn]:
    found = []
    for owner in range(links.parts):
        for other in range(links.parts):
            delay, rate = links.delay_ms[owner][other], links.mbit[owner][other]
            said = ([f"{delay:.3g} ms"] if delay else []) + ([] if rate is None else [f"{rate:.4g} Mbit/s"])
            if owner != other:
                colour = "white" if delay > _DARK * top else TEXT_COLOUR
                found.append(label("<br>".join(said or ["free"]), other, owner, colour, 10))
    return found


def _words(links: Links | None) -> str:
    reading = "Rows answer, columns ask; replies are late by this much. Gradients go their own way, untouched."
    if links is None:
        return f"Nothing is added to any link. {reading}"
    described = links.words or "nothing is added to any link"
    how = "by the kernel (netem)" if links.by == "netem" else "by the replying rank"
    return f"Pattern {links.pattern}, since step {links.step}, {how}: {described}. {reading}"


# Bytes that features cost, for batches and for caches, and how long training stood still for them.


_BARS = 80
_FEATURE_TRAFFIC_RECENT = 100  # steps that sentences are of


def traffic_panel(
    steps: Mapping[int, Sequence[ResolvedStep]], windows: Sequence[CacheWindow], row_bytes: int, marks: Marks
) -> Panel:
    """Bytes a step for misses and for rebuilds, all parts together, and how long training waits (right axis).

    A rebuild's bytes, rows times their size, stand at the step where its cache was swapped in.

    Args:
        steps: of the newest steps, what every part asked for.
        windows: caches of all parts.
        row_bytes: of a row.
        marks: of the run's changes.
    """
    at = list(steps)
    if not at:
        return chart("Bytes for features, and waiting", STEPS, "bytes a step", [], empty=NO_BATCH), _TRAFFIC
    width = max(1, -(-(at[-1] - at[0] + 1) // _BARS))
    found, built = {}, [(window, (window.step - at[0]) // width) for window in windows]
    for bar, group in groupby(at, key=lambda step: (step - at[0]) // width):
        every = [steps[step] for step in group]
        missed = sum(row.bytes for rows in every for row in rows)
        rebuilt = sum(window.fetched for window, its in built if its == bar) * row_bytes
        waited = sum(fmean(row.wait_s for row in rows) for rows in every)
        found[bar] = missed / len(every), rebuilt / len(every), waited / len(every)
    unit, factor = byte_unit(max(missed + rebuilt for missed, rebuilt, _ in found.values()))
    x = [at[0] + bar * width + (width - 1) / 2 for bar in found]
    missed_y, built_y, waited_ms = zip(*found.values(), strict=True)
    hover = "about step %{x:.0f}: %{y:.3~g} " + unit
    kinds = (("missed by batches", missed_y, "communicate"), ("for caches", built_y, "batch"))
    data = [
        bars(name, x, [round(each / factor, 4) for each in y], PHASE_COLOURS[phase], hover, width=width)
        for name, y, phase in kinds
    ]
    waits, hover = [round(1e3 * each, 4) for each in waited_ms], "about step %{x:.0f}: %{y:.3~g} ms of waiting"
    over: Drawn = {"width": 1.5, "yaxis": "y2"}
    data.append(line("waiting (right)", x, waits, WARNING_COLOUR, f"{hover}<extra></extra>", **over))
    looks: Drawn = {"barmode": "stack", "bargap": 0, "showlegend": True, "yaxis": FROM_ZERO}
    figure = marks.chart("Bytes for features, and waiting", f"{unit} a step", data, at, **looks)
    right_axis(figure["layout"], "waiting (ms a step)", 52, **FROM_ZERO)
    return figure, traffic_words(steps, windows, row_bytes)


_TRAFFIC = "Bytes for caches are hidden behind training; those that batches miss may be waited for."


def traffic_words(steps: Mapping[int, Sequence[ResolvedStep]], windows: Sequence[CacheWindow], row_bytes: int) -> str:
    """What the newest steps asked for, found, fetched and waited."""
    recent = list(steps)[-_FEATURE_TRAFFIC_RECENT:]
    rows = [row for step in recent for row in steps[step]]
    if not rows:
        return _TRAFFIC
    count = len(recent)
    remote, hit = sum(row.remote for row in rows), sum(row.hit for row in rows)
    moved = sum(row.bytes for row in rows)
    built = sum(window.fetched for window in windows if window.step >= recent[0]) * row_bytes
    waited = sum(row.wait_s for row in rows) / len(rows)
    found = f", {percent(hit / remote)} of them in a cache" if remote else ""
    return (
        f"In the last {count:,} steps all parts asked for {remote / count:,.0f} remote rows a step{found}; "
        f"{sum(row.rpcs for row in rows) / count:.3g} calls moved {format_bytes(moved / count)}, caches another "
        f"{format_bytes(built / count)}, and a part waited {format_seconds(waited)}. {_TRAFFIC}"
    )


# How long replies take, owner by owner, beside the delay that was added and what controllers take it for.


_LINK_LATENCY_POINTS = 200  # of an owner's line
_LINK_LATENCY_RECENT = 30  # fetches that a median now is of, as the paper's estimate
_MOST_SHOWN, _ROOM, _HUNG = 0.98, 1.15, 1.5  # share of the points, times its largest, and times that from which it hung
_LATE_MS = 0.1  # from which a caption mentions a delay
NO_FETCH = "nothing was fetched yet"
_LOOK = "Dashed: the delay added to its links. A reply also takes the time of its bytes."


def latency_panel(misses: Sequence[Fetched], bulk: Sequence[Fetched], congestion: CongestionLog) -> Panel:
    """Round trips of calls for batches by owner, the median of those who ask, with the delay added to them, dashed.

    Args:
        misses: calls for batches, in order of steps.
        bulk: calls of the builders of caches, likewise; drawn as open circles.
        congestion: of the run.
    """
    steps = [fetched.step for fetched in (*misses, *bulk)]
    span = [min(steps), max(steps)] if steps else []
    data: list[Drawn] = []
    for owner in sorted({fetched.owner for fetched in (*misses, *bulk)}):
        name = f"part {owner}"
        x, y = _medians([each for each in misses if each.owner == owner], span)
        hover = "about step %{x:.0f}: %{y:.3~g} ms"
        data.append(line(name, x, y, series_colour(owner), hover, width=1.8, legendgroup=name))
        shown = [each for each in bulk if each.owner == owner][-_LINK_LATENCY_POINTS:]
        if shown:
            x, y = [each.step for each in shown], [round(1e3 * each.rtt_s, 4) for each in shown]
            circles: Drawn = {"size": 5, "marker": {"symbol": "circle-open"}, "showlegend": False, "legendgroup": name}
            hover, told = "step %{x}: %{y:.3~g} ms for %{customdata} rows", [f"{each.rows:,}" for each in shown]
            data.append(points(f"{name}, for caches", x, y, series_colour(owner), hover, customdata=told, **circles))
        data += _injected(congestion, owner, span)
    top, above = _top([y for trace in data for y in trace["y"]]) if data else (0.0, 0)
    limit = {"range": [0, top]} if above else {}
    looks: Drawn = {"empty": NO_FETCH, "yaxis": {**FROM_ZERO, **limit}}
    figure = congestion.chart("Round trips by owner", "round trip (ms)", data, span, **looks)
    higher = f" {above} of the points are above the picture." if above else ""
    return figure, _latency_words(misses, bulk) + higher


def _top(values: Sequence[float]) -> tuple[float, int]:
    """Where the axis ends so that a few calls that hung do not flatten the rest, and how many values are above it."""
    ordered = sorted(values)
    top = _ROOM * ordered[int(_MOST_SHOWN * (len(ordered) - 1))]
    if not top or ordered[-1] <= _HUNG * top:
        return max(top, ordered[-1]), 0
    return top, sum(value > top for value in values)


def _medians(fetches: Sequence[Fetched], span: Sequence[int]) -> tuple[list[float], list[float]]:
    """Medians of the calls in each of at most so many stretches of steps."""
    width = max(1, -(-(span[-1] - span[0] + 1) // _LINK_LATENCY_POINTS))
    bins: dict[int, list[Fetched]] = {}
    for fetched in fetches:
        bins.setdefault((fetched.step - span[0]) // width, []).append(fetched)
    x = [round(sum(each.step for each in found) / len(found), 1) for found in bins.values()]
    return x, [round(1e3 * median(each.rtt_s for each in found), 4) for found in bins.values()]


def _injected(congestion: CongestionLog, owner: int, span: Sequence[int]) -> list[Drawn]:
    x, y = congestion.injected(owner, span[0], span[-1] + 1)
    if not x:
        return []
    name, hover = f"part {owner}", f"%{{y:.3~g}} ms added<extra>part {owner}</extra>"
    looks = {"width": 1.3, "dash": "dash", "showlegend": False, "legendgroup": name}
    return [_stairs(f"{name}, added", x, y, series_colour(owner), hover, **looks)]


def _latency_words(misses: Sequence[Fetched], bulk: Sequence[Fetched]) -> str:
    described = []
    for owner in sorted({fetched.owner for fetched in misses}):
        recent = [fetched.rtt_s for fetched in misses if fetched.owner == owner][-_LINK_LATENCY_RECENT:]
        described.append(f"part {owner} {format_seconds(median(recent))}")
    rings = " Circles are calls for caches." if bulk else ""
    return f"Replies take now: {join_words(described)}. {_LOOK}{rings}" if described else f"{_LOOK}{rings}"


def estimates_panel(choices: Mapping[tuple[int, ...], Sequence[CacheChoice]], congestion: CongestionLog) -> Panel:
    """The delay that controllers estimate for every owner, the median of those who ask, beside the one added, dashed.

    Args:
        choices: decisions by part, in order.
        congestion: of the run.
    """
    found: dict[int, dict[int, list[float]]] = {}  # owner -> step
    for each in choices.values():
        for choice in each:
            for owner in range(len(choice.delays_ms) + 1):
                late = choice.delay_ms(owner)
                if late is not None:
                    found.setdefault(owner, {}).setdefault(choice.step, []).append(late)
    steps = [step for by_step in found.values() for step in by_step]
    span = [min(steps), max(steps)] if steps else []
    data: list[Drawn] = []
    for owner, by_step in sorted(found.items()):
        name, shown = f"part {owner}", sorted(by_step)[-2 * _LINK_LATENCY_POINTS :]
        y, hover = [round(median(by_step[step]), 4) for step in shown], "step %{x}: %{y:.3~g} ms estimated"
        dots: Drawn = {"width": 1.8, "mode": "lines+markers", "marker": {"size": 4}, "legendgroup": name}
        data.append(_stairs(name, shown, y, series_colour(owner), hover, **dots))
        data += _injected(congestion, owner, span)
    looks: Drawn = {"empty": "no delay was estimated yet", "yaxis": FROM_ZERO}
    figure = congestion.chart("Delay as it is estimated", "delay (ms)", data, span, **looks)
    return figure, _estimate_words(found, congestion) if data else _ESTIMATE


_ESTIMATE = "Dashed: added. A controller sees no more than its own calls: the estimate lags behind by some of them."


def _estimate_words(found: Mapping[int, Mapping[int, Sequence[float]]], congestion: CongestionLog) -> str:
    described = []
    for owner, by_step in sorted(found.items()):
        newest = max(by_step)
        held = congestion.at(newest)
        added = held.delay_of(owner) if held is not None else 0.0
        late = median(by_step[newest])
        if max(late, added) >= _LATE_MS:
            described.append(f"part {owner} {late:.3g} ms where {added:.3g} ms are added")
    return f"At last: {join_words(described) or 'no part is late or estimated to be'}. {_ESTIMATE}"
