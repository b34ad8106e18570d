"""Graphs of the lessons on dynamic graphs, models and partitions, and what is seen on them without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from dtdg_lab.cluster.local import train
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import default_dataset, load_dataset
from dtdg_lab.datasets.user_data import from_edges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.lessons.experiments import shorter
from dtdg_lab.runs.inspect_model import Activations, Perturbation, perturb
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.visualization.chart import CaptionedFigure
from dtdg_lab.visualization.graphs.statistics import GraphCharts
from dtdg_lab.visualization.sheet import sheet

REAL = "collegemsg"


def messages(cut: int, *, edge_life: int = 1, strict_label: bool = False) -> DynamicGraph:
    """Return the messages between students (or, where this machine lacks them, a generated stream) as snapshots.

    Args:
        cut: number of base intervals.
        edge_life: intervals for which an edge is kept.
        strict_label: whether labels count edges of the newest interval only.
    """
    options: dict[str, Any] = {"cut": cut, "edge_life": edge_life, "strict_label": strict_label}
    if default_dataset() == REAL:
        return load_dataset(REAL, **options)
    return from_edges(*_generated_stream(), **options)


@lru_cache(maxsize=1)
def _generated_stream() -> tuple[list[int], list[int], list[int]]:
    """Return sources, targets and times of edges that are all new in every snapshot, with popular targets."""
    sizes: dict[str, Any] = {"generated_snapshots": 200, "generated_nodes": 200, "generated_edges": 300}
    snapshots = load_dataset("powerlaw", churn=1.0, **sizes).snapshots
    source = [node for snapshot in snapshots for node in snapshot.indices.tolist()]
    target = [node for snapshot in snapshots for node in snapshot.rows().tolist()]
    time = [number for number, snapshot in enumerate(snapshots) for _ in range(snapshot.num_edges)]
    return source, target, time


def stream_picture(*, cut: int = 100, edge_life: int = 1) -> CaptionedFigure:
    """Return the edges of each snapshot and the baselines, for one way to cut a stream of messages."""
    charts = GraphCharts(messages(cut, edge_life=edge_life))
    figures, captions = charts.figures(), charts.captions()
    cards = [(figures[name], captions[name]) for name in ("size", "baselines")]
    return sheet(cards, title=f"{cut} intervals, edges kept for {edge_life}"), captions["baselines"]


def split_picture(*, protocol: str = "leaky", edge_life: int = 10) -> CaptionedFigure:
    """Return which snapshots train, validate and test under a protocol; the gap between them is grey."""
    charts = GraphCharts(messages(100, edge_life=edge_life), protocol)
    return charts.figures()["size"], charts.captions()["size"]


def trained_loss(graph: DynamicGraph, *, protocol: str = "warm") -> dict[str, float]:
    """Return the test loss of a small T-GCN on a graph, beside persistence and the mean of the training labels."""
    config = RunConfig(
        system="single",
        dataset=graph,
        protocol=protocol,
        model="tgcn",
        hidden=16,
        epochs=shorter(60, 30),
        learning_rate=1e-2,
        evaluate_every=10,
    )
    summary = train(config, progress=False).summary
    return {
        "model": summary["test_loss"],
        "persistence": summary["persistence_loss"],
        "mean of the labels": summary["mean_loss"],
    }


def by_baseline(losses: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return model or baseline -> graph -> loss, from graph -> model or baseline -> loss."""
    names = next(iter(losses.values()))
    return {name: {graph: by_name[name] for graph, by_name in losses.items()} for name in names}


# One node through several models.


def sparse_graph() -> DynamicGraph:
    """Return the messages between students, or a sparse generated graph where this machine lacks them."""
    if default_dataset() == REAL:
        return load_dataset(REAL)
    return load_dataset("powerlaw", generated_nodes=2000, generated_edges=1500)


def train_models(graph: DynamicGraph, models: Sequence[str]) -> dict[str, StoredRun]:
    """Train each model for some epochs on one process, with one seed and width, and return model -> its run."""
    settings = {"hidden": 8, "learning_rate": 1e-2, "evaluate_every": 20, "epochs": shorter(40, 2)}
    configs = {model: RunConfig(system="single", dataset=graph, model=model, **settings) for model in models}
    return {model: train(config, progress=False) for model, config in configs.items()}


def busiest(graph: DynamicGraph) -> tuple[int, int]:
    """Return the node with most edges in the first half of the snapshots, and the snapshot of its most out-edges."""
    degrees = graph.features[: graph.num_snapshots // 2]  # log(1 + in-degree), log(1 + out-degree)
    node = int(degrees.prod(axis=2).sum(axis=0).argmax())
    return node, int(degrees[:, node, 1].argmax())


def perturb_each(
    runs: Mapping[str, StoredRun], traces: Mapping[str, Activations], node: int, snapshot: int
) -> dict[str, Perturbation]:
    """Return model -> what changes when a node's features are raised by 1 at one snapshot."""
    return {name: perturb(run, node=node, snapshot=snapshot, unchanged=traces[name]) for name, run in runs.items()}


def affected_nodes(changes: Mapping[str, Perturbation], lags: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return when -> model -> number of nodes that differ so many snapshots after a change.

    Args:
        changes: model -> what changed.
        lags: name -> snapshots after the change.
    """
    return {name: {model: change.affected(lag) for model, change in changes.items()} for name, lag in lags.items()}


def largest_change(
    run: StoredRun, trace: Activations, node: int, snapshot: int, *, amounts: Sequence[float]
) -> Perturbation:
    """Return the change of a node's features, of several sizes, that most nodes notice one snapshot later."""
    changes = [perturb(run, node=node, snapshot=snapshot, amount=amount, unchanged=trace) for amount in amounts]
    return max(changes, key=lambda change: change.affected(1))
