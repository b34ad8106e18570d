"""A partition that was saved before."""

from __future__ import annotations

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.assigned import Assigned
from dtdg_lab.partition.store import load_partition

READS = ("partition_file",)


def assign(
    graph: DynamicGraph,
    parts: int,
    *,
    hops: int = 1,
    seed: int = 0,
    dealing: str = "boustrophedon",
    imbalance: float = 0.03,
    partition_file: str = "",
) -> Assigned:
    """Read the owners from a file, which must be for this graph and for P parts.

    Args:
        graph: N vertices.
        parts: P, those of the file.
        hops: not read.
        seed: not read.
        dealing: not read.
        imbalance: not read.
        partition_file: what ``save`` of a partition wrote.

    Raises:
        ConfigError: no file is given.
        DataError: the file is missing or damaged.
        PartitionError: it is for another graph, or for another number of parts.
    """
    if not partition_file:
        raise ConfigError(
            "partitioner 'file' needs partition_file, and none is given. Set it to a file that .save(path) of a "
            "partition wrote, or choose another partitioner."
        )
    partition = load_partition(partition_file, graph, parts)
    return Assigned(partition.owner, partition.groups, f"made by {partition.made_by}" if partition.made_by else "")
