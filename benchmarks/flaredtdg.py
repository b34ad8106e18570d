"""The parts of FlareDTDG, measured on the processors of this machine, with the FlareDTDG paper's numbers.

    python benchmarks/flaredtdg.py [PART ...] [--quick] [--json FILE] [--keep] [--only GRAPH ...] [--models M ...]
                                   [--ranks R ...] [--seeds S]

Parts (default: all):
training    (Tables 3, 4, 6, 8; Figure 6) test MSE and seconds to converge of each system, by seeds, with
            persistence and the mean predictor as baselines. Training ends when the validation loss has not fallen for
            some evaluations, or its time is over; it converged at the lowest loss, and the test split is evaluated
            once, with the parameters of that step.
memory      (Tables 1, 5, 7) peak bytes of tensors on a rank, over the steps of an epoch until windows are complete,
            and over those of complete windows, relative to full-history and to the share of its rows that are kept. At
            the start of a segment nothing has decayed yet: these windows have few snapshots.
shrinking   (Tables 9, 10) epochs with prefixes of one numbering and with the naive remap instead, in turn; seconds
            and bytes of the remaps' arrays only.
overlap     (Table 11) seconds that ranks wait in exchanges, sequential and overlapped: on the native link, over a slow
            link and over a distant one.
breakdown   (Table 12) seconds of a run by phase.
ranks       (Figure 7) seconds of an epoch, memory and bytes by ranks, systems in turn.
decay       (Figure 8) MSE, memory and time by full snapshots and alpha.
peer        an epoch of hybrid steps and PyG-Temporal's full-batch epoch, in turn.
steps       an epoch of hybrid steps, of full-history's, of a plain port of FlareDTDG's steps (contenders/flare_port.py)
            and a full-batch epoch (PyG-Temporal's where it is installed, else a plain port), in turn.

Each table ends with the paper's claims and where they do not hold here. Graphs and processors differ from the paper's:
only ratios are comparable. The decay rule is ``ladder`` unless ``text`` is named. Ranks have one thread each, pinned to
their share of the cores. With more ranks than cores no wall time is reported: an epoch then is the processor seconds of
the rank that computed most, without exchanges. Rows name what is missing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from contenders import flare_claims as claims
from contenders import flare_rows, flare_work, results
from contenders import flare_text as words
from contenders.esdg_plan import Workload
from contenders.flare_plan import FIXED, FULL_PLAN, MODELS, QUICK_PLAN, Plan
from contenders.workload import make

from dtdg_lab.datasets.names import list_datasets

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "real"
PARTS = ("training", "memory", "shrinking", "overlap", "breakdown", "ranks", "decay", "peer", "steps")
PAPER_MODEL = "mpnn-lstm"  # of Tables 1 and 12 and Figures 7 and 8


def cores() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


def one_model(plan: Plan) -> str:
    """The paper's where it is measured, else the first."""
    return PAPER_MODEL if PAPER_MODEL in plan.models else plan.models[0]


