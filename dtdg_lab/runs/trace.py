"""``lab.trace``: a finished run's model followed through time, vertex by vertex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.open import StoredRun

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What a trained model holds of every vertex at every snapshot, its state running from the first one.

    Attributes:
        model: its name.
        graph: T labelled snapshots of N vertices.
        hidden: shape (T, N, H), float32: what the last layer gives.
        outputs: shape (T, N, outputs), float32: what is read out of it; for regression one column, the prediction.
        parameters: numbers the model has learned.
        remembered: numbers it keeps from one snapshot to the next, for all N vertices.
        hops: edges that a change travels within one snapshot, at most.
    """

    model: str
    graph: DynamicGraph
    hidden: NDArray[np.float32]
    outputs: NDArray[np.float32]
    parameters: int
    remembered: int
    hops: int

    def __repr__(self) -> str:
        steps, nodes, width = self.hidden.shape
        return (
            f"Trace({self.model!r}: {steps} snapshots of {nodes:,} vertices, {width} hidden numbers each; "
            f"{self.parameters:,} parameters, {self.remembered:,} numbers remembered)"
        )

    def vertex(self, vertex: int) -> pd.DataFrame:
        """One vertex by snapshot: in-neighbours, features, label, persistence, prediction, size of its hidden state.

        Raises:
            ConfigError: the graph has no such vertex.
        """
        import pandas as pd

        graph = self.graph
        check_vertex(graph, vertex)
        columns: dict[str, NDArray[np.generic]] = {
            "in-neighbours": np.array([np.diff(each.indptr[vertex : vertex + 2])[0] for each in graph.snapshots]),
            **{f"feature {k}": graph.features[:, vertex, k] for k in range(graph.num_features)},
            "label": graph.targets[:, vertex],
            "persistence": graph.persistence[:, vertex],
        }
        if self.outputs.shape[2] == 1:
            columns["prediction"] = self.outputs[:, vertex, 0]
        columns["hidden (norm)"] = np.linalg.norm(self.hidden[:, vertex], axis=1)
        return pd.DataFrame(columns, index=pd.RangeIndex(graph.num_snapshots, name="snapshot"))


def trace(run: StoredRun, *, graph: DynamicGraph | None = None) -> Trace:
    """Run the model of a finished run over its graph, and keep what it holds of every vertex.

    The model is run in this process, as ``lab.train`` does, which imports torch.

    Args:
        run: a run that has a checkpoint.
        graph: another graph of the same size than the run's own.

    Raises:
        LabError: the run has no checkpoint, or its data set cannot be loaded.
    """
    from dtdg_lab.training.forward import run_forward

    graph = load_for(run.config) if graph is None else graph
    made = run_forward(run.config, graph, run.directory.checkpoint_file)
    return Trace(run.config.model, graph, made.hidden, made.outputs, made.parameters, made.remembered, made.hops)


def check_vertex(graph: DynamicGraph, vertex: int) -> None:
    """Refuse a vertex that the graph does not have.

    Raises:
        ConfigError: it is below 0, or N or more.
    """
    if not 0 <= vertex < graph.num_nodes:
        raise ConfigError(f"vertex={vertex}: {graph.name!r} has vertices 0 to {graph.num_nodes - 1}.")
