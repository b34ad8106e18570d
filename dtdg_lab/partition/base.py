"""Partitions of nodes: made by name, checked, and cached on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import operator
import os
import time
import tokenize
import uuid
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import DataError, PartitionError, PlanError, UnknownNameError, shortened
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.units import as_path
from dtdg_lab.datasets.download import one_at_a_time
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.storage import cache_folder

# What a partitioner gives back.


@dataclass(frozen=True, slots=True, eq=False)
class Assigned:
    """The part of each node, as a partitioner chose it.

    Attributes:
        owner: (N,) int32: the part of each node, 0 to P - 1; every part owns at least one.
        groups: (N,) int32: the group of each node within its part; None where the partitioner makes none.
        notes: what the reader of the partition should know, such as parts that had to be filled; may be empty.
    """

    owner: NDArray[np.int32]
    groups: NDArray[np.int32] | None = None
    notes: str = ""


# Parts that a partitioner left empty get a node each: every part must own one.


def without_empty_parts(
    owner: NDArray[Any], parts: int, weights: NDArray[Any], *, groups: NDArray[np.int32] | None = None, notes: str = ""
) -> Assigned:
    """Give each empty part the lightest node of the part that then has most nodes; ties go to the lower number.

    Args:
        owner: (N,) the part of each node, N >= P.
        parts: P.
        weights: (N,) what a node weighs, in any unit.
        groups: (N,) groups to pass on.
        notes: words to pass on; how many parts were filled is added.

    Returns:
        owners under which every part has a node.
    """
    owner = np.array(owner, dtype=np.int32)
    counts = np.bincount(owner, minlength=parts)
    empty = np.flatnonzero(counts == 0)
    for part in empty:
        largest = int(counts.argmax())
        own = np.flatnonzero(owner == largest)
        owner[own[np.argmin(weights[own])]] = part
        counts[largest] -= 1
        counts[part] = 1
    words = [notes] if notes else []
    if len(empty):
        words.append(f"{len(empty)} empty {'part was' if len(empty) == 1 else 'parts were'} given a node")
    return Assigned(owner, groups, "; ".join(words))


# Partitions in files.


FORMAT = "dtdg-lab partition 1"

# what zipfile and numpy raise for files that are cut short, changed, or something else
DAMAGE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    RuntimeError,
    MemoryError,
    OverflowError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def save_partition(partition: Partition, path: str | Path) -> Path:
    """Write a partition into one file, whole or not at all; a file already there is replaced.

    Args:
        partition: of N nodes.
        path: the file; it is given the ending .npz where it has none.

    Returns:
        The file.

    Raises:
        DataError: it cannot be written, or is no path.
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
    draft = file.with_name(f".{file.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as out:
            np.savez_compressed(out, allow_pickle=False, **arrays)
        draft.replace(file)
    except OSError as error:
        raise DataError(
            f"cannot write the partition to {file}: {error.strerror or error}. Give a file in a folder you may write."
        ) from error
    finally:
        with contextlib.suppress(OSError):  # where it could not be made, there is none
            draft.unlink()
    return file


def load_partition(path: str | Path, graph: DynamicGraph | None = None, parts: int | None = None) -> Partition:
    """Read what :func:`save_partition` wrote.

    Args:
        path: the file.
        graph: the graph it must be for; any where None. A file made for no graph in particular fits every graph of
            as many nodes.
        parts: P it must have; any where None.

    Raises:
        DataError: there is no such file, or it is damaged, or holds something else.
        PartitionError: it is for another graph, or has another number of parts.
    """
    file = as_path(path, "path")
    partition = _read(file)
    if graph is not None:
        _check_graph(file, partition, graph)
    if parts is not None and parts != partition.parts:
        raise PartitionError(
            f"{file} divides its nodes into {partition.parts} parts, and {parts} are asked for. Set "
            f"parts={partition.parts}, or give a file of {parts} parts."
        )
    return partition


def _read(file: Path) -> Partition:
    if not os.path.isfile(file):
        raise DataError(
            f"there is no file {file}. Give one that .save(path) of a partition or dtdg_lab.partition.base wrote."
        )
    try:
        with zipfile.ZipFile(file) as archive:
            if (wrong := archive.testzip()) is not None:
                raise ValueError(f"the checksum of {wrong} is not its own")
        with np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        if str(found["format"]) != FORMAT:
            raise ValueError(f"its format is {str(found['format'])[:40]!r}, not {FORMAT!r}")
        return Partition(
            found["owner"],
            int(found["parts"]),
            found.get("groups"),
            str(found["data_hash"]),
            str(found["made_by"]),
            float(found["seconds"]),
        )
    except PlanError as error:
        raise DataError(f"{file} holds no valid partition: {error}") from error
    except DAMAGE as error:
        words = f"no entry {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise DataError(
            f"{file} is no partition, or a damaged one: {words}. Make the partition again and save it."
        ) from error


