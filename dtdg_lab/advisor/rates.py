"""Rates of a machine, fitted to its runs, and the predictions that they give for an epoch's work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.core.errors import DataError, LabError, RunStoreError
from dtdg_lab.core.units import as_path
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.run import StoredRun, open_run
from dtdg_lab.systems import step_time
from dtdg_lab.systems.feature_cache.calibration.measurements import fetches_of
from dtdg_lab.systems.feature_cache.calibration.rpc_fit import fit_rpc
from dtdg_lab.systems.feature_cache.calibration.shipped import DEFAULT_RPC
from dtdg_lab.systems.feature_cache.costs.rpc_model import RpcModel
from dtdg_lab.systems.step_time import MeasuredStep, NetworkCosts, ScalingModel
from dtdg_lab.systems.workload import ASSUMED_COMPUTE, EpochWork, Facts, Numbers, count_work

if TYPE_CHECKING:
    import pandas as pd


# Measurements of a recorded run for comparison with predictions: seconds, bytes, memory, imbalance.


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
        shared: whether its ranks shared cores, so that its wall times do not apply to others.
        machine: processor, and GPUs if they computed.
        crowded: whether its processes got less than ``LEAST_BUSY`` of their own time, because the machine was busy.
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
    kept: list[MeasuredRun] = []
    skipped: dict[str, str] = {}
    for run in _opened(runs, skipped):
        try:
            data_hash = run.environment.get("data", {}).get("sha256")
            same = graph is not None and graph.data_hash and data_hash == graph.data_hash
            kept.append(measured_run(run, graph if same else None, cores=cores))
        except LabError as error:
            skipped[run.id] = str(error)
    return FoundRuns(tuple(kept), MappingProxyType(skipped))


def measured_run(run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None) -> MeasuredRun:
    """One run with the work of its epoch.

    Args:
        run: finished, with at least two epochs, without live changes or artificial slowdown.
        graph: its data; loaded by default.
        cores: of the machine; by default this process's.

    Raises:
        DataError: it is unusable; the message gives the reason.
        LabError: its data are not available, or cannot be counted.
    """
    _refuse(run)
    work, facts = count_work(run.config, load_for(run.config) if graph is None else graph)
    steps = run.table("steps")
    counted = steps[steps["epoch"] >= WARM_UPS]
    if counted.empty:
        raise DataError(f"run {run.id} has one epoch: record {LEAST_EPOCHS} or more.")
    available = len(os.sched_getaffinity(0)) if cores is None else cores
    gpus = [] if run.config.device == "cpu" else run.environment.get("gpus") or []
    own_s = float(counted[list(step_time.OWN_SECONDS)].sum(axis=1).sum())  # unknown whether crowded if GPUs compute
    shared, crowded = run.config.ranks > available, not gpus and float(counted["cpu_s"].sum()) < LEAST_BUSY * own_s
    step, quantities = _step(run, work, counted, shared=shared or crowded), _quantities(run, counted)
    processor = run.environment.get("cpu", {}).get("model", "unknown processor")
    machine = f"{processor}{f', {len(gpus)} GPUs' if gpus else ''}"
    return MeasuredRun(run, work, facts, step, quantities, _rpc(run), shared, machine, crowded)


def _opened(runs: Iterable[StoredRun | str | Path], skipped: dict[str, str]) -> list[StoredRun]:
    found: list[StoredRun] = []
    for given in runs:
        if isinstance(given, StoredRun):
            found.append(given)
            continue
        folder = as_path(getattr(given, "path", given), "runs", RunStoreError)  # a handle of a local run has one
        inside = [folder] if (folder / "config.json").is_file() else sorted(folder.glob("*/config.json"))[-MOST_RUNS:]
        for path in inside:
            one = path if path.is_dir() else path.parent
            try:
                found.append(open_run(one))
            except LabError as error:
                skipped[one.name] = str(error)
        if not inside:
            raise RunStoreError(f"{folder} is not a run and contains none. Give folders of runs, or runs_dir=.")
    return found


def _refuse(run: StoredRun) -> None:
    if run.status != "finished":
        raise DataError(f"run {run.id} is {run.status}: only finished runs can be compared.")
    if run.config.epochs < LEAST_EPOCHS:
        raise DataError(f"run {run.id} has {run.config.epochs} epoch: at least {LEAST_EPOCHS} are required.")
    if run.config["slow_rank"] >= 0 or run.config["congestion"] != "none" or run.config["links"]:
        raise DataError(f"run {run.id} was slowed artificially.")
    changes = [(event["data"] or {}).get("changes") or {} for event in run.events if event["kind"] == "settings"]
    if any(set(each) - SAME_EPOCH for each in changes):
        raise DataError(f"run {run.id} had live changes: its settings changed during training.")


def _step(run: StoredRun, work: EpochWork, steps: pd.DataFrame, *, shared: bool) -> MeasuredStep:
    """Means over the steps of an epoch, and over epochs, of each rank: what predicts the mean of an epoch."""
    by_rank = steps.groupby(["rank", "epoch"])[list(step_time.STEP_SECONDS)].mean().groupby("rank").mean()
    own_s = by_rank[[*step_time.OWN_SECONDS, "transfer_s"]].sum(axis=1)
    found = step_time.measured_from(
        run.id, work.step(), by_rank.assign(cpu_s=by_rank["cpu_s"].clip(upper=own_s)), shared=shared
    )
    return found if run.config.ranks > 1 and work.waits else replace(found, communicate_s=None)


def _quantities(run: StoredRun, steps: pd.DataFrame) -> Mapping[str, float]:
    summary = run.summary
    sent = steps.groupby(["rank", "epoch"])["bytes_sent"].sum().groupby("rank").median()
    slowest = steps.groupby(["epoch", "rank"])["time_s"].sum(min_count=1).groupby("epoch").max()
    epoch_s = float(slowest.mean())  # of the epochs that count: the first is warm-up, which is not predicted
    described = {
        "epoch_s": epoch_s if np.isfinite(epoch_s) else None,
        "rank_bytes": float(sent.max()) + _served(run, steps),
        "peak_bytes": summary.get("peak_bytes"),
        "imbalance": summary.get("imbalance") if run.config.ranks > 1 else None,
        "rows": float(steps.groupby("epoch")["vertex_snapshots"].sum().median()),
    }
    return MappingProxyType({name: float(value) for name, value in described.items() if value is not None})


def _served(run: StoredRun, steps: pd.DataFrame) -> float:
    """Bytes of features that the busiest rank sends to other ranks' partitions in an epoch; steps do not count them."""
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


