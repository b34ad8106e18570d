"""The user's own edges as a dynamic graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Never

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.core.options import option
from dtdg_lab.datasets.arguments import STRICT_LABEL, check_one_way, graph_name, known_only, nanoseconds
from dtdg_lab.datasets.sequences import renamed
from dtdg_lab.datasets.vertex_values import class_labels, never_change, parts_of_labelled, vertex_features
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.cutting import cut_edges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.edge_vectors import read_times
from dtdg_lab.graphs.intervals import IntervalEdges


def from_edges(  # noqa: PLR0917 (what people give in this order)
    src: ArrayLike,
    dst: ArrayLike,
    time: ArrayLike,
    weight: ArrayLike | None = None,
    features: str | ArrayLike | Mapping[Any, ArrayLike] | None = None,
    labels: ArrayLike | Mapping[Any, int] | None = None,
    *,
    cut: int = 0,
    cut_by: str = "time",
    interval: float | timedelta = 0.0,
    drop_first: bool = False,
    drop_partial: bool = False,
    edge_life: int = 1,
    smoothing_window: int = 1,
    min_edges: int = 0,
    strict_label: bool = False,
    name: str = "mine",
    **unknown: Never,
) -> DynamicGraph:
    """A dynamic graph from E edges with times, for ``RunConfig(dataset=graph)``.

    Vertices are numbered over all time in the order of their ids, which stay in ``graph.node_ids``: N of them, those
    that an edge has. B base intervals result from ``cut`` or ``interval``, one of which is needed.

    Args:
        src: sources, shape (E,): text, or whole numbers of any size below 2^63, negative ones too; arrays, lists,
            tensors or columns of a table.
        dst: targets, shape (E,).
        time: times, shape (E,), in any order: numbers in any unit, or datetimes, which count in nanoseconds.
        weight: weights, shape (E,), finite and at least 0; those of equal edges in a window are summed.
        features: what vertices are described by. A name (``log_degrees``, the default; ``degrees``,
            ``one_hot_degree``, ``constant``); or numbers, shape (N, F) in the order of the sorted ids, or (B, N, F)
            where they change from interval to interval; or a mapping from every id to its F numbers, such as a data
            frame with the ids as its index, in which ids without an edge are left out.
        labels: classes to predict, shape (N,) or (B, N), whole numbers from 0, -1 where unknown; or a mapping from
            ids. Where no vertex ever changes its class, 60 % of the labelled vertices train, 20 % validate and 20 %
            test, drawn once and for all: else what is tested would have been told.
        cut: base intervals, equal as ``cut_by`` says; 0 takes ``interval``.
        cut_by: what they share equally: ``time`` or ``edges``.
        interval: length of a base interval, in place of ``cut``: in the unit of ``time``, a timedelta where these are
            datetimes, or a number of edges. At most 100,000 intervals result.
        drop_first: leave out the edges of the first distinct time.
        drop_partial: leave out the edges of a last interval that is not full, which ``interval`` may leave.
        edge_life: base intervals an edge lives; ``B - edge_life`` labelled snapshots result.
        smoothing_window: snapshots that the M-transform averages; 1 is none.
        min_edges: snapshots with fewer edges are left out.
        strict_label: count only edges of the newest base interval in the label.
        name: what runs and reports call the graph.
        **unknown: refused, with the closest match.

    Raises:
        DataError: vectors do not fit together or hold values of the wrong kind, entries are missing or masked, or
            there are too few intervals, or too many.
        ConfigError: an option is out of its bounds, or both ``cut`` and ``interval`` are given.
    """
    known_only(unknown, from_edges, from_edges)
    edges = cut_own(
        src,
        dst,
        time,
        weight,
        cut=cut,
        cut_by=cut_by,
        interval=interval,
        drop_first=drop_first,
        drop_partial=drop_partial,
    )
    return built(
        edges, features, labels, edge_life=edge_life, smoothing_window=smoothing_window, min_edges=min_edges,
        strict_label=strict_label, name=name, source=f"given in memory ({len(edges.src):,} rows)",
    )  # fmt: skip


def cut_own(
    src: ArrayLike,
    dst: ArrayLike,
    time: ArrayLike,
    weight: ArrayLike | None,
    *,
    node_ids: Any = None,
    cut: int = 0,
    cut_by: str = "time",
    interval: float | timedelta = 0.0,
    drop_first: bool = False,
    drop_partial: bool = False,
) -> IntervalEdges:
    """The edges in base intervals; see :func:`from_edges`. Where ``node_ids`` is given, ids are positions in it."""
    given = (("cut", cut), ("cut_by", cut_by), ("drop_first", drop_first), ("drop_partial", drop_partial))
    checked = {key: option(key).check(value) for key, value in given}
    times = read_times(time)
    if isinstance(interval, (timedelta, np.timedelta64)):
        if times.dtype.kind != "M" or cut_by != "time":
            has = "are cut by edges" if times.dtype.kind == "M" else "have times that are numbers"
            raise DataError(
                f"interval={shortened(interval)} is a length of time, and the edges {has}: give a number instead, in "
                "the unit of time or of edges."
            )
        interval = nanoseconds(interval)  # the unit that datetimes become
    window = replace(option("interval"), high=None).check(interval)
    check_one_way(checked["cut"], window)
    if not checked["cut"] and not window:
        raise DataError(
            "cut=0 and interval=0: give cut=n, the number of base intervals, or interval=x, the length of each in the "
            "unit of time."
        )
    return renamed(cut_edges(src, dst, times, weight=weight, window=window or None, **checked), node_ids)


def built(
    edges: IntervalEdges,
    features: str | ArrayLike | Mapping[Any, ArrayLike] | None,
    labels: ArrayLike | Mapping[Any, int] | None,
    *,
    name: str = "mine",
    source: str,
    edge_life: int = 1,
    smoothing_window: int = 1,
    min_edges: int = 0,
    strict_label: bool = False,
) -> DynamicGraph:
    """The dynamic graph of base intervals and what is given for their vertices; see :func:`from_edges`."""
    name, strict_label = graph_name(name), STRICT_LABEL.check(strict_label)
    given: dict[str, Any] = {}
    if features is not None and not isinstance(features, str):
        given["features"] = vertex_features(features, edges)
    if labels is not None:
        given["classes"] = class_labels(labels, edges)
        if never_change(given["classes"]):
            given["vertex_split"] = parts_of_labelled(given["classes"])
    named = features if isinstance(features, str) else "given" if "features" in given else "log_degrees"
    options: dict[str, Any] = {
        "edge_life": edge_life, "smoothing_window": smoothing_window, "min_edges": min_edges, "features": named,
    }  # fmt: skip
    return build_graph(
        edges.stream(**given), name=name, source=source, strict_label=strict_label,
        **{key: option(key).check(value) for key, value in options.items()},
    )  # fmt: skip
