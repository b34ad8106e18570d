"""Time that ranks wait for each other, and time of exchanging rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array, Rows, known
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.axes import FROM_ZERO
from dtdg_lab.visualization.changes.marks import over_steps
from dtdg_lab.visualization.chart import (
    NOTHING_YET,
    STEPS_TITLE,
    Chart,
    ChartOptions,
    Figure,
    Key,
    Section,
    always,
    card,
    trace_keys,
)
from dtdg_lab.visualization.numbers import three_digits
from dtdg_lab.visualization.palette import BASELINE_COLOUR, STEP_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.visualization.runs.step_time import step_times
from dtdg_lab.visualization.thinning import least_by_rank, newest_rows
from dtdg_lab.visualization.traces import Attributes, bars, line

TITLE = "Waiting by rank"
UNIT = "ms per step"
EXCHANGE_TITLE = "Row exchange"
EXCHANGE_UNIT = "ms per step, mean of ranks"
NO_LINE = {"width": 0}
WAITING = Rollup("steps", by=("rank",), sums=("wait_s",), least=("step",), most=("step",), points=75)
LINES = 8  # ranks up to which each has a line
EVEN_SHARE = 0.05  # of a step's time: smaller differences between ranks are none


def waiting_share(tables: RunTables) -> float | None:
    """Return the share of the ranks' time in which they wait for the slowest, over the newest 50 steps."""
    times = step_times(tables)
    total = sum(rank_times.time_s for rank_times in times.values())
    return sum(rank_times.phases["wait"] for rank_times in times.values()) / total if total else None


def waiting_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a line for each rank; of many ranks the mean, between the least and the most."""
    rows = tables.rollup(WAITING)
    if not len(rows):
        return card([], TITLE, unit=UNIT, x_title=STEPS_TITLE)
    data, keys = _lines(rows) if tables.ranks <= LINES else _band(rows)
    y_axis = {**FROM_ZERO, "nticks": 5}
    figure = card(data, TITLE, unit=UNIT, keys=keys, x_title=STEPS_TITLE, yaxis=y_axis)
    return over_steps(figure, tables, rows["step_least"].min(), rows["step_most"].max())


def waiting_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return which rank waited least, and which most."""
    times = step_times(tables)
    if not times:
        return NOTHING_YET
    if tables.ranks == 1:
        return "The only rank never waits."
    waits = {rank: rank_times.phases["wait"] for rank, rank_times in times.items()}
    shortest, longest = min(waits, key=lambda rank: waits[rank]), max(waits, key=lambda rank: waits[rank])
    if max(waits.values()) - waits[shortest] < EVEN_SHARE * max(rank_times.time_s for rank_times in times.values()):
        mean_ms = 1e3 * sum(waits.values()) / len(waits)
        return f"All ranks waited about {three_digits(mean_ms)} ms per step."
    least_ms, most_ms = (three_digits(1e3 * waits[rank]) for rank in (shortest, longest))
    return f"Rank {shortest} waited least, {least_ms} ms per step, and rank {longest} waited most, {most_ms} ms."


def waiting_chart(section: Section = "supporting", applies: Callable[[RunTables], bool] = always) -> Chart:
    """Return the chart of waiting, for systems whose ranks wait for each other in every step."""
    return Chart(
        name="waiting",
        title=TITLE,
        figure=waiting_figure,
        caption=waiting_caption,
        section=section,
        applies=applies,
        rollups=(WAITING,),
        help="The line of a rank is low where it comes last, so that others wait for it.",
    )


def _means_ms(rows: Rows) -> Array:
    return 1e3 * rows["wait_s"] / np.maximum(rows["wait_s_known"], 1)


def _middles(rows: Rows) -> list[float]:
    return (0.5 * (rows["step_least"] + rows["step_most"])).tolist()


def _lines(rows: Rows) -> tuple[list[Attributes], list[Key]]:
    data = []
    for rank, of_rank in rows.by("rank").items():
        x, y = _middles(of_rank), known(_means_ms(of_rank).round(4))
        data.append(line(f"rank {rank}", x, y, series_colour(int(rank)), "step %{x:.0f}: %{y:.3~g} ms", width=1.6))
    return data, trace_keys(data)


def _band(rows: Rows) -> tuple[list[Attributes], list[Key]]:
    means = _means_ms(rows)
    buckets, indices = np.unique(rows["bucket"], return_inverse=True)
    lowest, highest = np.full(len(buckets), np.inf), np.full(len(buckets), -np.inf)
    np.minimum.at(lowest, indices, means)
    np.maximum.at(highest, indices, means)
    counts = np.bincount(indices)
    mean, x = np.bincount(indices, means) / counts, (np.bincount(indices, _middles(rows)) / counts).tolist()
    edge: Attributes = {"width": 0, "hoverinfo": "skip", "mode": "lines"}
    filled: Attributes = {"fill": "tonexty", "fillcolor": "rgba(159,195,220,0.45)"}
    data = [
        line("least", x, lowest.round(4).tolist(), STEP_COLOUR, **edge),
        line("most", x, highest.round(4).tolist(), STEP_COLOUR, **edge, **filled),
        line("mean", x, mean.round(4).tolist(), BASELINE_COLOUR, "step %{x:.0f}: %{y:.3~g} ms"),
    ]
    keys: list[Key] = [("mean of the ranks", BASELINE_COLOUR, "line"), ("least to most", STEP_COLOUR, "box")]
    return data, keys


