"""What GreenDyGNN claims: trainings under congestion, remote calls, decisions, simulated policies and step times."""

from __future__ import annotations

import atexit
import math
import os
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import pandas as pd

from dtdg_lab.cluster.calibrate_here import calibrate_here
from dtdg_lab.config.record_tables import BETWEEN_STEPS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.user_data import from_static
from dtdg_lab.energy.phases import IDLE, STALLED
from dtdg_lab.energy.total import GPU, MEASURED, PROCESSOR, total_of
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.network.emulated_network import EmulatedNetwork
from dtdg_lab.network.links import BITS
from dtdg_lab.reproduction.training import CellTrainer
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.runs.summary import spent
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import Calibration, calibrate, shipped_costs
from dtdg_lab.systems.feature_cache.calibration.fits import relative_line
from dtdg_lab.systems.feature_cache.calibration.live_check import check_live
from dtdg_lab.systems.feature_cache.calibration.report import largest_errors, mean_errors
from dtdg_lab.systems.feature_cache.calibration.study import measure
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.policies.baselines import FixedWindow
from dtdg_lab.systems.feature_cache.policies.interface import CacheView, ManyPolicy
from dtdg_lab.systems.feature_cache.policies.learned import (
    DOUBLE_DQN,
    DOUBLE_DQN_PLUS,
    StoredPolicy,
    learned_policy,
    load_policy,
    save_policy,
)
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from dtdg_lab.systems.feature_cache.simulation.cases import (
    PAPER_ARCHETYPES,
    STEADY,
    CacheCase,
    comparison_cases,
    training_cases,
)
from dtdg_lab.systems.feature_cache.simulation.comparison import SEED, ComparedPolicy, compare, run_policy
from dtdg_lab.systems.feature_cache.simulation.simulator import CacheSimulator

Settings = Mapping[str, Any]
Numbers = dict[str, Any]
PARTS = 4
CLASSES = 8
POPULARITY = 0.6  # exponent by which a node is drawn less often than those before it
CLASS_EDGES = 0.7  # share of edges within a class
NOISE = 2.0  # of features around the mean of their class
FLOAT_BYTES = 4
EPOCHS, EPOCH_STEPS = 30, {"ogbn-products": 25, "reddit": 20}  # of the authors' runs
CALIBRATION_FILE = "step_time.csv"


# trainings


def train_under_congestion(settings: Settings, seed: int) -> Numbers:
    """Train a generated graph under congestion, and first on clean links if asked.

    Args:
        settings: of a RunConfig, and ``nodes``, ``degree`` and ``features`` of the graph; ``batch_scale``, which
            multiplies the batch size; ``throttled``: with the rate ``mbit`` on slow links; ``training``: ``paper`` for
            the policy of the paper's training with this seed; ``uniform``: whether this policy prefers no owner;
            ``clean_too``: whether to train on clean links first.
        seed: of parameters, batches and congested owners; not of the graph.
    """
    chosen = dict(settings)
    clean_too = chosen.pop("clean_too", False)
    config = _congested_config(chosen, seed)
    clean = config.replace(congestion="none")
    _warm_up(clean)
    numbers: Numbers = {}
    if clean_too:
        numbers = {f"clean_{name}": value for name, value in _train(clean).items()}
    numbers |= _train(config)
    if clean_too:
        overhead = numbers["joules"] / numbers["clean_joules"] - 1
        numbers |= {"overhead": overhead, "robustness": 1 - overhead}
    return numbers


def _congested_config(settings: Settings, seed: int) -> RunConfig:
    chosen = dict(settings)
    graph = make_graph(*(chosen.pop(name) for name in ("nodes", "degree", "features")))
    mbit, throttled = chosen.pop("mbit"), chosen.pop("throttled", False)
    chosen["batch_size"] = round(chosen["batch_size"] * chosen.pop("batch_scale", 1.0))
    training = chosen.pop("training", "")
    if training not in ("", "paper"):
        raise ConfigError(f'training = "{training}" is unknown. Give "paper", or leave it out for the shipped policy.')
    if training:
        is_uniform = chosen.pop("uniform", False)
        chosen["policy_file"] = str(_uniform_policy_file(seed) if is_uniform else paper_policy_file(seed))
    chosen["evaluate_every"] = chosen["epochs"]
    return RunConfig(**chosen, dataset=graph.store(), congestion_mbit=mbit if throttled else 0.0, seed=seed)


