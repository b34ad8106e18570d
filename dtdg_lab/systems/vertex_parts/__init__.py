"""ADGNN-T and PyGT-Dist: full batches over node partitions, with a halo exchange or with replicated neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from dtdg_lab.core.catalogue import system
from dtdg_lab.systems.base import GRADIENTS, SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.core.catalogue import System
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.systems.base import StudyPreset
    from dtdg_lab.systems.workload import EpochWork, Facts
    from dtdg_lab.visualization.charts import Panel


class VertexPartsFamily(SystemFamily):
    """ADGNN-T and PyGT-Dist: full batches over node partitions, with a halo exchange or with replicated neighbours."""

    name = "vertex_parts"
    card_views = ("partition", "blocks")
    calibrated = MappingProxyType({"pygt-dist": {}})
    predicted = MappingProxyType({"adgnn-t": False, "pygt-dist": False})
    curves_of = MappingProxyType({"adgnn-t": ("halo rows, metis",), "pygt-dist": (GRADIENTS,)})
    full_batch = ("halo_vertex", "cached_vertex")

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.vertex_parts.workload import cached_work, halo_work

        return (halo_work if facts.layout == "halo_vertex" else cached_work)(facts)

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, with their factors."""
        return (("blocks", 2.0),) if "blocks" in config.flat else ()

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.vertex_parts.strategy import build_halo, build_replicated

        builds = {"halo_vertex": build_halo, "cached_vertex": build_replicated}
        return builds[system(context.config.system).parts["parallel"]](context)

    def studies(self) -> Sequence[StudyPreset]:
        """Its shipped studies."""
        from dtdg_lab.systems.vertex_parts.study import PARTITIONERS

        return (PARTITIONERS,)

    def pictures(self, system: System, graph: DynamicGraph) -> list[Panel]:
        """Pictures on the cards of its systems."""
        from dtdg_lab.systems.vertex_parts.pictures import vertex_pictures

        return vertex_pictures(system, graph)


FAMILY = VertexPartsFamily()
