"""Graphs, systems and sizes of benchmarks/flaredtdg.py: what all of it measures, and what --quick does."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from contenders.esdg_plan import Workload, generated
from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import memory
from dtdg_lab.config.run_config import RunConfig

MODELS = ("tgcn", "mpnn-lstm", "evolvegcn-o")  # section 4.1
HIDDEN = 32
WHOLE = MappingProxyType({"protocol": "esdg-2021", "task": "regression"})  # trains on all snapshots but the last
FIXED = ("W0", "W1", "W2")  # of contenders.workload
BLOCKS = 4  # of time, that ESDG keeps one of: about a window each
# what rows call it -> system and its settings
SYSTEMS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "esdg": {"system": "esdg", "blocks": BLOCKS},
        "dynagraph": {"system": "dynagraph"},
        "dynahb": {"system": "dynahb"},
        "full-history": {"system": "full-history"},
        "recent-only": {"system": "recent-only"},
        "flaredtdg": {"system": "flaredtdg"},
        "flaredtdg text": {"system": "flaredtdg", "decay": "text"},
    }
)
RIVALS = ("esdg", "dynagraph", "dynahb")  # of Tables 3 to 5
HYBRID = ("flaredtdg", "flaredtdg text")


@dataclass(frozen=True, slots=True)
class Limits:
    """When a training ends.

    Attributes:
        evaluations: of the validation split, one after another without a better one, after which it has converged.
        seconds: of training, after which it is ended as it is.
        updates: of the model, at least, between two evaluations; whole epochs.
        learning_rate: of Adam.
    """

    evaluations: int
    seconds: float
    updates: int
    learning_rate: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        models: of all parts but ``decay`` and ``breakdown``, which take the paper's, or the first.
        trained: graphs of part training.
        measured: graphs of part memory.
        timed: graphs of parts shrinking and breakdown.
        overlapped: graph of part overlap, with rows enough that exchanges take time.
        spread: graph of part ranks.
        mapped: graphs of part decay.
        seeds: trainings of each row.
        parts: of the nodes in part training, as the paper's GPUs; on as many ranks as there are cores, at most.
        ranks: of part ranks; those of more than the cores by own time.
        turns: epochs timed.
        steps: of an epoch timed; all where 0.
        limits: of a training.
        breakdown_epochs: of part breakdown.
        link_bytes_s: that a rank sends in a second over the slow network of part overlap.
        delay_s: that an exchange takes at least over the far network of part overlap.
        full_snapshots: K of part decay.
        alphas: of part decay.
        map_limits: of its trainings.
        peer: graph of part peer.
        threads: of each contender in parts peer and steps.
        stepped: names of graphs of part steps.
        device: of parts peer and steps.
    """

    models: tuple[str, ...]
    trained: tuple[Workload, ...]
    measured: tuple[Workload, ...]
    timed: tuple[Workload, ...]
    overlapped: Workload
    spread: Workload
    mapped: tuple[Workload, ...]
    seeds: int
    parts: int
    ranks: tuple[int, ...]
    turns: int
    steps: int
    limits: Limits
    breakdown_epochs: int
    link_bytes_s: float
    delay_s: float
    full_snapshots: tuple[int, ...]
    alphas: tuple[float, ...]
    map_limits: Limits
    peer: str
    threads: int
    stepped: tuple[str, ...]
    device: str = "cpu"


def fixed(name: str) -> Workload:
    """A graph of contenders.workload, trained on but for its last snapshot; its data set is named when it is stored."""
    return Workload(name, name, dict(WHOLE))


_BLOCKS = {"generated_nodes": 1_000, "generated_edges": 8_000, "generated_snapshots": 80}
_REAL = tuple(Workload(name, name) for name in ("mathoverflow", "collegemsg", "bitcoin-otc"))
FULL_PLAN = Plan(
    MODELS, trained=_REAL, measured=(_REAL[0], fixed("W1"), fixed("W2")), timed=(_REAL[0], fixed("W1")),
    overlapped=generated("powerlaw", "powerlaw", 100_000, 400_000, 24, **WHOLE), spread=fixed("W1"),
    mapped=(*_REAL[:2], Workload("sbm drifting", "sbm", {**_BLOCKS, "drift": 0.2}),
            Workload("sbm stable", "sbm", {**_BLOCKS, "drift": 0.0})),
    seeds=3, parts=4, ranks=(1, 2, 4), turns=5, steps=16, limits=Limits(10, 90.0, 20, 0.001), breakdown_epochs=20,
    link_bytes_s=50e6, delay_s=0.05, full_snapshots=(1, 2, 3, 4), alphas=(0.05, 0.1, 0.3, 0.6, 1.0),
    map_limits=Limits(5, 10.0, 20, 0.003), peer="W1", threads=2, stepped=("S0", "W1"),
)  # fmt: skip
_SMALL = generated("powerlaw", "powerlaw", 600, 3_000, 41)
_LARGER = generated("powerlaw", "powerlaw", 2_000, 10_000, 31, **WHOLE)
QUICK_PLAN = Plan(
    MODELS[:1], trained=(_SMALL,), measured=(_LARGER,), timed=(_LARGER,), overlapped=_LARGER, spread=_LARGER,
    mapped=(_SMALL,), seeds=2, parts=2, ranks=(1, 2), turns=2, steps=12, limits=Limits(3, 0.3, 20, 0.01),
    breakdown_epochs=2, link_bytes_s=50e6, delay_s=0.005, full_snapshots=(1, 2), alphas=(0.1, 1.0),
    map_limits=Limits(2, 0.1, 20, 0.01), peer="W0", threads=2, stepped=("W0",),
)  # fmt: skip


# systems that are there and not timed here, and why
ELSEWHERE = {"dynahb": "not timed here: its ranks make steps of their own, see benchmarks/dynahb.py"}


def missing(name: str) -> str:
    """Why a system has no row here; empty where it has."""
    return ELSEWHERE.get(name, "" if built(name) else "not built")


def built(name: str) -> bool:
    """Whether the lab has the system that a row needs."""
    system = SYSTEMS[name]["system"]
    if system not in catalogue.names("systems"):
        return False
    layout = catalogue.entry("parallel", catalogue.system(system).parts["parallel"])
    return importlib.util.find_spec(layout.target.partition(":")[0]) is not None


def config(workload: Workload, name: str, model: str, *, ranks: int, **settings: Any) -> RunConfig:
    """A run of a row: one layer, as the papers' T-GCN and MPNN-LSTM have, the system's own settings, one thread.

    Windows of models without node state take their loss at all snapshots: no other loss would reach the older ones.
    """
    windows = catalogue.system(SYSTEMS[name]["system"]).parts["parallel"] == "halo_window"
    without_state = memory(model) in ("weights", "none")
    at_all = {"loss_at": "all"} if windows and without_state else {}
    chosen = {**workload.options, **SYSTEMS[name], **at_all, **settings}
    return RunConfig(
        dataset=workload.dataset, model=model, hidden=HIDDEN, layers=1, ranks=ranks, device="cpu", threads=1, **chosen
    )
