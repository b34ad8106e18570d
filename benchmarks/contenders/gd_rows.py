"""Rows of trained runs: methods by turns over seeds, clean and congested; for benchmarks/greendygnn.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from contenders import gd_sim
from contenders.gd_plan import METHODS, RANKED, Ground, Plan, Variants, conditions_of, config, congestion, method_of
from contenders.gd_run import Row, Trainer
from dtdg_lab.core.errors import LabError

CLEAN = "clean"
ALIKE = 1e-3  # by which what is foretold of two methods may differ and be the same


def spread(values: Sequence[float | None]) -> tuple[float, float, float] | None:
    """Least, median and most; None where one is unknown."""
    known = [value for value in values if value is not None]
    return (min(known), median(known), max(known)) if known and len(known) == len(values) else None


def trained_rows(
    plan: Plan, ground: Ground, methods: Variants, conditions: Mapping[str, Mapping[str, Any]], trainer: Trainer
) -> list[Row]:
    """A row for every condition and method: all that its seeds took, and ratios to the first method seed by seed.

    Methods take turns, and each seed begins with another one, so that what the machine does meanwhile falls on all.
    A run before them, which is not told of, finds nothing made: neither parts nor processes.
    """
    trainer.row(config(plan, ground, {"system": "fixed-window"}, ranks=trainer.ranks, seed=0, epochs=1))  # warms up
    found: dict[tuple[str, str], list[Row]] = {(under, name): [] for under in conditions for name in methods}
    for seed in range(plan.seeds):
        names = list(methods)
        for name in names[seed % len(names) :] + names[: seed % len(names)]:
            for under, settings in conditions.items():
                runs = found[under, name]
                if runs and "failed" in runs[-1]:
                    continue  # it will again
                try:
                    of = config(plan, ground, methods[name], ranks=trainer.ranks, seed=seed, **settings)
                except LabError as error:
                    runs.append({"failed": str(error)})
                    continue
                runs.append(trainer.row(of))
    first = next(iter(methods))
    return [_joined(ground, under, name, runs, found[under, first], trainer.ranks)
            for (under, name), runs in found.items()]  # fmt: skip


def _joined(
    ground: Ground, under: str, name: str, runs: Sequence[Row], rivals: Sequence[Row], ranks: int
) -> Row:  # fmt: skip
    row: Row = {"graph": ground.name, "model": ground.model, "condition": under, "method": name, "ranks": ranks}
    failed = next((run["failed"] for run in runs if "failed" in run), None)
    if failed is not None:
        return {**row, "failed": failed}
    row |= {name: [run[name] for run in runs] for name in runs[0]}
    for what in ("epoch_s", "joules"):
        pairs = zip(runs, rivals, strict=False)
        ratios = [own[what] / rival[what] for own, rival in pairs
                  if own.get(what) is not None and rival.get(what) is not None]  # fmt: skip
        row[f"{what}_over_first"] = spread(ratios) if ratios else None
    return row


def table_rows(plan: Plan, ground: Ground, trainer: Trainer) -> list[Row]:
    """Table I and Figures 4 to 6, and how much more the congested run takes than the clean one."""
    methods = {name: method_of(plan, name) for name in METHODS}
    rows = trained_rows(plan, ground, methods, conditions_of(plan, ground), trainer)
    clean = {row["method"]: row for row in rows if row["condition"] == CLEAN and "failed" not in row}
    for row in rows:
        if row["condition"] != CLEAN and "failed" not in row and row["method"] in clean:
            for what in ("epoch_s", "joules"):
                own, other = spread(row[what]), spread(clean[row["method"]][what])
                row[f"{what}_more"] = own[1] / other[1] - 1 if own and other else None
    return rows


def ablation_rows(plan: Plan, trainer: Trainer, folder: Path) -> list[Row]:
    """Table II: the learned policy; one window and no preferred owner; and windows learned, but no preferred owner."""
    even = gd_sim.evenly_shared(plan.parts, folder)
    weights = {"system": "greendygnn", "policy_file": str(even)} if even else {"system": "greendygnn"}
    methods = {"full": {"system": "greendygnn"}, "w/o RL": {"system": "fixed-window"}, "w/o cost weights": weights}
    return trained_rows(plan, plan.ablated, methods, conditions_of(plan, plan.ablated), trainer)


def live_rows(plan: Plan, trainer: Trainer) -> list[Row]:
    """Every ranked method under every pattern, with what the simulator foretold of its joules and seconds.

    The simulator has the costs that a run of this ground counts and times before it begins.
    """
    methods = {name: method_of(plan, name) for name in plan.ranked}
    conditions = {pattern: congestion(plan, pattern, mbit=plan.lived.mbit) for pattern in plan.patterns}
    rows = trained_rows(plan, plan.lived, methods, conditions, trainer)
    foretold = gd_sim.foretold(plan, plan.lived, ranks=trainer.ranks)
    for row in rows:
        row |= foretold.get((row["condition"], RANKED[row["method"]]), {"foretold_j": None, "foretold_s": None})
    return rows


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= ALIKE * max(one, other)


def pairs_of(rows: Sequence[Row], what: str = "joules") -> list[Row]:
    """Every two methods of a pattern that the simulator knows: who was better here, who was foretold to be.

    Two whose seeds overlap, or that have one seed, are apart by nothing that was measured; two of which the same was
    foretold have no order, and ``agrees`` is None.
    """
    known = [row for row in rows if "failed" not in row and row["foretold_j"] is not None and spread(row[what])]
    foretold = {"joules": "foretold_j", "epoch_s": "foretold_s"}[what]
    found = []
    for one, other in combinations(known, 2):
        if one["condition"] != other["condition"]:
            continue
        low, high = sorted((spread(row[what]) or (0, 0, 0) for row in (one, other)), key=lambda each: each[1])
        better = one if median(one[what]) <= median(other[what]) else other
        found.append({
            "condition": one["condition"], "methods": (one["method"], other["method"]), "better": better["method"],
            "apart": min(len(one[what]), len(other[what])) > 1 and low[2] < high[0],
            "agrees": None if _alike(one[foretold], other[foretold])
            else better[foretold] == min(one[foretold], other[foretold]),
        })  # fmt: skip
    return found
