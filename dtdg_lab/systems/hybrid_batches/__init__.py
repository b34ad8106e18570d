"""DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

from __future__ import annotations

from dtdg_lab.systems.base import SystemFamily


class HybridBatchesFamily(SystemFamily):
    """DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

    name = "hybrid_batches"


FAMILY = HybridBatchesFamily()
