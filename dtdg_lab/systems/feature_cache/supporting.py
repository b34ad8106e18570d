"""The two charts beside the picture of fetched features: cache hits, and how long owners take to reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.records.rows import Array
from dtdg_lab.systems.feature_cache import captions
from dtdg_lab.systems.feature_cache.captions import ms_text
from dtdg_lab.systems.feature_cache.measures import (
    RECENT,
    RESOLVED,
    STACKED_PARTS,
    LinkHistory,
    batch_sums,
    estimated_delays,
    fetches_features,
    first_step,
    has_cache,
    hit_rate,
    hit_rate_now,
    link_history,
    newest_step,
    part_count,
    reply_times,
)
from dtdg_lab.visualization.axes import FROM_ZERO
from dtdg_lab.visualization.changes.marks import change_marks, with_changes
from dtdg_lab.visualization.chart import FIRST_STEP, NOTHING_YET, STEPS_TITLE, Chart, ChartOptions, Key, card
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.palette import BASELINE_COLOUR, STEP_COLOUR, series_colour
from dtdg_lab.visualization.traces import Drawn, box, line

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables
    from dtdg_lab.visualization.layout import Figure

_SHADE, _MOST_SHADES = "rgba(230,159,0,0.13)", 200
_HIT_POINTS = 100
_STRETCH, _STRETCHES = 8, 250  # steps of a median, and medians of a line at most
_LATE_MS = 0.1  # from which a delay is drawn
_MOST_SHOWN, _ROOM, _HUNG = 0.98, 1.15, 1.5  # share of the points, times its largest, and times that from which it hung


def over_steps(data: list[Drawn], tables: RunTables, span: tuple[float, float], title: str, **looks: Any) -> Figure:
    """Return a chart over steps: slow links shaded, changed settings marked."""
    figure = card(data, title, x_title=STEPS_TITLE, **{"xaxis": {"range": [*span]}, **looks})
    if not data:
        return figure
    layout = figure["layout"]
    layout = {**layout, "shapes": [*slow_shades(link_history(tables), span), *layout["shapes"]]}
    return {**figure, "layout": with_changes(layout, tables, "steps", *span)}


def slow_shades(links: LinkHistory, span: tuple[float, float]) -> list[Drawn]:
    """Return shapes over the steps in which a link is slow."""
    slow = [(begin, end) for begin, end, is_slow in links.stretches(links.is_slow.astype(int), *span) if is_slow]
    looks: Drawn = {"yref": "paper", "layer": "below", "line": {"width": 0}, "fillcolor": _SHADE}
    return [box(stretch, (0, 1), **looks) for stretch in slow[-_MOST_SHADES:]]


# Hits.


def _hits_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the share of remote rows that were in a cache, over the whole run."""
    (middles, rates), end = batch_sums(tables).rates(_HIT_POINTS), newest_step(tables) + 1
    x, y = np.minimum(middles, end).round(1).tolist(), (100 * rates).round(2).tolist()
    data = [line("hit rate", x, y, series_colour(0), "about step %{x:.0f}: %{y:.1f}%<extra></extra>")] if x else []
    axis = {"range": [0, 103], "tickvals": [0, 50, 100]}
    begin = float(first_step(tables))
    return over_steps(data, tables, (begin, max(end, begin + 1)), "Cache hit rate", unit="% of remote rows", yaxis=axis)


def _hits_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the hit rate now, and before the newest change."""
    rate, end = hit_rate_now(tables), newest_step(tables) + 1
    if rate is None:
        return NOTHING_YET
    if not has_cache(tables):
        return captions.HIT_RATE_NO_CACHE
    changes = [mark for mark in change_marks(tables, "steps") if mark.number is not None and mark.at < end]
    if changes:
        newest = changes[-1]
        before = hit_rate(tables, newest.at - RECENT, newest.at)
        after = hit_rate(tables, max(newest.at, end - RECENT), end)
        if before is not None and after is not None:
            texts = {"rate": percent_text(after), "before": percent_text(before)}
            return captions.HIT_RATE_CHANGED.format(number=newest.number, **texts)
    return captions.HIT_RATE.format(rate=percent_text(rate), steps=min(RECENT, end - first_step(tables)))


HITS = Chart(
    name="hit_rate",
    title="Cache hit rate",
    figure=_hits_figure,
    caption=_hits_caption,
    place="supporting",
    shown=fetches_features,
    rollups=(RESOLVED,),
    help="Share of the other parts' rows that batches found in a cache. Shaded: links are slowed down.",
)


# Replies.


def _replies_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the time that each owner takes to reply, with the delay added to it and the delay it is taken for."""
    width = _stretch(tables)
    owners, steps, seconds = reply_times(tables, width)
    end = newest_step(tables) + 1
    span = (float(steps.min()) if len(steps) else 0.0, float(max(end, 1)))
    links, estimates = link_history(tables), estimated_delays(tables)
    slow = _slow_owners(links, span)
    data = _pale_lines(owners, steps + width / 2, 1e3 * seconds, slow)
    if data or slow:
        for owner in slow:
            data += _owner_lines(owner, (owners, steps + width / 2, 1e3 * seconds), estimates, links, span)
    top = _top([value for trace in data for value in trace["y"]])
    keys: list[Key] = [(f"part {owner}", series_colour(owner), "line") for owner in slow]
    if slow:
        keys.append(("added", BASELINE_COLOUR, "dash"))
        keys += [("estimated, dotted", BASELINE_COLOUR, "dash")] if len(estimates[0]) else []
    if len(slow) < part_count(tables):
        keys.append(("other parts" if slow else "every part", STEP_COLOUR, "line"))
    axis = {**FROM_ZERO, "nticks": 4, **({"range": [0, top]} if top else {})}
    unit = f"ms, median of {width} steps"
    looks: dict[str, Any] = {"keys": keys, "yaxis": axis} if data else {"empty": _why_no_replies(tables) or FIRST_STEP}
    return over_steps(data, tables, span, "Reply time by owner", unit=unit, **looks)


