"""Charts of the traffic of features: slow links, rows by owner, and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.records.rows import Array
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.charts import captions
from dtdg_lab.systems.feature_cache.charts.step_chart import (
    STACKED_PARTS,
    fetches_features,
    newest_step,
    over_steps,
    part_count,
    recent_rows,
)
from dtdg_lab.systems.feature_cache.events import Congestion, FeatureFacts
from dtdg_lab.visualization.axes import FROM_ZERO, byte_unit, named_axis
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, card, trace_keys
from dtdg_lab.visualization.numbers import bytes_text, three_digits
from dtdg_lab.visualization.palette import HEAT_SCALES, PHASE_COLOURS, PURGE_COLOUR, TEXT_COLOUR, series_colour
from dtdg_lab.visualization.traces import Attributes, bars, colour_bar, heat, label

if TYPE_CHECKING:
    from dtdg_lab.visualization.chart import Figure


DARK = 0.55  # share of the largest value from which writing is white


def _links_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the delay of every link as a colour, with its rate written where it is limited."""
    parts, links = part_count(tables), tables.event(Congestion)
    if links is None:
        links = Congestion("none", ((0.0,) * parts,) * parts, ((None,) * parts,) * parts)
    count, top = links.parts, max(links.owner_delays_ms, default=0.0)
    cells = [
        [None if owner == requester else links.delay_ms[owner][requester] for requester in range(count)]
        for owner in range(count)
    ]
    texts = [[_link_text(links, owner, requester) for requester in range(count)] for owner in range(count)]
    bar = {"colorbar": colour_bar("")} if top else {"showscale": False}
    hover = "part %{y} to part %{x}: %{customdata}<extra></extra>"
    style: Attributes = {"span": (0, top or 1.0), "xgap": 2, "ygap": 2, "customdata": texts, "hover": hover, **bar}
    notes = [
        label(
            texts[owner][requester].replace(" at ", "<br>"),
            requester,
            owner,
            "white" if links.delay_ms[owner][requester] > DARK * top else TEXT_COLOUR,
            10,
        )
        for owner in range(count if count <= 5 else 0)
        for requester in range(count)
        if owner != requester
    ]
    return card(
        [heat("links", cells, range(count), range(count), HEAT_SCALES["halo"], **style)],
        "Links now",
        unit="ms added, by owner and requester",
        x_title="requester",
        xaxis=_parts_axis(count, down=False),
        yaxis=_parts_axis(count, down=True),
        annotations=notes,
    )