QUANTITIES = ("epoch_s", "rank_bytes", "peak_bytes", "imbalance")
# assumed, and reported as such, if no run provides them: links of 10 Gb/s
ASSUMED_TRANSFER = (2e-5, 1e-9, 0.0)
ASSUMED_NETWORK = NetworkCosts(rank_bytes_s=1.25e9, message_s=1e-4)
ASSUMED_MEMORY = 4.0  # bytes per kept value
LEAST_FITTED = 7  # runs, for a fit of six rates; fewer scale the assumed ones


@dataclass(frozen=True, slots=True)
class Predicted:
    """An epoch as predicted.

    Attributes:
        epoch_s: seconds.
        compute_s: of these, the busiest rank's computation.
        communicate_s: exchanges of rows and gradients.
        transfer_s: transfer of graphs.
        fetch_s: waiting for features.
        rank_bytes: sent by the busiest rank.
        peak_bytes: of a step's tensors on the rank with most.
        held_bytes: additional data of this rank.
        imbalance: busiest over least busy rank's own seconds; infinite where one has nothing to do.
        bound_s: lower bound of any schedule, for systems that schedule groups; else None.
    """

    epoch_s: float
    compute_s: float
    communicate_s: float
    transfer_s: float
    fetch_s: float
    rank_bytes: float
    peak_bytes: float
    held_bytes: float
    imbalance: float
    bound_s: float | None = None

    @property
    def memory_bytes(self) -> float:
        """Peak and data together."""
        return self.peak_bytes + self.held_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """The cost of a unit of work.

    Attributes:
        scaling: seconds per value processed, exchanged or transferred: for all systems together.
        seconds_of: system -> its own time over the prediction of ``scaling``, from its runs; only systems with runs.
            Names of
            systems on several ranks end in ``+``.
        memory: bytes of a kept value of a row or an edge until backward, of float32.
        memory_of: system -> its peak over the prediction of ``memory``, from its runs.
        rpc: of a fetch.
        assumed: those of ``compute``, ``communicate``, ``transfer``, ``memory``, ``fetch`` without any run.
        runs: number of fitted runs.
        notes: further remarks.
    """

    scaling: ScalingModel
    seconds_of: Mapping[str, float]
    memory: float
    memory_of: Mapping[str, float]
    rpc: RpcModel
    assumed: frozenset[str]
    runs: int
    notes: tuple[str, ...] = ()

    def network(self, network: NetworkCosts | None) -> NetworkCosts:
        """The given rates, with unmeasured ones marked as assumed."""
        given = network or NetworkCosts(per_node=2**20)
        if self.scaling.message_s is None or self.scaling.byte_s is None:
            return replace(
                given,
                rank_bytes_s=given.rank_bytes_s or ASSUMED_NETWORK.rank_bytes_s,
                message_s=ASSUMED_NETWORK.message_s if given.message_s is None else given.message_s,
            )
        return given

    def factor(self, system: str, ranks: int) -> float:
        """A system's own seconds over the prediction of the common rates, on one or on several ranks."""
        return _factor(self.seconds_of, system, ranks)

    def allreduce(self, facts: Facts) -> Callable[[int], float]:
        """Ranks -> seconds of an exchange of gradients: latency by log2 R (assumed), bytes by the ring's formula."""
        given = self.network(None)
        message_s = self.scaling.message_s if given.message_s is None else given.message_s
        byte_s = self.scaling.byte_s if given.rank_bytes_s is None else 1 / given.rank_bytes_s

        def seconds(ranks: int) -> float:
            moved = 2 * facts.parameters * facts.itemsize * (ranks - 1) / ranks
            return (message_s or 0.0) * log2(ranks) + (byte_s or 0.0) * moved

        return seconds

    def predict(self, work: EpochWork, facts: Facts, network: NetworkCosts | None = None) -> Predicted:
        """Predict an epoch of some work."""
        factor = self.factor(work.system, work.ranks)
        step = self.scaling.predict(work.step(), self.network(network))
        communicate_s, transfer_s = step.communicate_s * work.steps, step.transfer_s * work.steps
        own = (work.passes @ self.scaling.compute) * factor
        compute_s, bound_s, imbalance = float(own.max()), None, _imbalance(own)
        if work.groups is not None:
            times_s = (work.groups.passes @ self.scaling.compute) * factor
            compute_s, bound_s, imbalance = work.groups.epoch(times_s, work.ranks)
        fetch_s = self._fetch_s(work, compute_s)
        a_number = self.memory * (facts.itemsize / 4) * _factor(self.memory_of, work.system, work.ranks)
        peak = (work.alive @ _per_row(facts)) * a_number
        most = int(np.argmax(peak + work.held_bytes))
        seconds = (compute_s, communicate_s, transfer_s, fetch_s)
        epoch_s, most_bytes = sum(seconds), (float(peak[most]), float(work.held_bytes[most]))
        rounds = 0.0
        if work.round_bytes is not None and work.ranks > 1:  # at least one at the end of the run
            rounds = work.round_bytes[0] * max(1.0, epoch_s / work.round_bytes[1])
        return Predicted(epoch_s, *seconds, work.rank_bytes + rounds, *most_bytes, imbalance, bound_s)

    def _fetch_s(self, work: EpochWork, compute_s: float) -> float:
        """Exposed seconds of an epoch's feature fetches: prefetching overlaps with computing."""
        if work.fetching is None or not work.fetching.bytes:
            return 0.0
        a_step = float(self.rpc.rtt_s(work.fetching.bytes / max(work.fetching.owners, 1.0)))
        return max(0.0, a_step * work.steps - compute_s) if work.fetching.ahead else a_step * work.steps


