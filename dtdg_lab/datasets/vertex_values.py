"""Features and classes that a user gives for vertices: as arrays in the order of their ids, or by id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.intervals import IntervalEdges

_MOST_CLASSES = int(np.iinfo(np.int16).max)


def vertex_features(given: ArrayLike | Mapping[Any, ArrayLike], edges: IntervalEdges) -> NDArray[np.float32]:
    """Features of N vertices, shape (N, F), or (B, N, F) where they change from base interval to base interval.

    Args:
        given: an array of that shape in the order of the vertices, or a mapping from their ids to F numbers each.
        edges: the edges, which say how many vertices and intervals there are, and what the ids are.

    Raises:
        DataError: another shape, or a value that is no finite number.
    """
    array = _numbers(_by_id(given, edges, "features") if isinstance(given, Mapping) else given, "features")
    wanted = ((edges.num_nodes,), (edges.num_intervals, edges.num_nodes))
    if array.ndim not in (2, 3) or array.shape[:-1] not in wanted or not array.shape[-1]:
        raise DataError(
            f"features have shape {array.shape}; ({edges.num_nodes}, F) is needed, one row for each vertex in the "
            f"order of the sorted ids, or ({edges.num_intervals}, {edges.num_nodes}, F), one such table for each base "
            "interval, with F at least 1. Vertices are those that an edge has: give a mapping from ids where there are "
            "more."
        )
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused
        array = array.astype(np.float32)
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        at = tuple(int(place) for place in wrong[0])
        raise DataError(
            f"features{list(at)} (vertex {_name(edges, at[-2])}) is {array[at]}; finite numbers are needed. Replace "
            "missing values before."
        )
    return give_up(array)


def class_labels(given: ArrayLike | Mapping[Any, int], edges: IntervalEdges) -> NDArray[np.int16]:
    """Classes of N vertices, shape (N,), or (B, N) where they change; -1 is unknown.

    Args:
        given: an array of that shape in the order of the vertices, or a mapping from their ids to a class each.
        edges: the edges, which say how many vertices and intervals there are, and what the ids are.

    Raises:
        DataError: another shape, or a value that is no whole number from -1 to 32767.
    """
    array = _numbers(_by_id(given, edges, "labels") if isinstance(given, Mapping) else given, "labels")
    if array.shape not in ((edges.num_nodes,), (edges.num_intervals, edges.num_nodes)):
        raise DataError(
            f"labels have shape {array.shape}; ({edges.num_nodes},) is needed, one class for each vertex in the order "
            f"of the sorted ids, or ({edges.num_intervals}, {edges.num_nodes}), one row for each base interval."
        )
    wrong = np.argwhere(~((array >= -1) & (array <= _MOST_CLASSES) & (array == np.floor(array))))
    if len(wrong):
        at = tuple(int(place) for place in wrong[0])
        raise DataError(
            f"labels{list(at)} (vertex {_name(edges, at[-1])}) is {array[at]}; whole numbers from 0 to {_MOST_CLASSES} "
            "are needed, or -1 where the class is unknown. Number classes with np.unique(..., return_inverse=True)."
        )
    return give_up(array.astype(np.int16))


def _numbers(given: Any, what: str) -> NDArray[Any]:
    try:
        array = np.asarray(given)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{what} are no table of numbers: {error}. Give every vertex as many.") from error
    if array.dtype.kind not in "iufb":
        raise DataError(f"{what} have type {array.dtype}; numbers are needed.")
    return array


def _by_id(given: Mapping[Any, Any], edges: IntervalEdges, what: str) -> NDArray[Any]:
    """The values of a mapping in the order of the vertices; ids that no edge has are left out."""
    ids = np.arange(edges.num_nodes) if edges.node_ids is None else edges.node_ids
    keys = np.asarray(list(given.keys()))
    values = _numbers(list(given.values()), what)
    if not len(keys) or (keys.dtype.kind in "iu") != (ids.dtype.kind in "iu") or keys.dtype.kind not in "iuU":
        raise DataError(
            f"{what} are given for ids of type {keys.dtype}, and the vertices have ids of type {ids.dtype}, such as "
            f"{ids[0]!r}. Use the ids that src and dst have."
        )
    order = np.argsort(keys)
    place = np.searchsorted(keys, ids, sorter=order).clip(max=len(keys) - 1)
    missing = np.flatnonzero(keys[order][place] != ids)
    if len(missing):
        raise DataError(
            f"{what} are missing for {len(missing)} of {len(ids)} vertices, the first of them {ids[missing[0]]!r}. "
            "Give a value for every vertex that an edge has."
        )
    return np.asarray(values[order][place])


def _name(edges: IntervalEdges, vertex: int) -> str:
    return repr((np.arange(edges.num_nodes) if edges.node_ids is None else edges.node_ids)[vertex].item())
