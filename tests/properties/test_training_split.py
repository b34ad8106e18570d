"""Training reads the training split alone: other edges, features and labels after it change no plan and no bit."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split, split
from dtdg_lab.testing.training import Trained, train_in_memory
from tests.factories import EXACT, SMALL, random_graph
from tests.thinning import thinned

TASKS = ("regression", "classification", "link")
LATE = (1, 8, 17)  # nodes without an edge in the training split
BATCHES = {"epoch_batches": 4, "generators": "threads", "batch_nodes": 0.3, "reservoir": False, "exchange": "gradients"}
WINDOWS = {"window": 3, "layers": 2}
FETCHES = {"layers": 2, "batch_size": 6, "batch_length": 2, "fanouts": "2 2", "cache_rows": 10, "cache_window": 2}
FAMILY_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "single": {"parts": 1},
    "snapshot_groups": {"group_times": "size"},
    "snapshot_blocks": {"blocks": 2},
    "vertex_parts": {"layers": 2},
    "hybrid_batches": BATCHES,
    "decayed_windows": WINDOWS,
    "feature_cache": FETCHES,
}
SYSTEM_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "psg": {},
    "blad": {},
    "dbos": {"batch_nodes": None},
    "dynahb": {"batch_policy": "random", "snapshot_sizes": "0.2 0.4", "node_sizes": "0.2 1", "decide_every": 2},
    "full-history": {"window": 3},
    "recent-only": {"window": None},
    "dynagraph": {"layers": 1, "fanout": 2},
}
LABELLED: Mapping[str, Any] = {
    "dataset": "sbm",
    "communities": 2,
}  # a data set that allows the task; its graph is unread
# plans of other settings than a system's own
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{
        f"adgnn-t, {name}": ("adgnn-t", {"partitioner": name})
        for name in ("metis", "hypergraph", "load_aware", "hash", "round_robin")
    },
    **{f"flaredtdg, {name} chunks": ("flaredtdg", {"chunker": name}) for name in ("metis", "load_aware", "hash")},
    "dynahb, hypergraph": ("dynahb", {"partitioner": "hypergraph"}),
    "esdg, blocks by memory": ("esdg", {"blocks": 0}),
    "esdg, streamed": ("esdg", {"graph_storage": "streamed"}),
}


@cache
def parts_of() -> Split:
    return split(original().num_snapshots, 1, PROTOCOLS["warm"])


@cache
def original() -> DynamicGraph:
    """A graph of which some nodes appear only after the training split."""
    graph, rare = random_graph(20, 26, classes=3, seed=1), random_graph(20, 26, classes=3, seed=1, isolated=LATE)
    stop = split(26, 1, PROTOCOLS["warm"]).train.stop
    snapshots = (*rare.snapshots[:stop], *graph.snapshots[stop:])
    return dataclasses.replace(graph, snapshots=snapshots, following=(*snapshots[1:], graph.following[-1]))  # type: ignore[index]


@cache
def changed(first: int) -> DynamicGraph:
    """The same graph with denser snapshots, and with other features and labels, from a snapshot on."""
    graph, other = original(), random_graph(20, 26, share=0.4, classes=3, seed=2)
    later = {
        name: np.concatenate([getattr(graph, name)[:first], getattr(other, name)[first:]])
        for name in ("features", "targets", "persistence", "classes")
    }
    assert graph.following is not None and other.following is not None
    return dataclasses.replace(
        graph,
        snapshots=(*graph.snapshots[:first], *other.snapshots[first:]),
        following=(*graph.following[:first], *other.following[first:]),
        **later,
    )


def config_of(system: str, task: str, **changes: Any) -> RunConfig:
    settings = {
        **SMALL,
        **EXACT,
        "epochs": 2,
        "kernel": "torch",
        "parts": 2,
        **FAMILY_SETTINGS[catalogue.system(system).family],
        **SYSTEM_SETTINGS.get(system, {}),
        **(LABELLED if task == "classification" else {}),
        "system": system,
        "task": task,
        **changes,
    }
    return RunConfig(**{name: value for name, value in settings.items() if value is not None})


def plans(run: Trained) -> list[tuple[str, Any]]:
    """The plans that were made before the first step, without seconds."""
    rows = [row for row in run.recorder.tables["events"] if row["step"] == 0 and row["kind"] in PLANS]
    return [(row["kind"], _without_seconds(row["data"])) for row in rows]


PLANS = ("partition", "chunks", "blocks", "schedule", "trapezoid", "batches", "parts", "cache")
CLOCKED = re.compile(r"(^|_)(s|seconds|ms)$")


def _without_seconds(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _without_seconds(value) for key, value in data.items() if not CLOCKED.search(key)}
    return np.asarray(data).tolist() if isinstance(data, np.ndarray) else data


def check_equal(config: RunConfig, first: int, folder: Path) -> None:
    """Train on the graph and on the one that differs from a snapshot on, and compare plans, losses and parameters."""
    runs = [
        train_in_memory(config, graph, folder / f"{number}.pt")
        for number, graph in enumerate((original(), changed(first)))
    ]
    assert plans(runs[0]) == plans(runs[1])
    assert runs[0].losses and runs[0].losses == runs[1].losses
    for name, parameter in runs[0].parameters.items():
        assert (parameter == runs[1].parameters[name]).all(), name
    tests = [[row for row in run.recorder.tables["evaluations"] if row["split"] == "test"] for run in runs]
    assert tests[0][-1]["loss"] != tests[1][-1]["loss"]  # the change can be seen


def is_possible(system: str, task: str) -> bool:
    try:
        catalogue.check_loss(task, system)
    except UnsupportedError:  # a loss over all nodes at once
        return False
    return True


# esdg-hybrid splits snapshots over two ranks: tests/distributed/test_training_split_on_ranks.py
ONE_RANK = [system for system in catalogue.names("systems") if system != "esdg-hybrid"]
CASES = [(system, task) for system in ONE_RANK for task in TASKS if is_possible(system, task)]


@pytest.mark.parametrize(("system", "task"), thinned(CASES, 8))
def test_later_snapshots_move_no_plan_and_no_loss(system: str, task: str, tmp_path: Path) -> None:
    check_equal(config_of(system, task), parts_of().train.stop, tmp_path)


@pytest.mark.parametrize("variant", thinned(VARIANTS, (1, 5, 7)))
def test_later_snapshots_move_no_plan_of_another_rule(variant: str, tmp_path: Path) -> None:
    system, settings = VARIANTS[variant]
    check_equal(config_of(system, "regression", **settings), parts_of().train.stop, tmp_path)


def test_a_tuner_reads_the_validation_split_and_no_test_edge(tmp_path: Path) -> None:
    config = config_of("flaredtdg", "classification", tune=True, tune_every=1)
    check_equal(config, parts_of().test.start, tmp_path)
