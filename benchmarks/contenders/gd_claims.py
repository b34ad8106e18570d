"""What the GreenDyGNN paper claims and what is asked of controllers, held against rows of benchmarks/greendygnn.py.

Energy and seconds are compared at the median over seeds. A verdict says where a claim does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from contenders import gd_paper as paper
from contenders.flare_claims import Verdict
from contenders.gd_plan import OURS
from contenders.gd_rows import pairs_of, spread

Row = dict[str, Any]
DECIDING = ("double_dqn", "double_dqn_plus", "planner")


def verdict(table: str, claim: str, judged: Iterable[tuple[bool, str]]) -> Verdict:
    described = list(judged)
    return Verdict(
        table, claim, sum(holds for holds, _ in described), tuple(found for holds, found in described if not holds)
    )


def _blocks(rows: Sequence[Row]) -> list[tuple[str, str, dict[str, Row]]]:
    """Graph, condition and the methods that gave something."""
    alive = [row for row in rows if "failed" not in row]
    key = lambda row: (row["graph"], row["condition"])  # noqa: E731 - of two words
    return [(*at, {row["method"]: row for row in some}) for at, some in groupby(sorted(alive, key=key), key=key)]


def _mid(row: Row, what: str = "joules") -> float | None:
    known = spread(row[what])
    return None if known is None else known[1]


def _under(methods: Mapping[str, Row], one: str, other: str, what: str = "joules") -> float | None:
    """By which share one method takes less than the other; None where one is unknown."""
    if one not in methods or other not in methods:
        return None
    own, rival = _mid(methods[one], what), _mid(methods[other], what)
    return None if own is None or not rival else 1 - own / rival


def table_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Table I, Figures 5 and 6; and that policies change no loss."""
    judged: dict[str, list[tuple[bool, str]]] = {name: [] for name in ("default", "rapid", "clean", "fixed", "best")}
    more: list[tuple[bool, str]] = []
    for graph, under, methods in _blocks(rows):
        at = f"{graph} {under}"
        for name in OURS:
            clean = under == "clean"
            if (saved := _under(methods, name, "rapidgnn")) is not None:
                held = abs(saved) <= paper.CLEAN_APART or saved > 0 if clean else saved >= paper.SAVED_OF_RAPIDGNN[0]
                judged["clean" if clean else "rapid"].append((held, f"{at}, {name}: {saved:+.1%} saved"))
            if not clean and (saved := _under(methods, name, "dgl-default")) is not None:
                judged["default"].append((saved >= paper.SAVED_OF_DEFAULT[0], f"{at}, {name}: {saved:+.1%} saved"))
            if (saved := _under(methods, name, "fixed-window")) is not None:
                judged["fixed"].append((saved >= -paper.OVER_FIXED, f"{at}, {name}: {saved:+.1%} saved"))
            if (saved := _under(methods, name, "clairvoyant")) is not None:
                judged["best"].append((saved >= -paper.OVER_CLAIRVOYANT, f"{at}, {name}: {saved:+.1%} saved"))
        described = {name: row["joules_more"] for name, row in methods.items() if row.get("joules_more") is not None}
        if "greendygnn" in described and len(described) > 1:
            least = min(described, key=lambda name: described[name])
            more.append(
                (least == "greendygnn", f"{at}: {least} {described[least]:+.0%}, it {described['greendygnn']:+.0%}")
            )
    low = paper.SAVED_OF_DEFAULT[0]
    return [
        verdict("Table I", f"at least {low:.0%} less energy than default DGL, congested", judged["default"]),
        verdict("Table I", f"at least {paper.SAVED_OF_RAPIDGNN[0]:.0%} less than RapidGNN, congested", judged["rapid"]),
        verdict("Figure 6", f"no more than {paper.CLEAN_APART:.0%} above RapidGNN on clean links", judged["clean"]),
        verdict("Figure 5", "greendygnn has the least added to its clean run", more),
        verdict("ours", f"never {paper.OVER_FIXED:.0%} above the fixed window of 16", judged["fixed"]),
        verdict(
            "ours", f"within {paper.OVER_CLAIRVOYANT:.0%} of the clairvoyant (best in the cost model)", judged["best"]
        ),
        *loss_verdicts(rows),
    ]


def loss_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Caches change time and bytes, nothing else."""
    same = []
    for graph, rows_of in groupby((row for row in rows if "failed" not in row), key=lambda row: row["graph"]):
        first, *others = list(rows_of)
        same += [(row["losses"] == first["losses"], f"{graph} {row['condition']}, {row['method']}") for row in others]
    return [verdict("ours", "every method has the same losses bit by bit, whatever the links do", same)]


def ablation_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Table II."""
    parts: dict[str, list[tuple[bool, str]]] = {"w/o RL": [], "w/o cost weights": []}
    for graph, under, methods in _blocks(rows):
        for name, described in parts.items():
            if under != "clean" and (saved := _under(methods, "full", name)) is not None:
                described.append((saved > 0, f"{graph} {under}: {saved:+.1%} saved"))
    return [verdict("Table II", f"more energy {name}, congested", described) for name, described in parts.items()]


