"""Rows of the parts blocks, overlap, volumes and links of benchmarks/esdg.py, measured and computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from contenders import esdg_paper as paper
from contenders.esdg_plan import HIDDEN, LAYERS, PROTOCOL, Plan, Workload, config
from contenders.esdg_steps import Contender, in_turn, joined, trained
from contenders.transfers import SMOOTHING
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.delta import operator_bytes
from dtdg_lab.graphs.split import split
from dtdg_lab.systems.snapshot_blocks.block_study import estimate_block_memory
from dtdg_lab.systems.snapshot_blocks.volume_study import estimate_volumes
from dtdg_lab.testing.processes import run_ranks

TIMEOUT_S = 3600.0
NUMBER_BYTES = 4  # float32
SEVERAL_BLOCKS = 2  # of overlap and volumes, so that there is a rerun


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return ordered[0], median(ordered), ordered[-1]


def clock_of(ranks: int, cores: Sequence[int]) -> str:
    """Wall time where every rank has a core of its own, else processor time."""
    return "wall" if ranks <= len(cores) else "cpu"


def timed(
    contenders: Sequence[Contender], ranks: int, turns: int, cores: tuple[int, ...]
) -> tuple[list[list[dict[str, Any]]], list[list[list[dict[str, Any]]]]]:
    """Steps of contenders in turn, joined over ranks, and each rank's own."""
    by_rank = run_ranks(in_turn, ranks, tuple(contenders), turns, cores, timeout_s=TIMEOUT_S)
    own = [[rank[place] for rank in by_rank] for place in range(len(contenders))]
    return [joined(each, clock=clock_of(ranks, cores)) for each in own], own


def over(one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]) -> tuple[float, float, float]:
    """Seconds of one over the other's, turn by turn."""
    return spread(a["seconds"] / b["seconds"] for a, b in zip(one, other, strict=True))


def block_rows(plan: Plan, model: str, cores: tuple[int, ...]) -> list[dict[str, Any]]:
    """Peak memory and time of a step on one rank, by the number of blocks and where graphs are.

    Ratios of processor seconds are over one block, turn by turn. The peak is of tensors made in a step; beside it stay
    ``kept_bytes`` of operators and features, where they are not streamed.
    """
    workload, storages = plan.workload, ("resident", "streamed")
    of_storage = {
        storage: [config(workload, model, ranks=1, blocks=blocks, graph_storage=storage) for blocks in plan.blocks]
        for storage in storages
    }
    graph = load_for(of_storage["resident"][0])
    peaks = [
        {"graphs": storage, **peak}
        for storage, configs in of_storage.items()
        for peak in estimate_block_memory(configs[0], plan.blocks, graph=graph, steps=1).rows
    ]
    contenders = [
        Contender(f"{storage} {each['blocks']}", each) for storage, configs in of_storage.items() for each in configs
    ]
    _, by_rank = timed(contenders, 1, plan.turns, cores)
    steps = [joined(own, clock="cpu") for own in by_rank]  # alone nothing is waited for: others do not disturb it
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[PROTOCOL]).train
    kept = operator_bytes(graph, train, NUMBER_BYTES)
    return [
        {"graph": workload.name, "model": model, "graphs": peak["graphs"], "blocks": peak["blocks"],
         "peak_bytes": peak["peak_bytes"], "peak_share": peak["peak_bytes"] / peaks[0]["peak_bytes"],
         "kept_bytes": 0 if peak["graphs"] == "streamed" and peak["blocks"] > 1 else kept,
         "time_ratio": over(own, steps[0]), "step_s": spread(step["seconds"] for step in own),
         "gradient_difference": peak["gradient_difference"]}
        for peak, own in zip(peaks, steps, strict=True)
        if peak["blocks"] > 1 or peak["graphs"] == "resident"
    ]  # fmt: skip


