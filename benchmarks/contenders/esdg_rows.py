"""Rows of the parts blocks, overlap, volumes and links of benchmarks/esdg.py, measured and computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from contenders import esdg_paper as paper
from contenders.esdg_plan import HIDDEN, LAYERS, PROTOCOL, Plan, Workload, config
from contenders.esdg_steps import Contender, in_turn, joined, trained
from contenders.transfers import SMOOTHING
from dtdg_lab.datasets.names import load_for
from dtdg_lab.systems.snapshot_blocks.forecast import estimate_block_memory, estimate_volumes
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
    """Peak memory and time of a step on one rank, by the number of blocks; ratios are over those of the first."""
    workload = plan.workload
    configs = [config(workload, model, ranks=1, blocks=blocks) for blocks in plan.blocks]
    peaks = estimate_block_memory(configs[0], plan.blocks, graph=load_for(configs[0]), steps=1).rows
    steps, _ = timed([Contender(str(each["blocks"]), each) for each in configs], 1, plan.turns, cores)
    return [
        {"graph": workload.name, "model": model, "blocks": peak["blocks"], "peak_bytes": peak["peak_bytes"],
         "peak_share": peak["peak_bytes"] / peaks[0]["peak_bytes"], "time_ratio": over(own, steps[0]),
         "step_s": spread(step["seconds"] for step in own), "gradient_difference": peak["gradient_difference"]}
        for peak, own in zip(peaks, steps, strict=True)
    ]  # fmt: skip


def overlap_rows(plan: Plan, model: str, ranks: int, cores: tuple[int, ...]) -> list[dict[str, Any]]:
    """Steps with exchanges one after another and overlapped, on the machine as it is and over a slow link.

    Ratios are the time without overlap over that with it: above 1, overlap is the faster.
    """
    workload, rates = plan.overlapped, (float("inf"), plan.link_bytes_s)
    contenders = [
        Contender(f"{rate} {on}", config(workload, model, ranks=ranks, blocks=SEVERAL_BLOCKS, overlap=on), rate)
        for rate in rates
        for on in (False, True)
    ]
    steps, _ = timed(contenders, ranks, plan.turns, cores)
    rows = []
    for place, rate in enumerate(rates):
        off, on = steps[2 * place : 2 * place + 2]
        hidden = {f"hidden_{name}": None if own[0]["hidden"] is None else median(step["hidden"] for step in own)
                  for name, own in (("off", off), ("on", on))}  # fmt: skip
        rows.append({
            "graph": workload.name, "model": model, "ranks": ranks, "clock": clock_of(ranks, cores),
            "link_bytes_s": None if rate == float("inf") else rate,
            "off_s": median(step["seconds"] for step in off), "on_s": median(step["seconds"] for step in on),
            "ratio": over(off, on), **hidden,
            "losses_apart": max(abs(a["loss"] - b["loss"]) for a, b in zip(off, on, strict=True)),
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
