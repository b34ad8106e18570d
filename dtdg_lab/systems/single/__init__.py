"""Training in one process, the reference of all systems."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.systems.workload import EpochWork, Facts


class SingleFamily(SystemFamily):
    """Training in one process, the reference of all systems."""

    name = "single"
    calibrated = MappingProxyType({"single": {}})
    full_batch = ("single",)

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse more than one rank or part."""
        if (settings["ranks"], settings["parts"]) != (1, 1):
            raise UnsupportedError(
                f"system 'single' needs one rank and one part, but ranks={settings['ranks']}, "
                f"parts={settings['parts']}. Set ranks=1 and parts=1, or choose system='psg'."
            )

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.single.workload import single_work

        return single_work(facts)

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.single.strategy import SingleStrategy

        return SingleStrategy(context.model, context.sequence, context.task, context.train)


FAMILY = SingleFamily()
