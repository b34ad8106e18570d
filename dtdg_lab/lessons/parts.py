"""Experiments of the lesson on partitions: what parts need from each other, and whether owners change the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.lessons.experiments import train_each
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.partition.measured_partition import compare_partitions, partition_graph
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.visualization.chart import CaptionedFigure
from dtdg_lab.visualization.graphs.partition import map_caption, part_map

PARTS = 4
PICTURE_SIZE: Mapping[str, Any] = {"generated_snapshots": 30, "generated_nodes": 400, "generated_edges": 2000}


def partition_picture(*, partitioner: str = "hash", drift: float = 0.005) -> CaptionedFigure:
    """Return the halo rows that four parts of a small graph with communities need from each other.

    Args:
        partitioner: its name.
        drift: share of the nodes that move to another community with every snapshot.
    """
    graph = load_dataset("sbm", communities=4, drift=drift, **PICTURE_SIZE)
    facts = PartitionFacts.read(partition_graph(graph, partitioner, PARTS).to_dict())
    largest = partition_graph(graph, "hash", PARTS).measures.halo.max()  # one scale of colours for all partitioners
    return part_map("halo", facts, top=float(largest)), map_caption("halo", facts)


def count_parts(graph: DynamicGraph, partitioners: Sequence[str]) -> pd.DataFrame:
    """Return a row for each partitioner: halo rows, load and nodes of the heaviest part over the mean, share copied."""
    partitions = compare_partitions(graph, list(partitioners), parts=PARTS)
    rows = [
        {
            "halo rows": int(partition.measures.halo.sum()),
            "load": float(partition.measures.imbalance["load"]),
            "nodes": float(partition.measures.imbalance["vertices"]),
            "copied": float(partition.measures.replicated_share),
        }
        for partition in partitions
    ]
    return pd.DataFrame(rows, index=[partition.partitioner for partition in partitions])


def rows_compared(size: Mapping[str, Any], partitioner: str, other: str) -> dict[str, float]:
    """Return generated graph -> halo rows in percent of another partitioner's, as nodes get popular and edges change.

    Args:
        size: settings of the generators.
        partitioner: its name.
        other: the one that it is compared with.
    """
    graphs: dict[str, tuple[str, dict[str, Any]]] = {
        f"zipf {zipf:g}, churn {churn:g}": ("powerlaw", {"zipf": zipf, "churn": churn})
        for zipf, churn in ((0, 0), (1.5, 0), (1.5, 0.5))
    }
    graphs |= {f"drift {drift:g}": ("sbm", {"communities": 4, "drift": drift}) for drift in (0, 0.02, 0.1, 0.5)}
    shares = {}
    for name, (generator, options) in graphs.items():
        counted = count_parts(load_dataset(generator, **options, **size), [partitioner, other])["halo rows"]
        shares[name] = 100 * float(counted[partitioner] / counted[other])
    return shares


def apart_from_one_process(session: Session, config: RunConfig, run: StoredRun) -> float:
    """Train the settings of a run on one process, and return the largest relative difference of their losses."""
    losses = run.table("steps").groupby("step")["global_loss"].first()
    alone = config.replace(system="single", ranks=1, parts=1, threads=1, epochs=len(losses))
    reference = train_each(session, {"alone": alone})["alone"].table("steps").groupby("step")["global_loss"].first()
    return float((losses / reference[: len(losses)] - 1).abs().max())
