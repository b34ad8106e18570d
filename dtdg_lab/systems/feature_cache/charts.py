"""Charts of remote features: traffic, cache contents, windows, latency and congestion."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

import numpy as np

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.feature_store import WINDOWS
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.systems.feature_cache.log import CacheChoice, CacheWindow, EpochHits, Fetched, ResolvedStep
from dtdg_lab.visualization.grid import grid
from dtdg_lab.visualization.layout import Figure, frame, join_words, percent, with_note
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
from dtdg_lab.visualization.partition import byte_unit, colour_bar, part_axis
from dtdg_lab.visualization.style import Marks, shown_indices

# Link delays and rates over time, from events ``congestion``, also drawn behind other charts.


_KEPT = 4000  # changes: an oscillating pattern tells many
_SHADE = "230,159,0"  # amber
_FAINT, _FULL = 0.10, 0.34  # how strongly the least and the worst congestion are drawn
_MOST_BANDS, _MOST_DRAWN = 200, 400


@dataclass(frozen=True, slots=True)
class Links:
    """What was added to every link from a step on.

    Attributes:
        step: the first one.
        pattern: its name.
        delay_ms: by owner, then by requester; (P, P).
        mbit: likewise the rate; None where a link is not limited.
        by: ``emulated`` or ``netem``.
        slowest_ms: of every owner, the most of its delays.
        narrowest: of every owner, the least of its rates; None where none of its links is limited.
    """

    step: int
    pattern: str
    delay_ms: tuple[tuple[float, ...], ...]
    mbit: tuple[tuple[float | None, ...], ...]
    by: str
    slowest_ms: tuple[float, ...]
    narrowest: tuple[float | None, ...]

    @property
    def parts(self) -> int:
        """P."""
        return len(self.delay_ms)

    def delay_of(self, owner: int) -> float:
        """Milliseconds added to the slowest of an owner's links; 0 for one that these links do not have."""
        return self.slowest_ms[owner] if owner < self.parts else 0.0

    def rate_of(self, owner: int) -> float | None:
        """Mbit/s of the narrowest of an owner's links; None where none is limited."""
        return self.narrowest[owner] if owner < self.parts else None

    @property
    def congested(self) -> list[int]:
        """Owners with a link that is late or limited."""
        return [owner for owner in range(self.parts) if self.delay_of(owner) > 0 or self.rate_of(owner) is not None]

    @property
    def words(self) -> str:
        """What is added, in words, such as ``part 1 +20 ms, part 2 at 25 Mbit/s``; empty for nothing."""
        described = []
        for owner in self.congested:
            delay, rate = self.delay_of(owner), self.rate_of(owner)
            late = f" +{delay:.3g} ms" if delay else ""
            described.append(f"part {owner}{late}" + ("" if rate is None else f" at {rate:.4g} Mbit/s"))
        return join_words(described)


def links_of(data: Mapping[str, Any], step: int) -> Links:
    """The links in the data of an event ``congestion``.

    Raises:
        DataError: something is missing or does not fit.
    """
    try:
        delay = tuple(tuple(float(each or 0.0) for each in row) for row in data["delay_ms"])
        mbit = tuple(tuple(None if each is None else float(each) for each in row) for row in data["mbit"])
        pattern, by = str(data["pattern"]), str(data.get("by") or "emulated")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the event of congestion cannot be drawn ({error!r}): was it recorded by another version?"
        ) from error
    if {len(row) for row in (*delay, *mbit)} - {len(delay)} or len(mbit) != len(delay):
        raise DataError(
            "an event has congestion of links that are not a square of parts: was it recorded by another version?"
        )
    others = [[asker for asker in range(len(delay)) if asker != owner] for owner in range(len(delay))]
    slowest = tuple(max((delay[owner][each] for each in asking), default=0.0) for owner, asking in enumerate(others))
    narrowest = tuple(
        min((rate for each in asking if (rate := mbit[owner][each]) is not None), default=None)
        for owner, asking in enumerate(others)
    )
    return Links(step, pattern, delay, mbit, by, slowest, narrowest)


