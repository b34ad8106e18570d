"""The training split as a graph: what partitions, chunks, schedules and other plans of training may read."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import repeats, stored_once

TRAIN = 0  # in DynamicGraph.vertex_split
UNKNOWN = -1  # in DynamicGraph.classes


def training_graph(graph: DynamicGraph, train: range) -> DynamicGraph:
    """Return a graph of the training snapshots alone, over the same nodes; edges and features are not copied.

    Nodes that appear later have no edge in it. Classes of nodes that the data set does not train are unknown. Its
    ``data_hash`` follows from the graph's and the snapshots; no array is hashed.

    Args:
        graph: T snapshots; not sealed.
        train: numbers of its training snapshots, from 0 on.
    """
    digest = hashlib.sha256(f"{graph.data_hash} training {train.start} {train.stop}".encode())
    cut = slice(train.start, train.stop)
    fields: dict[str, Any] = {name: getattr(graph, name) for name in DynamicGraph.__dataclass_fields__}
    fields |= {name: fields[name][cut] for name in ("snapshots", "features", "targets", "persistence")}
    if graph.following is not None:
        fields["following"] = graph.following[cut]
    if graph.classes is not None:
        fields["classes"] = _training_classes(graph.classes, graph.vertex_split, cut)
    facts = {"num_classes": graph.num_classes, "num_edges": graph.num_edges[cut]}
    return DynamicGraph.trusted(**fields, **facts, data_hash=digest.hexdigest())


def _training_classes(
    classes: NDArray[np.int16], vertex_split: NDArray[np.int8] | None, cut: slice
) -> NDArray[np.int16]:
    """Return the classes of some snapshots, unknown for nodes that are not trained; classes that repeat stay so."""
    if vertex_split is None:
        return classes[cut]
    if not repeats(classes):
        return np.where(vertex_split == TRAIN, classes[cut], np.int16(UNKNOWN))
    row = np.where(vertex_split == TRAIN, stored_once(classes), np.int16(UNKNOWN))
    return np.broadcast_to(row, classes[cut].shape)
