"""What events say of the plans that a run trains by: who owns which vertices, and who computes which groups when."""

from __future__ import annotations

from typing import Any

from dtdg_lab.comm.group import Group
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training.build import Built
from dtdg_lab.training.partitioned import told_partition

Told = list[tuple[str, dict[str, Any]]]  # events by kind


def told_plans(built: Built, graph: DynamicGraph, group: Group, left: Built | None = None) -> Told:
    """Events on rank 0; none on the others.

    Args:
        built: what trains.
        graph: the data.
        group: the ranks.
        left: what trained before; where it had a plan of a kind that this has none of, that is said.
    """
    told = Told()
    if group.rank != 0:
        return told
    if built.partition is not None:
        facts = told_partition(built.config, graph, built.partition, train=built.split.train, ranks=group.size)
        told.append(("partition", facts))
    elif left is not None and left.partition is not None:
        told.append(("partition", {"layout": None}))
    if built.scheduling is not None:
        told.append(("schedule", built.scheduling.told()))
    elif left is not None and left.scheduling is not None:
        told.append(("schedule", {"layout": None}))
    return told
