"""Rates of a machine, fitted to its runs, and predictions of an epoch from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np

from dtdg_lab.forecast.measured_runs import MeasuredRun
from dtdg_lab.systems import step_time
from dtdg_lab.systems.feature_cache.calibration.calibration import DEFAULT_RPC
from dtdg_lab.systems.feature_cache.costs.cache_costs import RpcModel
from dtdg_lab.systems.step_memory import ASSUMED_MEMORY, stored_values
from dtdg_lab.systems.step_time import MeasuredStep, NetworkCosts, ScalingModel
from dtdg_lab.systems.workload import ASSUMED_COMPUTE, EpochWork, Facts, Numbers

# assumed, and reported as assumed, if no run provides them; they describe links of 10 Gb/s
ASSUMED_TRANSFER = (2e-5, 1e-9, 0.0)
ASSUMED_NETWORK = NetworkCosts(rank_bytes_s=1.25e9, message_s=1e-4)
LEAST_FITTED = 7  # number of runs needed to fit six rates; with fewer, the assumed rates are scaled


@dataclass(frozen=True, slots=True)
class Predicted:
    """A predicted epoch.

    Attributes:
        epoch_s: seconds of the epoch.
        compute_s: seconds in which the busiest rank computes.
        communicate_s: seconds of exchanging rows and gradients.
        transfer_s: seconds of transferring graphs.
        fetch_s: seconds of waiting for features.
        rank_bytes: bytes sent by the busiest rank.
        peak_bytes: bytes of a step's tensors on the rank that needs the most memory.
        held_bytes: bytes of this rank's data.
        imbalance: the busiest over the least busy rank's own time; infinite if a rank has no work.
        bound_s: lower bound of any schedule, for systems that schedule groups; None for others.
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
        """Tensors and data together."""
        return self.peak_bytes + self.held_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """The cost of each unit of work.

    Attributes:
        scaling: seconds per processed, exchanged or transferred value, for all systems together.
        seconds_of: system -> its own time over the prediction of ``scaling``, for systems with runs. Names of systems
            on several ranks end in ``+``.
        memory: bytes per value of a row or an edge that is kept until the backward pass, for float32.
        memory_of: system -> its peak over the prediction of ``memory``, for systems with runs.
        rpc: the cost of a fetch.
        assumed: names among ``compute``, ``communicate``, ``transfer``, ``memory`` and ``fetch`` that no run provides.
        runs: number of runs used for the fit.
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
        """Return a network's costs, with assumed values for those that are neither given nor measured."""
        costs = network or NetworkCosts(per_node=2**20)
        if self.scaling.message_s is None or self.scaling.byte_s is None:
            return replace(
                costs,
                rank_bytes_s=costs.rank_bytes_s or ASSUMED_NETWORK.rank_bytes_s,
                message_s=ASSUMED_NETWORK.message_s if costs.message_s is None else costs.message_s,
            )
        return costs

    def factor(self, system: str, ranks: int) -> float:
        """Return a system's own time over the prediction of the common rates, on one or on several ranks."""
        return _factor(self.seconds_of, system, ranks)

    def allreduce(self, facts: Facts) -> Callable[[int], float]:
        """Return a function from the number of ranks to the seconds of an exchange of gradients.

        Latency is assumed to grow with log2 R; bytes follow the formula of a ring.
        """
        costs = self.network(None)
        message_s = self.scaling.message_s if costs.message_s is None else costs.message_s
        byte_s = self.scaling.byte_s if costs.rank_bytes_s is None else 1 / costs.rank_bytes_s

        def seconds(ranks: int) -> float:
            moved = 2 * facts.parameters * facts.itemsize * (ranks - 1) / ranks
            return (message_s or 0.0) * log2(ranks) + (byte_s or 0.0) * moved

        return seconds

    def predict(self, work: EpochWork, facts: Facts, network: NetworkCosts | None = None) -> Predicted:
        """Predict an epoch from its work."""
        factor = self.factor(work.system, work.ranks)
        step = self.scaling.predict(work.step(), self.network(network))
        communicate_s, transfer_s = step.communicate_s * work.steps, step.transfer_s * work.steps
        seconds_by_rank = (work.passes @ self.scaling.compute) * factor
        compute_s, bound_s, imbalance = float(seconds_by_rank.max()), None, _imbalance(seconds_by_rank)
        if work.groups is not None:
            times_s = (work.groups.passes @ self.scaling.compute) * factor
            compute_s, bound_s, imbalance = work.groups.epoch(times_s, work.ranks)
        fetch_s = self._fetch_s(work, compute_s)
        value_bytes = self.memory * (facts.itemsize / 4) * _factor(self.memory_of, work.system, work.ranks)
        peak = stored_values(work, facts) * value_bytes
        fullest = int(np.argmax(peak + work.held_bytes))
        seconds = (compute_s, communicate_s, transfer_s, fetch_s)
        epoch_s, memory = sum(seconds), (float(peak[fullest]), float(work.held_bytes[fullest]))
        rounds = 0.0
        if work.round_bytes is not None and work.ranks > 1:  # there is at least one round, at the end of the run
            rounds = work.round_bytes[0] * max(1.0, epoch_s / work.round_bytes[1])
        return Predicted(epoch_s, *seconds, work.rank_bytes + rounds, *memory, imbalance, bound_s)

    def _fetch_s(self, work: EpochWork, compute_s: float) -> float:
        """Return the seconds in which an epoch waits for features; prefetching overlaps with computing."""
        if work.fetching is None or not work.fetching.bytes:
            return 0.0
        step_s = float(self.rpc.rtt_s(work.fetching.bytes / max(work.fetching.owners, 1.0)))
        return max(0.0, step_s * work.steps - compute_s) if work.fetching.ahead else step_s * work.steps


