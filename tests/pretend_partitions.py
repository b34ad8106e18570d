"""A pretend run of node parts: epoch changes are made at the epoch's end, told as the ranks tell them, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.partition.measured_partition import MeasuredPartition, partition_graph
from dtdg_lab.training.live_settings import check_changes
from tests.pretend_session import PER_EPOCH, PretendRun, PretendSession

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
                self._event("refused", data)
                self.reason = f"{asked} was refused and the run continues unchanged: {self.unfit[name]}"
                return
        try:
            self.config = self.config.replace(**changes)
        except LabError as error:
            raise AssertionError("set() has checked it") from error
        for rank in range(self.config.ranks):
            data = {"version": version, "changes": changes, "when": "epoch", "duration_s": REBUILD_S}
            self._event("settings", data, rank)
        self._tell_partition(REBUILD_S)

    def _tell_partition(self, rebuild_s: float | None) -> None:
        self._measured = None
        layout = {"adgnn-t": "halo_vertex", "pygt-dist": "cached_vertex"}.get(self.config.system)
        if layout is None:
            return
        config = self.config
        self._measured = partition_graph(load_for(config), config["partitioner"], config.parts, hidden=config.hidden)
        ranks = {"ranks": config.ranks, "layout": layout, "rebuild_s": rebuild_s}
        self._event("partition", {**self._measured.to_dict(), **ranks})

    def _one_step(self) -> None:
        if self._measured is not None and self.config.system == "adgnn-t":
            for way, sent in self._measured.predicted.items():
                for layer, rank, to in np.ndindex(sent.shape):
                    if to != rank:
                        link = {"layer": layer, "pass_name": way, "to": to, "rows": 1}
                        self._add("links", {"rank": rank, **link, "bytes": int(sent[layer, rank, to])})
        super()._one_step()


class PartitionedSession(PretendSession):
    """A session whose runs own nodes by parts."""

    def __init__(self, ranks: int = 2, *, live: bool = False) -> None:
        super().__init__(ranks, live=live)
        self._make = PartitionedRun
