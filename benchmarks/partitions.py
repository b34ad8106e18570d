"""Costs and benefits of node partitions: every partitioner, and the two strategies that use them.

    python benchmarks/partitions.py [--quick] [--json FILE] [--keep] [--only GRAPH ...] [--parts P ...]

First table: seconds of partitioning (with an empty cache), cut edges, rows sent, replication and imbalance, for the
training split of the sequence and a T-GCN of two layers; and, for two partitions, an epoch of ADGNN-T on two processes.
Second table: single, ADGNN-T and PyGT-Dist on the same METIS partition, on one and two single-threaded processes.
Epochs of a graph and a model alternate in the same processes; ratios are the first contender's time (hash; single) over
the row's, turn by turn: above 1 the row is faster. Processor seconds are the sum over ranks. Losses are compared before
each step. Bytes are of rows, predicted by the plan and counted on the links, in one step. Memory is the largest rank's
peak of resident memory beyond that after import and loading, in separate processes; mapped files count once read.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import result_files
from partition_epochs import WARM_UPS, Contender, in_turn, memory

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import list_datasets, load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.measured_partition import partition_graph
from dtdg_lab.testing.processes import run_ranks

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "real"
PARTITIONERS = ("hash", "round_robin", "load_aware", "metis", "hypergraph")
RANKS = 2
MAKING_S = 10.0  # a partition is not made again where making it has taken more than this
LOSS_TOLERANCE = 2e-4  # relative, over a few steps of Adam in single precision
TIMEOUT_S = 1800.0
HIDDEN = 32


@dataclass(frozen=True, slots=True)
class Workload:
    """A graph: its data set, options, and the epochs that are timed.

    Attributes:
        name: what rows call it.
        options: of the data set.
        turns: epochs timed.
        makings: how often a partition is made.
    """

    name: str
    dataset: str
    options: Mapping[str, Any] = field(default_factory=dict)
    turns: int = 5
    makings: int = 3


WORKLOADS = (
    Workload("collegemsg", "collegemsg", turns=9),
    Workload("mathoverflow", "mathoverflow"),
    Workload("million", "powerlaw", {"generated_nodes": 50_000, "generated_edges": 50_000, "generated_snapshots": 21}),
)
QUICK = (
    Workload("collegemsg", "collegemsg", turns=3, makings=1),
    Workload(
        "generated",
        "powerlaw",
        {"generated_nodes": 5_000, "generated_edges": 5_000, "generated_snapshots": 21},
        turns=3,
        makings=1,
    ),
)
MODELS = (("tgcn", 1), ("tgcn", 2), ("evolvegcn-o", 2))


def config(workload: Workload, *, model: str = "tgcn", layers: int = 2, **settings: Any) -> RunConfig:
    return RunConfig(
        dataset=workload.dataset,
        model=model,
        layers=layers,
        hidden=HIDDEN,
        device="cpu",
        threads=1,
        **{**workload.options, **settings},
    )


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return ordered[0], statistics.median(ordered), ordered[-1]


# the partitions themselves


def partition_row(workload: Workload, graph: DynamicGraph, name: str, parts: int) -> dict[str, Any]:
    """Time and measures of one partitioner; its partition is left in the cache, where ranks find it."""
    seconds: list[float] = []
    while len(seconds) < workload.makings and sum(seconds) <= MAKING_S:
        shutil.rmtree(Path(os.environ["DTDG_LAB_CACHE"]) / "partitions", ignore_errors=True)
        measured = partition_graph(graph, name, parts, model="tgcn", layers=2, hidden=HIDDEN)
        seconds.append(measured.seconds)
    measures = measured.measures
    return {
        "graph": workload.name,
        "parts": parts,
        "partitioner": name,
        "made_s": spread(seconds),
        "cut_share": measures.cut_share,
        "halo_rows": int(measures.halo.sum()),
        "halo_share": measures.halo_share,
        "replicated_rows": int(measures.replicated.sum()),
        "replicated_share": measures.replicated_share,
        "imbalance": measures.imbalance,
        "bytes_per_step": measured.bytes_per_step,
    }


def timed(contenders: tuple[Contender, ...]) -> list[dict[str, Any]]:
    """Rows of contenders that took turns: seconds of the straggler, ratios to the first contender, losses, bytes."""
    by_rank = run_ranks(in_turn, RANKS, contenders, timeout_s=TIMEOUT_S)
    rows, first = [], _epochs(by_rank, 0)
    for number, contender in enumerate(contenders):
        found = [rank[number] for rank in by_rank if rank[number]]
        epochs = _epochs(by_rank, number)
        pairs = list(zip(first[WARM_UPS:], epochs[WARM_UPS:], strict=True))
        apart = max(abs(one["loss"] - own["loss"]) / abs(one["loss"]) for one, own in zip(first, epochs, strict=True))
        last = epochs[-1]
        rows.append(
            {
                "name": contender.name,
                "processes": len(found),
                "epoch_s": spread(own["seconds"] for _, own in pairs),
                "ratio": spread(one["seconds"] / own["seconds"] for one, own in pairs),
                "cpu_s": statistics.median(own["cpu_s"] for _, own in pairs),
                "first_epoch_s": epochs[0]["seconds"],
                "build_s": max(own["build_s"] for own in found),
                "wait_share": statistics.median(own["wait_share"] for _, own in pairs),
                "rows_share": statistics.median(own["rows_share"] for _, own in pairs),
                "predicted_bytes": max(own["predicted_bytes"] for own in found),
                "rows_bytes": last["rows_bytes"],
                "all_bytes": last["all_bytes"],
                "vertex_snapshots": last["vertex_snapshots"],
                "loss_apart": apart,
                "equal_losses": apart <= LOSS_TOLERANCE,
                "epochs": len(pairs),
            }
        )
    return rows


def _epochs(by_rank: list[list[dict[str, Any]]], number: int) -> list[dict[str, Any]]:
    """A contender's epochs over all ranks that run it."""
    joined = []
    for epochs in zip(*(rank[number]["epochs"] for rank in by_rank if rank[number]), strict=True):
        seconds = max(epoch["seconds"] for epoch in epochs)
        joined.append(
            {
                "seconds": seconds,
                "loss": epochs[0]["loss"],
                **{
                    f"{what}_share": sum(epoch[f"{what}_s"] for epoch in epochs) / (len(epochs) * seconds)
                    for what in ("wait", "rows")
                },
                **{
                    name: sum(epoch[name] for epoch in epochs)
                    for name in ("cpu_s", "rows_bytes", "all_bytes", "vertex_snapshots")
                },
            }
        )
    return joined


