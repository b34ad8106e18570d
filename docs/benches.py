"""Two benches on static pages: schedule groups by hand, and choose cache windows; their data."""

from __future__ import annotations

import json
import re
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
EPOCHS, EPOCH_STEPS, SEED, ROWS = 12, 25, 8, 100  # as docs/cache_bench.md says


def schedule_data() -> dict[str, Any]:
    """Return times of groups, with the schedules of the rules that search."""
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
    """Return simulated runs under congestion, by name."""
    from dtdg_lab.systems.feature_cache.calibration.calibration import SHIPPED
    from dtdg_lab.systems.feature_cache.simulation.cases import CacheCase
    from dtdg_lab.systems.feature_cache.simulation.episode import draw_episode

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
    """Return the links of the runs, the costs of a step by choice, and the windows of other policies."""
    import numpy as np

    from dtdg_lab.lessons.widgets import CacheBench
    from dtdg_lab.systems.feature_cache.actions import WINDOWS
    from dtdg_lab.systems.feature_cache.costs.cache_costs import cache_choices
    from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner

    def rounded(values: Any) -> Any:
        return [[float(f"{one:.7g}") for one in row] for row in values]

    runs = []
    for name, episode in episodes().items():
        choices, trace = cache_choices(episode.trace.parts, episode.epoch_steps), episode.trace
        bench = CacheBench(episode, {"planner": CachePlanner(choices.actions, episode.costs)})
        late_s = trace.delay_s + ROWS * episode.costs.row_bytes / trace.bytes_per_s
        rivals = {each: [[int(first), int(choice)] for first, choice in of] for each, of in bench.played.items()}
        runs.append(
            {
                "name": name,
                "parts": trace.parts,
                "sizes": list(WINDOWS),
                "epoch_steps": episode.epoch_steps,
                "windows": choices.windows.tolist(),
                "which": trace.which.tolist(),
                "noise": [float(f"{one:.7g}") for one in episode.noise],
                "step_j": rounded(episode.tables.step_j),
                "rebuild_j": rounded(episode.tables.rebuild_s * episode.costs.stall_w),
                "hits": [float(one) for one in np.round(episode.tables.hits.mean(axis=1), 4)],
                "late_ms": rounded(1e3 * late_s),
                "rivals": rivals,
            }
        )
    return runs


def placed(markdown: str) -> str:
    """Return a page with the bench that its comment names, and the bench's data and script."""
    return PLACE.sub(lambda found: _bench(found[1], DATA[found[1]]()), markdown)


def _bench(name: str, data: Any) -> str:
    written = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<div id="{name}-bench" class="bench"></div><script type="application/json">{written}</script>'
        f'<script src="assets/{name}_bench.js"></script>\n'
    )


PLACE = re.compile(r"^<!-- bench (\w+) -->$", re.M)
DATA = {"schedule": schedule_data, "cache": cache_data}