def fit_rates(runs: Sequence[MeasuredRun], like: Facts | None = None) -> Rates:
    """Fit rates to some runs; rates that they do not provide are assumed.

    Args:
        runs: measured runs; without any, all rates are assumed.
        like: facts of the config to predict. If some runs have its model and sizes, only these are used.
    """
    used, notes = _alike(runs, like)
    if not used:
        scaling = ScalingModel(np.array(ASSUMED_COMPUTE), np.array(ASSUMED_TRANSFER), None, None)
        nothing: Mapping[str, float] = MappingProxyType({})
        all_assumed = frozenset({"compute", "communicate", "transfer", "memory", "fetch"})
        return Rates(scaling, nothing, ASSUMED_MEMORY, nothing, DEFAULT_RPC, all_assumed, 0, notes)
    steps = [_mean_rank(run) for run in used]
    scaling, assumed = step_time.fit_scaling(steps), set()
    if len(used) < LEAST_FITTED:
        default = np.array(ASSUMED_COMPUTE)
        factor = median(float(step.compute_s.sum() / (step.work.passes @ default).sum()) for step in steps)
        scaling = replace(scaling, compute=default * factor)
        notes = (*notes, f"{len(used)} runs are too few to fit six rates: assumed ones are scaled in proportion")
    if scaling.message_s is None or scaling.byte_s is None:
        assumed.add("communicate")
    if scaling.transfer is None:
        assumed.add("transfer")
        scaling = replace(scaling, transfer=np.array(ASSUMED_TRANSFER))
    if not scaling.compute.any():
        assumed.add("compute")
        scaling = replace(scaling, compute=np.array(ASSUMED_COMPUTE))
    rpc = [run.rpc for run in used if run.rpc is not None]
    if rpc:
        typical = RpcModel(median(model.a_s for model in rpc), median(model.s_per_byte for model in rpc))
    else:
        typical = DEFAULT_RPC
        assumed.add("fetch")
    memory, is_measured = _memory(used)
    if not is_measured:
        assumed.add("memory")
    kinds = [kind_of(run.system, run.work.ranks) for run in used]
    peaks = [
        (kind, _peak_ratio(run, memory))
        for kind, run in zip(kinds, used, strict=True)
        if "peak_bytes" in run.quantities
    ]
    seconds = []  # measured over predicted own time of a step, over all ranks together
    for kind, run in zip(kinds, used, strict=True):
        predicted = float((run.step.work.passes @ scaling.compute).sum())
        seconds.append((kind, float(run.step.compute_s.sum()) / predicted if predicted > 0 else 1.0))
    crowded = sum(run.crowded for run in used)
    if crowded:
        notes = (
            *notes,
            f"other processes used the machine during {crowded} of them, so their wall times are longer and "
            "their processor times are used",
        )
    return Rates(scaling, _by_system(seconds), memory, _by_system(peaks), typical, frozenset(assumed), len(used), notes)


