"""Traces of the links to one part, recorded or by a pattern."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.network.links import LinkState
from dtdg_lab.systems.feature_cache.simulation.link_trace import LinkTrace, trace_of_links, trace_of_pattern


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
    with pytest.raises(PlanError, match="part 3"):
        trace_of_pattern(Swinging(), 3, range(4), epoch_steps=4)
    with pytest.raises(PlanError, match="none is possible"):
        trace_of_links([], 0)


@pytest.mark.parametrize(
    ("delay_s", "bytes_per_s", "which"),
    [
        (np.zeros((1, 2)), np.ones((1, 3)), np.zeros(3, int)),
        (np.zeros((1, 2)), np.ones((1, 2)), np.ones(3, int)),
        (np.zeros((1, 2)), np.zeros((1, 2)), np.zeros(3, int)),
        (-np.ones((1, 2)), np.ones((1, 2)), np.zeros(3, int)),
        (np.zeros((1, 0)), np.ones((1, 0)), np.zeros(3, int)),
    ],
)
def test_a_trace_that_does_not_fit_is_refused(delay_s: np.ndarray, bytes_per_s: np.ndarray, which: np.ndarray) -> None:
    with pytest.raises(PlanError):
        LinkTrace(delay_s, bytes_per_s, which)
