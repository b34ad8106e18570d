"""Graphs, systems and sizes of benchmarks/dynahb.py: what all of it measures, and what --quick does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from contenders.esdg_plan import Workload, generated
from dtdg_lab.config.run_config import RunConfig

MODELS = ("tgcn", "dcrnn", "evolvegcn-o")  # section 6.1
SYSTEMS = ("pygt-dist", "adgnn-t", "dbov", "dbos", "bvr", "dynahb")
FULL_BATCH = ("pygt-dist", "adgnn-t")
HIDDEN = 32
# of dynahb: hybrid batches of one size, built in the step, gradients exchanged
PLAIN = MappingProxyType({"system": "dynahb", "batch_policy": "none", "reservoir": False, "exchange": "gradients"})
Variants = Mapping[str, Mapping[str, Any]]
# of dynahb, for parts convergence and growth: sizes by the law from few to all nodes; one size from cached states.
# Steps build their batches: a reservoir's generators would share the cores of two ranks, and it repeats its batches.
_LAW = {"batch_policy": "law", "reward": "progress", "reward_loss": "validation"}
VARIANTS: Variants = MappingProxyType({
    "dynahb-law": {
        "system": "dynahb", "reservoir": False, **_LAW, "node_sizes": "0.05 0.2 1", "snapshot_sizes": "0.1 0.2",
    },
    "dynahb-cached": {
        "system": "dynahb", "reservoir": False, "batch_policy": "none", "batch_nodes": 0.2, "batch_snapshots": 0.1,
        "batch_state": "cached",
    },
})  # fmt: skip
# of part batch_policies: the policy, what rewards it, and whose loss
CONTROLLERS = MappingProxyType({
    "random": ("random", "paper", "train"), "bandit": ("bandit", "paper", "train"), "dqn": ("dqn", "paper", "train"),
    "dqn, progr.": ("dqn", "progress", "validation"), "bandit, pr.": ("bandit", "progress", "validation"),
    "law": ("law", "progress", "validation"),
})  # fmt: skip
FEWEST_DECISIONS = 50  # before the near loss; below, a batch policy has hardly chosen anything


@dataclass(frozen=True, slots=True)
class Limits:
    """When a training ends.

    Attributes:
        seconds: of training, after which it is ended as it is.
        evaluations: of the validation split, one after another without a better one, after which it has converged.
        updates: of the model, that have passed since the best evaluation as well.
        first_s: seconds of training before the second evaluation; the first is of the untrained model.
        growth: factor by which the seconds rise between the following ones.
        better: share of the lowest loss by which another one has to be below it to be better.
        learning_rate: of Adam.
        evaluate_steps: steps after which rank 0 evaluates the validation split in its own seconds, as runs do; 0:
        never.
    """

    seconds: float
    evaluations: int
    updates: int
    first_s: float
    growth: float
    better: float
    learning_rate: float
    evaluate_steps: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        models: of parts convergence, layers and ranks; other parts take the first.
        trained: graphs of part convergence.
        timed: graph of parts layers, ranks, breakdown, ablation, memory, reservoir, slowed, building, truncation.
        chosen: graphs of parts batch policies, dqn, sizes and straggler.
        sized: graphs of part growth, smallest first.
        partitioned: graphs of part partitions.
        classified: graph of part classification.
        cut: graph of part fractions.
        fractions: of its snapshots.
        seeds: trainings of each row.
        together: whether all variants of a graph and model take the same processes, one after another.
        parts: of the nodes, as the paper's machines; on as many ranks as there are cores, at most.
        ranks: of part ranks; those of more than the cores by own time.
        layers: of parts layers, building and truncation.
        cuts: numbers of parts of part partitions.
        turns: timed, of each contender.
        steps: of a turn; one where a step is the full batch.
        turn_s: seconds of a turn of part reservoir.
        repeats: of batches built and compared.
        slow: times as long as the others' that the slowed rank's steps are.
        slow_ms: that they take longer in part straggler.
        limits: of a training.
        adjusting: of a training of parts batch policies, dqn and sizes.
        snapshot_sizes: that batch policies choose from.
        node_sizes: that they choose from.
        systems: of parts convergence, breakdown, classification and fractions; all where empty.
    """

    models: tuple[str, ...]
    trained: tuple[Workload, ...]
    timed: Workload
    chosen: tuple[Workload, ...]
    sized: tuple[Workload, ...]
    partitioned: tuple[Workload, ...]
    classified: Workload
    cut: Workload
    fractions: tuple[float, ...]
    seeds: int
    together: bool
    parts: int
    ranks: tuple[int, ...]
    layers: tuple[int, ...]
    cuts: tuple[int, ...]
    turns: int
    steps: int
    turn_s: float
    repeats: int
    slow: float
    slow_ms: float
    limits: Limits
    adjusting: Limits
    snapshot_sizes: tuple[str, ...]
    node_sizes: tuple[str, ...]
    systems: tuple[str, ...] = ()


def grown(nodes: int, edges: int, snapshots: int = 50) -> Workload:
    """A generated graph whose edges become ten times as many."""
    return generated(f"grown {nodes:,}", "growing", nodes, edges, snapshots)