def partitioner_rows(workload: Workload, parts: Iterable[int], *, epochs: bool) -> list[dict[str, Any]]:
    """The first table of one graph; with or without epochs."""
    graph = load_for(config(workload, system="single"))
    rows = []
    for number in sorted(parts, reverse=True):  # 2 comes last: its partitions stay for the ranks
        for name in PARTITIONERS:
            rows.append(partition_row(workload, graph, name, number))
            print(partition_text(rows[-1]), flush=True)
    if not epochs:
        return rows
    contenders = tuple(
        Contender(name, config(workload, system="adgnn-t", partitioner=name, ranks=RANKS, parts=RANKS), workload.turns)
        for name in PARTITIONERS
    )
    for row in timed(contenders):
        rows.append({"graph": workload.name, "parts": RANKS, "partitioner": row.pop("name"), **row})
        print(epoch_text(rows[-1], rows[-1]["partitioner"], "hash"), flush=True)
    return rows


# ADGNN-T against PyGT-Dist


def layout_rows(workload: Workload, model: str, layers: int, *, weighed: Sequence[str]) -> list[dict[str, Any]]:
    """The second table of one graph and model; memory of those contenders that are ``weighed``."""
    one, two = {"ranks": 1, "parts": RANKS}, {"ranks": RANKS, "parts": RANKS}
    systems: dict[str, dict[str, Any]] = {
        "single/1": {"system": "single", "ranks": 1},
        "adgnn-t/1": {"system": "adgnn-t", **one},
        "pygt-dist/1": {"system": "pygt-dist", **one},
        "adgnn-t/2": {"system": "adgnn-t", **two},
        "adgnn-t reuse/2": {"system": "adgnn-t", "halo_reuse": True, **two},
        "pygt-dist/2": {"system": "pygt-dist", **two},
    }
    configs = {}
    for name, settings in systems.items():
        metis = {} if name == "single/1" else {"partitioner": "metis"}
        configs[name] = config(workload, model=model, layers=layers, **settings, **metis)
    found = timed(tuple(Contender(name, chosen, workload.turns) for name, chosen in configs.items()))
    rows = []
    for row in found:
        chosen, largest = configs[row["name"]], {}
        if row["name"] in weighed:
            held = run_ranks(memory, chosen.ranks, chosen, timeout_s=TIMEOUT_S)
            largest = max(held, key=lambda rank: rank["peak_bytes"])
        rows.append({"graph": workload.name, "model": model, "layers": layers, **row, **largest})
        print(epoch_text(rows[-1], f"{model} {layers} {row['name']}", "single"), flush=True)
    return rows


# words

