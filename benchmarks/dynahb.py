"""The parts of DynaHB, measured on the processors of this machine, with the DynaHB paper's numbers.

    python benchmarks/dynahb.py [PART ...] [--quick] [--json FILE] [--keep] [--only GRAPH ...] [--models M ...]
                                [--systems S ...] [--ranks R ...] [--layers L ...] [--seeds S] [--seconds S]

Parts (default: all):
convergence     (Table 2, Figures 6, 7) seconds of training to a common validation loss, of a step, and to converge
growth          the speed-up over snapshot batches by the size of a graph
layers          (Table 4) seconds of a step by layers, systems in turn
ranks           (Figure 9b) seconds of a step by ranks, systems in turn
scaling         (Figure 9b) dynahb's convergence by ranks
classification  (Table 5) accuracy and seconds on cora-t
fractions       (Table 9) convergence on the first snapshots of a graph
partitions      (Figure 9a) seconds of a partition, and its load balance
breakdown       (Table 3) phases of the time to convergence
ablation        (Figure 8) techniques added one by one
dqn             (Table 10) parameters of the DQN
sizes           (Table 8) hybrid batches of one size
batch_policies  the DQN, a law, a bandit, random choices, and each fixed size; with the number of decisions
landscapes      the same batch policies in simulated training: medians of five seeds, no timing
memory          (Table 7) bytes of a step, of copies, of kept batches
reservoir       the share of step time spent waiting for batches; steps with generators that never stop
slowed          steps of the other ranks with one straggler
straggler       time to a loss with one straggler, model averaging and gradients
building        seconds of building a batch, compared with DGL's sampler
truncation      deviation of DCRNN's batches from the whole graph

All runs have the same stopping rule: they end when ten evaluations of the validation split have not improved by a
thousandth and a hundred updates have passed since the best, or when their time is over. A run converged at its lowest
loss, and the test split is evaluated once, with the parameters of that step. Seconds are of rank 0's steps.
Evaluations use copies of its model, made when ranks are synchronised, and are not counted in the seconds. Two target
losses: ``common`` was reached by every run of a graph and model; ``near`` is 5.085 % above the lowest. Times are
minimum, median and maximum over seeds, with the number of seeds that reached the loss if some did not. In part
batch_policies rank 0 also evaluates every 10 steps within its own seconds, under every policy; those with fewer than
fifty decisions before the near loss are marked and not compared.

Each table ends with the paper's claims and where they do not hold here. Graphs and processors differ from the paper's:
only ratios are comparable. Ranks have one thread each, pinned to their share of the cores, which batch generators
share. With more ranks than cores no wall time is reported: seconds are then processor seconds of the rank that
computed most, without exchanges. Rows name what is missing.
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

from contenders import hb_claims as claims
from contenders import hb_costs, hb_rows, results
from contenders import hb_text as words
from contenders.esdg_plan import Workload
from contenders.hb_plan import FULL_PLAN, MODELS, QUICK_PLAN, SYSTEMS, VARIANTS, Plan, variants_of_systems

from dtdg_lab.datasets.names import list_datasets
from dtdg_lab.systems.hybrid_batches.simulator import LANDSCAPES

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "real"
SEVERAL, ONE = ("trained", "chosen", "sized", "partitioned"), ("timed", "classified", "cut")
Row = dict[str, Any]


def cores() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


def described(
    title: str, head: str, report: Callable[[Row], str], blocks: Sequence[Callable[[], list[Row]]]
) -> list[Row]:
    """Measure one block of rows after another, and print each as it comes."""
    rows = []
    print(f"\n{title}\n{head}")
    for block in blocks:
        rows += (of := block())
        print(*map(report, of), sep="\n", flush=True)
    return rows


def convergence_part(plan: Plan) -> list[Row]:
    title = f"Table 2, Figures 6 and 7: {plan.seeds} seeds, {plan.parts} parts"
    blocks = [lambda graph=graph, model=model: hb_rows.convergence_rows(plan, graph, model, cores())
              for graph in plan.trained for model in plan.models]  # fmt: skip
    return described(title, words.TRAINING_HEAD, words.training_text, blocks)


def growth_part(plan: Plan) -> list[Row]:
    blocks = [lambda graph=graph: hb_rows.growth_rows(plan, graph, cores()) for graph in plan.sized]
    return described("Speed-up over snapshot batches by size", words.TRAINING_HEAD, words.training_text, blocks)


def layers_part(plan: Plan) -> list[Row]:
    blocks = [lambda model=model, layers=layers: hb_costs.layer_rows(plan, model, layers, cores())
              for model in plan.models for layers in plan.layers]  # fmt: skip
    return described("Table 4", words.STEP_HEAD, words.step_text, blocks)


def ranks_part(plan: Plan) -> list[Row]:
    blocks = [lambda model=model: hb_costs.rank_rows(plan, model, cores()) for model in plan.models]
    return described("Figure 9b: a part for each rank", words.STEP_HEAD, words.step_text, blocks)


def scaling_part(plan: Plan) -> list[Row]:
    blocks = [lambda ranks=ranks: hb_rows.scaling_rows(plan, ranks, cores()) for ranks in plan.ranks]
    rows = hb_rows.judged(described("Figure 9b: convergence; losses are each row's own", words.TRAINING_HEAD,
                               words.training_text, blocks))  # fmt: skip
    print("with losses that all ranks reached:", *map(words.training_text, rows), sep="\n")
    return rows


def classification_part(plan: Plan) -> list[Row]:
    blocks = [lambda: hb_rows.classification_rows(plan, cores())]
    return described("Table 5", words.TRAINING_HEAD, words.training_text, blocks)


def fractions_part(plan: Plan) -> list[Row]:
    blocks = [lambda fraction=fraction: hb_rows.fraction_rows(plan, fraction, shortened(plan.cut, fraction), cores())
              for fraction in plan.fractions]  # fmt: skip
    return described("Table 9", words.FRACTION_HEAD, words.fraction_text, blocks)


def partitions_part(plan: Plan) -> list[Row]:
    blocks = [lambda graph=graph, parts=parts: hb_costs.partition_rows(plan, graph, parts)
              for graph in plan.partitioned for parts in plan.cuts]  # fmt: skip
    return described("Figure 9a", words.PARTITION_HEAD, words.partition_text, blocks)


def breakdown_part(plan: Plan) -> list[Row]:
    def rows() -> list[Row]:
        return hb_rows.training_rows(plan, plan.timed, plan.models[0], variants_of_systems(plan.systems), cores())

    print(*words.breakdown_paper_texts(), sep="\n")
    title = "Table 3: seconds until the lowest validation loss, of rank 0 and the first seed; rsv beside training"
    return described(title, words.BREAKDOWN_HEAD, words.breakdown_text, [rows])


def ablation_part(plan: Plan) -> list[Row]:
    blocks = [lambda: hb_rows.ablation_rows(plan, cores())]
    return described("Figure 8", words.ABLATION_HEAD, words.ablation_text, blocks)


def dqn_part(plan: Plan) -> list[Row]:
    blocks = [lambda graph=graph: hb_rows.dqn_rows(plan, graph, cores()) for graph in plan.chosen]
    return described("Table 10", words.TRAINING_HEAD, words.training_text, blocks)


def sizes_part(plan: Plan) -> list[Row]:
    blocks = [lambda graph=graph: hb_rows.size_rows(plan, graph, cores()) for graph in plan.chosen]
    return described("Table 8", words.TRAINING_HEAD, words.training_text, blocks)


def batch_policies_part(plan: Plan) -> list[Row]:
    blocks = [lambda graph=graph: hb_rows.batch_policy_rows(plan, graph, cores()) for graph in plan.chosen]
    title = "Batch-size controllers; sizes as snapshots x nodes; regret: seconds to the near loss above the best size's"
    return described(title, words.ADJUSTER_HEAD, words.batch_policy_text, blocks)


def landscapes_part(plan: Plan) -> list[Row]:
    def rows(name: str) -> list[Row]:
        return hb_rows.landscape_rows(name)

    blocks = [lambda name=name: rows(name) for name in LANDSCAPES]
    title = "Simulated trainings: seconds over the best fixed size's, which hindsight knows; five seeds"
    return described(title, words.LANDSCAPE_HEAD, words.landscape_text, blocks)


def memory_part(plan: Plan) -> list[Row]:
    title = "Table 7: the largest rank"
    return described(title, words.MEMORY_HEAD, words.memory_text, [lambda: hb_costs.memory_rows(plan, cores())])


def reservoir_part(plan: Plan) -> list[Row]:
    waits = [lambda: hb_costs.waiting_rows(plan, cores())]
    beside = [lambda: hb_costs.beside_rows(plan, cores())]
    rows = described("Share of steps that is waiting for batches", words.WAITING_HEAD, words.waiting_text, waits)
    title = "Steps of dbos while generators of dynahb's batches never stop"
    return rows + described(title, words.BESIDE_HEAD, words.beside_text, beside)


def slowed_part(plan: Plan) -> list[Row]:
    title = f"The last rank's steps {plan.slow:g} times as long; median step of each rank"
    return described(title, words.SLOWED_HEAD, words.slowed_text, [lambda: hb_costs.slowed_rows(plan, cores())])


def straggler_part(plan: Plan) -> list[Row]:
    blocks = [lambda graph=graph: hb_rows.straggler_rows(plan, graph, cores()) for graph in plan.chosen]
    title = f"As it is, and with the last rank's steps {plan.slow_ms:g} ms longer: {plan.seeds} seeds"
    return described(title, words.TRAINING_HEAD, words.training_text, blocks)


def building_part(plan: Plan) -> list[Row]:
    blocks = [lambda layers=layers: hb_costs.building_rows(plan, layers, cores()) for layers in plan.layers]
    return described("Building a batch of 20 % x 5 %", words.BUILDING_HEAD, words.building_text, blocks)


def truncation_part(plan: Plan) -> list[Row]:
    blocks = [lambda layers=layers: hb_costs.truncation_rows(plan, layers, cores()) for layers in plan.layers]
    title = "Batches against the same targets in the whole graph, relative"
    return described(title, words.TRUNCATION_HEAD, lambda row: "\n".join(words.truncation_texts(row)), blocks)


DO = {
    "convergence": convergence_part, "growth": growth_part, "layers": layers_part, "ranks": ranks_part,
    "scaling": scaling_part, "classification": classification_part, "fractions": fractions_part,
    "partitions": partitions_part, "breakdown": breakdown_part, "ablation": ablation_part, "dqn": dqn_part,
    "sizes": sizes_part, "batch_policies": batch_policies_part, "landscapes": landscapes_part, "memory": memory_part,
    "reservoir": reservoir_part, "slowed": slowed_part, "straggler": straggler_part, "building": building_part,
    "truncation": truncation_part,
}  # fmt: skip


def measure(part: str, plan: Plan) -> Row:
    """A part's rows, and what they say of the paper's claims, printed and returned."""
    began = time.perf_counter()
    rows = DO[part](plan)
    verdicts = claims.JUDGES[part](rows) if part in claims.JUDGES else []
    print(*(f"  {verdict.text}" for verdict in verdicts), sep="\n")
    print(f"{part} took {time.perf_counter() - began:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
    return {"rows": rows, "claims": [{**asdict(verdict), "text": verdict.text} for verdict in verdicts]}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help=f"{', '.join(DO)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="one model, small graphs: about a minute")
    results.add_arguments(parser)
    parser.add_argument("--only", nargs="+", metavar="GRAPH", help="graphs of the parts that have several")
    parser.add_argument("--models", nargs="+", metavar="M", choices=MODELS, help=", ".join(MODELS))
    parser.add_argument(
        "--systems", nargs="+", metavar="S", choices=(*SYSTEMS, *VARIANTS), help=", ".join((*SYSTEMS, *VARIANTS))
    )
    parser.add_argument("--ranks", nargs="+", type=int, metavar="R", help="of parts ranks and scaling (1 2 4)")
    parser.add_argument("--layers", nargs="+", type=int, metavar="L", help="measured (1 2 3)")
    parser.add_argument("--seeds", type=int, metavar="S", help="trainings of each row (5)")
    parser.add_argument("--seconds", type=float, metavar="S", help="of a training, at most")
    chosen = parser.parse_args(given)
    results.parts_on(parser, chosen.device)
    unknown = [part for part in chosen.part if part not in DO]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; parts: {', '.join(DO)}")
    numbers = [*(chosen.ranks or []), *(chosen.layers or []), 1 if chosen.seeds is None else chosen.seeds]
    if min(numbers) < 1 or (chosen.seconds is not None and not chosen.seconds > 0):
        parser.error(f"--ranks {chosen.ranks} --layers {chosen.layers} --seeds {chosen.seeds} --seconds "
                     f"{chosen.seconds}: numbers from 1, and seconds above 0, are needed")  # fmt: skip
    return chosen


def planned(given: argparse.Namespace) -> Plan:
    """What is asked for, of graphs that are here; the others are named."""
    plan = QUICK_PLAN if given.quick else FULL_PLAN
    named = {each.name for what in SEVERAL for each in getattr(plan, what)}
    if unknown := sorted(set(given.only or ()) - named):
        raise SystemExit(f"--only {' '.join(unknown)}: no such graph; graphs: {', '.join(sorted(named))}")
    here = {known.name for known in list_datasets() if known.on_this_machine}
    for name in sorted({each.dataset for what in SEVERAL for each in getattr(plan, what)} - here):
        print(f"{name}: not here (neither in $DTDG_LAB_DATA nor in {REAL_DATA})")
    kept = {
        what: tuple(each for each in getattr(plan, what)
                    if each.dataset in here and (not given.only or each.name in given.only))
        for what in SEVERAL
    }  # fmt: skip
    limits = [replace(each, seconds=given.seconds or each.seconds) for each in (plan.limits, plan.adjusting)]
    return replace(
        plan, **kept, models=tuple(given.models or plan.models), ranks=tuple(given.ranks or plan.ranks),
        layers=tuple(given.layers or plan.layers), seeds=given.seeds or plan.seeds, limits=limits[0],
        adjusting=limits[1], systems=tuple(given.systems or plan.systems),
    )  # fmt: skip


def shortened(workload: Workload, fraction: float) -> Workload:
    """The graph's first snapshots, kept in the cache."""
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph

    graph = load_for(config_of(workload))
    count = max(1, round(fraction * graph.num_snapshots))
    whole = {name: getattr(graph, name) for name in ("name", "source", "edge_life", "node_ids", "strict_label")}
    first = {name: getattr(graph, name)[:count] for name in ("snapshots", "features", "targets", "persistence")}
    return replace(workload, dataset=DynamicGraph(**whole, **first).store(), options=_kept(workload))