class CongestionLog:
    """Events ``congestion`` of one run, in bounded memory."""

    def __init__(self) -> None:
        self._changes: dict[int, tuple[int, Links]] = {}  # step -> attempt, links
        self._ordered: list[Links] | None = None  # None where they have changed since

    def event(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event; of several at one step the last one holds."""
        step = int(row["step"] or 0)
        self._changes[step], self._ordered = (attempt, links_of(row["data"], step)), None
        while len(self._changes) > _KEPT:
            del self._changes[min(self._changes)]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt had from ``step`` on."""
        self._changes = {at: kept for at, kept in self._changes.items() if at < step or kept[0] >= attempt}
        self._ordered = None

    @property
    def now(self) -> Links | None:
        """The links in force; None where none were logged."""
        changes = self.changes()
        return changes[-1] if changes else None

    def changes(self) -> list[Links]:
        """All that are kept, in order."""
        if self._ordered is None:
            self._ordered = [self._changes[at][1] for at in sorted(self._changes)]
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
            {
                "type": "rect",
                "layer": "below",
                "line": {"width": 0},
                "xref": "x",
                "yref": "paper",
                "x0": begin,
                "x1": end,
                "y0": 0,
                "y1": 1,
                "fillcolor": f"rgba({_SHADE},{_FAINT + (_FULL - _FAINT) * _severity(links) / worst:.2f})",
            }
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


def shaded(layout: dict[str, Any], congestion: CongestionLog, steps: Sequence[int]) -> dict[str, Any]:
    """A layout over steps with the congestion behind it."""
    if not steps:
        return layout
    bands = congestion.bands(steps[0] - 0.5, steps[-1] + 0.5)
    return {**layout, "shapes": [*bands, *layout["shapes"]]}


def _severity(links: Links) -> float:
    """How slow the slowest link is: milliseconds, or those that a megabit takes at its rate, whichever is more."""
    rates = [rate for owner in range(links.parts) if (rate := links.rate_of(owner)) is not None]
    late = max((links.delay_of(owner) for owner in range(links.parts)), default=0.0)
    return max([late, *(1000.0 / rate for rate in rates if rate > 0)])


# Windows and hit rates over time, with the congestion behind them (Figure 7 of GreenDyGNN).


Panel = tuple[Figure, str]
STEP = "step (model updates)"
_POINTS = 300  # of a line, so that pictures stay small
NO_CACHE = "this policy keeps no cache"
NO_WINDOW = "no cache was swapped in yet"
_ENOUGH = 2  # epochs from which there is a line


def windows_panel(
    windows: Mapping[tuple[int, ...], Sequence[CacheWindow]],
    congestion: CongestionLog,
    marks: Marks,
    *,
    cached: bool,
    now: int | None = None,
) -> Panel:
    """W of every part over steps, congestion behind; crosses where a cache came late.

    Args:
        windows: by part, in order.
        congestion: of the run.
        marks: of the run's changes.
        cached: whether the policy has windows at all.
        now: the newest step, up to which the last window is drawn.
    """
    steps = [window.step for each in windows.values() for window in each]
    span = [min(steps), max([*steps, now or 0])] if steps else []
    layout = frame(
        "Window of the cache",
        STEP,
        "W (steps between rebuilds)",
        showlegend=True,
        **marks.over_steps(span),
    )
    layout["yaxis"] |= {"type": "log", "tickvals": list(WINDOWS)}
    if not steps:
        return {"data": [], "layout": with_note(_linear(layout), NO_WINDOW if cached else NO_CACHE)}, _WINDOWS_READING
    lengths = [window.length for each in windows.values() for window in each]
    layout["yaxis"]["range"] = [log10(max(min(lengths), 1) / 1.4), log10(max(*lengths, 1) * 1.4)]
    data: list[dict[str, Any]] = []
    for (part, *_), each in windows.items():
        shown = each[-_POINTS:]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"part {part}",
                "x": [*(window.step for window in shown), span[1]],
                "y": [*(w.length for w in shown), shown[-1].length],
                "line": {"color": series_colour(part), "width": 2, "shape": "hv"},
                "marker": {"size": 4},
                "customdata": [*(_window_words(window) for window in shown), _window_words(shown[-1])],
                "hovertemplate": "%{customdata}<extra>part " + str(part) + "</extra>",
            }
        )
    late = [window for each in windows.values() for window in each[-_POINTS:] if window.late_steps > 0]
    if late:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "came late",
                "x": [window.step for window in late],
                "y": [window.length for window in late],
                "marker": {"color": WARNING_COLOUR, "symbol": "x", "size": 8},
                "customdata": [_window_words(window) for window in late],
                "hovertemplate": "%{customdata}<extra>late</extra>",
            }
        )
    return {"data": data, "layout": shaded(layout, congestion, span)}, _windows_words(windows, congestion)


_WINDOWS_READING = "Shaded: links are congested, the stronger the slower. Look whether W follows."


def _linear(layout: dict[str, Any]) -> dict[str, Any]:
    """Without an axis of powers, on which a note could not stand."""
    return {**layout, "yaxis": {key: each for key, each in layout["yaxis"].items() if key not in ("type", "tickvals")}}


def _window_words(window: CacheWindow) -> str:
    late = f", {window.late_steps} steps late" if window.late_steps > 0 else ""
    liked = f", most for part {window.biased}" if window.biased >= 0 else ""
    return (
        f"window {window.number} from step {window.step}: W {window.length}{late}{liked}; {window.held:,} rows, "
        f"{window.copied:,} kept, {window.fetched:,} fetched"
    )


def _windows_words(windows: Mapping[tuple[int, ...], Sequence[CacheWindow]], congestion: CongestionLog) -> str:
    every = [window for each in windows.values() for window in each]
    calm, slow = ([w.length for w in every if _is_congested(congestion, w.step) is wanted] for wanted in (False, True))
    late = sum(window.late_steps > 0 for window in every)
    text = f"{len(every):,} caches were swapped in, {late:,} of them late."
    if calm and slow:
        text += f" W is {_mean(calm):.3g} in the mean where links are free and {_mean(slow):.3g} where they are not."
    return f"{text} {_WINDOWS_READING}"


def _is_congested(congestion: CongestionLog, step: int) -> bool:
    links = congestion.at(step)
    return links is not None and bool(links.congested)


