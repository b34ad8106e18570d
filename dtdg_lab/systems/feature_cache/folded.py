"""."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.records.rows import Array, Rows
from dtdg_lab.systems.feature_cache import captions
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.events import Congestion, FeatureFacts
from dtdg_lab.systems.feature_cache.measures import (
    STACKED_PARTS,
    fetches_features,
    newest_step,
    part_count,
    recent_rows,
)
from dtdg_lab.systems.feature_cache.supporting import over_steps
from dtdg_lab.visualization.axes import FROM_ZERO, byte_unit, named_axis
from dtdg_lab.visualization.chart import FIRST_STEP, NOTHING_YET, Chart, ChartOptions, Key, card
from dtdg_lab.visualization.numbers import MINUS, bytes_text, percent_text, three_digits
from dtdg_lab.visualization.palette import (
    HEAT_SCALES,
    MARK_COLOUR,
    PHASE_COLOURS,
    PURGE_COLOUR,
    TEXT_COLOUR,
    WARNING_COLOUR,
    series_colour,
)
from dtdg_lab.visualization.traces import Drawn, bars, box, colour_bar, heat, label, points

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables
    from dtdg_lab.visualization.layout import Figure


# Links now, owner by requester.


_DARK = 0.55  # share of the largest value from which writing is white


def _links_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the delay of every link as a colour, with its rate written where it is limited."""
    parts, links = part_count(tables), tables.event(Congestion)
    if links is None:
        links = Congestion("none", ((0.0,) * parts,) * parts, ((None,) * parts,) * parts)
    count, top = links.parts, max(links.owner_delays_ms, default=0.0)
    cells = [
        [None if owner == other else links.delay_ms[owner][other] for other in range(count)] for owner in range(count)
    ]
    texts = [[_link_text(links, owner, other) for other in range(count)] for owner in range(count)]
    bar = {"colorbar": colour_bar("")} if top else {"showscale": False}
    hover = "part %{y} to part %{x}: %{customdata}<extra></extra>"
    looks: Drawn = {"span": (0, top or 1.0), "xgap": 2, "ygap": 2, "customdata": texts, "hover": hover, **bar}
    notes = [
        label(
            texts[owner][other].replace(" at ", "<br>"),
            other,
            owner,
            "white" if links.delay_ms[owner][other] > _DARK * top else TEXT_COLOUR,
            10,
        )
        for owner in range(count if count <= 5 else 0)
        for other in range(count)
        if owner != other
    ]
    return card(
        [heat("links", cells, range(count), range(count), HEAT_SCALES["halo"], **looks)],
        "Links now",
        unit="ms added, by owner and requester",
        x_title="requester",
        xaxis=_parts_axis(count, down=False),
        yaxis=_parts_axis(count, down=True),
        annotations=notes,
    )


