"""Two benches on static pages: schedule groups by hand, and choose cache windows; their data and their pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

RANKS, PER_RANK = 2, 2
TIMES_S: Mapping[str, tuple[int, ...]] = {
    "of a growing graph": (1, 2, 5, 7, 9, 14, 15, 17),
    "one long group": (3, 4, 2, 5, 24, 4, 3, 6),
    "nearly equal": (10, 9, 11, 10, 8, 12, 9, 10),
    "in bursts": (2, 3, 16, 18, 2, 4, 17, 3),
}
SEARCHED = ("dygnex_greedy", "best_of")  # rules that the page does not compute
EPOCHS, EPOCH_STEPS, SEED, PARTS, ROWS = 12, 25, 8, 4, 100


def schedule_data() -> dict[str, Any]:
    """Times of groups, with the schedules of the rules that search."""
    from dtdg_lab.systems.snapshot_groups.schedulers.base import solve

    def rows(rule: str, times_s: tuple[int, ...]) -> list[Any]:
        plan = solve(rule, times_s, RANKS, per_rank=PER_RANK)
        return [[list(part) for part in row] for row in plan.assignment]

    sets = [
        {"name": name, "times": list(times_s), "rules": {rule: rows(rule, times_s) for rule in SEARCHED}}
        for name, times_s in TIMES_S.items()
    ]
    return {"ranks": RANKS, "most": PER_RANK, "sets": sets}


def episodes() -> dict[str, Any]:
    """Simulated runs under congestion, by name."""
    from dtdg_lab.systems.feature_cache.policies.calibration import SHIPPED
    from dtdg_lab.systems.feature_cache.policies.simulator import CacheCase, draw_episode

    cases = {
        "one link slow, 50 Mbit/s": CacheCase("one_slow", "heavy", bytes_per_s=50e6 / 8),
        "one link late, 20 ms": CacheCase("one_slow", "late", delay_s=0.02),
        "one owner after another, 20 ms": CacheCase("rotating", "late", delay_s=0.02),
    }
    costs = SHIPPED.costs("reddit")
    return {
        name: draw_episode([costs], [case], number=1, seed=SEED, epochs=EPOCHS, epoch_steps=EPOCH_STEPS)
        for name, case in cases.items()
    }


@cache
def cache_data() -> list[dict[str, Any]]:
    """What the runs meet, what a step costs under each choice, and the windows of other policies."""
    import numpy as np

    from dtdg_lab.lessons.widgets import CacheBench
    from dtdg_lab.systems.feature_cache.actions import WINDOWS
    from dtdg_lab.systems.feature_cache.policies.costs import cache_choices
    from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner

    def rounded(values: Any) -> Any:
        return [[float(f"{one:.7g}") for one in row] for row in values]

    runs = []
    for name, episode in episodes().items():
        choices, trace = cache_choices(episode.trace.parts, episode.epoch_steps), episode.trace
        bench = CacheBench(episode, {"planner": CachePlanner(choices.actions, episode.costs)})
        late_s = trace.delay_s + ROWS * episode.costs.row_bytes / trace.bytes_per_s
        rivals = {each: [[int(first), int(choice)] for first, choice in of] for each, of in bench.played.items()}
        runs.append({
            "name": name, "parts": trace.parts, "sizes": list(WINDOWS), "epoch_steps": episode.epoch_steps,
            "windows": choices.windows.tolist(), "which": trace.which.tolist(),
            "noise": [float(f"{one:.7g}") for one in episode.noise], "step_j": rounded(episode.tables.step_j),
            "rebuild_j": rounded(episode.tables.rebuild_s * episode.costs.stall_w),
            "hits": [float(one) for one in np.round(episode.tables.hits.mean(axis=1), 4)],
            "late_ms": rounded(1e3 * late_s), "rivals": rivals,
        })  # fmt: skip
    return runs


def pages() -> dict[str, str]:
    """Both pages, by place."""
    schedule = (
        "A **group** is a few consecutive snapshots. In an **iteration** each rank computes one or two groups; then "
        "gradients are exchanged, so an iteration takes as long as its slowest rank. Place eight groups on two ranks "
        "so that the epoch is short. The dashed line is a bound that no schedule can beat; hatched is waiting.\n\n"
        "Choose a group, then *here* in a place; or drag it; or use the keyboard: arrow keys move a chosen group, "
        "Delete takes it back. [DyGNeX](../dygnex.md) and lesson 06 have more."
    )
    windows = (
        f"One partition of {PARTS} trains on {EPOCHS} epochs of {EPOCH_STEPS} steps (Reddit, calibrated costs, simulated). "
        "It asks the other partitions for features, and a **cache** holds some of them for W steps. A short window has more "
        "hits, and rebuilds more often; on a slow link both cost time, and time costs energy. At each rebuild choose W "
        "and the partition that gets most of the cache. You see the links up to now, as a policy does. At the end your "
        "joules are compared. [GreenDyGNN](../greendygnn.md) and lesson 08 have more.\n\n"
        f"The chart shows how much later a reply of {ROWS} rows arrives, by the partition that sends it. Bars are caches, "
        "with their W; grey is an even cache, another colour prefers that partition."
    )
    return {
        "benches/schedule.md": _page("Schedule eight groups by hand", schedule, "schedule", schedule_data()),
        "benches/cache.md": _page("Choose a cache window under congestion", windows, "cache", cache_data()),
    }


def _page(title: str, text: str, name: str, data: Any) -> str:
    written = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    return (
        f"---\nhide: [toc]\n---\n\n# {title}\n\n{text}\n\n"
        f'<div id="{name}-bench" class="bench"></div><script type="application/json">{written}</script>'
        f'<script src="../assets/{name}_bench.js"></script>\n'
    )
