"""What DynaHB claims beside trainings: loads, batches, phases of steps, simulated controllers and the lemmas."""

from __future__ import annotations

import atexit
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.names import load_dataset, load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.measured_partition import partition_graph
from dtdg_lab.partition.simple import assign_load_aware, assign_round_robin, vertex_loads
from dtdg_lab.reproduction.training import CellTrainer
from dtdg_lab.systems.hybrid_batches.simulator import CONTROLLERS, LANDSCAPES, TARGET, run_controllers
from dtdg_lab.systems.hybrid_batches.strategy import HybridBatchStrategy
from dtdg_lab.testing.example_graphs import graph_of
from dtdg_lab.training.build import build

Settings = Mapping[str, Any]
Array = NDArray[np.float64]
Numbers = dict[str, Any]
PHASES = ("batch", "transfer", "compute", "wait", "communicate", "update", "control")
# Figure 4: snapshots of four vertices, as edges (source, target). The text gives no edges; these meet all its numbers.
FIGURE_4 = ([(3, 1), (1, 2), (3, 2), (1, 4), (3, 4)], [(1, 3), (1, 2), (3, 2), (1, 4), (3, 4)])
PUBLISHED = {"hash": (4, 20), "metis": (14, 10), "load-aware": (12, 12)}  # Example 3, loads of both workers


# trainings


def train_share(settings: Settings, seed: int) -> Numbers:
    """Train on the first share of a data set's snapshots.

    Args:
        settings: settings of a RunConfig, with the share as ``fraction`` and the stop rule as ``stop``.
        seed: seed of the run.
    """
    config, stop, fraction = _config(settings, seed)
    name = shorten(load_for(config), fraction).store()
    trained = _trainer().train_config(config.replace(dataset=name), stop=stop)
    return {**trained.values, "curve": trained.curve}


def shorten(graph: DynamicGraph, fraction: float) -> DynamicGraph:
    """Return the first share of a graph's snapshots."""
    count = max(1, round(fraction * graph.num_snapshots))
    whole = {name: getattr(graph, name) for name in ("name", "source", "edge_life", "node_ids", "strict_label")}
    first = {name: getattr(graph, name)[:count] for name in ("snapshots", "features", "targets", "persistence")}
    return DynamicGraph(**whole, **first)


def step_phases(settings: Settings, seed: int) -> Numbers:
    """Train, and return the seconds of a step, of its phases, and their shares; means over steps and ranks.

    Args:
        settings: settings of a RunConfig, with the stop rule as ``stop``.
        seed: seed of the run.
    """
    config, stop, _ = _config(settings, seed)
    names = [f"phase_time_s.{phase}" for phase in PHASES]
    values = _trainer().train_config(config, names=names, stop=stop).values
    seconds = {phase: values[f"phase_time_s.{phase}"] or 0.0 for phase in PHASES}
    step_s, exchange_s = sum(seconds.values()), seconds["wait"] + seconds["communicate"]
    return {
        **{name: values[name] for name in ("steps", "total_time_s", "test_loss", "persistence_loss")},
        **{f"{phase}_s": seconds[phase] for phase in PHASES},
        "step_s": step_s,
        "batch_share": seconds["batch"] / step_s,
        "exchange_share": exchange_s / step_s,
        "batch_over_compute": seconds["batch"] / seconds["compute"],
        "exchange_over_compute": exchange_s / seconds["compute"],
    }


