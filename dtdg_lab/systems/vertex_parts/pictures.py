"""Pictures on the cards of its systems: rows that partitions exchange or copy."""

from __future__ import annotations

import numpy as np

from dtdg_lab.config.catalogue import System
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.partition.metrics import partition_graph
from dtdg_lab.visualization.graphs.partition_maps import map_figure, map_words, matrix_figure
from dtdg_lab.visualization.panels import Panel, compared_panel

PARTS = 4


def vertex_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """The rows that a partition receives or copies, bytes between partitions, and partitioners compared."""
    own = system.parts["partition"]
    copies = system.parts["parallel"] == "cached_vertex"
    measured = {name: partition_graph(graph, name, PARTS) for name in dict.fromkeys((own, "hash", "metis"))}
    facts, name = PartitionFacts.read(measured[own].to_dict()), "replicated" if copies else "halo"
    rows = {
        label: float((each.measures.replicated if copies else each.measures.halo).sum())
        for label, each in measured.items()
    }
    kind = "Rows copied" if copies else "Halo rows of a step"
    found = [(map_figure(name, facts.maps[name], facts.bounds), map_words(name, facts))]
    if not copies:
        found.append(_matrix(measured[own].predicted))
    return [
        *found,
        compared_panel(
            kind,
            "rows",
            rows,
            own=own,
            words=(
                f"{kind} with {PARTS} partitions of the same small graph. Fewer are better: a partitioner uses the "
                "structure of the graph or ignores it (hash)."
            ),
        ),
    ]


def _matrix(predicted: object) -> Panel:
    passes = {pass_name: np.asarray(each, np.float64).sum(axis=0) for pass_name, each in dict(predicted).items()}  # type: ignore[call-overload]
    top = float(np.sum(list(passes.values()), axis=0).max())
    return matrix_figure("Bytes between partitions", passes, who="partition", top=top), (
        "Counted from the partition: neighbour rows forward, their gradients backward. Unlike ESDG's, they depend on "
        "the edges, and pairs differ."
    )