def _why_no_replies(tables: RunTables) -> str:
    """Return why batches fetch nothing, as a sentence; empty where they may still do."""
    if part_count(tables) == 1:
        return captions.ONE_PART
    return captions.ALL_CACHED if hit_rate_now(tables) == 1 else ""


def _stretch(tables: RunTables) -> int:
    """Return the steps of a median."""
    count = newest_step(tables) - max(first_step(tables), newest_step(tables) + 1 - tables.recent) + 1
    return max(_STRETCH, -(-count // _STRETCHES))


def _slow_owners(links: LinkHistory, span: tuple[float, float]) -> list[int]:
    """Return the owners whose replies were made slow in some of the steps; of many, the slowest."""
    shown = (links.ends(span[1]) > span[0]) & (links.steps < span[1])
    worst = np.where(np.isfinite(links.mbit), 1.0, links.delay_ms)[shown].max(axis=0, initial=0.0)
    slowest = np.argsort(-worst, kind="stable")[:STACKED_PARTS]
    return sorted(owner for owner in slowest.tolist() if worst[owner] >= _LATE_MS)


def _pale_lines(owners: Array, x: Array, y: Array, slow: list[int]) -> list[Drawn]:
    """Return lines of the owners without delay; of many, those of the first ones."""
    others = [owner for owner in np.unique(owners).tolist() if owner not in slow][:STACKED_PARTS]
    return [
        line(f"part {owner}", *_points(owners == owner, x, y), STEP_COLOUR, _HOVER.format(what=""), width=1.2)
        for owner in others
    ]


_HOVER = "about step %{{x:.0f}}: %{{y:.3~g}} ms{what}"


def _points(chosen: Array, x: Array, y: Array) -> tuple[list[float], list[float]]:
    return x[chosen].round(1).tolist(), y[chosen].round(3).tolist()


def _owner_lines(
    owner: int,
    replies: tuple[Array, Array, Array],
    estimates: tuple[Array, Array, Array],
    links: LinkHistory,
    span: tuple[float, float],
) -> list[Drawn]:
    """Return the replies of a slow owner, solid; the delay that is added, dashed; the delay it is taken for, dotted."""
    name, colour, added = f"part {owner}", series_colour(owner), links.stairs(links.delay_ms[:, owner], *span)
    owners, x, y = replies
    data = [line(name, *_points(owners == owner, x, y), colour, _HOVER.format(what=""), width=1.8)]
    if added[0]:
        data.append(line(name, *added, colour, _HOVER.format(what=" added"), width=1.4, dash="dash"))
    owners, x, y = estimates
    chosen = (owners == owner) & (x >= span[0])
    if chosen.any():
        shown = np.flatnonzero(chosen)[-2 * _STRETCHES :]
        corners = x[shown].round(1).tolist(), y[shown].round(3).tolist()
        looks: Drawn = {"line": {"color": colour, "width": 1.4, "dash": "dot", "shape": "hv"}}
        data.append(line(name, *corners, colour, _HOVER.format(what=" estimated"), **looks))
    return data


def _top(values: list[float]) -> float:
    """Return where the axis ends so that a few calls that hung do not flatten the rest; 0 for the usual end."""
    if not values:
        return 0.0
    ordered = np.sort(values)
    top = float(_ROOM * ordered[int(_MOST_SHOWN * (len(ordered) - 1))])
    return 0.0 if ordered[-1] <= _HUNG * top else top


def _replies_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how long the slowest owner takes now, and how much of it is added."""
    owners, steps, seconds = reply_times(tables, _stretch(tables))
    if not len(owners):
        return _why_no_replies(tables) or NOTHING_YET
    newest = {owner: place for place, owner in enumerate(owners.tolist())}  # rows are in order of steps
    slowest = max(newest, key=lambda owner: seconds[newest[owner]])
    added_ms = link_history(tables).delay_at(float(steps[newest[slowest]]), slowest)
    texts = {"part": slowest, "reply": ms_text(float(seconds[newest[slowest]]))}
    if added_ms < _LATE_MS:
        return captions.REPLY_SLOWEST.format(**texts)
    return captions.REPLY_DELAYED.format(added=f"{added_ms:.3g} ms", **texts)


REPLIES = Chart(
    name="reply_time",
    title="Reply time by owner",
    figure=_replies_figure,
    caption=_replies_caption,
    place="supporting",
    shown=fetches_features,
    help="Solid: measured. Dashed: the delay added to replies. Dotted: the delay that controllers estimate.",
)
