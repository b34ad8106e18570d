"""Rows of the parts training, memory, overlap, ranks and decay of benchmarks/flaredtdg.py."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from contenders import flare_paper as paper
from contenders.esdg_plan import Workload
from contenders.flare_plan import HYBRID, RIVALS, SYSTEMS, Plan, built, config, missing
from contenders.flare_steps import Contender, cell, in_turn, joined, peaks, trained
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.testing.processes import RanksError, run_ranks

TIMEOUT_S = 7200.0
RANKED = ("flaredtdg", "full-history", "recent-only", *RIVALS)
LAST_LINE = 160  # characters of a failure that a row tells
Row = dict[str, Any]


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return ordered[0], statistics.median(ordered), ordered[-1]


def clock_of(ranks: int, cores: Sequence[int]) -> str:
    """Wall time where every rank has a core of its own, else processor time."""
    return "wall" if ranks <= len(cores) else "cpu"


def attempted(name: str, measure: Callable[[], Row]) -> Row:
    """What a system gives, or why there is nothing of it: ``failed`` says so in the row."""
    if why := missing(name):
        return {"system": name, "failed": why}
    try:
        return {"system": name, **measure()}
    except RanksError as error:
        described = error.__cause__
        if described is None:
            return {"system": name, "failed": "a process died (out of memory?)"}
        if not isinstance(described, (LabError, MemoryError)):
            raise
    except (LabError, MemoryError) as error:
        described = error
    return {"system": name, "failed": f"{type(described).__name__}: {described}"[:LAST_LINE]}


# training


def training_rows(plan: Plan, workload: Workload, model: str, cores: tuple[int, ...]) -> list[Row]:
    """Tables 3, 4, 6 and 8: each system trained with every seed; lists have one entry a seed."""
    ranks = max(count for count in range(1, min(plan.parts, len(cores)) + 1) if plan.parts % count == 0)
    rows = [attempted(name, lambda name=name: _training(plan, workload, name, model, ranks, cores)) for name in SYSTEMS]
    return [{"graph": workload.name, "model": model, "ranks": ranks, "parts": plan.parts, **row} for row in rows]


def _training(plan: Plan, workload: Workload, name: str, model: str, ranks: int, cores: tuple[int, ...]) -> Row:
    configs = [
        config(workload, name, model, ranks=ranks, parts=plan.parts, seed=seed, learning_rate=plan.limits.learning_rate)
        for seed in range(plan.seeds)
    ]
    return by_seed(run_ranks(trained, ranks, configs, plan.limits, cores, timeout_s=TIMEOUT_S)[0])


def by_seed(found: Sequence[Row]) -> Row:
    """What trainings gave, as lists by seed; the baselines, which no seed changes, once."""
    same = {name: found[0][name] for name in ("persistence", "mean")}
    return same | {name: [each[name] for each in found] for name in found[0] if name not in same}


# memory


def memory_rows(workload: Workload, model: str, ranks: int, cores: tuple[int, ...]) -> list[Row]:
    """Tables 1, 5 and 7: most bytes of tensors on a rank, by system, and what full-history takes beside them."""
    rows = [attempted(name, lambda name=name: _peaks(workload, name, model, ranks, cores)) for name in SYSTEMS]
    return judged_memory([{"graph": workload.name, "model": model, "ranks": ranks, **row} for row in rows])


def _peaks(workload: Workload, name: str, model: str, ranks: int, cores: tuple[int, ...]) -> Row:
    by_rank = run_ranks(peaks, ranks, config(workload, name, model, ranks=ranks), cores, timeout_s=TIMEOUT_S)
    rows = [rank["rows"] for rank in by_rank]
    return {
        **by_rank[0], "peak_bytes": max(rank["peak_bytes"] for rank in by_rank),
        "whole_bytes": max(rank["whole_bytes"] for rank in by_rank),
        "sum_bytes": sum(rank["peak_bytes"] for rank in by_rank),
        "rss_bytes": max(rank["rss_bytes"] for rank in by_rank), "rows": None if None in rows else sum(rows),
    }  # fmt: skip


def judged_memory(rows: list[Row]) -> list[Row]:
    """The rows with their share of full-history's peak and of its rows in whole windows, and whether the first keeps to
    the second; ``any_share`` is of the peaks over all steps."""
    full = next((row for row in rows if row["system"] == "full-history" and "failed" not in row), None)
    described = []
    for row in rows:
        if full is None or "failed" in row:
            described.append({**row, "share": None, "any_share": None, "kept": None, "within": None})
            continue
        share, any_share = (row[what] / full[what] for what in ("whole_bytes", "peak_bytes"))
        kept = row["rows"] / full["rows"] if row["rows"] and full["rows"] else None
        judged = row["system"] in HYBRID and kept is not None
        within = share <= kept + paper.TARGET_MARGIN if judged else None
        described.append({**row, "share": share, "any_share": any_share, "kept": kept, "within": within})
    return described


# overlap


def timed(
    contenders: Sequence[Contender], ranks: int, plan: Plan, cores: tuple[int, ...]
) -> tuple[list[list[Row]], list[list[list[Row]]]]:
    """Epochs of contenders in turn, joined over ranks, and each rank's own."""
    by_rank = run_ranks(in_turn, ranks, tuple(contenders), plan.turns, plan.steps, cores, timeout_s=TIMEOUT_S)
    own = [[rank[place] for rank in by_rank] for place in range(len(contenders))]
    return [joined(each, clock=clock_of(ranks, cores)) for each in own], own


