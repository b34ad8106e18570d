"""Training in one process, the reference of all systems."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.systems.workload import EpochWork, Facts


class SingleFamily(SystemFamily):
    """Training in one process, the reference of all systems."""

    name = "single"
    calibrated = MappingProxyType({"single": {}})
    full_batch = ("single",)

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.single.workload import single_work

        return single_work(facts)

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.single.strategy import SingleStrategy

        return SingleStrategy(context.model, context.sequence, context.task, context.train)


FAMILY = SingleFamily()
