"""Graphs brought whole and as differences: bytes, times, and what an epoch of ESDG gains; for benchmarks/esdg.py.

``epochs`` is imported by fresh processes (``dtdg_lab.testing.processes.run_ranks``), so nothing here imports torch at
once.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.testing.processes import run_ranks

EDGE_LIFE, WINDOW = 5, 5
# what each model's data are smoothed by, as options of the data set
SMOOTHING: Mapping[str, Mapping[str, int]] = {
    "cdgcn": {},
    "evolvegcn-o": {"edge_life": EDGE_LIFE},
    "tmgcn": {"smoothing_window": WINDOW},
}
HIDDEN, LAYERS = 6, 2  # section 6.1
WARM_UPS = 2
TIMEOUT_S = 3600.0
PAPER = (
    "paper (Figure 4, V100 GPUs): transfer time up to 4.1 times less, epochs up to 40 % shorter; cdgcn up to 2 times"
)


TRANSFER_HEAD = (
    f"{'graph':14} {'model':11} {'form':6} {'overlap':>8} {'whole':>10} {'differ.':>10} {'ratio':>6} {'bound':>6} "
    f"{'reached':>8} {'whole t':>9} {'differ. t':>9} {'ratio':>6}  pays below"
)


def transfer_text(row: Mapping[str, Any]) -> str:
    sizes = f"{format_bytes(row['whole_bytes']):>10} {format_bytes(row['difference_bytes']):>10}"
    times = f"{format_seconds(row['whole_s']):>9} {format_seconds(row['difference_s']):>9} {row['time_ratio']:6.2f}"
    pays = "-" if row["worth_below"] is None else f"{format_bytes(row['worth_below'])}/s"
    return (
        f"{row['graph']:14} {row['model']:11} {row['form']:6} {row['overlap']:8.1%} {sizes} {row['ratio']:6.2f} "
        f"{row['bound']:6.2f} {row['reached']:8.1%} {times}  {pays}"
    )


def epoch_rows(
    name: str,
    dataset: str,
    options: Mapping[str, Any],
    *,
    model: str,
    ranks: int,
    blocks: int,
    turns: int,
    device: str = "cpu",
) -> dict[str, Any]:
    """Figure 4's epochs: ESDG with every snapshot brought whole, and with differences, in turn on the same processes.

    Ratios are the whole one's seconds over the other's, turn by turn: above 1, differences are the faster.
    """
    configs = tuple(
        RunConfig(
            dataset=dataset, system="esdg", model=model, hidden=HIDDEN, layers=LAYERS, ranks=ranks, device=device,
            threads=1, blocks=blocks, delta_transfer=difference, **{**options, **SMOOTHING[model]},
        )
        for difference in (False, True)
    )  # fmt: skip
    by_rank = run_ranks(epochs, ranks, configs, turns, timeout_s=TIMEOUT_S)
    whole, less = (
        [
            {what: max(epoch[what] for epoch in turn) for what in turn[0]}
            for turn in zip(*(rank[number] for rank in by_rank), strict=True)
        ]
        for number in (0, 1)
    )
    ratios = {
        f"{what}_ratio": _spread(one[f"{what}_s"] / other[f"{what}_s"] for one, other in zip(whole, less, strict=True))
        for what in ("epoch", "transfer")
    }
    medians = {
        f"{way}_{what}": statistics.median(turn[what] for turn in turns_)
        for way, turns_ in (("whole", whole), ("difference", less))
        for what in ("epoch_s", "transfer_s", "bytes")
    }
    return {"graph": name, "model": model, "ranks": ranks, "blocks": blocks, **medians, **ratios}


EPOCH_HEAD = (
    f"{'graph':14} {'model':11} {'R':>2} {'nb':>3} {'whole':>10} {'differ.':>10} {'transfer':>9} {'differ. t':>9} "
    f"{'ratio':>6} {'epoch':>9} {'differ. t':>9}  ratio median, min, max"
)


def epoch_text(row: Mapping[str, Any]) -> str:
    sizes = f"{format_bytes(row['whole_bytes']):>10} {format_bytes(row['difference_bytes']):>10}"
    times = [
        f"{format_seconds(row[f'{way}_{what}_s']):>9}"
        for what in ("transfer", "epoch")
        for way in ("whole", "difference")
    ]
    least, middle, most = row["epoch_ratio"]
    return (
        f"{row['graph']:14} {row['model']:11} {row['ranks']:2} {row['blocks']:3} {sizes} {' '.join(times[:2])} "
        f"{row['transfer_ratio'][1]:6.2f} {' '.join(times[2:])}  {middle:.3f} {least:.3f} {most:.3f}"
    )


def epochs(rank: int, ranks: int, address: str, configs: Sequence[RunConfig], turns: int) -> list[list[dict[str, Any]]]:
    """Epochs of each run on one rank, one of each a turn: seconds, those of bringing graphs, and bytes brought."""
    import torch

    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.engine.strategy import read_rows
    from dtdg_lab.testing.processes import join_group
    from dtdg_lab.training.build import build
    from dtdg_lab.training.clock import PhaseClock, seconds_by_phase

    device = "cpu" if configs[0].device == "cpu" else f"cuda:{rank}"
    group = join_group(rank, ranks, address, device=device)
    graph = load_for(configs[0])
    runs = [build(config, graph, group, device=device) for config in configs]
    found: list[list[dict[str, Any]]] = [[] for _ in runs]
    for turn in range(WARM_UPS + turns):
        for built, own in zip(runs, found, strict=True):
            group.all_reduce(torch.zeros(1, device=device))  # so that all begin at once
            clock, rows = PhaseClock(group.device_clock), []
            for work in built.strategy.epoch(turn):
                built.gradients.zero()
                computed = built.strategy.compute(work, clock)
                built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=computed.groups)
                built.optimizer.step()
                rows.append(built.strategy.rows())
            clock("update")
            spent = seconds_by_phase(clock.intervals())
            brought = sum(row[1] for of_step in rows for row in read_rows(of_step).get("transfers", []))
            if turn >= WARM_UPS:
                own.append({"epoch_s": sum(spent.values()), "transfer_s": spent["transfer"], "bytes": brought})
    group.all_reduce(torch.zeros(1, device=device))
    group.close()
    return found


def _spread(ratios: Iterable[float]) -> tuple[float, float, float]:
    ordered = sorted(ratios)
    return ordered[0], statistics.median(ordered), ordered[-1]
