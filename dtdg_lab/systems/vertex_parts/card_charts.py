"""Charts on the cards of systems of node parts: rows that partitions exchange or copy."""

from __future__ import annotations

import numpy as np

from dtdg_lab.config.catalogue import System
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.partition.measured_partition import partition_graph
from dtdg_lab.visualization.graphs.partition_maps import map_figure, map_words, matrix_figure
from dtdg_lab.visualization.panels import Panel, compared_panel

PARTS = 4


def vertex_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """Return the rows that a partition receives or copies, bytes between partitions, and partitioners compared."""
    partitioner = system.parts["partition"]
    name = "replicated" if system.parts["parallel"] == "cached_vertex" else "halo"
    partitions = {rule: partition_graph(graph, rule, PARTS) for rule in dict.fromkeys((partitioner, "hash", "metis"))}
    rows = {rule: float(getattr(partition.measures, name).sum()) for rule, partition in partitions.items()}
    facts = PartitionFacts.read(partitions[partitioner].to_dict())
    panels = [(map_figure(name, facts.maps[name], facts.bounds), map_words(name, facts))]
    if name == "halo":
        panels.append(_bytes_between_parts(facts))
    quantity = "Rows copied" if name == "replicated" else "Halo rows of a step"
    caption = (
        f"{quantity} with {PARTS} partitions of the same small graph. Fewer are better: a partitioner uses the "
        "structure of the graph or ignores it (hash)."
    )
    return [*panels, compared_panel(quantity, "rows", rows, highlighted=partitioner, caption=caption)]


def _bytes_between_parts(facts: PartitionFacts) -> Panel:
    passes = {pass_name: layers.sum(axis=0).astype(np.float64) for pass_name, layers in facts.predicted.items()}
    top = float(np.sum(list(passes.values()), axis=0).max())
    return matrix_figure("Bytes between partitions", passes, who="partition", top=top), (
        "Counted from the partition: neighbour rows forward, their gradients backward. Unlike ESDG's, they depend on "
        "the edges, and pairs differ."
    )
