"""Rows of benchmarks/greendygnn.py as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd

from contenders import gd_paper as paper
from contenders.gd_rows import spread
from dtdg_lab.core.units import format_bytes, format_seconds

Row = Mapping[str, Any]
_DECIDED = f"{'W':>5} {'biased':>6} {'rebuilds':>8} {'late':>4}"
RUN_HEAD = (
    f"{'graph':14} {'model':10} {'condition':15} {'method':18} {'an epoch min, median, max':30} {'of first':>8} "
    f"{'joules min, median, max':26} {'of first':>8} {'stall':>6} {'GPU':>7} {'processor':>9} {'hits':>5} {'RPCs':>7} "
    f"{'bytes':>10} {_DECIDED}  energy by (clairvoyant*: the best in the cost model, not of runs)"
)
TABLE_HEAD = f"{RUN_HEAD}; joules above clean"
LIVE_HEAD = f"{RUN_HEAD}; foretold"
SPEED_HEAD = f"{'at once':>8} {'an episode':>12}"
POLICY_HEAD = "policy, by data set, over all cases"
CAMPAIGN_HEAD = (
    f"{'data set':14} {'one link':12} {'RapidGNN':>18} {'W = 16':>18} {'Double DQN':>18} {'planner':>9} "
    f"{'optimum':>9}  joules of an epoch of four hosts, here / campaign (its default DGL)"
)
CALL_HEAD = f"{'F':>4} {'rows':>7} {'bytes':>10} {'a call min, median, max':30} {'initiation':>10}"
CALIBRATION_HEAD = (
    f"{'where':10} {'data set':14} {'cells':>5} {'fitted':>8} {'cell out':>9} {'condition out':>13}  worst cell"
)
OVERHEAD_HEAD = f"{'what':60} min, median, max"


def run_text(row: Row) -> str:
    """A row of trained runs."""
    name = f"{row['graph']:14} {row['model']:10} {row['condition']:15} {_method(row):18}"
    if "failed" in row:
        return f"{name} {row['failed']}"
    stalls = [stall / joules for stall, joules in zip(row["stall_j"], row["joules"], strict=True)
              if stall is not None and joules]  # fmt: skip
    rpcs = [miss + bulk for miss, bulk in zip(row["miss_rpcs"], row["bulk_rpcs"], strict=True)]
    sent = [miss + bulk for miss, bulk in zip(row["miss_bytes"], row["bulk_bytes"], strict=True)]
    by = sorted({described for which in (row["sources"], row["readers"]) for each in which for described in each})
    return (
        f"{name} {_times(spread(row['epoch_s'])):30} {_middle(row['epoch_s_over_first'], '.2f'):>8} "
        f"{_joules(spread(row['joules'])):26} {_middle(row['joules_over_first'], '.2f'):>8} "
        f"{_share(stalls):>6} {_whole(row['gpu_j']):>7} {_whole(row['processor_j']):>9} {_share(row['hit_rate']):>5} "
        f"{median(rpcs):7.0f} {format_bytes(median(sent)):>10} {_whole(row['mean_window']):>5} "
        f"{_share(row['biased']):>6} {median(row['rebuilds']):8.0f} {median(row['late']):4.0f}  {', '.join(by) or '-'}"
    )


def _method(row: Row) -> str:
    return str(row["method"]) + "*" * (row["method"] == "clairvoyant")


def table_text(row: Row) -> str:
    """The same, with what congestion adds."""
    more = row.get("joules_more")
    return run_text(row) + ("" if more is None else f"; {more:+.0%}")


def live_text(row: Row) -> str:
    """The same, with what was foretold."""
    if "failed" in row or row["foretold_j"] is None:
        return run_text(row)
    return f"{run_text(row)}; {row['foretold_j']:.0f} J and {format_seconds(row['foretold_s'])} an epoch"


def paper_texts() -> list[str]:
    """Table I of the paper."""
    return [
        f"{f'{graph} (paper)':14}    {name:18} {seconds:5.2f} s an epoch, {whole:5.1f} kJ (GPU {gpu}, CPU {cpu})"
        for graph, methods in paper.TABLE_1.items() for name, (gpu, cpu, whole, seconds) in methods.items()
    ]  # fmt: skip


def ablation_paper_texts() -> list[str]:
    """Table II of the paper."""
    return [f"paper: {name:18} {products} kJ Products, {reddit} kJ Reddit"
            for name, (products, reddit) in paper.ABLATION.items()]  # fmt: skip


def speed_text(row: Row) -> str:
    return f"{row['at_once']:8} {row['episode_ms']:9.2f} ms"


def campaign_text(row: Row) -> str:
    """A row of steady throttling, beside the campaign's."""
    described = paper.CAMPAIGN.get((row["costs"], row["condition"]))
    default, *others = described or (None, None, None, None)
    known = [row["epoch_hot"], row["fixed-16"], row.get("double_dqn")]
    cells = [f"{'-' if own is None else f'{own:,.0f}'} / {'-' if other is None else f'{other:,}'}"
             for own, other in zip(known, others, strict=True)]  # fmt: skip
    return (
        f"{row['costs']:14} {row['condition']:12} {' '.join(f'{cell:>18}' for cell in cells)} {row['planner']:9,.0f} "
        f"{row['clairvoyant']:9,.0f}" + ("" if default is None else f"  ({default:,})")
    )