def _alike(runs: Sequence[MeasuredRun], like: Facts | None) -> tuple[list[MeasuredRun], tuple[str, ...]]:
    """Return the runs on the newest run's machine, if possible only those of the same model and sizes, and notes."""
    if like is None or not runs:
        return list(runs), ()
    newest = max(runs, key=lambda run: run.run.id)
    local = [run for run in runs if run.machine == newest.machine]
    notes: tuple[str, ...] = ()
    if len(local) < len(runs):
        notes = (f"{len(runs) - len(local)} runs on machines other than {newest.machine} are ignored",)
    same = [run for run in local if _size(run.facts) == _size(like)]
    if same:
        return same, notes
    sizes = sorted({f"{run.facts.config.model}, hidden {run.facts.config.hidden}" for run in local})
    return local, (
        *notes,
        f"no run has {like.config.model} with hidden {like.config.hidden} and {like.config.layers} layer(s), so "
        f"rates of {'; '.join(sizes)} are scaled by the number of values",
    )


def _size(facts: Facts) -> tuple[Any, ...]:
    config = facts.config
    return config.model, config.hidden, config.layers, config["dtype"]


def _mean_rank(run: MeasuredRun) -> MeasuredStep:
    """Return the step with mean seconds for every rank, since a schedule decides which rank computes which groups."""
    step = run.step
    if run.work.groups is None:
        return step

    def mean(values: Numbers) -> Numbers:
        return np.broadcast_to(values.mean(axis=0), values.shape).copy()

    return replace(step, compute_s=mean(step.compute_s), transfer_s=mean(step.transfer_s))


def _memory(runs: Sequence[MeasuredRun]) -> tuple[float, bool]:
    """Return the bytes per stored value, the median of runs' peaks, and whether any run has a peak."""
    with_peak = [run for run in runs if run.quantities.get("peak_bytes", 0) > 0]
    if not with_peak:
        return ASSUMED_MEMORY, False
    return median(peak / values for values, peak in map(_kept_values, with_peak)), True


def _kept_values(run: MeasuredRun) -> tuple[float, float]:
    """Return the number of values stored for rows and edges on the busiest rank, and its peak in bytes of float32."""
    largest = float(stored_values(run.work, run.facts).max())
    return max(largest, 1.0), run.quantities["peak_bytes"] * 4 / run.facts.itemsize


def _peak_ratio(run: MeasuredRun, memory: float) -> float:
    values, peak = _kept_values(run)
    return peak / (values * memory)


def _by_system(ratios: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    """Return the median of each system's ratios, in logarithms."""
    by_system: dict[str, list[float]] = {}
    for system, ratio in ratios:
        if ratio > 0 and np.isfinite(ratio):
            by_system.setdefault(system, []).append(ratio)
    return MappingProxyType({system: float(np.exp(np.median(np.log(values)))) for system, values in by_system.items()})


def kind_of(system: str, ranks: int) -> str:
    """Return a system's name, with ``+`` for several ranks, on which its strategy differs and communicates."""
    return f"{system}{'+' * (ranks > 1)}"


def _factor(factors: Mapping[str, float], system: str, ranks: int) -> float:
    """Return the system's known factor on as many ranks; else on other ranks, scaled like others; else of others."""
    kind, is_several = kind_of(system, ranks), ranks > 1
    if kind in factors:
        return factors[kind]
    alike = [value for name, value in factors.items() if name.endswith("+") is is_several]
    unlike = [value for name, value in factors.items() if name.endswith("+") is not is_several]
    other_kind = system if is_several else f"{system}+"
    if other_kind in factors:
        return factors[other_kind] * (median(alike) / median(unlike) if alike else 1.0)
    return median(alike or unlike or [1.0])


def _imbalance(seconds: Numbers) -> float:
    """Return the longest over the shortest of the ranks' own times; infinite if a rank has no work."""
    shortest = float(np.min(seconds))
    return float(np.max(seconds)) / shortest if shortest > 0 else float("inf")