def fit_rates(runs: Sequence[MeasuredRun], like: Facts | None = None) -> Rates:
    """Rates of some runs; missing ones are assumed.

    Args:
        runs: measured; without any, rates are assumed.
        like: config to predict: if there are runs of its model and sizes, only these are used.
    """
    chosen, notes = _alike(runs, like)
    if not chosen:
        scaling = ScalingModel(np.array(ASSUMED_COMPUTE), np.array(ASSUMED_TRANSFER), None, None)
        nothing: Mapping[str, float] = MappingProxyType({})
        all_assumed = frozenset({"compute", "communicate", "transfer", "memory", "fetch"})
        return Rates(scaling, nothing, ASSUMED_MEMORY, nothing, DEFAULT_RPC, all_assumed, 0, notes)
    steps = [_mean_rank(run) for run in chosen]
    scaling, assumed = step_time.fit_scaling(steps), set()
    if len(chosen) < LEAST_FITTED:
        usual = np.array(ASSUMED_COMPUTE)
        of_usual = median(float(step.compute_s.sum() / (step.work.passes @ usual).sum()) for step in steps)
        scaling = replace(scaling, compute=usual * of_usual)
        notes = (*notes, f"{len(chosen)} runs are too few to fit six rates: assumed ones are scaled in proportion")
    if scaling.message_s is None or scaling.byte_s is None:
        assumed.add("communicate")
    if scaling.transfer is None:
        assumed.add("transfer")
        scaling = replace(scaling, transfer=np.array(ASSUMED_TRANSFER))
    if not scaling.compute.any():
        assumed.add("compute")
        scaling = replace(scaling, compute=np.array(ASSUMED_COMPUTE))
    rpc = [run.rpc for run in chosen if run.rpc is not None]
    if rpc:
        typical = RpcModel(median(model.a_s for model in rpc), median(model.s_per_byte for model in rpc))
    else:
        typical = DEFAULT_RPC
        assumed.add("fetch")
    memory, described = _memory(chosen)
    if not described:
        assumed.add("memory")
    kinds = [kind_of(run.system, run.work.ranks) for run in chosen]
    kept = [
        (kind, _kept(run, memory)) for kind, run in zip(kinds, chosen, strict=True) if "peak_bytes" in run.quantities
    ]
    own = []  # measured over predicted own seconds of a step, of all ranks together
    for kind, run in zip(kinds, chosen, strict=True):
        predicted = float((run.step.work.passes @ scaling.compute).sum())
        own.append((kind, float(run.step.compute_s.sum()) / predicted if predicted > 0 else 1.0))
    crowded = sum(run.crowded for run in chosen)
    if crowded:
        notes = (
            *notes,
            f"other processes used the machine beside {crowded} of them: their processor seconds are "
            "used, and their wall times are longer",
        )
    return Rates(scaling, _by_system(own), memory, _by_system(kept), typical, frozenset(assumed), len(chosen), notes)


