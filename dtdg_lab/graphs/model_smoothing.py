"""What models ask to be done to snapshots before they are trained on, given snapshots that are not smoothed yet.

Data sets are loaded smoothed (options ``edge_life`` and ``smoothing_window``); here one graph is smoothed several ways
to be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dtdg_lab.graphs.sliding import SlidingEdges
from dtdg_lab.graphs.smoothing import GraphSmoother
from dtdg_lab.graphs.snapshot import Snapshot, edge_keys, finite_weights, snapshot_of_rows


def lived(snapshots: Sequence[Snapshot], edge_life: int) -> Iterator[Snapshot]:
    """The sum of the last ``edge_life`` snapshots, at each of them; fewer at the beginning, as there are fewer.

    Where edges carry no weight the sum is the union: an edge that is alive counts once, as in the lab's data sets.

    References: ESDG section 5.4 (EvolveGCN).
    """
    weighted = snapshots[0].weights is not None
    alive = SlidingEdges(snapshots[0].num_nodes, edge_life, weighted=weighted)
    for snapshot in snapshots:
        alive.push(edge_keys(snapshot), snapshot.weights)
        weights = finite_weights(alive.sums()) if weighted else None
        yield snapshot_of_rows(alive.in_degree, alive.keys, weights)


def averaged(snapshots: Sequence[Snapshot], window: int) -> Iterator[Snapshot]:
    """The mean of the last ``window`` snapshots, at each of them; see :mod:`dtdg_lab.graphs.smoothing`.

    References: ESDG section 5.4 (TM-GCN).
    """
    smoother = GraphSmoother(snapshots[0].num_nodes, window, weighted=snapshots[0].weights is not None)
    for snapshot in snapshots:
        yield smoother.push(snapshot)
