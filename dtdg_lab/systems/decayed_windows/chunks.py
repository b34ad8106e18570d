"""Chunks of each part's nodes, the units that decayed snapshots keep or drop; cached."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError, NotAvailableError, PartitionError, PlanError, UnknownNameError
from dtdg_lab.core.files import read_arrays, write_arrays
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.rng import key
from dtdg_lab.core.system_errors import reading
from dtdg_lab.datasets.download import one_at_a_time
from dtdg_lab.distributed.group import Group
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.storage import cache_folder
from dtdg_lab.partition.base import without_empty_parts
from dtdg_lab.partition.child_process import needs_library
from dtdg_lab.partition.metis import cut_union, restricted, union_graph, vertex_weights
from dtdg_lab.partition.simple import deal, mixed, vertex_loads
from dtdg_lab.records.events import Event
from dtdg_lab.systems.decayed_windows.events import ChunkFacts
from dtdg_lab.systems.decayed_windows.window import WHOLE_CHUNKS, fitting_chunks
from dtdg_lab.training.partition import made_by_first

IMBALANCE = 0.03  # of METIS: maximum relative excess of a part's heaviest chunk over the mean
CHUNKS_VERSION = 1  # increase it when a chunker changes its output, so that older chunks are not taken from the cache


@dataclass(frozen=True, slots=True, eq=False)
class Chunking:
    """The chunk of each node within its part, the same in all snapshots.

    Attributes:
        chunk: (N,) int32, 0 to C - 1.
        chunks: C, chunks per part.
        parts: P.
        made_by: the chunker with its settings, as text.
        seconds: time of making the chunks.
        note: remark for the user, such as a fallback to another chunker; may be empty.

    Raises:
        PlanError: a chunk number is out of range.
    """

    chunk: NDArray[np.int32]
    chunks: int
    parts: int
    made_by: str = ""
    seconds: float = 0.0
    note: str = ""

    def __post_init__(self) -> None:
        chunk = np.array(self.chunk, np.int32)
        if chunk.min() < 0 or chunk.max() >= self.chunks:
            raise PlanError(
                f"a part's chunks are numbered 0 to {self.chunks - 1}, but given {chunk.min()} to {chunk.max()}."
            )
        chunk.setflags(write=False)
        object.__setattr__(self, "chunk", chunk)

    def __repr__(self) -> str:
        made_by = self.made_by or "manual assignment"
        return f"Chunking({len(self.chunk):,} nodes, {self.chunks} chunks in each of {self.parts} parts by {made_by})"


def chunking_event(chunker: str, graph: DynamicGraph, partition: Partition, chunking: Chunking) -> Event:
    """Return the event that describes the chunks; costs O(E) for the E edges of all snapshots.

    Args:
        chunker: the requested chunker.
        graph: N nodes in T snapshots.
        partition: of the nodes into P parts.
        chunking: the chunks of these parts.
    """
    numbers = partition.owner.astype(np.int64) * chunking.chunks + chunking.chunk
    sizes = np.bincount(numbers, minlength=chunking.chunks * chunking.parts)
    edges = cut = 0
    for snapshot in graph.snapshots:
        targets, sources = snapshot.rows(), snapshot.indices
        within = (partition.owner[targets] == partition.owner[sources]) & (targets != sources)
        edges += int(within.sum())
        cut += int((within & (numbers[targets] != numbers[sources])).sum())
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
        PartitionError: a part has fewer nodes than chunks.

    References: FlareDTDG sections 3.2 and 3.3 (METIS on the union graph; parts first, then chunks within).
    """
    if name not in CHUNKERS:
        raise UnknownNameError("chunker", name, CHUNKERS)
    smallest = int(partition.counts.argmin())
    nodes = int(partition.counts[smallest])
    if not 1 <= chunks <= nodes:
        raise PartitionError(
            f"chunks={chunks:,} is out of range: part {smallest} has {nodes:,} of the {graph.num_nodes:,} nodes of "
            f"{graph.name!r}, and every chunk needs at least one. Set chunks to {nodes:,} or fewer, or use fewer parts."
        )
    file = _cache_file(name, graph, partition, chunks, seed)
    with one_at_a_time(file):
        with contextlib.suppress(DataError, PlanError):  # not cached yet, or damaged: make them again
            return _read_chunks(file, graph.num_nodes, chunks, partition.parts)
        chunking = _run_chunker(name, graph, partition, chunks, seed)
        if not chunking.note:
            with contextlib.suppress(OSError):  # failing to write the cache is not an error
                _write_chunks(file, chunking)
    return chunking


