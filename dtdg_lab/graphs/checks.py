"""What the parts of a dynamic graph must be, looked at when somebody gives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.graphs.snapshot import Snapshot, frozen, over_time, stored_once

if TYPE_CHECKING:
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph


_AT_ONCE = 2**20


def check_graph(graph: DynamicGraph) -> None:
    """Check all fields of a graph under construction and put read-only arrays in their place.

    Raises:
        DataError: fields do not fit together, or hold values that are not allowed.
    """
    _check_facts(graph)
    _set(graph, "snapshots", _listed("snapshots", graph.snapshots))
    check_snapshots("snapshots", graph.snapshots, graph.snapshots)
    if graph.edge_life < 1:
        raise DataError(f"edge_life={graph.edge_life}: an edge lives at least 1 base interval.")
    steps, nodes = len(graph.snapshots), graph.snapshots[0].num_nodes
    features = over_time(graph.features, name="features", dtype=np.float32, steps=steps, shape=(nodes, None))
    check_finite("features", stored_once(features))
    _set(graph, "features", features)
    for name in ("targets", "persistence"):
        array = frozen(getattr(graph, name), name=name, dtype=np.float32, shape=(steps, nodes))
        check_finite(name, array)
        _set(graph, name, array)
    if graph.node_ids is not None:
        _set(graph, "node_ids", check_ids(graph.node_ids, nodes))
    if graph.classes is not None:
        classes = over_time(graph.classes, name="classes", dtype=np.int16, steps=steps, shape=(nodes,))
        check_range("classes", stored_once(classes), -1, np.iinfo(np.int16).max)
        _set(graph, "classes", classes)
    if graph.vertex_split is not None:
        parts = frozen(graph.vertex_split, name="vertex_split", dtype=np.int8, shape=(nodes,))
        check_range("vertex_split", parts, -1, 2)
        _set(graph, "vertex_split", parts)
    if graph.following is not None:
        _set(graph, "following", _following(graph, _listed("following", graph.following)))


def _check_facts(graph: DynamicGraph) -> None:
    wanted: tuple[tuple[str, tuple[type, ...], str], ...] = (
        ("name", (str,), "text"),
        ("source", (str,), "text"),
        ("edge_life", (int, np.integer), "a whole number"),
        ("strict_label", (bool,), "True or False"),
    )
    for field, kinds, words in wanted:
        value = getattr(graph, field)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise DataError(f"{field}={shortened(value)} is of type {type(value).__name__}; {words} is needed.")


def _listed(name: str, given: Any) -> tuple[Any, ...]:
    if not isinstance(given, Iterable):
        raise DataError(f"{name} is of type {type(given).__name__}; a list of Snapshots is needed.")
    return tuple(given)


def check_snapshots(name: str, snapshots: tuple[Snapshot, ...], like: tuple[Snapshot, ...]) -> None:
    """Refuse anything that is no snapshot, or not over the nodes of ``like[0]``, or has weights where that has none.

    Raises:
        DataError: naming the first that does not fit.
    """
    if not snapshots:
        raise DataError("a dynamic graph needs at least 1 labelled snapshot; 0 were given. Cut more windows.")
    for t, snapshot in enumerate(snapshots):
        if not isinstance(snapshot, Snapshot):
            raise DataError(f"{name}[{t}] is a {type(snapshot).__name__}; a Snapshot is needed.")
        if snapshot.num_nodes != like[0].num_nodes:
            raise DataError(
                f"{name}[{t}] has {snapshot.num_nodes} nodes and snapshots[0] has {like[0].num_nodes}; "
                "all must be over the same nodes. Number them over all time."
            )
        if name == "snapshots" and (snapshot.weights is None) != (like[0].weights is None):
            raise DataError(f"{name}[{t}] and snapshots[0] differ in having weights; give all of them weights or none.")


def check_ids(node_ids: Any, nodes: int) -> NDArray[Any]:
    """The ids of N nodes, read-only.

    Raises:
        DataError: they are neither whole numbers nor text, or not N of them.
    """
    kind = np.asarray(node_ids).dtype
    if kind.kind not in "iuU":
        raise DataError(f"node_ids have type {kind}; whole numbers or text are needed.")
    return frozen(node_ids, name="node_ids", dtype=kind, shape=(nodes,))


def check_finite(name: str, array: NDArray[Any]) -> None:
    """Refuse NaN and infinite values, naming the first.

    Raises:
        DataError: there is one.
    """
    step = max(1, _AT_ONCE * len(array) // max(1, array.size))  # no array of flags as large as the data
    for start in range(0, len(array), step):
        bad = ~np.isfinite(array[start : start + step])
        if bad.any():
            first, *rest = (int(i) for i in np.argwhere(bad)[0])
            where = (start + first, *rest)
            raise DataError(f"{name}{list(where)} is {array[where]}; every value must be finite. Check the source.")


def check_range(name: str, array: NDArray[Any], low: int, high: int) -> None:
    """Refuse values outside ``low`` to ``high``, naming the first.

    Raises:
        DataError: there is one.
    """
    if array.size and (array.min() < low or array.max() > high):
        where = tuple(int(i) for i in np.argwhere((array < low) | (array > high))[0])
        raise DataError(f"{name}{list(where)} is {array[where]}; {low} to {high} is allowed.")


def _following(graph: DynamicGraph, following: tuple[Snapshot, ...]) -> tuple[Snapshot, ...]:
    """The label graphs, checked; those that equal the next snapshot are it, so that equal graphs have equal hashes."""
    if len(following) != len(graph.snapshots):
        raise DataError(
            f"following has {len(following)} snapshots and there are {len(graph.snapshots)} labelled ones; "
            "one label graph for each is needed."
        )
    check_snapshots("following", following, graph.snapshots)
    later = (*graph.snapshots[1:], following[-1])
    return tuple(b if a.equals(b) else a for a, b in zip(following, later, strict=True))


def _set(graph: DynamicGraph, name: str, value: Any) -> None:
    object.__setattr__(graph, name, value)
