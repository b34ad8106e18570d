"""Timeline: what every rank did in the last seconds, on one clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtdg_lab.config.record_tables import BETWEEN_STEPS, PHASES
from dtdg_lab.records.events import Ended
from dtdg_lab.records.rows import Array, Rows
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Figure, Key, card
from dtdg_lab.visualization.numbers import MINUS, percent_text
from dtdg_lab.visualization.palette import PHASE_COLOURS
from dtdg_lab.visualization.runs.step_time import PHASE_NAMES, step_times
from dtdg_lab.visualization.thinning import least_by_rank, newest_rows
from dtdg_lab.visualization.traces import Attributes, heat, level_bars

TITLE = "Timeline"
SPANS_S = (0.5, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 25.0, 30.0)
TICKS_S = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)  # distances of ticks
STEPS = 10  # of the slowest rank that are drawn
ROWS = 24  # ranks up to which each has a row of blocks; more are a heat map
ROW_HEIGHT, HEAT_HEIGHT, MARGIN_HEIGHT, HEAT_MARGIN = 26, 3, 30, 60  # pixels
BLOCKS, COLUMNS, CELLS = 900, 300, 24_000  # that are drawn at most
FIRST_ROWS = 256  # of each rank that are looked at first
SILENT_S = 5.0  # behind the newest rank: the others do not wait for such a one
SHORTEST = 1e-3  # share of the span: shorter blocks are less than a pixel
SHORTEST_CELL = 1e-9  # share of a column: less is a rounding error
ORDER = (*PHASES, *BETWEEN_STEPS)
_INDICES = {phase: index for index, phase in enumerate(ORDER)}


@dataclass(frozen=True, slots=True)
class Span:
    """The newest seconds of a run.

    Attributes:
        rows: phases that reach into it; their columns ``begin`` and ``end`` are seconds before its end, at most 0.
        seconds: its length.
        ranks: rank -> its newest epoch, from 0.
    """

    rows: Rows
    seconds: float
    ranks: dict[int, int]

    def shares(self, phase: str) -> dict[int, float]:
        """Return the share of the span that each rank spent in a phase."""
        rows = self.rows.where(self.rows["phase"] == phase)
        spent_s = np.bincount(rows["rank"].astype(np.int64), rows["end"] - rows["begin"], max(self.ranks) + 1)
        return {rank: float(spent_s[rank] / self.seconds) for rank in self.ranks}


def newest_span(tables: RunTables) -> Span | None:
    """Return the last seconds of every rank: about ten steps of the slowest one; None before the first step."""
    return tables.once("newest span", lambda: _newest_span(tables))


def _newest_span(tables: RunTables) -> Span | None:
    rows, only_steps = tables.rows("phases"), is_over(tables)
    if not len(rows):
        return None
    slowest_s = max((times.time_s for times in step_times(tables).values()), default=0.0)
    seconds = next((span for span in SPANS_S if span >= 0.999 * STEPS * slowest_s), SPANS_S[-1])

    def is_enough(tail: Rows) -> bool:
        """Return whether the newest rows of every rank reach back to the begin of the span."""
        begin_ns = _end_ns(tail, tables.ranks, only_steps=only_steps) - 1e9 * seconds
        return bool((least_by_rank(tail, "start_ns", tables.ranks) < begin_ns).all())

    rows = newest_rows(rows, FIRST_ROWS * tables.ranks, is_enough)
    end_ns = _end_ns(rows, tables.ranks, only_steps=only_steps)
    begin = np.maximum((rows["start_ns"] - end_ns) / 1e9, -seconds)
    end = np.minimum((rows["end_ns"] - end_ns) / 1e9, 0.0)
    columns = {name: rows[name] for name in ("rank", "step", "phase")}
    newest = {int(rank): int(some["epoch"].max()) for rank, some in rows.by("rank").items()}
    epochs = {rank: newest.get(rank, 0) for rank in range(tables.ranks)}
    return Span(Rows.of({**columns, "begin": begin, "end": end}).where(end > begin), seconds, epochs)


def _end_ns(rows: Rows, ranks: int, *, only_steps: bool) -> int:
    """Return where the span ends: at the newest phase of the rank that reported last; of a run that is over, of a step.

    It is always the end of a phase, so that the span has one even after a pause.
    """
    steps = rows.where(np.isin(rows["phase"].astype(str), PHASES)) if only_steps else rows
    candidates = steps if len(steps) else rows
    ends = np.full(ranks, -1, np.int64)
    np.maximum.at(ends, candidates["rank"].astype(np.int64), candidates["end_ns"].astype(np.int64))
    return int(ends[ends >= ends.max() - 1e9 * SILENT_S].min())


def timeline_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a row for each rank over the last seconds, a colour a phase."""
    span = newest_span(tables)
    if span is None:
        return card([], TITLE, unit="the last seconds of every rank", height=MARGIN_HEIGHT + ROW_HEIGHT * tables.ranks)
    many = len(span.ranks) > ROWS
    data = [_heat_map(span)] if many else _blocks(span)
    axes: Attributes = {"xaxis": _seconds_axis(span.seconds, is_over=is_over(tables)), "yaxis": _rank_axis(span)}
    height = MARGIN_HEIGHT + (HEAT_HEIGHT if many else ROW_HEIGHT) * len(span.ranks)
    unit = f"the last {_length(span.seconds)} of every rank"
    style: Attributes = {"barmode": "overlay", "bargap": 0.22, "margin": {"t": 4, "r": 18}, "height": height}
    if many:
        style["margin"]["l"] = HEAT_MARGIN
    return card(data, TITLE, unit=unit, keys=_keys(data, many=many), **axes, **style)


