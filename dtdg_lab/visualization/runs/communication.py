"""Time of exchanging rows: what ranks wait for, and what is hidden behind computing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Rows
from dtdg_lab.visualization.changes.marks import HALF_WIDTH, with_changes
from dtdg_lab.visualization.chart import NOTHING_YET, STEPS_TITLE, Chart, ChartOptions, Key, Place, always, card
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.numbers import three_digits
from dtdg_lab.visualization.palette import STEP_COLOUR, WARNING_COLOUR
from dtdg_lab.visualization.runs.newest_rows import least_by_rank, newest_rows
from dtdg_lab.visualization.traces import Drawn, bars

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

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
        return card([], TITLE, unit=UNIT, x_title=STEPS_TITLE, empty=empty)
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
    begin, end = float(first.min()) - 0.5, float(last.max()) + 0.5
    axes: Drawn = {"xaxis": {"range": [begin, end], "showgrid": False}, "yaxis": {"rangemode": "tozero", "nticks": 5}}
    figure = card(data, TITLE, unit=UNIT, keys=keys, x_title=STEPS_TITLE, barmode="stack", bargap=0, **axes)
    figure["layout"] = with_changes(figure["layout"], tables, "steps", begin, end, width=HALF_WIDTH)
    return figure


def communication_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return how much of the communication ranks waited for over the last 50 steps."""
    time = communication_time(tables)
    if time is None:
        return NOTHING_YET
    waited, total = (three_digits(1e3 * seconds) for seconds in (time.exposed_s, time.in_flight_s))
    return f"Ranks waited for {waited} of {total} ms of row exchange per step."


def communication_chart(place: Place = "supporting", shown: Callable[[RunTables], bool] = always) -> Chart:
    """Return the chart of communication for systems whose ranks exchange rows while they compute."""
    return Chart(
        name="communication",
        title=TITLE,
        figure=communication_figure,
        caption=communication_caption,
        place=place,
        shown=shown,
        rollups=(EXCHANGES,),
        help="Bars are the time in which rows are under way, without gradients. Red is what ranks wait for.",
    )


TITLE = "Row exchange"
UNIT = "ms per step, mean of ranks"
NO_LINE = {"width": 0}
