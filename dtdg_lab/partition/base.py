"""Node partitions: created by name, validated, and cached on disk."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import operator
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.registration import code_digest
from dtdg_lab.core.errors import DataError, PartitionError, PlanError, UnknownNameError, shortened
from dtdg_lab.core.files import read_arrays, write_arrays
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.system_errors import explain, reading
from dtdg_lab.core.units import as_path
from dtdg_lab.datasets.download import one_at_a_time
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.storage import cache_folder
from dtdg_lab.graphs.training_graph import training_graph


@dataclass(frozen=True, slots=True, eq=False)
class Assigned:
    """Result of a partitioner.

    Attributes:
        owner: (N,) int32, the part of each node, 0 to P - 1; every part owns at least one node.
        groups: (N,) int32, the group of each node within its part; None if the partitioner makes no groups.
        notes: remarks for the user, such as empty parts that were filled; may be empty.
    """

    owner: NDArray[np.int32]
    groups: NDArray[np.int32] | None = None
    notes: str = ""


def without_empty_parts(
    owner: NDArray[Any], parts: int, weights: NDArray[Any], *, groups: NDArray[np.int32] | None = None, notes: str = ""
) -> Assigned:
    """Give each empty part the lightest node of the currently largest part; ties go to the lower number.

    Args:
        owner: (N,) the part of each node, N >= P.
        parts: P.
        weights: (N,) node weights, in any unit.
        groups: (N,) groups to pass on.
        notes: remarks to pass on; the number of filled parts is appended.

    Returns:
        owners that give every part at least one node.
    """
    owner = np.array(owner, dtype=np.int32)
    counts = np.bincount(owner, minlength=parts)
    empty = np.flatnonzero(counts == 0)
    for part in empty:
        largest = int(counts.argmax())
        nodes = np.flatnonzero(owner == largest)
        owner[nodes[np.argmin(weights[nodes])]] = part
        counts[largest] -= 1
        counts[part] = 1
    remarks = [notes] if notes else []
    if len(empty):
        remarks.append(f"{len(empty)} empty {'part was' if len(empty) == 1 else 'parts were'} given a node")
    return Assigned(owner, groups, "; ".join(remarks))


FORMAT = "dtdg-lab partition 1"


def save_partition(partition: Partition, path: str | Path) -> Path:
    """Write a partition to one file atomically; an existing file is replaced.

    Args:
        partition: the partition.
        path: the file; the suffix .npz is added if it has none.

    Returns:
        The file.

    Raises:
        DataError: the file cannot be written, or ``path`` is no path.
    """
    file = as_path(path, "path")
    file = file if file.suffix else file.with_suffix(".npz")
    arrays = {
        "format": np.array(FORMAT),
        "owner": partition.owner,
        "parts": np.array(partition.parts),
        "data_hash": np.array(partition.data_hash),
        "made_by": np.array(partition.made_by),
        "seconds": np.array(float(partition.seconds)),
    }
    if partition.groups is not None:
        arrays["groups"] = partition.groups
    try:
        write_arrays(file, arrays)
    except OSError as error:
        raise DataError(f"cannot write the partition to {file}: {explain(error, file, setting='path=')}") from error
    return file


def load_partition(path: str | Path, graph: DynamicGraph | None = None, parts: int | None = None) -> Partition:
    """Read a file of :func:`save_partition`.

    Args:
        path: the file.
        graph: the graph that it must belong to; None accepts any. A file without a graph's hash fits every graph with
            the same number of nodes.
        parts: required number of parts; None accepts any.

    Raises:
        DataError: the file does not exist, is damaged, or is not a partition.
        PartitionError: it belongs to another graph, or has another number of parts.
    """
    file = as_path(path, "path")
    partition = _read(file)
    if graph is not None:
        check_graph(str(file), partition, graph)
    if parts is not None and parts != partition.parts:
        raise PartitionError(
            f"{file} has {partition.parts} parts, but {parts} are requested. Set "
            f"parts={partition.parts}, or give a file of {parts} parts."
        )
    return partition


def _read(file: Path) -> Partition:
    remedy = "Make the partition again and save it to another file."
    with reading(file, remedy=remedy, damaged="is damaged or not a partition"):
        try:
            arrays = read_arrays(file)
            if str(arrays["format"]) != FORMAT:
                raise ValueError(f"its format is {str(arrays['format'])[:40]!r}, not {FORMAT!r}")
            return Partition(
                arrays["owner"],
                int(arrays["parts"]),
                arrays.get("groups"),
                str(arrays["data_hash"]),
                str(arrays["made_by"]),
                float(arrays["seconds"]),
            )
        except (FileNotFoundError, IsADirectoryError) as error:
            raise DataError(f"there is no file {file}. Give a file written by .save(path) of a partition.") from error
        except PlanError as error:
            raise DataError(f"{file} is not a valid partition: {error}") from error


def check_graph(name: str, partition: Partition, graph: DynamicGraph) -> None:
    """Check that a partition, called ``name`` in messages, is of this graph's nodes.

    Raises:
        PartitionError: it belongs to another graph, or has another number of nodes.
    """
    if partition.data_hash and partition.data_hash != graph.data_hash:
        raise PartitionError(
            f"{name} was made for another graph: its data hash is {partition.data_hash[:16]}, but {graph.name!r} has "
            f"{graph.data_hash[:16]}. Load the graph it was made for, or make a partition of this one and save it."
        )
    if len(partition.owner) != graph.num_nodes:
        raise PartitionError(
            f"{name} has {len(partition.owner):,} nodes, but {graph.name!r} has {graph.num_nodes:,}. Give a "
            "partition of this graph."
        )


class Partitioner(Protocol):
    """A function that divides nodes; users add theirs with ``lab.register(assign, "partitioner")``.

    A run gives it the training snapshots alone; nodes that appear later have no edge in them. It may have further
    keyword parameters: ``hops``, ``seed``, and any option of its entry, such as ``imbalance``.
    Its result must depend only on its arguments, because it is cached under them and the digest of its code.
    """

    def __call__(self, graph: DynamicGraph, parts: int) -> Assigned:
        """Return the part of each node; :func:`without_empty_parts` gives every part at least one.

        Args:
            graph: N nodes in T snapshots.
            parts: P, 1 to N.

        Raises:
            PartitionError: the graph cannot be divided into P parts.
        """


# increase it when the result of a partitioner changes, so that cached partitions are not reused
PARTITION_VERSION = 1


def partition_settings(name: str = "") -> tuple[str, ...]:
    """Return the options that a partitioner may read; with ``""`` the options of all partitioners."""
    read = [entry.options for entry in catalogue.entries("partition") if name in ("", entry.name)]
    chooser = catalogue.CHOSEN_BY["partition"]
    return tuple(dict.fromkeys(option for options in read for option in options if option != chooser))


def reads_file(name: str) -> bool:
    """Return whether a partitioner reads a partition from a file instead of making one."""
    return "partition_file" in inspect.signature(catalogue.entry("partition", name).load()).parameters


def accepted_settings(function: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are parameters of a partitioner's function."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in settings.items() if name in parameters}


def make_partition(
    name: str,
    graph: DynamicGraph,
    parts: int,
    *,
    snapshots: range | None = None,
    hops: int = 1,
    seed: int = 0,
    **settings: Any,
) -> Partition:
    """Divide the nodes of a graph by the partitioner ``name`` of the catalogue.

    Partitions are cached on disk by the graph's hash and the settings that the partitioner reads. If several processes
    request the same partition, the first makes it, and the others wait and read it. A damaged file is replaced.

    Args:
        name: such as ``"metis"``.
        graph: N nodes in T snapshots.
        parts: P, from 1 to N.
        snapshots: the training snapshots, from 0 on, which alone are read; all by default.
        hops: layers times hops per layer, for partitioners that use the size of computation graphs.
        seed: seed of randomised partitioners.
        **settings: ``assignment_order``, ``imbalance``, ``partition_file``, and options of a registered partitioner;
            they default to the glossary's values.

    Returns:
        The partition; ``seconds`` is the time of making it, even if it comes from the cache.

    Raises:
        PartitionError: there are more parts than nodes, or the partitioner failed.
        ConfigError: a name or a value is not allowed.
        NotAvailableError: the partitioner's library is not installed.
        DataError: a partition file is missing or damaged.
    """
    entry = catalogue.entry("partition", name)
    assign = entry.load()
    parts, settings = _checked_parts(graph, parts), _checked_settings(settings)
    read = accepted_settings(assign, {"hops": hops, "seed": seed, **settings})
    if "partition_file" in read:  # a file may change and is cheap to read
        return _timed(assign, name, graph, parts, read, data_hash=graph.data_hash)
    seen = graph if snapshots is None else training_graph(graph, snapshots)
    file = _cache_file(entry, seen, parts, read)
    make = partial(_timed, assign, name, seen, parts, read, data_hash=graph.data_hash)
    if file is None:
        return make()
    with one_at_a_time(file):
        with contextlib.suppress(DataError, PartitionError):  # missing or damaged
            return load_partition(file, graph, parts)
        partition = make()
        with contextlib.suppress(DataError):  # an unwritable cache is not an error
            save_partition(partition, file)
    return partition


def _timed(
    assign: Callable[..., Assigned],
    name: str,
    graph: DynamicGraph,
    parts: int,
    read: dict[str, Any],
    *,
    data_hash: str,
) -> Partition:
    start = time.perf_counter()
    assigned = assign(graph, parts, **read)
    seconds = time.perf_counter() - start
    settings = ", ".join(f"{key} {value}" for key, value in read.items())
    made_by = name + (f" ({settings})" if settings else "") + (f"; {assigned.notes}" if assigned.notes else "")
    return Partition(assigned.owner, parts, assigned.groups, data_hash, made_by, seconds)


def _cache_file(entry: catalogue.Entry, graph: DynamicGraph, parts: int, read: dict[str, Any]) -> Path | None:
    """Return the cache file of a partition; None if the code of the partitioner is unknown."""
    request = {"version": PARTITION_VERSION, "graph": graph.data_hash, "name": entry.name, "parts": parts, **read}
    code = code_digest(entry)
    if code is None:
        return None
    if code:
        request["code"] = code
    key = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:32]
    return cache_folder() / "partitions" / f"{key}.npz"


def _checked_parts(graph: DynamicGraph, parts: Any) -> int:
    try:
        if isinstance(parts, bool):
            raise TypeError("a bool is not a number of parts")
        number = operator.index(parts)
    except TypeError as error:
        raise PartitionError(
            f"parts={shortened(parts)} must be a whole number from 1 to {graph.num_nodes:,}."
        ) from error
    if not 1 <= number <= graph.num_nodes:
        raise PartitionError(
            f"parts={number:,} must be from 1 to {graph.num_nodes:,}, the number of nodes of {graph.name!r}. "
            "Set parts (and ranks) accordingly, or choose a larger graph."
        )
    return number


def _checked_settings(settings: dict[str, Any]) -> dict[str, Any]:
    names = partition_settings()
    unknown = [name for name in settings if name not in names]
    if unknown:
        raise UnknownNameError("setting of partitioners", unknown[0], names)
    return {name: OPTIONS[name].check(settings.get(name, OPTIONS[name].default)) for name in names}
