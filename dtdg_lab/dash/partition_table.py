"""Partitions beside each other as a table: one row for each partitioner, the best of every column in bold."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.views.partition_facts import PartitionFacts
from dtdg_lab.views.partition_words import share
from dtdg_lab.views.theme import coloured

_TABLE = "border-collapse:collapse;font-size:12px;line-height:1.35;color:" + coloured("text")
_LINE = f"border-bottom:1px solid {coloured('line')}"
_HEAD = (
    f"text-align:right;padding:3px 5px;border-bottom:1px solid {coloured('field-line')};font-weight:600;"
    "vertical-align:bottom"
)
_CELL = f"text-align:right;padding:3px 5px;{_LINE};white-space:nowrap"
_WHY = f"text-align:left;padding:3px 5px;{_LINE};max-width:560px"
READING = (
    "Smaller is better everywhere; the best of a column is bold. Cut edges make halo rows, which are exchanged "
    "(adgnn-t) or replicated (pygt-dist). Uneven is the largest part over the mean: 1 is even. Memory is the "
    "largest part's, where rows are exchanged or replicated. Rows and edges are summed over the snapshots that are "
    "trained on."
)


@dataclass(frozen=True, slots=True)
class _Cell:
    """What a cell says, the number it is compared by, and what it says to a pointer."""

    text: str
    value: float
    more: str = ""


def table_html(measured: Mapping[str, PartitionFacts], refused: Mapping[str, str], waiting: Sequence[str] = ()) -> str:
    """The table.

    Args:
        measured: partitioner -> its partition.
        refused: partitioner -> why there is no partition.
        waiting: partitioners that are to come.
    """
    rows = {name: _cells(facts) for name, facts in measured.items()}
    heads = ("partitioner", *_HEADS)
    head = "".join(f'<th style="{_HEAD}{";text-align:left" if not i else ""}">{h}</th>' for i, h in enumerate(heads))
    best = [min((cells[at].value for cells in rows.values()), default=0.0) for at in range(len(_HEADS))]
    body = [_row(name, cells, best if len(rows) > 1 else None) for name, cells in rows.items()]
    body += [_said(name, why) for name, why in refused.items()]
    body += [_said(name, "measuring …", colour=coloured("soft")) for name in waiting]
    return (
        f'<table class="dl-partitions" style="{_TABLE}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>"
    )


_HEADS = (
    "cut<br>edges", "halo rows", "replicated<br>rows", "uneven:<br>vertices", "<br>edges", "<br>load",
    "memory:<br>exchanged", "<br>replicated", "made in",
)  # fmt: skip


def _cells(facts: PartitionFacts) -> list[_Cell]:
    totals, shares = facts.totals, {name: share(value) for name, value in facts.shares.items()}
    halo, replicated = (f"{totals[name]:,.0f}" for name in ("halo", "replicated"))
    counted = [
        _Cell(shares["cut"], totals["cut_edges"], f"{totals['cut_edges']:,.0f} of {totals['all_edges']:,.0f} edges"),
        _Cell(f"{halo} ({shares['halo']})", totals["halo"], f"{shares['halo']} of the rows that parts read"),
        _Cell(replicated, totals["replicated"], f"{shares['replicated']} of the rows that parts hold"),
    ]
    ratios = [facts.imbalance[of] for of in ("vertices", "edges", "load")]
    uneven = [_Cell(f"{ratio:.2f}", round(ratio, 2)) for ratio in ratios]
    held = [float(facts.memory[layout].max()) for layout in ("halo_vertex", "cached_vertex")]
    memory = [_Cell(format_bytes(count), count) for count in held]
    return [*counted, *uneven, *memory, _Cell(format_seconds(facts.seconds), facts.seconds)]


def _row(name: str, cells: Sequence[_Cell], best: Sequence[float] | None) -> str:
    said = [
        f"<b>{cell.text}</b>" if best is not None and cell.value == best[at] else cell.text
        for at, cell in enumerate(cells)
    ]
    columns = "".join(
        f'<td style="{_CELL}" title="{cell.more}">{text}</td>' for cell, text in zip(cells, said, strict=True)
    )
    return f'<tr><td style="{_CELL};text-align:left">{html.escape(name)}</td>{columns}</tr>'


def _said(name: str, why: str, *, colour: str = coloured("problem")) -> str:
    words = html.escape(why, quote=False)
    return (
        f'<tr><td style="{_CELL};text-align:left;vertical-align:top">{html.escape(name)}</td>'
        f'<td colspan="{len(_HEADS)}" style="{_WHY};color:{colour}">{words}</td></tr>'
    )
