"""The parts of ESDG, measured on the processors of this machine, with the ESDG paper's numbers.

    python benchmarks/esdg.py [PART ...] [--quick] [--json FILE] [--keep] [--models M ...] [--ranks R ...]

Parts (default: all):
transfers   (Figure 4) graph transfers in full and as deltas: bytes and time in our format and in the paper's, the bound
            from the measured overlap and the share of it reached, by model and its smoothing; the share of snapshots
            that benefits, by blocks and ranks; epochs of ESDG with and without.
blocks      (section 3.1) peak memory and time of a step by the number of blocks of time, on one rank: graphs stay with
            their operators, or are streamed.
overlap     (section 6.5, left open there) steps with, without and with automatically chosen overlap of exchanges: on
            native links, and over links that are slow without using the processor; the share of communication time
            that is hidden.
volumes     (Table 2) communication volume of a step by snapshot and by hypergraph node partition: computed for all
            ranks; for executed ranks also counted on the links, and timed.
strong      (Figure 5) seconds of a step by ranks, with a fixed graph: compute, communicate and transfer separately.
weak        (Figure 7) the same, with the graph growing with the ranks, three random edges per node.
links       (Figure 6) link prediction: losses of all epochs by system and ranks, and their difference from one rank's.

Times are ratios within a row's block, whose systems alternate in the same processes after two warm-ups: min, median,
max of turns. Ranks have one thread each, pinned to their share of the cores. With more ranks than cores no wall time is
reported: a step then is the processor seconds of the rank that computed most, without exchanges. Strong and weak
scaling are fitted to few ranks and small graphs (listed in benchmarks/contenders/esdg_scaling.py), tested on held-out
steps, and extrapolated to 128 ranks, eight per machine, as in the paper: with the measured graph, and with one as large
as the paper's, far outside of the measured range. The paper's GPUs and data differ: only ratios are comparable.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from contenders import esdg_paper as paper
from contenders import esdg_rows, esdg_scaling, results, transfers
from contenders import esdg_text as words
from contenders.esdg_plan import FULL_PLAN, MODELS, PROTOCOL, QUICK_PLAN, Plan, Scaling

from dtdg_lab.datasets.names import list_datasets, load_dataset
from dtdg_lab.forecast.step_scaling import StepScaling
from dtdg_lab.partition.redistribution_volume import PAPER_SPEEDUPS as SPEEDUPS
from dtdg_lab.systems.snapshot_blocks.transfer_study import estimate_transfers
from dtdg_lab.visualization.studies.scaling import scaling_caption

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "real"
PARTS = ("transfers", "blocks", "overlap", "volumes", "strong", "weak", "links")


def cores() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


def transfers_part(plan: Plan) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    shares: list[dict[str, Any]] = []
    print(f"\n{transfers.PAPER}\n{transfers.TRANSFER_HEAD}")
    for workload in plan.transfers:
        graph = load_dataset(workload.dataset, **workload.options)
        study = estimate_transfers(
            graph,
            edge_life=transfers.EDGE_LIFE,
            smoothing_window=transfers.WINDOW,
            repeats=plan.repeats,
            device=plan.device,
        )
        rows += (of := [{"graph": workload.name, **row} for row in study.rows])
        print(*map(transfers.transfer_text, of), sep="\n", flush=True)
        shares += [{"graph": workload.name, **share} for share in study.shares]
    print(f"\n{words.SHARE_HEAD}")
    of_first = [row for row in shares if row["graph"] == plan.transfers[0].name]
    ordered = sorted(of_first, key=lambda row: (row["model"], row["form"], row["ranks"]))
    for _, some in groupby(ordered, key=lambda row: (row["model"], row["form"], row["ranks"])):
        print(words.share_text(list(some)), flush=True)
    epochs = []
    print(f"\nepochs of esdg, each in two blocks, graphs transferred in full and as deltas\n{transfers.EPOCH_HEAD}")
    places = len(cores()) if plan.device == "cpu" else torch.cuda.device_count()
    for ranks in (count for count in plan.epoch_ranks if count <= places):
        for model in plan.models:
            first = plan.transfers[0]
            options = {"protocol": PROTOCOL, "overlap": False, "graph_storage": "streamed", **first.options}
            epochs.append(
                transfers.epoch_rows(
                    first.name,
                    first.dataset,
                    options,
                    model=model,
                    ranks=ranks,
                    blocks=2,
                    turns=plan.turns,
                    device=plan.device,
                )
            )
            print(transfers.epoch_text(epochs[-1]), flush=True)
    return {"transfers": rows, "shares": shares, "epochs": epochs}


def blocks_part(plan: Plan) -> dict[str, Any]:
    rows = []
    print(f"\n{paper.BLOCKS}\n{words.BLOCK_HEAD}")
    for model in plan.models:
        rows += (of := esdg_rows.block_rows(plan, model, cores()))
        print(*map(words.block_text, of), sep="\n", flush=True)
    return {"blocks": rows}


def overlap_part(plan: Plan) -> dict[str, Any]:
    rows = []
    print(f"\n{paper.OVERLAP}; evolvegcn-o exchanges no rows\n{words.OVERLAP_HEAD}")
    for ranks in (count for count in plan.ranks if 1 < count <= len(cores())):
        for model in plan.models:
            rows += (of := esdg_rows.overlap_rows(plan, model, ranks, cores()))
            print(*map(words.overlap_text, of), sep="\n", flush=True)
    return {"overlap": rows}


def volumes_part(plan: Plan) -> dict[str, Any]:
    rows = []
    print(f"\nratios are hypergraph's over snapshot partition's; the paper's are of AMLSim\n{words.VOLUME_HEAD}")
    for model in plan.models:
        rows += (of := esdg_rows.volume_rows(plan, model, cores()))
        print(*map(words.volume_text, of), sep="\n", flush=True)
    return {"volumes": rows}


def _to_dict(study: StepScaling) -> list[dict[str, Any]]:
    """Print a study; its rows with the paper's speed-up beside that on 128 ranks."""
    model = study.rows[0]["model"]
    rows = [
        {
            **row,
            "paper": SPEEDUPS[study.weak].get(model) if (row["ranks"], row["source"]) == (128, "predicted") else None,
        }
        for row in study.rows
    ]
    print(*map(words.scaling_text, rows), sep="\n", flush=True)
    return rows


