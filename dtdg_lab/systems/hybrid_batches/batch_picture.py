"""The large picture of hybrid batches: what each part trains now, and the sizes that a controller may choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.records.rows import Array, Rows
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.hybrid_batches import captions
from dtdg_lab.systems.hybrid_batches.events import HybridFacts, SizeFacts, amount_text, span_text
from dtdg_lab.systems.hybrid_batches.observations import (
    CLOCK,
    PartBatch,
    action_now,
    is_hybrid,
    newest_batches,
    recent_batches,
    size_now,
)
from dtdg_lab.systems.hybrid_batches.reservoir import FEW
from dtdg_lab.systems.hybrid_batches.sampler import SHARES
from dtdg_lab.systems.hybrid_batches.size_charts import ABOVE, CURRENT_COLOUR, SMALL, size_panel
from dtdg_lab.systems.hybrid_batches.sizes import batch_size, grid, nearest
from dtdg_lab.visualization.chart import Chart, ChartOptions, Figure, Key, card
from dtdg_lab.visualization.palette import MARK_COLOUR
from dtdg_lab.visualization.traces import Attributes, box, heat, label, line

TITLE = "What a step trains"
HEIGHT = 352
SHOWN_PARTS = 8
_ENDS = SHOWN_PARTS // 2  # busiest and idlest parts where there are more
_GAP = 5  # between parts, in sixtieths of a part
_COLUMNS = 200  # of snapshots
_NOTE = 0.22  # of the field, that the words beside a box need
_CELLS = 16_000  # of visits
_FIELD, _SIZES = (0.0, 0.63), (0.73, 1.0)  # of the width
_ASSUMED = 100  # snapshots, and nodes of a part, before a run says how many there are
_VISITED_COLOUR = "#C4CBD3"
_BACK = "rgba(255,255,255,0.78)"
_BLUES = ((0.0, "#A9CCE6"), (0.3, "#2F6FA8"), (1.0, "#08306B"))
_GREYS = ((0.0, "#F6F8FA"), (1.0, "#AEB7C1"))
_KEYS: tuple[Key, ...] = (
    ("nodes in the current batch", CURRENT_COLOUR, "box"),
    ("visited in the last 100 batches", _VISITED_COLOUR, "box"),
)


def batch_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return snapshots by nodes with the batch of each part, and the sizes with their values."""
    facts = tables.event(HybridFacts)
    has_plan = facts is not None
    facts = facts if facts is not None else _configured(tables, options.preview)
    batches = newest_batches(tables, facts) if has_plan else {}
    current = action_now(tables, facts)
    parts = _shown_parts(tables, facts)
    boxes = {part: batches.get(part) or _expected(facts, part) for part in parts}
    tops = {part: row * (SHARES + _GAP) for row, part in enumerate(parts)}
    proposed = _proposed(facts, options.preview) if has_plan else None
    hatched = {part for part, batch in boxes.items() if facts.reservoir and batch.source == "new"}
    data = _visits(tables, facts, tops) if has_plan else []
    shapes = [_ground(facts, top) for top in tops.values()]
    notes = [label("Nodes by load, heaviest on top of each part", 0, 1, **ABOVE, font=SMALL)]
    for part, batch in boxes.items():
        data += _batch_traces(facts, batch, tops[part])
        data += [_hatch(batch, tops[part])] if part in hatched else []
        shapes.append(_outline(batch.snapshots, tops[part], color=CURRENT_COLOUR, width=2))
        if proposed is None:
            notes.append(
                _part_note(
                    facts, batch, tops[part], is_now=part in batches and batch.action == current, has_plan=has_plan
                )
            )
    hidden = len(facts.candidates) - len(parts)
    if hidden:
        below: Attributes = {"xref": "paper", "yref": "paper", "xanchor": "right", "yanchor": "top", "yshift": -3}
        notes.append(label(f"{hidden} more", -0.005, 0, **below, font=SMALL))
    if proposed is not None:
        spans = {part: _proposed_span(facts, boxes[part], proposed) for part in parts}
        shapes += [_outline(spans[part], tops[part], color=MARK_COLOUR, width=2, dash="dash") for part in parts]
        notes.append(_proposal_note(proposed, spans[parts[0]], tops[parts[0]]))
    sizes = size_panel(tables, facts, domain=_SIZES)
    first, last = facts.first, facts.first + facts.snapshots - 1
    field: Attributes = {"domain": list(_FIELD), "range": [first - 0.5, last + 0.5], "showgrid": False, "nticks": 14}
    down: Attributes = {
        "range": [len(parts) * (SHARES + _GAP) - _GAP, 0],
        "tickvals": [top + SHARES / 2 for top in tops.values()],
        "ticktext": [f"part {part} " for part in parts],
        "showgrid": False,
    }
    return card(
        data + sizes["data"],
        TITLE,
        keys=[*_KEYS, ("built in the step", CURRENT_COLOUR, "hatch")] if hatched else _KEYS,
        x_title="training snapshot, oldest to newest",
        height=HEIGHT,
        margin={"l": 62, "r": 8, "t": 24, "b": 40},
        xaxis={**field, "showticklabels": has_plan},
        yaxis=down,
        xaxis2=sizes["xaxis2"],
        yaxis2=sizes["yaxis2"],
        shapes=shapes + sizes["shapes"],
        annotations=notes + sizes["annotations"],
        meta={"clickable": has_plan and not facts.is_controlled},
    )


