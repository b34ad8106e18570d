"""What the DynaHB paper claims, held against benchmarks/dynahb.py's rows: a verdict says where it does not hold.

Seconds are compared at the median over seeds or turns; a loss that was not reached is reached later than any that was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from statistics import fmean, median
from typing import Any

from contenders import hb_paper as paper
from contenders.flare_claims import Verdict
from contenders.hb_plan import FEWEST_DECISIONS, FULL_BATCH
from contenders.hb_rows import OURS, middle

Row = dict[str, Any]
SAME_STEPS = 1.1  # times as long as before that the steps of ranks that were not slowed may be
BEST = "the best fixed size"
_RIVALS = {"dqn": (BEST, "random", "bandit"), "law": (BEST, "random", "dqn")}
SLOWER = 1.05  # times as long as without generators


def verdict(table: str, claim: str, judged: Iterable[tuple[bool, str]]) -> Verdict:
    described = list(judged)
    return Verdict(
        table, claim, sum(holds for holds, _ in described), tuple(found for holds, found in described if not holds)
    )


def blocks(rows: Sequence[Row], *names: str) -> Iterable[tuple[str, dict[str, Row]]]:
    """Rows that gave something, by system, of each graph and model and whatever else ``names``."""
    keys = ("graph", "model", "ranks", *names)

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row.get(name, "") for name in keys)

    for at, some in groupby((row for row in rows if "failed" not in row), key=key):
        yield " ".join(str(each) for each in (*at[:2], *at[3:]) if each != ""), {row["system"]: row for row in some}


def _seconds(row: Row, name: str = "common_s") -> float:
    found = middle(row[name])
    return float("inf") if found is None else found


def convergence_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Table 2 and Figures 6 and 7."""
    first, mean, apart, naive = [], [], [], []
    for name, systems in blocks(rows, "fraction"):
        if OURS not in systems:
            continue
        ours = systems[OURS]
        for rival in (row for system, row in systems.items() if system != OURS):
            for loss in ("common", "near"):
                described = (
                    f"{name}, {rival['system']}: {_seconds(ours, f'{loss}_s'):.3g} s to the {loss} loss "
                    f"against {_seconds(rival, f'{loss}_s'):.3g} s"
                )
                first.append((_seconds(ours, f"{loss}_s") <= _seconds(rival, f"{loss}_s"), described))
        for loss in ("common", "near"):
            if (over := ours[f"{loss}_over_rival"]) is not None:
                mean.append((over >= paper.MEAN_SPEEDUP, f"{name}: {over:.2f} to the {loss} loss"))
        whole = min((median(row["validation"]) for system, row in systems.items() if system in FULL_BATCH), default=0)
        if whole:
            above = median(ours["validation"]) / whole - 1
            apart.append((above <= paper.LOSS_APART, f"{name}: {above:+.1%}"))
        if None not in (ours["persistence"], ours["mean"], *ours["test"]):
            least = min(ours["persistence"], ours["mean"])
            naive.append((median(ours["test"]) < least, f"{name}: {median(ours['test']):.4g} against {least:.4g}"))
    return [
        verdict("Table 2", "reaches both losses before every other system", first),
        verdict("Figure 7", f"{paper.MEAN_SPEEDUP} times sooner than snapshot batches, the paper's mean", mean),
        verdict("Table 2", f"at most {paper.LOSS_APART:.1%} above the full batch's validation loss", apart),
        verdict("ours", "less test error than persistence and the mean predictor", naive),
    ]


def growth_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Where the paper's mean speed-up is reached, by the size of the graph."""
    described = [(name, systems[OURS]["near_over_rival"]) for name, systems in blocks(rows) if OURS in systems]
    known = [(name, over) for name, over in described if over is not None]
    rising = known[-1][1] > known[0][1] if len(known) > 1 else None
    sizes = "; ".join(f"{name}: {over:.2f}" for name, over in known)
    return [
        verdict("ours", f"{paper.MEAN_SPEEDUP} times sooner than snapshot batches to the near loss",
                ((over >= paper.MEAN_SPEEDUP, f"{name}: {over:.2f}") for name, over in known)),
        verdict("ours", "more so on the largest graph than on the smallest",
                [] if rising is None else [(rising, sizes)]),
    ]  # fmt: skip


