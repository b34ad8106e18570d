"""Pictures of systems whose parts own vertices: halo rows that travel, or copies that are held instead."""

from __future__ import annotations

import numpy as np

from dtdg_lab.core.catalogue import System
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.measured import partition_graph
from dtdg_lab.views.card_pictures import Panel, compared_panel
from dtdg_lab.views.partition_facts import facts_of
from dtdg_lab.views.partition_maps import map_figure
from dtdg_lab.views.partition_matrix import matrix_figure
from dtdg_lab.views.partition_words import map_words

PARTS = 4


def vertex_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """The map of what a part receives or copies, what goes from part to part, and the partitioner beside others."""
    own = system.parts["partition"]
    copies = system.parts["parallel"] == "cached_vertex"
    measured = {name: partition_graph(graph, name, PARTS) for name in dict.fromkeys((own, "hash", "metis"))}
    facts, name = facts_of(measured[own].told()), "replicated" if copies else "halo"
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
        compared_panel(kind, "rows", rows, own=own, words=(
            f"{kind} with {PARTS} parts of the same small graph. Fewer are better: here the structure of the graph is "
            "used, or not (hash).")),
    ]  # fmt: skip


def _matrix(predicted: object) -> Panel:
    ways = {way: np.asarray(each, np.float64).sum(axis=0) for way, each in dict(predicted).items()}  # type: ignore[call-overload]
    top = float(np.sum(list(ways.values()), axis=0).max())
    return matrix_figure("Bytes from part to part", ways, who="part", top=top), (
        "Counted from the partition alone: rows of neighbours forward, their gradients back. Unlike ESDG's, they "
        "depend "
        "on the edges, and pairs differ."
    )
