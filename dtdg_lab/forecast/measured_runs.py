"""Measurements of recorded runs for comparison with predictions: seconds, bytes, memory, imbalance."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.core.errors import DataError, LabError, RunStoreError
from dtdg_lab.core.units import as_path
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.stored_run import StoredRun, open_run
from dtdg_lab.systems import step_time
from dtdg_lab.systems.feature_cache.calibration.fits import fit_rpc
from dtdg_lab.systems.feature_cache.calibration.measurements import fetches_of
from dtdg_lab.systems.feature_cache.costs.cache_costs import RpcModel
from dtdg_lab.systems.step_time import MeasuredStep
from dtdg_lab.systems.workload import EpochWork, Facts, count_work

if TYPE_CHECKING:
    import pandas as pd

QUANTITIES = ("epoch_s", "rank_bytes", "peak_bytes", "imbalance")
WARM_UPS = 1  # epochs that do not count: cache filling, library loading
LEAST_EPOCHS = 2
MOST_RUNS = 48  # the newest of a folder
SAME_EPOCH = {"epochs"}  # settings that may change during a run without affecting an epoch's cost
LEAST_BUSY = 0.7  # processor seconds over wall seconds of a rank's own work, on an otherwise idle machine


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRun:
    """A run with the work of its epoch, and its measurements.

    Attributes:
        run: as stored.
        work: of an epoch, counted from its config and data.
        facts: of its config.
        step: its mean step, for the scaling model.
        quantities: measured ``epoch_s`` (mean over the epochs that count), ``rank_bytes``, ``peak_bytes`` and
            ``imbalance``; the known ones.
        rpc: model of its fetches; None if there were too few.
        shared: True if its ranks shared cores, so that its wall times apply to no other machine.
        machine: processor, and GPUs if they computed.
        crowded: True if its processes got less than ``LEAST_BUSY`` of their own time, because the machine was busy.
    """

    run: StoredRun
    work: EpochWork
    facts: Facts
    step: MeasuredStep
    quantities: Mapping[str, float]
    rpc: RpcModel | None
    shared: bool
    machine: str
    crowded: bool = False

    @property
    def system(self) -> str:
        """Name of its system."""
        return self.run.config.system


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Runs to which rates may be fitted.

    Attributes:
        runs: the usable ones.
        skipped: run's name -> the reason.
    """

    runs: tuple[MeasuredRun, ...]
    skipped: Mapping[str, str]


def find_runs(
    runs: Iterable[StoredRun | str | Path], *, graph: DynamicGraph | None = None, cores: int | None = None
) -> FoundRuns:
    """Read runs, or all runs in folders; unusable ones are listed with the reason.

    Args:
        runs: stored runs, their folders, or folders that hold such folders.
        graph: data of all runs with its hash; other data are loaded.
        cores: of the machine they ran on; by default this process's.
    """
    usable: list[MeasuredRun] = []
    skipped: dict[str, str] = {}
    for run in _opened(runs, skipped):
        try:
            data_hash = run.environment.get("data", {}).get("sha256")
            same = graph is not None and graph.data_hash and data_hash == graph.data_hash
            usable.append(measured_run(run, graph if same else None, cores=cores))
        except LabError as error:
            skipped[run.id] = str(error)
    return FoundRuns(tuple(usable), MappingProxyType(skipped))


def measured_run(run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None) -> MeasuredRun:
    """Return one run with the work of its epoch.

    Args:
        run: finished, with at least two epochs, without live changes or artificial slowdown.
        graph: its data; loaded by default.
        cores: of the machine; by default this process's.

    Raises:
        DataError: it is unusable; the message gives the reason.
        LabError: its data are not available, or cannot be counted.
    """
    check_usable(run)
    work, facts = count_work(run.config, load_for(run.config) if graph is None else graph)
    steps = run.table("steps")
    counted = steps[steps["epoch"] >= WARM_UPS]
    if counted.empty:
        raise DataError(f"run {run.id} has one epoch: record {LEAST_EPOCHS} or more.")
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    gpus = [] if run.config.device == "cpu" else run.environment.get("gpus") or []
    own_s = float(counted[list(step_time.OWN_SECONDS)].sum(axis=1).sum())  # unknown whether crowded if GPUs compute
    shared, crowded = run.config.ranks > cores, not gpus and float(counted["cpu_s"].sum()) < LEAST_BUSY * own_s
    step, quantities = _step(run, work, counted, shared=shared or crowded), _quantities(run, counted)
    processor = run.environment.get("cpu", {}).get("model", "unknown processor")
    machine = f"{processor}{f', {len(gpus)} GPUs' if gpus else ''}"
    return MeasuredRun(run, work, facts, step, quantities, _rpc(run), shared, machine, crowded)