def call_text(row: Row) -> str:
    return (
        f"{row['features']:4} {row['rows']:7,} {format_bytes(row['bytes']):>10} {_times(row['rtt_s']):30} "
        f"{row['initiation']:10.1%}"
    )


def calls_words(rows: Sequence[Row]) -> list[str]:
    """The line through a number of features' calls."""
    described = []
    for features in dict.fromkeys(row["features"] for row in rows):
        row = next(row for row in rows if row["features"] == features)
        crossover = row["crossover_rows"]
        at = "never" if crossover is None else f"from {crossover:,.0f} rows on"
        each = f"{format_seconds(row['initiation_s'])} + {row['s_per_byte'] * 1e9:.2f} ns a byte"
        described.append(f"  F={features}: {each}; payload costs more {at}")
    return described


def calibration_text(row: Row) -> str:
    if "failed" in row:
        return f"{row['where']:10} {row['failed']}"
    return (
        f"{row['where']:10} {row['dataset']:14} {row['cells']:5} {row['fitted']:6.1f} % {row['cell_out']:7.1f} % "
        f"{row['condition_out']:11.1f} %  {row['worst']}\n{'':10} {_guess_words(row)}"
        + (f"; {row['unpredicted']} cells had too few others left" if row["unpredicted"] else "")
    )


def _guess_words(row: Row) -> str:
    """The plain guess beside the model over the same cells, and the worst regret of a chosen window."""
    if not row["guessed"]:
        return "no condition has two windows: no guess at W = 16 to hold against it, and no regret"
    regret = " and ".join(
        f"{'-' if row[name] is None else format(row[name], '.1f') + ' %'} {words}"
        for name, words in (
            ("regret_cell_out", "(cell out)"),
            ("regret_condition_out", "(condition out)"),
            ("regret_middle", "(W = 16)"),
        )
    )
    return (
        f"same condition at W = 16: {row['guess']:.1f} % over {row['guessed']} cells, of which the model errs "
        f"{row['guessed_cell_out']:.1f} % (cell out) and {row['guessed_condition_out']:.1f} % (condition out); "
        f"worst regret of the chosen window over {row['regret_conditions']} conditions: {regret}"
    )


def policies_text(rows: Sequence[Row]) -> str:
    """Policies by their mean distance from the clairvoyant, and from the best fixed window of each case."""
    joules = pd.DataFrame(rows).pivot_table(index="policy", columns="case", values="joules")
    fixed = joules[joules.index.str.startswith("fixed")].min()
    optimum, best = (100 * (joules / of - 1) for of in (joules.loc["clairvoyant"], fixed))
    means = {"beyond optimum (mean)": optimum.mean(axis=1), "(worst)": optimum.max(axis=1)}
    means |= {"against best fixed (mean)": best.mean(axis=1), "(worst of these)": best.max(axis=1)}
    table = pd.DataFrame({**means, "cases lost": (best > 1).sum(axis=1)}).sort_values("beyond optimum (mean)")
    return table.to_string(float_format="{:+.1f} %".format)


def overhead_text(row: Row) -> str:
    described = row["failed"] if "failed" in row else _times(row["seconds"])
    return f"{row['what']:60} {described}"


def pair_words(pairs: Sequence[Row], what: str) -> str:
    """How far the order of the simulator is that of the runs."""
    ordered = [pair for pair in pairs if pair["agrees"] is not None]
    ties = f"; of {len(pairs) - len(ordered)} more it foretells the same" if len(ordered) < len(pairs) else ""
    pairs = ordered
    if not pairs:
        return f"  {what}: no two methods of which the simulator foretells different things{ties}"
    apart = [pair for pair in pairs if pair["apart"]]
    wrong = [f"{pair['condition']}: {pair['better']} was better of {' and '.join(pair['methods'])}"
             for pair in apart if not pair["agrees"]]  # fmt: skip
    agree = sum(pair["agrees"] for pair in pairs)
    but = f"; not: {'; '.join(wrong[:6])}{', ...' if len(wrong) > 6 else ''}" if wrong else ""
    return (
        f"  {what}: the simulator's order holds in {agree} of {len(pairs)} pairs of methods, and in "
        f"{len(apart) - len(wrong)} of the {len(apart)} whose seeds do not overlap{but}{ties}"
    )


def _times(values: Sequence[float] | None) -> str:
    return "-" if values is None else ", ".join(format_seconds(value) for value in values)


def _joules(values: Sequence[float] | None) -> str:
    return "-" if values is None else ", ".join(f"{value:,.1f}" for value in values)


def _middle(values: Sequence[float] | None, form: str) -> str:
    return "-" if values is None else f"{values[1]:{form}}"


def _share(values: Sequence[float | None]) -> str:
    known = spread(values)
    return "-" if known is None else f"{known[1]:.0%}"


def _whole(values: Sequence[float | None]) -> str:
    known = spread(values)
    return "-" if known is None else f"{known[1]:.0f}"
