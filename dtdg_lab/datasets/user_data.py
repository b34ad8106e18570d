"""Dynamic graphs from the user's own edges: arrays, CSV, Parquet, pandas, and static graphs."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Never

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import ConfigError, DataError, UnknownNameError, shortened
from dtdg_lab.core.options import Option, option
from dtdg_lab.core.rng import generator
from dtdg_lab.core.units import as_path
from dtdg_lab.datasets.archives import content
from dtdg_lab.datasets.formats import text as txt
from dtdg_lab.datasets.generators.base import random_parts
from dtdg_lab.datasets.sequences import renamed
from dtdg_lab.datasets.tables import SPLIT_NONE, SPLIT_TRAIN
from dtdg_lab.graphs.build import build_graph
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.edge_list import as_array, as_vector, floats_of_objects, read_ids, read_times, wrong_type
from dtdg_lab.graphs.intervals import IntervalEdges, cut_edges
from dtdg_lab.graphs.snapshot import give_up
from dtdg_lab.graphs.storage import check_free

# Arguments of the functions that load graphs, where they are no options of a run; and what is wrong with them.


STRICT_LABEL = Option(
    name="strict_label",
    owner="datasets",
    kind=bool,
    default=False,
    meaning="Count only edges of the newest base interval in the label.",
)
_NAME = Option(name="name", owner="datasets", kind=str, default="mine", meaning="What runs and reports call the graph.")
_NO_LENGTH = ("Y", "M", "generic")  # of numpy's units


def check_one_way(cut: int, interval: float) -> None:
    """Refuse a number of intervals and a length of them at once: one of the two would be ignored.

    Raises:
        ConfigError: both are given.
    """
    if cut and interval:
        raise ConfigError(
            f"cut={cut} and interval={interval:g} are both given: cut is how many intervals there are, interval how "
            "long each is. Give one, and 0 for the other."
        )


def nanoseconds(length: timedelta | np.timedelta64) -> float:
    """A length of time in nanoseconds.

    Raises:
        DataError: it is in months or years, which have no fixed length, or in no unit.
    """
    if isinstance(length, timedelta):
        return length / timedelta(microseconds=1) * 1000
    unit, step = np.datetime_data(length.dtype)
    if unit in _NO_LENGTH or np.isnat(length):
        raise DataError(f"interval={length!r} has no fixed length; give one in days, hours or shorter units.")
    one = np.array(1, f"timedelta64[{unit}]")
    return int(length.astype(np.int64)) * step * float(one / np.timedelta64(1, "ns"))


def known_only(
    given: Mapping[str, Any], function: Callable[..., Any], passed_to: Callable[..., Any], but: Iterable[str] = ()
) -> None:
    """Refuse keyword arguments that the function does not have, with a message that names the function.

    Args:
        given: the keyword arguments beside the parameters of ``function``.
        function: what they called.
        passed_to: the function whose keyword-only parameters are taken too.
        but: those of them that are not.

    Raises:
        UnknownNameError: the closest match is suggested.
    """
    own, others = inspect.signature(function).parameters, inspect.signature(passed_to).parameters
    known = {one.name for one in own.values() if one.kind is not one.VAR_KEYWORD}
    taken = {one.name for one in others.values() if one.kind is one.KEYWORD_ONLY} - set(but)
    for name in given:
        if name not in taken:
            raise UnknownNameError(f"argument of {function.__name__}()", name, known | taken)


def check_folder(folder: Any) -> None:
    """Refuse a folder in which something lies, before edges are read, cut or built.

    Raises:
        DataError: it is no path, or something lies there; the message names it.
    """
    if folder is not None:
        check_free(as_path(folder, "folder"))


def check_column(role: str, column: Any) -> None:
    """Refuse what is no column of a text file.

    Raises:
        DataError: it is neither a whole number nor text.
    """
    if isinstance(column, bool) or not isinstance(column, (int, str, np.integer)):
        raise DataError(
            f"{role}={shortened(column)} is of type {type(column).__name__}; a column is its number, from 0, or its "
            "name in the header."
        )


def different_columns(columns: Mapping[str, Any]) -> None:
    """Refuse one column in two roles: a weight that is the time, or sources that are the targets, is a slip.

    Args:
        columns: role -> column.

    Raises:
        DataError: naming both roles.
    """
    seen: dict[Any, str] = {}
    for role, column in columns.items():
        if column in seen:
            raise DataError(
                f"{seen[column]} and {role} are both column {column!r}: give each its own, by src=, dst=, time= and "
                "weight=."
            )
        seen[column] = role


# Features and classes that a user gives for nodes: as arrays in the order of their ids, or by id.


_NEEDED = {"features": "numbers", "labels": "classes as whole numbers, as of np.unique(x, return_inverse=True)[1],"}
_MOST_CLASSES = int(np.iinfo(np.int16).max)


def vertex_features(given: ArrayLike | Mapping[Any, ArrayLike], edges: IntervalEdges) -> NDArray[np.float32]:
    """Features of N nodes, shape (N, F), or (B, N, F) where they change from base interval to base interval.

    Args:
        given: an array of that shape in the order of the nodes; or a mapping from their ids to F numbers each, such
            as a data frame with the ids as its index.
        edges: the edges, which say how many nodes and intervals there are, and what the ids are.

    Raises:
        DataError: another shape, or a value that is no finite number.
    """
    array = _in_order(given, edges, "features")
    wanted = ((edges.num_nodes,), (edges.num_intervals, edges.num_nodes))
    if array.ndim not in (2, 3) or array.shape[:-1] not in wanted or not array.shape[-1]:
        raise DataError(
            f"features have shape {array.shape}; ({edges.num_nodes}, F) is needed, one row for each node in the "
            f"order of the sorted ids, or ({edges.num_intervals}, {edges.num_nodes}, F), one such table for each base "
            "interval, with F at least 1. Nodes are those that an edge has: give a mapping from ids where there are "
            "more."
        )
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused
        array = array.astype(np.float32)
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        at = tuple(int(place) for place in wrong[0])
        raise DataError(
            f"features{list(at)} (node {_name(edges, at[-2])}) is {array[at]}; finite numbers are needed. Replace "
            "missing values before."
        )
    return give_up(array)


def class_labels(given: ArrayLike | Mapping[Any, int], edges: IntervalEdges) -> NDArray[np.int16]:
    """Classes of N nodes, shape (N,), or (B, N) where they change; -1 is unknown.

    Args:
        given: an array of that shape in the order of the nodes; or a mapping from their ids to a class each, such
            as a column of a data frame with the ids as its index.
        edges: the edges, which say how many nodes and intervals there are, and what the ids are.

    Raises:
        DataError: another shape, a value that is no whole number from -1 to 32767, or no class at all.
    """
    array = _in_order(given, edges, "labels")
    if array.shape not in ((edges.num_nodes,), (edges.num_intervals, edges.num_nodes)):
        raise DataError(
            f"labels have shape {array.shape}; ({edges.num_nodes},) is needed, one class for each node in the order "
            f"of the sorted ids, or ({edges.num_intervals}, {edges.num_nodes}), one row for each base interval."
        )
    wrong = np.argwhere(~((array >= -1) & (array <= _MOST_CLASSES) & (array == np.floor(array))))
    if len(wrong):
        at = tuple(int(place) for place in wrong[0])
        raise DataError(
            f"labels{list(at)} (node {_name(edges, at[-1])}) is {array[at]}; whole numbers from 0 to {_MOST_CLASSES} "
            "are needed, or -1 where the class is unknown. Number classes with np.unique(..., return_inverse=True)."
        )
    if not (array >= 0).any():
        raise DataError("labels are all -1, unknown: there is nothing to classify. Give classes from 0, or no labels.")
    return give_up(array.astype(np.int16))


def never_change(classes: NDArray[np.int16]) -> bool:
    """Whether every node has one class at most, for classes of shape (N,) or (B, N)."""
    if classes.ndim == 1:
        return True
    known = np.where(classes < 0, np.iinfo(np.int16).max, classes).min(axis=0)
    return bool(((classes < 0) | (classes == known)).all())


def parts_of_labelled(classes: NDArray[np.int16]) -> NDArray[np.int8]:
    """The split of each node that has a class, shape (N,), the same for every seed of a run; -1 where it has none.

    Of fewer than three, all train: there is nothing to test on.
    """
    labelled = np.flatnonzero((classes >= 0).reshape(-1, classes.shape[-1]).any(axis=0))
    parts = np.full(classes.shape[-1], SPLIT_NONE, dtype=np.int8)
    draws = generator(0, "own/vertex_split")
    parts[labelled] = random_parts(draws, len(labelled)) if len(labelled) > 2 else SPLIT_TRAIN
    return give_up(parts)


def _numbers(given: Any, what: str) -> NDArray[Any]:
    needed = _NEEDED[what]
    array = as_array(given, what, needed)
    if array.dtype.kind == "O" and set(map(type, array.flat)) <= {int, float, bool}:
        return floats_of_objects(array, what)
    if array.dtype.kind not in "iufb":
        raise wrong_type(array, what, needed, (int, float))
    return array


def _in_order(given: Any, edges: IntervalEdges, what: str) -> NDArray[Any]:
    """Numbers in the order of the nodes: a mapping, or a table with an index, by its ids; else as they are."""
    if isinstance(given, Mapping):
        return _by_id(list(given.keys()), list(given.values()), edges, what)
    index = getattr(given, "index", None)
    if index is not None and hasattr(given, "iloc") and type(index).__name__ != "RangeIndex":  # of pandas
        return _by_id(index, given, edges, what)
    return _numbers(given, what)


def _by_id(keys: Any, given: Any, edges: IntervalEdges, what: str) -> NDArray[Any]:
    """The values of ``keys`` in the order of the nodes; ids that no edge has are left out."""
    ids = np.arange(edges.num_nodes) if edges.node_ids is None else edges.node_ids
    keys, values = read_ids(keys, f"ids of {what}"), _numbers(given, what)
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
    place = np.searchsorted(keys, ids, sorter=order).clip(max=len(keys) - 1)
    missing = np.flatnonzero(keys[order][place] != ids)
    if len(missing):
        raise DataError(
            f"{what} are missing for {len(missing)} of {len(ids)} nodes, the first of them "
            f"{ids[missing[0]].item()!r}. Give a value for every node that an edge has."
        )
    return np.asarray(values[order][place])


def _name(edges: IntervalEdges, vertex: int) -> str:
    return repr((np.arange(edges.num_nodes) if edges.node_ids is None else edges.node_ids)[vertex].item())


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
    interval: float | timedelta = 0.0,
    drop_first: bool = False,
    drop_partial: bool = False,
    edge_life: int = 1,
    smoothing_window: int = 1,
    min_edges: int = 0,
    strict_label: bool = False,
    name: str = "mine",
    folder: str | Path | None = None,
    **unknown: Never,
) -> DynamicGraph:
    """A dynamic graph from E edges with times, for ``RunConfig(dataset=graph)``.

    Nodes are numbered over all time in the order of their ids, which stay in ``graph.node_ids``: N of them, those
    that an edge has. ``cut`` or ``interval`` sets the B base intervals; one of the two is needed.

    Args:
        src: sources, shape (E,): text, or whole numbers of any size below 2^63, negative ones too; arrays, lists,
            tensors or columns of a table.
        dst: targets, shape (E,).
        time: times, shape (E,), in any order: numbers in any unit, or datetimes, which count in nanoseconds.
        weight: weights, shape (E,), finite and at least 0; those of equal edges in a window are summed.
        features: what nodes are described by. A name (``log_degrees``, the default; ``degrees``,
            ``one_hot_degree``, ``constant``); or numbers, shape (N, F) in the order of the sorted ids, or (B, N, F)
            where they change from interval to interval; or a mapping from every id to its F numbers, such as a data
            frame with the ids as its index, in which ids without an edge are left out.
        labels: classes to predict, shape (N,) or (B, N), whole numbers from 0, -1 where unknown; or a mapping from
            ids. Where no node ever changes its class, 60 % of the labelled nodes train, 20 % validate and 20 %
            test, drawn once: otherwise test labels would leak into training.
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
        folder: a new or an empty folder to write the graph into, a snapshot at a time; its arrays are then mapped from
            there. Memory holds the edges as given, some 20 bytes more for each, and two snapshots. None builds it in
            memory.
        **unknown: refused, with the closest match.

    Raises:
        DataError: vectors do not fit together or hold values of the wrong kind, entries are missing or masked, or
            there are too few intervals, or too many; or the folder is not empty or cannot be written.
        ConfigError: an option is out of its bounds, or both ``cut`` and ``interval`` are given.
    """
    known_only(unknown, from_edges, from_edges)
    check_folder(folder)
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
        edges,
        features,
        labels,
        edge_life=edge_life,
        smoothing_window=smoothing_window,
        min_edges=min_edges,
        strict_label=strict_label,
        name=name,
        folder=folder,
        source=f"given in memory ({len(edges.src):,} rows)",
    )


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
    folder: str | Path | None = None,
) -> DynamicGraph:
    """The dynamic graph of base intervals and what is given for their nodes; see :func:`from_edges`."""
    name, strict_label = _NAME.check(name), STRICT_LABEL.check(strict_label)
    if not name.strip():
        raise ConfigError(f"name={shortened(name)} is empty: give the graph a name, or leave it out.")
    given: dict[str, Any] = {}
    if features is not None and not isinstance(features, str):
        given["features"] = vertex_features(features, edges)
    if labels is not None:
        given["classes"] = class_labels(labels, edges)
        if never_change(given["classes"]):
            given["vertex_split"] = parts_of_labelled(given["classes"])
    named = features if isinstance(features, str) else "given" if "features" in given else "log_degrees"
    options: dict[str, Any] = {
        "edge_life": edge_life,
        "smoothing_window": smoothing_window,
        "min_edges": min_edges,
        "features": named,
    }
    return build_graph(
        edges.stream(**given),
        name=name,
        source=source,
        strict_label=strict_label,
        into=None if folder is None else as_path(folder, "folder"),
        **{key: option(key).check(value) for key, value in options.items()},
    )


# The user's own edges from a text file with one edge a line.


Column = int | str
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how such files begin
_HEADER = Option(name="header", owner="datasets", kind=bool, default=False, meaning="Whether the first line has names.")
_CUTTING = ("cut", "cut_by", "interval", "drop_first", "drop_partial")


def from_csv(
    path: str | Path,
    src: Column = 0,
    dst: Column = 1,
    time: Column = 2,
    weight: Column | None = None,
    *,
    sep: str = ",",
    header: bool | None = None,
    features: Any = None,
    labels: Any = None,
    name: str | None = None,
    **cutting: Any,
) -> DynamicGraph:
    """A dynamic graph from a text file with one edge a line; plain, gzip, bzip2, or the only file in a zip or tar.

    Ids may be anything of up to 1,000 characters: where all of them are whole numbers below 2^63 they are ordered as
    numbers, else as text. Nodes are renumbered in that order, so that numbers may be as large or as far apart as
    they like; ``graph.node_ids`` keeps them.
    Times are numbers, or dates such as 2014-01-31 or 2014-01-31T16:39:58Z, which count in nanoseconds. Values may be
    in double quotes; blank lines are skipped.

    Args:
        path: the file.
        src: column of the sources: its number, from 0, or its name in the header.
        dst: column of the targets.
        time: column of the times.
        weight: column of the weights, finite numbers of at least 0; None where edges carry none.
        sep: the character between columns; a space stands for any number of spaces and tabs.
        header: whether the first line has names. None: it has, where a column is given by name.
        features: as :func:`from_edges` takes them.
        labels: as :func:`from_edges` takes them.
        name: what runs and reports call the graph; by default the file's name.
        **cutting: ``cut=n`` or ``interval=x``, and the other options of :func:`from_edges`.

    Raises:
        DataError: the file cannot be read, lacks a column, or has a value that is not allowed: the message names the
            file and the line. Or the edges cannot be cut.
        ConfigError: an option is out of its bounds.
    """
    known_only(cutting, from_csv, from_edges)
    check_folder(cutting.get("folder"))
    path = as_path(path, "path")
    wanted: dict[str, Any] = {"src": src, "dst": dst, "time": time}
    if weight is not None:
        wanted["weight"] = weight
    for key, column in wanted.items():
        check_column(key, column)
    columns = _columns_of_text(path, wanted, sep, header)
    sources, targets, node_ids = txt.numbered(columns["src"], columns["dst"])
    for_cutting = {key: cutting.pop(key) for key in _CUTTING if key in cutting}
    edges = cut_own(sources, targets, columns["time"], columns.get("weight"), node_ids=node_ids, **for_cutting)
    source = f"file {path.name} in {path.absolute().parent}"
    return built(edges, features, labels, name=path.name if name is None else name, source=source, **cutting)


def _columns_of_text(path: Path, wanted: Mapping[str, Column], sep: str, header: bool | None) -> dict[str, Any]:
    """The wanted columns of a text file: ids as Arrow text, times and weights as numpy.

    Raises:
        DataError: it cannot be read, holds no rows, lacks a column, or has a value that is not allowed.
    """
    if not isinstance(sep, str) or len(sep) != 1 or not sep.isascii() or sep in '"\n\r\0':
        raise DataError(f"sep={shortened(sep)}; one character is needed, such as ',', ';', a tab or a space.")
    if not os.path.isfile(path):
        raise DataError(f"{str(path)[:500]} is not a file. Give the path of a text file with one edge a line.")
    named = any(isinstance(column, str) for column in wanted.values())
    header = named if header is None else _HEADER.check(header)
    data, where = content(path)
    if data.startswith(_UTF_16):
        raise DataError(f"{where} is text in UTF-16; UTF-8 is needed. Save it again in that encoding.")
    text = txt.plain(data, where, blanks=sep == " ")
    txt.width(text, where, sep.encode())
    for number, line in txt.first_lines(text, 1):
        names = [cell.strip().decode("utf-8", "replace") for cell in txt.cells(line, sep, quoted=True)]
        places = {
            role: _place(role, column, names, header=header, sep=sep, where=f"line {number} of {where}")
            for role, column in wanted.items()
        }
        if header:
            text = txt.without_line(text, number)
    rows = txt.first_lines(text, 1)
    if not rows:
        raise DataError(f"{where} holds no rows{' under its header' if header else ''}.")
    different_columns(places)
    first = txt.cells(rows[0][1], sep, quoted=True)
    of_time = first[places["time"]].strip() if places["time"] < len(first) else b""
    kinds = {
        "src": txt.OWN_ID,
        "dst": txt.OWN_ID,
        "time": txt.kind_of_time(of_time, txt.OWN_TIME, txt.OWN_STAMP, txt.OWN_STAMP_UTC),
        "weight": txt.WEIGHT,
    }
    roles = {place: role for role, place in places.items()}
    columns = [roles.get(place, f"column {place}") for place in range(len(names))]
    advice = f"Correct the line, or give another sep than {sep!r}"
    advice += "." if header else ", or header=True where the first line has names."
    return txt.read_rows(
        text, where, {name: kinds.get(name, txt.UNREAD) for name in columns}, separator=sep, quoted=True, advice=advice
    )


def _place(role: str, column: Column, names: list[str], *, header: bool, sep: str, where: str) -> int:
    """The place of a column, from 0, among those of the first line."""
    if isinstance(column, str):
        if not header or names.count(column) != 1:
            has = f"the columns {txt.shown(', '.join(names), 200)}" if header else "no header (header=False)"
            raise DataError(
                f"{where}: {role}={column!r}, and it has {has}. Give the name of one column, or its number, from 0."
            )
        return names.index(column)
    if not 0 <= column < len(names):
        raise DataError(
            f"{where} has {len(names)} columns: {role}={column!r} is none of 0 to {len(names) - 1}. Give another "
            f"column, or another sep than {sep!r}; the line is {txt.shown(sep.join(names))}."
        )
    return int(column)


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
    name: str = "mine",
) -> DynamicGraph:
    """A graph that never changes, from E edges, for ``RunConfig(dataset=graph)``: T equal snapshots, held once.

    With ``labels``, 60 % of the labelled nodes train, 20 % validate and 20 % test; each split of the sequence has
    its own nodes. Mini-batches (:class:`dtdg_lab.engine.minibatches.SeedBatches`) take such snapshots as one.

    Args:
        src: sources, shape (E,).
        dst: targets, shape (E,).
        weight: weights, shape (E,).
        features: a name, or numbers (N, F) in the order of the sorted ids, or a mapping from ids.
        labels: classes, shape (N,), -1 where unknown, or a mapping from ids.
        snapshots: T.
        name: what runs and reports call the graph.

    Raises:
        DataError: vectors do not fit together, hold values of the wrong kind, or there are too few snapshots.
    """
    if snapshots < LEAST:
        raise DataError(f"snapshots={snapshots}: at least {LEAST}, so that each split of a protocol has some.")
    sources, targets = as_vector(src, "src", "ids of nodes"), as_vector(dst, "dst", "ids of nodes")
    times = np.repeat(np.arange(_BUILT), len(sources))
    repeated = None if weight is None else np.tile(as_vector(weight, "weight", "numbers"), _BUILT)
    edges = cut_own(np.tile(sources, _BUILT), np.tile(targets, _BUILT), times, repeated, interval=1.0)
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


# The user's own edges from tables: data frames and Parquet files.


def from_pandas(
    frame: Any,
    src: str = "src",
    dst: str = "dst",
    time: str = "time",
    weight: str | None = None,
    *,
    features: Any = None,
    labels: Any = None,
    name: str = "mine",
    **cutting: Any,
) -> DynamicGraph:
    """A dynamic graph from a data frame with one edge a row.

    Args:
        frame: a pandas DataFrame, or any table that gives its columns by name.
        src: column of the sources, whole numbers or text.
        dst: column of the targets.
        time: column of the times, numbers or datetimes.
        weight: column of the weights, finite numbers of at least 0; None where edges carry none.
        features: as :func:`from_edges` takes them.
        labels: as :func:`from_edges` takes them.
        name: what runs and reports call the graph.
        **cutting: ``cut=n`` or ``interval=x``, and the other options of :func:`from_edges`.

    Raises:
        DataError: a column is missing, or a row has a missing or another value; or the edges cannot be cut.
        ConfigError: an option is out of its bounds.
    """
    known_only(cutting, from_pandas, from_edges)
    check_folder(cutting.get("folder"))
    has = getattr(frame, "column_names", getattr(frame, "columns", None))  # Arrow's tables have both
    if isinstance(frame, type) or has is None or not hasattr(frame, "__getitem__"):
        raise DataError(
            f"the frame is {shortened(frame)}, of type {type(frame).__name__}; a data frame is needed, such as "
            "pandas.DataFrame(rows). For vectors there is from_edges, for files from_csv and from_parquet."
        )
    wanted = _wanted(list(has), "the frame", src=src, dst=dst, time=time, weight=weight)
    return from_edges(**_vectors(frame, "the frame", wanted), features=features, labels=labels, name=name, **cutting)


def from_parquet(
    path: str | Path,
    src: str = "src",
    dst: str = "dst",
    time: str = "time",
    weight: str | None = None,
    *,
    features: Any = None,
    labels: Any = None,
    name: str | None = None,
    **cutting: Any,
) -> DynamicGraph:
    """A dynamic graph from a Parquet file with one edge a row; only the columns asked for are read.

    Args:
        path: the file.
        src: column of the sources, whole numbers or text.
        dst: column of the targets.
        time: column of the times, numbers or timestamps.
        weight: column of the weights, finite numbers of at least 0; None where edges carry none.
        features: as :func:`from_edges` takes them.
        labels: as :func:`from_edges` takes them.
        name: what runs and reports call the graph; by default the file's name.
        **cutting: ``cut=n`` or ``interval=x``, and the other options of :func:`from_edges`.

    Raises:
        DataError: it is no Parquet file, a column is missing, or a row has a missing or another value; or the edges
            cannot be cut.
        ConfigError: an option is out of its bounds.
    """
    import pyarrow as pa
    from pyarrow import parquet

    known_only(cutting, from_parquet, from_edges)
    check_folder(cutting.get("folder"))
    path = as_path(path, "path")
    if not os.path.isfile(path):
        raise DataError(f"{str(path)[:500]} is not a file. Give the path of a Parquet file with one edge a row.")
    try:
        with parquet.ParquetFile(path) as file:
            wanted = _wanted(file.schema_arrow.names, str(path), src=src, dst=dst, time=time, weight=weight)
            table = file.read(columns=list(wanted.values()))
    except (OSError, pa.ArrowException) as error:
        reason = str(error).rstrip(".")
        raise DataError(
            f"{path} cannot be read as Parquet: {reason}. Write it again, or use from_csv for a text file."
        ) from error
    return from_edges(
        **_vectors(table, str(path), wanted),
        features=features,
        labels=labels,
        name=path.name if name is None else name,
        **cutting,
    )


def _wanted(has: list[Any], where: str, **columns: Any) -> dict[str, Any]:
    """The columns by what from_edges calls them; a weight of None is left out.

    Raises:
        DataError: one is no column of the table, or several, or has two roles.
    """
    wanted = {role: column for role, column in columns.items() if column is not None or role != "weight"}
    for role, column in wanted.items():
        found = has.count(column) if isinstance(column, Hashable) else 0
        if found != 1:
            names = ", ".join(str(one) for one in has[:20])
            raise DataError(
                f"{where} has {'several columns' if found else 'no column'} {shortened(column)} for {role}; it has "
                f"{names or 'none'}. Say which columns are src, dst, time and weight, as in src='from'."
            )
    different_columns(wanted)
    return wanted


def _vectors(table: Any, where: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """The columns of a table as from_edges calls them."""
    vectors = {role: _column(table[column], column, where) for role, column in wanted.items()}
    if not len(vectors["src"]):
        raise DataError(f"{where} holds no rows; one for each edge is needed.")
    return vectors


def _column(values: Any, name: str, where: str) -> NDArray[Any]:
    """A column as numpy, without missing values.

    Raises:
        DataError: a value is missing; its row is named.
    """
    values = values.to_pandas() if hasattr(values, "to_pandas") else values  # of Arrow and of polars
    missing = np.asarray(values.isna())
    if missing.any():
        raise DataError(
            f"row {int(missing.argmax())} of {where} (from 0) has no {name!r}. Drop such rows, or fill them."
        )
    if getattr(getattr(values, "dtype", None), "tz", None) is not None:  # pandas' times with a zone are objects else
        values = values.dt.tz_convert(None)
    array = np.asarray(values.to_numpy())
    if array.dtype.kind == "f":
        wide = array.astype(np.float64)
        if (np.abs(wide) < 2**53).all() and (wide == np.floor(wide)).all():
            return wide.astype(np.int64)  # whole numbers that gaps elsewhere in the table had made into floats
    return array
