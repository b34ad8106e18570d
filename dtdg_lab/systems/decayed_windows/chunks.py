"""Chunks of each part's nodes, fewer for older snapshots: made by name, timed, cached."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError, NotAvailableError, PartitionError, PlanError, UnknownNameError
from dtdg_lab.core.files import read_arrays, write_arrays
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.rng import key
from dtdg_lab.core.system_errors import explain, reading
from dtdg_lab.datasets.download import one_at_a_time
from dtdg_lab.distributed.group import Group
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.storage import cache_folder
from dtdg_lab.partition.base import without_empty_parts
from dtdg_lab.partition.child_process import needs_library
from dtdg_lab.partition.metis import UnionGraph, cut_union, restricted, union_graph, vertex_weights
from dtdg_lab.partition.simple import deal, mixed, vertex_loads
from dtdg_lab.records.events import Event
from dtdg_lab.systems.decayed_windows.events import ChunkFacts
from dtdg_lab.systems.decayed_windows.window import WHOLE_CHUNKS, Chunking
from dtdg_lab.training.partition import made_by_first

# Chunk statistics: sizes, and the edges that they cut.


def chunking_event(chunker: str, graph: DynamicGraph, partition: Partition, chunking: Chunking) -> Event:
    """How they were made, and their statistics; costs O(E) for E edges of all snapshots.

    Args:
        chunker: the requested chunker.
        graph: N nodes in T snapshots.
        partition: of these nodes into P parts.
        chunking: chunks of these parts.

    Raises:
        PartitionError: graph, partition and chunking differ in nodes or parts.
    """
    fits = len(partition.owner) == len(chunking.chunk) == graph.num_nodes and partition.parts == chunking.parts
    if not fits:
        raise PartitionError(
            f"a graph of {graph.num_nodes:,} nodes, {partition.parts} parts of {len(partition.owner):,} nodes and "
            f"{chunking!r}: nodes and parts must be equal."
        )
    number = partition.owner.astype(np.int64) * chunking.chunks + chunking.chunk
    sizes = np.bincount(number, minlength=chunking.chunks * chunking.parts)
    edges = cut = 0
    for snapshot in graph.snapshots:
        targets, sources = snapshot.rows(), snapshot.indices
        within = (partition.owner[targets] == partition.owner[sources]) & (targets != sources)
        edges += int(within.sum())
        cut += int((within & (number[targets] != number[sources])).sum())
    return ChunkFacts(
        chunker=chunker,
        made_by=chunking.made_by,
        chunks=chunking.chunks,
        parts=chunking.parts,
        nodes=len(chunking.chunk),
        sizes=(int(sizes.min()), float(sizes.mean()), int(sizes.max())),
        cut_edges=cut,
        cut_share=cut / edges if edges else 0.0,
        edges=edges,
        seconds=chunking.seconds,
        note=chunking.note,
    )


# Chunk files.


FORMAT = "dtdg-lab chunks 1"


def save_chunks(chunking: Chunking, file: Path) -> None:
    """Write chunks to a file atomically; an existing file is replaced.

    Raises:
        DataError: it cannot be written.
    """
    arrays = {
        "format": np.array(FORMAT),
        "chunk": chunking.chunk,
        "chunks": np.array(chunking.chunks),
        "parts": np.array(chunking.parts),
        "made_by": np.array(chunking.made_by),
        "seconds": np.array(float(chunking.seconds)),
    }
    try:
        write_arrays(file, arrays)
    except OSError as error:
        raise DataError(f"cannot write the chunks to {file}: {explain(error, file)}") from error


def load_chunks(file: Path, nodes: int, *, chunks: int, parts: int) -> Chunking:
    """Read what :func:`save_chunks` wrote.

    Args:
        file: the path.
        nodes: expected N.
        chunks: expected C per part.
        parts: expected P.

    Raises:
        DataError: the file is missing, damaged, or of other chunks.
    """
    with reading(file, remedy="", damaged="is not a valid file of chunks", is_missing_damage=True):
        try:
            found = read_arrays(file)
            if str(found["format"]) != FORMAT:
                raise ValueError(f"its format is {str(found['format'])[:40]!r}, not {FORMAT!r}")
            made = Chunking(
                found["chunk"],
                int(found["chunks"]),
                int(found["parts"]),
                str(found["made_by"]),
                float(found["seconds"]),
            )
        except PlanError as error:
            raise DataError(f"{file} is not a valid file of chunks: {error}") from error
    if (len(made.chunk), made.chunks, made.parts) != (nodes, chunks, parts):
        raise DataError(f"{file} contains {made!r}, not {chunks} chunks in each of {parts} parts of {nodes:,} nodes.")
    return made


# increase it when a chunker changes its output, so that older chunks are not taken from the cache
CHUNKS_VERSION = 1
IMBALANCE = 0.03  # of METIS: maximum relative excess of a part's heaviest chunk over the mean


def make_chunks(name: str, graph: DynamicGraph, partition: Partition, chunks: int, *, seed: int) -> Chunking:
    """Divide the nodes of every part into chunks; a node keeps its chunk in all snapshots.

    ``metis`` cuts each part's share of the union graph so that the cut edges occur in few snapshots, into chunks of
    similar weight (see :func:`dtdg_lab.partition.metis.vertex_weights`), in a child process. ``hash`` assigns nodes
    by a mixed index. ``load_aware`` assigns them by in-degree over all snapshots, heaviest first, in serpentine order.
    If METIS is missing or fails, the chunks are those of ``hash``, and ``note`` gives the reason.
    Chunks are cached by graph, partition and arguments. If several processes request them at once, the first makes
    them and the others wait. Chunks of a fallback are not cached.

    Args:
        name: ``metis``, ``hash`` or ``load_aware``.
        graph: N nodes in T snapshots.
        partition: of these nodes into P parts.
        chunks: C, per part; at most the nodes of the smallest part.
        seed: for randomised chunkers.

    Returns:
        The chunks; ``seconds`` is the time of making them, also if they come from the cache.

    Raises:
        UnknownNameError: the chunker is unknown.
        PartitionError: a part has fewer nodes than chunks, or the partition is of another graph.

    References: FlareDTDG sections 3.2 and 3.3 (METIS on the union graph; parts first, then chunks within).
    """
    if name not in CHUNKERS:
        raise UnknownNameError("chunker", name, CHUNKERS)
    _check(graph, partition, chunks)
    file = _cache_file(name, graph, partition, chunks, seed)
    with one_at_a_time(file):
        with contextlib.suppress(DataError):  # not cached yet, or damaged: make them again
            return load_chunks(file, graph.num_nodes, chunks=chunks, parts=partition.parts)
        made = _made(name, graph, partition, chunks, seed)
        if not made.note:
            with contextlib.suppress(DataError):  # failing to write the cache is not an error
                save_chunks(made, file)
    return made


def _check(graph: DynamicGraph, partition: Partition, chunks: int) -> None:
    if len(partition.owner) != graph.num_nodes:
        raise PartitionError(
            f"the partition has {len(partition.owner):,} nodes, and {graph.name!r} has {graph.num_nodes:,}. Make "
            "a partition of this graph."
        )
    if chunks < 1:
        raise PartitionError(f"{chunks} chunks per part: at least 1 is needed.")
    smallest = int(partition.counts.argmin())
    vertices = int(partition.counts[smallest])
    if chunks > vertices:
        raise PartitionError(
            f"{chunks:,} chunks of part {smallest}, which has {vertices:,} of the {graph.num_nodes:,} nodes of "
            f"{graph.name!r}: every chunk needs at least one. Set chunks to {vertices:,} or fewer, or use fewer parts."
        )


def _made(name: str, graph: DynamicGraph, partition: Partition, chunks: int, seed: int) -> Chunking:
    note, made_by = "", f"{name} (seed {seed})" if name in SEEDED else name
    start = time.perf_counter()
    try:
        chunk = CHUNKERS[name](graph, partition, chunks, seed)
    except (NotAvailableError, PartitionError) as error:
        note = f"chunker {name} failed, so chunks were assigned by hash: {error}"
        made_by = f"hash (seed {seed}), in place of {name}"
        chunk = _by_hash(graph, partition, chunks, seed)
    return Chunking(chunk, chunks, partition.parts, made_by, time.perf_counter() - start, note)


def _by_metis(graph: DynamicGraph, partition: Partition, chunks: int, seed: int) -> NDArray[np.int32]:
    needs_library("pymetis")
    union, weights = union_graph(graph.snapshots), vertex_weights(graph)

    def cut(part: int, own: NDArray[np.int64]) -> NDArray[np.int32]:
        inner: UnionGraph = union if partition.parts == 1 else restricted(union, own)
        solver_seed = key(seed, "partition/chunks", part) & 0x7FFFFFFF
        return cut_union(inner, weights[own], chunks, seed=solver_seed, imbalance=IMBALANCE).owner

    return _part_by_part(partition, cut)


def _by_hash(graph: DynamicGraph, partition: Partition, chunks: int, seed: int) -> NDArray[np.int32]:
    numbers = mixed(np.arange(graph.num_nodes), key(seed, "partition/chunks-hash")) % np.uint64(chunks)

    def own_numbers(part: int, own: NDArray[np.int64]) -> NDArray[np.int32]:
        return without_empty_parts(numbers[own], chunks, np.zeros(len(own))).owner

    return _part_by_part(partition, own_numbers)


def _by_load(graph: DynamicGraph, partition: Partition, chunks: int, seed: int) -> NDArray[np.int32]:
    loads = vertex_loads(graph, 1)
    return _part_by_part(partition, lambda part, own: deal(loads[own], chunks))


def _part_by_part(
    partition: Partition, give: Callable[[int, NDArray[np.int64]], NDArray[np.int32]]
) -> NDArray[np.int32]:
    """(N,) results of ``give(part, its nodes)`` for each node."""
    chunk = np.empty(len(partition.owner), np.int32)
    for part in range(partition.parts):
        own = partition.vertices(part)
        chunk[own] = give(part, own)
    return chunk


CHUNKERS = {"metis": _by_metis, "hash": _by_hash, "load_aware": _by_load}
SEEDED = ("metis", "hash")


def _cache_file(name: str, graph: DynamicGraph, partition: Partition, chunks: int, seed: int) -> Path:
    owner = hashlib.sha256(partition.owner.tobytes()).hexdigest()
    asked = {
        "version": CHUNKS_VERSION,
        "graph": graph.data_hash,
        "name": name,
        "owner": owner,
        "parts": partition.parts,
        "chunks": chunks,
        "seed": seed if name in SEEDED else None,
    }
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]
    return cache_folder() / "chunks" / f"{digest}.npz"


# The chunks of a run's parts: made on rank 0, broadcast to all ranks, and logged as an event.


MOST_CHUNKS, LEAST_VERTICES = 128, 4  # of a part, and of a chunk, where their number is left open


def shared_chunks(config: RunConfig, graph: DynamicGraph, partition: Partition, group: Group) -> Chunking:
    """The chunks that a config asks for, the same on every rank; collective.

    Raises:
        PartitionError: they could not be made; every rank raises it with rank 0's reason.
    """
    parts = partition.parts
    if "chunks" not in config.options["batching"]:  # snapshots are always full: one chunk a part
        return Chunking(np.zeros(graph.num_nodes, np.int32), WHOLE_CHUNKS, parts, "the whole part")

    def make() -> tuple[Chunking, dict[str, Any]]:
        chunks = config["chunks"] or fitting_chunks(partition)
        made = make_chunks(config["chunker"], graph, partition, chunks, seed=config.seed)
        return made, {"chunks": chunks, "made_by": made.made_by, "seconds": made.seconds, "note": made.note}

    made, described = made_by_first(group, make, f"chunker {config['chunker']!r} with chunks={config['chunks']}")
    chunk = group.broadcast_array(None if made is None else made.chunk)
    return Chunking(chunk, described["chunks"], parts, described["made_by"], described["seconds"], described["note"])


def fitting_chunks(partition: Partition) -> int:
    """Chunks of a part where their number is left open: 128, or fewer where a chunk would have under 4 nodes."""
    return max(1, min(MOST_CHUNKS, int(partition.counts.min()) // LEAST_VERTICES))