def _opened(runs: Iterable[StoredRun | str | Path], skipped: dict[str, str]) -> list[StoredRun]:
    opened: list[StoredRun] = []
    for run in runs:
        if isinstance(run, StoredRun):
            opened.append(run)
            continue
        folder = as_path(getattr(run, "path", run), "runs", RunStoreError)  # a handle of a local run has one
        is_run = (folder / "config.json").is_file()
        paths = [folder] if is_run else [file.parent for file in sorted(folder.glob("*/config.json"))[-MOST_RUNS:]]
        for path in paths:
            try:
                opened.append(open_run(path))
            except LabError as error:
                skipped[path.name] = str(error)
        if not paths:
            raise RunStoreError(f"{folder} is not a run and contains none. Give folders of runs, or runs_dir=.")
    return opened


def check_usable(run: StoredRun) -> None:
    """Raise unless a run finished, with two epochs or more, without live changes or artificial slowdown.

    Raises:
        DataError: it did not.
    """
    if run.status != "finished":
        raise DataError(f"run {run.id} is {run.status}: only finished runs can be compared.")
    if run.config.epochs < LEAST_EPOCHS:
        raise DataError(f"run {run.id} has {run.config.epochs} epoch: at least {LEAST_EPOCHS} are required.")
    if run.config["slow_rank"] >= 0 or run.config["congestion"] != "none" or run.config["links"]:
        raise DataError(f"run {run.id} was slowed artificially.")
    changes = [(event["data"] or {}).get("changes") or {} for event in run.events if event["kind"] == "settings"]
    if any(set(change) - SAME_EPOCH for change in changes):
        raise DataError(f"run {run.id} had live changes: its settings changed during training.")


def _step(run: StoredRun, work: EpochWork, steps: pd.DataFrame, *, shared: bool) -> MeasuredStep:
    """Return means over the steps of an epoch, and over epochs, of each rank: they predict the mean of an epoch."""
    by_rank = steps.groupby(["rank", "epoch"])[list(step_time.STEP_SECONDS)].mean().groupby("rank").mean()
    own_s = by_rank[[*step_time.OWN_SECONDS, "transfer_s"]].sum(axis=1)
    step = step_time.measured_from(
        run.id, work.step(), by_rank.assign(cpu_s=by_rank["cpu_s"].clip(upper=own_s)), shared=shared
    )
    return step if run.config.ranks > 1 and work.waits else replace(step, communicate_s=None)


def _quantities(run: StoredRun, steps: pd.DataFrame) -> Mapping[str, float]:
    summary = run.summary
    sent = steps.groupby(["rank", "epoch"])["bytes_sent"].sum().groupby("rank").median()
    slowest = steps.groupby(["epoch", "rank"])["time_s"].sum(min_count=1).groupby("epoch").max()
    epoch_s = float(slowest.mean())  # of the epochs that count: the first is warm-up, which is not predicted
    quantities = {
        "epoch_s": epoch_s if np.isfinite(epoch_s) else None,
        "rank_bytes": float(sent.max()) + _served(run, steps),
        "peak_bytes": summary.get("peak_bytes"),
        "imbalance": summary.get("imbalance") if run.config.ranks > 1 else None,
        "rows": float(steps.groupby("epoch")["vertex_snapshots"].sum().median()),
    }
    return MappingProxyType({name: float(value) for name, value in quantities.items() if value is not None})


def _served(run: StoredRun, steps: pd.DataFrame) -> float:
    """Return feature bytes that the busiest rank sends to other ranks in an epoch; steps do not count them."""
    fetches, ranks = run.table("fetches"), run.config.ranks
    if ranks == 1 or len(fetches) == 0:
        return 0.0
    parts_of_rank = run.config.parts // ranks
    is_remote = fetches["owner"] // parts_of_rank != fetches["part"] // parts_of_rank
    counts = is_remote & fetches["epoch"].isin(steps["epoch"]) & (fetches["purpose"] != "probe")
    served = fetches[counts]
    by_owner = served.groupby(served["owner"] // parts_of_rank)["bytes"].sum()
    return float(by_owner.max()) / steps["epoch"].nunique() if len(by_owner) else 0.0


def _rpc(run: StoredRun) -> RpcModel | None:
    fetches = run.table("fetches")
    if len(fetches) == 0:
        return None
    rows: Sequence[Mapping[str, Any]] = fetches[fetches["rows"] > 0].to_dict("records")
    try:
        return fit_rpc(fetches_of(rows, "run")["run"]).typical
    except DataError:  # too few of some owner
        return None