def live_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """The simulator's acceptance and its order, measured."""
    judged: dict[str, list[tuple[bool, str]]] = {"fixed": [], "rapid": [], "order": []}
    for _, under, methods in _blocks(rows):
        fixed = {name: _mid(row) for name, row in methods.items() if name.startswith("fixed-")}
        known = {name: joules for name, joules in fixed.items() if joules is not None}
        for name in OURS:
            own = _mid(methods[name]) if name in methods else None
            if own is not None and known:
                best = min(known, key=lambda each: known[each])
                described = f"{under}, {name}: {own / known[best] - 1:+.1%} of {best}"
                judged["fixed"].append((own <= (1 + paper.OVER_FIXED) * known[best], described))
            if (saved := _under(methods, name, "rapidgnn")) is not None and under != "none":
                judged["rapid"].append((saved >= paper.BELOW_RAPIDGNN, f"{under}, {name}: {saved:+.1%} saved"))
    judged["order"] = [
        (pair["agrees"], f"{pair['condition']}, {' and '.join(pair['methods'])}") for pair in pairs_of(rows)
        if pair["apart"] and pair["agrees"] is not None
    ]  # fmt: skip
    return [
        verdict("ours, live", f"never {paper.OVER_FIXED:.0%} above the best fixed window", judged["fixed"]),
        verdict("ours, live", f"{paper.BELOW_RAPIDGNN:.0%} below RapidGNN, congested", judged["rapid"]),
        verdict("ours, live", "of two methods apart, the better is the simulator's", judged["order"]),
        *loss_verdicts(rows),
    ]


def call_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Figure 1."""
    few = [(row["initiation"] >= paper.INITIATION[0], f"F={row['features']}, {row['rows']} rows: "
            f"{row['initiation']:.0%}") for row in rows if row["rows"] < paper.CROSSOVER_ROWS / 3]  # fmt: skip
    half = [(0.5 <= row["crossover_rows"] / paper.CROSSOVER_ROWS <= 2, f"F={row['features']}: "
             f"{row['crossover_rows']:,.0f} rows") for row in rows
            if row["crossover_rows"] is not None and row["rows"] == min(each["rows"] for each in rows)]  # fmt: skip
    return [
        verdict("Figure 1", f"initiation is {paper.INITIATION[0]:.0%} or more of calls for a batch's rows", few),
        verdict("Figure 1", f"payload costs more from about {paper.CROSSOVER_ROWS:,} rows on, within twice", half),
    ]


def calibration_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Figure 8, and the best that was published on the same cells."""
    alive = [row for row in rows if "failed" not in row]
    described = [(row["fitted"] <= 100 * paper.FITTED, f"{row['where']} {row['dataset']}: {row['fitted']:.1f} %")
            for row in alive]  # fmt: skip
    worst = [(row["worst_percent"] <= 100 * paper.STEP_ERRORS[1], f"{row['where']} {row['dataset']}: {row['worst']}")
             for row in alive]  # fmt: skip
    return [
        verdict("ours", f"mean error of the fitted cells at most {paper.FITTED:.1%}", described),
        verdict("Figure 8", f"no cell is off by more than {paper.STEP_ERRORS[1]:.0%}", worst),
    ]


def simulator_verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """The acceptance of controllers, the speed, and what no policy may do; campaign rows in direction."""
    speed = [(row["episode_ms"] < paper.EPISODE_MS, f"{row['at_once']} at once: {row['episode_ms']:.1f} ms")
             for row in rows if "episode_ms" in row]  # fmt: skip
    compared = [row for row in rows if "over_clairvoyant" in row]
    beaten = [(row["over_clairvoyant"] >= -1e-9, f"{row['policy']} in {row['case']}") for row in compared]
    verdicts = [
        verdict("ours", f"an episode of 30 epochs takes less than {paper.EPISODE_MS:g} ms", speed),
        verdict("ours", "no policy needs less than the clairvoyant", beaten),
    ]
    for policy in DECIDING:
        own = [row for row in compared if row["policy"] == policy]
        missing = next((row["failed"] for row in rows if row.get("policy") == policy and "failed" in row), None)
        if missing is not None:
            verdicts.append(Verdict("ours", f"{policy} (not here: {missing})", 0, ()))
        elif own:
            verdicts += _acceptance(policy, own)
    campaign = [row for row in rows if "fixed-16" in row]
    order = [(row["fixed-16"] <= row["epoch_hot"], f"{row['costs']} {row['condition']}") for row in campaign]
    ours = [
        (row[name] <= (1 + paper.OVER_FIXED) * row["fixed-16"],
         f"{row['costs']} {row['condition']}, {name}: {row[name] / row['fixed-16'] - 1:+.1%}")
        for row in campaign for name in DECIDING if name in row
    ]  # fmt: skip
    return [
        *verdicts,
        verdict("campaign", "steadily throttled, W = 16 needs no more than RapidGNN, as was measured", order),
        verdict("campaign", "who decides does not lose to W = 16 there by over 1 %, as the authors' DQN did", ours),
    ]


def _acceptance(policy: str, own: Sequence[Row]) -> list[Verdict]:
    fixed = [(row["over_best_fixed"] <= paper.OVER_FIXED, f"{row['costs']} {row['case']}: "
              f"{row['over_best_fixed']:+.1%}") for row in own]  # fmt: skip
    rapid, best = (fmean(row[name] for row in own) for name in ("over_epoch_hot", "over_clairvoyant"))
    below, within = paper.BELOW_RAPIDGNN, paper.OVER_CLAIRVOYANT
    return [
        verdict("ours", f"{policy} is in no case {paper.OVER_FIXED:.0%} above the best fixed window", fixed),
        verdict("ours", f"{policy} is {below:.0%} below RapidGNN in the mean", [(rapid <= -below, f"{rapid:+.1%}")]),
        verdict("ours", f"{policy} is within {within:.0%} of the clairvoyant in the mean",
                [(best <= within, f"{best:+.1%}")]),
    ]  # fmt: skip


JUDGES: dict[str, Callable[[Sequence[Row]], list[Verdict]]] = {
    "table1": table_verdicts, "ablation": ablation_verdicts, "live": live_verdicts, "figure1": call_verdicts,
    "calibration": calibration_verdicts, "simulator": simulator_verdicts,
}  # fmt: skip
