"""Pictures of training in one process: the time of each snapshot, and of each size of groups that share products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.systems.single import captions
from dtdg_lab.systems.single.events import OverlapProfile, SnapshotTimes
from dtdg_lab.visualization.axes import time_unit
from dtdg_lab.visualization.chart import FIRST_STEP, NOTHING_YET, Chart, ChartOptions, card
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.numbers import percent_text, seconds_text
from dtdg_lab.visualization.palette import EDGE_COLOUR, VERTEX_COLOUR
from dtdg_lab.visualization.traces import bars

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

MOST_BARS = 300
HEIGHT = 250
_OTHER = "#8CC1E4"  # blue of what is not chosen


def is_plain(tables: RunTables) -> bool:
    """Return whether the run's system computes all snapshots in one process, each by itself."""
    return catalogue.system(tables.system).parts["parallel"] == "single"


def is_shared(tables: RunTables) -> bool:
    """Return whether the run's system may share products of snapshots."""
    return catalogue.system(tables.system).parts["parallel"] == "shared_edges"


def snapshots_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a bar for each training snapshot; of very many, for stretches of them."""
    times, title = tables.event(SnapshotTimes), "Time of each snapshot"
    if times is None:
        return card([], title, unit="ms", x_title="training snapshot, oldest to newest", height=HEIGHT)
    together = -(-len(times.seconds) // MOST_BARS)
    numbers = np.arange(times.first, times.first + len(times.seconds))[::together]
    seconds = np.add.reduceat(np.array(times.seconds), np.arange(0, len(times.seconds), together))
    unit, factor = time_unit(float(seconds.max()))
    longest = (times.longest - times.first) // together
    colours = [VERTEX_COLOUR if place == longest else EDGE_COLOUR for place in range(len(numbers))]
    named = "snapshot %{x}" if together == 1 else f"{together} snapshots from %{{x}} on"
    hover = f"{named}: %{{y:.4g}} {unit}<extra></extra>"
    data = bars("forward pass", numbers.tolist(), (seconds * factor).round(6).tolist(), colours, hover)
    return card(
        [data],
        title if together == 1 else f"Time of each {together} snapshots",
        unit=f"{unit} of a forward pass",
        keys=[("took longest", VERTEX_COLOUR, "box")],
        x_title="training snapshot, oldest to newest",
        height=HEIGHT,
        bargap=0.12,
        xaxis={"showgrid": False, "range": [numbers[0] - 0.6 * together, numbers[-1] + 0.6 * together]},
    )


def snapshots_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the snapshot whose forward pass took longest when they were timed."""
    times = tables.event(SnapshotTimes)
    if times is None:
        return NOTHING_YET
    return captions.LONGEST.format(number=times.longest, share=percent_text(times.longest_share))


def sharing_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a bar for each number of snapshots that may share a product, the chosen one in blue."""
    profile, title, x_title = tables.event(OverlapProfile), "Time by shared snapshots", "snapshots that share a product"
    if profile is None or not profile.sizes:
        empty = FIRST_STEP if profile is None else f"Not measured: {profile.note}"
        return card([], title, unit="ms per snapshot", x_title=x_title, empty=empty, height=HEIGHT)
    unit, factor = time_unit(max(profile.seconds))
    sizes = [str(size) for size in profile.sizes]
    colours = [EDGE_COLOUR if size == profile.chosen else _OTHER for size in profile.sizes]
    milliseconds = [round(seconds * factor, 6) for seconds in profile.seconds]
    texts = [seconds_text(seconds) for seconds in profile.seconds]
    hover = f"%{{x}} snapshots: %{{y:.4g}} {unit} per snapshot<extra></extra>"
    looks = {"text": texts, "textposition": "outside", "textangle": 0, "cliponaxis": False, "width": 0.6}
    return card(
        [bars("forward and backward", sizes, milliseconds, colours, hover, **looks)],
        title,
        unit=f"{unit} per snapshot",
        keys=[("chosen", EDGE_COLOUR, "box"), ("other", _OTHER, "box")],
        x_title=x_title,
        height=HEIGHT,
        xaxis={"type": "category", "showgrid": False},
        yaxis={"rangemode": "tozero"},
    )


def sharing_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the fastest size."""
    profile = tables.event(OverlapProfile)
    if profile is None:
        return NOTHING_YET
    if not profile.sizes:
        return captions.GIVEN_ALONE if profile.chosen == 1 else captions.GIVEN.format(size=profile.chosen)
    time = seconds_text(profile.seconds[profile.sizes.index(profile.chosen)])
    return (captions.NOT_SHARED if profile.chosen == 1 else captions.SHARED).format(size=profile.chosen, time=time)


SNAPSHOTS = Chart(
    name="snapshot_times",
    title="Time of each snapshot",
    figure=snapshots_figure,
    caption=snapshots_caption,
    place="picture",
    shown=is_plain,
    help="The forward pass of each training snapshot, timed once before the first step.",
)
SHARING = Chart(
    name="shared_products",
    title="Time by shared snapshots",
    figure=sharing_figure,
    caption=sharing_caption,
    place="picture",
    shown=is_shared,
    help="Forward and backward of products that depend on parameters, timed once before the first step.",
)
