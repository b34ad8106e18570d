"""Rows of the parts shrinking, breakdown and peer of benchmarks/flaredtdg.py: what a run's time goes to."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contenders import flare_paper as paper
from contenders import pyg_temporal, workload
from contenders.esdg_plan import Workload
from contenders.flare_plan import Plan, config
from contenders.flare_rows import TIMEOUT_S, attempted, over, spread
from contenders.flare_steps import Contender, Row, epoch_of, in_turn, joined, peaks, placed
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.split import split
from dtdg_lab.testing.processes import run_ranks

RULES = ("ladder", "text")
PEER_TURNS, PEER_WARM_UPS = {"S0": 9, "W0": 2, "W1": 5, "W2": 2}, 1
STEP_MODELS = ("tgcn", "mpnn-lstm")  # that have a port


# shrinking


def shrinking_rows(plan: Plan, graph: Workload, model: str, cores: tuple[int, ...]) -> list[Row]:
    """Tables 9 and 10: an epoch with prefixes of one numbering and with the naive remap, by rule, on one rank."""
    return [
        {"graph": graph.name, "model": model, "rule": rule,
         **attempted("flaredtdg", lambda rule=rule: _shrinking(plan, graph, model, rule, cores))}
        for rule in RULES
    ]  # fmt: skip


def _shrinking(plan: Plan, graph: Workload, model: str, rule: str, cores: tuple[int, ...]) -> Row:
    chosen = config(graph, "flaredtdg", model, ranks=1, decay=rule)
    ((turns, alone, memory),) = run_ranks(shrinking, 1, chosen, plan.turns, plan.steps, cores, timeout_s=TIMEOUT_S)
    naive, prefixes = (joined([own], clock="wall") for own in turns)
    with_arrays = {way: memory["peak_bytes"] + alone[way]["peak_bytes"] for way in ("naive", "prefixes")}
    step_s = {way: statistics.median(epoch["seconds"] / epoch["steps"] for epoch in epochs)
              for way, epochs in (("naive", naive), ("prefixes", prefixes))}  # fmt: skip
    shrink_s = {way: statistics.fmean(alone[way]["seconds"]) for way in ("naive", "prefixes")}
    return {
        "steps": prefixes[0]["steps"], "step_s": step_s, "shrink_s": shrink_s,
        "in_step_s": statistics.median(epoch["shrink_s"] / epoch["steps"] for epoch in prefixes),
        "renumber_s": alone["prefixes"]["renumber_s"], "share": shrink_s["prefixes"] / step_s["prefixes"],
        "naive_share": shrink_s["naive"] / step_s["naive"], "ratio": over(prefixes, naive),
        "losses_apart": max(abs(a - b) for one, other in zip(naive, prefixes, strict=True)
                            for a, b in zip(one["losses"], other["losses"], strict=True)),
        "edges": alone["prefixes"]["edges"], "tensor_bytes": memory["peak_bytes"],
        "array_bytes": {way: alone[way]["peak_bytes"] for way in ("naive", "prefixes")},
        "memory_less": 1 - with_arrays["prefixes"] / with_arrays["naive"],
    }  # fmt: skip


def shrinking(
    rank: int, ranks: int, address: str, chosen: RunConfig, turns: int, steps: int, cores: tuple[int, ...]
) -> tuple[list[list[Row]], dict[str, Row], Row]:
    """Epochs by both ways in turn, what cutting out takes by itself, and the memory of steps; on one rank."""
    ways = [Contender("naive", chosen, naive=True), Contender("prefixes", chosen)]
    timed = in_turn(rank, ranks, address, ways, turns, steps, cores)
    return timed, cutting(rank, ranks, address, chosen, cores), peaks(rank, ranks, address, chosen, cores)


def cutting(rank: int, ranks: int, address: str, chosen: RunConfig, cores: tuple[int, ...]) -> dict[str, Row]:
    """What cutting out an epoch's decayed snapshots takes by both ways, without training; one part."""
    import numpy as np

    from contenders.flare_naive import cut_out
    from dtdg_lab.systems.decayed_windows.chunks import shared_chunks
    from dtdg_lab.systems.decayed_windows.shrinking import survival_order
    from dtdg_lab.systems.decayed_windows.window import Trapezoid, epoch_windows
    from dtdg_lab.training.partition import shared_partition

    group = placed(rank, ranks, address, cores)
    graph = load_for(chosen)
    chunking = shared_chunks(chosen, graph, shared_partition(chosen, graph, group), group)
    order = survival_order(np.zeros(graph.num_nodes, np.int32), chunking, range(1), seed=chosen.seed, epoch=0)
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[chosen.protocol]).train
    batches = epoch_windows(train, Trapezoid.of(chosen, chunks=chunking.chunks), seed=chosen.seed, epoch=0)
    group.close()
    return {way: cut_out(graph.snapshots, order, batches, naive=way == "naive") for way in ("naive", "prefixes")}