def _parts_axis(count: int, *, down: bool) -> Attributes:
    """Return an axis with names of parts, of many some."""
    every = -(-count // (2 * STACKED_PARTS))
    names = [f"{'part ' if down else ''}{part}{' ' * down}" if part % every == 0 else "" for part in range(count)]
    return named_axis(names, down=down)


def _link_text(links: Congestion, owner: int, requester: int) -> str:
    delay, rate = links.delay_ms[owner][requester], links.mbit[owner][requester]
    limit = "" if rate is None else f"{rate:.4g} Mbit/s"
    return " at ".join([f"{delay:.3g} ms"] * (delay > 0) + [limit] * bool(limit)) or "free"


def _links_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how many links are slowed down."""
    links, parts = tables.event(Congestion), part_count(tables)
    slow = 0 if links is None else links.slow_links
    return captions.SLOW_LINKS.format(slow=slow, links=parts * (parts - 1))


_ROWS_STEPS = 50


def _rows_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the rows of each owner that a step asks for: in a cache, and fetched."""
    hits, misses = _requested(tables)
    x = [*range(len(hits))]
    series = {"in the cache": (hits, series_colour(0)), "fetched": (misses, PURGE_COLOUR)}
    data = [
        bars(name, x, values.round(2).tolist(), colour, "of part %{x}: %{y:,.4~g} rows of a step")
        for name, (values, colour) in series.items()
        if (hits + misses).any()
    ]
    axis = {"dtick": max(1, -(-len(x) // STACKED_PARTS)), "showgrid": False, "tickprefix": "part "}
    style: Attributes = {"barmode": "stack", "bargap": 0.35, "xaxis": axis, "yaxis": FROM_ZERO}
    return card(data, "Rows asked by owner", unit="rows per step, all parts", keys=trace_keys(data), **style)


def _requested(tables: RunTables) -> tuple[Array, Array]:
    """Return (P,) rows of each owner that a step finds in caches, and fetches."""
    rows, parts = recent_rows(tables, "resolved", _ROWS_STEPS), part_count(tables)
    steps = max(len(np.unique(rows["step"])), 1)
    sums = []
    for name in ("hits", "misses"):
        counts = np.zeros(parts)
        for by_owner in rows[name].tolist():
            counts[: len(by_owner)] += by_owner[:parts]
        sums.append(counts / steps)
    return sums[0], sums[1]


def _rows_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the part that is asked for most rows."""
    totals = sum(_requested(tables))
    if not np.any(totals):
        return NOTHING_YET
    part = int(np.argmax(totals))
    return captions.ASKED_MOST.format(part=part, rows=three_digits(float(np.asarray(totals)[part])))


_BARS, _BYTE_STEPS = 80, 100


def _bytes_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return bytes per step for batches and for caches, all parts together; those of a cache stand at its swap."""
    batches, caches = recent_rows(tables, "resolved"), recent_rows(tables, "windows")
    steps = batches["step"]
    if not len(steps):
        return card([], "Bytes moved", unit="per step")
    first, last = int(steps.min()), newest_step(tables)
    width = max(1, -(-(last - first + 1) // _BARS))
    count = (last - first) // width + 1
    offsets, rebuilt_bytes = caches["step"] - first, caches["fetched"] * _row_bytes(tables)
    is_shown = offsets >= 0
    missed = np.bincount((steps - first) // width, batches["bytes"], count) / width
    rebuilt = np.bincount(offsets[is_shown] // width, rebuilt_bytes[is_shown], count) / width
    unit, factor = byte_unit(float((missed + rebuilt).max()))
    x = (first + width * (np.arange(count) + 0.5)).tolist()
    series = {"for batches": (missed, PHASE_COLOURS["communicate"]), "for caches": (rebuilt, PHASE_COLOURS["batch"])}
    hover = "about step %{x:.0f}: %{y:.3~g} " + unit
    data = [
        bars(name, x, (values / factor).round(4).tolist(), colour, hover, width=width)
        for name, (values, colour) in series.items()
    ]
    style: Attributes = {"keys": trace_keys(data), "barmode": "stack", "bargap": 0, "yaxis": FROM_ZERO}
    span = (float(first), float(last + 1))
    return over_steps(data, tables, span, "Bytes moved", unit=f"{unit} per step, all parts", **style)


def _row_bytes(tables: RunTables) -> int:
    facts = tables.event(FeatureFacts)
    return 0 if facts is None else facts.row_bytes


def _bytes_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the bytes per step of the last steps, for batches and for caches."""
    batches, caches = (recent_rows(tables, name, _BYTE_STEPS) for name in ("resolved", "windows"))
    steps = len(np.unique(batches["step"]))
    if not steps:
        return NOTHING_YET
    missed, rebuilt = batches["bytes"].sum() / steps, caches["fetched"].sum() * _row_bytes(tables) / steps
    return captions.BYTES_MOVED.format(missed=bytes_text(float(missed)), rebuilt=bytes_text(float(rebuilt)))


LINKS = Chart(
    name="links",
    title="Links now",
    figure=_links_figure,
    caption=_links_caption,
    section="folded",
    applies=fetches_features,
    help="Rows reply, columns ask. Gradients are sent on other links, which are not slowed down.",
)
ROWS_BY_OWNER = Chart(
    name="rows_by_owner",
    title="Rows asked by owner",
    figure=_rows_figure,
    caption=_rows_caption,
    section="folded",
    applies=fetches_features,
    help="Rows of the last 50 steps. The owner that is slowest to reply decides how long a batch waits.",
)
BYTES_MOVED = Chart(
    name="feature_bytes",
    title="Bytes moved",
    figure=_bytes_figure,
    caption=_bytes_caption,
    section="folded",
    applies=fetches_features,
    help="Training may wait for bytes of batches; bytes of caches are fetched beside it.",
)
