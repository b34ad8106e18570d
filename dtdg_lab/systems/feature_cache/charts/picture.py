"""The picture of fetched features: delay of replies, the caches of all parts, and waiting, over the same steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.charts import captions
from dtdg_lab.systems.feature_cache.charts.batches import (
    RESOLVED,
    hit_rate_now,
    late_wait_share,
    recent_waits,
    wait_now_s,
    waits,
)
from dtdg_lab.systems.feature_cache.charts.caches import (
    HELD,
    LENGTHS,
    Caches,
    mean_caches,
    mean_lengths,
    recent_caches,
    windows_now,
)
from dtdg_lab.systems.feature_cache.charts.captions import ms_text
from dtdg_lab.systems.feature_cache.charts.step_chart import (
    STACKED_PARTS,
    LinkHistory,
    fetches_features,
    has_cache,
    link_history,
    newest_step,
    part_count,
    policy_in_use,
)
from dtdg_lab.visualization.changes.marks import PAGE_WIDTH, with_changes
from dtdg_lab.visualization.chart import NOTHING_YET, STEPS_TITLE, Chart, ChartOptions, Key, card
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.palette import (
    BASELINE_COLOUR,
    GRID_COLOUR,
    HEAT_SCALES,
    TEXT_COLOUR,
    WARNING_COLOUR,
    series_colour,
)
from dtdg_lab.visualization.traces import Attributes, bars, heat, label, line, paper_label

if TYPE_CHECKING:
    from dtdg_lab.visualization.chart import Figure

NEWEST, BINS = 500, 300  # steps that are drawn one by one; columns of a whole run
WAIT_WIDTH = 5  # steps of a bar of waiting
_HEIGHT = 380  # pixels
MOST_BLOCKS = 900  # of one colour each: above, the lane of caches is a heat map
NARROWEST, _MEAN_EVERY = 19, 60  # pixels of a block with its W above it, and from one mean W to the next
LATE_CACHES = 20  # that the caption counts
_MOST_OF_WAITING = 0.5  # share from which late caches are named as its cause
_CAUSE, _DECISION, _EFFECT = (0.87, 1.0), (0.25, 0.805), (0.0, 0.175)  # of the height
_LANES = (
    ("Cause: delay added to replies", "; grey: the mean, red: the slowest part", _CAUSE[1]),
    ("Decision: the cache of each part, with its window W", "", 0.81),
    ("Effect: time per step that training waits for rows", "; pale: the part that waits most", 0.185),
)  # what each says, what it says of many parts, and its top
_TOP, _BOTTOM = 0.23, 0.93  # of a full block, in the row of a part
_LETTER, _LINE, _LANE_HEIGHT = 6.2, 15, 45  # pixels of a letter, of a line of text, and of the lane of delays
_LIMITED = 0.3  # height of a lane's hatching where only a rate is limited
_EVERY = 500  # steps of the axis before the first one
_SHORT, _LONG = 1, 128  # W of the palest and the darkest cell
_SHADES, _PALEST = 33, 0.12
_PALE_RED = "#E9B3B0"


def figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return three lanes: delay of replies by owner, caches by part, and waiting."""
    first, last = _span(tables, options)
    cause, notes, top = _cause(tables, first, last)
    decision, axis = _decision(tables, options, first, last)
    data = [*cause, *decision, *_effect(tables, options), *map(_empty_trace, ("y2", "y3"))]
    is_many = part_count(tables) > STACKED_PARTS
    names = [_lane_name(text + suffix * is_many, y) for text, suffix, y in _LANES]
    layout: Attributes = {
        "barmode": "overlay",
        "bargap": 0,
        "height": _HEIGHT,
        "margin": {"l": 58, "r": 10, "t": 20, "b": 34},
        "xaxis": {"range": [first, last], "anchor": "y3", "showgrid": False},
        "yaxis": {"domain": [*_DECISION], "showgrid": False, **axis},
        "yaxis2": _lane_axis(
            _CAUSE, range=[0, 1.13 * (top or 1.0)], tickvals=[0, top], ticktext=["0", f"{top:.3g} ms"]
        ),
        "yaxis3": _lane_axis(_EFFECT, rangemode="tozero", nticks=3, ticksuffix=" ms"),
        "annotations": [*names, *notes, *_notes(tables, options)],
    }
    picture = card(data, "Caches under congestion", keys=_keys(tables, options), x_title=STEPS_TITLE, **layout)
    return with_changes(picture, tables, "steps", first, last, width=PAGE_WIDTH)


def caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how often caches are replaced and what they are good for, or what causes the waiting."""
    wait_s, rate, windows = wait_now_s(tables), hit_rate_now(tables), windows_now(tables)
    if part_count(tables) == 1:
        return captions.ONE_PART
    if wait_s is None:
        return NOTHING_YET
    if not has_cache(tables):
        template = captions.FETCHED_AHEAD if policy_in_use(tables) == "prefetch" else captions.NO_CACHE
        return template.format(wait=ms_text(wait_s))
    if windows is None:
        return captions.FIRST_BATCHES
    return _cache_caption(tables, wait_s, rate, windows)


def _cache_caption(tables: RunTables, wait_s: float, rate: float | None, windows: tuple[float, float]) -> str:
    """Return what causes the waiting where caches came late, else how often they are replaced."""
    caches = recent_caches(tables)
    newest = np.argsort(caches.begin, kind="stable")[-LATE_CACHES:]
    late = int((caches.late_steps[newest] > 0).sum())
    if late and late_wait_share(tables) >= _MOST_OF_WAITING:
        return captions.CAME_LATE.format(count=late, caches=len(newest), wait=ms_text(wait_s))
    if late and rate is not None:
        return captions.MISSED.format(rate=percent_text(rate), wait=ms_text(wait_s))
    every = _steps_text(*windows, " to ").removeprefix("1 ")
    return captions.REPLACED.format(every=every, rate=percent_text(rate))


def window_text(tables: RunTables) -> str:
    """Return W of the newest caches, such as ``16 steps`` or ``8–16 steps``; empty without any."""
    windows = windows_now(tables)
    return "" if windows is None else _steps_text(*windows, "–")


def _steps_text(low: float, high: float, joint: str) -> str:
    steps = f"{low:,.0f}" if low == high else f"{low:,.0f}{joint}{high:,.0f}"
    return f"{steps} step{'' if high == 1 else 's'}"


def _span(tables: RunTables, options: ChartOptions) -> tuple[float, float]:
    """Return where the axis of steps begins and ends."""
    end = newest_step(tables) + 1
    if end <= 0:
        return 0.0, float(_EVERY)
    begin = 0 if options.whole_run else max(0, end - NEWEST)
    return float(begin), end + 0.004 * (end - begin)


def _lane_axis(domain: tuple[float, float], **style: Any) -> Attributes:
    return {
        "domain": [*domain],
        "anchor": "x",
        "showgrid": False,
        "zeroline": False,
        "linecolor": GRID_COLOUR,
        "tickfont": {"size": 11},
        **style,
    }


def _empty_trace(axis: str) -> Attributes:
    """Return a trace that keeps a lane on the page while it is empty."""
    return line("", [None], [None], yaxis=axis, hoverinfo="skip")


def _lane_name(text: str, y: float) -> Attributes:
    return paper_label(text, 0, y, xanchor="left", yanchor="bottom")


def _keys(tables: RunTables, options: ChartOptions) -> list[Key]:
    parts = part_count(tables)
    if _lacks_caches(tables, options):
        return []
    if _is_map(tables, options):
        return [("short window", _shade(0.0), "box"), ("long window", _shade(1.0), "box")]
    keys: list[Key] = [(f"rows of part {part}", series_colour(part), "box") for part in range(parts)]
    if (_caches(tables, options).late_steps > 0).any():
        keys.append(("came late", WARNING_COLOUR, "line"))
    return keys


def _lacks_caches(tables: RunTables, options: ChartOptions) -> bool:
    """Return whether there is no cache in these steps, and will not be one."""
    return part_count(tables) == 1 or (not has_cache(tables) and not len(_caches(tables, options)))


def _notes(tables: RunTables, options: ChartOptions) -> list[Attributes]:
    """Return what the lane of caches says where there are none."""
    if not _lacks_caches(tables, options):
        return []
    text = captions.ONE_PART if part_count(tables) == 1 else "No cache: every remote row is fetched."
    return [paper_label(text, 0.5, sum(_DECISION) / 2, size=12.5)]


# Cause: the delay of each owner's replies.


def _cause(tables: RunTables, first: float, last: float) -> tuple[list[Attributes], list[Attributes], float]:
    """Return traces, names in their areas, and the height of the lane in milliseconds."""
    links = link_history(tables).between(first, last)
    top = float(links.delay_ms.max(initial=0.0))
    if links.delay_ms.shape[1] > STACKED_PARTS:
        return _worst_and_mean(links, first, last), [], top
    data: list[Attributes] = []
    stretches: list[tuple[float, float, float, str]] = []
    for owner in range(links.delay_ms.shape[1]):
        delays, rates = links.delay_ms[:, owner], links.mbit[:, owner]
        corners = links.stairs(delays, first, last)
        if corners[0]:
            data.append(_delay_line(f"part {owner}", corners, series_colour(owner), fill=True))
        for begin, end, delay in links.stretches(delays, first, last):
            if delay > 0:
                stretches.append((begin, end, delay, f"part {owner} replies {delay:.3g} ms late"))
        limited = [stretch for stretch in links.stretches(rates, first, last) if np.isfinite(stretch[2])]
        if limited:
            data.append(_limited_bars(owner, limited, _LIMITED * (top or 1.0)))
        for begin, end, rate in limited:
            above = (_LIMITED + _LINE / _LANE_HEIGHT) * (top or 1.0)
            stretches.append((begin, end, above, f"part {owner} at {rate:.4g} Mbit/s"))
    return data, _area_names(stretches, last - first, top or 1.0), top


def _delay_line(name: str, corners: tuple[list[float], list[float]], colour: str, *, fill: bool) -> Attributes:
    style: Attributes = {
        "yaxis": "y2",
        "width": 1.8,
        **({"fill": "tozeroy", "fillcolor": _faint(colour)} if fill else {}),
    }
    return line(name, *corners, colour, "%{y:.3~g} ms added", **style)


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[digit : digit + 2], 16) for digit in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.2)"


def _worst_and_mean(links: LinkHistory, first: float, last: float) -> list[Attributes]:
    """Return the delay of the slowest owner, and the mean of all."""
    worst = links.stairs(links.delay_ms.max(axis=1), first, last)
    mean = links.stairs(links.delay_ms.mean(axis=1), first, last)
    if not worst[0]:
        return []
    return [
        _delay_line("slowest part", worst, WARNING_COLOUR, fill=True),
        _delay_line("mean of the parts", mean, BASELINE_COLOUR, fill=False),
    ]


def _limited_bars(owner: int, stretches: list[tuple[float, float, float]], height: float) -> Attributes:
    """Return hatching where the rate of an owner's replies is limited."""
    begin, end, rate = zip(*stretches, strict=True)
    pattern = {"shape": "/", "fgcolor": series_colour(owner), "size": 6, "solidity": 0.3}
    marker = {"color": "rgba(0,0,0,0)", "line": {"width": 0}, "pattern": pattern}
    style: Attributes = {"yaxis": "y2", "offset": 0, "width": [b - a for a, b in zip(begin, end, strict=True)]}
    style |= {"customdata": [f"{value:.4g}" for value in rate], "marker": marker}
    return bars(f"part {owner}", begin, [height] * len(stretches), None, "%{customdata} Mbit/s", **style)