def hits_panel(
    steps: Mapping[int, Sequence[ResolvedStep]],
    epochs: Mapping[int, EpochHits],
    congestion: CongestionLog,
    marks: Marks,
    *,
    cached: bool,
) -> Panel:
    """Share of the remote rows that caches had: by epoch, and of the newest steps; congestion behind.

    Args:
        steps: of the newest steps, what every part asked for.
        epochs: of all epochs, the sums.
        congestion: of the run.
        marks: of the run's changes.
        cached: whether the policy has a cache.
    """
    ended = {epoch: each for epoch, each in epochs.items() if each.rate is not None}
    ends = [*(each.first for each in ended.values()), *(each.last for each in ended.values())]
    span = [min(ends), max(ends)] if ends else []
    layout = frame(
        "Hit rate",
        STEP,
        "rows found in the cache (%)",
        showlegend=True,
        yaxis={"range": [0, 101]},
        **marks.over_steps(span),
    )
    if not ended:
        return {"data": [], "layout": with_note(layout, "no batch was resolved yet")}, _hits_words(ended, cached)
    x, y = _binned(steps)
    epoch_y = [round(100 * (each.rate or 0.0), 2) for each in ended.values()]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "newest steps",
            "x": x,
            "y": y,
            "line": {"color": STEP_COLOUR, "width": 1.2},
            "hovertemplate": "step %{x}: %{y:.1f} %<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "lines+markers" if len(ended) >= _ENOUGH else "markers",
            "name": "epochs",
            "x": [each.middle for each in ended.values()],
            "y": epoch_y,
            "customdata": list(ended),
            "line": {"color": series_colour(0), "width": 2},
            "marker": {"size": 5, "color": series_colour(0)},
            "hovertemplate": "epoch %{customdata}: %{y:.1f} %<extra></extra>",
        },
    ]
    return {"data": data, "layout": shaded(layout, congestion, span)}, _hits_words(ended, cached)


def _binned(steps: Mapping[int, Sequence[ResolvedStep]]) -> tuple[list[float], list[float]]:
    """Hit rates of stretches of the newest steps: about ``_POINTS`` of them."""
    span = max(1, -(-len(steps) // _POINTS))
    sums: dict[int, tuple[float, int, int, int]] = {}
    for number, (step, rows) in enumerate(steps.items()):
        at, count, hit, remote = sums.get(number // span, (0.0, 0, 0, 0))
        sums[number // span] = (
            at + step,
            count + 1,
            hit + sum(row.hit for row in rows),
            remote + sum(row.remote for row in rows),
        )
    known = [(at / count, 100 * hit / remote) for at, count, hit, remote in sums.values() if remote]
    return [round(at, 1) for at, _ in known], [round(rate, 2) for _, rate in known]


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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# Whose rows caches hold, and what they are good for: by owner, now and over time.


Windows = Mapping[tuple[int, ...], Sequence[CacheWindow]]
_RECENT = 50  # steps that hits by owner are counted over
_MISSED = "#D5DAE0"


def contents_panel(windows: Windows, *, cached: bool) -> Panel:
    """The newest cache of every part: rows by owner, and a mark at what it may hold."""
    newest = {part[0]: each[-1] for part, each in windows.items() if each}
    names = [f"part {part}" for part in newest]
    layout = frame(
        "Caches now",
        "rows held",
        "",
        barmode="stack",
        bargap=0.35,
        xaxis={"rangemode": "tozero"},
        yaxis={"type": "category", "categoryarray": names[::-1], "categoryorder": "array", "showgrid": False},
        showlegend=True,
    )
    if not newest:
        note = NO_WINDOW if cached else NO_CACHE
        plain = {**layout, "yaxis": {**layout["yaxis"], "type": "linear", "categoryorder": "trace"}}
        return {"data": [], "layout": with_note(plain, note)}, _CONTENTS
    owners = 1 + max((owner for window in newest.values() for owner in range(len(window.by_owner))), default=0)
    data: list[dict[str, Any]] = []
    for owner in range(owners):
        held = [window.by_owner[owner] if owner < len(window.by_owner) else 0 for window in newest.values()]
        if any(held):
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": f"rows of part {owner}",
                    "y": names,
                    "x": held,
                    "marker": {"color": series_colour(owner)},
                    "hovertemplate": "%{y} holds %{x:,} rows of part " + str(owner) + "<extra></extra>",
                }
            )
    data.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "at most",
            "y": names,
            "x": [window.capacity for window in newest.values()],
            "marker": {"symbol": "line-ns", "size": 16, "line": {"width": 2, "color": BASELINE_COLOUR}},
            "hovertemplate": "%{y} may hold %{x:,}<extra></extra>",
        }
    )
    return {"data": data, "layout": layout}, _contents_words(newest)


_CONTENTS = "A cache holds the rows that its part is about to ask others for most often."


def _contents_words(newest: Mapping[int, CacheWindow]) -> str:
    held, room = (sum(getattr(window, name) for window in newest.values()) for name in ("held", "capacity"))
    kept = sum(window.copied for window in newest.values())
    liked = [f"part {part} prefers part {window.biased}" for part, window in newest.items() if window.biased >= 0]
    text = f"{held:,} of {room:,} rows are held"
    text += f", {percent(kept / held)} of them kept from the cache before" if held else ""
    return f"{text}. {join_words(liked) + '. ' if liked else ''}{_CONTENTS}"


