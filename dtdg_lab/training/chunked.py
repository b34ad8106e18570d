"""The chunks of a run's parts: made on rank 0, known to all ranks, and told as an event."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dtdg_lab.batching.trapezoid import WHOLE_CHUNKS
from dtdg_lab.comm.group import Group
from dtdg_lab.core.batch_plans import Chunking
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError, PartitionError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.chunk_facts import chunk_facts, told_chunks
from dtdg_lab.partition.chunks import make_chunks

MOST_CHUNKS, LEAST_VERTICES = 128, 4  # of a part, and of a chunk, where their number is left open


def shared_chunks(config: RunConfig, graph: DynamicGraph, partition: Partition, group: Group) -> Chunking:
    """The chunks that a config asks for, the same on every rank; collective.

    Raises:
        PartitionError: they could not be made; every rank raises it with rank 0's reason.
    """
    parts = partition.parts
    if "chunks" not in config.options["batching"]:  # snapshots are always full: one chunk a part
        return Chunking(np.zeros(graph.num_nodes, np.int32), WHOLE_CHUNKS, parts, "the whole part")
    made: Chunking | None = None
    told: dict[str, Any] = {}
    if group.rank == 0:
        try:
            chunks = config["chunks"] or fitting_chunks(partition)
            made = make_chunks(config["chunker"], graph, partition, chunks, seed=config.seed)
            told = {"chunks": chunks, "made_by": made.made_by, "seconds": made.seconds, "note": made.note}
        except Exception as error:  # whatever it is, the other ranks wait for an answer
            reason = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
            told = {"reason": f"chunker {config['chunker']!r} with chunks={config['chunks']}: {reason}"}
    told = json.loads(group.broadcast_text(json.dumps(told)))
    if "reason" in told:
        raise PartitionError(told["reason"])
    chunk = group.broadcast_array(None if made is None else made.chunk)
    return Chunking(chunk, told["chunks"], parts, told["made_by"], told["seconds"], told["note"])


def fitting_chunks(partition: Partition) -> int:
    """Chunks of a part where their number is left open: 128, or fewer where a chunk would have under 4 vertices."""
    return max(1, min(MOST_CHUNKS, int(partition.counts.min()) // LEAST_VERTICES))


def told_chunking(config: RunConfig, graph: DynamicGraph, partition: Partition, chunking: Chunking) -> dict[str, Any]:
    """What an event says of the chunks."""
    return told_chunks(config["chunker"], chunking, chunk_facts(graph, partition, chunking))