def make_graph(nodes: int, degree: int, features: int) -> DynamicGraph:
    """Return a static graph with classes and popular nodes; the same for every seed.

    Edges are mostly within classes, features are scattered around the mean of their class, and popular nodes are
    neighbours of many, which makes a cache worthwhile on the paper's graphs.
    """
    draw = generator(0, "reproduce/greendygnn", nodes)
    classes = draw.integers(0, CLASSES, nodes)
    popularity = draw.permutation((1.0 + np.arange(nodes)) ** -POPULARITY)
    edges = nodes * degree
    src = draw.choice(nodes, edges, p=popularity / popularity.sum())
    by_class, counts = np.argsort(classes, kind="stable"), np.bincount(classes, minlength=CLASSES)
    starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
    peers = by_class[starts[classes[src]] + (draw.random(edges) * counts[classes[src]]).astype(np.int64)]
    dst = np.where(draw.random(edges) < CLASS_EDGES, peers, draw.integers(0, nodes, edges))
    ring = np.arange(nodes)  # a node without edges would not be in the graph
    means = draw.standard_normal((CLASSES, features))
    rows = means[classes] + NOISE * draw.standard_normal((nodes, features))
    return from_static(
        np.concatenate([src, ring]),
        np.concatenate([dst, np.roll(ring, 1)]),
        features=rows.astype(np.float32),
        labels=classes,
        name=f"classes-{nodes}-{features}",
    )


def check_reward(settings: Settings, seed: int) -> Numbers:
    """Calibrate this machine, train under congestion, and compare rewards with those that the calibration predicts.

    Args:
        settings: as of :func:`train_under_congestion`, with one rank; and of the calibration ``windows``,
            ``conditions``, ``rows``, ``repeats`` and ``calibration_steps``.
        seed: of parameters, batches and congested owners.
    """
    chosen = dict(settings)
    sizes = {name: chosen.pop(name) for name in ("windows", "conditions", "rows", "repeats")}
    sizes["steps"] = chosen.pop("calibration_steps")
    config = _congested_config(chosen, seed)
    folder = _folder()
    study = calibrate_here(config, folder / "calibration", runs_dir=folder / "runs", progress=False, **sizes)
    live = _trainer().read_run(config, lambda run: check_live(run, study.calibration), stop={})
    steps = live.table()
    return {
        "reward": live.reward,
        "simulated_reward": live.simulated_reward,
        "reward_difference": abs(live.difference),
        "step_error": float((steps["predicted_ms"] / steps["measured_ms"] - 1).abs().mean()),
        "decisions": len(steps),
    }


@cache
def _trainer() -> CellTrainer:
    """Return a trainer whose engines serve all cells of this process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(CellTrainer(_folder()))


@cache
def _folder() -> Path:
    """Return a folder that is removed at the end of this process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dtdg-lab-greendygnn-")))


_WARM: set[str] = set()  # data sets that the engines have trained


def _warm_up(config: RunConfig) -> None:
    """Train an epoch, so that the partition exists and no measured run is the engines' first."""
    if config.dataset not in _WARM:
        _trainer().read_run(config.replace(epochs=1, evaluate_every=1), lambda run: None, stop={})
        _WARM.add(config.dataset)


def _train(config: RunConfig) -> Numbers:
    return _trainer().read_run(config, read_numbers, stop={})


