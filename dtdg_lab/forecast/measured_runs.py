"""Measurements of recorded runs that are compared with predictions: seconds, bytes, memory and imbalance."""

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
WARM_UPS = 1  # first epochs that are not counted, in which caches fill and libraries load
LEAST_EPOCHS = 2
MOST_RUNS = 48  # number of newest runs of a folder that are used
SAME_EPOCH = {"epochs"}  # settings that may change during a run, since an epoch costs the same with them
LEAST_BUSY = 0.7  # lowest processor time over wall time of a rank's own work if the machine is otherwise idle


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRun:
    """A run with the work of its epoch, and its measurements.

    Attributes:
        run: the stored run.
        work: the work of an epoch, counted from its config and data.
        facts: facts about the model and data of its config.
        step: its mean step, for the scaling model.
        quantities: those of ``epoch_s`` (mean over the counted epochs), ``rank_bytes``, ``peak_bytes`` and
            ``imbalance`` that were measured.
        rpc: a model of its fetches; None if there were too few.
        shared: whether its ranks shared cores, so that its wall times hold for no other machine.
        machine: the processor, and the GPUs if they computed.
        crowded: whether its processes were waiting for a busy machine (see ``LEAST_BUSY``).
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
        """The name of its system."""
        return self.run.config.system


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """The runs to which rates may be fitted.

    Attributes:
        runs: the usable runs.
        skipped: name of a run -> why it cannot be used.
    """

    runs: tuple[MeasuredRun, ...]
    skipped: Mapping[str, str]


def find_runs(
    runs: Iterable[StoredRun | str | Path], *, graph: DynamicGraph | None = None, cores: int | None = None
) -> FoundRuns:
    """Read runs, or all runs in folders; those that cannot be used are listed with the reason.

    Args:
        runs: stored runs, their folders, or folders that contain such folders.
        graph: the data of all runs that have its hash; other data are loaded.
        cores: cores of the machine on which the runs were trained; by default this process's.
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
        run: a finished run with at least two epochs, without live changes or artificial slowdown.
        graph: the run's data; loaded by default.
        cores: cores of the machine; by default this process's.

    Raises:
        DataError: the run cannot be used; the message gives the reason.
        LabError: its data are not available, or its work cannot be counted.
    """
    check_usable(run)
    work, facts = count_work(run.config, load_for(run.config) if graph is None else graph)
    steps = run.table("steps")
    counted = steps[steps["epoch"] >= WARM_UPS]
    if counted.empty:
        raise DataError(f"run {run.id} has one epoch, but at least {LEAST_EPOCHS} are required.")
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    gpus = [] if run.config.device == "cpu" else run.environment.get("gpus") or []
    own_s = float(counted[list(step_time.OWN_SECONDS)].sum(axis=1).sum())  # says nothing if GPUs compute
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
        folder = as_path(getattr(run, "path", run), "runs", RunStoreError)  # the handle of a local run has a path
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
    """Check that a run finished with at least two epochs, without live changes or artificial slowdown.

    Raises:
        DataError: it did not.
    """
    if run.status != "finished":
        raise DataError(f"run {run.id} is {run.status}, but only finished runs can be compared.")
    if run.config.epochs < LEAST_EPOCHS:
        raise DataError(f"run {run.id} has {run.config.epochs} epoch, but at least {LEAST_EPOCHS} are required.")
    if run.config["slow_rank"] >= 0 or run.config["congestion"] != "none" or run.config["links"]:
        raise DataError(f"run {run.id} was slowed artificially.")
    changes = [(event["data"] or {}).get("changes") or {} for event in run.events if event["kind"] == "settings"]
    if any(set(change) - SAME_EPOCH for change in changes):
        raise DataError(f"run {run.id} cannot be compared, since its settings changed during training.")


def _step(run: StoredRun, work: EpochWork, steps: pd.DataFrame, *, shared: bool) -> MeasuredStep:
    """Return each rank's means over the steps of an epoch and over epochs, which predict an epoch's mean step."""
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
    epoch_s = float(slowest.mean())  # without the first epoch, since warming up is not predicted
    quantities = {
        "epoch_s": epoch_s if np.isfinite(epoch_s) else None,
        "rank_bytes": float(sent.max()) + _served(run, steps),
        "peak_bytes": summary.get("peak_bytes"),
        "imbalance": summary.get("imbalance") if run.config.ranks > 1 else None,
        "rows": float(steps.groupby("epoch")["vertex_snapshots"].sum().median()),
    }
    return MappingProxyType({name: float(value) for name, value in quantities.items() if value is not None})


def _served(run: StoredRun, steps: pd.DataFrame) -> float:
    """Return the feature bytes that the busiest rank sends to others in an epoch, which steps do not count."""
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
    except DataError:  # too few fetches from some owner
        return None