def config_of(workload: Workload) -> Any:
    from contenders.hb_plan import config

    return config(workload, "dynahb", MODELS[0], ranks=1, parts=1)


def stored(plan: Plan) -> Plan:
    """The plan with its generated graphs in the cache, so that no training's seed changes them."""
    from dtdg_lab.config import catalogue
    from dtdg_lab.datasets.names import load_for

    known: dict[str, Workload] = {}

    def placed(workload: Workload) -> Workload:
        if not any(name.startswith("generated") for name in catalogue.entry("datasets", workload.dataset).options):
            return workload
        if workload.name not in known:
            name = load_for(config_of(workload)).store()
            known[workload.name] = replace(workload, dataset=name, options=_kept(workload))
        return known[workload.name]

    several = {what: tuple(map(placed, getattr(plan, what))) for what in SEVERAL}
    return replace(plan, **several, **{what: placed(getattr(plan, what)) for what in ONE})


def _kept(workload: Workload) -> dict[str, Any]:
    """The options that are no graph's."""
    return {name: value for name, value in workload.options.items() if name == "task"}


def main() -> int:
    given = arguments()
    if REAL_DATA.is_dir():
        os.environ.setdefault("DTDG_LAB_DATA", str(REAL_DATA))
    parts = [part for part in DO if part in (given.part or DO)]
    machine = results.machine()
    print(f"CPU, float32, one thread a process; {machine}; load {os.getloadavg()[0]:.1f} at the start")
    began, found = time.perf_counter(), {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DTDG_LAB_CACHE"] = folder  # nothing is found that was made before
        plan = stored(planned(given))
        for part in parts:
            found[part] = measure(part, plan)
    print(f"took {time.perf_counter() - began:.0f} s; load {os.getloadavg()[0]:.1f} at the end")
    results.write(given, machine, found, plan=asdict(plan))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
