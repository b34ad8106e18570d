"""Rows of benchmarks/dynahb.py that are no trainings: steps, memory, partitions, batches, generators."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contenders.esdg_plan import Workload
from contenders.hb_plan import FULL_BATCH, HIDDEN, PLAIN, SYSTEMS, Plan, config, wall_ranks
from contenders.hb_rows import RIVAL, TIMEOUT_S, attempted, configs_of_systems, spread
from contenders.hb_timing import Contender, beside, in_turn, joined, slowed, waiting
from contenders.hb_work import building, memory, truncation
from dtdg_lab.testing.processes import run_ranks

PARTITIONERS = ("hash", "metis", "load_aware")
KINDS = ("none", "threads", "processes")
KEEPING = ("bvr", "dynahb")  # systems with reservoirs
Row = dict[str, Any]


def clock_of(ranks: int, cores: Sequence[int]) -> str:
    """Wall time where every rank has a core of its own, else processor time."""
    return "wall" if ranks <= len(cores) else "cpu"


# steps


def step_rows(
    plan: Plan, workload: Workload, model: str, *, layers: int, ranks: int, parts: int, cores: tuple[int, ...]
) -> list[Row]:
    """Seconds of a step of the six systems, in turn; ``over_rival`` is the rival's over the row's, turn by turn."""
    row = {"graph": workload.name, "model": model, "layers": layers, "ranks": ranks, "clock": clock_of(ranks, cores)}
    here, failed = configs_of_systems(plan, workload, model, ranks=ranks, parts=parts, layers=layers)
    contenders = [Contender(name, each, 1 if name in FULL_BATCH else plan.steps) for name, each in here.items()]
    found = attempted(lambda: {"ranks": run_ranks(in_turn, ranks, contenders, plan.turns, cores, timeout_s=TIMEOUT_S)})
    if "failed" in found:
        failed |= dict.fromkeys(here, found["failed"])
        here = {}
    by_name = {}
    for place, name in enumerate(here):
        by_name[name] = [rank[place] for rank in found["ranks"]]
    seconds = {name: joined(own, clock=row["clock"]) for name, own in by_name.items()}
    rows = []
    for name in SYSTEMS:
        if name in failed:
            rows.append({**row, "system": name, "failed": failed[name]})
            continue
        over = [a / b for a, b in zip(seconds[RIVAL], seconds[name], strict=True)] if RIVAL in seconds else []
        own = by_name[name]
        rows.append({
            **row, "system": name, "step_s": spread(seconds[name]), "over_rival": spread(over) if over else None,
            "own_s": statistics.median(joined(own, clock="cpu")),
            "fill_s": max(each["fill_s"] for each in own), "filled": min(each["filled"] for each in own),
            "bytes_a_step": sum(each["bytes_a_step"] for each in own), "sources": own[0]["sources"],
        })  # fmt: skip
    return rows


def layer_rows(plan: Plan, model: str, layers: int, cores: tuple[int, ...]) -> list[Row]:
    """Table 4."""
    ranks = wall_ranks(plan, cores)
    return step_rows(plan, plan.timed, model, layers=layers, ranks=ranks, parts=plan.parts, cores=cores)


def rank_rows(plan: Plan, model: str, cores: tuple[int, ...]) -> list[Row]:
    """Figure 9b by steps: ``speedup`` is a system's own, over the first number of ranks, by the row's clock.

    There is a part for each rank.
    """
    rows = []
    for ranks in plan.ranks:
        rows += step_rows(plan, plan.timed, model, layers=1, ranks=ranks, parts=ranks, cores=cores)
    first: dict[str, Row] = {}
    for row in (row for row in rows if "failed" not in row):
        start = first.setdefault(row["system"], row)
        wall = row["clock"] == "wall"
        row["speedup"] = start["step_s"][1] / row["step_s"][1] if wall else start["own_s"] / row["own_s"]
    return rows


def slowed_rows(plan: Plan, cores: tuple[int, ...]) -> list[Row]:
    """One rank slowed: seconds of a step of each rank, where gradients and where models are exchanged."""
    ranks, row = wall_ranks(plan, cores), {"graph": plan.timed.name, "model": plan.models[0], "slow": plan.slow}
    if ranks < 2:
        return [{**row, "exchange": "-", "failed": "two ranks with cores of their own are needed"}]
    ways = ("gradients", "models")
    configs = [config(plan.timed, {**PLAIN, "exchange": way}, plan.models[0], ranks=ranks, parts=plan.parts)
               for way in ways]  # fmt: skip

    def measure() -> Row:
        return {"ranks": run_ranks(slowed, ranks, configs, plan.steps, plan.slow, cores, timeout_s=TIMEOUT_S)}

    found = attempted(measure)
    if "failed" in found:
        return [{**row, "exchange": way, **found} for way in ways]
    rows = []
    for way, described in zip(ways, found["ranks"][0], strict=True):
        others = [slow / even for even, slow in zip(described["even"][:-1], described["slowed"][:-1], strict=True)]
        rows.append(
            {
                **row,
                "exchange": way,
                "even_s": described["even"],
                "slowed_s": described["slowed"],
                "others": max(others),
            }
        )
    return rows


# memory


def memory_rows(plan: Plan, cores: tuple[int, ...]) -> list[Row]:
    """Table 7: bytes of the largest rank."""
    ranks, model = wall_ranks(plan, cores), plan.models[0]
    here, failed = configs_of_systems(plan, plan.timed, model, ranks=ranks, parts=plan.parts)
    found: dict[str, Row] = {name: {"failed": why} for name, why in failed.items()}
    for names in [list(here)] if plan.together else [[name] for name in here]:

        def measure(names: Sequence[str] = names) -> Row:
            chosen = [here[name] for name in names]
            by_rank = run_ranks(memory, ranks, chosen, cores, timeout_s=TIMEOUT_S)
            return {name: _largest(each) for name, each in zip(names, zip(*by_rank, strict=True), strict=True)}

        described = attempted(measure)
        found |= dict.fromkeys(names, described) if "failed" in described else described
    row = {"graph": plan.timed.name, "model": model, "ranks": ranks}
    return [{**row, "system": name, **found[name]} for name in SYSTEMS]


def _largest(by_rank: Sequence[Row]) -> Row:
    return {name: None if None in (values := [rank[name] for rank in by_rank]) else max(values) for name in by_rank[0]}


# partitions


def partition_rows(plan: Plan, workload: Workload, parts: int) -> list[Row]:
    """Figure 9a: seconds of a partition in a fresh cache, and what it leaves uneven and copies."""
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.partition.measured_partition import partition_graph

    graph = load_for(config(workload, "dynahb", plan.models[0], ranks=1, parts=1))
    rows = []
    for name in PARTITIONERS:

        def measure(name: str = name) -> Row:
            seconds = []
            while len(seconds) < plan.turns and sum(seconds) < 10:
                shutil.rmtree(Path(os.environ["DTDG_LAB_CACHE"]) / "partitions", ignore_errors=True)
                began_s = time.perf_counter()
                made = partition_graph(graph, name, parts, model=plan.models[0], hidden=HIDDEN)
                whole_s = time.perf_counter() - began_s
                seconds.append(made.seconds)
            measures = made.measures
            return {"made_s": spread(seconds), "whole_s": whole_s, "imbalance": measures.imbalance,
                    "cut_share": measures.cut_share, "replicated_share": measures.replicated_share,
                    "cached_bytes": int(measures.cached_bytes.sum())}  # fmt: skip

        rows.append({"graph": workload.name, "parts": parts, "partitioner": name, **attempted(measure)})
    return rows


# batches


def building_rows(plan: Plan, layers: int, cores: tuple[int, ...]) -> list[Row]:
    """Building a batch here and by DGL's sampler, beside training it and a full-batch step."""
    plain, full = (config(plan.timed, chosen, plan.models[0], ranks=1, parts=1, layers=layers)
                   for chosen in (PLAIN, "pygt-dist"))  # fmt: skip

    def measure() -> Row:
        (described,) = run_ranks(building, 1, plain, full, plan.repeats, cores, timeout_s=TIMEOUT_S)
        return {**described, "dgl_over_lab": described["dgl_s"] / described["lab_s"] if described["dgl_s"] else None}

    return [{"graph": plan.timed.name, "model": plan.models[0], "layers": layers, **attempted(measure)}]


