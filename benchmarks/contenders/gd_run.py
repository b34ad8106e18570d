"""Trains the runs of benchmarks/greendygnn.py, and reads off what rows tell of them."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

import dtdg_lab as lab
from dtdg_lab.config.record_tables import BETWEEN_STEPS
from dtdg_lab.core.errors import LabError, RunFailedError
from dtdg_lab.energy.phases import STALLED
from dtdg_lab.energy.total import GPU, PROCESSOR, total_of
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.runs.summary import spent

NOT_IN_STEPS = (*BETWEEN_STEPS, "idle")  # idle is also what came before the first step
Row = dict[str, Any]


class Trainer:
    """Trains one run after another: in this process, or on engines that stay.

    Args:
        ranks: of all runs; 1 is this process.
        folder: for the runs.
    """

    def __init__(self, ranks: int, folder: Path) -> None:
        self.ranks, self._folder = ranks, folder
        self._open, self._session = ExitStack(), None

    def __enter__(self) -> Self:
        if self.ranks > 1:
            self._session = self._open.enter_context(lab.Session(ranks=self.ranks, runs_dir=self._folder))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def train(self, config: lab.RunConfig) -> StoredRun:
        """The run, at its end.

        Raises:
            LabError: it could not begin, or did not come to its end.
        """
        if self._session is None:
            return lab.train(config, runs_dir=self._folder, progress=False)
        run = self._session.train(config)
        run.wait()
        if run.status != "finished":
            raise RunFailedError(f"the run was {run.status}")
        return lab.runs.open(run.path)

    def row(self, config: lab.RunConfig) -> Row:
        """What it took, or why it failed."""
        try:
            return facts_of(self.train(config))
        except LabError as error:
            return {"failed": str(error).partition("\n")[0]}


def facts_of(run: StoredRun) -> Row:
    """What a run took in its steps; evaluations, getting ready and the like are left out. Unknown is None.

    The energy by device and reader is the whole run's, for counters do not tell steps apart.
    """
    steps, phases = run.table("steps"), run.table("phase_energy")
    rows = phases[~phases["phase"].isin(NOT_IN_STEPS)]
    energy = run.table("energy").to_dict("records")
    whole, still = spent(rows), spent(rows[rows["phase"].isin(STALLED)])
    total = total_of(energy)
    devices = {device: sum(joules.values()) for device in (GPU, PROCESSOR) if (joules := total.joules(device))}
    longest = steps.groupby("step")["time_s"].max()
    losses = steps[steps["rank"] == 0].sort_values("step")["global_loss"].to_numpy(np.float64)
    return {
        "epoch_s": float(longest.sum()) / run.config.epochs, "joules": whole.joules, "stall_j": still.joules,
        "coverage": whole.coverage, "sources": list(whole.sources),
        "readers": sorted({str(row["reader"]) for row in energy}),
        "gpu_j": devices.get("gpu"), "processor_j": devices.get("processor"),
        "losses": hashlib.sha256(losses.tobytes()).hexdigest()[:16], "last_loss": float(losses[-1]),
        "steps": len(longest),
        **_fetched(run), **_decided(run),
    }  # fmt: skip


def _fetched(run: StoredRun) -> Row:
    resolved, fetches = run.table("resolved"), run.table("fetches")
    remote, hits = int(resolved["remote"].sum()), sum(map(sum, resolved["hits"]))
    return {
        "hit_rate": hits / remote if remote else None, "wait_s": float(resolved["wait_s"].sum()),
        "resolve_s": float(resolved["resolve_s"].sum()),
        **{f"{purpose}_{what}": value for purpose in ("miss", "bulk")
           for what, value in _sums(fetches[fetches["purpose"] == purpose]).items()},
    }  # fmt: skip


def _sums(fetches: pd.DataFrame) -> dict[str, int]:
    return {"rpcs": len(fetches), "bytes": int(fetches["bytes"].sum())}


def _decided(run: StoredRun) -> Row:
    windows, decisions = run.table("windows"), run.table("cache_decisions")
    there = len(decisions) > 0
    return {
        "rebuilds": len(windows), "late": int((windows["late_steps"] > 0).sum()),
        "exposed_s": float(windows["exposed_s"].sum()), "rebuild_s": float(windows["rebuild_s"].sum()),
        "decisions": len(decisions), "mean_window": float(decisions["window"].mean()) if there else None,
        "biased": float((decisions["biased"] >= 0).mean()) if there else None,
    }  # fmt: skip
