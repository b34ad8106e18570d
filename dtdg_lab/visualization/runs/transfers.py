"""Bytes that ranks send each other in a step: measured in the last complete step, with what was predicted on hover."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdg_lab.config.model_facts import PASSES
from dtdg_lab.partition.events import BlockFacts, Matrix, PartitionFacts
from dtdg_lab.records.rows import Rows, known
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.axes import byte_unit
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Figure, Key, Section, always, card
from dtdg_lab.visualization.numbers import bytes_text, percent_text, three_digits
from dtdg_lab.visualization.palette import HEAT_SCALES
from dtdg_lab.visualization.thinning import least_by_rank, newest_rows
from dtdg_lab.visualization.traces import Attributes, heat

TITLE = "Bytes between ranks"
WRITTEN = 8  # ranks up to which every cell has room for its number
FIRST_ROWS = 256  # of each rank that are looked at first
EQUAL = 5e-4  # share up to which bytes are as predicted


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Bytes of one step.

    Attributes:
        by_pass: pass -> (R, R), [q, p] from rank q to rank p.
        step: that was measured; None of a prediction.
    """

    by_pass: Mapping[str, Matrix]
    step: int | None = None

    @property
    def matrix(self) -> Matrix:
        """(R, R) bytes of all passes."""
        return np.sum(list(self.by_pass.values()), axis=0)

    @property
    def total(self) -> float:
        """Bytes of all ranks together."""
        return float(self.matrix.sum())

    def text(self, sender: int, receiver: int) -> str:
        """Return the bytes from one rank to another, by pass."""
        cells = {name: float(matrix[sender, receiver]) for name, matrix in self.by_pass.items()}
        return ", ".join(f"{bytes_text(count)} {name}" for name, count in cells.items() if count) or "nothing"


def predicted_traffic(tables: RunTables) -> Traffic | None:
    """Return the bytes that the newest plan predicts for a step; None where no plan does."""
    plan = _plan(tables)
    return None if plan is None else plan[0]


def measured_traffic(tables: RunTables) -> Traffic | None:
    """Return the bytes of the last complete step since the plan was made; None before there is one."""
    return tables.once("measured traffic", lambda: _measured(tables))


def _plan(tables: RunTables) -> tuple[Traffic, int] | None:
    """Return the prediction of the newest plan, and the step from which on it is in use."""
    for kind in (BlockFacts, PartitionFacts):
        plans: list[tuple[dict[str, Any], Any]] = tables.typed(kind)
        event, facts = plans[-1] if plans else ({}, None)
        if facts is not None and facts.predicted and facts.ranks:
            by_pass = {name: layers.sum(axis=0) for name, layers in facts.predicted.items()}
            return Traffic(by_pass), int(event["step"] or 0)
    return None


def _measured(tables: RunTables) -> Traffic | None:
    plan, common = _plan(tables), tables.common_step
    since = 0 if plan is None else plan[1]
    rows = newest_rows(
        tables.rows("links"),
        FIRST_ROWS * tables.ranks,
        lambda tail: bool((least_by_rank(tail, "step", tables.ranks) < common - 1).all()),
    )
    steps = rows["step"]
    # rows of a step may come after it, so a step is complete once another follows it on every rank
    for complete in (steps < common, steps <= common):
        candidates = rows.where(complete & (steps >= since))
        if len(candidates):
            step = int(candidates["step"].max())
            return Traffic(_matrices(candidates.where(candidates["step"] == step), tables.ranks), step)
    return None


def _matrices(rows: Rows, ranks: int) -> dict[str, Matrix]:
    """Return the bytes of rows of ``links`` by pass, each once."""
    rows = rows.once("rank", "to", "pass_name", "layer")
    by_pass = {name: some for name, some in rows.by("pass_name").items() if name in PASSES}
    matrices = {name: np.zeros((ranks, ranks)) for name in PASSES if name in by_pass}
    for name, matrix in matrices.items():
        some = by_pass[name]
        np.add.at(matrix, (some["rank"].astype(np.int64), some["to"].astype(np.int64)), some["bytes"])
    return matrices


