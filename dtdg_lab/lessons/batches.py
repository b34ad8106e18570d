"""Experiments of the lessons on hybrid batches: costs, loads, the reservoir, and simulated controllers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import BatchSize
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.lessons.experiments import train_each
from dtdg_lab.lessons.widgets import BatchBench
from dtdg_lab.partition.simple import vertex_loads
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.systems.hybrid_batches.sampler import TargetSampler, load_groups
from dtdg_lab.systems.hybrid_batches.simulator import BatchSimulator
from dtdg_lab.visualization.chart import CaptionedFigure, card, trace_keys
from dtdg_lab.visualization.palette import BASELINE_COLOUR, EDGE_COLOUR
from dtdg_lab.visualization.traces import line

DRAWN, SIZE = 200, BatchSize(4, 50)  # batches of 50 nodes in 4 snapshots
_FORMULA: Mapping[str, Any] = {  # of a simulated training whose noise scale rises 40 times
    "sizes": tuple((snapshots, nodes) for snapshots in (0.1, 0.2, 0.3) for nodes in (0.01, 0.05, 0.1)),
    "progress": 0.005,
    "fixed_s": 0.00015,
    "per_snapshot_s": 0.01,
    "per_share_s": 0.6,
    "noise_share": 0.00012,
    "growth": 40,
}
TARGET = 0.25


def batch_costs(
    session: Session, config: RunConfig, shapes: Mapping[str, tuple[float, float]]
) -> dict[str, dict[str, float]]:
    """Train with batches of several shapes, and return cost -> shape -> percent of the last shape's.

    Args:
        session: trains them.
        config: their other settings.
        shapes: name -> shares of the snapshots and of the nodes; the last one is the whole.

    Returns:
        ``targets``, ``rows`` that are read, ``memory`` at the peak, and ``time`` of a step, without the last shape.
    """
    configs = {name: config.replace(batch_snapshots=s, batch_nodes=n) for name, (s, n) in shapes.items()}
    costs: dict[str, dict[str, float]] = {"targets": {}, "rows": {}, "memory": {}, "time": {}}
    for name, run in train_each(session, configs).items():
        batches = run.table("targets").mean(numeric_only=True)
        costs["targets"][name] = float(batches["targets"] * batches["snapshots"])
        costs["rows"][name] = float(batches["rows"])
        costs["memory"][name] = float(run.table("memory")["peak_bytes"].max())
        costs["time"][name] = float(run.table("steps")["time_s"].median())
    *parts, whole = shapes  # the last one is that of all targets
    return {cost: {name: 100 * values[name] / values[whole] for name in parts} for cost, values in costs.items()}


def batch_loads(graph: DynamicGraph, groups: int) -> np.ndarray:
    """Return (200,) loads of batches of 50 nodes, in rising order, drawn evenly from groups of similar load."""
    loads = vertex_loads(graph, hops=2)
    sampler = TargetSampler(0, 0, load_groups(loads, np.arange(graph.num_nodes), groups), snapshots=range(20))
    batches = [sampler.batch(SIZE, 0, number) for number in range(DRAWN)]
    return np.sort([float(loads[batch.targets].sum()) for batch in batches])


def loads_picture(graph: DynamicGraph, *, groups: int = 1) -> CaptionedFigure:
    """Return the loads of 200 batches in rising order, beside those of uniform draws."""
    uniform, grouped = batch_loads(graph, 1), batch_loads(graph, groups)
    numbers = list(range(DRAWN))
    data = [
        line("uniform draws", numbers, uniform.tolist(), BASELINE_COLOUR, "%{y:,.0f}"),
        line(f"from {groups} group{'s' * (groups > 1)}", numbers, grouped.tolist(), EDGE_COLOUR, "%{y:,.0f}"),
    ]
    figure = card(
        data,
        "Load of 200 batches, from the lightest to the heaviest",
        unit="edges on walks to the batch",
        keys=trace_keys(data),
        x_title="batch",
        yaxis={"rangemode": "tozero"},
    )
    return figure, f"The heaviest batch has {grouped[-1] / grouped[0]:.2f} times the load of the lightest."


def waiting_for_batches(run: StoredRun) -> dict[str, float]:
    """Return, by where batches come from, the percent of a step that waits for its batch."""
    steps = run.table("steps").set_index("step").join(run.table("targets").set_index("step")[["source"]])
    spent = steps.groupby("source")[["batch_s", "time_s"]].sum()
    return {str(source): float(share) for source, share in (100 * spent["batch_s"] / spent["time_s"]).items()}


def repeated_batches(run: StoredRun) -> tuple[int, int]:
    """Return how many steps took a batch from the reservoir, and how many different batches these were."""
    targets = run.table("targets")
    from_reservoir = targets[targets["source"] == "reservoir"]
    return len(from_reservoir), int(from_reservoir["index"].nunique())


def simulated_bench(*, noisy: bool, seeds: Sequence[int] = range(5)) -> BatchBench:
    """Return a bench on a simulated training until a loss of 0.25, whose controllers see exact or noisy losses."""
    noise = 0.02 if noisy else 0.0
    return BatchBench(BatchSimulator(loss_noise=noise, jitter=5 * noise, **_FORMULA), target=TARGET, seeds=seeds)


def times_to_target(bench: BatchBench) -> dict[str, float]:
    """Return the seconds to the target of each controller, and of the best and the worst fixed size."""
    named = {"dqn": "the DQN", "bandit": "the bandit", "random": "random sizes"}
    seconds = {named[policy]: seconds for policy, seconds in bench.batch_policy_s.items()}
    return {**seconds, "the best fixed size": min(bench.fixed_s), "the worst fixed size": max(bench.fixed_s)}
