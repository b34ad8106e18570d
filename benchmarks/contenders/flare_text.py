"""Rows of benchmarks/flaredtdg.py as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from contenders import flare_paper as paper
from contenders.flare_plan import RIVALS
from dtdg_lab.core.units import format_bytes, format_seconds

Row = Mapping[str, Any]

TRAINING_HEAD = (
    f"{'graph':12} {'model':11} {'system':14} {'MSE mean (min to max)':30} {'persist.':>9} {'mean':>9} "
    f"{'converged after':>26} {'updates':>8}  ended"
)
MEMORY_HEAD = (
    f"{'graph':12} {'model':11} {'R':>2} {'system':14} {'any step':>10} {'of full':>8} {'whole w.':>10} {'of full':>8} "
    f"{'rows kept':>9}  within 5 points {'resident':>10}"
)
SCALE_HEAD = (
    f"{'graph':12} {'vertices':>9} {'snapshots':>9} {'features':>10} "
    + " ".join(f"{name:>10}" for name in RIVALS)
    + f" {'flaredtdg':>10}"
)
SHRINK_HEAD = (
    f"{'graph':12} {'model':11} {'rule':7} {'step':>9} {'prefixes':>9} {'of step':>8} {'naive':>9} {'of step':>8}  "
    f"{'epoch of naive epoch':22} {'arrays':>10} {'naive':>10} {'memory':>7}  losses apart"
)
OVERLAP_HEAD = (
    f"{'graph':12} {'model':11} {'R':>2} {'network':9} {'exposed off':>12} {'on':>9} {'less':>7} {'hidden off':>10} "
    f"{'on':>6}  {'epoch off / on':18} {'predicted':>9}  losses apart"
)
BREAKDOWN_HEAD = (
    f"{'graph':12} {'model':11} {'R':>2} {'epochs':>6} {'total':>9} "
    + " ".join(f"{name:>11}" for name in paper.SHARES)
    + f" {'update':>11}"
)
RANK_HEAD = (
    f"{'graph':12} {'model':11} {'R':>2} {'system':14} {'steps':>5} {'epoch min, median, max':30} {'by':4} "
    f"{'of flaredtdg':18} {'speed-up':>8} {'a rank':>10} {'resident':>10} {'rows sent':>10}"
)
STEP_HEAD = (
    f"{'graph':6} {'model':10} {'hybrid':>9} {'full-hist.':>10} {'port':>9} {'batch':>9}  {'of full-history':20} "
    f"{'port over hybrid':20} {'of full batch':20} missed"
)
PEER_HEAD = f"{'graph':6} {'steps':>5} {'hybrid':>9} {'full batch':>10}  {'share min, median, max':24} target  memory"


def failed(row: Row, *names: str) -> str:
    """A row of which there is nothing but why."""
    return " ".join(f"{row[name]!s:{width}}" for name, width in zip(names, (12, 11, 14), strict=False)) + (
        f" {row['failed']}"
    )


def _number(value: float | None, form: str, width: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}{form}}"


def _three(values: Sequence[float], digits: int = 2) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.5f} ({min(values):.5f} to {max(values):.5f})"


def training_text(row: Row) -> str:
    if "failed" in row:
        return failed(row, "graph", "model", "system")
    seconds = [format_seconds(each) for each in (fmean(row["converged_s"]), min(row["converged_s"]),
                                                 max(row["converged_s"]))]  # fmt: skip
    stays = sum(row["stays"])
    ended = "converged" if stays == len(row["stays"]) else f"{stays} of {len(row['stays'])} converged"
    return (
        f"{row['graph']:12} {row['model']:11} {row['system']:14} {_spread(row['mse']):30} {row['persistence']:9.5f} "
        f"{row['mean']:9.5f} {f'{seconds[0]} ({seconds[1]} to {seconds[2]})':>26} "
        f"{fmean(row['converged_updates']):8.0f}  {ended}"
    )


def memory_text(row: Row) -> str:
    if "failed" in row:
        return failed(row, "graph", "model", "system")
    within = {None: "-", True: "yes", False: "NO"}[row["within"]]
    return (
        f"{row['graph']:12} {row['model']:11} {row['ranks']:2} {row['system']:14} "
        f"{format_bytes(row['peak_bytes']):>10} {_number(row['any_share'], '.1%', 8)} "
        f"{format_bytes(row['whole_bytes']):>10} {_number(row['share'], '.1%', 8)} {_number(row['kept'], '.1%', 9)}  "
        f"{within:15} {format_bytes(row['rss_bytes']):>10}"
    )


def scale_text(rows: Sequence[Row]) -> str:
    """Table 1 of one graph: all systems' peaks summed over ranks."""
    by_name = {row["system"]: row for row in rows}
    known = next((row for row in rows if "failed" not in row), None)
    if known is None:
        return f"{rows[0]['graph']:12} no system gave anything"
    sums = [by_name[name] for name in (*RIVALS, "flaredtdg")]
    described = " ".join(
        f"{row['failed'][:10] if 'failed' in row else format_bytes(row['sum_bytes']):>10}" for row in sums
    )
    return (
        f"{known['graph']:12} {known['nodes']:9,} {known['snapshots']:9,} {format_bytes(known['feature_bytes']):>10} "
        f"{described}"
    )


def scale_paper_texts() -> list[str]:
    """The paper's Table 1; it tells nothing of FlareDTDG there."""
    lines = []
    for name, nodes, snapshots, features, peaks in paper.GRAPHS:
        described = " ".join(f"{f'{peaks[rival]} GB' if rival in peaks else 'too large':>10}" for rival in RIVALS)
        lines.append(f"{name:12} {f'{nodes} M':>9} {snapshots:9} {f'{features} GB':>10} {described} {'-':>10}  (paper)")
    return lines


