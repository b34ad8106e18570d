"""The chart of reply times: how long owners take, and the delay that controllers estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.charts import captions
from dtdg_lab.systems.feature_cache.charts.batches import hit_rate_now
from dtdg_lab.systems.feature_cache.charts.captions import ms_text
from dtdg_lab.systems.feature_cache.charts.step_chart import (
    STACKED_PARTS,
    LinkHistory,
    fetches_features,
    first_step,
    link_history,
    newest_step,
    over_steps,
    part_count,
    recent_rows,
)
from dtdg_lab.visualization.axes import FROM_ZERO
from dtdg_lab.visualization.chart import FIRST_STEP, NOTHING_YET, Chart, ChartOptions, Key
from dtdg_lab.visualization.palette import BASELINE_COLOUR, STEP_COLOUR, series_colour
from dtdg_lab.visualization.traces import Attributes, line

if TYPE_CHECKING:
    from dtdg_lab.visualization.chart import Figure


def medians(keys: Array, values: Array) -> tuple[Array, Array]:
    """Return the distinct keys, (k, n) of columns, in order, and the median of the values of each."""
    if not len(values):
        return keys[:, :0], values
    order = np.lexsort([values, *keys[::-1]])
    keys, values = keys[:, order], values[order]
    begins = np.flatnonzero(np.append(True, (np.diff(keys, axis=1) != 0).any(axis=0)))
    ends = np.append(begins[1:], len(values))
    middle = (values[(begins + ends - 1) // 2] + values[(begins + ends) // 2]) / 2
    return keys[:, begins], middle


def reply_times(tables: RunTables, width: int) -> tuple[Array, Array, Array]:
    """Return owner, first step and median seconds of the replies to batches, in stretches of ``width`` steps."""

    def read() -> tuple[Array, Array, Array]:
        rows = recent_rows(tables, "fetches")
        rows = rows.where(rows["purpose"] == "miss")
        keys = np.stack([rows["owner"].astype(np.int64), rows["step"].astype(np.int64) // width])
        (owner, bucket), seconds = medians(keys, rows["rtt_s"])
        return owner, bucket * width, seconds

    return tables.once(("reply times", width), read)


def estimated_delays(tables: RunTables) -> tuple[Array, Array, Array]:
    """Return owner, step and milliseconds that controllers take the delay of an owner for, the median of the parts."""

    def read() -> tuple[Array, Array, Array]:
        rows = recent_rows(tables, "cache_decisions")
        triples = [
            (owner + (owner >= part), step, late)
            for step, part, delays in zip(
                rows["step"].tolist(), rows["part"].tolist(), rows["delays_ms"].tolist(), strict=True
            )
            for owner, late in enumerate(delays or ())
            if late is not None
        ]
        columns = np.array(triples, np.float64).reshape(-1, 3).T
        (owner, step), late_ms = medians(columns[:2], columns[2])
        return owner.astype(np.int64), step, late_ms

    return tables.once("estimated delays", read)


_STRETCH, _STRETCHES = 8, 250  # steps of a median, and medians of a line at most
_LATE_MS = 0.1  # from which a delay is drawn
_MOST_SHOWN, _ROOM, _HUNG = 0.98, 1.15, 1.5  # share of the points, times its largest, and times that from which it hung


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
    settings: dict[str, Any] = (
        {"keys": keys, "yaxis": axis} if data else {"empty": _why_no_replies(tables) or FIRST_STEP}
    )
    return over_steps(data, tables, span, "Reply time by owner", unit=unit, **settings)


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
    in_span = (links.ends(span[1]) > span[0]) & (links.steps < span[1])
    worst = np.where(np.isfinite(links.mbit), 1.0, links.delay_ms)[in_span].max(axis=0, initial=0.0)
    slowest = np.argsort(-worst, kind="stable")[:STACKED_PARTS]
    return sorted(owner for owner in slowest.tolist() if worst[owner] >= _LATE_MS)


def _pale_lines(owners: Array, x: Array, y: Array, slow: list[int]) -> list[Attributes]:
    """Return lines of the owners without delay; of many, those of the first ones."""
    fast_owners = [owner for owner in np.unique(owners).tolist() if owner not in slow][:STACKED_PARTS]
    return [
        line(f"part {owner}", *_points(owners == owner, x, y), STEP_COLOUR, _HOVER.format(what=""), width=1.2)
        for owner in fast_owners
    ]


_HOVER = "about step %{{x:.0f}}: %{{y:.3~g}} ms{what}"


def _points(mask: Array, x: Array, y: Array) -> tuple[list[float], list[float]]:
    return x[mask].round(1).tolist(), y[mask].round(3).tolist()


def _owner_lines(
    owner: int,
    replies: tuple[Array, Array, Array],
    estimates: tuple[Array, Array, Array],
    links: LinkHistory,
    span: tuple[float, float],
) -> list[Attributes]:
    """Return the replies of a slow owner, solid; the delay that is added, dashed; the delay it is taken for, dotted."""
    name, colour, added = f"part {owner}", series_colour(owner), links.stairs(links.delay_ms[:, owner], *span)
    owners, x, y = replies
    data = [line(name, *_points(owners == owner, x, y), colour, _HOVER.format(what=""), width=1.8)]
    if added[0]:
        data.append(line(name, *added, colour, _HOVER.format(what=" added"), width=1.4, dash="dash"))
    owners, x, y = estimates
    mask = (owners == owner) & (x >= span[0])
    if mask.any():
        newest = np.flatnonzero(mask)[-2 * _STRETCHES :]
        corners = x[newest].round(1).tolist(), y[newest].round(3).tolist()
        style: Attributes = {"line": {"color": colour, "width": 1.4, "dash": "dot", "shape": "hv"}}
        data.append(line(name, *corners, colour, _HOVER.format(what=" estimated"), **style))
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
    newest = {owner: index for index, owner in enumerate(owners.tolist())}  # rows are in order of steps
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
    section="supporting",
    applies=fetches_features,
    help="Solid: measured. Dashed: the delay added to replies. Dotted: the delay that controllers estimate.",
)
