"""What a recorded run took, as the advisor compares its predictions with: seconds, bytes, memory, imbalance."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.control.calibration_records import fetches_of
from dtdg_lab.control.rpc_fit import fit_rpc
from dtdg_lab.control.rpc_model import RpcModel
from dtdg_lab.core.errors import DataError, LabError, RunStoreError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.scaling_model import MeasuredStep
from dtdg_lab.runs.open import StoredRun, open_run
from dtdg_lab.studies.advise_count import count_work
from dtdg_lab.studies.advise_facts import Facts
from dtdg_lab.studies.advise_work import EpochWork

if TYPE_CHECKING:
    import pandas as pd

WARM_UPS = 1  # epochs that do not count: caches fill, libraries load
LEAST_EPOCHS = 2
MOST_RUNS = 48  # the newest of a folder
SAME_EPOCH = {"epochs"}  # settings that change on the way without changing what an epoch takes
LEAST_BUSY = 0.7  # processor seconds over wall seconds of what a rank does itself, on a machine of its own
_OWN = ("batch_s", "compute_s", "update_s")


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRun:
    """A run with the work of its epoch, and what it took.

    Attributes:
        run: as stored.
        work: of an epoch, counted from its config and data.
        facts: of its config.
        step: its mean step, for the scaling model.
        quantities: measured ``epoch_s`` (mean over the epochs that count), ``rank_bytes``, ``peak_bytes`` and
            ``imbalance``; those that are known.
        rpc: model of its fetches; None where it made too few.
        shared: whether its ranks shared cores, so that its wall times say little of others.
        machine: processor, and GPUs where they computed.
        crowded: whether its processes had less than ``LEAST_BUSY`` of their own time, for something else ran there.
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
        """Its name."""
        return self.run.config.system


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Runs that rates may be fitted to.

    Attributes:
        runs: those that serve.
        skipped: run's name -> why it does not.
    """

    runs: tuple[MeasuredRun, ...]
    skipped: Mapping[str, str]


def find_runs(
    runs: Iterable[StoredRun | str | Path], *, graph: DynamicGraph | None = None, cores: int | None = None
) -> FoundRuns:
    """Read runs, or all in folders of runs; those that tell nothing are named with the reason.

    Args:
        runs: stored runs, their folders, or folders that hold such folders.
        graph: data of all runs that have its hash; other data are loaded.
        cores: of the machine they ran on; this process's where not given.
    """
    kept: list[MeasuredRun] = []
    skipped: dict[str, str] = {}
    for run in _opened(runs, skipped):
        try:
            kept.append(measured_run(run, graph if graph is not None and _has(run, graph) else None, cores=cores))
        except LabError as error:
            skipped[run.id] = str(error)
    return FoundRuns(tuple(kept), MappingProxyType(skipped))


def measured_run(run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None) -> MeasuredRun:
    """One run with the work of its epoch.

    Args:
        run: finished, of at least two epochs, never steered nor slowed on purpose.
        graph: its data; loaded where not given.
        cores: of the machine; this process's where not given.

    Raises:
        DataError: it tells nothing; the message says why.
        LabError: its data are not here, or cannot be counted.
    """
    _refuse(run)
    work, facts = count_work(run.config, load_for(run.config) if graph is None else graph)
    steps = run.table("steps")
    counted = steps[steps["epoch"] >= WARM_UPS]
    if counted.empty:
        raise DataError(f"run {run.id} has one epoch: record {LEAST_EPOCHS} or more.")
    available = len(os.sched_getaffinity(0)) if cores is None else cores
    shared, crowded = run.config.ranks > available, _crowded(run, counted)
    return MeasuredRun(
        run, work, facts, _step(run, work, counted, shared=shared or crowded), _quantities(run, counted), _rpc(run),
        shared, _machine(run), crowded,
    )  # fmt: skip


def _crowded(run: StoredRun, steps: pd.DataFrame) -> bool:
    """Whether the processor was elsewhere for much of the ranks' own time; not known where GPUs compute."""
    if run.config.device != "cpu" and run.environment.get("gpus"):
        return False
    own = float(steps[list(_OWN)].sum(axis=1).sum())
    return float(steps["cpu_s"].sum()) < LEAST_BUSY * own


def _machine(run: StoredRun) -> str:
    told = run.environment
    gpus = told.get("gpus") or []
    on_gpu = bool(gpus) and run.config.device != "cpu"
    return f"{told.get('cpu', {}).get('model', 'unknown processor')}{f', {len(gpus)} GPUs' * on_gpu}"