@cache
def _trainer() -> CellTrainer:
    """Return a trainer whose engines serve all cells of this process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(CellTrainer(Path(stack.enter_context(tempfile.TemporaryDirectory()))))


def hybrid_noise(settings: Settings, seed: int) -> Numbers:
    """Return how far gradients of node samples are from that of all nodes, with the first parameters.

    All batches have all training snapshots, so that they differ by their nodes alone. ``bias_over_chance`` is 1 in the
    mean if the error has mean zero, and grows with ``draws`` if it has not.

    Args:
        settings: settings of a RunConfig, with ``draws``, the number of samples.
        seed: seed of parameters and samples.
    """
    shared = {**settings, "system": "dynahb", "batch_policy": "none", "reservoir": False, "exchange": "gradients"}
    draws = shared.pop("draws")
    whole = next(_gradients(RunConfig(**{**shared, "seed": seed, "batch_snapshots": 1.0, "batch_nodes": 1.0}), 1))
    samples = np.stack(list(_gradients(RunConfig(**{**shared, "seed": seed, "batch_snapshots": 1.0}), draws)))
    errors = whole - samples
    variance = float((errors**2).sum(1).mean())
    return {
        "bias_over_chance": draws * float((errors.mean(0) ** 2).sum()) / variance,
        "noise_over_gradient": variance / float((whole**2).sum()),
    }


def _gradients(config: RunConfig, draws: int) -> Iterator[Array]:
    built = build(config, load_for(config), SoloGroup())
    strategy = built.strategy
    assert isinstance(strategy, HybridBatchStrategy)
    (step, *_) = strategy.epoch(0)
    for number in range(draws):
        built.gradients.zero()
        strategy.on_step_start(number)
        strategy.compute(step, StepMarks())
        yield built.gradients.gradients.numpy().astype(np.float64)


def _config(settings: Settings, seed: int) -> tuple[RunConfig, Settings, float]:
    chosen = {**settings, "seed": seed}
    stop, fraction = chosen.pop("stop", {}), chosen.pop("fraction", 1.0)
    return RunConfig(**chosen), stop, fraction


# loads


def figure_4_loads(settings: Settings, seed: int) -> Numbers:
    """Return how far the loads of Figure 4's partitions are from the published ones, at most.

    Args:
        settings: ``partition``, one of hash, metis and load-aware.
        seed: not read.
    """
    graph = graph_of(4, [[(u - 1, v - 1) for u, v in edges] for edges in FIGURE_4], name="figure 4")
    loads = vertex_loads(graph, 2)
    owners = {
        "hash": assign_round_robin(graph, 2).owner,
        "metis": np.array([0, 0, 0, 1]),  # as the paper gives it
        "load-aware": assign_load_aware(graph, 2, hops=2).owner,
    }
    part_loads = np.bincount(owners[settings["partition"]], weights=loads)
    return {"largest_difference": float(np.abs(part_loads - PUBLISHED[settings["partition"]]).max())}


def partition_balance(settings: Settings, seed: int) -> Numbers:
    """Return the largest load of a part over the mean, and the share of edges that are cut.

    Args:
        settings: ``dataset``, ``partitioner``, ``parts`` and ``layers``.
        seed: seed of the partitioner.
    """
    measures = partition_graph(
        load_dataset(settings["dataset"]),
        settings["partitioner"],
        settings["parts"],
        seed=seed,
        layers=settings["layers"],
    ).measures
    return {"load_imbalance": measures.imbalance["load"], "cut_share": measures.cut_share}


# controllers


def simulate_controller(settings: Settings, seed: int) -> Numbers:
    """Return the seconds of a simulated training over those of the best fixed size, which only hindsight knows.

    Args:
        settings: ``landscape``; ``decide_every``, steps of a decision; ``controller``, a name in the simulator, or
            ``best size``, ``middle size``.
        seed: seed of the controller and of what it observes.
    """
    simulator, name = LANDSCAPES[settings["landscape"]], settings["controller"]
    best_s = simulator.best_fixed(TARGET)[1]
    if name in ("best size", "middle size"):
        middle_s = simulator.fixed_s_to(len(simulator.sizes) // 2, TARGET)
        return {"over_best": 1.0 if name == "best size" else middle_s / best_s}
    (run,) = run_controllers(
        simulator, TARGET, seeds=[seed], decide_every=settings["decide_every"], controllers={name: CONTROLLERS[name]}
    )[name]
    return {"over_best": None if run.seconds is None else run.seconds / best_s, "decisions": len(run.decisions)}


# lemmas


def lemma_1_ratio(settings: Settings, seed: int) -> Numbers:
    """Return the mean squared gradient of gradient descent with noise over the bound of Lemma 1.

    Args:
        settings: ``objective``, a name in OBJECTIVES; ``noise``, see :func:`_noise`; ``p``; ``gamma``, in units of 1/L;
            ``steps``; ``runs``, averaged; ``sigma``.
        seed: seed of start and noise.
    """
    objective = OBJECTIVES[settings["objective"]]
    steps, p, sigma = settings["steps"], settings["p"], settings["sigma"]
    gamma = settings["gamma"] / SMOOTHNESS
    stream = generator(seed, "reproduce/lemma-1")
    x = _start(stream, settings["runs"])
    first, squares = objective(x)[0].mean(), 0.0
    for _ in range(steps):
        gradient = objective(x)[1]
        squares += float((gradient**2).sum(-1).mean())
        x = x - gamma * (gradient - _noise(settings["noise"], stream, x.shape, p, sigma))
    bound = (2 * (first - objective(x)[0].mean()) / steps + SMOOTHNESS * gamma**2 * p**2 * sigma**2) / (
        2 * gamma - SMOOTHNESS * gamma**2
    )
    return {"over_bound": float(squares / steps / bound)}


def lemma_2_ratio(settings: Settings, seed: int) -> Numbers:
    """Return the mean squared gradient of averaged models over the bound of Lemma 2, with its learning rate.

    Args:
        settings: ``objective``, ``noise``, ``p``, ``runs`` and ``sigma`` as in :func:`lemma_1_ratio`; ``workers``, M;
            ``local_steps`` between two averages, K; ``rounds`` of averaging, T; ``theta``, variance of a snapshot
            batch's gradient.
        seed: seed of start and noise.
    """
    objective = OBJECTIVES[settings["objective"]]
    workers, local_steps, rounds = settings["workers"], settings["local_steps"], settings["rounds"]
    p, sigma, theta = settings["p"], settings["sigma"], settings["theta"]
    stream = generator(seed, "reproduce/lemma-2")
    x = _start(stream, settings["runs"])
    height, variance = float(objective(x)[0].mean()), theta + p**2 * sigma**2  # the minimum is 0
    gamma = math.sqrt(height * workers / (local_steps**2 * SMOOTHNESS * variance)) / math.sqrt(rounds)
    delta = 1 - (SMOOTHNESS * gamma) ** 2
    squares = 0.0
    for _ in range(rounds):
        squares += float((objective(x)[1] ** 2).sum(-1).mean())
        models = np.repeat(x[None], workers, axis=0)
        for _ in range(local_steps):
            noise = _noise("weighted", stream, models.shape, 1.0, math.sqrt(theta))
            noise += _noise(settings["noise"], stream, models.shape, p, sigma)
            models = models - gamma * (objective(models)[1] - noise)
        x = models.mean(0)
    bound = math.sqrt(height * SMOOTHNESS * variance / workers) * 4 * local_steps
    bound /= (local_steps - 1 + delta) * math.sqrt(rounds)
    return {"over_bound": float(squares / rounds / bound), "gamma_times_smoothness": gamma * SMOOTHNESS}


DIMENSIONS = 10
SMOOTHNESS = 2.0  # L of both objectives


def _quadratic(x: Array) -> tuple[Array, Array]:
    """Return x^2 summed over dimensions, and its gradient: the bound is tight where every curvature is L."""
    return (x**2).sum(-1), 2 * x


def _saturating(x: Array) -> tuple[Array, Array]:
    """Return x^2 / (1 + x^2) summed over dimensions, which is not convex, and its gradient."""
    square = x**2
    return (square / (1 + square)).sum(-1), 2 * x / (1 + square) ** 2


OBJECTIVES = {"quadratic": _quadratic, "saturating": _saturating}


def _start(stream: np.random.Generator, runs: int) -> Array:
    return np.repeat(stream.standard_normal((1, DIMENSIONS)), runs, axis=0)


def _noise(kind: str, stream: np.random.Generator, shape: tuple[int, ...], p: float, sigma: float) -> Array:
    """Return noise of gradients: that of hybrid batches, with variance sigma^2, as often as p says.

    Args:
        kind: ``weighted``, p times that noise in every step as in Definition 8, or ``drawn``, that noise with
            probability p as in Algorithm 3.
        stream: source of chance.
        shape: shape of the models, the last axis over dimensions.
        p: probability of a hybrid batch.
        sigma: square root of its variance.
    """
    noise = stream.standard_normal(shape) * sigma / math.sqrt(DIMENSIONS)
    if kind == "weighted":
        return p * noise
    return noise * (stream.random((*shape[:-1], 1)) < p)