def over(one: Sequence[Row], other: Sequence[Row], what: str = "seconds") -> tuple[float, float, float]:
    """What one took over what the other did, turn by turn."""
    return spread(a[what] / b[what] for a, b in zip(one, other, strict=True))


def overlap_rows(plan: Plan, model: str, ranks: int, cores: tuple[int, ...]) -> list[Row]:
    """Table 11: exchanges one after another and overlapped, on the machine as it is, over a slow link, over a far one.

    ``exposed_less`` is the share of the time that ranks stood still in exchanges which overlap saves.
    """
    workload, networks = plan.overlapped, (("as it is", {}), *slow_networks(plan))
    contenders = [
        Contender(name, config(workload, "flaredtdg", model, ranks=ranks, overlap=on), **how)
        for name, how in networks
        for on in (False, True)
    ]
    epochs, _ = timed(contenders, ranks, plan, cores)
    rows = []
    for place, (name, _) in enumerate(networks):
        off, on = epochs[2 * place : 2 * place + 2]
        rows.append({
            "graph": workload.name, "model": model, "ranks": ranks, "network": name, "clock": clock_of(ranks, cores),
            "steps": on[0]["steps"], "off_s": statistics.median(epoch["exposed_s"] for epoch in off),
            "on_s": statistics.median(epoch["exposed_s"] for epoch in on),
            "exposed_less": _less(off, on), "hidden_off": _middle(off, "hidden"), "hidden_on": _middle(on, "hidden"),
            "ratio": over(off, on), "prediction_error": _middle(on, "prediction_error"),
            "losses_apart": max(abs(a - b) for one, other in zip(off, on, strict=True)
                                for a, b in zip(one["losses"], other["losses"], strict=True)),
        })  # fmt: skip
    return rows


def slow_networks(plan: Plan) -> tuple[tuple[str, Row], ...]:
    slow, far = {"bytes_per_s": plan.link_bytes_s}, {"delay_s": plan.delay_s}
    return ((f"{plan.link_bytes_s / 1e6:g} MB/s", slow), (f"{1e3 * plan.delay_s:g} ms", far))


def _less(off: Sequence[Row], on: Sequence[Row]) -> float | None:
    before, after = (statistics.median(epoch["exposed_s"] for epoch in of) for of in (off, on))
    return 1 - after / before if before else None


def _middle(epochs: Sequence[Row], what: str) -> float | None:
    values = [epoch[what] for epoch in epochs if epoch[what] is not None]
    return statistics.median(values) if values else None


