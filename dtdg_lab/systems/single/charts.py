"""Charts of training in one process: time of each snapshot, time and overlap by shared products, memory of a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.single.events import OverlapProfile, SnapshotTimes
from dtdg_lab.visualization.axes import time_unit
from dtdg_lab.visualization.chart import FIRST_STEP, NOTHING_YET, Chart, ChartOptions, Figure, card
from dtdg_lab.visualization.numbers import percent_text, seconds_text
from dtdg_lab.visualization.palette import EDGE_COLOUR, VERTEX_COLOUR
from dtdg_lab.visualization.runs.step_memory import step_memory_chart
from dtdg_lab.visualization.traces import bars

MOST_BARS = 300
HEIGHT = 250
_OTHER_COLOUR = "#8CC1E4"  # blue of candidates that were not chosen
_SNAPSHOTS_TITLE = "training snapshot, oldest to newest"


def is_plain(tables: RunTables) -> bool:
    """Return whether the run's system computes all snapshots in one process, each by itself."""
    return catalogue.system(tables.system).parts["parallel"] == "single"


def is_shared(tables: RunTables) -> bool:
    """Return whether the run's system may share products of snapshots."""
    return catalogue.system(tables.system).parts["parallel"] == "shared_edges"


def snapshots_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a bar for each training snapshot; each bar sums several snapshots of a long sequence."""
    times, title = tables.event(SnapshotTimes), "Time of each snapshot"
    if times is None:
        return card([], title, unit="ms", x_title=_SNAPSHOTS_TITLE, height=HEIGHT)
    stride = -(-len(times.seconds) // MOST_BARS)
    numbers = np.arange(times.first, times.first + len(times.seconds))[::stride]
    seconds = np.add.reduceat(np.array(times.seconds), np.arange(0, len(times.seconds), stride))
    unit, factor = time_unit(float(seconds.max()))
    longest = (times.longest - times.first) // stride
    colours = [VERTEX_COLOUR if index == longest else EDGE_COLOUR for index in range(len(numbers))]
    bar_text = "snapshot %{x}" if stride == 1 else f"{stride} snapshots from %{{x}} on"
    hover = f"{bar_text}: %{{y:.4g}} {unit}<extra></extra>"
    return card(
        [bars("forward pass", numbers.tolist(), (seconds * factor).round(6).tolist(), colours, hover)],
        title if stride == 1 else f"Time of each {stride} snapshots",
        unit=f"{unit} of a forward pass",
        keys=[("took longest", VERTEX_COLOUR, "box")],
        x_title=_SNAPSHOTS_TITLE,
        height=HEIGHT,
        bargap=0.12,
        xaxis={"showgrid": False, "range": [numbers[0] - 0.6 * stride, numbers[-1] + 0.6 * stride]},
    )


def snapshots_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return which snapshot's forward pass took longest, and its share."""
    times = tables.event(SnapshotTimes)
    if times is None:
        return NOTHING_YET
    share = percent_text(times.longest_share)
    return f"Timed once before training, snapshot {times.longest} took longest: {share} of the forward passes."


def sharing_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return a bar for each number of snapshots that may share a product, the chosen one in blue."""
    profile, title, x_title = tables.event(OverlapProfile), "Time by shared snapshots", "snapshots that share a product"
    if profile is None or not profile.sizes:
        empty = FIRST_STEP if profile is None else f"Not measured: {profile.note}"
        return card([], title, unit="ms per snapshot", x_title=x_title, empty=empty, height=HEIGHT)
    unit, factor = time_unit(max(profile.seconds))
    sizes = [str(size) for size in profile.sizes]
    colours = [EDGE_COLOUR if size == profile.chosen else _OTHER_COLOUR for size in profile.sizes]
    heights = [round(seconds * factor, 6) for seconds in profile.seconds]
    hover = f"%{{x}} snapshots: %{{y:.4g}} {unit} per snapshot<extra></extra>"
    style = {"textposition": "outside", "textangle": 0, "cliponaxis": False, "width": 0.6}
    texts = [*map(seconds_text, profile.seconds)]
    return card(
        [bars("forward and backward", sizes, heights, colours, hover, text=texts, **style)],
        title,
        unit=f"{unit} per snapshot",
        keys=[("chosen", EDGE_COLOUR, "box"), ("other", _OTHER_COLOUR, "box")],
        x_title=x_title,
        height=HEIGHT,
        xaxis={"type": "category", "showgrid": False},
        yaxis={"rangemode": "tozero"},
    )


def sharing_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the fastest number of shared snapshots, or the one that was set."""
    profile = tables.event(OverlapProfile)
    if profile is None:
        return NOTHING_YET
    alone = profile.chosen == 1
    if not profile.sizes:
        product = "Each snapshot has a product of its own" if alone else f"{profile.chosen} snapshots share a product"
        return f"{product}, and nothing was measured."
    time = seconds_text(profile.seconds[profile.sizes.index(profile.chosen)])
    product = "Giving each snapshot a product of its own" if alone else f"Sharing {profile.chosen} snapshots"
    return f"{product} is fastest: {time} per snapshot."


def common_edges_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the share of edges that the snapshots of a group have in common, by size of the group."""
    profile = tables.event(OverlapProfile)
    data = []
    if profile is not None and len(profile.sizes) > 1:
        sizes = [*map(str, profile.sizes[1:])]  # one snapshot has all of its edges in common
        shares = [100 * share for share in profile.shares[1:]]
        data = [bars("common", sizes, shares, EDGE_COLOUR, "%{x} snapshots: %{y:.3g}%<extra></extra>", width=0.6)]
    x_axis = {"type": "category", "showgrid": False}
    x_title, y_axis = "snapshots in a group", {"range": [0, 100]}
    return card(data, "Edges in common", unit="% of edges", x_title=x_title, xaxis=x_axis, yaxis=y_axis)


def common_edges_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the share of edges in common at the size in use, else at the smallest."""
    profile = tables.event(OverlapProfile)
    if profile is None or len(profile.sizes) < 2:
        return NOTHING_YET
    size = max(profile.chosen, profile.sizes[1])
    share = percent_text(profile.shares[profile.sizes.index(size)])
    return f"Groups of {size} snapshots have {share} of their edges in common."


SNAPSHOTS = Chart(
    name="snapshot_times",
    title="Time of each snapshot",
    figure=snapshots_figure,
    caption=snapshots_caption,
    section="picture",
    applies=is_plain,
    help="The forward pass of each training snapshot, timed once before the first step.",
)
SHARING = Chart(
    name="shared_products",
    title="Time by shared snapshots",
    figure=sharing_figure,
    caption=sharing_caption,
    section="picture",
    applies=is_shared,
    help="Forward and backward of products that depend on parameters, timed once before the first step.",
)
STEP_MEMORY = replace(step_memory_chart(lambda tables: is_plain(tables) or is_shared(tables)), section="supporting")
COMMON_EDGES = Chart(
    name="common_edges",
    title="Edges in common",
    figure=common_edges_figure,
    caption=common_edges_caption,
    section="supporting",
    applies=is_shared,
    help="The more edges snapshots have in common, the more one product for all of them saves.",
)
