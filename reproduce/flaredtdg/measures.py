"""Measurements of FlareDTDG that are no single training: inherited states, shrinking, exchanges and phases of a run."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.run_config import RunConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.graphs.snapshot import Snapshot
    from dtdg_lab.runs.stored_run import StoredRun
    from dtdg_lab.systems.decayed_windows.shrinking import Shrinker, ShrunkenEdges, SurvivalOrder
    from dtdg_lab.systems.decayed_windows.window import Window

Values = dict[str, float | None]
STABLE = {
    "churn": 1.0,
    "zipf": 1.0,
    "generated_nodes": 600,
    "generated_edges": 3000,
    "generated_snapshots": 50,
}


@contextmanager
def ended_run(config: RunConfig, patience: int = 0) -> Iterator[StoredRun]:
    """Train a config, on engines if it has several ranks, and remove the run afterwards.

    Args:
        config: the settings.
        patience: evaluations without a new lowest validation loss after which the run ends; 0 for all its epochs.
    """
    from dtdg_lab.cluster.one_run import run_config
    from dtdg_lab.cluster.session import Session
    from dtdg_lab.studies.race_plan import StopRule

    judge = StopRule(patience=patience).verdict if patience else None
    with TemporaryDirectory(prefix="dtdg-lab-flaredtdg-") as name:
        folder = Path(name)
        if config.ranks == 1:
            yield run_config(config, runs_dir=folder, judge=judge).run
            return
        with Session(ranks=config.ranks, runs_dir=folder) as session:
            yield run_config(config, session=session, judge=judge).run


# States of nodes that enter a window late


def test_on_stable_graph(settings: Mapping[str, Any], seed: int) -> Values:
    """Train on lesson 09's stable graph, or on one that each seed generates, and test.

    Args:
        settings: of a run; ``graph`` is ``lesson`` or ``seeded``.
        seed: seed of the run.
    """
    import dtdg_lab as lab

    options = dict(settings)
    if options.pop("graph") == "lesson":
        data: dict[str, Any] = {"dataset": lab.datasets.load("powerlaw", **STABLE)}
    else:
        data = {"dataset": "powerlaw", **STABLE}
    with ended_run(RunConfig(**data, **options, seed=seed)) as run:
        names = ("test_loss", "persistence_loss", "mean_loss", "validation_loss", "steps")
        return {name: run.summary[name] for name in names}


# Shrinking (Tables 9 and 10)


def shrink(settings: Mapping[str, Any], seed: int) -> Values:
    """Train on one rank with decayed snapshots as prefixes of one numbering, or induced and relabelled in every step.

    Args:
        settings: of a run; ``edges`` is ``prefixes`` or ``induced``.
        seed: seed of the run.

    Returns:
        ``epoch_s``, the median over epochs without the first; ``shrink_s`` in an epoch; ``last_loss``, equal for both;
        ``peak_bytes`` of a step's tensors and of the arrays from which the snapshots of a window are made.
    """
    options = dict(settings)
    is_induced = options.pop("edges") == "induced"
    config = RunConfig(**options, seed=seed)
    with induced_snapshots(is_induced), ended_run(config) as run:
        steps, batches = run.table("steps"), run.table("batches")
        seconds = steps.groupby("epoch")["time_s"].sum()
        shrink_s = batches.groupby("epoch")["shrink_s"].sum()
        last_loss = float(steps["global_loss"].iloc[-1])
        tensor_bytes = int(run.summary["peak_bytes"])
    return {
        "epoch_s": float(seconds.iloc[1:].median()),
        "shrink_s": float(shrink_s.iloc[1:].median()),
        "last_loss": last_loss,
        "peak_bytes": tensor_bytes + peak_of_windows(config, is_induced=is_induced),
    }


def induced_edges(snapshot: Snapshot, vertices: NDArray[np.int64], parts: NDArray[np.int32]) -> ShrunkenEdges:
    """Return the edges of a snapshot among some nodes, within one part each: the induced subgraph, relabelled.

    It reads every edge of the snapshot and sorts the end points that are left.

    Args:
        snapshot: N nodes.
        vertices: (n,) distinct nodes, in the order in which they are renumbered.
        parts: (n,) part of each.

    Returns:
        The edges; a row's columns are ordered as those of the shrinker.

    References: the variant without shrinking of FlareDTDG section 4.3 (Tables 9 and 10).
    """
    import numpy as np

    from dtdg_lab.kernels.uploads import as_tensor
    from dtdg_lab.systems.decayed_windows.shrinking import ShrunkenEdges

    part = np.full(snapshot.num_nodes, -1, np.int32)
    part[vertices] = parts
    targets, sources = snapshot.rows(), snapshot.indices.astype(np.int64)
    kept = (part[targets] >= 0) & (part[targets] == part[sources])
    targets, sources = targets[kept], sources[kept]
    weights = None if snapshot.weights is None else snapshot.weights[kept]

    rows, edges = len(vertices), len(targets)
    labels, label = np.unique(np.concatenate([vertices, targets, sources]), return_inverse=True)
    number = np.empty(len(labels), np.int64)
    number[label[:rows]] = np.arange(rows)
    new_targets, new_sources = number[label[rows : rows + edges]], number[label[rows + edges :]]
    order = np.lexsort((new_sources, new_targets))
    indptr = as_tensor(np.concatenate([[0], np.cumsum(np.bincount(new_targets, minlength=rows))]).astype(np.int32))
    indices = as_tensor(new_sources[order].astype(np.int32))
    # nothing is cut out of these edges again, so they need no levels
    return ShrunkenEdges(indptr, indices, None if weights is None else as_tensor(weights[order]), indices, np.empty(0))


@contextmanager
def induced_snapshots(is_induced: bool) -> Iterator[None]:
    """Replace the prefixes of every shrinker by induced subgraphs, in this process."""
    if not is_induced:
        yield
        return
    from dtdg_lab.systems.decayed_windows.shrinking import Shrinker

    prefixes = Shrinker.edges

    def edges(self: Shrinker, t: int, rows: int) -> ShrunkenEdges:
        order = self._numbering.order
        return induced_edges(self._snapshots[t], order.vertices[:rows], order.parts[:rows]).on(self._device)

    Shrinker.edges = edges  # type: ignore[method-assign]
    try:
        yield
    finally:
        Shrinker.edges = prefixes  # type: ignore[method-assign]


def peak_of_windows(config: RunConfig, *, is_induced: bool) -> int:
    """Return the most bytes of arrays and tensors while the decayed snapshots of an epoch's windows are made.

    Args:
        config: settings of a run on one partition.
        is_induced: whether they are induced, instead of prefixes.
    """
    from dtdg_lab.training.memory import peak_bytes

    graph, order, windows = epoch_plan(config)

    def make() -> None:
        make_windows(graph.snapshots, order, windows, is_induced=is_induced)

    tracemalloc.start()
    try:
        make()
        _, array_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return array_bytes + peak_bytes(make)


def epoch_plan(config: RunConfig) -> tuple[DynamicGraph, SurvivalOrder, Sequence[Window]]:
    """Return the graph of a config on one partition, and the order of survival and the windows of its first epoch."""
    from dtdg_lab.config.catalogue import PROTOCOLS
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.distributed.group import SoloGroup
    from dtdg_lab.graphs.split import split
    from dtdg_lab.graphs.training_graph import training_graph
    from dtdg_lab.systems.decayed_windows.chunks import shared_chunks
    from dtdg_lab.systems.decayed_windows.shrinking import survival_order
    from dtdg_lab.systems.decayed_windows.window import Trapezoid, epoch_windows
    from dtdg_lab.training.partition import shared_partition

    graph, group = load_for(config), SoloGroup()
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[config.protocol]).train
    partition = shared_partition(config, graph, train, group)
    chunking = shared_chunks(config, training_graph(graph, train), partition, group)
    order = survival_order(partition.owner, chunking, range(config.parts), seed=config.seed, epoch=0)
    shape = Trapezoid.of(config, chunks=chunking.chunks)
    return graph, order, epoch_windows(train, shape, seed=config.seed, epoch=0)


def make_windows(
    snapshots: Sequence[Snapshot], order: SurvivalOrder, windows: Iterable[Window], *, is_induced: bool
) -> int:
    """Make the edges of all decayed snapshots of an epoch, without training, and return their number."""
    from dtdg_lab.systems.decayed_windows.shrinking import Shrinker

    shrinker, count = Shrinker(snapshots), 0
    shrinker.renumber(order)
    with induced_snapshots(is_induced):
        for window in windows:
            shrinker.keep_only(window.decayed)
            edges = [
                shrinker.edges(t, int(order.rows[chunks]))
                for t, chunks in zip(window.decayed, window.counts, strict=True)
            ]
            count += sum(snapshot.num_edges for snapshot in edges)
    return count


# Exchanges (Table 11 and Figure 1)


def exchange(settings: Mapping[str, Any], seed: int) -> Values:
    """Train on several ranks, and measure exchanges of rows.

    Args:
        settings: of a run.
        seed: seed of the run.

    Returns:
        ``exposed_s``, seconds of an epoch that the rank which waits most spends in exchanges of rows, the median
        over epochs without the first; ``exposed_share``, the share of steps that ranks spend in exchanges of rows and
        gradients, without what is hidden; ``hidden_share`` of the time of rows in flight; ``epoch_s``; ``last_loss``.
    """
    with ended_run(RunConfig(**settings, seed=seed)) as run:
        steps, exchanges = run.table("steps"), run.table("exchanges")
        exposed_s = exchanges.groupby(["epoch", "rank"])["exposed_s"].sum().groupby("epoch").max()
        in_flight_s = float(exchanges["in_flight_s"].sum())
        phases = run.summary["phase_time_s"]
        return {
            "exposed_s": float(exposed_s.iloc[1:].median()),
            "exposed_share": (phases["wait"] + phases["communicate"]) / sum(phases.values()),
            "hidden_share": 1 - float(exchanges["exposed_s"].sum()) / in_flight_s if in_flight_s else None,
            "epoch_s": run.summary["epoch_time_median_s"],
            "last_loss": float(steps["global_loss"].iloc[-1]),
        }


# Phases of a training (Table 12)


def break_down(settings: Mapping[str, Any], seed: int) -> Values:
    """Train until the validation loss stays, and share out its seconds by the paper's names.

    Shuffling is timed by itself, as it is part of making the first
    batch of an epoch; ``remap_share`` is the rest of making batches.

    Args:
        settings: of a run; ``patience`` as in :func:`ended_run`.
        seed: seed of the run.
    """
    options = dict(settings)
    patience = options.pop("patience")
    config = RunConfig(**options, seed=seed)
    with ended_run(config, patience) as run:
        phases = {name: seconds or 0.0 for name, seconds in run.summary["phase_time_s"].items()}
        steps, epochs = run.summary["steps"], run.summary["epochs"]
    chunking_s, shuffle_s = chunk_and_shuffle(config, epochs)
    seconds = {name: value * steps for name, value in phases.items()}
    total_s = sum(seconds.values()) + chunking_s
    return {
        "chunking_share": chunking_s / total_s,
        "shuffle_share": shuffle_s / total_s,
        "remap_share": max(0.0, seconds["batch"] - shuffle_s) / total_s,
        "compute_share": seconds["compute"] / total_s,
        "communication_share": (seconds["wait"] + seconds["communicate"]) / total_s,
        "load_share": seconds["transfer"] / total_s,
        "total_s": total_s,
        "epochs": epochs,
    }


def chunk_and_shuffle(config: RunConfig, epochs: int) -> tuple[float, float]:
    """Return the seconds of chunking the union graph once, and of shuffling its chunks in all epochs of a rank."""
    from dtdg_lab.config.catalogue import PROTOCOLS
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.distributed.group import SoloGroup
    from dtdg_lab.graphs.split import split
    from dtdg_lab.graphs.training_graph import training_graph
    from dtdg_lab.systems.decayed_windows.chunks import shared_chunks
    from dtdg_lab.systems.decayed_windows.shrinking import survival_order
    from dtdg_lab.training.partition import shared_partition

    graph, group = load_for(config), SoloGroup()
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[config.protocol]).train
    partition = shared_partition(config, graph, train, group)
    chunking = shared_chunks(config, training_graph(graph, train), partition, group)
    own = range(config.parts // config.ranks)
    start_s = time.perf_counter()
    for epoch in range(epochs):
        survival_order(partition.owner, chunking, own, seed=config.seed, epoch=epoch)
    return chunking.seconds, time.perf_counter() - start_s
