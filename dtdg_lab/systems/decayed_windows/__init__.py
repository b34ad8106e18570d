"""FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.catalogue import system
from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.engine.strategy import BuildContext, Strategy


class DecayedWindowsFamily(SystemFamily):
    """FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

    name = "decayed_windows"

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.decayed_windows import sampled, strategy

        builds = {"halo_window": strategy.build, "sampled_window": sampled.build}
        return builds[system(context.config.system).parts["parallel"]](context)


FAMILY = DecayedWindowsFamily()
