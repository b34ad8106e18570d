"""Inspection of a trained model: activations, influence of one node, and one node over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.statistics import statistics_of
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.graphs.node import vertex_figure
from dtdg_lab.visualization.graphs.statistics import COLUMNS, compare_graphs_figure, graph_row

if TYPE_CHECKING:
    import pandas as pd


# ``lab.inspect.activations``: activations of a finished run's model over time, node by node.


@dataclass(frozen=True, slots=True, eq=False)
class Activations:
    """Activations of a model for every node and snapshot, with the state carried from the first snapshot on.

    Attributes:
        model: name of the model.
        graph: T labelled snapshots of N nodes.
        hidden: (T, N, H) float32, output of the last layer.
        outputs: (T, N, outputs) float32, output of the model; for regression one column, the prediction.
        parameters: number of learned values.
        remembered: number of state values carried from one snapshot to the next, over all N nodes.
        hops: maximum number of edges that a change travels within one snapshot.
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
            f"Activations({self.model!r}: {steps} snapshots of {nodes:,} nodes, {width} hidden values each; "
            f"{self.parameters:,} parameters, {self.remembered:,} state values)"
        )

    def node(self, node: int) -> pd.DataFrame:
        """Return a node's in-neighbours, features, label, persistence, prediction and size of hidden state by snapshot.

        Raises:
            ConfigError: the graph has no such node.
        """
        import pandas as pd

        graph = self.graph
        check_node(graph, node)
        columns: dict[str, NDArray[np.generic]] = {
            "in-neighbours": np.array([np.diff(snapshot.indptr[node : node + 2])[0] for snapshot in graph.snapshots]),
            **{f"feature {k}": graph.features[:, node, k] for k in range(graph.num_features)},
            "label": graph.targets[:, node],
            "persistence": graph.persistence[:, node],
        }
        if self.outputs.shape[2] == 1:
            columns["prediction"] = self.outputs[:, node, 0]
        columns["hidden (norm)"] = np.linalg.norm(self.hidden[:, node], axis=1)
        return pd.DataFrame(columns, index=pd.RangeIndex(graph.num_snapshots, name="snapshot"))


def activations(run: StoredRun, *, graph: DynamicGraph | None = None) -> Activations:
    """Run a trained model over its graph, and return its activations for every node.

    The model runs in this process, like in ``lab.train``, which imports torch.

    Args:
        run: run with a checkpoint.
        graph: another graph of the same size, instead of the run's own.

    Raises:
        LabError: the run has no checkpoint, or its data set cannot be loaded.
    """
    from dtdg_lab.training.forward import run_forward

    graph = load_for(run.config) if graph is None else graph
    forward = run_forward(run.config, graph, run.directory.checkpoint_file)
    return Activations(
        run.config.model, graph, forward.hidden, forward.outputs, forward.parameters, forward.remembered, forward.hops
    )


def check_node(graph: DynamicGraph, node: int) -> None:
    """Raise unless the graph has a node.

    Raises:
        ConfigError: the node is below 0, or N or more.
    """
    if not 0 <= node < graph.num_nodes:
        raise ConfigError(f"node={node} is out of range: {graph.name!r} has nodes 0 to {graph.num_nodes - 1}.")


# ``lab.inspect.perturb``: the nodes affected by a change of one node's features, with strength and duration.


CHANGED = 1e-6  # a smaller change of a hidden value, relative to the largest one, counts as rounding


@dataclass(frozen=True, slots=True, eq=False)
class Perturbation:
    """The change of a model's hidden state after a node's features were perturbed at one snapshot.

    Attributes:
        model: name of the model.
        node: the perturbed node.
        snapshot: time of the change.
        change: (T, N) largest difference of a node's hidden values from the unchanged sequence.
        distance: (N,) edges between each node and ``node`` in that snapshot, in either direction; -1 without a path.
    """

    model: str
    node: int
    snapshot: int
    change: NDArray[np.float32]
    distance: NDArray[np.int64]

    @property
    def affected_mask(self) -> NDArray[np.bool_]:
        """(T, N) True for nodes whose state differs from the unchanged one."""
        return self.change > CHANGED * max(float(self.change.max()), 1e-30)

    @property
    def hops(self) -> int:
        """The largest distance of an affected node in the snapshot of the change."""
        at_once = self.distance[self.affected_mask[self.snapshot]]
        return int(at_once.max(initial=0))

    @property
    def duration(self) -> int:
        """Number of snapshots, from the change on, in which nodes are affected; at most to the end of the graph."""
        some = np.flatnonzero(self.affected_mask.any(axis=1))
        return int(some[-1]) - self.snapshot + 1 if len(some) else 0

    def affected(self, lag: int = 0) -> int:
        """Return the number of affected nodes ``lag`` snapshots after the change.

        Raises:
            ConfigError: the graph ends earlier.
        """
        snapshot = self.snapshot + lag
        if lag < 0 or snapshot >= len(self.change):
            raise ConfigError(f"lag={lag} is out of range: choose 0 to {len(self.change) - 1 - self.snapshot}.")
        return int(self.affected_mask[snapshot].sum())

    def table(self) -> pd.DataFrame:
        """Return affected nodes and largest change by snapshots since the change."""
        import pandas as pd

        affected, change = self.affected_mask[self.snapshot :], self.change[self.snapshot :]
        index = pd.RangeIndex(len(affected), name="snapshots later")
        return pd.DataFrame({"affected nodes": affected.sum(axis=1), "largest change": change.max(axis=1)}, index)


