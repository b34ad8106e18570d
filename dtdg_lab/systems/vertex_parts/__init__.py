"""ADGNN-T and PyGT-Dist: full batches over node partitions, with a halo exchange or with replicated neighbours."""

from __future__ import annotations

from dtdg_lab.systems.base import SystemFamily


class VertexPartsFamily(SystemFamily):
    """ADGNN-T and PyGT-Dist: full batches over node partitions, with a halo exchange or with replicated neighbours."""

    name = "vertex_parts"


FAMILY = VertexPartsFamily()