def read_numbers(run: StoredRun) -> Numbers:
    """Return what the steps of a run took; evaluations and preparation are left out, unknown numbers are None.

    Joules by device are of the whole run, since counters do not tell steps apart. Numbers of congested epochs, and of
    the others (``quiet``), are means over epochs.
    """
    config = run.config
    steps, phases = run.table("steps"), run.table("phase_energy")
    inside = phases[~phases["phase"].isin((*BETWEEN_STEPS, IDLE))]
    energy, waiting = spent(inside), spent(inside[inside["phase"].isin(STALLED)])
    total = total_of(run.table("energy").to_dict("records"))
    epoch_s = steps.groupby(["epoch", "step"])["time_s"].max().groupby("epoch").sum()
    epoch_j = inside.groupby("epoch")["joules"].sum(min_count=1)
    network = EmulatedNetwork(config)
    slow = [epoch for epoch in range(config.epochs) if _is_slow(network, epoch)]
    test = run.summary.get("test_loss")
    return {
        "joules": energy.joules,
        "epoch_s": float(epoch_s.mean()),
        "energy_source": "+".join(energy.sources),
        "measured_share": 1.0 if {*energy.sources} <= {*MEASURED} else 0.0,
        "coverage": energy.coverage,
        "stall_share": None if waiting.joules is None or not energy.joules else waiting.joules / energy.joules,
        "gpu_j": _device_joules(total.joules(GPU)),
        "processor_j": _device_joules(total.joules(PROCESSOR)),
        "test_loss": test,
        "last_loss": float(steps[steps["rank"] == 0].sort_values("step")["global_loss"].iloc[-1]),
        **_by_congestion("j", epoch_j, slow),
        **_by_congestion("s", epoch_s, slow),
        **_caching(run, slow),
    }


def _is_slow(network: EmulatedNetwork, epoch: int) -> bool:
    links = network.at(epoch)
    return bool((links.delay_s > 0).any() or np.isfinite(links.bytes_per_s).any())


def _device_joules(joules: Mapping[str, float]) -> float | None:
    return sum(joules.values()) if joules else None


def _by_congestion(label: str, by_epoch: pd.Series[float], slow: Collection[int]) -> Numbers:
    is_slow = by_epoch.index.isin(slow)
    return {f"{name}_{label}": _mean(by_epoch[chosen]) for name, chosen in (("slow", is_slow), ("quiet", ~is_slow))}


def _mean(values: pd.Series[float]) -> float | None:
    return float(values.mean()) if values.notna().any() else None


def _caching(run: StoredRun, slow: Collection[int]) -> Numbers:
    """Return hit rates, bytes, and for a policy that decides its mean windows over steps, without the first window."""
    resolved, fetches, decisions = (run.table(name) for name in ("resolved", "fetches", "cache_decisions"))
    resolved["found"] = resolved["hits"].map(sum)
    by_epoch = resolved.groupby("epoch")[["found", "remote"]].sum()
    hits = by_epoch["found"] / by_epoch["remote"]
    sent = fetches[fetches["purpose"] != "probe"]
    numbers: Numbers = {
        "hit_rate": float(by_epoch["found"].sum() / by_epoch["remote"].sum()),
        "slow_hit_peak": float(hits[hits.index.isin(slow)].max()) if slow else None,
        "bytes": int(sent["bytes"].sum()),
        "rpcs": len(sent),
    }
    if not len(decisions):
        return numbers
    lengths = run.table("windows")[["part", "number", "length"]].rename(columns={"number": "window"})
    used = resolved.loc[resolved["window"] > 0, ["epoch", "part", "window"]].merge(lengths, on=["part", "window"])
    windows = _by_congestion("window", used.set_index("epoch")["length"], slow)
    quiet, congested = windows["quiet_window"], windows["slow_window"]
    return {
        **numbers,
        **windows,
        "window_ratio": None if quiet is None or congested is None else congested / quiet,
        "biased_share": float((decisions["biased"] >= 0).mean()),
    }


# policies


def paper_policy_file(seed: int) -> Path:
    """Return the file of a policy that ``dtdg-lab train-policy --paper --seed SEED`` trained for four parts."""
    return Path(__file__).parent / "policies" / f"seed{seed}.npz"