def batch_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return what a part trains now, or what it would train with the settings that are proposed."""
    facts = tables.event(HybridFacts)
    if facts is None:
        snapshots, nodes = map(amount_text, _configured(tables, options.preview).size.shares)
        return captions.CONFIGURED.format(snapshots=snapshots, nodes=nodes)
    proposed = _proposed(facts, options.preview)
    if proposed is not None:
        return captions.PROPOSED.format(size=proposed.name, **_amounts(facts, proposed))
    batches = newest_batches(tables, facts)
    size = size_now(tables, facts)
    if not batches:
        return captions.PLANNED.format(**_amounts(facts, size))
    if facts.is_controlled:
        part, batch = min(batches.items())
        template = captions.CONTROLLED if batch.action == action_now(tables, facts) else captions.CHOSEN_SINCE
        return template.format(
            part=part,
            targets=f"{batch.targets:,}",
            nodes=f"{facts.candidates[part]:,}",
            snapshots=len(batch.snapshots),
            total=facts.snapshots,
            size=size.name,
        )
    scarcest = _scarcest_part(facts)
    if scarcest is not None:
        return captions.FEW.format(part=scarcest[0], batches=scarcest[1])
    return captions.FIXED.format(**_amounts(facts, size))


def _amounts(facts: HybridFacts, size: SizeFacts) -> dict[str, Any]:
    return {
        "targets": span_text(size.least_targets, size.most_targets),
        "nodes": span_text(min(facts.candidates), max(facts.candidates)),
        "snapshots": size.snapshots,
        "total": facts.snapshots,
    }


def _scarcest_part(facts: HybridFacts) -> tuple[int, str] | None:
    """Return the part whose reservoir has room for fewest batches of the size in use; None where it has for enough."""
    if not facts.reservoir or facts.choice >= len(facts.capacities):
        return None
    count, part = min((count, part) for part, count in enumerate(facts.capacities[facts.choice]))
    return (part, f"{count} distinct batch{'es' * (count > 1)}") if count < FEW else None


def _configured(tables: RunTables, preview: Mapping[str, Any]) -> HybridFacts:
    """Return the batches of the settings, of a hundred snapshots and of parts of a hundred nodes."""
    policy = str(tables.config["batch_policy"])
    pair = _proposed_pair(preview, (tables.config["batch_snapshots"], tables.config["batch_nodes"]))
    pairs: Sequence[tuple[float, float]] = [pair]
    if policy != "none":
        pairs = grid(str(tables.config["snapshot_sizes"]), str(tables.config["node_sizes"]))
    sizes = [[max(1, round(_ASSUMED * (value if value <= 1 else 0.2))) for value in pair] for pair in pairs]
    return HybridFacts(
        sizes=tuple(
            SizeFacts(snapshots, nodes, nodes, pair) for (snapshots, nodes), pair in zip(sizes, pairs, strict=True)
        ),
        snapshots=_ASSUMED,
        first=0,
        nodes=_ASSUMED * tables.config.parts,
        candidates=(_ASSUMED,) * tables.config.parts,
        choice=nearest(tuple(pairs), *pair),
        batch_policy=policy,
        reservoir=bool(tables.config["reservoir"]),
        exchange=str(tables.config["exchange"]),
        load_groups=1,
        deviation=None,
        cache_bytes=None,
    )


# Left: the batch of each part.


def _shown_parts(tables: RunTables, facts: HybridFacts) -> list[int]:
    """Return all parts where they are few, else the busiest and the idlest of those that have trained."""
    parts = list(range(len(facts.candidates)))
    if len(parts) <= SHOWN_PARTS:
        return parts
    edges = {part: float(rows["edges"].mean()) for part, rows in recent_batches(tables, facts).items()}
    by_work = sorted(parts, key=lambda part: -edges.get(part, 0.0))
    return by_work[:_ENDS] + by_work[-_ENDS:]


def _expected(facts: HybridFacts, part: int) -> PartBatch:
    """Return a batch of the size in use, as a part may draw it, before it has trained one."""
    size, candidates = facts.size, facts.candidates[part]
    share = size.shares[1] if size.shares[1] <= 1 else size.most_targets / max(facts.candidates)
    begin = facts.first + (facts.snapshots - size.snapshots) // 2
    targets = min(max(1, round(share * candidates)), candidates)
    return PartBatch(part, facts.choice, "", range(begin, begin + size.snapshots), targets, 0, None)


def _within(candidates: int) -> Array:
    """Return the candidates in each sixtieth of a part; some have none in a part of fewer than sixty."""
    return np.bincount(np.arange(candidates) * SHARES // candidates, minlength=SHARES)


def _edges(top: float, rows: int) -> list[float]:
    """Return the edges of rows of equal height in the field of a part."""
    return [round(top + row * SHARES / rows, 3) for row in range(rows + 1)]


def _visits(tables: RunTables, facts: HybridFacts, tops: Mapping[int, float]) -> list[Attributes]:
    """Return one heat map: how often nodes were in one of the newest batches of their part, by snapshot."""

    def visits() -> list[Attributes]:
        recent = recent_batches(tables, facts)
        if not recent:
            return []
        columns = min(facts.snapshots, _COLUMNS)
        rows = max(row for row in (20, 10, 5) if row * len(tops) * columns <= _CELLS or row == 5)
        cells: list[list[float | None]] = []
        y: list[float] = []
        for part, top in tops.items():
            if y:
                cells.append([None] * columns)
            y += _edges(top, rows)
            of_part = recent.get(part)
            cells += _part_visits(facts, part, of_part, (rows, columns)) if of_part else [[0.0] * columns] * rows
        visited = np.array([cell for row in cells for cell in row if cell], np.float64)
        dark = float(np.quantile(visited, 0.98)) if len(visited) else 1.0
        x = np.linspace(facts.first - 0.5, facts.first + facts.snapshots - 0.5, columns + 1).round(3).tolist()
        hover = "snapshot %{x:.0f}: %{z:.1f} visits per node<extra></extra>"
        style: Attributes = {"showscale": False, "hoverongaps": False, "hover": hover}
        return [heat("visits", cells, x, y, _GREYS, span=(0.0, dark), **style)]

    return [*tables.once(("hybrid: visits", facts, tuple(tops)), visits)]


def _part_visits(facts: HybridFacts, part: int, rows: Rows, shape: tuple[int, int]) -> list[list[float | None]]:
    """Return the visits per node of a part in rows of equal load, by snapshot or by a few of them."""
    within = _within(facts.candidates[part])
    targets = rows["targets"].astype(np.float64)
    counts = np.outer(targets / within.sum(), within)  # where they were not counted, each sixtieth has its share
    for number, counted in enumerate(rows["map"].tolist()):
        if isinstance(counted, list):
            counts[number] = counted
    begin = (rows["first"] - facts.first).astype(np.int64)
    changes = np.zeros((facts.snapshots + 1, SHARES))
    np.add.at(changes, begin, counts)
    np.add.at(changes, begin + rows["snapshots"].astype(np.int64), -counts)
    per_sixtieth = changes.cumsum(axis=0)[:-1].T  # (sixtieths, snapshots)
    heights, columns = shape
    nodes = within.reshape(heights, -1).sum(axis=1)
    visits = per_sixtieth.reshape(heights, -1, facts.snapshots).sum(axis=1) / np.maximum(nodes, 1)[:, np.newaxis]
    if columns < facts.snapshots:
        bounds = np.linspace(0, facts.snapshots, columns + 1).astype(np.int64)
        visits = np.add.reduceat(visits, bounds[:-1], axis=1) / np.diff(bounds)
    cells: list[list[float | None]] = np.maximum(visits, 0.0).round(3).tolist()
    return cells


def _batch_traces(facts: HybridFacts, batch: PartBatch, top: float) -> list[Attributes]:
    """Return the nodes of a batch as rows over its snapshots; none where they are not known."""
    if batch.counts is None:
        return []
    within = _within(facts.candidates[batch.part])
    rows = [(count, n) for count, n in zip(batch.counts, within.tolist(), strict=True) if n]
    shares = [[round(min(count / n, 1.0), 4) if count else None] for count, n in rows]
    texts = [[f"{count:,} of {n:,} nodes"] for count, n in rows]
    x = [batch.snapshots.start - 0.5, batch.snapshots.stop - 0.5]
    hover = f"part {batch.part}, snapshots {batch.snapshots.start} to {batch.snapshots.stop - 1}: %{{customdata}}"
    style: Attributes = {
        "showscale": False,
        "hoverongaps": False,
        "customdata": texts,
        "hover": hover + "<extra></extra>",
    }
    # half of the nodes is the darkest: a batch takes few
    return [heat(f"part {batch.part}", shares, x, _edges(top, len(rows)), _BLUES, span=(0.0, 0.5), ygap=0.6, **style)]


def _ground(facts: HybridFacts, top: float) -> Attributes:
    """Return the field of a part, before its visits are drawn over it."""
    x = (facts.first - 0.5, facts.first + facts.snapshots - 0.5)
    return box(x, (top, top + SHARES), layer="below", fillcolor=_GREYS[0][1], line={"width": 0})


def _hatch(batch: PartBatch, top: float) -> Attributes:
    """Return hatching over the box of a batch that the reservoir did not have, so that the step built it."""
    begin, end = batch.snapshots.start - 0.5, batch.snapshots.stop - 0.5
    x, y = [begin, end, end, begin, begin], [top, top, top + SHARES, top + SHARES, top]
    pattern = {"shape": "/", "fgcolor": CURRENT_COLOUR, "size": 7, "solidity": 0.12}
    style: Attributes = {"fill": "toself", "fillcolor": "rgba(0,0,0,0)", "fillpattern": pattern, "hoverinfo": "skip"}
    return line("built in the step", x, y, CURRENT_COLOUR, width=0, mode="lines", **style)


def _outline(snapshots: range, top: float, **style: Any) -> Attributes:
    return box((snapshots.start - 0.5, snapshots.stop - 0.5), (top, top + SHARES), line=style)


def _part_note(facts: HybridFacts, batch: PartBatch, top: float, *, is_now: bool, has_plan: bool) -> Attributes:
    """Return what a part trains, beside its box."""
    if has_plan:
        lines = [f"<b>part {batch.part} now</b>" if is_now else f"<b>part {batch.part}</b>"]
        lines += [f"{len(batch.snapshots)} snapshot{'s' * (len(batch.snapshots) > 1)}"]
        lines += [f"{batch.targets:,} of {facts.candidates[batch.part]:,} nodes"]
    else:
        snapshots, nodes = map(amount_text, facts.size.shares)
        lines = [f"<b>part {batch.part}</b>", f"{snapshots} of the snapshots", f"{nodes} of its nodes"]
    if len(facts.candidates) > 4:  # low fields
        lines = [", ".join([lines[0], *lines[2:]])]
    elif facts.reservoir and batch.source == "new":
        lines.append("built in the step")
    elif batch.source == "snapshot":
        lines.append("in place of a batch")
    room_before = batch.snapshots.start - facts.first
    room_after = facts.first + facts.snapshots - batch.snapshots.stop
    if max(room_before, room_after) < _NOTE * facts.snapshots:
        x, side = batch.snapshots.stop - 0.7, "right"  # inside
    elif room_before > room_after:
        x, side = batch.snapshots.start - 0.7, "right"
    else:
        x, side = batch.snapshots.stop - 0.3, "left"
    style: Attributes = {"xanchor": side, "align": side, "bgcolor": _BACK, "borderpad": 2, "size": 11.5}
    return label("<br>".join(lines), x, top + SHARES / 2, **style)


# A size that is proposed, such as while its slider is dragged.


def _proposed(facts: HybridFacts, preview: Mapping[str, Any]) -> SizeFacts | None:
    """Return the size of proposed settings; None where they change none, or no batch can have it."""
    if not {"batch_snapshots", "batch_nodes"} & set(preview):
        return None
    pair = _proposed_pair(preview, facts.size.shares)
    if facts.is_controlled:
        return facts.sizes[nearest(tuple(size.shares for size in facts.sizes), *pair)]
    try:
        sizes = [batch_size(*pair, snapshots=facts.snapshots, candidates=count) for count in facts.candidates]
    except ConfigError:  # the request is refused with the reason
        return None
    targets = [size.vertices for size in sizes]
    return SizeFacts(sizes[0].snapshots, min(targets), max(targets), pair)


def _proposed_pair(preview: Mapping[str, Any], current: tuple[float, float]) -> tuple[float, float]:
    """Return N_S and N_V with what is proposed of them."""
    return float(preview.get("batch_snapshots", current[0])), float(preview.get("batch_nodes", current[1]))


def _proposed_span(facts: HybridFacts, batch: PartBatch, proposed: SizeFacts) -> range:
    """Return the snapshots that a box of the proposed size covers, from where the batch of a part begins."""
    begin = min(batch.snapshots.start, facts.first + facts.snapshots - proposed.snapshots)
    return range(begin, begin + proposed.snapshots)


def _proposal_note(proposed: SizeFacts, span: range, top: float) -> Attributes:
    lines = (
        f"<b>{proposed.name}</b>",
        f"{span_text(proposed.least_targets, proposed.most_targets)} nodes in {proposed.snapshots} snapshots",
        "Release to apply, Esc to cancel",
    )
    style: Attributes = {"bgcolor": _BACK, "borderpad": 2, "size": 11.5}
    return label("<br>".join(lines), (span.start + span.stop - 1) / 2, top + SHARES / 2, MARK_COLOUR, **style)


PICTURE = Chart(
    name="batch",
    title=TITLE,
    figure=batch_figure,
    caption=batch_caption,
    section="picture",
    applies=is_hybrid,
    rollups=(CLOCK,),
    help="Boxes are the batches in training: blue rows are their nodes. Green sizes are worth more to the controller.",
)
