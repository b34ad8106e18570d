"""Mean ranks of systems over problems, with the difference below which two are indistinguishable."""

from __future__ import annotations

from collections.abc import Mapping

from dtdg_lab.visualization import palette, traces
from dtdg_lab.visualization.axes import NAMES
from dtdg_lab.visualization.chart import CaptionedFigure, card, trace_keys

ROW_HEIGHT, FRAME_HEIGHT = 26, 70  # pixels
HELP = (
    "Each bar is a mean rank and half of the critical difference to both sides. Systems whose bars overlap with the "
    "shaded one are indistinguishable from the best."
)


def ranks_chart(mean_ranks: Mapping[str, float], critical_difference: float, title: str) -> CaptionedFigure:
    """Return mean ranks, the best on top, with bars that overlap where two are indistinguishable.

    Args:
        mean_ranks: system -> mean rank, best first.
        critical_difference: of Nemenyi's test.
        title: of the chart.
    """
    systems = list(mean_ranks)
    best = min(mean_ranks.values(), default=0.0)
    half = critical_difference / 2
    data = []
    for name, alike, colour in (
        ("indistinguishable from the best", True, palette.EDGE_COLOUR),
        ("worse", False, palette.BASELINE_COLOUR),
    ):
        chosen = [system for system in systems if (mean_ranks[system] - best <= critical_difference) == alike]
        if not chosen:
            continue
        middle = [mean_ranks[system] for system in chosen]
        ends = traces.whiskers([x - half for x in middle], middle, [x + half for x in middle], colour)
        hover = "%{y}: mean rank %{x:.2f}<extra></extra>"
        data.append(traces.points(name, middle, chosen, colour, hover, size=9, error_x=ends))
    shade = {"fillcolor": palette.translucent(palette.EDGE_COLOUR, 0.1), "line": {"width": 0}, "layer": "below"}
    band = [traces.box((best - half, best + half), (0.0, 1.0), yref="paper", **shade)] if systems else []
    figure = card(
        data,
        title,
        x_title="mean rank (1 is best)",
        keys=trace_keys(data),
        empty="not all problems have been measured yet",
        shapes=band,
        yaxis={**NAMES, "categoryarray": systems, "categoryorder": "array"},
        height=FRAME_HEIGHT + ROW_HEIGHT * len(systems),
    )
    if not systems:
        return figure, "Not all problems have been measured yet."
    alike_count = sum(value - best <= critical_difference for value in mean_ranks.values()) - 1
    return (
        figure,
        f"{systems[0]} has the best mean rank; {alike_count} of {len(systems) - 1} others are indistinguishable.",
    )
