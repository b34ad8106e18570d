"""A pretend run of node parts: epoch changes are made at the epoch's end, told as the ranks tell them, or refused."""

from __future__ import annotations

from typing import Any

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.partition.measured_partition import MeasuredPartition, partition_graph
from dtdg_lab.training.live_settings import check_changes
from tests.pretend_session import PER_EPOCH, PretendRun, PretendSession
from tests.synthetic_lines import START_NS, knob_row

REBUILD_S = 0.75
SMALL = {"generated_nodes": 40, "generated_edges": 60, "generated_snapshots": 12}


class PartitionedRun(PretendRun):
    """Refuses at the epoch's end what is in ``unfit`` (setting -> reason), as a partitioner that fails does."""

    def __init__(self, config: RunConfig, number: int) -> None:
        super().__init__(config, number)
        self.unfit: dict[str, str] = {}
        self._measured: MeasuredPartition | None = None
        self._tell_partition(None)

    def set(self, *, by: str | None = None, **live_settings: Any) -> int:
        check_changes(self.config, live_settings)
        return super().set(by=by, **live_settings)

    def _apply(self) -> None:
        at_end = [(version, live_settings) for version, live_settings in self._pending if self._is_epoch(live_settings)]
        self._pending = [asked for asked in self._pending if asked not in at_end]
        super()._apply()
        self._pending = at_end
        if self.step % PER_EPOCH == 0 and at_end:
            self._change(
                self._versions, {name: value for _, live_settings in at_end for name, value in live_settings.items()}
            )
            self._pending = []

    @staticmethod
    def _is_epoch(live_settings: dict[str, Any]) -> bool:
        return any(name == "system" or OPTIONS[name].live == "epoch" for name in live_settings)

    def _change(self, version: int, changes: dict[str, Any]) -> None:
        for name in changes:
            if name in self.unfit:
                asked = ", ".join(f"{name}={value!r}" for name, value in changes.items())
                data = {"version": version, "changes": changes, "reason": self.unfit[name]}
                row = [self.step, self.step // PER_EPOCH, START_NS + self.now_ns, "refused", data]
                self._add("events", [row], 0)
                self.reason = f"{asked} was refused and the run continues unchanged: {self.unfit[name]}"
                return
        try:
            self.config = self.config.replace(**changes)
        except LabError as error:
            raise AssertionError("set() has checked it") from error
        for rank in range(self.config.ranks):
            row = knob_row(self.step, version, per_epoch=PER_EPOCH, when="epoch", duration_s=REBUILD_S, **changes)
            self._add("events", [self._at(row, 2)], rank)
        self._tell_partition(REBUILD_S)

    def _tell_partition(self, rebuild_s: float | None) -> None:
        self._measured = None
        layout = {"adgnn-t": "halo_vertex", "pygt-dist": "cached_vertex"}.get(self.config.system)
        if layout is None:
            return
        config = self.config
        self._measured = partition_graph(load_for(config), config["partitioner"], config.parts, hidden=config.hidden)
        ranks = {"ranks": config.ranks, "layout": layout, "rebuild_s": rebuild_s}
        data = {**self._measured.to_dict(), **ranks}
        event = [self.step, self.step // PER_EPOCH, START_NS + self.now_ns, "partition", data]
        self._add("events", [event], 0)

    def _one_step(self) -> None:
        step, measured = self.step, self._measured
        if measured is not None and self.config.system == "adgnn-t":
            for rank in range(self.config.ranks):
                rows = [
                    [step, step // PER_EPOCH, layer, way, to, 1, int(sent[layer, rank, to])]
                    for way, sent in measured.predicted.items()
                    for layer in range(len(sent))
                    for to in range(self.config.ranks)
                    if to != rank
                ]
                self._add("links", rows, rank)
        super()._one_step()


class PartitionedSession(PretendSession):
    """A session whose runs own nodes by parts."""

    def __init__(self, ranks: int = 2, *, live: bool = False) -> None:
        super().__init__(ranks, live=live)
        self._make = PartitionedRun
