"""``lab.compare_graphs``: several graphs side by side, such as one set of edges in several cuts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.kept_statistics import statistics_of
from dtdg_lab.views.graph_compare import COLUMNS, compare_graphs_figure, graph_row
from dtdg_lab.views.layout import Figure

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class GraphComparison:
    """Graphs side by side: ``table`` has one row a graph, ``figure`` draws what needs no learning."""

    table: pd.DataFrame
    figure: Figure = field(repr=False)

    def _repr_html_(self) -> str:
        """The table, with what its columns mean; ``lab.plot(comparison)`` draws the figure."""
        said = "".join(f"<li><b>{name}</b>: {meaning}</li>" for name, meaning in COLUMNS.items())
        shown = self.table.to_html(na_rep="unknown", escape=True, float_format=_short)
        return f"{shown}<ul style='font-size:90%'>{said}</ul>"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def compare_graphs(graphs: Mapping[str, DynamicGraph]) -> GraphComparison:
    """Sizes, overlap and baselines of several graphs.

    Args:
        graphs: label -> graph, in the order of the rows.

    Raises:
        ConfigError: no graph is given.
    """
    import pandas as pd

    if not graphs:
        raise ConfigError("compare_graphs() got no graph: give labelled ones, such as {'cut 30': graph}.")
    rows = {label: graph_row(statistics_of(graph)) for label, graph in graphs.items()}
    table = pd.DataFrame(list(rows.values()), index=pd.Index(list(rows), name="graph"), columns=list(COLUMNS))
    return GraphComparison(table, compare_graphs_figure(rows))
