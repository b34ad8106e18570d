"""DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from dtdg_lab.systems.base import GRADIENTS, SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.systems.workload import EpochWork, Facts


class HybridBatchesFamily(SystemFamily):
    """DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

    name = "hybrid_batches"
    calibrated = MappingProxyType({"dbov": {}})
    curves_of = MappingProxyType(dict.fromkeys(("dbov", "dbos", "bvr"), (GRADIENTS,)))

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.hybrid_batches.workload import hybrid_work

        return hybrid_work(facts)

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, with their factors."""
        return (("batch_vertices", 0.5), ("batch_snapshots", 0.5)) if config["adjuster"] == "none" else ()


FAMILY = HybridBatchesFamily()