def _check_graph(file: Path, partition: Partition, graph: DynamicGraph) -> None:
    if partition.data_hash and partition.data_hash != graph.data_hash:
        raise PartitionError(
            f"{file} was made for another graph: its data hash is {partition.data_hash[:16]}, that of {graph.name!r} "
            f"is {graph.data_hash[:16]}. Load the graph it was made for, or make a partition of this one and save it."
        )
    if len(partition.owner) != graph.num_nodes:
        raise PartitionError(
            f"{file} divides {len(partition.owner):,} nodes, and {graph.name!r} has {graph.num_nodes:,}. Give a "
            "partition of this graph."
        )


# Making a partition by name: checked, timed, and kept in the cache.


# raise it when a partitioner gives other partitions, so that older ones are not taken from a cache
PARTITION_VERSION = 1
PARTITION_SETTINGS = ("dealing", "imbalance", "partition_file")


_READ = {  # settings that decide what a partitioner makes
    "hash": ("seed",),
    "round_robin": (),
    "metis": ("seed", "imbalance"),
    "load_aware": ("hops", "dealing"),
    "hypergraph": ("seed", "imbalance"),
    "file": ("partition_file",),
}


def make_partition(
    name: str, graph: DynamicGraph, parts: int, *, hops: int = 1, seed: int = 0, **settings: Any
) -> Partition:
    """Divide the nodes of a graph by the partitioner ``name`` of the catalogue.

    A partition is kept in the cache folder under the graph's hash and everything its partitioner reads; several
    processes may ask at once: the first makes it, the others wait and read it. A damaged file there is made anew.

    Args:
        name: such as ``"metis"``.
        graph: N nodes in T snapshots.
        parts: P, from 1 to N.
        hops: layers times hops a layer, for partitioners that weigh computation graphs.
        seed: of the partitioners that draw lots.
        **settings: ``dealing``, ``imbalance``, ``partition_file``; the glossary's defaults where not given.

    Returns:
        The partition; ``seconds`` is the time making took, also where it comes from the cache.

    Raises:
        PartitionError: there are more parts than nodes, or the partitioner failed.
        ConfigError: a name or a value is not allowed.
        NotAvailableError: the partitioner's library is not installed.
        DataError: a partition file is missing or damaged.
    """
    catalogue.entry("partition", name)  # refuses other names
    parts, settings = _checked_parts(graph, parts), _checked_settings(settings)
    read = {key: value for key, value in {"hops": hops, "seed": seed, **settings}.items() if key in _READ[name]}
    if "partition_file" in read:  # a file may change, and reading it again costs nothing
        return _made(name, graph, parts, read)
    file = _cache_file(name, graph, parts, read)
    with one_at_a_time(file):
        with contextlib.suppress(DataError, PartitionError):  # none yet, or damaged: made anew
            return load_partition(file, graph, parts)
        partition = _made(name, graph, parts, read)
        with contextlib.suppress(DataError):  # a cache that cannot be written is no reason to fail
            save_partition(partition, file)
    return partition


def _made(name: str, graph: DynamicGraph, parts: int, read: dict[str, Any]) -> Partition:
    start = time.perf_counter()
    assigned: Assigned = catalogue.entry("partition", name).load()(graph, parts, **read)
    seconds = time.perf_counter() - start
    settings = ", ".join(f"{key} {value}" for key, value in read.items())
    made_by = name + (f" ({settings})" if settings else "") + (f"; {assigned.notes}" if assigned.notes else "")
    return Partition(assigned.owner, parts, assigned.groups, graph.data_hash, made_by, seconds)


def _cache_file(name: str, graph: DynamicGraph, parts: int, read: dict[str, Any]) -> Path:
    asked = {"version": PARTITION_VERSION, "graph": graph.data_hash, "name": name, "parts": parts, **read}
    key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]
    return cache_folder() / "partitions" / f"{key}.npz"


def _checked_parts(graph: DynamicGraph, parts: Any) -> int:
    try:
        if isinstance(parts, bool):
            raise TypeError("a truth value is no number of parts")
        number = operator.index(parts)
    except TypeError as error:
        raise PartitionError(
            f"parts={shortened(parts)} is no whole number; 1 to {graph.num_nodes:,} are allowed."
        ) from error
    if not 1 <= number <= graph.num_nodes:
        raise PartitionError(
            f"{number:,} parts of the {graph.num_nodes:,} nodes of {graph.name!r}: from 1 part to one for each "
            "node are allowed. Set parts (and ranks) accordingly, or choose a larger graph."
        )
    return number


def _checked_settings(settings: dict[str, Any]) -> dict[str, Any]:
    unknown = [knob for knob in settings if knob not in PARTITION_SETTINGS]
    if unknown:
        raise UnknownNameError("setting of partitioners", unknown[0], PARTITION_SETTINGS)
    return {knob: OPTIONS[knob].check(settings.get(knob, OPTIONS[knob].default)) for knob in PARTITION_SETTINGS}