def step_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Tables 2 (ST) and 4."""
    shortest = []
    for name, systems in blocks(rows, "layers"):
        if OURS in systems:
            ours = systems[OURS]["step_s"][1]
            shortest += [(ours < row["step_s"][1], f"{name}, {system}: {ours:.3g} s against {row['step_s'][1]:.3g} s")
                         for system, row in systems.items() if system != OURS]  # fmt: skip
    silent = [(row["bytes_a_step"] == 0 or row["ranks"] > 1, f"{row['system']}") for row in rows if "failed" not in row]
    return [
        verdict("Table 4", "a step is the shortest of all systems, at any number of layers", shortest),
        verdict("ours", "one rank sends nothing", silent),
    ]


def rank_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Figure 9b."""
    later = [row for row in rows if row.get("speedup") is not None and row["system"] == OURS]
    least = min((row["ranks"] for row in later), default=1)
    nearly = [(row["speedup"] >= 0.8 * row["ranks"] / least, f"{row['model']} on {row['ranks']}: {row['speedup']:.2f}")
              for row in later if row["ranks"] > least]  # fmt: skip
    return [*step_verdicts(rows), verdict("Figure 9b", "steps nearly as many times shorter as ranks (80 %)", nearly)]


def classification_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Table 5."""
    lost = []
    for name, systems in blocks(rows):
        scores = {system: median(each["accuracy"] for each in row["metrics"]) for system, row in systems.items()}
        if OURS in scores:
            lost += [(scores[OURS] >= scores[full] - paper.CORA_LOST, f"{name}, {full}: {scores[OURS]:.2%} against "
                      f"{scores[full]:.2%}") for full in FULL_BATCH if full in scores]  # fmt: skip
    table = f"accuracy at most {100 * paper.CORA_LOST:.2f} points below the full batch's"
    return [verdict("Table 5", table, lost), *convergence_verdicts(rows)[:1]]


def ablation_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Figure 8."""
    described = [(row["system"], _seconds(row)) for row in rows if "failed" not in row]
    each = [(now[1] < before[1], f"{now[0]}: {now[1]:.3g} s after {before[1]:.3g} s")
            for before, now in pairwise(described)]  # fmt: skip
    return [verdict("Figure 8", "each technique shortens the time to the common loss", each)]


def chosen_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Tables 8 and 10: what is called dynahb or dqn against the other rows."""
    judged = []
    for name, systems in blocks(rows):
        for ours in (systems[known] for known in (OURS, "dqn") if known in systems):
            judged += [(_seconds(ours, "near_s") <= _seconds(row, "near_s"),
                        f"{name}, {system}: {_seconds(ours, 'near_s'):.3g} s against {_seconds(row, 'near_s'):.3g} s")
                       for system, row in systems.items() if row is not ours]  # fmt: skip
    return [verdict("Tables 8, 10", "the DQN by its default parameters reaches the near loss first", judged)]


def batch_policy_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """The DQN and the law against the best size in hindsight, and against what knows nothing.

    Controllers that decided too seldom before the near loss are not compared: the first verdict names them.
    """
    long: list[tuple[bool, str]] = []
    against: dict[tuple[str, str], list[tuple[bool, str]]] = {
        (ours, rival): [] for ours, rivals in _RIVALS.items() for rival in rivals
    }
    for name, systems in blocks(rows):
        long += [(not row["few"], f"{name}, {system}: {median(row['decisions']):g}")
                 for system, row in systems.items() if "decisions" in row]  # fmt: skip
        for (called, rival), described in against.items():
            ours = systems.get(called)
            theirs = systems.get(ours["best_fixed"] if ours and rival == BEST else rival)
            if ours is None or theirs is None or ours.get("few", True) or theirs.get("few", False):
                continue
            times = [_seconds(row, "near_s") for row in (ours, theirs)]
            described.append(
                (times[0] < times[1], f"{name}, {theirs['system']}: {times[0]:.3g} s against {times[1]:.3g} s")
            )
    enough = verdict(
        "ours", f"at least {FEWEST_DECISIONS} decisions before the near loss, or nothing is compared", long
    )
    return [enough, *(verdict("ours", f"the {ours} reaches the near loss before {rival}", described)
                      for (ours, rival), described in against.items())]  # fmt: skip


def memory_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Table 7."""
    least = []
    for name, systems in blocks(rows):
        if OURS in systems:
            ours = max(systems[OURS]["peak_bytes"], systems[OURS]["stand_in_bytes"] or 0)
            least += [(ours < row["peak_bytes"], f"{name}, {system}: {ours / row['peak_bytes']:.2f} of it")
                      for system, row in systems.items() if system != OURS]  # fmt: skip
    return [verdict("Table 7", "a step takes the least memory of all systems, stand-ins included", least)]


