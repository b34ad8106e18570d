"""The batch size over time, and the sizes that may be chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.hybrid_batches import captions
from dtdg_lab.systems.hybrid_batches.events import HybridFacts, amount_text, size_name
from dtdg_lab.systems.hybrid_batches.observations import (
    CLOCK,
    Decision,
    in_use,
    is_hybrid,
    moment_text,
    recent_decisions,
    size_now,
    spread_decisions,
    values_now,
)
from dtdg_lab.systems.hybrid_batches.sizes import grid
from dtdg_lab.systems.hybrid_batches.time_cards import begin_of, end_of, time_axis, time_card, time_of
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Figure, Key, Mark, XAxis
from dtdg_lab.visualization.numbers import three_digits
from dtdg_lab.visualization.palette import BASELINE_COLOUR, SOFT_COLOUR, TEXT_COLOUR, series_colour
from dtdg_lab.visualization.traces import Attributes, box, heat, label, line, points

# The sizes that a controller chose, or a person.


SIZES_TITLE = "Batch size over time"
_RECENT = 20  # decisions that the caption counts
_NAMES, _NAMED_SIZES = 16, 5  # sizes that the axis has room for, and with their names
_HAND_SET = 100  # stretches without a controller
_BEST, _EXPLORING = series_colour(0), series_colour(4)


def sizes_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the size of each decision, and of stretches in which no controller chose."""
    x = time_axis(tables, options)
    choices, hand_set = spread_decisions(tables), _hand_set(tables, x)
    begin = begin_of([time_of(decision, x) for decision in choices[:1]], end_of(tables, x))
    names = _names(choices, hand_set)
    rows = {name: row for row, name in enumerate(names)}
    data = [
        line(name, [max(start, begin), end], [rows[name]] * 2, BASELINE_COLOUR, "%{fullData.name}", width=4)
        for name, start, end, _ in hand_set
        if name in rows and end >= begin
    ]
    keys: list[Key] = [("fixed size", BASELINE_COLOUR, "line")] if data else []
    kinds: tuple[tuple[str, str, str, Mark, bool], ...] = (
        ("best value", _BEST, "square", "box", True),
        ("exploring", _EXPLORING, "x", "cross", False),
    )
    for title, colour, symbol, mark, is_best in kinds:
        of_kind = [decision for decision in choices if decision.is_best == is_best and decision.size in rows]
        if of_kind:
            places = [time_of(decision, x) for decision in of_kind]
            hover = "%{x:.1f} s: %{customdata}" if x == "seconds" else "step %{x}: %{customdata}"
            marker: Attributes = {"marker": {"symbol": symbol}, "customdata": [decision.size for decision in of_kind]}
            data.append(points(title, places, [rows[d.size] for d in of_kind], colour, hover, size=6, **marker))
            keys.append((title, colour, mark))
    stride = -(-len(names) // _NAMED_SIZES)
    ticks = {
        "tickvals": list(range(len(names)))[:: stride or 1],
        "ticktext": [f"{name} " for name in names][:: stride or 1],
    }
    axis = {**ticks, "range": [-0.6, max(len(names), 1) - 0.4], "tickfont": {"size": 10.5}}
    layout: Attributes = {"unit": "snapshots × nodes", "keys": keys, "empty": "Appears with the first decision"}
    return time_card(tables, x, data, SIZES_TITLE, begin=begin, yaxis=axis, margin={"l": 78}, **layout)


def sizes_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the size that the newest decisions chose most often, or the one that is set."""
    facts, choices = tables.event(HybridFacts), recent_decisions(tables)
    if facts is not None and not facts.is_controlled:
        return captions.SET.format(size=facts.size.name)
    if not choices:
        return NOTHING_YET
    recent = [decision.size for decision in choices[-_RECENT:]]
    ((size, count),) = Counter(reversed(recent)).most_common(1)
    return captions.CHOSEN.format(size=size, count=count, decisions=len(recent))


def _hand_set(tables: RunTables, x: XAxis) -> list[tuple[str, float, float, tuple[float, float]]]:
    """Return the stretches in which no controller chose: name of the size, begin, end, and the size as it was set."""
    plans = [(event, facts) for event, facts in tables.typed(HybridFacts) if facts is not None]
    begins = [float(event["seconds"] if x == "seconds" else event["step"] or 0) for event, _ in plans]
    ends = [*begins, end_of(tables, x)][1:]
    spans = [
        (facts.size.name, begin, end, facts.size.shares)
        for (_, facts), begin, end in zip(plans, begins, ends, strict=True)
        if not facts.is_controlled
    ]
    return spans[-_HAND_SET:]


def _names(choices: Sequence[Decision], hand_set: Sequence[tuple[str, float, float, tuple[float, float]]]) -> list[str]:
    """Return the names of the sizes in order, those with most snapshots on top; of many those that were used last."""
    pairs = {name: size for name, _, _, size in hand_set}
    for facts in {id(decision.facts): decision.facts for decision in choices}.values():
        pairs |= {size.name: size.shares for size in facts.sizes}
    used = list(
        dict.fromkeys([*(d.size for d in reversed(choices)), *(name for name, *_ in reversed(hand_set)), *pairs])
    )
    return sorted(used[:_NAMES], key=lambda name: pairs.get(name, (0.0, 0.0)))


SIZES = Chart(
    name="batch_sizes",
    title=SIZES_TITLE,
    figure=sizes_figure,
    caption=sizes_caption,
    section="supporting",
    applies=is_hybrid,
    rollups=(CLOCK,),
    help="Squares are sizes that the controller valued most, crosses those it tried to learn their value.",
)

Pair = tuple[float, float]  # snapshots and nodes of a size, as they were set
Cell = tuple[float | None, int | None]  # its estimated value, and how often it was chosen

CURRENT_COLOUR = series_colour(0)
SMALL = {"size": 11, "color": SOFT_COLOUR}
ABOVE: Attributes = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 3}
_COUNTED = 50
_GRID_CELLS, _LISTED = 16, 8  # sizes of a grid; of a list, where there are more
_GREENS = ((0.0, "#F3F7F5"), (1.0, "#5FBF9A"))


def size_panel(tables: RunTables, facts: HybridFacts, *, domain: tuple[float, float]) -> Attributes:
    """Return the traces, shapes, annotations and axes of the sizes, which have this share of the width."""
    values, times = _valued(tables, facts)
    pairs = [size.shares for size in facts.sizes] if facts.is_controlled else _choosable(tables, facts)
    current = size_now(tables, facts).shares
    cells = {pair: (values.get(pair), times.get(pair)) for pair in pairs}
    across, down = (list(dict.fromkeys(pair[axis] for pair in pairs)) for axis in (0, 1))
    if len(pairs) <= _GRID_CELLS and len(across) * len(down) == len(pairs):
        choices = in_use(recent_decisions(tables), facts)
        head = _heading(tables, facts, choices[-1] if choices else None)
        return _size_grid(cells, current, domain, head=head)
    return _size_list(cells, current, domain)


def _valued(tables: RunTables, facts: HybridFacts) -> tuple[Mapping[Pair, float], Mapping[Pair, int]]:
    """Return by size its estimated value, and how often the newest decisions chose it; both empty without any."""
    choices = in_use(recent_decisions(tables), facts)
    if not choices:
        return {}, {}
    times = dict.fromkeys((size.shares for size in facts.sizes), 0)
    for decision in choices[-_COUNTED:]:
        if decision.action < len(facts.sizes):
            times[facts.sizes[decision.action].shares] += 1
    return {facts.sizes[action].shares: value for action, value in values_now(tables, facts).items()}, times


def _choosable(tables: RunTables, facts: HybridFacts) -> list[Pair]:
    """Return the sizes that a click may request without a controller: those of the settings, and the one in use."""
    offered = grid(str(tables.config["snapshot_sizes"]), str(tables.config["node_sizes"]))
    current = facts.size.shares
    across, down = (dict.fromkeys([*(pair[axis] for pair in offered), current[axis]]) for axis in (0, 1))
    pairs = list(product(across, down))
    return pairs if len(pairs) <= _GRID_CELLS else [current]


def _as_share(value: float) -> tuple[bool, float]:
    return value > 1, value  # whole numbers after shares


def _heading(tables: RunTables, facts: HybridFacts, decision: Decision | None) -> str:
    """Return what the cells of the grid hold, and at which decision."""
    if decision is None:
        return "Sizes to choose from" if facts.is_controlled else "Batch size: click to change"
    return f"Value {moment_text(tables, decision)}, times chosen (last {_COUNTED})"


def _size_grid(cells: Mapping[Pair, Cell], current: Pair, domain: tuple[float, float], *, head: str) -> Attributes:
    """Return sizes as a grid: shares of snapshots across, shares of nodes up."""
    across, down = (sorted({pair[axis] for pair in cells}, key=_as_share) for axis in (0, 1))
    worth = _worth(cells)
    z = [[worth[x, y] for x in across] for y in down]
    changes = [[_changes(x, y) for x in across] for y in down]
    notes = [
        _cell_note(cells[x, y], column, row, is_current=(x, y) == current)
        for row, y in enumerate(down)
        for column, x in enumerate(across)
    ]
    notes.append(label(head, domain[0], 1, **ABOVE, font=SMALL))
    beside: Attributes = {"xref": "paper", "yref": "paper", "xanchor": "right", "xshift": -38, "font": SMALL}
    notes.append(label("share<br>of nodes", domain[0], 0.5, **beside))
    frame_cell = (across.index(current[0]), down.index(current[1])) if current in cells else None
    return {
        "data": [_size_heat(z, list(range(len(across))), list(range(len(down))), changes)],
        "shapes": [_frame(*frame_cell)] if frame_cell is not None else [],
        "annotations": notes,
        "xaxis2": _amounts_axis(across, domain, "y2", "share of snapshots"),
        "yaxis2": {**_amounts_axis(down, (0.0, 1.0), "x2"), "ticksuffix": " "},
    }


def _size_list(cells: Mapping[Pair, Cell], current: Pair, domain: tuple[float, float]) -> Attributes:
    """Return the best sizes, the one in use among them, as a list."""
    ranked = sorted(
        cells, key=lambda pair: [-1e300 if number is None else number for number in cells[pair]], reverse=True
    )
    best = ranked[:_LISTED]
    if current in cells and current not in best:
        best[-1] = current
    best.reverse()  # the best on top
    worth = _worth(cells)
    z = [[worth[pair]] for pair in best]
    changes = [[_changes(*pair)] for pair in best]
    head = f"Best {len(best)} of {len(cells)} sizes" if len(cells) > len(best) else "Batch size"
    notes = [_cell_note(cells[pair], 0, row, is_current=pair == current, between=", ") for row, pair in enumerate(best)]
    notes.append(label(head, domain[0], 1, **ABOVE, font=SMALL))
    names = _amounts_axis([0.0] * len(best), (0.0, 1.0), "x2") | {"ticktext": [f"{size_name(*pair)} " for pair in best]}
    return {
        "data": [_size_heat(z, [0], list(range(len(best))), changes)],
        "shapes": [_frame(0, best.index(current))] if current in best else [],
        "annotations": notes,
        "xaxis2": {**_amounts_axis([0.0], domain, "y2"), "showticklabels": False, "ticks": ""},
        "yaxis2": names,
    }


def _worth(cells: Mapping[Pair, Cell]) -> dict[Pair, float]:
    """Return what colours each size: its value, or the least where unknown; without any how often it was chosen."""
    values = [value for value, _ in cells.values() if value is not None]
    if not values:
        return {pair: float(times or 0) for pair, (_, times) in cells.items()}
    return {pair: min(values) if value is None else value for pair, (value, _) in cells.items()}


def _changes(snapshots: float, nodes: float) -> dict[str, Any]:
    """Return the settings that a click on a size requests, without a controller."""
    return {"batch_snapshots": snapshots, "batch_nodes": nodes}


def _size_heat(
    z: Sequence[Sequence[float]], x: list[int], y: list[int], changes: list[list[dict[str, Any]]]
) -> Attributes:
    values = [value for row in z for value in row]
    low, high = min(values), max(values)
    span = (low - 0.1 * (high - low), high) if high > low else (low, low + 1.0)
    style: Attributes = {"xaxis": "x2", "yaxis": "y2", "xgap": 3, "ygap": 3, "showscale": False, "customdata": changes}
    return heat("sizes", z, x, y, _GREENS, span=span, hoverinfo="none", **style)  # "skip" would fire no clicks


def _cell_note(cell: Cell, column: int, row: int, *, is_current: bool, between: str = "<br>") -> Attributes:
    value, times = cell
    font = {"size": 11.5, "color": TEXT_COLOUR}
    texts = [f"<b>{three_digits(value)}</b>"] if value is not None else []
    texts += [] if times is None else [f"{times}×"]
    texts += ["<b>now</b>"] if is_current and not texts else []
    return label(between.join(texts), column, row, font=font, xref="x2", yref="y2", captureevents=False)


def _frame(column: int, row: int) -> Attributes:
    """Return the frame around the size in use."""
    style: Attributes = {"xref": "x2", "yref": "y2", "line": {"color": CURRENT_COLOUR, "width": 3}}
    return box((column - 0.48, column + 0.48), (row - 0.48, row + 0.48)) | style


def _amounts_axis(values: Sequence[float], domain: tuple[float, float], anchor: str, title: str = "") -> Attributes:
    """Return an axis with the amounts at whole numbers."""
    ticks = {"tickvals": list(range(len(values))), "ticktext": [amount_text(value) for value in values]}
    style = {"domain": list(domain), "anchor": anchor, "range": [-0.5, len(values) - 0.5], "tickfont": {"size": 11}}
    named = {"title": {"text": title, "standoff": 4, "font": SMALL}} if title else {}
    return {**ticks, **style, **named, "showgrid": False, "zeroline": False, "automargin": True, "tickangle": 0}