@cache
def _uniform_policy_file(seed: int) -> Path:
    path = _folder() / f"uniform_{seed}.npz"
    save_policy(path, without_bias(load_policy(paper_policy_file(seed))))
    return path


def without_bias(policy: StoredPolicy) -> StoredPolicy:
    """Return a policy that prefers no owner: its window is that of the uniform action of highest value.

    Each biased action has the weights of the uniform one of its window, and a value lower by 1.
    """
    parameters = policy.parameters.copy()
    hidden, actions = policy.sizes[-2:]
    last = parameters[-(hidden + 1) * actions :].reshape(hidden + 1, actions)  # a view of weights and biases
    last[...] = np.tile(last[:, : len(WINDOWS)], policy.parts)
    last[-1, len(WINDOWS) :] -= 1
    return replace(policy, parameters=parameters)


def _policies(costs: CacheCosts, seed: int) -> dict[str, ManyPolicy]:
    """Return the policies that decide by what they observe; ``paper`` is of the paper's training with this seed."""
    return {
        "planner": CachePlanner(CacheActions(costs.parts), costs),
        "paper": learned_policy(costs.parts, file=str(paper_policy_file(seed))),
        **{name: learned_policy(costs.parts, name) for name in (DOUBLE_DQN, DOUBLE_DQN_PLUS)},
    }


def simulate_policy(settings: Settings, seed: int) -> Numbers:
    """Simulate a policy under a pattern of congestion at severities that no policy was trained with.

    Args:
        settings: ``dataset`` with shipped costs, ``pattern``, ``policy``, and ``episodes`` of each severity.
        seed: of the episodes, and of the paper's training.
    """
    chosen = [
        row
        for row in _compared(settings["dataset"], settings["episodes"], seed)
        if row.policy == settings["policy"] and row.case.startswith(f"{settings['pattern']}/")
    ]
    return {
        "over_optimum": fmean(1 + row.over_clairvoyant for row in chosen),
        "over_best_fixed": fmean(1 + row.over_best_fixed for row in chosen),
        "joules": fmean(row.joules for row in chosen),
        "cases": len(chosen),
    }


@lru_cache(maxsize=4)
def _compared(dataset: str, episodes: int, seed: int) -> tuple[ComparedPolicy, ...]:
    """Return all policies in the six archetypes of the paper and under steady congestion; they share episodes."""
    costs = shipped_costs(dataset, parts=PARTS)
    cases = comparison_cases((*PAPER_ARCHETYPES, STEADY))
    return tuple(compare(_policies(costs, seed), [costs], cases, episodes=episodes, seed=SEED + seed))


def simulate_throttling(settings: Settings, seed: int) -> Numbers:
    """Simulate a policy with one owner throttled from the first step to the last, as in the authors' campaign.

    Args:
        settings: ``dataset`` with shipped costs, ``mbit`` of the owner (0: clean links), and ``policy``.
        seed: of measurement noise, and of the paper's training.
    """
    (joules,) = (
        row.joules
        for row in _throttled(settings["dataset"], settings["mbit"], seed)
        if row.policy == settings["policy"]
    )
    return {"epoch_j": joules * PARTS / EPOCHS}  # every host as much as the one that asks the throttled owner


@lru_cache(maxsize=16)
def _throttled(dataset: str, mbit: float, seed: int) -> tuple[ComparedPolicy, ...]:
    costs = shipped_costs(dataset, parts=PARTS)
    rate = (mbit or math.inf) / BITS / (PARTS - 1)  # an owner's rate is shared by those who ask it
    case = CacheCase(STEADY, "campaign", 0.0, rate)
    steps = EPOCH_STEPS[dataset]
    return tuple(
        compare(_policies(costs, seed), [costs], [case], episodes=1, seed=SEED + seed, epochs=EPOCHS, epoch_steps=steps)
    )


# costs of deciding, simulating and calling