def _run_chunker(name: str, graph: DynamicGraph, partition: Partition, chunks: int, seed: int) -> Chunking:
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

    def cut(part: int, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
        part_graph = union if partition.parts == 1 else restricted(union, nodes)
        solver_seed = key(seed, "partition/chunks", part) & 0x7FFFFFFF
        return cut_union(part_graph, weights[nodes], chunks, seed=solver_seed, imbalance=IMBALANCE).owner

    return _for_each_part(partition, cut)


def _by_hash(graph: DynamicGraph, partition: Partition, chunks: int, seed: int) -> NDArray[np.int32]:
    numbers = mixed(np.arange(graph.num_nodes), key(seed, "partition/chunks-hash")) % np.uint64(chunks)
    return _for_each_part(
        partition, lambda part, nodes: without_empty_parts(numbers[nodes], chunks, np.zeros(len(nodes))).owner
    )


def _by_load(graph: DynamicGraph, partition: Partition, chunks: int, seed: int) -> NDArray[np.int32]:
    loads = vertex_loads(graph, 1)
    return _for_each_part(partition, lambda part, nodes: deal(loads[nodes], chunks))


def _for_each_part(
    partition: Partition, assign: Callable[[int, NDArray[np.int64]], NDArray[np.int32]]
) -> NDArray[np.int32]:
    """Return the (N,) results of ``assign(part, its nodes)`` for each node."""
    chunk = np.empty(len(partition.owner), np.int32)
    for part in range(partition.parts):
        nodes = partition.vertices(part)
        chunk[nodes] = assign(part, nodes)
    return chunk


CHUNKERS = {"metis": _by_metis, "hash": _by_hash, "load_aware": _by_load}
SEEDED = ("metis", "hash")

# Chunk files in the cache.


FORMAT = "dtdg-lab chunks 1"


def _cache_file(name: str, graph: DynamicGraph, partition: Partition, chunks: int, seed: int) -> Path:
    identity = {
        "version": CHUNKS_VERSION,
        "graph": graph.data_hash,
        "name": name,
        "owner": hashlib.sha256(partition.owner.tobytes()).hexdigest(),
        "parts": partition.parts,
        "chunks": chunks,
        "seed": seed if name in SEEDED else None,
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    return cache_folder() / "chunks" / f"{digest}.npz"


def _write_chunks(file: Path, chunking: Chunking) -> None:
    numbers = {"chunks": chunking.chunks, "parts": chunking.parts, "seconds": float(chunking.seconds)}
    texts = {"format": FORMAT, "made_by": chunking.made_by}
    write_arrays(
        file, {"chunk": chunking.chunk, **{name: np.array(value) for name, value in (numbers | texts).items()}}
    )


def _read_chunks(file: Path, nodes: int, chunks: int, parts: int) -> Chunking:
    """Read what :func:`_write_chunks` wrote.

    Raises:
        DataError: the file is missing, damaged, or of other chunks.
    """
    with reading(file, remedy="", is_missing_damage=True):
        arrays = read_arrays(file)
        stored = (str(arrays["format"]), len(arrays["chunk"]), int(arrays["chunks"]), int(arrays["parts"]))
        if stored != (FORMAT, nodes, chunks, parts):
            raise ValueError(f"it holds other chunks: {stored}")
        return Chunking(arrays["chunk"], chunks, parts, str(arrays["made_by"]), float(arrays["seconds"]))


# The chunks of a run's parts.


def shared_chunks(config: RunConfig, graph: DynamicGraph, partition: Partition, group: Group) -> Chunking:
    """Make a config's chunks on rank 0 and broadcast them; collective.

    Raises:
        PartitionError: the chunks could not be made; every rank raises it with rank 0's reason.
    """
    parts = partition.parts
    if "chunks" not in config.options["batching"]:  # snapshots are always full: one chunk a part
        return Chunking(np.zeros(graph.num_nodes, np.int32), WHOLE_CHUNKS, parts, "the whole part")

    def make() -> tuple[Chunking, dict[str, Any]]:
        chunks = config["chunks"] or fitting_chunks(partition)
        chunking = make_chunks(config["chunker"], graph, partition, chunks, seed=config.seed)
        names = ("chunks", "made_by", "seconds", "note")
        return chunking, {name: getattr(chunking, name) for name in names}

    chunking, fields = made_by_first(group, make, f"chunker {config['chunker']!r} with chunks={config['chunks']}")
    chunk = group.broadcast_array(None if chunking is None else chunking.chunk)
    return Chunking(chunk, parts=parts, **fields)
