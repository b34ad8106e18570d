"""Tables that need group times and no training: solving, and simulated clusters; for benchmarks/dygnex.py."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from contenders import dygnex_paper as paper
from dtdg_lab.systems.snapshot_groups.forecast import simulate_schedules
from dtdg_lab.systems.snapshot_groups.growing_times import group_times, snapshot_times
from dtdg_lab.systems.snapshot_groups.schedulers.base import solve

RANKS = 4  # the paper's GPUs
WINDOW = 4
REPEATS, LONG_S = 3, 2.0  # what took longer is not done again
CURVES = ("linear", "exponential")
SIMULATED = ("psg", "longest_first", "fold", "dygnex_greedy", "best_of")


def grown_times(groups: int, curve: str) -> Any:
    """(K,) seconds of groups of a graph that grows."""
    return group_times(snapshot_times(groups + WINDOW - 1, curve), window=WINDOW)


def _solved(scheduler: str, times: Any, **live_settings: Any) -> dict[str, Any]:
    """Least, median and most seconds of solving; gap and notes."""
    seconds: list[float] = []
    while len(seconds) < REPEATS and (not seconds or seconds[-1] < LONG_S):
        made = solve(scheduler, times, RANKS, **live_settings)
        seconds.append(made.seconds)
    spread = (min(seconds), statistics.median(seconds), max(seconds))
    return {"scheduler": scheduler, "solve_s": spread, "gap": made.gap, "notes": made.notes, "targets": made.targets}


def greedy_rows(groups: Sequence[int], curve: str) -> Iterator[dict[str, Any]]:
    """Table 5, with our heuristics beside."""
    for count in groups:
        for scheduler in ("dygnex_greedy", "fold", "best_of"):
            reported = paper.GREEDY_S.get(count) if scheduler == "dygnex_greedy" else None
            solved = _solved(scheduler, grown_times(count, curve))
            yield {"curve": curve, "groups": count, **solved, "paper_s": reported}


def ilp_rows(
    groups: Sequence[int], gaps: Sequence[float], curve: str, *, limit_s: float = paper.ILP_LIMIT_S
) -> Iterator[dict[str, Any]]:
    """Table 6: ``how`` the gap was reached, or that the limit came first."""
    for wanted in gaps:
        for count in groups:
            solved = _solved("dygnex_ilp", grown_times(count, curve), gap=wanted, time_limit_s=limit_s)
            how = "bound" if "no search" in solved["notes"] else "search"
            if solved["gap"] > wanted:
                how = "limit"
            column = dict(zip(paper.ILP_GROUPS, paper.ILP_S.get(wanted, ()), strict=False))
            described = {"paper_s": column.get(count), "paper_has_it": count in column}
            yield {"curve": curve, "groups": count, "wanted_gap": wanted, **solved, "how": how, **described}


def simulated_rows(*, snapshots: int, ranks: Sequence[int]) -> tuple[str, list[dict[str, Any]]]:
    """Figure 5: what was simulated, in words, and a row for each curve, number of ranks and scheduler."""
    study = simulate_schedules(curves=CURVES, snapshots=snapshots, ranks=ranks, schedulers=SIMULATED)
    reported = {("dygnex_greedy", count): share for count, share in paper.THROUGHPUT.items()}
    rows = [{**row, "paper": reported.get((row["scheduler"], row["ranks"]))} for row in study.rows]
    return study.described, rows


ALL = 1_000_000
TRIED = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, ALL, 0)  # 0: as many as the scheduler takes by itself


def target_rows(*, snapshots: int, ranks: Sequence[int], tried: Sequence[int] = TRIED) -> list[dict[str, Any]]:
    """Throughput of DyGNeX-G by the number of targets that it tries; no clock is in it."""
    rows = []
    for targets in tried:
        study = simulate_schedules(
            curves=CURVES, snapshots=snapshots, ranks=ranks, schedulers=("dygnex_greedy",), targets=targets
        )
        rows += [{**row, "asked": {ALL: "all", 0: "default"}.get(targets, targets)} for row in study.rows]
    return rows


def target_text(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A Markdown table: a line for each number of targets, a column for each curve and number of ranks."""
    columns = list(dict.fromkeys((row["curve"], row["ranks"]) for row in rows))
    yield "| targets | " + " | ".join(f"{curve}, {ranks:,} ranks" for curve, ranks in columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for asked in dict.fromkeys(row["asked"] for row in rows):
        of = {(row["curve"], row["ranks"]): row for row in rows if row["asked"] == asked}
        cells = [f"{of[each]['throughput']:.1%}" for each in columns]
        if asked == "default":
            cells = [f"{cell} ({of[each]['targets']:,})" for cell, each in zip(cells, columns, strict=True)]
        yield f"| {asked} | " + " | ".join(cells) + " |"


GREEDY_HEAD = f"{'curve':11} {'groups':>6} {'scheduler':13} {'solve s':>9} {'min':>9} {'max':>9}  {'gap':>7}  paper s"
ILP_HEAD = (
    f"{'curve':11} {'groups':>6} {'gap':>4} {'solve s':>9} {'min':>9} {'max':>9} "
    f" {'proven':>7} {'by':6}  paper s (Gurobi)"
)


def _times(row: dict[str, Any]) -> str:
    least, middle, most = row["solve_s"]
    return f"{middle:9.4f} {least:9.4f} {most:9.4f}"


def greedy_text(row: dict[str, Any]) -> str:
    reported = "" if row["paper_s"] is None else f"{row['paper_s']:7.4f}" if row["paper_s"] > 0.001 else "< 0.001"
    tried = "" if row["targets"] in (None, row["groups"]) else f"  ({row['targets']:,} targets)"
    return (
        f"{row['curve']:11} {row['groups']:6,} {row['scheduler']:13} {_times(row)}  {row['gap']:7.3%}  "
        f"{reported}{tried}"
    )


def ilp_text(row: dict[str, Any]) -> str:
    reported = "not told"
    if row["paper_has_it"]:
        reported = f"> {paper.ILP_LIMIT_S:.0f}" if row["paper_s"] is None else f"{row['paper_s']:.2f}"
    return (
        f"{row['curve']:11} {row['groups']:6,} {row['wanted_gap']:4.0%} {_times(row)}  "
        f"{row['gap']:7.2%} {row['how']:6}  {reported}"
    )


def simulated_text(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Throughput and imbalance, a line for each curve and number of ranks."""
    names = list(dict.fromkeys(row["scheduler"] for row in rows))
    for what, name in (
        ("throughput of a rank over one rank alone", "throughput"),
        ("imbalance (max/min)", "imbalance"),
    ):
        ends = f"{'bound':>14} {'paper (G)':>10}" if name == "throughput" else ""
        yield what
        yield f"{'curve':11} {'ranks':>6} " + " ".join(f"{each:>14}" for each in names) + ends
        for curve, ranks in dict.fromkeys((row["curve"], row["ranks"]) for row in rows):
            of = {row["scheduler"]: row for row in rows if (row["curve"], row["ranks"]) == (curve, ranks)}
            cells = [_cell(of[each][name], name) for each in names]
            if name == "throughput":
                reported = paper.THROUGHPUT.get(ranks)
                cells += [
                    f"{of[names[0]]['bound_throughput']:>13.1%}",
                    "" if reported is None else f"{reported:>10.0%}",
                ]
            yield f"{curve:11} {ranks:6,} " + " ".join(cells)


def _cell(value: float | None, name: str) -> str:
    if value is None:
        return f"{'infinite':>14}"
    return f"{value:>14.1%}" if name == "throughput" else f"{value:>14.3f}"