def decide(settings: Settings, seed: int) -> Numbers:
    """Measure a decision beside a remote call, and an episode of 30 epochs in the simulator.

    Args:
        settings: ``policy`` (``fixed`` for W = 16), ``rows`` and ``features`` of the call, and ``repeats``.
        seed: of the simulated congestion.
    """
    costs = shipped_costs("ogbn-products", parts=PARTS)
    simulator = CacheSimulator([costs], training_cases(("one_slow",)), seed=seed)
    is_fixed = settings["policy"] == "fixed"
    policy: Any = FixedWindow(simulator.actions, 16) if is_fixed else _policies(costs, seed)[settings["policy"]]
    episode_s = _median_seconds(lambda: run_policy(simulator, policy), settings["repeats"])
    simulator.reset()
    for _ in range(20):  # into the congestion
        simulator.step([simulator.reference])
    view = _first_view(simulator)
    decision_s = _median_seconds(lambda: policy.decide(view), settings["repeats"])
    calls = measure([settings["rows"]], settings["features"], repeats=settings["repeats"], parts=2)
    call_s = median(call["rtt_s"] for call in calls if not call["concurrent"])
    return {
        "decision_s": decision_s,
        "call_s": call_s,
        "decision_share": decision_s / call_s,
        "episode_ms": 1e3 * episode_s,
    }


def _first_view(simulator: CacheSimulator) -> CacheView:
    views = simulator.views()
    return CacheView(
        views.states[0],
        views.delays_s[0],
        int(views.steps[0]),
        int(views.steps_left[0]),
        int(views.previous[0]),
        lambda delays_s: views.forecast(delays_s[np.newaxis])[0],
        now=int(views.now[0]),
        changes=int(views.changes[0]),
    )


def _median_seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the median seconds of a call, after one that does not count."""
    call()
    seconds = []
    for _ in range(repeats):
        started_s = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started_s)
    return median(seconds)


def call_owner(settings: Settings, seed: int) -> Numbers:
    """Measure calls of one owner, and divide them into initiation and payload by a line through their medians.

    Args:
        settings: ``rows`` of the calls, ``features`` of a row, and ``repeats``.
        seed: of the floats.
    """
    rows: Sequence[int] = settings["rows"]
    row_bytes = settings["features"] * FLOAT_BYTES
    calls = measure(rows, settings["features"], repeats=settings["repeats"], parts=2, seed=seed)
    medians = [
        median(call["rtt_s"] for call in calls if call["rows"] == count and not call["concurrent"]) for count in rows
    ]
    initiation_s, s_per_byte = relative_line(np.array(rows) * float(row_bytes), np.array(medians))
    shares = {count: initiation_s / (initiation_s + s_per_byte * count * row_bytes) for count in rows}
    return {
        "initiation_s": initiation_s,
        "s_per_byte": s_per_byte,
        "crossover_rows": initiation_s / s_per_byte / row_bytes if s_per_byte else None,
        **{f"initiation_of_{count}": share for count, share in shares.items()},
    }


# the law of step times


def predict_steps(settings: Settings, seed: int) -> Numbers:
    """Predict the authors' measured steps by laws that are fitted without some of them; errors in percent.

    Args:
        settings: ``dataset``, and ``left_out`` (``nothing``, ``cell``, ``condition`` or ``window``).
        seed: not read.

    Raises:
        ConfigError: the measurements are not on this machine.
    """
    errors = _calibration().errors(settings["dataset"])
    name = "fitted" if settings["left_out"] == "nothing" else f"{settings['left_out']}_out"
    mean, largest = (getattr(summary(errors), name) for summary in (mean_errors, largest_errors))
    return {
        "mean_percent": None if math.isnan(mean) else mean,
        "largest_percent": None if math.isnan(largest) else largest,
        "cells": len(errors),
    }


@cache
def _calibration() -> Calibration:
    folder = Path(os.environ.get("DTDG_LAB_DATA", "data")).parent / "greendygnn"
    if not (folder / CALIBRATION_FILE).is_file():
        raise ConfigError(
            f"{folder} has no {CALIBRATION_FILE}. Put the measurements of the authors' cluster there, beside the "
            "folder that DTDG_LAB_DATA names."
        )
    return calibrate(folder)
