"""Curves of ``lab.estimate.scaling_forecast`` for steps that fetch features, with constants of another cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dtdg_lab.systems.feature_cache.policies.costs import CacheCosts
from dtdg_lab.systems.workload import Row, curve_row

WINDOWS = (1, 16, 64)
DELAY_S = 0.02  # of the link that is late


def fetch_rows(costs: Callable[[int], CacheCosts], ranks: Sequence[int], delay_s: float = DELAY_S) -> list[Row]:
    """Seconds of a step that fetches features, by window of the cache: quiet links, and one that is late.

    Args:
        costs: parts -> constants of what steps cost.
        ranks: numbers of ranks, each with a part.
        delay_s: seconds that one owner's replies are late where one is.

    References: GreenDyGNN section IV-A.
    """
    found: list[Row] = []
    for count in [each for each in ranks if each > 1]:
        of = costs(count)
        even = np.array(of.asked)
        late = np.zeros(count - 1)
        late[0] = delay_s
        for window in WINDOWS:
            for name, delays in (("quiet links", np.zeros(count - 1)), ("one link late", late)):
                value = float(of.step_s(float(window), delays, np.inf, even))
                found.append(curve_row("fetch_s", f"W = {window}, {name}", count, value, "simulated"))
    return found
