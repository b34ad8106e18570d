"""Which chunks survive longest in decayed snapshots: shuffled once an epoch, each part's on its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.batch_plans import Chunking, SurvivalOrder
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.streams import generator


def survival_order(
    owner: NDArray[np.int32], chunking: Chunking, parts: range, *, seed: int, epoch: int
) -> SurvivalOrder:
    """The vertices of some parts, those of the chunks that survive longest first.

    A part's chunks are shuffled by a stream of its own: whichever other parts a rank has, the same survive.

    Args:
        owner: (N,) the part of each vertex.
        chunking: of these vertices, in parts of this partition.
        parts: consecutive ones, such as those of a rank.
        seed: of the run.
        epoch: whose order is asked for.

    Raises:
        PlanError: the chunking is of other vertices, a part is none of its parts, or a chunk of one is empty.

    References: FlareDTDG section 3.3 (steps 1 and 2 of figure 4).
    Differs from the paper: each part has a shuffle of its own, so that its processes need not know of each other.
    """
    if chunking.chunk.shape != owner.shape or not parts or parts.step != 1:
        raise PlanError(
            f"{len(chunking.chunk)} vertices in chunks and {len(owner)} in parts, {len(parts)} of them asked for: the "
            "same vertices and at least one part are needed."
        )
    if parts.start < 0 or parts.stop > chunking.parts:
        raise PlanError(f"parts {parts.start} to {parts.stop - 1}: they are numbered 0 to {chunking.parts - 1}.")
    chunks = chunking.chunks
    place = np.empty((len(parts), chunks), np.int64)
    for row, part in zip(place, parts, strict=True):
        row[generator(seed, "batching/survival", epoch, part).permutation(chunks)] = np.arange(chunks)
    own = np.flatnonzero((owner >= parts.start) & (owner < parts.stop))
    seat = owner[own] - np.int32(parts.start)
    key = place[seat, chunking.chunk[own]] * len(parts) + seat
    sizes = np.bincount(key, minlength=chunks * len(parts))
    if not sizes.all():
        first = int(np.flatnonzero(sizes == 0)[0]) % len(parts) + parts.start
        raise PlanError(f"a chunk of part {first} holds no vertex: chunks of another partition? Make them of this one.")
    order = np.argsort(key.astype(np.uint16) if len(sizes) <= 1 << 16 else key, kind="stable")  # 16 bits: radix sort
    rows = np.concatenate([[0], np.cumsum(sizes.reshape(chunks, len(parts)).sum(axis=1))])
    return SurvivalOrder(own[order], owner[own][order], rows)
