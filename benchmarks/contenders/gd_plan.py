"""Graphs, methods and sizes of benchmarks/greendygnn.py: what all of it measures, and what --quick does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.systems.feature_cache.policies.learned import shipped_path

HIDDEN = 16  # section VI-A
PLUS = "double_dqn_plus"  # ours: learned with another reward, and from states that look back
CONDITIONS = ("clean", "delayed", "throttled")
Variants = Mapping[str, Mapping[str, Any]]
METHODS: Variants = MappingProxyType(
    {
        **{name: {"system": name} for name in ("dgl-default", "bgl", "rapidgnn", "fixed-window", "threshold-window")},
        "greendygnn": {"system": "greendygnn"},
        PLUS: {"system": "greendygnn"},
        "planner": {"system": "greendygnn", "cache_policy": "planner"},
        "clairvoyant": {"system": "clairvoyant"},
    }
)
OURS = ("greendygnn", PLUS, "planner")  # those that decide by what they find
# of part live: method -> name of the policy in the simulator; None where it has none
RANKED: Mapping[str, str | None] = MappingProxyType(
    {
        "dgl-default": None, "bgl": None, "rapidgnn": "epoch_hot", "fixed-4": "fixed-4", "fixed-16": "fixed-16",
        "fixed-64": "fixed-64", "threshold-window": "threshold", "random": "random", "greendygnn": "double_dqn",
        PLUS: PLUS, "planner": "planner", "clairvoyant": "clairvoyant",
    }
)  # fmt: skip
_RANKED_ONLY: Variants = MappingProxyType(
    {
        **{f"fixed-{window}": {"system": "fixed-window", "cache_window": window} for window in (4, 16, 64)},
        "random": {"system": "fixed-window", "cache_policy": "random"},
    }
)


@dataclass(frozen=True, slots=True)
class Ground:
    """A graph and what is trained on it.

    Attributes:
        name: what rows call it.
        nodes: N.
        degree: edges a node.
        features: F; of a sequence, those of the data set.
        model: static graphs have ``graphsage``.
        layers: of the model.
        batch_size: nodes of a batch.
        fanouts: neighbours drawn.
        cache_rows: of a part.
        mbit: rate of links that are throttled: such that default DGL's steps take half as long again, as the paper's.
        snapshots: of a sequence; 0 for a graph that stays as it is.
        batch_length: snapshots of a batch.
        dataset: its name in the cache, once it is made.
    """

    name: str
    nodes: int
    degree: int
    features: int
    batch_size: int
    cache_rows: int
    mbit: float
    model: str = "graphsage"
    layers: int = 2
    fanouts: str = "10 25"
    snapshots: int = 0
    batch_length: int = 1
    dataset: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        conditions: of links, of parts table1 and ablation; see :func:`conditions_of`.
        grounds: of part table1.
        ablated: ground of part ablation.
        lived: ground of parts live, overhead and calibration.
        seeds: runs of each row.
        parts: P.
        ranks: that train; 1 is one process, in which parts take turns, and stalls of on_demand add up.
        epochs: of a run.
        first: epoch that congestion begins in; the estimator learns quiet links before.
        cycle: epochs after which it begins anew.
        table: of the schedule; empty makes one by the seed, 15 to 25 ms on one or two owners.
        patterns: of part live.
        delay_ms: of these.
        live_ranks: of part live.
        ranked: its methods.
        shipped: data sets whose costs the simulator has.
        archetypes: of congestion that it compares under; empty for all.
        episodes: in each case.
        rpc_features: floats of a row, of part figure1.
        rpc_rows: rows of a call.
        rpc_repeats: of each.
        windows: measured here, of part calibration.
        throttled: conditions likewise.
        cell_steps: of a cell, at least.
        repeats: of part overhead.
        looked_up: rows held, and looked up, of part overhead.
        device: of parts table1, ablation and live.
    """

    conditions: tuple[str, ...]
    grounds: tuple[Ground, ...]
    ablated: Ground
    lived: Ground
    seeds: int
    parts: int
    ranks: int
    epochs: int
    first: int
    cycle: int
    table: str
    patterns: tuple[str, ...]
    delay_ms: float
    live_ranks: int
    ranked: tuple[str, ...]
    shipped: tuple[str, ...]
    archetypes: tuple[str, ...]
    episodes: int
    rpc_features: tuple[int, ...]
    rpc_rows: tuple[int, ...]
    rpc_repeats: int
    windows: tuple[int, ...]
    throttled: tuple[str, ...]
    cell_steps: int
    repeats: int
    looked_up: tuple[int, int]
    device: str = "cpu"


