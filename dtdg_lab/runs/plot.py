"""``lab.plot``: a picture of a graph, a run or a comparison as a plotly Figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.core.protocols import PROTOCOLS
from dtdg_lab.graphs.describe import GraphStatistics
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.echo import Echo
from dtdg_lab.runs.graphs import GraphComparison
from dtdg_lab.runs.open import Comparison
from dtdg_lab.runs.vertex import FollowedVertex
from dtdg_lab.views.graph import GraphView
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.series import XAxis
from dtdg_lab.views.vertex import echo_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go


def plot(shown: Any, *, protocol: str = "warm", x: XAxis = "steps") -> go.Figure:
    """A picture of what is given; in a notebook it shows itself as the last expression of a cell.

    Args:
        shown: a DynamicGraph or its statistics (edges, overlap, in-degrees and baselines over time); a run; what
            ``compare``, ``compare_graphs``, ``follow_vertex`` or ``echo`` give (of echoes also several); or a plain
            figure dict, as views make them.
        protocol: of a graph, the evaluation protocol whose parts are shaded.
        x: of a run, what the loss is drawn over: ``steps`` or ``seconds``.

    Raises:
        ConfigError: it is nothing that has a picture, or plotly is not installed.
        UnknownNameError: there is no such protocol.
    """
    if protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    figure = _figure(shown, protocol, x)
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise ConfigError("pictures need plotly: pip install 'dtdg-lab[lab]'.") from error
    return go.Figure(figure)


def _figure(shown: Any, protocol: str, x: XAxis) -> Figure:
    if isinstance(shown, DynamicGraph | GraphStatistics):
        view = GraphView(shown, protocol)
        return _panels(view.figures(), view.sentences(), f"{view.statistics.name} · protocol {protocol}")
    if isinstance(shown, Comparison | GraphComparison | FollowedVertex):
        return shown.figure
    if isinstance(shown, Echo):
        shown = [shown]
    if isinstance(shown, Sequence) and shown and all(isinstance(each, Echo) for each in shown):
        return echo_figure(
            {each.model: each.heard[each.snapshot :].sum(axis=1) for each in shown},
            {each.model: each.change[each.snapshot :].max(axis=1) for each in shown},
        )
    if hasattr(shown, "window"):  # a run of a session, or one read from its folder
        return _panels(shown.window.figures(x), shown.window.sentences(), f"Run {shown.id}")
    if isinstance(shown, dict) and {"data", "layout"} <= set(shown):
        return shown
    raise ConfigError(
        f"plot() got a {type(shown).__name__}; it draws a DynamicGraph, graph.describe(), a run, a comparison, a "
        "followed vertex, or echoes."
    )


def _panels(figures: dict[str, Figure], sentences: dict[str, str], title: str) -> Figure:
    return grid([(figure, sentences[name]) for name, figure in figures.items()], title=title)
