"""Studies without training: runs whose folders are real and whose losses are made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtdg_lab.cluster.one_run import EndedRun
from dtdg_lab.cluster.stopping_rule import Evaluated, Verdict
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.studies import trial_runner

BASE = RunConfig(system="flaredtdg", dataset="growing", epochs=4, hidden=4, device="cpu")


def loss_of(config: RunConfig) -> float:
    """Lowest at K = 2, alpha 0.6."""
    return abs(config["full_snapshots"] - 2) + abs(config["alpha"] - 0.6) + 0.01 * config.seed + 0.1


class PretendTraining:
    """Stands for ``run_config``: remembers what was trained, and misbehaves where it is told to."""

    def __init__(self) -> None:
        self.made: list[tuple[int, float, int]] = []
        self.before: Callable[[RunConfig], None] = lambda config: None
        self.after: Callable[[RunDirectory], None] = lambda run: None
        self.status = "finished"

    def __call__(
        self, config: RunConfig, *, session: Any, engines: Any, runs_dir: Path, judge: Any, on_start: Any
    ) -> EndedRun:
        self.before(config)
        run = RunDirectory.create(config, root=runs_dir, environment={})
        on_start(SimpleNamespace(path=run.path, id=run.id))
        run.write_status("running")
        self.made.append((config["full_snapshots"], config["alpha"], config.seed))
        verdict, seen = None, ()
        for epoch in range(1, config.epochs + 1):
            seen = (*seen, Evaluated(epoch, epoch, 1.0, loss_of(config) + 1 / epoch))
            verdict = verdict or (judge(seen) if judge is not None and epoch < config.epochs else None)
            if verdict is not None:
                break
        (run.path / "curve").write_text(" ".join(f"{each.epoch}:{each.loss}" for each in seen))
        run.write_status("stopped" if isinstance(verdict, Verdict) else self.status)
        self.after(run)
        return EndedRun(stored(run), verdict)


def stored(run: RunDirectory) -> Any:
    return SimpleNamespace(id=run.id, path=run.path, status=run.status()["state"], config=run.config())


def values(run: Any) -> dict[str, Any]:
    loss = loss_of(run.config)
    return {
        "validation_loss": loss,
        "best_validation_loss": loss,
        "validation_persistence_loss": 3.0,
        "validation_mean_loss": 4.0,
        "test_loss": 2 * loss,
        "persistence_loss": 3.0,
        "mean_loss": 5.0,
        "skill": 1 - 2 * loss / 3,
        "skill_split": "test",
        "peak_bytes": 1000.0 * run.config["full_snapshots"],
        "epoch_time_s": 0.1,
    }


def curve(run: Any) -> tuple[tuple[int, float], ...]:
    pairs = (pair.split(":") for pair in (run.path / "curve").read_text().split())
    return tuple((int(epoch), float(loss)) for epoch, loss in pairs)


def pretend_training(monkeypatch: pytest.MonkeyPatch) -> PretendTraining:
    """Training that is pretended, in every study made from here on."""
    pretend = PretendTraining()
    origin = {"protocol": "warm", "leaky": False, "purge": 0, "data": "aabbccddeeff", "data_hash": "aabbccddeeff00"}
    monkeypatch.setattr(trial_runner, "run_config", pretend)
    monkeypatch.setattr(trial_runner, "values_of", values)
    monkeypatch.setattr(trial_runner, "provenance", lambda run: origin)
    monkeypatch.setattr(trial_runner, "validation_curve", curve)
    monkeypatch.setattr(trial_runner, "open_run", lambda path: stored(RunDirectory.open(path)))
    return pretend
