"""ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.advisor.rates import Rates
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.graphs.delta import SequenceChanges
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.runs.run import StoredRun
    from dtdg_lab.systems.step_time import MeasuredStep, StepForecast
    from dtdg_lab.systems.workload import EpochWork, Facts, Row


class SnapshotBlocksFamily(SystemFamily):
    """ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

    name = "snapshot_blocks"
    predicted = MappingProxyType({"esdg": True})
    curves_of = MappingProxyType({"esdg": ("rows by snapshots (esdg)",)})

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.snapshot_blocks.workload import snapshot_work

        return snapshot_work(facts)

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, with their factors."""
        return (("blocks", 2.0),)

    def curves(self, facts: Facts, ranks: Sequence[int], rates: Rates, *, quick: bool) -> list[Row]:
        """Further curves of ``lab.what_if``."""
        from dtdg_lab.systems.snapshot_blocks.forecast import snapshot_rows

        return snapshot_rows(facts, ranks)

    def measured_step(
        self, run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None
    ) -> tuple[MeasuredStep, StepForecast, SequenceChanges]:
        """The median step of a run, what it computes, and its graph."""
        from dtdg_lab.systems.snapshot_blocks.forecast import measured_step

        return measured_step(run, graph, cores=cores)


FAMILY = SnapshotBlocksFamily()