def _alike(runs: Sequence[MeasuredRun], like: Facts | None) -> tuple[list[MeasuredRun], tuple[str, ...]]:
    """Runs on the newest one's machine; among these, those of the same model and sizes, else all; with notes."""
    if like is None or not runs:
        return list(runs), ()
    newest = max(runs, key=lambda run: run.run.id)
    here = [run for run in runs if run.machine == newest.machine]
    notes: tuple[str, ...] = ()
    if len(here) < len(runs):
        notes = (f"{len(runs) - len(here)} runs on machines other than {newest.machine} are ignored",)
    runs, wanted = here, _size(like)
    same = [run for run in runs if _size(run.facts) == wanted]
    if same:
        return same, notes
    others = sorted({f"{run.facts.config.model}, hidden {run.facts.config.hidden}" for run in runs})
    return list(runs), (
        *notes,
        f"no run of {like.config.model} with hidden {like.config.hidden} and {like.config.layers} layer(s): rates are "
        f"those of {'; '.join(others)}, scaled by the number of values",
    )


def _size(facts: Facts) -> tuple[Any, ...]:
    config = facts.config
    return config.model, config.hidden, config.layers, config["dtype"]


def _mean_rank(run: MeasuredRun) -> MeasuredStep:
    """The step with the mean work and seconds for every rank, because the assignment of groups is a schedule's."""
    step = run.step
    if run.work.groups is None:
        return step

    def mean(values: Numbers) -> Numbers:
        return np.broadcast_to(values.mean(axis=0), values.shape).copy()

    return replace(step, compute_s=mean(step.compute_s), transfer_s=mean(step.transfer_s))


def _memory(runs: Sequence[MeasuredRun]) -> tuple[float, bool]:
    """Bytes of a kept value, the median of runs' peaks; and whether they determine it."""
    known = [run for run in runs if run.quantities.get("peak_bytes", 0) > 0]
    if not known:
        return ASSUMED_MEMORY, False
    return median(peak / numbers for numbers, peak in map(_kept_numbers, known)), True


def _kept_numbers(run: MeasuredRun) -> tuple[float, float]:
    """Values of rows and edges alive on the busiest rank, and the peak in bytes of float32."""
    most = float((run.work.alive @ _per_row(run.facts)).max())
    return max(most, 1.0), run.quantities["peak_bytes"] * 4 / run.facts.itemsize


def _per_row(facts: Facts) -> Numbers:
    """Values kept of a row and of an edge."""
    return np.array([facts.row_numbers, facts.edge_numbers], np.float64)


def _kept(run: MeasuredRun, memory: float) -> float:
    numbers, peak = _kept_numbers(run)
    return peak / (numbers * memory)


def _by_system(ratios: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    """The geometric mean of each system's ratios."""
    found: dict[str, list[float]] = {}
    for system, ratio in ratios:
        if ratio > 0 and np.isfinite(ratio):
            found.setdefault(system, []).append(ratio)
    return MappingProxyType({system: float(np.exp(np.median(np.log(each)))) for system, each in found.items()})


def kind_of(system: str, ranks: int) -> str:
    """A system alone, or on several ranks (with a ``+``), where strategies differ and communicate."""
    return f"{system}{'+' * (ranks > 1)}"


def _factor(of: Mapping[str, float], system: str, ranks: int) -> float:
    """The known rate of the system on as many ranks; else elsewhere, scaled like others; else that of the others."""
    mine, several = kind_of(system, ranks), ranks > 1
    if mine in of:
        return of[mine]
    here = [value for name, value in of.items() if name.endswith("+") is several]
    there = [value for name, value in of.items() if name.endswith("+") is not several]
    other = system if several else f"{system}+"
    if other in of:
        return of[other] * (median(here) / median(there) if here else 1.0)
    return median(here or there or [1.0])


def _imbalance(own: Numbers) -> float:
    """Most over least of the ranks' own seconds; 1 of one rank, infinite where one has nothing to do."""
    least = float(np.min(own))
    return float(np.max(own)) / least if least > 0 else float("inf")
