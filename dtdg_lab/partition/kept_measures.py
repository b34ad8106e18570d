"""Measures of partitions, counted once and then read from the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dtdg_lab.core.plans import Partition
from dtdg_lab.datasets.one_at_a_time import one_at_a_time
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.store import cache_folder
from dtdg_lab.partition.measures import PartitionMeasures, measure
from dtdg_lab.partition.store import DAMAGE

# raise it when measures change, so that older ones are not taken from a cache
MEASURES_VERSION = 1
_ARRAYS = (
    "owned", "edges", "all_edges", "cut_edges", "halo", "replicated", "replicated_edges", "load", "halo_bytes",
    "cached_bytes",
)  # fmt: skip
_MATRICES = ("matrix", "first_matrix")


def kept_measures(
    graph: DynamicGraph,
    partition: Partition,
    *,
    snapshots: range | None = None,
    hops: int = 1,
    ways: Sequence[str] = ("in",),
    static: bool = True,
) -> PartitionMeasures:
    """The same as :func:`dtdg_lab.partition.measures.measure`, kept in the cache folder.

    Kept by the hash of the graph, the owners of the vertices and what is asked. Several processes may ask at once: the
    first counts, the others wait and read. A damaged file is made anew; a cache that cannot be written is none.
    """
    chosen = range(graph.num_snapshots) if snapshots is None else snapshots
    asked = {
        "version": MEASURES_VERSION,
        "graph": graph.data_hash,
        "owner": hashlib.sha256(partition.owner.tobytes()).hexdigest(),
        "parts": partition.parts,
        "snapshots": [chosen.start, chosen.stop, chosen.step],
        "hops": hops,
        "ways": list(ways),
        "static": static,
    }
    key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]
    file = cache_folder() / "partition-measures" / f"{key}.npz"
    with one_at_a_time(file):
        with contextlib.suppress(*DAMAGE):  # none yet, or damaged: counted anew
            return _read(file, chosen, hops, tuple(dict.fromkeys(ways)), static)
        measures = measure(graph, partition, snapshots=chosen, hops=hops, ways=ways, static=static)
        with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to fail
            _write(file, measures)
    return measures


def _read(file: Path, snapshots: range, hops: int, ways: tuple[str, ...], static: bool) -> PartitionMeasures:
    # numpy would leave a damaged file open that it has opened itself
    with file.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        given: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
        for name in _MATRICES:
            given[name] = {way: arrays[f"{name}-{way}"] for way in ways}
    return PartitionMeasures(snapshots=snapshots, hops=hops, ways=ways, static=static, **given)


def _write(file: Path, measures: PartitionMeasures) -> None:
    arrays = {name: getattr(measures, name) for name in _ARRAYS}
    for name in _MATRICES:
        arrays.update({f"{name}-{way}": rows for way, rows in getattr(measures, name).items()})
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        with draft.open("wb") as out:
            np.savez_compressed(out, allow_pickle=False, **arrays)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
