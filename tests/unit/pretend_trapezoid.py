"""A pretend run whose steps take windows of full and decayed snapshots: it tells their shape, batches and looks."""

from __future__ import annotations

from typing import Any

import pretend_session
from pretend_session import PretendRun, PretendSession
from synthetic_lines import START_NS
from trapezoid_synthetic import LOOKS, PER_EPOCH, RANKS, batch_row, batches, decision_row, trapezoid_data

from dtdg_lab.core.config import RunConfig
from dtdg_lab.training.live_settings import check_changes

assert pretend_session.PER_EPOCH == PER_EPOCH, "an epoch has a step for each snapshot"
SYSTEM = {"system": "flaredtdg", "dataset": "growing", "epochs": 50, "ranks": RANKS}
SHAPE = ("window", "full_snapshots", "alpha", "decay")


class WindowedRun(PretendRun):
    """Changes of K, alpha and decay are made at the next step; the tuner's looks are ``LOOKS`` where ``tune`` is on."""

    def __init__(self, config: RunConfig, number: int) -> None:
        super().__init__(config, number)
        self._shape()
        if self._described is not None:
            at = START_NS + self.now_ns + self._seqs[0]
            self._add("events", [[0, 0, at, "trapezoid", self._described]], 0)

    def _shape(self) -> None:
        flat = self.config.flat
        windows = self.config.system in ("flaredtdg", "full-history", "recent-only")
        described = {name: flat[name] for name in SHAPE if name in flat}
        if self.config.system in ("full-history", "recent-only"):
            described |= {"full_snapshots": described["window"], "alpha": 1.0}
        self._described: dict[str, Any] | None = trapezoid_data(**described) if windows else None

    def set(self, *, by: str | None = None, **live_settings: Any) -> int:
        check_changes(self.config, live_settings)
        return super().set(**live_settings)

    def _apply(self) -> None:
        super()._apply()
        self._shape()

    def _one_step(self) -> None:
        if self._described is not None:
            batch = batches(self._described, self.step // PER_EPOCH)[self.step % PER_EPOCH]
            for rank in range(self.config.ranks):
                self._add("batches", [batch_row(self._described, batch, self.step)], rank)
        super()._one_step()
        looks = [look for look in LOOKS if look[0] == self.step] if self.config.flat.get("tune") else []
        self._add("decisions", [decision_row(*look) for look in looks], 0)


class WindowedSession(PretendSession):
    """A session whose runs take windows."""

    def __init__(self, ranks: int = RANKS, *, live: bool = False) -> None:
        super().__init__(ranks, live=live)
        self._make = WindowedRun
