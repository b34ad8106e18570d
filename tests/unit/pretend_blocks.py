"""A pretend run in blocks of time: it tells its blocks, its memory, and in each step what it sent and brought."""

from __future__ import annotations

from typing import Any

from blocks_synthetic import blocks_data, memory_data, plan, step_lines
from pretend_session import PER_EPOCH, PretendRun, PretendSession
from synthetic_lines import START_NS, knob_row

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.training.live_settings import check_changes

SNAPSHOTS, NODES, FITTING = 40, 120, 5
SYSTEM = {"dataset": "growing", "epochs": 50, "system": "esdg", "blocks": 4}
OWN_TABLES = ("links", "exchanges", "transfers")


class BlockedRun(PretendRun):
    """Changes are made at once. ``blocks`` 0 is ``FITTING``; overlap hides three quarters, difference two thirds."""

    def __init__(self, config: RunConfig, number: int) -> None:
        super().__init__(config, number)
        self._described: dict[str, Any] | None = None
        self._report()

    def set(self, *, by: str | None = None, **live_settings: Any) -> int:
        check_changes(self.config, live_settings)
        return super().set(**live_settings)

    def _event(self, kind: str, data: dict[str, Any]) -> None:
        at = START_NS + self.now_ns + self._seqs[0]
        self._add("events", [[self.step, self.step // PER_EPOCH, at, kind, data]], 0)

    def _report(self) -> None:
        config, before = self.config, self._described
        if "overlap" not in catalogue.entry("parallel", catalogue.system(config.system).parts["parallel"]).options:
            self._described = None
            if before is not None:
                self._event("blocks", {"layout": None})
            return
        made = plan(SNAPSHOTS, config["blocks"] or FITTING, config.ranks, NODES, config["row_ranks"])
        self._described = blocks_data(made, requested=config["blocks"])
        self._event("blocks", self._described)
        if before is None:
            self._event("memory_trace", memory_data(made.blocks, hill=1 << 20, state=1 << 17))

    def _apply(self) -> None:
        if not self._pending:
            return
        version, live_settings = (
            self._versions,
            {name: value for _, each in self._pending for name, value in each.items()},
        )
        self._pending = []
        self.config = self.config.replace(**live_settings)
        for rank in range(self.config.ranks):
            row = knob_row(self.step, version, per_epoch=PER_EPOCH, when="epoch", duration_s=0.1, **live_settings)
            self._add("events", [self._at(row, 2)], rank)
        self._report()

    def _one_step(self) -> None:
        if self._described is not None:
            exposed = 0.004 if self.config["overlap"] == "off" else 0.001
            brought = 1_000 if self.config["delta_transfer"] else 3_000
            for each in step_lines(self._described, self.step, exposed_s=exposed, brought=brought):
                if each["table"] in OWN_TABLES:
                    self._add(each["table"], each["rows"], each["rank"])
        super()._one_step()


class BlockedSession(PretendSession):
    """A session whose runs compute in blocks of time."""

    def __init__(self, ranks: int = 2, *, live: bool = False) -> None:
        super().__init__(ranks, live=live)
        self._make = BlockedRun
