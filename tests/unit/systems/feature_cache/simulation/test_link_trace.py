"""Traces of the links to one part, recorded or by a pattern."""

from __future__ import annotations

import numpy as np

from dtdg_lab.network.links import LinkState
from dtdg_lab.systems.feature_cache.simulation.link_trace import trace_of_pattern


class Swinging:
    """Owner 1 is late for part 0 in the second half of each epoch."""

    def at(self, epoch: int, share: float) -> LinkState:
        delay_s = np.zeros((3, 3))
        delay_s[1, 0] = 0.01 * (share >= 0.5)
        delay_s[0, 1] = 0.5
        return LinkState(delay_s, np.full((3, 3), np.inf))


def test_a_trace_is_a_part_s_own_links() -> None:
    trace = trace_of_pattern(Swinging(), 0, range(8), epoch_steps=4)
    assert trace.delay_s[trace.which].tolist() == [[0, 0], [0, 0], [0.01, 0], [0.01, 0]] * 2
    assert len(trace.delay_s) == 2
    assert trace_of_pattern(Swinging(), 1, range(4), epoch_steps=4).delay_s.tolist() == [[0.5, 0], [0.5, 0]]
