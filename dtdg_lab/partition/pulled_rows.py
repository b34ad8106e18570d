"""Rows that parts of a partition send each other for one pull, snapshot by snapshot."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.halo import remote_rows


def pulled_rows(snapshots: Iterable[Snapshot], partition: Partition, way: str = "in") -> NDArray[np.int64]:
    """Rows that part q sends to part p in each of T snapshots, at [t, q, p]: (T, P, P); none to itself.

    Args:
        snapshots: T of N vertices.
        partition: of the same vertices.
        way: along which edges vertices pull: ``in`` or ``out``.

    Raises:
        PlanError: the partition is of other vertices, or there is no such way.
    """
    parts, found = partition.parts, []
    for snapshot in snapshots:
        to_part, source = remote_rows(snapshot, partition, way)
        pairs = partition.owner[source].astype(np.int64) * parts + to_part
        found.append(np.bincount(pairs, minlength=parts * parts).reshape(parts, parts))
    return np.array(found, np.int64).reshape(-1, parts, parts)
