"""A session and runs that behave as cluster/ says, without engines: a thread feeds the window with made-up rows."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from dtdg_lab.cluster.engines import EngineState
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups
from tests.tables import START_NS, record_lines

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
            self._event("control_received", data)
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

    def _add(self, table: str, *rows: dict[str, Any]) -> None:
        """Record rows of now; of rank 0 where they do not say."""
        now = {"step": self.step, "epoch": self.step // PER_EPOCH, "time_ns": START_NS + self.now_ns}
        self.live.add_lines(record_lines(table, [{**now, **row} for row in rows]))

    def _event(self, kind: str, data: dict[str, Any], rank: int = 0) -> None:
        self._add("events", {"kind": kind, "data": data, "rank": rank})

    def _apply(self) -> None:
        for version, live_settings in self._pending:
            self.config = self.config.replace(**live_settings)
            for rank in range(self.config.ranks):
                self._event("settings", {"version": version, "changes": live_settings, "when": "step"}, rank)
        self._pending.clear()

    def _one_step(self) -> None:
        slow = self.config["slow_ms"] / 1e3 if self.config["slow_rank"] >= 0 else 0.0
        loss = 0.2 + 1.5 / (1 + self.step * self.config.learning_rate * 10)
        shown = loss * (1 + 0.05 * (-1) ** self.step)
        for rank in range(self.config.ranks):
            self._rank_step(rank, shown, 0.01 + (slow if rank == self.config["slow_rank"] else 0.0), slow)
        self.step += 1
        self.now_ns += int((0.014 + slow) * 1e9)
        if self.step % PER_EPOCH == 0:
            baselines = {"persistence_loss": 0.5, "mean_loss": 0.9, "snapshots": 8}
            losses = {"train": loss, "validation": 1.1 * loss}
            self._add("evaluations", *({"split": split, "loss": of, **baselines} for split, of in losses.items()))
        if self.step >= self.config.epochs * PER_EPOCH:
            self.status = "finished"

    def _rank_step(self, rank: int, loss: float, own_s: float, slow_s: float) -> None:
        spent = {"compute": own_s, "wait": slow_s + 0.01 - own_s, "communicate": 0.002, "update": 0.001}
        seconds = {f"{phase}_s": of for phase, of in {**spent, "control": 0.001}.items()}
        step = {"iteration": self.step % PER_EPOCH, "time_s": sum(seconds.values()), "loss": loss, "global_loss": loss}
        self._add("steps", {"rank": rank, **step, **seconds, "bytes_sent": 0, "bytes_received": 0})
        begin_ns = START_NS + self.now_ns
        for phase, of in spent.items():
            end_ns = begin_ns + int(of * 1e9)
            self._add("phases", {"rank": rank, "phase": phase, "start_ns": begin_ns, "end_ns": end_ns})
            begin_ns = end_ns
        if self.step % 25 == 0:
            joules = 0.3 + 0.4 * own_s / (0.014 + slow_s)
            source = {"reader": "model", "source": "modelled", "scope": "rank", "device": "processor", "node": "a"}
            self._add("energy", {"rank": rank, "interval_s": 0.5, "joules": joules, "watts": 2 * joules, **source})


class PretendSession:
    """Ranks that are alive until told otherwise; ``live=True`` makes steps in a thread."""

    def __init__(self, ranks: int = 2, *, live: bool = False) -> None:
        self.ranks, self.name, self.ready = ranks, "pretend", True
        self.runs_dir, self.problem = Path("runs"), ""
        self.runs: list[PretendRun] = []
        self.alive = dict.fromkeys(range(ranks), True)
        self.devices = EngineState(True, "cpu", "A processor", 16 << 30)
        self.repaired = 0
        self._live = live
        self._make: type[PretendRun] = PretendRun

    @property
    def current(self) -> PretendRun | None:
        return self.runs[-1] if self.runs else None

    def engines(self) -> dict[int, EngineState]:
        return {rank: self.devices if alive else EngineState(is_alive=False) for rank, alive in self.alive.items()}

    def train(self, config: RunConfig) -> PretendRun:
        if self.current is not None and self.current.status in ("running", "paused"):
            raise ControlError(f"run {self.current.id} is under way. Stop it first.")
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
