"""Training in one process, the reference of all systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.engine.strategy import BuildContext, Strategy


class SingleFamily(SystemFamily):
    """Training in one process, the reference of all systems."""

    name = "single"

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.single.strategy import SingleStrategy

        return SingleStrategy(context.model, context.sequence, context.task, context.train)


FAMILY = SingleFamily()