HIDDEN_HELP = (
    "Share of the time in which rows are under way during which the rank computes. "
    "The phase communicate also sums gradients, and it leaves out what is hidden."
)
RECENT = 50  # steps that captions and tiles are means of
EXCHANGES = Rollup("exchanges", sums=("in_flight_s", "exposed_s"), least=("step",), most=("step",), points=75)


@dataclass(frozen=True, slots=True)
class CommunicationTime:
    """Mean time of communication of a rank and step.

    Attributes:
        in_flight_s: seconds in which rows are under way.
        exposed_s: of these, seconds in which the rank waits for them.
    """

    in_flight_s: float
    exposed_s: float

    @property
    def hidden_share(self) -> float:
        """Share of the time in flight in which the rank computes."""
        return max(0.0, 1 - self.exposed_s / self.in_flight_s) if self.in_flight_s > 0 else 0.0


def communication_time(tables: RunTables) -> CommunicationTime | None:
    """Return the time of communication over the last 50 steps; None where nothing was sent."""

    def mean() -> CommunicationTime | None:
        rows = _recent(tables)
        if not len(rows):
            return None
        count = len(np.unique(rows["step"] * tables.ranks + rows["rank"]))
        sums = (float(np.nansum(rows[name].astype(np.float64))) for name in ("in_flight_s", "exposed_s"))
        return CommunicationTime(*(seconds / count for seconds in sums))

    return tables.once("communication time", mean)


def _recent(tables: RunTables) -> Rows:
    """Return the rows of the newest 50 steps of each rank."""
    newest = np.array([tables.steps.get(rank, -1) for rank in range(tables.ranks)])
    first = newest - RECENT + 1
    rows = newest_rows(
        tables.rows("exchanges"),
        8 * RECENT * tables.ranks,
        lambda tail: bool((least_by_rank(tail, "step", tables.ranks) < first).all()),
    )
    return rows.where(rows["step"] >= first[rows["rank"]]) if len(rows) else rows


def communication_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return bars over steps: milliseconds that ranks wait for communication, and that are hidden."""
    rows = tables.rollup(EXCHANGES)
    keys: list[Key] = [("ranks wait for it", WARNING_COLOUR, "box"), ("hidden by computing", STEP_COLOUR, "box")]
    if not len(rows):
        empty = "With one rank, nothing is sent" if tables.ranks == 1 else "Appears with the first exchange"
        return card([], EXCHANGE_TITLE, unit=EXCHANGE_UNIT, x_title=STEPS_TITLE, empty=empty)
    first, last = rows["step_least"], rows["step_most"]
    counts = (last - first + 1) * tables.ranks
    exposed = 1e3 * rows["exposed_s"] / counts
    hidden = np.maximum(0.0, 1e3 * rows["in_flight_s"] / counts - exposed)
    x, width = (0.5 * (first + last)).tolist(), tables.width(EXCHANGES)
    hover = "step %{x:.0f}: %{y:.3~g} ms"
    data = [
        bars(name, x, values.round(4).tolist(), colour, hover, width=width, marker={"color": colour, "line": NO_LINE})
        for (name, colour, _), values in zip(keys, (exposed, hidden), strict=True)
    ]
    axes: Attributes = {"xaxis": {"showgrid": False}, "yaxis": {**FROM_ZERO, "nticks": 5}}
    figure = card(
        data, EXCHANGE_TITLE, unit=EXCHANGE_UNIT, keys=keys, x_title=STEPS_TITLE, barmode="stack", bargap=0, **axes
    )
    return over_steps(figure, tables, first.min(), last.max())


def communication_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how much of the communication ranks waited for over the last 50 steps."""
    time = communication_time(tables)
    if time is None:
        return NOTHING_YET
    waited, total = (three_digits(1e3 * seconds) for seconds in (time.exposed_s, time.in_flight_s))
    return f"Ranks waited for {waited} of {total} ms of row exchange per step."


def communication_chart(section: Section = "supporting", applies: Callable[[RunTables], bool] = always) -> Chart:
    """Return the chart of communication for systems whose ranks exchange rows while they compute."""
    return Chart(
        name="communication",
        title=EXCHANGE_TITLE,
        figure=communication_figure,
        caption=communication_caption,
        section=section,
        applies=applies,
        rollups=(EXCHANGES,),
        help="Bars are the time in which rows are under way, without gradients. Red is what ranks wait for.",
    )
