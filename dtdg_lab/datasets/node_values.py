"""Read the features and classes of nodes: arrays in the order of the ids, or mappings from ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.generators.base import random_parts
from dtdg_lab.datasets.tables import SPLIT_NONE, SPLIT_TRAIN
from dtdg_lab.graphs.edge_list import as_array, floats_of_objects, read_ids, wrong_type
from dtdg_lab.graphs.intervals import Intervals
from dtdg_lab.graphs.snapshot import read_only

_NEEDED = {"features": "numbers", "labels": "classes as whole numbers, as of np.unique(x, return_inverse=True)[1],"}
MOST_CLASSES = int(np.iinfo(np.int16).max)


def vertex_features(values: ArrayLike | Mapping[Any, ArrayLike], edges: Intervals) -> NDArray[np.float32]:
    """Return the features of N nodes, shape (N, F), or (B, N, F) where they change between base intervals.

    Args:
        values: an array of that shape in the order of the nodes; or a mapping from their ids to F numbers each, such
            as a data frame with the ids as its index.
        edges: the edges, with the numbers of nodes and intervals, and the ids.

    Raises:
        DataError: the values have another shape, or one is not finite.
    """
    array = _in_order(values, edges, "features")
    shapes = ((edges.num_nodes,), (edges.num_intervals, edges.num_nodes))
    if array.ndim not in (2, 3) or array.shape[:-1] not in shapes or not array.shape[-1]:
        raise DataError(
            f"features have shape {array.shape}; ({edges.num_nodes}, F) is needed, one row for each node in the "
            f"order of graph.node_ids, or ({edges.num_intervals}, {edges.num_nodes}, F), one such table for each base "
            "interval, with F at least 1. Nodes are those that an edge has, or that nodes= lists."
        )
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused
        array = array.astype(np.float32)
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        index = tuple(int(coordinate) for coordinate in wrong[0])
        raise DataError(
            f"features{list(index)} (node {_name(edges, index[-2])}) is {array[index]}; finite numbers are needed. "
            "Replace missing values before."
        )
    return read_only(array)


def class_labels(values: ArrayLike | Mapping[Any, int], edges: Intervals) -> NDArray[np.int16]:
    """Return the classes of N nodes, shape (N,), or (B, N) where they change; -1 is unknown.

    Args:
        values: an array of that shape in the order of the nodes; or a mapping from their ids to a class each, such
            as a column of a data frame with the ids as its index.
        edges: the edges, with the numbers of nodes and intervals, and the ids.

    Raises:
        DataError: the values have another shape, one is no whole number from -1 to 32767, or all are -1.
    """
    array = _in_order(values, edges, "labels")
    if array.shape not in ((edges.num_nodes,), (edges.num_intervals, edges.num_nodes)):
        raise DataError(
            f"labels have shape {array.shape}; ({edges.num_nodes},) is needed, one class for each node in the order "
            f"of graph.node_ids, or ({edges.num_intervals}, {edges.num_nodes}), one row for each base interval."
        )
    wrong = np.argwhere(~((array >= -1) & (array <= MOST_CLASSES) & (array == np.floor(array))))
    if len(wrong):
        index = tuple(int(coordinate) for coordinate in wrong[0])
        raise DataError(
            f"labels{list(index)} (node {_name(edges, index[-1])}) is {array[index]}; whole numbers from 0 to "
            f"{MOST_CLASSES} are needed, or -1 where the class is unknown. Number classes "
            "with np.unique(..., return_inverse=True)."
        )
    if not (array >= 0).any():
        raise DataError("labels are all -1, unknown: there is nothing to classify. Give classes from 0, or no labels.")
    return read_only(array.astype(np.int16))


def never_change(classes: NDArray[np.int16]) -> bool:
    """Return whether every node has one class at most, for classes of shape (N,) or (B, N)."""
    if classes.ndim == 1:
        return True
    first_classes = np.where(classes < 0, np.iinfo(np.int16).max, classes).min(axis=0)
    return bool(((classes < 0) | (classes == first_classes)).all())


def parts_of_labelled(classes: NDArray[np.int16]) -> NDArray[np.int8]:
    """Return the split of each node with a class, (N,), the same for every seed of a run; -1 without a class.

    Where fewer than three nodes have a class, all of them train.
    """
    labelled = np.flatnonzero((classes >= 0).reshape(-1, classes.shape[-1]).any(axis=0))
    parts = np.full(classes.shape[-1], SPLIT_NONE, dtype=np.int8)
    draws = generator(0, "own/vertex_split")
    parts[labelled] = random_parts(draws, len(labelled)) if len(labelled) > 2 else SPLIT_TRAIN
    return read_only(parts)


def _numbers(values: Any, what: str) -> NDArray[Any]:
    needed = _NEEDED[what]
    array = as_array(values, what, needed)
    if array.dtype.kind == "O" and set(map(type, array.flat)) <= {int, float, bool}:
        return floats_of_objects(array, what)
    if array.dtype.kind not in "iufb":
        raise wrong_type(array, what, needed, (int, float))
    return array


def _in_order(values: Any, edges: Intervals, what: str) -> NDArray[Any]:
    """Return numbers in the order of the nodes. Mappings and tables with an index are matched by id."""
    if isinstance(values, Mapping):
        return _by_id(list(values.keys()), list(values.values()), edges, what)
    index = getattr(values, "index", None)
    if index is not None and hasattr(values, "iloc") and type(index).__name__ != "RangeIndex":  # of pandas
        return _by_id(index, values, edges, what)
    return _numbers(values, what)


def _by_id(keys: Any, values_by_key: Any, edges: Intervals, what: str) -> NDArray[Any]:
    """Return the values of ``keys`` in the order of the nodes, without ids that no edge has."""
    ids = np.arange(edges.num_nodes) if edges.node_ids is None else edges.node_ids
    keys, values = read_ids(keys, f"ids of {what}"), _numbers(values_by_key, what)
    if not len(keys) or keys.dtype.kind != ids.dtype.kind:
        kind = "text" if keys.dtype.kind == "U" else "whole numbers"
        raise DataError(
            f"{what} are given for {f'ids that are {kind}' if len(keys) else 'no ids'}, and the nodes have ids such "
            f"as {ids[0].item()!r}. Use the ids that src and dst have."
        )
    order = np.argsort(keys)
    twice = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    if len(twice):
        raise DataError(f"{what} are given twice for {keys[order][twice[0]].item()!r}. Give every node one row.")
    positions = np.searchsorted(keys, ids, sorter=order).clip(max=len(keys) - 1)
    missing = np.flatnonzero(keys[order][positions] != ids)
    if len(missing):
        raise DataError(
            f"{what} are missing for {len(missing)} of {len(ids)} nodes, the first of them "
            f"{ids[missing[0]].item()!r}. Give a value for every node that an edge has."
        )
    return np.asarray(values[order][positions])


def _name(edges: Intervals, vertex: int) -> str:
    return repr((np.arange(edges.num_nodes) if edges.node_ids is None else edges.node_ids)[vertex].item())