def shares_panel(windows: Windows, congestion: CongestionLog, marks: Marks, *, cached: bool) -> Panel:
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
    layout = frame(
        "Shares of the cache",
        STEP,
        "of the rows held (%)",
        showlegend=True,
        yaxis={"range": [0, 101]},
        **marks.over_steps(span),
    )
    if not shown:
        return {"data": [], "layout": with_note(layout, NO_WINDOW if cached else NO_CACHE)}, _SHARES
    data: list[dict[str, Any]] = []
    for owner in range(max(len(at[step]) for step in shown)):
        y = [_percent_of(at[step], owner) for step in shown]
        data.append(
            {
                "type": "scatter",
                "mode": "lines" if len(shown) > 1 else "markers",
                "name": f"part {owner}",
                "x": shown,
                "y": y,
                "line": {"color": series_colour(owner), "width": 2, "shape": "hv"},
                "marker": {"color": series_colour(owner)},
                "hovertemplate": "step %{x}: %{y:.0f} %<extra>rows of part " + str(owner) + "</extra>",
            }
        )
    liked = [window for window in swaps if window.biased >= 0 and window.step >= shown[0]]
    if liked:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "preferred",
                "x": [window.step for window in liked],
                "y": [_percent_of(at[window.step], window.biased) for window in liked],
                "marker": {"color": MARK_COLOUR, "symbol": "star", "size": 8},
                "customdata": [f"part {window.part} prefers part {window.biased}" for window in liked],
                "hovertemplate": "step %{x}: %{customdata}<extra></extra>",
            }
        )
    return {"data": data, "layout": shaded(layout, congestion, span)}, _SHARES


_SHARES = "Shaded: links are congested. A star: the policy gives most of the cache to that owner's rows."


def _percent_of(counts: Sequence[int], owner: int) -> float | None:
    whole = sum(counts)
    return round(100 * counts[owner] / whole, 2) if whole and owner < len(counts) else None