# ranks


def rank_rows(plan: Plan, model: str, cores: tuple[int, ...]) -> list[Row]:
    """Figure 7: seconds of an epoch and memory of a rank by ranks, beside the other systems in turn.

    ``ratio`` is a system's time over flaredtdg's, turn by turn, for equally many steps; where an epoch is one step,
    for one epoch. ``speedup`` is the system's own, over the first number of ranks, by the row's clock.
    """
    rows = []
    first: dict[str, dict[str, float]] = {}
    for ranks in plan.ranks:
        here = [name for name in RANKED if not missing(name)]
        here, failed = _possible(plan, model, here, ranks)
        contenders = [Contender(name, config(plan.spread, name, model, ranks=ranks)) for name in here]
        epochs, each = timed(contenders, ranks, plan, cores)
        by_name = dict(zip(here, epochs, strict=True))
        for name, by_rank in zip(here, each, strict=True):
            first.setdefault(name, {clock: _seconds(joined(by_rank, clock=clock)) for clock in ("wall", "cpu")})
        for name in RANKED:
            row = {"graph": plan.spread.name, "model": model, "ranks": ranks, "system": name}
            if name not in by_name:
                rows.append({**row, "failed": failed.get(name, missing(name))})
                continue
            own, clock = by_name[name], clock_of(ranks, cores)
            memory: Row = {}  # the others' is in part memory
            if name == "flaredtdg":
                memory = _peaks(plan.spread, name, model, ranks, cores)
            rows.append({
                **row, "epoch_s": spread(epoch["seconds"] for epoch in own), "steps": own[0]["steps"], "clock": clock,
                "ratio": over(own, by_name["flaredtdg"]), "speedup": first[name][clock] / _seconds(own),
                "bytes": own[0]["bytes"], "peak_bytes": memory.get("peak_bytes"), "rss_bytes": memory.get("rss_bytes"),
            })  # fmt: skip
    return rows


def _seconds(epochs: Sequence[Row]) -> float:
    return statistics.median(epoch["seconds"] for epoch in epochs)


def _possible(plan: Plan, model: str, names: Sequence[str], ranks: int) -> tuple[list[str], dict[str, str]]:
    """The systems that a config can be made of, and why not of the others."""
    here, failed = [], {}
    for name in names:
        try:
            config(plan.spread, name, model, ranks=ranks)
        except LabError as error:
            failed[name] = f"{type(error).__name__}: {error}"[:LAST_LINE]
        else:
            here.append(name)
    return here, failed


# decay


def decay_rows(plan: Plan, workload: Workload, model: str, cores: tuple[int, ...]) -> list[Row]:
    """Figure 8: test MSE, memory and seconds of an epoch by full snapshots and alpha, one rank; the ladder rule."""

    def settings(full: int, alpha: float, seed: int) -> RunConfig:
        return config(
            workload, "flaredtdg", model, ranks=1, seed=seed, full_snapshots=full, alpha=alpha,
            learning_rate=plan.map_limits.learning_rate,
        )  # fmt: skip

    rows = []
    for full in plan.full_snapshots:
        for alpha in plan.alphas:
            configs = [settings(full, alpha, seed) for seed in range(plan.seeds)] if built("flaredtdg") else []
            row = attempted("flaredtdg", lambda configs=configs: _cell(plan, configs, cores))
            rows.append({"graph": workload.name, "model": model, "full_snapshots": full, "alpha": alpha, **row})
    return rows


def _cell(plan: Plan, configs: Sequence[RunConfig], cores: tuple[int, ...]) -> Row:
    ((trainings, memory),) = run_ranks(cell, 1, list(configs), plan.map_limits, cores, timeout_s=TIMEOUT_S)
    found = by_seed(trainings)
    epoch_s = statistics.median(s / epochs for s, epochs in zip(found["seconds"], found["epochs"], strict=True))
    return {**found, "peak_bytes": memory["peak_bytes"], "epoch_s": epoch_s}
