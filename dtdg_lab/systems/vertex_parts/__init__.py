"""ADGNN-T and PyGT-Dist: full batches over node partitions, with a halo exchange or with replicated neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.catalogue import system
from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.engine.strategy import BuildContext, Strategy


class VertexPartsFamily(SystemFamily):
    """ADGNN-T and PyGT-Dist: full batches over node partitions, with a halo exchange or with replicated neighbours."""

    name = "vertex_parts"

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.vertex_parts.strategy import build_halo, build_replicated

        builds = {"halo_vertex": build_halo, "cached_vertex": build_replicated}
        return builds[system(context.config.system).parts["parallel"]](context)


FAMILY = VertexPartsFamily()