def timeline_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return which rank waited most, or how many steps each made where they do not wait."""
    span = newest_span(tables)
    if span is None:
        return NOTHING_YET
    last = f"the last {_length(span.seconds)}"
    if len(span.ranks) == 1:
        (rank,) = span.ranks
        return f"The only rank computed for {percent_text(span.shares('compute')[rank])} of {last}."
    if tables.own_steps:
        counts = {rank: len(np.unique(span.rows["step"][span.rows["rank"] == rank])) for rank in span.ranks}
        fastest, slowest = max(counts, key=lambda rank: counts[rank]), min(counts, key=lambda rank: counts[rank])
        if fastest == slowest:
            return f"Each rank made {counts[fastest]} step{'' if counts[fastest] == 1 else 's'} in {last}."
        return f"Rank {fastest} made {counts[fastest]} steps in {last} and rank {slowest} made {counts[slowest]}."
    waits = span.shares("wait")
    rank = max(waits, key=lambda candidate: waits[candidate])
    return (
        f"Rank {rank} waited for {percent_text(waits[rank])} of {last}."
        if waits[rank]
        else f"No rank waited in {last}."
    )


def timeline_chart() -> Chart:
    """Return the timeline, which every run has."""
    return Chart(
        name="timeline",
        title=TITLE,
        figure=timeline_figure,
        caption=timeline_caption,
        section="common",
        help="All rows have one clock. Where a rank is grey, another one is still at work.",
    )


def _length(seconds: float) -> str:
    return "second" if seconds == 1 else f"{seconds:g} seconds"


def is_over(tables: RunTables) -> bool:
    """Return whether the newest attempt has ended."""
    ended = tables.events(Ended.kind)
    return bool(ended) and ended[-1]["step"] > tables.common_step


def _keys(data: list[Attributes], *, many: bool) -> list[Key]:
    """Return the colours that are drawn, in blocks or in the cells of a heat map."""
    if many:
        cells = {cell for row in data[0]["z"] for cell in row}
        phases = [phase for phase, index in _INDICES.items() if index in cells]
    else:
        names = {trace["name"] for trace in data}
        phases = [phase for phase in ORDER if PHASE_NAMES[phase] in names]
    return [(PHASE_NAMES[phase], PHASE_COLOURS[phase], "box") for phase in phases]


def _blocks(span: Span) -> list[Attributes]:
    rows = span.rows
    lengths = rows["end"] - rows["begin"]
    rows = rows.where(lengths >= SHORTEST * span.seconds)
    if len(rows) > BLOCKS:
        rows = rows.where(np.sort(np.argsort(rows["begin"] - rows["end"], kind="stable")[:BLOCKS]))
    data, by_phase = [], rows.by("phase")
    for phase in (phase for phase in ORDER if phase in by_phase):
        some = by_phase[phase]
        style: Attributes = {"base": some["begin"].round(6).tolist(), "marker": {"color": PHASE_COLOURS[phase]}}
        style["marker"]["line"] = {"width": 0}
        names = [_rank_name(rank, span) for rank in some["rank"].tolist()]
        lengths_s = (some["end"] - some["begin"]).round(6).tolist()
        hover = f"%{{y}}: {PHASE_NAMES[phase]} %{{x:.3~g}} s<extra></extra>"
        data.append(level_bars(PHASE_NAMES[phase], names, lengths_s, None, hover, **style))
    return data


def _heat_map(span: Span) -> Attributes:
    """Return the longest phase of each rank in each column of time."""
    ranks = sorted(span.ranks)
    columns = min(COLUMNS, CELLS // len(ranks))
    edges = np.linspace(-span.seconds, 0.0, columns + 1)
    cells = _longest(span.rows, max(ranks) + 1, edges)[ranks]
    colours = [PHASE_COLOURS[phase] for phase in ORDER]
    scale = [(step / len(ORDER), colour) for index, colour in enumerate(colours) for step in (index, index + 1)]
    z = [[cell if cell >= 0 else None for cell in row] for row in cells.tolist()]
    style: Attributes = {"showscale": False, "hover": "rank %{y}, %{x:.3~g} s<extra></extra>"}
    middles = (0.5 * (edges[1:] + edges[:-1])).round(6).tolist()
    return heat(TITLE, z, middles, ranks, scale, span=(-0.5, len(ORDER) - 0.5), **style)


def _longest(rows: Rows, ranks: int, edges: Array) -> Array:
    """Return the place of the longest phase of each rank in each column, (R, C); -1 where nothing is known."""
    places = np.array([_INDICES.get(phase, -1) for phase in rows["phase"].tolist()], np.int64)
    rows, places = rows.where(places >= 0), places[places >= 0]
    columns, width = len(edges) - 1, edges[1] - edges[0]
    begin, end = ((rows[name] - edges[0]) / width for name in ("begin", "end"))  # in columns
    first, last = (np.clip(position.astype(np.int64), 0, columns - 1) for position in (begin, end))
    line = (places * ranks + rows["rank"].astype(np.int64)) * (columns + 1)
    size = len(ORDER) * ranks * (columns + 1)
    # up to each column in full, with the parts before the begin and after the end taken away again
    full_columns = np.bincount(line + first, minlength=size) - np.bincount(line + last + 1, minlength=size)
    missing = np.bincount(line + first, begin - first, size) + np.bincount(line + last, last + 1 - end, size)
    spent = full_columns.reshape(-1, columns + 1).cumsum(axis=1) - missing.reshape(-1, columns + 1)
    spent = spent.reshape(len(ORDER), ranks, columns + 1)[:, :, :columns]
    return np.where(spent.max(axis=0) > SHORTEST_CELL, spent.argmax(axis=0), -1)


def _rank_name(rank: int, span: Span) -> str:
    return f"rank {rank}, epoch {span.ranks[rank] + 1}"


def _rank_axis(span: Span) -> Attributes:
    bare: Attributes = {"showgrid": False, "ticksuffix": " "}
    if len(span.ranks) > ROWS:
        return {**bare, "range": [max(span.ranks) + 0.5, -0.5], "nticks": 6, "tickprefix": "rank "}
    names = [_rank_name(rank, span) for rank in sorted(span.ranks)]
    span_of_names = [len(names) - 0.5, -0.5]  # a row for each rank, with blocks or without
    return {**bare, "type": "category", "categoryorder": "array", "categoryarray": names, "range": span_of_names}


def _seconds_axis(seconds: float, *, is_over: bool) -> Attributes:
    distance = next(tick_s for tick_s in TICKS_S if seconds <= 5 * tick_s)
    ticks = [-distance * number for number in range(int(seconds / distance + 1e-9), 0, -1)]
    texts = [*(f"{MINUS}{-tick:g} s" for tick in ticks), "end" if is_over else "now"]
    return {"range": [-seconds, 0], "tickvals": [*ticks, 0.0], "ticktext": texts, "showgrid": False}