# a cache holds a quarter of a part's remote rows here, and nearly all that a window asks for there, as in the campaign
_PRODUCTS = Ground("products-like", 12_000, 12, 100, batch_size=70, cache_rows=2_000, mbit=10.0)
_REDDIT = Ground("reddit-like", 4_000, 60, 602, batch_size=25, cache_rows=2_000, mbit=60.0)
_SEQUENCE = Ground(
    "snapshots", 2_000, 10, 0, batch_size=100, cache_rows=4_000, mbit=0.5, model="tgcn", layers=1, fanouts="10",
    snapshots=40, batch_length=4,
)  # fmt: skip
FULL_PLAN = Plan(
    CONDITIONS, (_PRODUCTS, _REDDIT, _SEQUENCE), _PRODUCTS, _PRODUCTS, seeds=3, parts=4, ranks=4, epochs=11, first=3,
    cycle=7, table="", patterns=("none", "one_slow", "two_asymmetric", "oscillating", "schedule"), delay_ms=20.0,
    live_ranks=4, ranked=tuple(RANKED), shipped=("ogbn-products", "reddit"), archetypes=(), episodes=8,
    rpc_features=(100, 602),
    rpc_rows=(10, 30, 100, 300, 1_000, 3_000, 10_000, 50_000), rpc_repeats=20, windows=(1, 2, 4, 8, 16, 32, 64),
    throttled=("c1_500mbit", "c1_200mbit", "c1_100mbit", "c1_50mbit", "c4_5ms", "c4_10ms", "c4_20ms"), cell_steps=100,
    repeats=200, looked_up=(100_000, 20_000),
)  # fmt: skip
_SMALL = Ground("small", 1_500, 8, 64, batch_size=80, cache_rows=300, mbit=5.0, fanouts="5 5")
QUICK_PLAN = Plan(
    ("clean", "throttled"), (_SMALL,), _SMALL, _SMALL, seeds=1, parts=4, ranks=1, epochs=4, first=2, cycle=2,
    table="0:15 0+1:25", patterns=("one_slow",), delay_ms=20.0, live_ranks=1,
    ranked=("rapidgnn", "fixed-4", "fixed-16", "greendygnn", "planner"), shipped=("ogbn-products",),
    archetypes=("none", "one_slow"), episodes=1, rpc_features=(100,), rpc_rows=(10, 100, 1_000, 10_000), rpc_repeats=5,
    windows=(1, 4, 16), throttled=("c1_200mbit", "c1_100mbit", "c1_50mbit", "c4_5ms", "c4_20ms"), cell_steps=8,
    repeats=20, looked_up=(10_000, 2_000),
)  # fmt: skip


def config(plan: Plan, ground: Ground, method: Mapping[str, Any], *, ranks: int, seed: int, **more: Any) -> RunConfig:
    """A run of a row: evaluated at its end alone, one thread a process.

    Args:
        plan: sizes.
        ground: what is trained.
        method: a system and its settings.
        ranks: R.
        seed: of parameters, batches and congestion.
        more: settings, such as congestion.
    """
    moving = {"batch_length": ground.batch_length} if ground.snapshots else {"task": "classification"}
    own = {"cache_rows": ground.cache_rows, "batch_size": ground.batch_size, "fanouts": ground.fanouts, **moving}
    return RunConfig(
        dataset=ground.dataset, model=ground.model, layers=ground.layers, hidden=HIDDEN, learning_rate=3e-3, seed=seed,
        parts=plan.parts, ranks=ranks, device=plan.device, threads=1,
        **{"epochs": plan.epochs, "evaluate_every": plan.epochs, **own, **method, **more},
    )  # fmt: skip


def congestion(plan: Plan, pattern: str, *, mbit: float = 0.0) -> dict[str, Any]:
    """The settings of a pattern; nothing for none."""
    if pattern == "none":
        return {}
    return {"congestion": pattern, "congestion_from": plan.first, "congestion_cycle": plan.cycle,
            "congestion_table": plan.table, "congestion_ms": plan.delay_ms, "congestion_mbit": mbit}  # fmt: skip


def conditions_of(plan: Plan, ground: Ground) -> dict[str, dict[str, Any]]:
    """Of parts table1 and ablation: clean; the paper's schedule of delays; and the same on links that are throttled.

    Ours asks each owner once for a batch and does so ahead, which hides a delay that is no longer than a step; what a
    cache saves then are bytes, and they cost time where links are slow.
    """
    known = {
        "clean": {}, "delayed": congestion(plan, "schedule"),
        "throttled": congestion(plan, "schedule", mbit=ground.mbit),
    }  # fmt: skip
    return {name: known[name] for name in plan.conditions}


def method_of(plan: Plan, name: str) -> Mapping[str, Any]:
    """Settings of a method of part table1 or live."""
    if name == PLUS:
        return {**METHODS[name], "policy_file": str(shipped_path(plan.parts, PLUS))}
    return METHODS[name] if name in METHODS else _RANKED_ONLY[name]