def perturb(
    run: StoredRun, *, node: int, snapshot: int, amount: float = 1.0, unchanged: Activations | None = None
) -> Perturbation:
    """Add ``amount`` to all features of one node at one snapshot, and compare the model's hidden states.

    Edges and labels stay unchanged. The model is run in this process, which imports torch.

    Args:
        run: run with a checkpoint.
        node: node whose features are changed.
        snapshot: time of the change.
        amount: added to each feature.
        unchanged: the run's activations, if available.

    Raises:
        ConfigError: the node or snapshot does not exist.
        LabError: the run has no checkpoint, or its data set cannot be loaded.
    """
    unchanged = activations(run) if unchanged is None else unchanged
    graph = unchanged.graph
    check_node(graph, node)
    if not 0 <= snapshot < graph.num_snapshots:
        raise ConfigError(f"snapshot={snapshot} is out of range: {graph.name!r} has 0 to {graph.num_snapshots - 1}.")
    features = np.array(graph.features)
    features[snapshot, node] += amount
    changed = activations(run, graph=replace(graph, features=features))
    difference = np.abs(changed.hidden - unchanged.hidden).max(axis=2)
    return Perturbation(unchanged.model, node, snapshot, difference, _distances(graph.snapshots[snapshot], node))


def _distances(snapshot: Snapshot, node: int) -> NDArray[np.int64]:
    """Return the number of edges from a node to each other one, in either direction; -1 without a path."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    nodes = snapshot.num_nodes
    edges = csr_array((np.ones(len(snapshot.indices)), snapshot.indices, snapshot.indptr), shape=(nodes, nodes))
    steps = shortest_path(edges, directed=False, unweighted=True, indices=node)
    return np.where(np.isfinite(steps), steps, -1).astype(np.int64)


# ``lab.datasets.compare``: several graphs side by side, such as the same edges cut into different snapshots.


@dataclass(frozen=True, slots=True)
class GraphComparison:
    """Graphs side by side: ``table`` has one row per graph, ``figure`` draws statistics that need no training."""

    table: pd.DataFrame
    figure: Figure = field(repr=False)

    def _repr_html_(self) -> str:
        """Return the table as HTML with its columns explained; ``lab.plot(comparison)`` draws the figure."""
        meanings = "".join(f"<li><b>{name}</b>: {meaning}</li>" for name, meaning in COLUMNS.items())
        html_table = self.table.to_html(
            na_rep="unknown",
            escape=True,
            float_format=lambda value: f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}",
        )
        return f"{html_table}<ul style='font-size:90%'>{meanings}</ul>"


def compare_graphs(graphs: Mapping[str, DynamicGraph]) -> GraphComparison:
    """Return sizes, overlap and baselines of several graphs.

    Args:
        graphs: label -> graph, in the order of the rows.

    Raises:
        ConfigError: no graph is given.
    """
    import pandas as pd

    if not graphs:
        raise ConfigError("compare() got no graphs. Give labelled graphs, such as {'cut 30': graph}.")
    rows = {label: graph_row(statistics_of(graph)) for label, graph in graphs.items()}
    table = pd.DataFrame(list(rows.values()), index=pd.Index(list(rows), name="graph"), columns=list(COLUMNS))
    return GraphComparison(table, compare_graphs_figure(rows))


# ``lab.inspect.follow_node``: one node through several models.


@dataclass(frozen=True, slots=True)
class FollowedNode:
    """One node: ``table`` has one row per snapshot and one column per model, ``figure`` draws them."""

    node: int
    table: pd.DataFrame
    figure: Figure = field(repr=False)

    def _repr_html_(self) -> str:
        """Return the table as HTML; ``lab.plot(followed)`` draws the figure."""
        html_table: str = self.table.to_html(escape=True, max_rows=12, float_format=lambda value: f"{value:.3g}")
        return f"<p>node {self.node}</p>{html_table}"


def follow_node(models: Sequence[Activations], node: int) -> FollowedNode:
    """Compare the predictions of several models for one node, beside its label and persistence.

    Args:
        models: activations of models trained for regression on one graph.
        node: index of the node.

    Raises:
        ConfigError: there are no models, their graphs or tasks differ, or the node does not exist.
    """
    if not models:
        raise ConfigError(
            "follow_node() got no activations. Give [lab.inspect.activations(run), ...] of finished runs."
        )
    graph = models[0].graph
    check_node(graph, node)
    for model in models:
        if model.graph.data_hash != graph.data_hash:
            raise ConfigError(
                f"{model.model!r} has activations of another graph than {models[0].model!r}. Train on the same one."
            )
        if model.outputs.shape[2] != 1:
            raise ConfigError(
                f"{model.model!r} has {model.outputs.shape[2]} outputs, but task='regression' is required."
            )
    table = models[0].node(node)[["in-neighbours", "label", "persistence"]]
    predictions = {model.model: model.outputs[:, node, 0] for model in models}
    if len(predictions) < len(models):
        raise ConfigError(
            f"models must be distinct, but are {', '.join(model.model for model in models)}. Give each one once."
        )
    figure = vertex_figure(node, graph.targets[:, node], predictions, table["in-neighbours"].to_numpy())
    return FollowedNode(node, table.assign(**predictions), figure)