def truncation_rows(plan: Plan, layers: int, cores: tuple[int, ...]) -> list[Row]:
    """What cutting off state beyond the layers' hops does to DCRNN's batches, beside a model it does not touch."""
    models = ("tgcn", "dcrnn")
    configs = [config(plan.timed, PLAIN, model, ranks=1, parts=plan.parts, layers=layers) for model in models]

    def measure() -> Row:
        args = (configs, plan.repeats, 10 * plan.steps, cores)
        (described,) = run_ranks(truncation, 1, *args, timeout_s=TIMEOUT_S)
        return {model: _spreads(each) for model, each in zip(models, described, strict=True)}

    found = attempted(measure)
    row = {"graph": plan.timed.name, "layers": layers}
    return [{**row, "model": model, **(found if "failed" in found else found[model])} for model in models]


def _spreads(found: Row) -> Row:
    return {when: {what: spread(values) for what, values in each.items()} for when, each in found.items()}


# reservoirs


def waiting_rows(plan: Plan, cores: tuple[int, ...]) -> list[Row]:
    """The share of steps that waits for batches: reservoirs filling, and full; by system and kind of generator."""
    ranks, model = wall_ranks(plan, cores), plan.models[0]
    chosen = {
        f"{name}, {kind}": config(plan.timed, name, model, ranks=ranks, parts=plan.parts, generators=kind)
        for name in KEEPING for kind in KINDS[1:]
    }  # fmt: skip
    args = (list(chosen.values()), plan.turn_s, cores)
    found = attempted(lambda: {"ranks": run_ranks(waiting, ranks, *args, timeout_s=TIMEOUT_S)})
    rows = []
    for place, name in enumerate(chosen):
        row = {"graph": plan.timed.name, "model": model, "ranks": ranks, "system": name}
        described = (
            found if "failed" in found else max((rank[place] for rank in found["ranks"]), key=lambda of: of["warm"])
        )
        rows.append({**row, **described})
    return rows


def beside_rows(plan: Plan, cores: tuple[int, ...]) -> list[Row]:
    """How much longer steps are while generators never stop: on one core that all share, and with one to spare."""
    model, rows = plan.models[0], []
    load = config(plan.timed, RIVAL, model, ranks=1, parts=1)
    source = config(plan.timed, "dynahb", model, ranks=1, parts=1)
    for some in {cores[:1], cores[:2]}:
        row = {"graph": plan.timed.name, "model": model, "cores": len(some)}

        def measure(some: tuple[int, ...] = some) -> Row:
            args = (load, source, KINDS, plan.turns, plan.turn_s, some)
            (described,) = run_ranks(beside, 1, *args, timeout_s=TIMEOUT_S)
            return described

        described = attempted(measure)
        if "failed" in described:
            rows.append({**row, "generators": "-", **described})
            continue
        for kind in KINDS:
            ratios = [
                one["step_s"] / none["step_s"] for one, none in zip(described[kind], described["none"], strict=True)
            ]
            rows.append({
                **row, "generators": kind, "step_s": spread(turn["step_s"] for turn in described[kind]),
                "slower": spread(ratios),
                "made_per_s": statistics.median(turn["made_per_s"] for turn in described[kind]),
            })  # fmt: skip
    return rows