def shrinking_text(row: Row) -> str:
    if "failed" in row:
        return failed(row, "graph", "model", "rule")
    shrink, arrays = row["shrink_s"], row["array_bytes"]
    return (
        f"{row['graph']:12} {row['model']:11} {row['rule']:7} {format_seconds(row['step_s']['prefixes']):>9} "
        f"{format_seconds(shrink['prefixes']):>9} {row['share']:8.1%} {format_seconds(shrink['naive']):>9} "
        f"{row['naive_share']:8.1%}  {_three(row['ratio'], 3):22} {format_bytes(arrays['prefixes']):>10} "
        f"{format_bytes(arrays['naive']):>10} {-row['memory_less']:7.1%}  {row['losses_apart']:.1e}"
    )


def overlap_text(row: Row) -> str:
    hidden = [_number(row[f"hidden_{way}"], ".0%", width) for way, width in (("off", 10), ("on", 6))]
    return (
        f"{row['graph']:12} {row['model']:11} {row['ranks']:2} {row['network']:9} {format_seconds(row['off_s']):>12} "
        f"{format_seconds(row['on_s']):>9} {_number(row['exposed_less'], '.1%', 7)} {' '.join(hidden)}  "
        f"{_three(row['ratio']):18} {_number(row['prediction_error'], '.0%', 9)}  {row['losses_apart']:.1e}"
    )


def breakdown_text(row: Row) -> str:
    if "failed" in row:
        return failed(row, "graph", "model")
    shares = " ".join(f"{row['shares'][name]:11.2%}" for name in (*paper.SHARES, "update"))
    return (
        f"{row['graph']:12} {row['model']:11} {row['ranks']:2} {row['epochs']:6} {format_seconds(row['total_s']):>9} "
        f"{shares}"
    )


def breakdown_paper_text() -> str:
    """The paper's line of the table: its smallest and largest share of every part."""
    ranges = " ".join(f"{f'{100 * low:.1f}-{100 * high:.1f}%':>11}" for low, high in paper.SHARES.values())
    return f"{'paper':12} {'mpnn-lstm':11} {'4':>2} {'-':>6} {'-':>9} {ranges}"


def rank_text(row: Row) -> str:
    if "failed" in row:
        return f"{row['graph']:12} {row['model']:11} {row['ranks']:2} {row['system']:14} {row['failed']}"
    seconds = ", ".join(format_seconds(each) for each in row["epoch_s"])
    peak, resident = ("-" if row[what] is None else format_bytes(row[what]) for what in ("peak_bytes", "rss_bytes"))
    return (
        f"{row['graph']:12} {row['model']:11} {row['ranks']:2} {row['system']:14} {row['steps']:5} {seconds:30} "
        f"{row['clock']:4} {_three(row['ratio']):18} {row['speedup']:8.2f} {peak:>10} {resident:>10} "
        f"{format_bytes(row['bytes']):>10}"
    )


def map_texts(rows: Sequence[Row]) -> list[str]:
    """Figure 8 of one graph: three maps of alpha, downwards, and K."""
    if all("failed" in row for row in rows):
        return [f"{rows[0]['graph']} {rows[0]['model']}: {rows[0]['failed']}"]
    cells = {(row["full_snapshots"], row["alpha"]): row for row in rows}
    fulls, alphas = (sorted({row[what] for row in rows}) for what in ("full_snapshots", "alpha"))
    alive = [row for row in rows if "failed" not in row]
    best, first = min(alive, key=lambda row: fmean(row["mse"])), alive[0]
    lines = [
        f"{first['graph']} {first['model']}: best at K={best['full_snapshots']}, alpha={best['alpha']:g}; "
        f"persistence {first['persistence']:.5f}, mean {first['mean']:.5f}"
    ]
    for what, report in (
        ("MSE", lambda row: f"{fmean(row['mse']):.5f} +-{(max(row['mse']) - min(row['mse'])) / 2:.5f}"),
        ("memory", lambda row: format_bytes(row["peak_bytes"])),
        ("epoch", lambda row: format_seconds(row["epoch_s"])),
    ):
        lines.append(f"{what:>8} " + " ".join(f"{f'K={full}':>18}" for full in fulls))
        for alpha in reversed(alphas):
            described = [cells[full, alpha] for full in fulls]
            lines.append(
                f"{alpha:8g} " + " ".join(f"{'-' if 'failed' in row else report(row):>18}" for row in described)
            )
    return lines


def peer_text(row: Row) -> str:
    if "failed" in row:
        return f"{row['graph']:6} {row['steps']:5} {row['failed']}"
    memory = f"{format_bytes(row['lab_bytes'])} of {format_bytes(row['peer_bytes'])}"
    reached = "reached" if row["within"] else "NOT reached"
    return (
        f"{row['graph']:6} {row['steps']:5} {format_seconds(row['lab_s']):>9} {format_seconds(row['peer_s']):>10}  "
        f"{_three(row['share'], 3):24} {row['target']} {reached}  {memory}"
    )


def step_text(row: Row) -> str:
    begin = f"{row['graph']:6} {row['model']:10} "
    if "failed" in row:
        return begin + row["failed"]
    times = (f"{format_seconds(row[f'{name}_s'][1]):>9}" for name in ("hybrid", "full_history", "port", "batch"))
    ratios = (f"{_three(row[name], 2):20}" for name in ("of_full_history", "port_over_hybrid", "of_full_batch"))
    return begin + " ".join(times) + "  " + " ".join(ratios) + " " + ("; ".join(row["missed"]) or "none")
