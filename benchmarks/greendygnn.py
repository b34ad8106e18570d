"""The parts of GreenDyGNN, measured on the processors of this machine, with the GreenDyGNN paper's numbers.

    python benchmarks/greendygnn.py [PART ...] [--quick] [--json FILE] [--keep] [--only GRAPH ...] [--ranks R]
                                    [--epochs E] [--seeds S] [--episodes B]

Parts (default: all):
table1       (Table I, Figures 4 to 6) joules by device and seconds of an epoch of each method: clean, with the paper's
             schedule of delays, and with the same schedule on throttled links
ablation     (Table II) the learned policy, without learning (W = 16), and without owner priorities
figure1      (Figure 1) latency of a call before its first byte, for our own RPC between processes
calibration  (Figure 8) models of step and fetch times fitted to the authors' cluster, if its figures are beside the
             project, and to this machine, with cross-validation by cell and by condition
simulator    seconds of an episode; policies in every case, with their distance to the clairvoyant optimum and to the
             best fixed window; steady throttling compared with the authors' measurements
live         the simulator's methods, trained under several patterns of congestion: does their order hold?
overhead     seconds of a decision, of a mini-batch compared with DGL's sampler, of a look-up in the cache

Each table ends with the paper's claims, our requirements for a controller, and where they do not hold. Graphs and
machines differ from the paper's: only ratios are comparable. The generated graphs are similar to its graphs for a
cache: a few popular nodes, and rows of 100 or 602 floats.
Links are slowed in the processes that serve features, on this machine's loopback; four ranks share its cores. One rank
is one process in which the partitions alternate: the stalls of default DGL then add up over partitions. Our pipeline
sends one request per owner and batch, ahead of training, so a delay shorter than a step costs almost nothing: this is
why links are throttled too. Methods alternate over seeds. Rows name the source of energy: ``modelled`` is assumed watts
times time and processor seconds, not a measurement. Joules are of a run's steps, those by device of the whole run.
--quick only shows that all parts run: it has too few steps for conclusions. Rows name what is missing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from contenders import gd_claims as claims
from contenders import gd_graphs, gd_here, gd_overhead, gd_rows, gd_sim, results
from contenders import gd_text as words
from contenders.gd_plan import FULL_PLAN, QUICK_PLAN, Ground, Plan
from contenders.gd_run import Trainer

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
REAL_DATA, CLUSTER = SHARED / "real", SHARED / "greendygnn"
Row = dict[str, Any]


def described(title: str, head: str, report: Callable[[Row], str], rows: list[Row]) -> list[Row]:
    """Print rows under a head."""
    print(f"\n{title}\n{head}")
    print(*map(report, rows), sep="\n", flush=True)
    return rows


def table_part(plan: Plan, folder: Path) -> list[Row]:
    print(*words.paper_texts(), sep="\n")
    rows, sizes = [], f"{plan.seeds} seeds, {plan.parts} parts on {plan.ranks} rank(s), {plan.epochs} epochs"
    with Trainer(plan.ranks, folder) as trainer:
        for ground in plan.grounds:
            title = f"Table I: {ground.name}, {sizes}"
            rows += described(title, words.TABLE_HEAD, words.table_text, gd_rows.table_rows(plan, ground, trainer))
    return rows


def ablation_part(plan: Plan, folder: Path) -> list[Row]:
    print(*words.ablation_paper_texts(), sep="\n")
    with Trainer(plan.ranks, folder) as trainer:
        return described("Table II", words.RUN_HEAD, words.run_text, gd_rows.ablation_rows(plan, trainer, folder))


def figure_part(plan: Plan, _: Path) -> list[Row]:
    rows = described("Figure 1: calls of one owner", words.CALL_HEAD, words.call_text, gd_here.call_rows(plan))
    print(*words.calls_words(rows), sep="\n")
    return rows


def calibration_part(plan: Plan, folder: Path) -> list[Row]:
    rows: list[Row] = []
    cluster, own = gd_here.cluster_calibration(CLUSTER), gd_here.own_calibration(plan, folder)
    if cluster is None:
        rows.append({"where": "authors'", "failed": f"its figures are not in {CLUSTER}"})
    else:
        print(f"\n{cluster.table()}")
        rows += gd_here.calibration_rows(cluster, "authors'")
    if isinstance(own, str):
        rows.append({"where": "here", "failed": own})
    else:
        print(f"\n{own.table()}")
        rows += gd_here.calibration_rows(own.calibration, "here")
    return described("Mean errors of cells", words.CALIBRATION_HEAD, words.calibration_text, rows)


def simulator_part(plan: Plan, folder: Path) -> list[Row]:
    speed = described("Speed", words.SPEED_HEAD, words.speed_text, gd_sim.speed_rows(plan))
    compared, missing = gd_sim.compared_rows(plan, folder)
    for name in plan.shipped:
        own = [row for row in compared if row["costs"] == name]
        cases = len({row["case"] for row in own})
        print(f"\n{name}: {cases} cases, {plan.episodes} episodes each\n{words.policies_text(own)}")
    print(*(f"{row['policy']}: {row['failed']}" for row in missing), sep="\n")
    campaign = described("Steady throttling", words.CAMPAIGN_HEAD, words.campaign_text, gd_sim.campaign_rows(plan))
    return [*speed, *compared, *missing, *campaign]


def live_part(plan: Plan, folder: Path) -> list[Row]:
    with Trainer(plan.live_ranks, folder) as trainer:
        rows = gd_rows.live_rows(plan, trainer)
    title = f"Live: {plan.lived.name}, {plan.seeds} seeds, {plan.parts} parts on {plan.live_ranks} rank(s)"
    described(title, words.LIVE_HEAD, words.live_text, rows)
    for what in ("joules", "epoch_s"):
        print(words.pair_words(gd_rows.pairs_of(rows, what), what))
    return rows


def overhead_part(plan: Plan, _: Path) -> list[Row]:
    return described("Overhead", words.OVERHEAD_HEAD, words.overhead_text, gd_overhead.overhead_rows(plan))


DO: dict[str, Callable[[Plan, Path], list[Row]]] = {
    "table1": table_part, "ablation": ablation_part, "figure1": figure_part, "calibration": calibration_part,
    "simulator": simulator_part, "live": live_part, "overhead": overhead_part,
}  # fmt: skip


def measure(part: str, plan: Plan, folder: Path) -> Row:
    """A part's rows, and what they say of claims, printed and returned."""
    began = time.perf_counter()
    rows = DO[part](plan, folder)
    verdicts = claims.JUDGES[part](rows) if part in claims.JUDGES else []
    print(*(f"  {verdict.text}" for verdict in verdicts), sep="\n")
    print(f"{part} took {time.perf_counter() - began:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
    return {"rows": rows, "claims": [{**asdict(verdict), "text": verdict.text} for verdict in verdicts]}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help=f"{', '.join(DO)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="one small graph, one process: about a minute")
    results.add_arguments(parser)
    parser.add_argument("--only", nargs="+", metavar="GRAPH", help="graphs of part table1")
    parser.add_argument("--ranks", type=int, metavar="R", help="that train (4)")
    parser.add_argument("--epochs", type=int, metavar="E", help="of a run (11)")
    parser.add_argument("--seeds", type=int, metavar="S", help="runs of each row (3)")
    parser.add_argument("--episodes", type=int, metavar="B", help="in each case of part simulator (8)")
    chosen = parser.parse_args(given)
    unknown = [part for part in chosen.part if part not in DO]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; parts: {', '.join(DO)}")
    chosen.part = results.parts_on(parser, chosen.device, chosen.part, on_gpu=("table1", "ablation", "live"))
    for name in ("ranks", "epochs", "seeds", "episodes"):
        number = getattr(chosen, name)
        if number is not None and number < 1:
            parser.error(f"--{name} {number}: a number from 1 is needed")
    return chosen


def planned(given: argparse.Namespace) -> Plan:
    """What is asked for."""
    plan = QUICK_PLAN if given.quick else FULL_PLAN
    named = [ground.name for ground in plan.grounds]
    if unknown := sorted(set(given.only or ()) - set(named)):
        raise SystemExit(f"--only {' '.join(unknown)}: no such graph; graphs: {', '.join(named)}")
    if given.ranks and plan.parts % given.ranks:
        raise SystemExit(f"--ranks {given.ranks}: {plan.parts} parts cannot be divided among them; give 1, 2 or 4")

    def kept(ground: Ground) -> bool:
        return not given.only or ground.name in given.only

    return replace(
        plan, grounds=tuple(filter(kept, plan.grounds)), seeds=given.seeds or plan.seeds,
        ranks=given.ranks or plan.ranks, live_ranks=given.ranks or plan.live_ranks,
        epochs=given.epochs or plan.epochs, episodes=given.episodes or plan.episodes, device=given.device,
    )  # fmt: skip


def main() -> int:
    given = arguments()
    if REAL_DATA.is_dir():
        os.environ.setdefault("DTDG_LAB_DATA", str(REAL_DATA))
    parts = [part for part in DO if part in (given.part or DO)]
    machine = results.machine("pyzmq")
    where = f"{results.device_name(given.device)}, float32, one thread a process"
    print(f"{where}; {machine}; load {os.getloadavg()[0]:.1f} at the start")
    began, found = time.perf_counter(), {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DTDG_LAB_CACHE"] = folder  # nothing is found that was made before
        plan = gd_graphs.placed_plan(planned(given))
        for part in parts:
            found[part] = measure(part, plan, Path(folder))
    print(f"took {time.perf_counter() - began:.0f} s; load {os.getloadavg()[0]:.1f} at the end")
    results.write(given, machine, found, plan=asdict(plan))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