# where a run's time goes


def breakdown_rows(plan: Plan, graph: Workload, model: str, ranks: int, cores: tuple[int, ...]) -> list[Row]:
    """Table 12: seconds of a run's parts, on the rank that took longest, from a fresh cache."""
    row = attempted("flaredtdg", lambda: _breakdown(plan, graph, model, ranks, cores))
    return [{"graph": graph.name, "model": model, "ranks": ranks, **row}]


def _breakdown(plan: Plan, graph: Workload, model: str, ranks: int, cores: tuple[int, ...]) -> Row:
    chosen = config(graph, "flaredtdg", model, ranks=ranks)
    by_rank = run_ranks(broken_down, ranks, chosen, plan.breakdown_epochs, cores, timeout_s=TIMEOUT_S)
    seconds = max(by_rank, key=lambda rank: sum(rank.values()))
    total = sum(seconds.values())
    return {"epochs": plan.breakdown_epochs, "seconds": seconds, "total_s": total,
            "shares": {name: spent / total for name, spent in seconds.items()}}  # fmt: skip


def broken_down(
    rank: int, ranks: int, address: str, chosen: RunConfig, epochs: int, cores: tuple[int, ...]
) -> dict[str, float]:
    """Seconds of chunking once, and of some epochs' shuffling, remapping, forward, backward and the rest."""
    from dtdg_lab.systems.decayed_windows.shrinking import survival_order
    from dtdg_lab.training.build import build

    group = placed(rank, ranks, address, cores)
    graph = load_for(chosen)
    built = build(chosen, graph, group)
    assert built.partition is not None and built.strategy.chunking is not None
    described = [epoch_of(built, number) for number in range(epochs)]
    own, began_s = range(rank * chosen.parts // ranks, (rank + 1) * chosen.parts // ranks), time.perf_counter()
    for number in range(epochs):  # once more by itself: in an epoch it is part of the first batch
        survival_order(built.partition.owner, built.strategy.chunking, own, seed=chosen.seed, epoch=number)
    shuffle_s = time.perf_counter() - began_s
    group.barrier()
    group.close()
    return parts_of(described, chunking_s=built.strategy.chunking.seconds, shuffle_s=shuffle_s)


def parts_of(epochs: Sequence[Mapping[str, Any]], *, chunking_s: float, shuffle_s: float) -> dict[str, float]:
    """Seconds by the paper's names: ``remap`` is the rest of making batches, ``forward`` what no other name has."""
    sums = {name: sum(epoch[name] for epoch in epochs)
            for name in ("seconds", "batch_s", "backward_s", "communicate_s", "update_s")}  # fmt: skip
    transfer_s = sum(epoch["transfer"]["wall"] for epoch in epochs)
    others = sum(sums[name] for name in sums if name != "seconds") + transfer_s
    return {
        "chunking": chunking_s, "shuffle": shuffle_s, "remap": sums["batch_s"] - shuffle_s,
        "forward": sums["seconds"] - others, "backward": sums["backward_s"], "communicate": sums["communicate_s"],
        "transfer": transfer_s, "update": sums["update_s"],
    }  # fmt: skip


# peer


def peer_rows(plan: Plan, contender: Callable[..., Any]) -> list[Row]:
    """An epoch of hybrid steps beside PyG-Temporal's full-batch epoch, in turn, each in a process of its own.

    Args:
        plan: names the graph.
        contender: makes such a process (``models.Contender``).
    """
    name = plan.peer
    row = {"graph": name, "model": "tgcn", "steps": workload.SIZES[name][1] - 1, "threads": plan.threads,
           "target": paper.PEER_TARGET}  # fmt: skip
    if not pyg_temporal.is_installed():
        return [{**row, "failed": "PyG-Temporal is not installed (contenders/pyg_temporal.py says how)"}]
    return [{**row, **attempted("flaredtdg", lambda: _peer(plan, contender))}]


def _timed(
    names: Sequence[str], model: str, graph: str, *, plan: Plan, contender: Callable[..., Any]
) -> list[list[dict[str, float]]]:
    """Epochs of some contenders in turn, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        workload.make(graph).save(Path(folder))
        found = [
            contender(each, model, graph, Path(folder), threads=plan.threads, device=plan.device) for each in names
        ]
        try:
            for _ in range(PEER_WARM_UPS + PEER_TURNS[graph]):
                for name, each in zip(names, found, strict=True):
                    if not each.run():
                        raise MemoryError(f"the process of {name} died")
        finally:
            for each in found:
                each.close()
    return [each.epochs[PEER_WARM_UPS:] for each in found]


def _peer(plan: Plan, contender: Callable[..., Any]) -> Row:
    names = ("hybrid-steps", "pyg-temporal")
    ours, theirs = _timed(names, "tgcn", plan.peer, plan=plan, contender=contender)
    share = spread(a["seconds"] / b["seconds"] for a, b in zip(ours, theirs, strict=True))
    return {
        "lab_s": statistics.median(epoch["seconds"] for epoch in ours),
        "peer_s": statistics.median(epoch["seconds"] for epoch in theirs), "share": share,
        "within": share[1] <= paper.PEER_TARGET, "lab_bytes": ours[-1]["peak_bytes"],
        "peer_bytes": theirs[-1]["peak_bytes"], "turns": len(ours),
    }  # fmt: skip


# hybrid steps


def step_rows(plan: Plan, contender: Callable[..., Any]) -> Iterator[Row]:
    """Hybrid steps beside those of full-history, a plain port of FlareDTDG's and a full-batch epoch, in turn.

    Args:
        plan: names the graphs and models.
        contender: makes a process (``models.Contender``).
    """
    for graph in plan.stepped:
        for model in (model for model in plan.models if model in STEP_MODELS):
            row = {"graph": graph, "model": model, "steps": workload.SIZES[graph][1] - 1, "threads": plan.threads}
            yield row | attempted("flaredtdg", lambda g=graph, m=model: _steps(g, m, plan, contender))


def _steps(graph: str, model: str, plan: Plan, contender: Callable[..., Any]) -> Row:
    batch = "pyg-temporal" if model == "tgcn" and pyg_temporal.is_installed() else "port"
    names = {
        "hybrid": "hybrid-steps",
        "full-history": "hybrid-steps:full-history",
        "port": "flare-port",
        "batch": batch,
    }
    timed = _timed(list(names.values()), model, graph, plan=plan, contender=contender)
    found = dict(zip(names, timed, strict=True))
    seconds = {name: [epoch["seconds"] for epoch in epochs] for name, epochs in found.items()}
    pairs = {name: list(zip(seconds["hybrid"], theirs, strict=True)) for name, theirs in seconds.items()}
    of_full, of_batch = (spread(ours / of for ours, of in pairs[name]) for name in ("full-history", "batch"))
    over_port = spread(of / ours for ours, of in pairs["port"])
    target = paper.STEP_TARGETS.get(graph, 1.0)
    return {
        "full_batch": batch, "turns": len(seconds["hybrid"]),
        **{f"{name.replace('-', '_')}_s": spread(of) for name, of in seconds.items()},
        "of_full_history": of_full, "port_over_hybrid": over_port, "of_full_batch": of_batch,
        "hybrid_bytes": found["hybrid"][-1]["peak_bytes"], "port_bytes": found["port"][-1]["peak_bytes"],
        "missed": [what for what, holds in (
            (f"of full-history {target}", of_full[1] <= target),
            (f"port over {paper.PORT_TARGET}", over_port[1] >= paper.PORT_TARGET),
            (f"of full batch {paper.BATCH_TARGET}", of_batch[1] <= paper.BATCH_TARGET),
        ) if not holds],
    }  # fmt: skip
