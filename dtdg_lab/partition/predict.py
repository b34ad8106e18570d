"""Bytes that halo rows will take, from part to part, told before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.model_pulls import Pull
from dtdg_lab.partition.measures import Counts, PartitionMeasures


def predicted_bytes(
    measures: PartitionMeasures, pulls: Sequence[Pull], *, itemsize: int = 4, reuse: bool = False
) -> dict[str, Counts]:
    """Bytes of one pass over the measured snapshots: one step of a full-batch layout that exchanges halo rows.

    Counted is a run in one block. :func:`dtdg_lab.partition.snapshot_volume.between_parts` also counts what blocks of
    time send again. Where a run of DCRNN or EvolveGCN-H in one block would keep more than 2 GiB, each snapshot is
    recomputed (:mod:`dtdg_lab.parallel.stepwise`) and pulled again, which is counted nowhere.

    What a part received forward it sends back as a gradient, so that backward is the transpose of forward for pulls
    whose gradient is wanted. Counted are the rows themselves: no gradients of parameters, and nothing of ``top``, whose
    candidates are gathered and not sent along edges.

    Args:
        measures: of the partition whose parts exchange rows, and of the snapshots trained. Where ranks execute several
            parts each, measure ``partition.on_ranks(R)``.
        pulls: of the model, by :func:`dtdg_lab.core.model_pulls.pulls`.
        itemsize: bytes of a number: 4 for float32, 8 for float64.
        reuse: whether pulls of features alone are kept from an earlier step (option ``halo_reuse``).

    Returns:
        ``forward`` and ``backward``, each (L, P, P) int64: [l, q, p] bytes that part q sends to part p for layer l.

    Raises:
        PlanError: the model pulls a way that was not measured.
    """
    along = [pull for pull in pulls if pull.way != "top"]
    unknown = {pull.way for pull in along} - set(measures.ways)
    if unknown:
        raise PlanError(
            f"the model pulls {', '.join(sorted(unknown))}, and ways={measures.ways} were measured. Measure the "
            "partition with ways=dtdg_lab.core.model_pulls.ways(model)."
        )
    layers = 1 + max(pull.layer for pull in along)
    forward, backward = np.zeros((2, layers, measures.parts, measures.parts), np.int64)
    for pull in along:
        rows = measures.matrix[pull.way]
        if pull.learned or not reuse:
            forward[pull.layer] += rows * (pull.width * itemsize)
        if pull.learned:
            returned = rows if pull.at_first else rows - measures.first_matrix[pull.way]
            backward[pull.layer] += returned.T * (pull.width * itemsize)
    return {"forward": forward, "backward": backward}