def _opened(runs: Iterable[StoredRun | str | Path], skipped: dict[str, str]) -> list[StoredRun]:
    found: list[StoredRun] = []
    for given in runs:
        if isinstance(given, StoredRun):
            found.append(given)
            continue
        folder = Path(getattr(given, "path", given))  # a handle of a run that trained here has one
        inside = [folder] if (folder / "config.json").is_file() else sorted(folder.glob("*/config.json"))[-MOST_RUNS:]
        for path in inside:
            one = path if path.is_dir() else path.parent
            try:
                found.append(open_run(one))
            except LabError as error:
                skipped[one.name] = str(error)
        if not inside:
            raise RunStoreError(f"{folder} is no run and holds none. Give folders of runs, or runs_dir=.")
    return found


def _has(run: StoredRun, graph: DynamicGraph) -> bool:
    return bool(graph.data_hash) and run.environment.get("data", {}).get("sha256") == graph.data_hash


def _refuse(run: StoredRun) -> None:
    if run.status != "finished":
        raise DataError(f"run {run.id} is {run.status}: finished ones are compared.")
    if run.config.epochs < LEAST_EPOCHS:
        raise DataError(f"run {run.id} has {run.config.epochs} epoch: {LEAST_EPOCHS} or more are needed.")
    if run.config["slow_rank"] >= 0 or run.config["congestion"] != "none" or run.config["links"]:
        raise DataError(f"run {run.id} was made slower on purpose.")
    changes = [(event["data"] or {}).get("changes") or {} for event in run.events if event["kind"] == "knob"]
    if any(set(each) - SAME_EPOCH for each in changes):
        raise DataError(f"run {run.id} was steered: its settings changed on the way.")


def _step(run: StoredRun, work: EpochWork, steps: pd.DataFrame, *, shared: bool) -> MeasuredStep:
    """Means over the steps of an epoch, and over epochs, of each rank: what predicts the mean of an epoch."""
    names = [*_OWN, "transfer_s", "communicate_s", "time_s", "cpu_s"]
    middle = steps.groupby(["rank", "epoch"])[names].mean().groupby("rank").mean()
    compute = middle[list(_OWN)].sum(axis=1).to_numpy(float)
    transfer = middle["transfer_s"].to_numpy(float)
    if shared:  # as runs.measured_steps: the processor's seconds, shared out as wall time was
        busy = np.minimum(middle["cpu_s"].to_numpy(float), compute + transfer)
        part = compute / np.maximum(compute + transfer, 1e-12)
        return MeasuredStep(run.id, work.step(), busy * part, busy * (1 - part))
    exchanged = float(middle["communicate_s"].max()) if run.config.ranks > 1 and work.waits else None
    return MeasuredStep(run.id, work.step(), compute, transfer, exchanged, float(middle["time_s"].max()))


def _quantities(run: StoredRun, steps: pd.DataFrame) -> Mapping[str, float]:
    summary = run.summary
    sent = steps.groupby(["rank", "epoch"])["bytes_sent"].sum().groupby("rank").median()
    slowest = steps.groupby(["epoch", "rank"])["time_s"].sum(min_count=1).groupby("epoch").max()
    epoch_s = float(slowest.mean())  # of the epochs that count: the first warms up, which no prediction is of
    told = {
        "epoch_s": epoch_s if np.isfinite(epoch_s) else None, "rank_bytes": float(sent.max()) + _served(run, steps),
        "peak_bytes": summary.get("peak_bytes"),
        "imbalance": summary.get("imbalance") if run.config.ranks > 1 else None,
        "rows": float(steps.groupby("epoch")["vertex_snapshots"].sum().median()),
    }  # fmt: skip
    return MappingProxyType({name: float(value) for name, value in told.items() if value is not None})


def _served(run: StoredRun, steps: pd.DataFrame) -> float:
    """Bytes of features that the busiest rank sends in an epoch to parts of other ranks, which steps do not count."""
    fetched, ranks = run.table("fetches"), run.config.ranks
    if ranks == 1 or len(fetched) == 0:
        return 0.0
    here = run.config.parts // ranks
    away = fetched[(fetched["owner"] // here != fetched["part"] // here) & fetched["epoch"].isin(steps["epoch"])]
    away = away[away["purpose"] != "probe"]
    by_owner = away.groupby(away["owner"] // here)["bytes"].sum()
    return float(by_owner.max()) / steps["epoch"].nunique() if len(by_owner) else 0.0


def _rpc(run: StoredRun) -> RpcModel | None:
    fetched = run.table("fetches")
    if len(fetched) == 0:
        return None
    rows: Sequence[Mapping[str, Any]] = fetched[fetched["rows"] > 0].to_dict("records")
    try:
        return fit_rpc(fetches_of(rows, "run")["run"]).typical
    except DataError:  # too few of some owner
        return None