def owners_panel(steps: Mapping[int, Sequence[ResolvedStep]]) -> Panel:
    """Rows asked for in the newest steps by owner: those that caches had, and those that were fetched."""
    recent = [row for step in list(steps)[-_RECENT:] for row in steps[step]]
    owners = max((len(row.hits) for row in recent), default=0)
    layout = frame(
        "Rows asked for by owner",
        "owner",
        "rows of a step, all parts",
        barmode="stack",
        bargap=0.35,
        yaxis={"rangemode": "tozero"},
        xaxis={"dtick": 1, "showgrid": False},
        showlegend=True,
    )
    count = min(len(steps), _RECENT)
    hits, misses = (
        [sum(getattr(row, name)[owner] for row in recent if owner < len(getattr(row, name))) for owner in range(owners)]
        for name in ("hits", "misses")
    )
    if not any(hits) and not any(misses):
        return {"data": [], "layout": with_note(layout, "no batch was resolved yet")}, _OWNERS
    data = [
        {
            "type": "bar",
            "name": name,
            "x": list(range(owners)),
            "y": [round(each / count, 2) for each in counts],
            "marker": {"color": colour},
            "hovertemplate": "of part %{x}: %{y:,.4~g} rows of a step<extra>" + name + "</extra>",
        }
        for name, counts, colour in (("in the cache", hits, series_colour(0)), ("fetched", misses, _MISSED))
    ]
    described = [
        f"part {owner} {percent(hits[owner] / (hits[owner] + misses[owner]))}"
        for owner in range(owners)
        if hits[owner] + misses[owner]
    ]
    return {
        "data": data,
        "layout": layout,
    }, f"In the cache, of the last {count} steps: {join_words(described)}. {_OWNERS}"


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
    layout = frame(
        "Links now",
        "asked by part",
        "owner",
        xaxis={"dtick": max(1, -(-count // 8)), "showgrid": False, "range": [-0.5, count - 0.5]},
        yaxis=part_axis(count),
    )
    if links is None:
        return {"data": [], "layout": with_note(layout, "links are as they are")}, _words(links)
    cells = [
        [None if owner == other else links.delay_ms[owner][other] for other in range(count)] for owner in range(count)
    ]
    top = max((each for row in cells for each in row if each is not None), default=0.0)
    trace: dict[str, Any] = {
        "type": "heatmap",
        "name": "Links now",
        "x": list(range(count)),
        "y": list(range(count)),
        "z": cells,
        "zmin": 0,
        "zmax": top or 1.0,
        "colorscale": [list(stop) for stop in HEAT_SCALES["halo"]],
        "colorbar": colour_bar("ms added"),
        "xgap": 2,
        "ygap": 2,
        "customdata": [[_to_dict(links, owner, other) for other in range(count)] for owner in range(count)],
        "hovertemplate": "part %{y} to part %{x}: %{customdata}<extra></extra>",
    }
    if not top:
        del trace["colorbar"]
        trace["showscale"] = False
    if count <= _WRITTEN:
        layout["annotations"] = _written(links, top)
    return {"data": [trace], "layout": layout}, _words(links)


def _to_dict(links: Links, owner: int, other: int) -> str:
    rate = links.mbit[owner][other]
    return f"{links.delay_ms[owner][other]:.3g} ms" + (", any rate" if rate is None else f", {rate:.4g} Mbit/s")


def _written(links: Links, top: float) -> list[dict[str, Any]]:
    found = []
    for owner in range(links.parts):
        for other in range(links.parts):
            delay, rate = links.delay_ms[owner][other], links.mbit[owner][other]
            said = ([f"{delay:.3g} ms"] if delay else []) + ([] if rate is None else [f"{rate:.4g} Mbit/s"])
            if owner != other:
                found.append(
                    {
                        "text": "<br>".join(said or ["free"]),
                        "showarrow": False,
                        "x": other,
                        "y": owner,
                        "xref": "x",
                        "yref": "y",
                        "font": {"size": 10, "color": "white" if delay > _DARK * top else TEXT_COLOUR},
                    }
                )
    return found


def _words(links: Links | None) -> str:
    reading = "Rows answer, columns ask; replies are late by this much. Gradients go their own way, untouched."
    if links is None:
        return f"Nothing is added to any link. {reading}"
    described = links.words or "nothing is added to any link"
    how = "by the kernel (netem)" if links.by == "netem" else "by who answers"
    return f"Pattern {links.pattern}, since step {links.step}, {how}: {described}. {reading}"


# What pictures of fetched features are made of: the facts of an event ``features``, and what they are in words.


CACHELESS = ("on_demand", "prefetch")
POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "on_demand": "sampled and fetched in the step, without a cache",
        "prefetch": "sampled and fetched ahead, without a cache",
        "epoch_hot": "fetched ahead, with a cache of the epoch's hottest rows",
        "fixed": "fetched ahead, with a cache that is rebuilt at a fixed pace",
        "threshold": "fetched ahead, with a cache rebuilt faster the later replies are",
        "random": "fetched ahead, with a cache whose window is drawn",
        "double_dqn": "fetched ahead, with a cache whose window and allocation a Double DQN chooses",
        "planner": "fetched ahead, with a cache whose window and allocation are planned from the batches to come",
        "clairvoyant": "fetched ahead, with a cache chosen by the plan that is best in the cost model, delays known",
    }
)


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """A run whose parts ask each other for features.

    Attributes:
        parts: P.
        rows: keys that can be asked for: nodes, times snapshots where features change.
        row_bytes: of one row.
        remote_share: of the first layers' inputs, those that another part owns; None where unknown.
        policy: of the cache, a key of ``POLICIES``.
        window: steps between two rebuilds that the policy begins with; 0 where it has none.
        cache_rows: rows that a cache holds at most.
        steps_per_epoch: steps of an epoch.
        batch_size: seed nodes of a part and step.
        batch_length: consecutive snapshots of a batch.
        fanouts: neighbours drawn at most, layer by layer.
    """

    parts: int
    rows: int
    row_bytes: int
    remote_share: float | None
    policy: str
    window: int
    cache_rows: int
    steps_per_epoch: int
    batch_size: int
    batch_length: int
    fanouts: str

    @property
    def cached(self) -> bool:
        """Whether the policy keeps a cache."""
        return self.policy not in CACHELESS


def feature_facts(data: Mapping[str, Any]) -> FeatureFacts:
    """The facts in the data of an event ``features``.

    Raises:
        DataError: something is missing or does not fit.
    """
    try:
        fanouts = data["fanouts"]
        described = data.get("remote_share")
        facts = FeatureFacts(
            parts=int(data["parts"]),
            rows=int(data["rows"]),
            row_bytes=int(data["row_bytes"]),
            remote_share=None if described is None else float(described),
            policy=str(data["policy"]),
            window=int(data["window"] or 0),
            cache_rows=int(data["cache_rows"] or 0),
            steps_per_epoch=int(data["steps_per_epoch"]),
            batch_size=int(data["batch_size"]),
            batch_length=int(data["batch_length"]),
            fanouts=fanouts if isinstance(fanouts, str) else " ".join(map(str, fanouts)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the event of fetched features cannot be drawn ({error!r}): were they recorded by another version?"
        ) from error
    if facts.parts < 1 or facts.row_bytes < 1 or facts.steps_per_epoch < 1:
        raise DataError(
            f"an event has features of {facts.parts} parts, {facts.row_bytes} bytes a row and "
            f"{facts.steps_per_epoch} steps an epoch, but each is at least 1: was it recorded by another version?"
        )
    return facts


def features_left(data: Mapping[str, Any]) -> bool:
    """Whether an event ``features`` says that the run went on with features that are at hand."""
    return "layout" in data and data["layout"] is None


def feature_words(facts: FeatureFacts) -> str:
    """The feature path in a few sentences, as a row of a table of events."""
    length = f" in each of {facts.batch_length} snapshots" if facts.batch_length > 1 else ""
    text = (
        f"{facts.parts} part{'s' * (facts.parts > 1)} with batches of {facts.batch_size:,} seeds{length}, at most "
        f"{' and '.join(facts.fanouts.split())} neighbours by layer. Features are "
        f"{POLICIES.get(facts.policy, f'fetched by {facts.policy}')}"
    )
    if facts.cached:
        held = format_bytes(facts.cache_rows * facts.row_bytes)
        text += f"; a part holds at most {facts.cache_rows:,} rows ({held})"
    if facts.remote_share is not None:
        text += f". {percent(facts.remote_share)} of what a batch reads belongs to other parts"
    return text + "."


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
    layout = frame(
        "Bytes for features, and waiting",
        STEP,
        "bytes a step",
        barmode="stack",
        bargap=0,
        showlegend=True,
        yaxis={"rangemode": "tozero"},
        **marks.over_steps(at),
    )
    if not at:
        return {"data": [], "layout": with_note(layout, "no batch was resolved yet")}, _TRAFFIC
    width = max(1, -(-(at[-1] - at[0] + 1) // _BARS))
    bars = sorted({(step - at[0]) // width for step in at})
    counts = Counter((step - at[0]) // width for step in at)
    missed, built, waited = (dict.fromkeys(bars, 0.0) for _ in range(3))
    for step, rows in steps.items():
        bar = (step - at[0]) // width
        missed[bar] += sum(row.bytes for row in rows) / counts[bar]
        waited[bar] += fmean(row.wait_s for row in rows) / counts[bar]
    for window in windows:
        bar = (window.step - at[0]) // width
        if bar in built:
            built[bar] += window.fetched * row_bytes / counts[bar]
    top = max(missed[bar] + built[bar] for bar in bars)
    unit, factor = byte_unit(top)
    layout["yaxis"]["title"] = {**layout["yaxis"]["title"], "text": f"{unit} a step"}
    x = [at[0] + bar * width + (width - 1) / 2 for bar in bars]
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": name,
            "x": x,
            "y": [round(sums[bar] / factor, 4) for bar in bars],
            "width": width,
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": "about step %{x:.0f}: %{y:.3~g} " + unit + "<extra>" + name + "</extra>",
        }
        for name, sums, colour in (
            ("missed by batches", missed, PHASE_COLOURS["communicate"]),
            ("for caches", built, PHASE_COLOURS["batch"]),
        )
    ]
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "waiting (right)",
            "x": x,
            "yaxis": "y2",
            "y": [round(1e3 * waited[bar], 4) for bar in bars],
            "line": {"color": WARNING_COLOUR, "width": 1.5},
            "hovertemplate": "about step %{x:.0f}: %{y:.3~g} ms of waiting<extra></extra>",
        }
    )
    layout["yaxis2"] = {
        "overlaying": "y",
        "side": "right",
        "showgrid": False,
        "zeroline": False,
        "rangemode": "tozero",
        "title": {"text": "waiting (ms a step)", "standoff": 4, "font": {"size": 11}},
    }
    layout["margin"] = {**layout["margin"], "r": 52}
    return {"data": data, "layout": layout}, traffic_words(steps, windows, row_bytes)


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


def latency_panel(misses: Sequence[Fetched], bulk: Sequence[Fetched], congestion: CongestionLog, marks: Marks) -> Panel:
    """Round trips of calls for batches by owner, the median of those who ask, with the delay added to them, dashed.

    Args:
        misses: calls for batches, in order of steps.
        bulk: calls of the builders of caches, likewise; drawn as open circles.
        congestion: of the run.
        marks: of the run's changes.
    """
    steps = [fetched.step for fetched in (*misses, *bulk)]
    span = [min(steps), max(steps)] if steps else []
    layout = frame(
        "Round trips by owner",
        STEP,
        "round trip (ms)",
        showlegend=True,
        **marks.over_steps(span),
        yaxis={"rangemode": "tozero"},
    )
    if not steps:
        return {"data": [], "layout": with_note(layout, NO_FETCH)}, _latency_words(misses, bulk)
    data: list[dict[str, Any]] = []
    for owner in sorted({fetched.owner for fetched in (*misses, *bulk)}):
        name = f"part {owner}"
        style: dict[str, Any] = {"legendgroup": name}
        lines = [each for each in misses if each.owner == owner]
        x, y = _medians(lines, span)
        data.append(
            {
                "type": "scatter",
                "mode": "lines" if len(x) > 1 else "markers",
                "name": name,
                "x": x,
                "y": y,
                "line": {"color": series_colour(owner), "width": 1.8},
                "marker": {"color": series_colour(owner)},
                "hovertemplate": "about step %{x:.0f}: %{y:.3~g} ms<extra>" + name + "</extra>",
                **style,
            }
        )
        data += _bulk_points([each for each in bulk if each.owner == owner], name, style)
        data += _injected(congestion, owner, span, style)
    top, above = _top([y for trace in data for y in trace["y"]])
    if above:
        layout["yaxis"]["range"] = [0, top]
    higher = f" {above} of the points are above the picture." if above else ""
    return {"data": data, "layout": shaded(layout, congestion, span)}, _latency_words(misses, bulk) + higher


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


def _bulk_points(bulk: Sequence[Fetched], name: str, style: Mapping[str, Any]) -> list[dict[str, Any]]:
    shown = bulk[-_LINK_LATENCY_POINTS:]
    if not shown:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{name}, for caches",
            "showlegend": False,
            "x": [each.step for each in shown],
            "y": [round(1e3 * each.rtt_s, 4) for each in shown],
            "marker": {"color": series_colour(shown[0].owner), "symbol": "circle-open", "size": 5},
            "customdata": [f"{each.rows:,}" for each in shown],
            "hovertemplate": "step %{x}: %{y:.3~g} ms for %{customdata} rows<extra>%{fullData.name}</extra>",
            **style,
        }
    ]


def _injected(
    congestion: CongestionLog, owner: int, span: Sequence[int], style: Mapping[str, Any]
) -> list[dict[str, Any]]:
    x, y = congestion.injected(owner, span[0], span[-1] + 1)
    if not x:
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"part {owner}, added",
            "showlegend": False,
            "x": x,
            "y": y,
            "line": {"color": series_colour(owner), "width": 1.3, "dash": "dash", "shape": "hv"},
            "hovertemplate": "%{y:.3~g} ms added<extra>part " + str(owner) + "</extra>",
            **style,
        }
    ]


