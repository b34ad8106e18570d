"""What chunks are like: how large, and how many edges they part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdg_lab.core.batch_plans import Chunking
from dtdg_lab.core.errors import PartitionError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.dynamic_graph import DynamicGraph


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """Sizes and cut of the chunks of a graph.

    Attributes:
        sizes: vertices of the smallest chunk, of the mean one, of the largest.
        edges: within parts, over all snapshots; loops do not count.
        cut_edges: those of them that join two chunks.
    """

    sizes: tuple[int, float, int]
    edges: int
    cut_edges: int

    @property
    def cut_share(self) -> float:
        """The share of edges within parts that join two chunks; 0 where there are none."""
        return self.cut_edges / self.edges if self.edges else 0.0


def chunk_facts(graph: DynamicGraph, partition: Partition, chunking: Chunking) -> ChunkFacts:
    """Measure the chunks of a partition's parts, over all snapshots; costs O(E) for E edges of them together.

    Args:
        graph: N vertices in T snapshots.
        partition: of these vertices into P parts.
        chunking: chunks of these parts.

    Raises:
        PartitionError: they are of different vertices or parts.
    """
    fits = len(partition.owner) == len(chunking.chunk) == graph.num_nodes and partition.parts == chunking.parts
    if not fits:
        raise PartitionError(
            f"a graph of {graph.num_nodes:,} vertices, {partition.parts} parts of {len(partition.owner):,} and "
            f"{chunking!r}: they must be of the same vertices and parts."
        )
    number = partition.owner.astype(np.int64) * chunking.chunks + chunking.chunk
    sizes = np.bincount(number, minlength=chunking.chunks * chunking.parts)
    edges = cut = 0
    for snapshot in graph.snapshots:
        targets, sources = snapshot.rows(), snapshot.indices
        within = (partition.owner[targets] == partition.owner[sources]) & (targets != sources)
        edges += int(within.sum())
        cut += int((within & (number[targets] != number[sources])).sum())
    return ChunkFacts((int(sizes.min()), float(sizes.mean()), int(sizes.max())), edges, cut)


def told_chunks(chunker: str, chunking: Chunking, facts: ChunkFacts) -> dict[str, Any]:
    """What an event says of the chunks of a run.

    Args:
        chunker: the one that was asked for.
        chunking: what was made.
        facts: what it is like.
    """
    return {
        "chunker": chunker, "made_by": chunking.made_by, "chunks": chunking.chunks, "parts": chunking.parts,
        "nodes": len(chunking.chunk), "sizes": list(facts.sizes), "cut_edges": facts.cut_edges,
        "cut_share": facts.cut_share, "edges": facts.edges, "seconds": chunking.seconds, "note": chunking.note,
    }  # fmt: skip
