"""Steps of a recorded run of ESDG as the scaling model takes them: what each rank did, and how long its parts took."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.difference_sizes import SequenceChanges, sequence_changes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.scaling_model import MeasuredStep
from dtdg_lab.partition.step_work import StepSettings
from dtdg_lab.runs.open import StoredRun

WARM_UPS = 1  # steps left out: the first fills caches


def measured_step(
    run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None
) -> tuple[MeasuredStep, StepSettings, SequenceChanges]:
    """The median step of a run, what it computes, and the graph it computes on.

    Where there were more ranks than cores, compute and transfer are the rank's processor seconds, in the proportion of
    their wall times, and nothing else is known. They then hold what exchanges cost the processor, too.

    Args:
        run: of a system whose ranks have whole snapshots, without overlap where there are several.
        graph: its data; loaded where not given.
        cores: of the machine it ran on; those of this process where not given.

    Raises:
        ConfigError: it is another system's, has too few steps, or hides exchanges behind computing.
    """
    told, config = _told_blocks(run), run.config
    ranks = told["ranks"]
    if ranks > 1 and config["overlap"]:
        raise ConfigError(
            f"run {run.id} hides exchanges behind computing, so that neither can be timed alone: record one with "
            "overlap=False."
        )
    graph = load_for(config) if graph is None else graph
    first, *_, last = told["bounds"]
    changes = sequence_changes(graph.snapshots[first:last])
    settings = _settings(run, told, graph.num_features)
    seconds = _seconds(run)
    compute, transfer, cpu = (np.array([each[name] for each in seconds]) for name in ("compute", "transfer", "cpu"))
    work = settings.work(changes, ranks)
    if ranks > (len(os.sched_getaffinity(0)) if cores is None else cores):
        share = compute / np.maximum(compute + transfer, 1e-12)
        return MeasuredStep(run.id, work, cpu * share, cpu * (1 - share)), settings, changes
    exchanged, whole = (max(each[name] for each in seconds) for name in ("communicate", "whole"))
    exchanged = exchanged if ranks > 1 else 0.0  # alone nothing moves
    return MeasuredStep(run.id, work, compute, transfer, exchanged, whole), settings, changes


def _told_blocks(run: StoredRun) -> dict[str, Any]:
    """What the run's last event ``blocks`` says."""
    told = [event["data"] for event in run.events if event["kind"] == "blocks"]
    if not told or told[-1].get("layout") != "snapshot" or told[-1]["row_ranks"] > 1:
        raise ConfigError(
            f"run {run.id} is of system {run.config.system!r}; steps of esdg, whose ranks have whole snapshots, are "
            "needed. Record one with system='esdg'."
        )
    return told[-1]


def _settings(run: StoredRun, told: dict[str, Any], features: int) -> StepSettings:
    config, last = run.config, run.config.layers - 1
    scored = [width for layer, way, leg, width in told["legs"]
              if (layer, way, leg) == (last, "forward", "to_snapshots")]  # fmt: skip
    return StepSettings(
        config.model, features, config.hidden, config.layers, pairs=scored[0] if scored else 0, blocks=told["blocks"],
        difference=config["difference"], reuse=config["halo_reuse"], itemsize=np.dtype(config["dtype"]).itemsize,
        options=config.options.get("models", {}),
    )  # fmt: skip


def _seconds(run: StoredRun) -> list[dict[str, float]]:
    """Medians of each rank."""
    steps = run.table("steps")
    steps = steps[steps["step"] >= WARM_UPS]
    if steps.empty:
        raise ConfigError(f"run {run.id} has no step after the first: record one of at least {WARM_UPS + 1} epochs.")
    found = []
    for _, own in steps.groupby("rank", sort=True):
        middle = own[["batch_s", "compute_s", "update_s", "transfer_s", "communicate_s", "cpu_s", "time_s"]].median()
        found.append({
            "compute": float(middle[["batch_s", "compute_s", "update_s"]].sum()), "cpu": float(middle["cpu_s"]),
            "transfer": float(middle["transfer_s"]), "communicate": float(middle["communicate_s"]),
            "whole": float(middle["time_s"]),
        })  # fmt: skip
    return found
