"""Training in one process, the reference of all systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.core.catalogue import System
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.systems.workload import EpochWork, Facts
    from dtdg_lab.visualization.charts import Panel
    from dtdg_lab.visualization.run_view import RunView, SharedViews


class SingleFamily(SystemFamily):
    """Training in one process, the reference of all systems."""

    name = "single"

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse more than one rank or part."""
        if (settings["ranks"], settings["parts"]) != (1, 1):
            raise UnsupportedError(
                f"a system of one process needs one rank and one part, but ranks={settings['ranks']}, "
                f"parts={settings['parts']}. Set ranks=1 and parts=1, or choose system='psg'."
            )

    def views(self, config: RunConfig, shared: SharedViews) -> Sequence[RunView]:
        """The profile of shared products."""
        from dtdg_lab.systems.single.charts import OverlapView

        return [OverlapView()]

    def pictures(self, system: System, graph: DynamicGraph) -> list[Panel]:
        """The edges of the one batch."""
        from dtdg_lab.visualization.charts import stacked_panel

        edges = [snapshot.num_edges for snapshot in graph.snapshots]
        return [
            stacked_panel(
                "Full batch: one step takes everything",
                ("snapshot", "edges"),
                {"edges": edges},
                words=(
                    f"All {graph.num_snapshots} snapshots of {graph.num_nodes} nodes, {sum(edges):,} edges, in one "
                    "batch. The other systems use smaller batches, or distribute this one."
                ),
            )
        ]

    def workload(self, facts: Facts) -> EpochWork:
        """One step of all snapshots on one rank."""
        import numpy as np

        from dtdg_lab.systems.workload import EXACT, plain_work

        edges, many = np.array([facts.edges.sum()], float), len(facts.train)
        rows = np.array([many * facts.graph.num_nodes], float)
        return plain_work(facts, steps=1, edges=edges, rows=rows, snapshots=float(many), exact=frozenset(EXACT))


FAMILY = SingleFamily()