def _latency_words(misses: Sequence[Fetched], bulk: Sequence[Fetched]) -> str:
    described = []
    for owner in sorted({fetched.owner for fetched in misses}):
        recent = [fetched.rtt_s for fetched in misses if fetched.owner == owner][-_LINK_LATENCY_RECENT:]
        described.append(f"part {owner} {format_seconds(median(recent))}")
    rings = " Circles are calls for caches." if bulk else ""
    return f"Replies take now: {join_words(described)}. {_LOOK}{rings}" if described else f"{_LOOK}{rings}"


def estimates_panel(
    choices: Mapping[tuple[int, ...], Sequence[CacheChoice]], congestion: CongestionLog, marks: Marks
) -> Panel:
    """The delay that controllers estimate for every owner, the median of those who ask, beside the one added, dashed.

    Args:
        choices: decisions by part, in order.
        congestion: of the run.
        marks: of the run's changes.
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
    layout = frame(
        "Delay as it is estimated",
        STEP,
        "delay (ms)",
        showlegend=True,
        **marks.over_steps(span),
        yaxis={"rangemode": "tozero"},
    )
    if not steps:
        return {"data": [], "layout": with_note(layout, "no delay was estimated yet")}, _ESTIMATE
    data: list[dict[str, Any]] = []
    for owner, by_step in sorted(found.items()):
        name, shown = f"part {owner}", sorted(by_step)[-2 * _LINK_LATENCY_POINTS :]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "legendgroup": name,
                "x": shown,
                "y": [round(median(by_step[step]), 4) for step in shown],
                "line": {"color": series_colour(owner), "width": 1.8, "shape": "hv"},
                "marker": {"size": 4},
                "hovertemplate": "step %{x}: %{y:.3~g} ms estimated<extra>" + name + "</extra>",
            }
        )
        data += _injected(congestion, owner, span, {"legendgroup": name})
    return {"data": data, "layout": shaded(layout, congestion, span)}, _estimate_words(found, congestion)


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
    return f"At last: {join_words(described) or 'no part is late, nor thought to be'}. {_ESTIMATE}"


# What a call for features costs before its first byte, against what its bytes cost (Figure 1 of GreenDyGNN).
#
# Rows are mappings, one for each call: ``rows`` asked for, ``rtt_s``, ``feat_dim`` floats a row, and where there are
# several ``condition`` or ``owner``.


Row = Mapping[str, Any]
FLOAT_BYTES = 4
NO_CALL = "no call was measured yet"
_ALIKE = 1.25  # times as many rows, up to which calls are of one size
_LEAST = 2  # sizes that a line needs
_RECENTRED = 20  # iterations of the fit that reweight its rows


@dataclass(frozen=True, slots=True)
class CallCost:
    """What a call takes: ``initiation_s`` + ``s_per_byte`` times the bytes of its reply."""

    initiation_s: float
    s_per_byte: float

    @property
    def crossover_bytes(self) -> float | None:
        """Bytes from which they cost more than the call; None where they cost nothing."""
        return self.initiation_s / self.s_per_byte if self.s_per_byte > 0 else None

    def share(self, nbytes: float) -> float:
        """Of a call of so many bytes, the part that it takes whatever it brings."""
        whole = self.initiation_s + self.s_per_byte * nbytes
        return self.initiation_s / whole if whole > 0 else 0.0


def call_cost(sizes: Mapping[float, float]) -> CallCost:
    """The line through median seconds by bytes that misses them least in relative terms; neither part is negative.

    Args:
        sizes: bytes of a reply -> seconds.
    """
    nbytes, seconds = np.array(list(sizes), dtype=float), np.array(list(sizes.values()), dtype=float)
    weights = 1 / np.maximum(seconds, 1e-9)
    columns = np.stack([np.ones_like(nbytes), nbytes], axis=1)
    scale = columns.max(axis=0)
    for _ in range(_RECENTRED):  # least absolute deviations: one slow size must not tilt the line
        found = np.linalg.lstsq(columns / scale * weights[:, None], seconds * weights, rcond=None)[0] / scale
        missed = np.abs(columns @ found - seconds) / np.maximum(seconds, 1e-9)
        weights = 1 / np.maximum(seconds, 1e-9) / np.sqrt(np.maximum(missed, 1e-3))
    initiation, per_byte = (float(each) for each in found)
    if initiation < 0:
        return CallCost(0.0, float(np.median(seconds / nbytes)))
    return CallCost(initiation, per_byte) if per_byte >= 0 else CallCost(float(np.median(seconds)), 0.0)


def rpc_payload_figure(rows: Sequence[Row], *, title: str = "What a call costs") -> Figure:
    """Both panels beside each other."""
    return grid(list(rpc_payload_panels(rows).values()), title=title)


def rpc_payload_panels(rows: Sequence[Row]) -> dict[str, Panel]:
    """``shares``: initiation against payload by rows of a call; ``seconds``: what was measured, with the line."""
    sizes = _by_rows(rows)
    if len(sizes) < _LEAST:
        empty = with_note(frame("What a call costs", "rows of a call", ""), NO_CALL)
        return {"shares": ({"data": [], "layout": empty}, _READING), "seconds": ({"data": [], "layout": empty}, "")}
    width = _row_bytes(rows)
    cost = call_cost({count * width: median(each) for count, each in sizes.items()})
    words = _words_rpc_payload(cost, width)
    return {
        "shares": (_shares_figure(list(sizes), cost, width), words),
        "seconds": (_seconds_figure(sizes, cost, width), "Points: medians with the middle half; line: the fit."),
    }


_READING = "Small calls cost mostly for being calls: ask for many rows at once."


def _by_rows(rows: Sequence[Row]) -> dict[int, list[float]]:
    """Seconds by rows of a call; calls for about as many rows count as one size."""
    groups: list[list[tuple[int, float]]] = []
    for call in sorted((int(row["rows"]), float(row["rtt_s"])) for row in rows):
        if groups and call[0] <= _ALIKE * groups[-1][0][0]:
            groups[-1].append(call)
        else:
            groups.append([call])
    return {round(median(count for count, _ in each)): [seconds for _, seconds in each] for each in groups}


def _row_bytes(rows: Sequence[Row]) -> float:
    return FLOAT_BYTES * median([float(row["feat_dim"]) for row in rows])


def _shares_figure(counts: Sequence[int], cost: CallCost, width: float) -> Figure:
    layout = frame(
        "Initiation against payload",
        "rows of a call",
        "of its time (%)",
        barmode="stack",
        bargap=0.25,
        xaxis={"type": "category", "showgrid": False},
        yaxis={"range": [0, 100]},
        showlegend=True,
    )
    first = [round(100 * cost.share(count * width), 2) for count in counts]
    names = [f"{count:,}" for count in counts]
    data = [
        {
            "type": "bar",
            "name": name,
            "x": names,
            "y": y,
            "marker": {"color": colour},
            "hovertemplate": "%{x} rows: %{y:.0f} %<extra>" + name + "</extra>",
        }
        for name, y, colour in (
            ("initiation", first, PHASE_COLOURS["rebuild"]),
            ("payload", [round(100 - each, 2) for each in first], PHASE_COLOURS["transfer"]),
        )
    ]
    return {"data": data, "layout": layout}


def _seconds_figure(sizes: Mapping[int, Sequence[float]], cost: CallCost, width: float) -> Figure:
    layout = frame(
        "Time of a call",
        "rows of a call",
        "round trip (ms)",
        xaxis={"type": "log", "dtick": 1},
        yaxis={"type": "log", "dtick": 1},
        showlegend=True,
    )
    counts = list(sizes)
    low, middle, high = (
        [round(1e3 * float(np.percentile(each, point)), 5) for each in sizes.values()] for point in (25, 50, 75)
    )
    line = np.geomspace(counts[0], counts[-1], 60)
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "measured",
            "x": counts,
            "y": middle,
            "marker": {"color": series_colour(0), "size": 7},
            "error_y": {
                "type": "data",
                "symmetric": False,
                "thickness": 1.2,
                "color": series_colour(0),
                "array": [h - m for m, h in zip(middle, high, strict=True)],
                "arrayminus": [m - lo for lo, m in zip(low, middle, strict=True)],
            },
            "hovertemplate": "%{x:,} rows: %{y:.3~g} ms<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "initiation + bytes",
            "x": [round(at, 2) for at in line],
            "y": [round(1e3 * (cost.initiation_s + cost.s_per_byte * at * width), 6) for at in line],
            "line": {"color": BASELINE_COLOUR, "width": 1.5},
            "hoverinfo": "skip",
        },
    ]
    return {"data": data, "layout": layout}


def _words_rpc_payload(cost: CallCost, width: float) -> str:
    crossover = cost.crossover_bytes
    text = f"A call takes {format_seconds(cost.initiation_s)} whatever it brings"
    if crossover is None:
        return f"{text}, and its bytes nothing that can be seen. {_READING}"
    rows = crossover / width
    small = percent(cost.share(100 * width))
    return (
        f"{text}; its bytes cost as much from {rows:,.0f} rows on ({format_bytes(crossover)}). At 100 rows the call "
        f"itself is {small}. {_READING}"
    )
