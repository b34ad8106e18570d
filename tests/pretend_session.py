"""A session and runs that behave as cluster/ says, without engines: a thread feeds the window with made-up lines."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups
from tests.synthetic_lines import START_NS, energy_row, evaluation_row, knob_row, line, phase_rows, step_row

PER_EPOCH = 20


class PretendRun:
    """A run whose steps are made by ``advance``, by a thread, or by hand."""

    def __init__(self, config: RunConfig, number: int) -> None:
        self.id = f"20260101-00000{number}-{config.system}-{config.short_hash}"
        self.path = Path("runs") / self.id
        self.config = config
        self.status = "running"
        self.reason = ""
        self.live = RunTables(config, rollups=all_rollups())
        self.lock = threading.Lock()
        self.version = 0
        self.silent: dict[int, int] = {}
        self.summary: dict[str, Any] = {}
        self.requests: list[dict[str, Any]] = []
        self.step = 0
        self.now_ns = 0
        self._pending: list[tuple[int, dict[str, Any]]] = []
        self._seqs = [0] * config.ranks
        self._versions = 0

    def set(self, *, by: str | None = None, **live_settings: Any) -> int:
        for name in live_settings:
            if name != "system" and OPTIONS[name].live == "no":
                raise ConfigError(f"{name} cannot change during a run.")
        if live_settings.get("slow_rank", -1) >= self.config.ranks:
            raise ControlError(
                f"slow_rank={live_settings['slow_rank']} is no rank of this run: allowed -1 to {self.config.ranks - 1}."
            )
        self.requests.append(live_settings)
        self._versions += 1
        with self.lock:
            old = {name: self.config.flat.get(name) for name in live_settings}
            data = {"request": {"set": live_settings}, "version": self._versions, "by": by, "old": old}
            self._add(
                "events", [[self.step, self.step // PER_EPOCH, START_NS + self.now_ns, "control_received", data]], 0
            )
        self._pending.append((self._versions, live_settings))
        return self._versions

    def pause(self) -> int:
        self._become("paused")
        return 0

    def unpause(self) -> int:
        self._become("running")
        return 0

    def stop(self) -> int:
        self._become("stopped")
        return 0

    def fail(self, reason: str) -> None:
        self.reason = reason
        self._become("failed")

    def _become(self, status: str) -> None:
        with self.lock:
            self.status = status
            self.version += 1

    def resume(self) -> PretendRun:
        self._become("running")
        return self

    def advance(self, steps: int = 1) -> None:
        """Make steps, applying what was asked before the first of them."""
        with self.lock:
            for _ in range(steps):
                self._apply()
                self._one_step()
            self.version += 1

    def _add(self, table: str, rows: list[list[Any]], rank: int) -> None:
        made = line(table, rows, rank=rank, seq=self._seqs[rank])
        self.live.add_lines([made])
        self._seqs[rank] += 1

    def _at(self, row: list[Any], column: int) -> list[Any]:
        row[column] = START_NS + self.now_ns
        return row

    def _apply(self) -> None:
        for version, live_settings in self._pending:
            self.config = self.config.replace(**live_settings)
            for rank in range(self.config.ranks):
                row = knob_row(self.step, version, per_epoch=PER_EPOCH, **live_settings)
                self._add("events", [self._at(row, 2)], rank)
        self._pending.clear()

    def _one_step(self) -> None:
        slow = self.config["slow_ms"] / 1e3 if self.config["slow_rank"] >= 0 else 0.0
        loss = 0.2 + 1.5 / (1 + self.step * self.config.learning_rate * 10)
        step, took = self.step, 0.014 + slow
        for rank in range(self.config.ranks):
            own = 0.01 + (slow if rank == self.config["slow_rank"] else 0.0)
            wait = slow + 0.01 - own
            row = step_row(step, loss * (1 + 0.05 * (-1) ** step), per_epoch=PER_EPOCH, own_s=own, wait_s=wait)
            self._add("steps", [self._at(row, 3)], rank)
            rows = phase_rows(0, own_s=own, wait_s=wait)
            moved = [
                [step, step // PER_EPOCH, kind, begin + self.now_ns, end + self.now_ns]
                for _, _, kind, begin, end in rows
            ]
            self._add("phases", moved, rank)
            if step % 25 == 0:
                self._add("energy", [energy_row(self.now_ns / 1e9, 0.3 + 0.4 * own / took)], rank)
        self.step += 1
        self.now_ns += int(took * 1e9)
        if self.step % PER_EPOCH == 0:
            rows = [
                self._at(evaluation_row(self.step, split, loss * more), 2)
                for split, more in (("train", 1), ("validation", 1.1))
            ]
            self._add("evaluations", rows, 0)
        if self.step >= self.config.epochs * PER_EPOCH:
            self.status = "finished"


class PretendSession:
    """Ranks that are alive until told otherwise; ``live=True`` makes steps in a thread."""

    def __init__(self, ranks: int = 2, *, live: bool = False) -> None:
        self.ranks, self.name, self.ready = ranks, "pretend", True
        self.runs_dir, self.problem = Path("runs"), ""
        self.runs: list[PretendRun] = []
        self.alive = dict.fromkeys(range(ranks), True)
        self.repaired = 0
        self._live = live
        self._make: type[PretendRun] = PretendRun

    @property
    def current(self) -> PretendRun | None:
        return self.runs[-1] if self.runs else None

    def engines(self) -> dict[int, bool]:
        return dict(self.alive)

    def train(self, config: RunConfig) -> PretendRun:
        if self.current is not None and self.current.status in ("running", "paused"):
            raise ControlError(f"run {self.current.id} is under way: stop it first.")
        run = self._make(config, len(self.runs))
        self.runs.append(run)
        if self._live:
            threading.Thread(target=self._feed, args=(run,), daemon=True).start()
        return run

    def repair(self) -> None:
        self.repaired += 1
        self.alive = dict.fromkeys(range(self.ranks), True)

    def close(self) -> None:
        self.ready = False

    def _feed(self, run: PretendRun) -> None:
        while run.status in ("running", "paused"):
            time.sleep(0.02)
            if run.status == "running":
                run.advance()