def _scaling(plan: Plan, scaling: Scaling, *, weak: bool) -> dict[str, Any]:
    kind = "weak" if weak else "strong"
    found: dict[str, Any] = {"rows": [], "errors": [], "rates": {}}
    steps = esdg_scaling.measured(scaling, plan.models, plan.ranks, plan.turns, cores())
    best = "this model's" if weak else "the best of all models and graphs"
    print(f"\n{kind} scaling on {scaling.dataset}; the paper's speed-up is {best}\n{words.SCALING_HEAD}")
    for model in plan.models:
        study = esdg_scaling.study(plan, scaling, model, steps[model], weak=weak)
        found["rows"] += _to_dict(study)
        print(scaling_caption(study.rows, study.errors, weak=weak))
        nodes = paper.WEAK_NODES if weak else paper.STRONG_NODES
        print(f"as large as the paper's, {nodes:,} nodes on one rank: not within what was measured")
        larger = esdg_scaling.study(plan, scaling, model, steps[model], weak=weak, nodes=nodes)
        found["rows"] += _to_dict(
            replace(larger, rows=tuple(row for row in larger.rows if row["ranks"] in (1, 8, 16, 128)))
        )
        found["errors"] += [{"model": model, **error} for error in study.errors]
        rates = study.model
        found["rates"][model] = {
            "compute": rates.compute.tolist(), "transfer": None if rates.transfer is None else rates.transfer.tolist(),
            "message_s": rates.message_s, "byte_s": rates.byte_s,
        }  # fmt: skip
    return {kind: found}


def strong_part(plan: Plan) -> dict[str, Any]:
    return _scaling(plan, plan.strong, weak=False)


def weak_part(plan: Plan) -> dict[str, Any]:
    return _scaling(plan, plan.weak, weak=True)


def links_part(plan: Plan) -> dict[str, Any]:
    rows = []
    print(f"\n{paper.CURVES}; apart: largest of {plan.epochs} epochs, from esdg on one rank\n{words.CURVE_HEAD}")
    for workload in plan.linked:
        rows += (of := esdg_rows.curve_rows(plan, workload, cores()))
        print(*map(words.curve_text, of), sep="\n", flush=True)
    return {"links": rows}


DO = dict(
    zip(
        PARTS,
        (transfers_part, blocks_part, overlap_part, volumes_part, strong_part, weak_part, links_part),
        strict=True,
    )
)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="one model, small graphs: under a minute")
    results.add_arguments(parser)
    parser.add_argument("--models", nargs="+", metavar="M", choices=MODELS, help=", ".join(MODELS))
    parser.add_argument("--ranks", nargs="+", type=int, metavar="R", help="measured (1 2 4)")
    chosen = parser.parse_args(given)
    unknown = [part for part in chosen.part if part not in PARTS]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; parts: {', '.join(PARTS)}")
    chosen.part = results.parts_on(parser, chosen.device, chosen.part, on_gpu=("transfers",))
    if min(chosen.ranks or [1]) < 1:
        parser.error(f"--ranks {' '.join(map(str, chosen.ranks))}: numbers from 1 are needed")
    return chosen


def planned(given: argparse.Namespace) -> Plan:
    """What is asked for, of graphs that are here; the others are named."""
    plan = QUICK_PLAN if given.quick else FULL_PLAN
    here = {known.name for known in list_datasets() if known.on_this_machine}
    for name in sorted({each.dataset for each in (*plan.transfers, *plan.linked)} - here):
        print(f"{name}: not here (neither in $DTDG_LAB_DATA nor in {REAL_DATA})")
    return replace(
        plan, models=tuple(given.models or plan.models), ranks=tuple(given.ranks or plan.ranks),
        transfers=tuple(each for each in plan.transfers if each.dataset in here),
        linked=tuple(each for each in plan.linked if each.dataset in here), device=given.device,
    )  # fmt: skip


def main() -> int:
    given = arguments()
    if REAL_DATA.is_dir():
        os.environ.setdefault("DTDG_LAB_DATA", str(REAL_DATA))
    plan = planned(given)
    machine = results.machine()
    where = f"{results.device_name(given.device)}, float32, one thread a process"
    print(f"{where}; {machine}; load {os.getloadavg()[0]:.1f} at the start")
    began, found = time.perf_counter(), {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DTDG_LAB_CACHE"] = folder  # nothing is found that was made before
        for part in (part for part in PARTS if part in (given.part or PARTS)):
            began_part = time.perf_counter()
            found |= DO[part](plan)
            print(f"{part} took {time.perf_counter() - began_part:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"took {time.perf_counter() - began:.0f} s; load {os.getloadavg()[0]:.1f} at the end")
    results.write(given, machine, found, plan=asdict(plan))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