def partition_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Figure 9a and section 4.2."""
    sooner, even = [], []
    alive = [row for row in rows if "failed" not in row]
    for (graph, parts), some in groupby(alive, key=lambda row: (row["graph"], row["parts"])):
        by_name: Mapping[str, Row] = {row["partitioner"]: row for row in some}
        if {"metis", "load_aware"} <= set(by_name):
            ours, metis = by_name["load_aware"], by_name["metis"]
            times = [row["made_s"][1] for row in (ours, metis)]
            sooner.append((times[0] < times[1], f"{graph} in {parts}: {times[0]:.3g} s against {times[1]:.3g} s"))
            loads = {name: row["imbalance"]["load"] for name, row in by_name.items() if "load" in row["imbalance"]}
            if loads:
                described = ", ".join(f"{name} {load:.2f}" for name, load in loads.items())
                even.append((loads["load_aware"] <= min(loads.values()), f"{graph} in {parts}: {described}"))
    return [
        verdict("Figure 9a", "load-aware parts are made sooner than METIS's", sooner),
        verdict("Figure 4", "load-aware parts have the most even loads", even),
    ]


def reservoir_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """The share of steps that waits for batches, and what generators cost."""
    alive = [row for row in rows if "failed" not in row]
    warm = [(row["warm"] < paper.WAIT_SHARE, f"{row['graph']}, {row['system']}: {row['warm']:.2%}")
            for row in alive if "warm" in row]  # fmt: skip
    cost = [
        (row["slower"][1] <= SLOWER,
         f"{row['graph']}, {row['generators']} on {row['cores']} cores: {row['slower'][1]:.2f}")
        for row in alive if row.get("generators") in ("threads", "processes")
    ]  # fmt: skip
    return [
        verdict("ours", f"less than {paper.WAIT_SHARE:.0%} of steps waits for batches once reservoirs are full", warm),
        verdict("ours", f"steps at most {SLOWER:g} times as long while generators never stop", cost),
    ]


def slowed_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Asynchronous averaging, and that the measurement can tell."""
    by_way = {row["exchange"]: row for row in rows if "failed" not in row}
    free = [(by_way["models"]["others"] <= SAME_STEPS, f"{by_way['models']['others']:.2f} times as long")] \
        if "models" in by_way else []  # fmt: skip
    held = [(by_way["gradients"]["others"] > 2, f"{by_way['gradients']['others']:.2f} times as long")] \
        if "gradients" in by_way else []  # fmt: skip
    return [
        verdict("section 5.2", "a slowed rank leaves the others' steps as they were, where models are averaged", free),
        verdict("ours", "it holds them up where gradients are", held),
    ]


def straggler_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Averaging against gradients, by the median seconds to the near loss; never reached is longest."""

    def sooner(kind: str) -> list[tuple[bool, str]]:
        found = []
        for name, ways in blocks(rows):
            models, gradients = (_seconds(ways[f"{way}{kind}"], "near_s") for way in ("models", "gradients"))
            found.append((models < gradients, f"{name}: {models:.3g} s against {gradients:.3g} s"))
        return found

    return [
        verdict("section 5.2", "with a slowed rank averaged models reach the near loss sooner", sooner(" slow")),
        verdict("section 5.2", "with ranks of one speed they do as well", sooner("")),
    ]


def building_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Building against DGL."""
    described = [(row["dgl_over_lab"] > 1, f"{row['graph']}, {row['layers']} layers: {row['dgl_over_lab']:.2f}")
            for row in rows if row.get("dgl_over_lab") is not None]  # fmt: skip
    return [verdict("ours", "batches are built sooner than by DGL's sampler", described)]


def truncation_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Exactness, and what is cut off."""
    alive = [row for row in rows if "failed" not in row]
    exact = [(row[when]["gradients"][2] < 1e-5, f"{row['layers']} layers, {when}: {row[when]['gradients'][2]:.1e}")
             for row in alive if row["model"] != "dcrnn" for when in ("at first", "trained")]  # fmt: skip
    described = [row[when]["loss"][1] for row in alive if row["model"] == "dcrnn" for when in ("at first", "trained")]
    small = [(fmean(described) < 0.01, f"{fmean(described):.2%} in the mean")] if described else []
    return [
        verdict("ours", "T-GCN's batches have the whole graph's gradients (1e-5)", exact),
        verdict("ours", "DCRNN's truncated batches have its loss within 1 %", small),
    ]


JUDGES: dict[str, Callable[[Sequence[Row]], list[Verdict]]] = {
    "convergence": convergence_verdicts, "growth": growth_verdicts, "layers": step_verdicts, "ranks": rank_verdicts,
    "classification": classification_verdicts, "fractions": convergence_verdicts, "ablation": ablation_verdicts,
    "dqn": chosen_verdicts, "sizes": chosen_verdicts, "batch_policies": batch_policy_verdicts,
    "memory": memory_verdicts,
    "partitions": partition_verdicts, "reservoir": reservoir_verdicts, "slowed": slowed_verdicts,
    "straggler": straggler_verdicts,
    "building": building_verdicts, "truncation": truncation_verdicts,
}  # fmt: skip
