"""``lab.echo``: a model hears one vertex's features change at one snapshot; who notices, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.runs.open import StoredRun
from dtdg_lab.runs.trace import Trace, check_vertex, trace

if TYPE_CHECKING:
    import pandas as pd

HEARD = 1e-6  # a smaller change of a hidden number, relative to the largest one, counts as rounding


@dataclass(frozen=True, slots=True, eq=False)
class Echo:
    """How a model's hidden state differs because one vertex's features were changed at one snapshot.

    Attributes:
        model: its name.
        vertex: whose features were changed.
        snapshot: when.
        change: shape (T, N): the largest difference of a hidden number of every vertex, from the unchanged sequence.
        distance: shape (N,): edges between each vertex and ``vertex`` in that snapshot, either way; -1 where there is
            no path.
    """

    model: str
    vertex: int
    snapshot: int
    change: NDArray[np.float32]
    distance: NDArray[np.int64]

    @property
    def heard(self) -> NDArray[np.bool_]:
        """Which vertices hold something else than without the change, shape (T, N)."""
        return self.change > HEARD * max(float(self.change.max()), 1e-30)

    @property
    def hops(self) -> int:
        """The largest distance of a vertex that hears the change in the snapshot it is made in."""
        at_once = self.distance[self.heard[self.snapshot]]
        return int(at_once.max(initial=0))

    @property
    def lasts(self) -> int:
        """Snapshots, that of the change included, until nobody holds anything of it; up to the end of the graph."""
        some = np.flatnonzero(self.heard.any(axis=1))
        return int(some[-1]) - self.snapshot + 1 if len(some) else 0

    def listeners(self, later: int = 0) -> int:
        """How many vertices hold something of the change ``later`` snapshots after it.

        Raises:
            ConfigError: the graph ends before.
        """
        at = self.snapshot + later
        if later < 0 or at >= len(self.change):
            raise ConfigError(f"later={later}: 0 to {len(self.change) - 1 - self.snapshot} are left after the change.")
        return int(self.heard[at].sum())

    def table(self) -> pd.DataFrame:
        """By snapshots since the change: how many vertices hear it, and how loud it is where it is loudest."""
        import pandas as pd

        heard, change = self.heard[self.snapshot :], self.change[self.snapshot :]
        index = pd.RangeIndex(len(heard), name="snapshots later")
        return pd.DataFrame({"vertices that hear it": heard.sum(axis=1), "largest change": change.max(axis=1)}, index)


def echo(run: StoredRun, *, vertex: int, snapshot: int, amount: float = 1.0, unchanged: Trace | None = None) -> Echo:
    """Add ``amount`` to all features of one vertex at one snapshot, and compare what the run's model then holds.

    Edges and labels stay as they are. The model is run in this process, which imports torch.

    Args:
        run: a run that has a checkpoint.
        vertex: whose features are changed.
        snapshot: when.
        amount: what is added.
        unchanged: the trace of the run, where it is there already.

    Raises:
        ConfigError: there is no such vertex or snapshot.
        LabError: the run has no checkpoint, or its data set cannot be loaded.
    """
    unchanged = trace(run) if unchanged is None else unchanged
    graph = unchanged.graph
    check_vertex(graph, vertex)
    if not 0 <= snapshot < graph.num_snapshots:
        raise ConfigError(f"snapshot={snapshot}: {graph.name!r} has snapshots 0 to {graph.num_snapshots - 1}.")
    changed = trace(run, graph=_with_change(graph, vertex, snapshot, amount))
    difference = np.abs(changed.hidden - unchanged.hidden).max(axis=2)
    return Echo(unchanged.model, vertex, snapshot, difference, _distances(graph.snapshots[snapshot], vertex))


def _with_change(graph: DynamicGraph, vertex: int, snapshot: int, amount: float) -> DynamicGraph:
    features = np.array(graph.features)
    features[snapshot, vertex] += amount
    return replace(graph, features=features)


def _distances(snapshot: Snapshot, vertex: int) -> NDArray[np.int64]:
    """Edges from a vertex to every other, whatever their direction; -1 where there is no path."""
    distance = np.full(snapshot.num_nodes, -1)
    distance[vertex] = 0
    rows, sources = snapshot.rows(), snapshot.indices
    for steps in range(1, snapshot.num_nodes):
        edge = distance == steps - 1
        near = np.zeros(snapshot.num_nodes, dtype=bool)
        near[rows[edge[sources]]] = True
        near[sources[edge[rows]]] = True
        fresh = near & (distance < 0)
        if not fresh.any():
            break
        distance[fresh] = steps
    return distance
