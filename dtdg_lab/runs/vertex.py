"""``lab.follow_vertex``: one vertex through several models, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.runs.trace import Trace, check_vertex
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.vertex import vertex_figure

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class FollowedVertex:
    """One vertex: ``table`` has a row a snapshot and a column a model, ``figure`` draws it."""

    vertex: int
    table: pd.DataFrame
    figure: Figure = field(repr=False)

    def _repr_html_(self) -> str:
        """The table; ``lab.plot(followed)`` draws the figure."""
        shown: str = self.table.to_html(escape=True, max_rows=12, float_format=lambda value: f"{value:.3g}")
        return f"<p>vertex {self.vertex}</p>{shown}"


def follow_vertex(traces: Sequence[Trace], vertex: int) -> FollowedVertex:
    """What several models predict of one vertex at every snapshot, beside its label and persistence.

    Args:
        traces: of models trained for regression on one graph.
        vertex: its number.

    Raises:
        ConfigError: no trace is given, they are of different graphs or another task, or there is no such vertex.
    """
    if not traces:
        raise ConfigError("follow_vertex() got no trace: give those of finished runs, [lab.trace(run), ...].")
    graph = traces[0].graph
    check_vertex(graph, vertex)
    for each in traces:
        if each.graph.data_hash != graph.data_hash:
            raise ConfigError(f"{each.model!r} was traced on another graph than {traces[0].model!r}. Train on one.")
        if each.outputs.shape[2] != 1:
            raise ConfigError(f"{each.model!r} reads out {each.outputs.shape[2]} numbers; task='regression' is needed.")
    table = traces[0].vertex(vertex)[["in-neighbours", "label", "persistence"]]
    predictions = {each.model: each.outputs[:, vertex, 0] for each in traces}
    if len(predictions) < len(traces):
        raise ConfigError(f"a model occurs twice among {', '.join(each.model for each in traces)}. Give each one once.")
    figure = vertex_figure(vertex, graph.targets[:, vertex], predictions, table["in-neighbours"].to_numpy())
    return FollowedVertex(vertex, table.assign(**predictions), figure)