def transfers_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a heat map, senders down and receivers across."""
    measured, predicted = measured_traffic(tables), predicted_traffic(tables)
    return traffic_card(measured, predicted, empty=_nothing_text(tables))


def traffic_card(
    measured: Traffic | None, predicted: Traffic | None, *, who: str = "rank", empty: str = "Nothing is sent"
) -> Figure:
    """Return a heat map of what was measured, with the prediction on hover; without a measurement, of the prediction.

    Args:
        measured: bytes that were counted.
        predicted: bytes of a plan.
        who: sends, such as ``rank`` or ``part``.
        empty: what the plot says where nothing is sent.
    """
    title, traffic = TITLE if who == "rank" else f"Bytes between {who}s", measured or predicted
    if traffic is None or not traffic.total:
        return card([], title, unit="per step", empty=empty)
    matrix = traffic.matrix
    unit, factor = byte_unit(float(matrix.max()))
    numbers = range(len(matrix))
    values = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix / factor)
    cells = [known(row) for row in values.round(4)]
    style: Attributes = {"span": (0, float(np.nanmax(values)) or 1.0), "showscale": False, "xgap": 1, "ygap": 1}
    style["hover"] = f"{who} %{{y}} to {who} %{{x}}: %{{customdata}}<extra></extra>"
    style["customdata"] = [[_cell_text(measured, predicted, q, p) for p in numbers] for q in numbers]
    if len(matrix) <= WRITTEN:
        style["text"] = [[three_digits(value) if value else "" for value in row] for row in cells]
        style |= {"texttemplate": "%{text}", "textfont": {"size": 11}}
    bare = {"showgrid": False, "zeroline": False}
    axes: Attributes = {
        "xaxis": {**bare, "range": [-0.5, len(matrix) - 0.5], "dtick": -(-len(matrix) // 16), "tickprefix": "to "},
        "yaxis": {**bare, "range": [len(matrix) - 0.5, -0.5], "dtick": -(-len(matrix) // 8), "tickprefix": "from "},
    }
    how = "" if measured is not None else ", predicted"
    top = float(np.nanmax(values))
    keys: list[Key] = [(f"darkest: {three_digits(top)} {unit}", HEAT_SCALES["bytes"][-1][1], "box")]
    data = [heat(title, cells, numbers, numbers, HEAT_SCALES["bytes"], **style)]
    return card(data, title, unit=f"{unit} of rows per step{how}", keys=keys, margin={"l": 72}, **axes)


def transfers_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return what a step sent, against what was predicted."""
    measured, predicted = measured_traffic(tables), predicted_traffic(tables)
    if measured is None:
        if predicted is None:
            return NOTHING_YET
        return (
            f"A step will send {bytes_text(predicted.total)} of rows."
            if predicted.total
            else "Ranks send each other no rows."
        )
    sent = f"{bytes_text(measured.total)} of rows"
    if predicted is None:
        return f"A step sent {sent}."
    if not predicted.total:
        return f"A step sent {sent}, although nothing was predicted."
    excess = measured.total / predicted.total - 1
    if abs(excess) <= EQUAL:
        return f"A step sent {sent}, as predicted."
    return f"A step sent {sent}, {percent_text(abs(excess))} {'more' if excess > 0 else 'less'} than predicted."


def transfers_chart(section: Section = "supporting", applies: Callable[[RunTables], bool] = always) -> Chart:
    """Return the chart of bytes between ranks, for systems whose plans predict them."""
    return Chart(
        name="transfers",
        title=TITLE,
        figure=transfers_figure,
        caption=transfers_caption,
        section=section,
        applies=applies,
        help="Rows send, columns receive. A strong row or column is a rank that many need; hover shows the prediction.",
    )


def _nothing_text(tables: RunTables) -> str:
    if tables.ranks == 1:
        return "With one rank, nothing is sent"
    return "Appears with the first step" if predicted_traffic(tables) is None else "Ranks send each other no rows"


def _cell_text(measured: Traffic | None, predicted: Traffic | None, sender: int, receiver: int) -> str:
    texts = [] if measured is None else [measured.text(sender, receiver)]
    if predicted is not None and max(sender, receiver) < len(predicted.matrix):
        texts.append(f"{'predicted ' if texts else ''}{predicted.text(sender, receiver)}")
    return "; ".join(texts)