def training_part(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    print(f"\nTables 3, 4, 6, 8: {plan.seeds} seeds, {plan.parts} parts\n{words.TRAINING_HEAD}")
    for workload in plan.trained:
        for model in plan.models:
            rows += (of := flare_rows.training_rows(plan, workload, model, cores()))
            print(*map(words.training_text, of), sep="\n", flush=True)
    return rows


def memory_part(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    print(f"\nTables 5, 7\n{words.MEMORY_HEAD}")
    for workload in plan.measured:
        for model in plan.models:
            rows += (of := flare_rows.memory_rows(workload, model, 1, cores()))
            print(*map(words.memory_text, of), sep="\n", flush=True)
    print(f"\nTable 1 at this machine's scale: {one_model(plan)}, peaks of all ranks together\n{words.SCALE_HEAD}")
    for workload in plan.measured:
        described = [row for row in rows if (row["graph"], row["model"]) == (workload.name, one_model(plan))]
        print(words.scale_text(described), flush=True)
    print(*words.scale_paper_texts(), sep="\n")
    return rows


def shrinking_part(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    print(f"\nTables 9, 10; prefixes and naive: seconds of a step's remaps alone\n{words.SHRINK_HEAD}")
    for workload in plan.timed:
        for model in plan.models:
            rows += (of := flare_work.shrinking_rows(plan, workload, model, cores()))
            print(*map(words.shrinking_text, of), sep="\n", flush=True)
    return rows


def overlap_part(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    print(f"\nTable 11; exposed: seconds of an epoch in which the straggler waited\n{words.OVERLAP_HEAD}")
    if not flare_rows.built("flaredtdg"):
        print("flaredtdg is not built")
        return rows
    for ranks in (count for count in plan.ranks if 1 < count <= len(cores())):
        for model in plan.models:
            rows += (of := flare_rows.overlap_rows(plan, model, ranks, cores()))
            print(*map(words.overlap_text, of), sep="\n", flush=True)
    return rows


def breakdown_part(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    print(f"\nTable 12\n{words.BREAKDOWN_HEAD}\n{words.breakdown_paper_text()}")
    for workload in plan.timed:
        for ranks in (count for count in plan.ranks if count <= len(cores())):
            rows += (of := flare_work.breakdown_rows(plan, workload, one_model(plan), ranks, cores()))
            print(*map(words.breakdown_text, of), sep="\n", flush=True)
    return rows


def ranks_part(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    print(f"\nFigure 7\n{words.RANK_HEAD}")
    if not flare_rows.built("flaredtdg"):
        print("flaredtdg is not built")
        return rows
    for model in plan.models:
        rows += (of := flare_rows.rank_rows(plan, model, cores()))
        print(*map(words.rank_text, of), sep="\n", flush=True)
    return rows


def decay_part(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    print(f"\nFigure 8; alpha downwards; MSE of {plan.seeds} seeds, with half of what they span")
    for workload in plan.mapped:
        rows += (of := flare_rows.decay_rows(plan, workload, one_model(plan), cores()))
        print(*words.map_texts(of), sep="\n", flush=True)
    return rows


def peer_part(plan: Plan) -> list[dict[str, Any]]:
    from models import Contender

    print(f"\nT-GCN, hidden width 32, {plan.threads} threads each; share: hybrid over full batch\n{words.PEER_HEAD}")
    rows = flare_work.peer_rows(plan, Contender)
    print(*map(words.peer_text, rows), sep="\n", flush=True)
    return rows


def steps_part(plan: Plan) -> list[dict[str, Any]]:
    from models import Contender

    print(f"\nHidden width 32, {plan.threads} threads each; an epoch, and ratios: min, median, max\n{words.STEP_HEAD}")
    rows = []
    for row in flare_work.step_rows(plan, Contender):
        rows.append(row)
        print(words.step_text(row), flush=True)
    return rows


DO = dict(
    zip(
        PARTS,
        (
            training_part, memory_part, shrinking_part, overlap_part, breakdown_part, ranks_part, decay_part, peer_part,
            steps_part,
        ),
        strict=True,
    )
)  # fmt: skip


def measure(part: str, plan: Plan) -> dict[str, Any]:
    """A part's rows, and what they say of the paper's claims, printed and returned."""
    began = time.perf_counter()
    rows = DO[part](plan)
    verdicts = claims.JUDGES[part](rows) if part in claims.JUDGES else []
    print(*(f"  {verdict.text}" for verdict in verdicts), sep="\n")
    print(f"{part} took {time.perf_counter() - began:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
    return {"rows": rows, "claims": [{**asdict(verdict), "text": verdict.text} for verdict in verdicts]}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="one model, small graphs: under a minute")
    results.add_arguments(parser)
    parser.add_argument("--only", nargs="+", metavar="GRAPH", help="graphs of the parts that have several")
    parser.add_argument("--models", nargs="+", metavar="M", choices=MODELS, help=", ".join(MODELS))
    parser.add_argument("--ranks", nargs="+", type=int, metavar="R", help="measured (1 2 4)")
    parser.add_argument("--seeds", type=int, metavar="S", help="trainings of each row (3)")
    chosen = parser.parse_args(given)
    unknown = [part for part in chosen.part if part not in PARTS]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; parts: {', '.join(PARTS)}")
    chosen.part = results.parts_on(parser, chosen.device, chosen.part, on_gpu=("peer", "steps"))
    if min(chosen.ranks or [1]) < 1 or (chosen.seeds is not None and chosen.seeds < 1):
        parser.error(f"--ranks {chosen.ranks} --seeds {chosen.seeds}: numbers from 1 are needed")
    return chosen


def planned(given: argparse.Namespace) -> Plan:
    """What is asked for, of graphs that are here; the others are named."""
    plan = QUICK_PLAN if given.quick else FULL_PLAN
    here = {known.name for known in list_datasets() if known.on_this_machine} | set(FIXED)
    several = {what: getattr(plan, what) for what in ("trained", "measured", "timed", "mapped")}
    named = {each.name for some in several.values() for each in some}
    if unknown := sorted(set(given.only or ()) - named):
        raise SystemExit(f"--only {' '.join(unknown)}: no such graph; graphs: {', '.join(sorted(named))}")
    for name in sorted({each.dataset for some in several.values() for each in some} - here):
        print(f"{name}: not here (neither in $DTDG_LAB_DATA nor in {REAL_DATA})")
    kept = {
        what: tuple(each for each in some if each.dataset in here and (not given.only or each.name in given.only))
        for what, some in several.items()
    }
    return replace(
        plan, **kept, models=tuple(given.models or plan.models), ranks=tuple(given.ranks or plan.ranks),
        seeds=given.seeds or plan.seeds, device=given.device,
    )  # fmt: skip


def stored(plan: Plan, parts: Sequence[str]) -> Plan:
    """The plan with its fixed graphs made and kept in the cache, those that the parts need."""
    from contenders.lab import as_graph

    needs = {"memory": plan.measured, "shrinking": plan.timed, "breakdown": plan.timed, "overlap": (plan.overlapped,),
             "ranks": (plan.spread,)}  # fmt: skip
    wanted = {each.dataset for part in parts for each in needs.get(part, ()) if each.dataset in FIXED}
    names = {name: as_graph(make(name)).store() for name in sorted(wanted)}

    def placed(workload: Workload) -> Workload:
        return replace(workload, dataset=names.get(workload.dataset, workload.dataset))

    return replace(
        plan, measured=tuple(map(placed, plan.measured)), timed=tuple(map(placed, plan.timed)),
        overlapped=placed(plan.overlapped), spread=placed(plan.spread),
    )  # fmt: skip


def main() -> int:
    given = arguments()
    if REAL_DATA.is_dir():
        os.environ.setdefault("DTDG_LAB_DATA", str(REAL_DATA))
    parts = [part for part in PARTS if part in (given.part or PARTS)]
    plan = planned(given)
    machine = results.machine()
    where = f"{results.device_name(given.device)}, float32, one thread a process but in part peer"
    print(f"{where}; {machine}; load {os.getloadavg()[0]:.1f} at the start")
    began, found = time.perf_counter(), {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DTDG_LAB_CACHE"] = folder  # nothing is found that was made before
        plan = stored(plan, parts)
        for part in parts:
            found[part] = measure(part, plan)
    print(f"took {time.perf_counter() - began:.0f} s; load {os.getloadavg()[0]:.1f} at the end")
    results.write(given, machine, found, plan=asdict(plan))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