def _parts_axis(count: int, *, down: bool) -> Drawn:
    """Return an axis with names of parts, of many some."""
    every = -(-count // (2 * STACKED_PARTS))
    names = [f"{'part ' if down else ''}{part}{' ' * down}" if part % every == 0 else "" for part in range(count)]
    return named_axis(names, down=down)


def _link_text(links: Congestion, owner: int, other: int) -> str:
    delay, rate = links.delay_ms[owner][other], links.mbit[owner][other]
    limit = "" if rate is None else f"{rate:.4g} Mbit/s"
    return " at ".join([f"{delay:.3g} ms"] * (delay > 0) + [limit] * bool(limit)) or "free"


def _links_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how many links are slowed down."""
    links, parts = tables.event(Congestion), part_count(tables)
    slow = 0 if links is None else links.slow_links
    return captions.SLOW_LINKS.format(slow=slow, links=parts * (parts - 1))


# Rows asked for by owner, in the newest steps.


_ASKED_STEPS = 50


def _asked_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the rows of each owner that a step asks for: in a cache, and fetched."""
    hits, misses = _asked(tables)
    x = [*range(len(hits))]
    series = {"in the cache": (hits, series_colour(0)), "fetched": (misses, PURGE_COLOUR)}
    data = [
        bars(name, x, values.round(2).tolist(), colour, "of part %{x}: %{y:,.4~g} rows of a step")
        for name, (values, colour) in series.items()
        if (hits + misses).any()
    ]
    keys: list[Key] = [(name, colour, "box") for name, (_, colour) in series.items()]
    axis = {"dtick": max(1, -(-len(x) // STACKED_PARTS)), "showgrid": False, "tickprefix": "part "}
    looks: Drawn = {"barmode": "stack", "bargap": 0.35, "xaxis": axis, "yaxis": FROM_ZERO}
    return card(data, "Rows asked by owner", unit="rows per step, all parts", keys=keys, **looks)


def _asked(tables: RunTables) -> tuple[Array, Array]:
    """Return (P,) rows of each owner that a step finds in caches, and fetches."""
    rows, parts = recent_rows(tables, "resolved", _ASKED_STEPS), part_count(tables)
    steps = max(len(np.unique(rows["step"])), 1)
    sums = []
    for name in ("hits", "misses"):
        counts = np.zeros(parts)
        for by_owner in rows[name].tolist():
            counts[: len(by_owner)] += by_owner[:parts]
        sums.append(counts / steps)
    return sums[0], sums[1]


def _asked_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the part that is asked for most rows."""
    asked = sum(_asked(tables))
    if not np.any(asked):
        return NOTHING_YET
    part = int(np.argmax(asked))
    return captions.ASKED_MOST.format(part=part, rows=three_digits(float(np.asarray(asked)[part])))


# Bytes that features cost, for batches and for caches.


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
    place = caches["step"] - first
    missed = np.bincount((steps - first) // width, batches["bytes"], count) / width
    rebuilt = (
        np.bincount(place[place >= 0] // width, (caches["fetched"] * _row_bytes(tables))[place >= 0], count) / width
    )
    unit, factor = byte_unit(float((missed + rebuilt).max()))
    x = (first + width * (np.arange(count) + 0.5)).tolist()
    series = {"for batches": (missed, PHASE_COLOURS["communicate"]), "for caches": (rebuilt, PHASE_COLOURS["batch"])}
    hover = "about step %{x:.0f}: %{y:.3~g} " + unit
    data = [
        bars(name, x, (values / factor).round(4).tolist(), colour, hover, width=width)
        for name, (values, colour) in series.items()
    ]
    keys: list[Key] = [(name, colour, "box") for name, (_, colour) in series.items()]
    looks: Drawn = {"barmode": "stack", "bargap": 0, "yaxis": FROM_ZERO}
    span = (float(first), float(last + 1))
    return over_steps(data, tables, span, "Bytes moved", unit=f"{unit} per step, all parts", keys=keys, **looks)


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


# Decisions of the policies.


_DECISIONS, _ALL_DECISIONS = 300, 1_500  # of a part, and of all parts
_EVEN = 7  # colour of an even allocation


def _decisions(tables: RunTables) -> Rows:
    """Return the newest decisions of each part, in order of steps."""
    rows = recent_rows(tables, "cache_decisions")
    if not len(rows):
        return rows
    by_part = rows.by("part")
    count = max(1, min(_DECISIONS, _ALL_DECISIONS // len(by_part)))
    newest = [some.sort("step").where(slice(-count, None)) for some in by_part.values()]
    columns = ("step", "part", "window", "biased", "greedy", "action", "values")
    return Rows.of({name: np.concatenate([some[name] for some in newest]) for name in columns}).sort("step")


def decision_points(decisions: Mapping[str, Array] | Rows) -> list[Drawn]:
    """Return W of decisions over steps, in the colour of the owner that gets most; crosses are not rated best."""
    biased = decisions["biased"].astype(np.int64)
    is_best = _is_best(decisions)
    # parts decide at the same steps: a little apart, or one hides the others
    places = np.array([_place(window) for window in decisions["window"].tolist()])
    y = places + 0.09 * (decisions["part"] % 4 - 1.5)
    data = []
    for owner in np.unique(biased).tolist():
        chosen = np.flatnonzero(biased == owner)
        colour = series_colour(_EVEN if owner < 0 else owner)
        texts = [
            f"part {part}: W {window}" + ("" if best else ", not rated best")
            for part, window, best in zip(
                *(column[chosen].tolist() for column in (decisions["part"], decisions["window"], is_best)), strict=True
            )
        ]
        marker = {"symbol": ["circle" if is_best[place] else "x-thin-open" for place in chosen.tolist()]}
        looks: Drawn = {"size": 6, "marker": marker, "customdata": texts}
        x = decisions["step"][chosen].tolist()
        data.append(points(_owner_name(owner), x, y[chosen].tolist(), colour, "step %{x}, %{customdata}", **looks))
    return data


def _is_best(decisions: Mapping[str, Array] | Rows) -> Array:
    """Return whether each decision took the action of highest value, as far as that is known."""
    return np.array([greedy is None or bool(greedy) for greedy in decisions["greedy"].tolist()], bool)


def _owner_name(owner: int) -> str:
    return "even" if owner < 0 else f"most for part {owner}"


def windows_axis() -> Drawn:
    """Return an axis of the W that policies choose from."""
    return {**named_axis(WINDOWS), "showgrid": True, "range": [-0.6, len(WINDOWS) - 0.4]}


def _place(window: int) -> float:
    """Return where a W stands on an axis of the eight; others stand between two."""
    return float(np.interp(np.log2(max(window, 1)), np.log2(WINDOWS), np.arange(len(WINDOWS))))


def _decisions_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the decisions in memory over steps."""
    decisions = _decisions(tables)
    data = decision_points(decisions) if len(decisions) else []
    owners = np.unique(decisions["biased"]).astype(int).tolist()[: 1 + STACKED_PARTS]
    keys: list[Key] = [(_owner_name(owner), series_colour(_EVEN if owner < 0 else owner), "dot") for owner in owners]
    keys += [("not rated best", TEXT_COLOUR, "cross")] * (not _is_best(decisions).all())
    span = (float(decisions["step"].min()) - 0.5, newest_step(tables) + 1.0) if data else (0.0, 1.0)
    empty = FIRST_STEP if newest_step(tables) < 0 else "This policy has decided nothing yet"
    return over_steps(data, tables, span, "Decisions", unit="W, steps", keys=keys, empty=empty, yaxis=windows_axis())


def _decisions_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the W that was chosen most often."""
    windows = _decisions(tables)["window"].tolist()
    if not windows:
        return NOTHING_YET
    ((window, count), *_) = Counter(windows).most_common(1)
    return captions.DECISIONS.format(share=percent_text(count / len(windows)), window=f"{window:g}")


# What a policy thinks each action is worth.


_WRITTEN_ROWS, _PALE = 10, 0.12  # allocations with written numbers; of the range, so that the worst is not white


def _values_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the newest decision with values: W across, allocations down; the chosen action is framed."""
    newest = _newest_valued(tables)
    title, unit = "Value of each action", "difference to the best; W across, allocation down"
    if newest is None:
        return card([], title, unit=unit, empty="Appears with the first decision that has values")
    part, action, values, is_best = newest
    rows = len(values) // len(WINDOWS)
    others = [owner for owner in range(rows) if owner != part][: rows - 1]
    names = ["even", *map(_owner_name, others)]
    cells = np.array(values[: rows * len(WINDOWS)]).reshape(rows, len(WINDOWS))
    cells = cells - np.nanmax(cells)  # values are alike in their first digits
    low, high = float(np.nanmin(cells)), 0.0
    span = (high - low) or 1.0
    texts = [[f"W {window}, {name}" for window in WINDOWS] for name in names]
    looks: Drawn = {"span": (low - _PALE * span, high), "showscale": False, "xgap": 2, "ygap": 2, "customdata": texts}
    shown = [[None if isnan(value) else float(f"{value:.5g}") for value in row] for row in cells.tolist()]
    hover = "%{customdata}: %{z:.4~g}<extra></extra>"
    trace = heat("value", shown, range(len(WINDOWS)), range(rows), HEAT_SCALES["owned"], hover=hover, **looks)
    row, column = divmod(action, len(WINDOWS))
    colour = MARK_COLOUR if is_best else WARNING_COLOUR
    dark = low + _DARK * ((high - low) or 1.0)
    notes = [
        label(_difference_text(value), across, down, "white" if value > dark else TEXT_COLOUR, 9)
        for down, row_values in enumerate(cells.tolist() if rows <= _WRITTEN_ROWS else [])
        for across, value in enumerate(row_values)
        if not isnan(value)
    ]
    return card(
        [trace],
        title,
        unit=f"of part {part}; {unit}",
        keys=[("chosen" if is_best else "chosen, not rated best", colour, "box")],
        xaxis=named_axis(WINDOWS),
        yaxis=named_axis([f"{name} " for name in names], down=True),
        shapes=[box((column - 0.47, column + 0.47), (row - 0.47, row + 0.47), line={"color": colour, "width": 3})],
        annotations=notes,
    )


def _difference_text(value: float) -> str:
    return f"{value:.2g}".replace("-", MINUS) if value else "best"


def _newest_valued(tables: RunTables) -> tuple[int, int, list[float], bool] | None:
    """Return part, action and values of the newest decision that has values, and whether that is the best."""
    decisions = _decisions(tables)
    for place in range(len(decisions) - 1, -1, -1):
        values = [np.nan if value is None else float(value) for value in decisions["values"][place] or ()]
        if len(values) >= len(WINDOWS) and not np.isnan(values).all():
            part, action = int(decisions["part"][place]), int(decisions["action"][place])
            return part, action, values, bool(_is_best(decisions)[place])
    return None


def _values_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the W that the part rates best."""
    newest = _newest_valued(tables)
    if newest is None:
        return NOTHING_YET
    part, _, values, _ = newest
    return captions.BEST_ACTION.format(part=part, window=WINDOWS[int(np.nanargmax(values)) % len(WINDOWS)])


FOLDED = (
    Chart(
        name="links",
        title="Links now",
        figure=_links_figure,
        caption=_links_caption,
        place="folded",
        shown=fetches_features,
        help="Rows reply, columns ask. Gradients are sent on other links, which are not slowed down.",
    ),
    Chart(
        name="rows_by_owner",
        title="Rows asked by owner",
        figure=_asked_figure,
        caption=_asked_caption,
        place="folded",
        shown=fetches_features,
        help="Rows of the last 50 steps. The owner that is slowest to reply decides how long a batch waits.",
    ),
    Chart(
        name="feature_bytes",
        title="Bytes moved",
        figure=_bytes_figure,
        caption=_bytes_caption,
        place="folded",
        shown=fetches_features,
        help="Training may wait for bytes of batches; bytes of caches are fetched beside it.",
    ),
    Chart(
        name="cache_decisions",
        title="Decisions",
        figure=_decisions_figure,
        caption=_decisions_caption,
        place="folded",
        shown=fetches_features,
        help="Each point is a window chosen by a part, in the colour of the owner that gets most of the cache.",
    ),
    Chart(
        name="action_values",
        title="Value of each action",
        figure=_values_figure,
        caption=_values_caption,
        place="folded",
        shown=fetches_features,
        help="Value less that of the best action. Where two cells differ little, either action will do.",
    ),
)