def _area_names(stretches: list[tuple[float, float, float, str]], span: float, top: float) -> list[Attributes]:
    """Return the names that fit into their areas, without two over each other; the widest first."""
    notes: list[Attributes] = []
    occupied: list[tuple[float, float, float]] = []
    for begin, end, height, text in sorted(stretches, key=lambda stretch: stretch[0] - stretch[1]):
        half, middle = len(text) * _LETTER / PAGE_WIDTH * span / 2, (begin + end) / 2
        y = max(height / top * _LANE_HEIGHT, _LINE)  # pixels above the axis
        is_free = all(
            abs(y - height_px) >= _LINE or abs(middle - centre) >= half + half_width
            for centre, half_width, height_px in occupied
        )
        if end - begin >= 2 * half and is_free and len(notes) < STACKED_PARTS:
            occupied.append((middle, half, y))
            notes.append(label(text, middle, y / _LANE_HEIGHT * top, yref="y2", yanchor="top"))
    return notes


# Decision: the caches of each part.


def _decision(
    tables: RunTables, options: ChartOptions, first: float, last: float
) -> tuple[list[Attributes], Attributes]:
    """Return the traces of the lane of caches, and its axis."""
    parts = part_count(tables)
    if _is_map(tables, options):
        labelled = [*range(0, parts, -(-parts // STACKED_PARTS))]
        axis: Attributes = {
            "range": [parts - 0.5, -0.5],
            "tickvals": labelled,
            "ticktext": [f"part {part} " for part in labelled],
        }
        return _length_map(tables, options, first, last), axis
    names = {"tickvals": [part + 0.58 for part in range(parts)], "ticktext": [f"part {part} " for part in range(parts)]}
    axis = {"range": [parts, 0], "showline": False, **names}
    if _lacks_caches(tables, options):
        return [], axis
    caches, span = _caches(tables, options), last - first
    if not len(caches):
        return _first_window(tables, parts), axis
    return [*_blocks(caches, parts, span), *_late_edges(caches, first), *_lengths(caches, span)], axis


def _caches(tables: RunTables, options: ChartOptions) -> Caches:
    """Return the caches in the steps that are drawn: one by one, or means of a long run."""

    def shown() -> Caches:
        caches, parts = recent_caches(tables), part_count(tables)
        is_exact = _is_all_in_memory(tables) and _block_count(caches, parts) <= MOST_BLOCKS
        caches = caches if is_exact or not options.whole_run else mean_caches(tables)
        return caches.between(*_span(tables, options))

    return tables.once(("caches of the picture", options.whole_run), shown)


def _is_all_in_memory(tables: RunTables) -> bool:
    return newest_step(tables) < tables.recent


def _block_count(caches: Caches, parts: int) -> int:
    return len(caches) * max(parts - 1, 1)


def _is_map(tables: RunTables, options: ChartOptions) -> bool:
    """Return whether there are too many parts, or blocks, to be drawn one by one."""
    parts = part_count(tables)
    if parts > STACKED_PARTS:
        return not _lacks_caches(tables, options)
    return _block_count(_caches(tables, options), parts) > MOST_BLOCKS


def _blocks(caches: Caches, parts: int, span: float) -> list[Attributes]:
    """Return a trace for each owner: its share of the height of each block.

    A full cache has the whole height; where all have room to spare, the fullest one has it.
    """
    rows_held = caches.held(parts)
    fullest = float(rows_held.sum(axis=1).max(initial=1.0))
    room = np.clip(caches.capacity, 1.0, fullest)
    height, wide = _BOTTOM - _TOP, caches.end - caches.begin
    gap = np.zeros(len(caches)) if caches.are_means else np.minimum(0.0014 * span, 0.2 * wide)
    below = np.cumsum(rows_held[:, ::-1], axis=1)[:, ::-1] - rows_held  # rows of the owners after it
    data, hover_parts = [], _block_labels(caches, rows_held.sum(axis=1))
    for owner, owner_rows in enumerate(rows_held.T):
        some = owner_rows > 0
        texts = [
            f"{hover_parts[index][0]}{rows:,.0f} rows of part {owner}{hover_parts[index][1]}"
            for index, rows in zip(np.flatnonzero(some).tolist(), owner_rows[some].tolist(), strict=True)
        ]
        style: Attributes = {
            "offset": 0,
            "width": _rounded((wide - 2 * gap)[some]),
            "base": _rounded((caches.part + _BOTTOM - height * below[:, owner] / room)[some]),
            "customdata": texts,
            "marker": {"color": series_colour(owner), "line": {"width": 0}},
        }
        x, y = _rounded((caches.begin + gap)[some]), _rounded((-height * owner_rows / room)[some])
        data.append(bars(f"rows of part {owner}", x, y, None, "%{customdata}<extra></extra>", **style))
    return data


def _rounded(values: Array) -> list[float]:
    rounded: list[float] = np.round(values, 4).tolist()
    return rounded


def _block_labels(caches: Caches, rows_held: Array) -> list[tuple[str, str]]:
    """Return what hovering over a block says, before and after the rows of one owner."""
    columns = (
        caches.part,
        caches.length,
        rows_held,
        caches.capacity,
        caches.late_steps,
        caches.biased.astype(np.int64),
    )
    return [
        (
            f"part {part}, W {length:.3g}: ",
            f"; {rows:,.0f} of {capacity:,.0f} held"
            + (f", {late:.0f} steps late" if late > 0 else "")
            + (f", most for part {biased}" if biased >= 0 else ""),
        )
        for part, length, rows, capacity, late, biased in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _late_edges(caches: Caches, first: float) -> list[Attributes]:
    """Return red left edges of the caches that came late."""
    late = (caches.late_steps > 0) & (caches.begin > first)
    if not late.any():
        return []
    x = [value for begin in caches.begin[late].tolist() for value in (begin, begin, None)]
    y = [value for part in caches.part[late].tolist() for value in (part + _TOP, part + _BOTTOM, None)]
    return [line("came late", x, y, WARNING_COLOUR, width=2.5, mode="lines", hoverinfo="skip")]


def _lengths(caches: Caches, span: float) -> list[Attributes]:
    """Return W above the blocks that are wide enough; of means, above one every so often."""
    wide = (caches.end - caches.begin) / span * PAGE_WIDTH
    some = np.flatnonzero(wide >= NARROWEST)
    if caches.are_means:
        lines = (caches.begin / span * PAGE_WIDTH // _MEAN_EVERY).astype(np.int64)
        some = np.flatnonzero(np.append(True, (np.diff(lines) != 0) | (np.diff(caches.part) != 0)))
    x, part = ((caches.begin + caches.end) / 2)[some].tolist(), caches.part[some].tolist()
    return [_words_over(x, part, [f"{length:.0f}" for length in caches.length[some].tolist()])]


def _words_over(x: list[float], part: list[int], text: list[str]) -> Attributes:
    """Return words above blocks."""
    style: Attributes = {"mode": "text", "text": text, "textfont": {"size": 10.5, "color": TEXT_COLOUR}}
    return line("W", x, [row + _TOP - 0.12 for row in part], hoverinfo="skip", **style)


def _first_window(tables: RunTables, parts: int) -> list[Attributes]:
    """Return the first cache as the settings have it, pale, before there is one."""
    window, rows = int(tables.config["cache_window"]), [*range(parts)]
    style: Attributes = {"offset": 0, "width": [window] * parts, "base": [part + _BOTTOM for part in rows]}
    marker = {"color": GRID_COLOUR, "line": {"width": 0}}
    blocks = bars("first window", [0] * parts, [_TOP - _BOTTOM] * parts, None, hoverinfo="skip", marker=marker, **style)
    return [blocks, _words_over([window / 2] * parts, rows, [f"{window}"] * parts)]


def _length_map(tables: RunTables, options: ChartOptions, first: float, last: float) -> list[Attributes]:
    """Return W of each part over the steps as a heat map."""
    if options.whole_run and not _is_all_in_memory(tables):
        part, begin, length = mean_lengths(tables)
    else:
        caches = recent_caches(tables)
        part, begin, length = caches.part, caches.begin, caches.length
    if not len(part):
        return []
    parts, edges = part_count(tables), np.linspace(first, last, min(BINS, max(1, int(last - first))) + 1)
    cells: list[list[float | None]] = []
    for row in range(parts):
        steps, lengths = begin[part == row], length[part == row].tolist()
        places = (np.searchsorted(steps, edges[1:], side="left") - 1).tolist()
        cells.append([lengths[index] if index >= 0 else None for index in places])
    shares = np.log2(np.linspace(_SHORT, _LONG, _SHADES)) / np.log2(_LONG)
    scale = [(index / (_SHADES - 1), _shade(share)) for index, share in enumerate(shares.tolist())]
    style: Attributes = {"span": (_SHORT, _LONG), "showscale": False, "hoverongaps": False}
    hover = "part %{y}, about step %{x:.0f}: W %{z:.3~g}<extra></extra>"
    return [heat("W", cells, _rounded((edges[1:] + edges[:-1]) / 2), range(parts), scale, hover=hover, **style)]


def _shade(share: float) -> str:
    """Return the colour of a W between the shortest, 0, and the longest, 1."""
    stops = HEAT_SCALES["owned"]
    index = _PALEST + (1 - _PALEST) * share
    channels = [
        np.interp(index, [stop for stop, _ in stops], [int(colour[digit : digit + 2], 16) for _, colour in stops])
        for digit in (1, 3, 5)
    ]
    return "#" + "".join(f"{round(channel):02X}" for channel in channels)


# Effect: how long training waits.


def _effect(tables: RunTables, options: ChartOptions) -> list[Attributes]:
    """Return bars of waiting in milliseconds; of many parts also those of the part that waits most."""
    is_long = options.whole_run and newest_step(tables) >= NEWEST
    waited = waits(tables) if is_long else recent_waits(tables, NEWEST, WAIT_WIDTH)
    series = {"waiting": (waited.mean_s, WARNING_COLOUR)}
    if part_count(tables) > STACKED_PARTS:
        series = {"part that waits most": (waited.worst_s, _PALE_RED), "mean of the parts": series["waiting"]}
    x, hover = _rounded(waited.begin + waited.width / 2), "about step %{x:.0f}: %{y:.3~g} ms"
    style: Attributes = {"yaxis": "y3", "width": waited.width}
    return [
        bars(name, x, _rounded(1e3 * seconds), None, hover, marker={"color": colour, "line": {"width": 0}}, **style)
        for name, (seconds, colour) in series.items()
        if len(waited)
    ]


PICTURE = Chart(
    name="caches",
    title="Caches under congestion",
    figure=figure,
    caption=caption,
    section="picture",
    applies=fetches_features,
    rollups=(HELD, LENGTHS, RESOLVED),
    toggles=("whole_run",),
    help="Each block is one cache of a part, from the step at which it was swapped in: wide blocks are long windows.",
)