def overlap_rows(plan: Plan, model: str, ranks: int, cores: tuple[int, ...]) -> list[dict[str, Any]]:
    """Steps with exchanges one after another, overlapped, and as epochs timed before choose (auto).

    On the machine as it is, and over slow links. Ratios are the time without overlap over that with it, or with auto:
    above 1, that is the faster.
    """
    workload, rates, ways = plan.overlapped, (float("inf"), *plan.links_bytes_s), ("off", "on", "auto")
    contenders = [
        Contender(f"{rate} {way}", config(workload, model, ranks=ranks, blocks=SEVERAL_BLOCKS, overlap=way), rate)
        for rate in rates
        for way in ways
    ]
    steps, _ = timed(contenders, ranks, plan.turns, cores)
    rows = []
    for place, rate in enumerate(rates):
        by_way = dict(zip(ways, steps[len(ways) * place :], strict=False))
        hidden = {f"hidden_{way}": None if own[0]["hidden"] is None else median(step["hidden"] for step in own)
                  for way, own in by_way.items()}  # fmt: skip
        off = by_way["off"]
        rows.append({
            "graph": workload.name, "model": model, "ranks": ranks, "clock": clock_of(ranks, cores),
            "links": "native" if rate == float("inf") else f"{rate / 1e6:g} MB/s",
            **{f"{way}_s": spread(step["seconds"] for step in own) for way, own in by_way.items()},
            "ratio": over(off, by_way["on"]), "auto_ratio": over(off, by_way["auto"]), **hidden,
            "losses_apart": max(abs(a["loss"] - b["loss"]) for a, b in zip(off, by_way["on"], strict=True)),
        })  # fmt: skip
    return rows


def volume_rows(plan: Plan, model: str, cores: tuple[int, ...]) -> list[dict[str, Any]]:
    """Table 2: numbers sent in a step, computed for all ranks; counted and timed where ranks are run."""
    workload = plan.workload
    study = estimate_volumes(
        load_for(config(workload, "cdgcn", ranks=1)), model, plan.counted, hidden=HIDDEN, layers=LAYERS,
        blocks=SEVERAL_BLOCKS, smoothing=max(SMOOTHING[model].values(), default=1), protocol=PROTOCOL,
    )  # fmt: skip
    rows = []
    for row in study.rows:
        found: dict[str, Any] = {"links_equal": None, "time_ratio": None, "clock": None}
        if row["ranks"] in plan.ranks:
            found = run_volumes(plan, model, row, cores)
        ratio = paper.time_ratio(model, row["ranks"])
        rows.append({"graph": workload.name, **row, **found, "paper_time_ratio": ratio})
    return rows


def run_volumes(plan: Plan, model: str, row: dict[str, Any], cores: tuple[int, ...]) -> dict[str, Any]:
    """Both systems on the ranks of a row: whether their links carry what is computed, and hypergraph's time over ours.

    Counted are links of every timed step.
    """
    ranks = row["ranks"]
    contenders = [
        Contender(system, config(plan.workload, model, ranks=ranks, system=system, blocks=SEVERAL_BLOCKS))
        for system in ("esdg", "hypergraph-vertex")
    ]
    (ours, theirs), _ = timed(contenders, ranks, plan.turns, cores)
    wanted = [(ours, row["snapshot"]), (theirs, row["hypergraph"])]
    return {
        "links_equal": all(step["bytes"] == numbers * NUMBER_BYTES for steps, numbers in wanted for step in steps),
        "counted": [steps[0]["bytes"] / NUMBER_BYTES for steps, _ in wanted],
        "time_ratio": over(theirs, ours), "clock": clock_of(ranks, cores),
    }  # fmt: skip


def curve_rows(plan: Plan, workload: Workload, cores: tuple[int, ...]) -> list[dict[str, Any]]:
    """Figure 6: losses of each epoch by system and ranks, and how far they are from those of one rank at most."""
    runs = [(model, system) for model in plan.models for system in ("esdg", "hypergraph-vertex")]
    rows = []
    for ranks in dict.fromkeys((1, *plan.ranks)):
        configs = tuple(
            config(workload, model, ranks=ranks, system=system, epochs=plan.epochs, blocks=SEVERAL_BLOCKS)
            for model, system in runs
        )
        by_rank = run_ranks(trained, ranks, configs, cores, timeout_s=TIMEOUT_S)
        for (model, system), found in zip(runs, by_rank[0], strict=True):
            rows.append({
                "graph": workload.name, "model": model, "system": system, "ranks": ranks, **found,
                "accuracy": found["metrics"].get("accuracy"),
            })  # fmt: skip
    for row in rows:
        first = next(one for one in rows if one["model"] == row["model"])  # of esdg on one rank
        pairs = zip(row["losses"], first["losses"], strict=True)
        row["apart"] = max(abs(a - b) / abs(b) for a, b in pairs)
    return sorted(rows, key=lambda row: plan.models.index(row["model"]))