PARTITION_HEAD = (
    f"{'graph':12} {'P':>2} {'partitioner':12} {'made s':>8} {'min':>7} {'max':>7}  {'cut':>6} {'halo rows':>11} "
    f"{'share':>6} {'replicated':>11} {'share':>6}  largest / mean: nodes, edges, load"
)
EPOCH_HEAD = (
    f"{'graph':12} {'contender':29} {'epoch s':>8} {'min':>8} {'max':>8}  {'ratio min, median, max':24}  "
    f"{'cpu s':>7} {'build s':>7} {'wait':>5} {'rows':>5}  {'MB predicted':>12} {'counted':>8}  {'memory MB':>9}  "
    "equal losses"
)


def partition_text(row: dict[str, Any]) -> str:
    least, middle, most = row["made_s"]
    uneven = " ".join(f"{row['imbalance'][of]:5.2f}" for of in ("vertices", "edges", "load"))
    return (
        f"{row['graph']:12} {row['parts']:2} {row['partitioner']:12} {middle:8.3f} {least:7.3f} {most:7.3f}  "
        f"{row['cut_share']:6.1%} {row['halo_rows']:11,} {row['halo_share']:6.1%} {row['replicated_rows']:11,} "
        f"{row['replicated_share']:6.1%}  {uneven}"
    )


def epoch_text(row: dict[str, Any], name: str, first: str) -> str:
    least, middle, most = row["epoch_s"]
    ratios = " ".join(f"{ratio:.2f}" for ratio in row["ratio"]) + f" to {first}"
    held = f"{row['peak_bytes'] / 1e6:9.0f}" if "peak_bytes" in row else f"{'-':>9}"
    same = f"{'yes' if row['equal_losses'] else 'NO'} ({row['loss_apart']:.0e})"
    spent = f"{row['cpu_s']:7.3f} {row['build_s']:7.2f} {row['wait_share']:5.0%} {row['rows_share']:5.0%}"
    moved = f"{row['predicted_bytes'] / 1e6:12.3f} {row['rows_bytes'] / 1e6:8.3f}"
    times = f"{middle:8.3f} {least:8.3f} {most:8.3f}"
    return f"{row['graph']:12} {name:29} {times}  {ratios:24}  {spent}  {moved}  {held}  {same}"


def chosen_workloads(given: argparse.Namespace) -> list[Workload]:
    """Those asked for that are here; the others are named."""
    here = {known.name for known in list_datasets() if known.on_this_machine}
    asked = [one for one in (QUICK if given.quick else WORKLOADS) if given.only is None or one.name in given.only]
    for workload in asked:
        if workload.dataset not in here:
            print(f"{workload.name}: not here ({workload.dataset} is in neither $DTDG_LAB_DATA nor {REAL_DATA})")
    return [workload for workload in asked if workload.dataset in here]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small graphs, epochs on one, no memory: under a minute")
    result_files.add_arguments(parser)
    parser.add_argument("--only", nargs="+", metavar="GRAPH", help="collegemsg, mathoverflow, million")
    parser.add_argument("--parts", nargs="+", type=int, default=[8], metavar="P", help="beside 2 (default 8)")
    chosen = parser.parse_args(given)
    result_files.parts_on(parser, chosen.device)
    return chosen


def measured(given: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Both tables."""
    workloads, parts = chosen_workloads(given), {RANKS, *given.parts}
    timed_ones = workloads[-1:] if given.quick else workloads
    print(PARTITION_HEAD, EPOCH_HEAD, sep="\n")
    partitioners = []
    for workload in workloads:
        partitioners += partitioner_rows(workload, parts, epochs=workload in timed_ones)
    print(f"\n{EPOCH_HEAD}")
    weighed = () if given.quick else ("single/1", "adgnn-t/2", "pygt-dist/2")
    layouts = []
    for workload in timed_ones:
        for model in MODELS[1:2] if given.quick else MODELS:
            layouts += layout_rows(workload, *model, weighed=weighed)
    return {"partitioners": partitioners, "layouts": layouts}


def main() -> int:
    given = arguments()
    known = [workload.name for workload in (QUICK if given.quick else WORKLOADS)]
    unknown = set(given.only or ()) - set(known)
    if unknown:
        print(f"no graph is called {', '.join(sorted(unknown))}; graphs: {', '.join(known)}")
        return 2
    machine = result_files.machine()
    if REAL_DATA.is_dir():
        os.environ.setdefault("DTDG_LAB_DATA", str(REAL_DATA))
    print(f"CPU, float32, one thread a process; {machine}")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DTDG_LAB_CACHE"] = folder  # nothing is found that was made before
        tables = measured(given)
    print(f"took {time.perf_counter() - began:.0f} s")
    result_files.write(given, machine, tables, plan=[asdict(one) for one in (QUICK if given.quick else WORKLOADS)])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
