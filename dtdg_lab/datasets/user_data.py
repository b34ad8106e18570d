"""Build dynamic graphs from the user's own edges in memory, with times or without."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path
from typing import Any, Never

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.config.options import Option, option
from dtdg_lab.core.errors import ConfigError, DataError, UnknownNameError, shortened
from dtdg_lab.core.units import as_path
from dtdg_lab.datasets.node_values import class_labels, never_change, parts_of_labelled, vertex_features
from dtdg_lab.datasets.sequences import IntervalLength, check_one_way, read_interval, renamed
from dtdg_lab.datasets.tables import warn_of_two_kinds
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.calendar import Calendar
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.edge_list import as_vector, read_ids
from dtdg_lab.graphs.edge_times import parse_times, read_times, warn_of_dates, zone_of
from dtdg_lab.graphs.interval_files import EdgePiece, EdgePieces, IntervalFiles, TimeRange
from dtdg_lab.graphs.intervals import IntervalEdges, Intervals, cut_edges
from dtdg_lab.graphs.pieces import slices
from dtdg_lab.graphs.storage import Draft, check_free

# Checks of the arguments of functions that load graphs, where these are no options of a run.


STRICT_LABEL = Option(
    name="strict_label",
    owner="datasets",
    kind=bool,
    default=False,
    meaning="Count only edges of the newest base interval in the label.",
)
BIPARTITE = Option(
    name="bipartite",
    owner="datasets",
    kind=bool,
    default=False,
    meaning="Whether sources and targets are nodes of two kinds.",
)
Nodes = ArrayLike | tuple[ArrayLike, ArrayLike] | int | None
_NAME = Option(name="name", owner="datasets", kind=str, default="mine", meaning="What runs and reports call the graph.")


def known_only(
    arguments: Mapping[str, Any], function: Callable[..., Any], passed_to: Callable[..., Any], but: Iterable[str] = ()
) -> None:
    """Refuse keyword arguments that the function does not have, with a message that names the function.

    Args:
        arguments: the keyword arguments that are no parameters of ``function``.
        function: the called function.
        passed_to: the function whose keyword-only parameters are allowed too.
        but: exceptions among these parameters.

    Raises:
        UnknownNameError: an argument is unknown; the message suggests the closest match.
    """
    parameters, passed_parameters = inspect.signature(function).parameters, inspect.signature(passed_to).parameters
    own_names = {one.name for one in parameters.values() if one.kind is not one.VAR_KEYWORD}
    passed_names = {one.name for one in passed_parameters.values() if one.kind is one.KEYWORD_ONLY} - set(but)
    for name in arguments:
        if name not in passed_names:
            raise UnknownNameError(f"argument of {function.__name__}()", name, own_names | passed_names)


def check_folder(folder: Any) -> None:
    """Refuse a folder that is not empty, before edges are read, cut or built.

    Raises:
        DataError: it is no path, or is not empty; the message names an entry.
    """
    if folder is not None:
        check_free(as_path(folder, "folder"))


def different_columns(columns: Mapping[str, Any]) -> None:
    """Refuse one column in two roles, such as a weight that is the time.

    Args:
        columns: role -> column.

    Raises:
        DataError: two roles have the same column; the message names both.
    """
    roles: dict[Any, str] = {}
    for role, column in columns.items():
        if column in roles:
            raise DataError(
                f"{roles[column]} and {role} are both column {column!r}: give each its own, by src=, dst=, time= and "
                "weight=."
            )
        roles[column] = role


# The user's own edges as a dynamic graph.


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
    interval: IntervalLength = 0.0,
    drop_first: bool = False,
    drop_partial: bool = False,
    time_format: str | None = None,
    bipartite: bool | None = None,
    nodes: Nodes = None,
    edge_life: int = 1,
    smoothing_window: int = 1,
    min_edges: int = 0,
    strict_label: bool = False,
    name: str = "mine",
    folder: str | Path | None = None,
    **unknown: Never,
) -> DynamicGraph:
    """Return a dynamic graph of E edges with times, for ``RunConfig(dataset=graph)``.

    The N nodes are those of the edges, in the order of their ids, or those of ``nodes``, in its order.
    ``graph.node_ids`` has their ids. ``cut`` or ``interval`` sets the B base intervals; one of the two is needed.

    Args:
        src: sources, shape (E,): text, or whole numbers of any size below 2^63, negative ones too; arrays, lists,
            tensors or columns of a table. Floats that are all whole are whole numbers. Words for missing values, such
            as ``NA``, are refused.
        dst: targets, shape (E,).
        time: times, shape (E,), in any order: numbers in any unit, or datetimes, which count in nanoseconds.
        weight: weights, shape (E,), finite and at least 0; those of equal edges in a window are summed.
        features: features of the nodes. A name (``log_degrees``, the default; ``degrees``,
            ``one_hot_degree``, ``constant``); or numbers, shape (N, F) in the order of ``graph.node_ids``, or (B, N, F)
            where they change from interval to interval; or a mapping from every id to its F numbers, such as a data
            frame with the ids as its index, in which ids without an edge are left out.
        labels: classes to predict, shape (N,) or (B, N), whole numbers from 0, -1 where unknown; or a mapping from
            ids. Where no node ever changes its class, 60 % of the labelled nodes train, 20 % validate and 20 %
            test, drawn once: otherwise test labels would leak into training.
        cut: number of base intervals, equal by ``cut_by``; 0 takes ``interval``.
        cut_by: the quantity divided equally among the intervals: ``time`` or ``edges``.
        interval: length of a base interval, in place of ``cut``: in the unit of ``time``, or a number of edges. Where
            times are datetimes, it may be a timedelta or a text such as ``"6h"``, ``"1d"`` or ``"1w"``, counted from
            the first time on; or a pandas offset such as ``"D"``, ``"W"`` or ``"MS"``: days, weeks or months of the
            calendar, from midnight to midnight in the time zone of ``time``. At most 100,000 intervals result. A time
            less than a millionth of an interval before a boundary counts as on it.
        drop_first: drop the edges of the first distinct time.
        drop_partial: drop the edges of a last interval that is not full, which ``interval`` may leave.
        time_format: format of the times: ``D``, ``s``, ``ms``, ``us`` or ``ns`` for numbers since 1970, or a format
            such as ``"%d.%m.%Y"`` or ``"%Y%m%d"``. None takes them unchanged.
        bipartite: sources and targets are nodes of two kinds, such as users and items that both count from 0. Ids of
            ``dst`` that are whole numbers are then shifted by the largest of ``src`` plus 1, others are called
            ``dst:<id>``; ``graph.node_ids`` has both, sources first. None is False, with a warning where the ids look
            bipartite.
        nodes: the ids of all nodes, in the order of features and labels, including nodes without edges. A number N
            stands for 0 .. N - 1. With ``bipartite``, a pair: sources and targets.
        edge_life: base intervals an edge lives; ``B - edge_life`` labelled snapshots result.
        smoothing_window: snapshots that the M-transform averages; 1 is none.
        min_edges: snapshots with fewer edges are dropped.
        strict_label: count only edges of the newest base interval in the label.
        name: the graph's name in runs and reports.
        folder: a new or an empty folder to write the graph into, a snapshot at a time; its arrays are then mapped from
            there. Memory holds the given edges, about 20 more bytes for each, and two snapshots; but only some million
            edges and two snapshots where the vectors are mapped from files (``np.load(..., mmap_mode="r")``), all are
            whole numbers or datetimes, ``nodes`` is a number, and edges are cut by time, without ``drop_first`` or
            ``drop_partial``. None builds the graph in memory.
        **unknown: refused, with the closest match.

    Raises:
        DataError: vectors do not fit together or hold values of the wrong kind; entries are missing or masked; there
            are too few or too many intervals; or the folder is not empty or cannot be written.
        ConfigError: an option is out of its bounds, or both ``cut`` and ``interval`` are given.
    """
    known_only(unknown, from_edges, from_edges)
    check_folder(folder)
    return from_vectors(
        src,
        dst,
        time,
        weight,
        source="",
        features=features,
        labels=labels,
        cut=cut,
        cut_by=cut_by,
        interval=interval,
        drop_first=drop_first,
        drop_partial=drop_partial,
        time_format=time_format,
        bipartite=bipartite,
        nodes=nodes,
        edge_life=edge_life,
        smoothing_window=smoothing_window,
        min_edges=min_edges,
        strict_label=strict_label,
        name=name,
        folder=folder,
    )


# options of cutting edges and numbering nodes, which given snapshots do not need
CUTTING = ("cut", "cut_by", "interval", "drop_first", "drop_partial", "time_format", "bipartite", "nodes")


def from_vectors(
    src: ArrayLike,
    dst: ArrayLike,
    time: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    source: str,
    features: Any,
    labels: Any,
    columns: tuple[str, str] = ("src", "dst"),
    node_ids: Any = None,
    **settings: Any,
) -> DynamicGraph:
    """Return the dynamic graph of edges; see :func:`from_edges`, and :func:`cut_own` for ``node_ids``.

    ``source`` is the origin of the edges; empty for edges in memory. ``settings`` are the keyword arguments of
    :func:`from_edges`.
    """
    vectors: dict[str, Any] = {"src": src, "dst": dst, "time": time} | ({} if weight is None else {"weight": weight})
    if node_ids is None and fits_pieces(settings) and _are_mapped(vectors):

        def pieces() -> Iterator[EdgePiece]:
            for piece in slices(len(vectors["src"])):
                yield EdgePiece(**{role: vector[piece] for role, vector in vectors.items()}, first=piece.start)

        return from_pieces(pieces, columns=columns, source=source, features=features, labels=labels, **settings)
    for_cutting = {key: settings.pop(key) for key in CUTTING if key in settings}
    edges = cut_own(src, dst, time, weight, node_ids=node_ids, columns=columns, **for_cutting)
    return built(edges, features, labels, source=source or f"given in memory ({len(edges.src):,} rows)", **settings)


def _are_mapped(vectors: Mapping[str, Any]) -> bool:
    """Return whether the vectors are mapped from files, equally long, and exact: times and ids as whole numbers."""
    if not all(isinstance(vector, np.memmap) and vector.ndim == 1 for vector in vectors.values()):
        return False
    kinds = {role: vector.dtype.kind for role, vector in vectors.items()}
    lengths = {len(vector) for vector in vectors.values()}
    return (
        kinds["src"] in "iu"
        and kinds["dst"] in "iu"
        and kinds["time"] in "iuM"
        and len(lengths) == 1
        and 0 not in lengths
    )


def fits_pieces(settings: Mapping[str, Any]) -> bool:
    """Return whether edges on disk can be cut in pieces with these settings of :func:`from_edges`."""
    nodes = settings.get("nodes")
    is_number = isinstance(nodes, int | np.integer) and not isinstance(nodes, bool)
    needs_all = (
        settings.get("cut_by", "time") != "time"
        or any(settings.get(name, False) is not False for name in ("drop_first", "drop_partial"))
        or settings.get("time_format") is not None
        or not (settings.get("bipartite") is None or settings["bipartite"] is False)
    )
    return settings.get("folder") is not None and is_number and not needs_all


def from_pieces(
    pieces: EdgePieces,
    *,
    columns: tuple[str, str],
    source: str,
    features: Any,
    labels: Any,
    folder: str | Path,
    nodes: int,
    cut: int = 0,
    interval: IntervalLength = 0.0,
    bipartite: bool | None = None,
    **settings: Any,
) -> DynamicGraph:
    """Return the dynamic graph of edges on disk, a piece at a time; see :func:`from_vectors` and :func:`fits_pieces`.

    Warnings are of the first piece.
    """
    times = TimeRange(pieces)
    first = next(pieces())
    sample = times.sample.view("datetime64[ns]") if times.are_dates else times.sample
    cut, window = _way(cut, "time", interval, sample, zone_of(first.time))
    warn_of_dates(read_times(first.time))
    if bipartite is None:
        warn_of_two_kinds(read_ids(first.src, "src"), read_ids(first.dst, "dst"), columns)
    settings = {key: value for key, value in settings.items() if key not in CUTTING}
    target = as_path(folder, "folder")
    with Draft(target.with_name(f"{target.name}.edges")) as draft:
        edges = IntervalFiles(pieces, draft, nodes=nodes, times=times, cut=cut, window=window)
        source = source or f"mapped from files ({edges.rows:,} rows)"
        return built(edges, features, labels, source=source, folder=target, **settings)


def cut_own(
    src: ArrayLike,
    dst: ArrayLike,
    time: ArrayLike,
    weight: ArrayLike | None,
    *,
    node_ids: Any = None,
    columns: tuple[str, str] = ("src", "dst"),
    cut: int = 0,
    cut_by: str = "time",
    interval: IntervalLength = 0.0,
    drop_first: bool = False,
    drop_partial: bool = False,
    time_format: str | None = None,
    bipartite: bool | None = None,
    nodes: Nodes = None,
) -> IntervalEdges:
    """Return the edges in base intervals; see :func:`from_edges`.

    Where ``node_ids`` is given, shape (N,), ``src`` and ``dst`` are positions in it. ``columns`` are the names of the
    columns of sources and targets; they may reveal two kinds of nodes.
    """
    settings = (("cut_by", cut_by), ("drop_first", drop_first), ("drop_partial", drop_partial))
    checked = {key: option(key).check(value) for key, value in settings}
    two_kinds = bipartite is not None and BIPARTITE.check(bipartite)
    parsed = parse_times(time, time_format)
    times = read_times(parsed)
    checked["cut"], window = _way(cut, checked["cut_by"], interval, times, zone_of(parsed))
    warn_of_dates(times)
    if node_ids is not None:
        nodes, two_kinds = len(node_ids), False
    elif bipartite is None:
        src, dst = read_ids(src, "src"), read_ids(dst, "dst")
        warn_of_two_kinds(src, dst, columns)
    edges = cut_edges(src, dst, times, weight=weight, window=window, bipartite=two_kinds, nodes=nodes, **checked)
    return renamed(edges, node_ids)


def _way(
    cut: int, cut_by: str, interval: IntervalLength, times: NDArray[Any], zone: tzinfo | None
) -> tuple[int, float | Calendar | None]:
    """Return the number of base intervals, or 0 and their length.

    Raises:
        DataError: neither is given.
        ConfigError: both are given, or one is out of its bounds.
    """
    cut = option("cut").check(cut)
    window = read_interval(interval, times, cut_by, zone)
    check_one_way(cut, window)
    if not cut and not window:
        raise DataError(
            "cut=0 and interval=0: give cut=n, the number of base intervals, or interval=x, the length of each in the "
            "unit of time."
        )
    return cut, window or None


def built(
    edges: Intervals,
    features: str | ArrayLike | Mapping[Any, ArrayLike] | None,
    labels: ArrayLike | Mapping[Any, int] | None,
    *,
    name: str = "mine",
    source: str,
    edge_life: int = 1,
    smoothing_window: int = 1,
    min_edges: int = 0,
    strict_label: bool = False,
    folder: str | Path | None = None,
) -> DynamicGraph:
    """Return the dynamic graph of base intervals with given features and labels; see :func:`from_edges`."""
    name, strict_label = _NAME.check(name), STRICT_LABEL.check(strict_label)
    if not name.strip():
        raise ConfigError(f"name={shortened(name)} is empty: give the graph a name, or leave it out.")
    fields: dict[str, Any] = {}
    if features is not None and not isinstance(features, str):
        fields["features"] = vertex_features(features, edges)
    if labels is not None:
        fields["classes"] = class_labels(labels, edges)
        if never_change(fields["classes"]):
            fields["vertex_split"] = parts_of_labelled(fields["classes"])
    named = features if isinstance(features, str) else "given" if "features" in fields else "log_degrees"
    options: dict[str, Any] = {
        "edge_life": edge_life,
        "smoothing_window": smoothing_window,
        "min_edges": min_edges,
        "features": named,
    }
    return build_graph(
        edges.stream(**fields),
        name=name,
        source=source,
        strict_label=strict_label,
        into=None if folder is None else as_path(folder, "folder"),
        **{key: option(key).check(value) for key, value in options.items()},
    )


# The user's own graph without times, as a sequence of equal snapshots.


LEAST = 8  # snapshots: with fewer, the usual protocol leaves a split empty
_BUILT = 3  # intervals that are built; the first snapshot is used


def from_static(
    src: ArrayLike,
    dst: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    features: str | ArrayLike | Mapping[Any, ArrayLike] | None = None,
    labels: ArrayLike | Mapping[Any, int] | None = None,
    snapshots: int = LEAST,
    bipartite: bool | None = None,
    nodes: Nodes = None,
    name: str = "mine",
) -> DynamicGraph:
    """Return a graph that never changes, from E edges, for ``RunConfig(dataset=graph)``: T equal snapshots, held once.

    With ``labels``, 60 % of the labelled nodes train, 20 % validate and 20 % test; each split of the sequence has
    its own nodes. Mini-batches (:mod:`dtdg_lab.engine.minibatch.sampled_batches`) treat such snapshots as one.

    Args:
        src: sources, shape (E,).
        dst: targets, shape (E,).
        weight: weights, shape (E,).
        features: a name, or numbers (N, F) in the order of ``graph.node_ids``, or a mapping from ids.
        labels: classes, shape (N,), -1 where unknown, or a mapping from ids.
        snapshots: T.
        bipartite: sources and targets are nodes of two kinds, as in :func:`from_edges`.
        nodes: the ids of all nodes, as in :func:`from_edges`.
        name: the graph's name in runs and reports.

    Raises:
        DataError: vectors do not fit together, hold values of the wrong kind, or there are too few snapshots.
    """
    if snapshots < LEAST:
        raise DataError(
            f"snapshots={snapshots}; at least {LEAST} are needed, so that each split of a protocol has some."
        )
    sources, targets = as_vector(src, "src", "ids of nodes"), as_vector(dst, "dst", "ids of nodes")
    times = np.repeat(np.arange(_BUILT), len(sources))
    repeated = None if weight is None else np.tile(as_vector(weight, "weight", "numbers"), _BUILT)
    edges = cut_own(
        np.tile(sources, _BUILT),
        np.tile(targets, _BUILT),
        times,
        repeated,
        interval=1.0,
        bipartite=bipartite,
        nodes=nodes,
    )
    once = built(edges, features, labels, name=name, source=f"given in memory ({len(sources):,} rows, without times)")
    first = once.snapshots[0]
    return replace(
        once,
        snapshots=(first,) * snapshots,
        features=once.features[0],
        targets=np.tile(once.targets[0], (snapshots, 1)),
        persistence=np.tile(once.persistence[0], (snapshots, 1)),
        following=(first,) * snapshots,
        classes=None if once.classes is None else once.classes[0],
        counts=None,
    )