_REAL = tuple(Workload(name, name) for name in ("collegemsg", "mathoverflow", "email-eu"))
_SIZED = tuple(grown(nodes, 10 * nodes) for nodes in (1_000, 4_000, 16_000, 64_000))
_CORA = Workload("cora-t", "cora-t", {"task": "classification"})
FULL_PLAN = Plan(
    MODELS, trained=(*_REAL, _SIZED[2]), timed=_REAL[1], chosen=(*_REAL[:2], _SIZED[2]), sized=_SIZED,
    partitioned=(*_REAL, *_SIZED), classified=_CORA, cut=_REAL[1], fractions=(0.2, 0.4, 0.6, 0.8, 1.0), seeds=5,
    together=False, parts=2, ranks=(1, 2, 4), layers=(1, 2, 3), cuts=(2, 4, 8), turns=5, steps=10, turn_s=3.0,
    repeats=15, slow=10.0, slow_ms=60.0, limits=Limits(20.0, 10, 100, 0.05, 1.15, 1e-3, 0.005),
    adjusting=Limits(10.0, 10, 2000, 0.05, 1.1, 1e-3, 0.0001, 10),
    snapshot_sizes=("0.1", "0.2", "0.3"), node_sizes=("0.01", "0.05", "0.1"),
)  # fmt: skip
_SMALL = grown(400, 2_000, 31)
_BRIEF = Limits(0.15, 10, 20, 0.02, 1.6, 1e-3, 0.01, 5)
QUICK_PLAN = Plan(
    MODELS[:1], trained=(_SMALL,), timed=_SMALL, chosen=(_SMALL,), sized=(_SMALL, grown(800, 4_000, 31)),
    partitioned=(_SMALL,), classified=Workload("cora-t", "cora-t", {**_CORA.options, "generated_snapshots": 21}),
    cut=_SMALL, fractions=(0.5,), seeds=1, together=True, parts=2, ranks=(1, 2), layers=(2,), cuts=(2,), turns=2,
    steps=4, turn_s=0.1, repeats=3, slow=10.0, slow_ms=6.0, limits=_BRIEF, adjusting=_BRIEF,
    snapshot_sizes=("0.2", "1"), node_sizes=("0.1",),
)  # fmt: skip


def config(
    workload: Workload, chosen: str | Mapping[str, Any], model: str, *, ranks: int, parts: int, **settings: Any
) -> RunConfig:
    """A run of a row, with one thread a process.

    Args:
        workload: its graph.
        chosen: a system as it is, or a system and its settings.
        model: its model.
        ranks: R.
        parts: P.
        settings: more of them.
    """
    own = {"system": chosen} if isinstance(chosen, str) else dict(chosen)
    return RunConfig(
        dataset=workload.dataset, model=model, hidden=HIDDEN, ranks=ranks, parts=parts, device="cpu", threads=1,
        **{**workload.options, **own, **settings},
    )  # fmt: skip


def wall_ranks(plan: Plan, cores: tuple[int, ...]) -> int:
    """The most ranks that the parts can be dealt to so that each has a core of its own."""
    return max(count for count in range(1, min(plan.parts, len(cores)) + 1) if plan.parts % count == 0)


def variants_of_systems(systems: tuple[str, ...] = ()) -> Variants:
    """Systems as they are, and variants of dynahb by their names."""
    return {name: VARIANTS.get(name, {"system": name}) for name in systems or SYSTEMS}


def variants_of_ablation() -> Variants:
    """Figure 8: each has what those before it have.

    Differs from the paper: the batch is the full one until a batch policy chooses sizes.
    """
    whole = {"batch_snapshots": 1.0, "batch_nodes": 1.0}
    return {
        "base": {"system": "pygt-dist"}, "+lap": {"system": "pygt-dist", "partitioner": "load_aware"},
        "+asyn": {**PLAIN, **whole, "exchange": "models"},
        "+rl": {"system": "dynahb", "reservoir": False}, "+rsv": {"system": "dynahb"},
    }  # fmt: skip


def variants_of_dqn() -> Variants:
    """Table 10."""
    changed = {
        "decay .999": {"epsilon_decay": 0.999}, "decay .75": {"epsilon_decay": 0.75}, "least 0": {"epsilon_min": 0.0},
        "least .5": {"epsilon_min": 0.5}, "rate .1": {"agent_rate": 0.1}, "rate .001": {"agent_rate": 0.001},
        "dqn": {}, "random": {"batch_policy": "random"},
    }  # fmt: skip
    return {name: {"system": "dynahb", **settings} for name, settings in changed.items()}


def variants_of_sizes() -> Variants:
    """Table 8: hybrid batches of one size; the paper does not say of how many snapshots: 20 %, its default."""
    fixed = {f"{share}%": {"system": "dynahb", "batch_policy": "none", "batch_nodes": share / 100}
             for share in (1, 5, 10, 20)}  # fmt: skip
    return {**fixed, "dynahb": {"system": "dynahb"}}


def variants_of_stragglers(ranks: int, slow_ms: float) -> Variants:
    """Gradients and models, as they are and with the last rank slowed."""
    ways = {way: {**PLAIN, "exchange": way} for way in ("gradients", "models")}
    slowed = {"slow_rank": ranks - 1, "slow_ms": slow_ms}
    return {**ways, **{f"{way} slow": {**chosen, **slowed} for way, chosen in ways.items()}}


def variants_of_batch_policies(plan: Plan) -> Variants:
    """What chooses, and every size by itself."""
    grid = {"snapshot_sizes": " ".join(plan.snapshot_sizes), "node_sizes": " ".join(plan.node_sizes)}
    fixed = {
        f"{snapshots} x {vertices}": {"system": "dynahb", "batch_policy": "none", "batch_snapshots": float(snapshots),
                                      "batch_nodes": float(vertices)}
        for snapshots in plan.snapshot_sizes for vertices in plan.node_sizes
    }  # fmt: skip
    choosing = {
        name: {"system": "dynahb", "batch_policy": policy, "reward": reward, "reward_loss": loss, **grid}
        for name, (policy, reward, loss) in CONTROLLERS.items()
    }
    return {**fixed, **choosing}
