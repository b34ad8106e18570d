"""Curves of ``lab.estimate.scaling_forecast`` for steps that fetch features, with constants of another cluster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtdg_lab.systems.feature_cache.policies.shipped_costs import products
from dtdg_lab.systems.workload import Facts, Row, curve_row

WINDOWS = (1, 16, 64)
DELAY_S = 0.02  # of the link that is late


def fetch_rows(facts: Facts, ranks: Sequence[int], *_: object, **__: object) -> list[Row]:
    """Seconds of a step that fetches features, by window of the cache: quiet links, and one that is late.

    Args:
        facts: not used: the constants are those of another cluster.
        ranks: numbers of ranks, each with a part.

    References: GreenDyGNN section IV-A.
    """
    found: list[Row] = []
    for count in [each for each in ranks if each > 1]:
        of = products(count)
        even = np.array(of.asked)
        late = np.zeros(count - 1)
        late[0] = DELAY_S
        for window in WINDOWS:
            for name, delays in (("quiet links", np.zeros(count - 1)), ("one link late", late)):
                value = float(of.step_s(float(window), delays, np.inf, even))
                found.append(curve_row("fetch_s", f"W = {window}, {name}", count, value, "simulated"))
    return found
