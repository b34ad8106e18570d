"""FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from dtdg_lab.systems.base import GRADIENTS, SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.systems.workload import EpochWork, Facts


class DecayedWindowsFamily(SystemFamily):
    """FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

    name = "decayed_windows"
    calibrated = MappingProxyType({"flaredtdg": {}})
    predicted = MappingProxyType({"flaredtdg": False})
    curves_of = MappingProxyType({"dynagraph": (GRADIENTS,)})

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.decayed_windows.workload import sampled_window_work, window_work

        return (window_work if facts.layout == "halo_window" else sampled_window_work)(facts)

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, with their factors."""
        return (("window", 0.5), *((("fanout", 0.5),) if "fanout" in config.flat else ()))


FAMILY = DecayedWindowsFamily()
