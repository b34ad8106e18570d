"""A pretend run of hybrid batches: it tells its sizes, batches, levels, rounds and decisions."""

from __future__ import annotations

from typing import Any

import pretend_session
from pretend_session import PretendRun, PretendSession
from synthetic_lines import START_NS
from targets_synthetic import PER_EPOCH, RANKS, decision_row, dynahb_data, hybrid_data, round_row, target_row

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig

assert pretend_session.PER_EPOCH == PER_EPOCH
SYSTEM = {"system": "dynahb", "dataset": "growing", "epochs": 50, "ranks": RANKS}


class HybridRun(PretendRun):
    """``dynahb`` averages every ten steps, and decides every five where it has a batch policy."""

    def __init__(self, config: RunConfig, number: int) -> None:
        super().__init__(config, number)
        self._described: dict[str, Any] | None = None
        if catalogue.system(config.system).parts.get("batching") == "hybrid":
            averaged = config.system == "dynahb"
            fixed = hybrid_data(reservoir=averaged, exchange="models" if averaged else "gradients")
            self._described = fixed if config["batch_policy"] == "none" else dynahb_data(choice=4)
            self._add("events", [[0, 0, START_NS + self.now_ns, "hybrid", self._described]], 0)

    def _one_step(self) -> None:
        step, data = self.step, self._described
        if data is not None:
            for rank in range(self.config.ranks):
                self._add("targets", [target_row(step, rank, data)], rank)
                if data["exchange"] == "models" and step and step % 10 == 0:
                    self._add("rounds", [round_row(step // 10, step - 2 - rank, step)], rank)
            if data["batch_policy"] != "none" and step and step % 5 == 0:
                number = step // 5 - 1
                self._add("decisions", [decision_row(number, number % 9, 0.1 if number else None)], 0)
        super()._one_step()


class HybridSession(PretendSession):
    """A session whose runs take hybrid batches."""

    def __init__(self, ranks: int = RANKS, *, live: bool = False) -> None:
        super().__init__(ranks, live=live)
        self._make = HybridRun
