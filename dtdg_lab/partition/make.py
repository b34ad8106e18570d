"""Making a partition by name: checked, timed, and kept in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import operator
import time
from pathlib import Path
from typing import Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import DataError, PartitionError, UnknownNameError, shortened
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.plans import Partition
from dtdg_lab.datasets.one_at_a_time import one_at_a_time
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.store import cache_folder
from dtdg_lab.partition.assigned import Assigned
from dtdg_lab.partition.store import load_partition, save_partition

# raise it when a partitioner gives other partitions, so that older ones are not taken from a cache
PARTITION_VERSION = 1
KNOBS = ("dealing", "imbalance", "partition_file")


def make_partition(
    name: str, graph: DynamicGraph, parts: int, *, hops: int = 1, seed: int = 0, **knobs: Any
) -> Partition:
    """Divide the vertices of a graph by the partitioner ``name`` of the catalogue.

    A partition is kept in the cache folder under the graph's hash and everything its partitioner reads; several
    processes may ask at once: the first makes it, the others wait and read it. A damaged file there is made anew.

    Args:
        name: such as ``"metis"``.
        graph: N vertices in T snapshots.
        parts: P, from 1 to N.
        hops: layers times hops a layer, for partitioners that weigh computation graphs.
        seed: of the partitioners that draw lots.
        knobs: ``dealing``, ``imbalance``, ``partition_file``; the glossary's defaults where not given.

    Returns:
        The partition; ``seconds`` is the time making took, also where it comes from the cache.

    Raises:
        PartitionError: there are more parts than vertices, or the partitioner failed.
        ConfigError: a name or a value is not allowed.
        NotAvailableError: the partitioner's library is not installed.
        DataError: a partition file is missing or damaged.
    """
    entry = catalogue.entry("partition", name)
    parts, settings = _checked_parts(graph, parts), _checked_knobs(knobs)
    module = importlib.import_module(entry.target.partition(":")[0])
    read = {key: value for key, value in {"hops": hops, "seed": seed, **settings}.items() if key in module.READS}
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
            f"{number:,} parts of the {graph.num_nodes:,} vertices of {graph.name!r}: from 1 part to one for each "
            "vertex are allowed. Set parts (and ranks) accordingly, or choose a larger graph."
        )
    return number


def _checked_knobs(knobs: dict[str, Any]) -> dict[str, Any]:
    unknown = [knob for knob in knobs if knob not in KNOBS]
    if unknown:
        raise UnknownNameError("setting of partitioners", unknown[0], KNOBS)
    return {knob: OPTIONS[knob].check(knobs.get(knob, OPTIONS[knob].default)) for knob in KNOBS}
