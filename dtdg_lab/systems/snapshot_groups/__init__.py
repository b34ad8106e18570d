"""DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from dtdg_lab.systems.base import GRADIENTS, SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.advisor.rates import Rates
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.systems.workload import EpochWork, Facts, Row


class SnapshotGroupsFamily(SystemFamily):
    """DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

    name = "snapshot_groups"
    calibrated = MappingProxyType({"psg": {}, "blad": {}})
    curves_of = MappingProxyType(
        {"dygnex-g": ("dygnex_greedy", GRADIENTS), **dict.fromkeys(("psg", "blad", "dygnex-l"), (GRADIENTS,))}
    )

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.snapshot_groups.workload import group_work

        return group_work(facts)

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, with their factors."""
        return (("group_window", 0.5),)

    def curves(self, facts: Facts, ranks: Sequence[int], rates: Rates, *, quick: bool) -> list[Row]:
        """Further curves of ``lab.what_if``."""
        from dtdg_lab.systems.snapshot_groups.forecast import schedule_curves

        return schedule_curves(facts, ranks, rates, quick=quick)


FAMILY = SnapshotGroupsFamily()
