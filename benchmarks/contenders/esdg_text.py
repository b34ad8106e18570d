"""Rows of benchmarks/esdg.py as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtdg_lab.core.units import format_bytes, format_seconds

Row = Mapping[str, Any]

SHARE_HEAD = f"{'graph':14} {'model':11} {'form':6} {'R':>3}  share that benefits, and bytes ratio, by nb"
BLOCK_HEAD = (
    f"{'graph':14} {'model':11} {'graphs':9} {'nb':>3} {'kept':>10} {'peak':>10} {'of nb=1':>8}  {'step':>9}  "
    f"{'time of nb=1: min, median, max':30} gradients apart"
)
OVERLAP_HEAD = (
    f"{'graph':14} {'model':11} {'R':>2} {'network':10} {'off':>9} {'on':>9} {'auto':>9} {'by':4}  "
    f"{'off over on':22} {'off over auto':22} {'hidden off':>10} {'on':>6} {'auto':>6}  losses apart"
)
VOLUME_HEAD = (
    f"{'graph':14} {'model':11} {'R':>3} {'snapshot':>14} {'as paper':>14} {'hypergraph':>14} {'ratio':>7} "
    f"{'paper':>6}  {'on links':8}  time ratio min, median, max (paper)"
)
SCALING_HEAD = (
    f"{'model':11} {'R':>4} {'vertices':>11} {'source':10} {'compute':>9} {'communicate':>12} {'transfer':>9} "
    f"{'step':>9} {'speed-up':>9} {'paper':>6}"
)
CURVE_HEAD = (
    f"{'graph':14} {'model':11} {'system':18} {'R':>2} {'first':>10} {'last':>10} {'apart':>9} {'test accuracy':>14}"
)


def _three(values: Sequence[float], digits: int = 2) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)


def _number(value: float | None, form: str, width: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}{form}}"


def share_text(shares: Sequence[Row]) -> str:
    """One model, format and number of ranks over the numbers of blocks."""
    first = shares[0]
    described = ", ".join(f"{row['blocks']}: {row['share']:.0%} {row['ratio']:.2f}" for row in shares)
    return f"{first['graph']:14} {first['model']:11} {first['form']:6} {first['ranks']:3}  {described}"


def block_text(row: Row) -> str:
    return (
        f"{row['graph']:14} {row['model']:11} {row['graphs']:9} {row['blocks']:3} "
        f"{format_bytes(row['kept_bytes']):>10} {format_bytes(row['peak_bytes']):>10} "
        f"{row['peak_share']:8.1%}  {format_seconds(row['step_s'][1]):>9}  {_three(row['time_ratio']):30} "
        f"{row['gradient_difference']:.1e}"
    )


def overlap_text(row: Row) -> str:
    hidden = [_number(row[f"hidden_{way}"], ".0%", width) for way, width in (("off", 10), ("on", 6), ("auto", 6))]
    seconds = " ".join(f"{format_seconds(row[f'{way}_s'][1]):>9}" for way in ("off", "on", "auto"))
    return (
        f"{row['graph']:14} {row['model']:11} {row['ranks']:2} {row['links']:10} {seconds} {row['clock']:4}  "
        f"{_three(row['ratio']):22} {_three(row['auto_ratio']):22} {' '.join(hidden)}  "
        f"{row['losses_apart']:.1e}"
    )


def volume_text(row: Row) -> str:
    counted = {None: "not run", True: "equal", False: "DIFFERS"}[row["links_equal"]]
    times = "-" if row["time_ratio"] is None else f"{_three(row['time_ratio'])} {row['clock']}"
    paper = "" if row["paper_time_ratio"] is None else f" ({row['paper_time_ratio']:.1f})"
    return (
        f"{row['graph']:14} {row['model']:11} {row['ranks']:3} {row['snapshot']:14,} {row['snapshot_as_paper']:14,} "
        f"{row['hypergraph']:14,} {_number(row['ratio'], '.3f', 7)} {_number(row['paper_ratio'], '.2f', 6)}  "
        f"{counted:8}  {times}{paper}"
    )


def scaling_text(row: Row) -> str:
    exchanged = "-" if row["communicate_s"] is None else format_seconds(row["communicate_s"])
    return (
        f"{row['model']:11} {row['ranks']:4} {row['nodes']:11,} {row['source']:10} "
        f"{format_seconds(row['compute_s']):>9} {exchanged:>12} {format_seconds(row['transfer_s']):>9} "
        f"{format_seconds(row['step_s']):>9} {_number(row['speedup'], '.2f', 9)} {_number(row['paper'], '.0f', 6)}"
    )


def curve_text(row: Row) -> str:
    return (
        f"{row['graph']:14} {row['model']:11} {row['system']:18} {row['ranks']:2} {row['losses'][0]:10.6f} "
        f"{row['losses'][-1]:10.6f} {row['apart']:9.1e} {_number(row['accuracy'], '.3f', 14)}"
    )
