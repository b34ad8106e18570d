"""A slow network between ranks that are in fact close, for tests of what is hidden behind computing."""

from __future__ import annotations

import numpy as np

from dtdg_lab.comm.group import Group
from dtdg_lab.comm.linked_group import LinkedGroup
from dtdg_lab.core.links import LinkState


class DelayedGroup(LinkedGroup):
    """A group whose exchanges of rows take at least ``delay_s`` on every rank, from start to completion.

    Args:
        group: the ranks.
        delay_s: seconds, at least 0, of all links.
        bytes_per_s: that a rank's rows leave at, if it sends every other rank as many.
    """

    def __init__(self, group: Group, delay_s: float, bytes_per_s: float = float("inf")) -> None:
        ranks = group.size
        delays_s = np.full((ranks, ranks), delay_s)
        super().__init__(group, LinkState(delays_s, np.full((ranks, ranks), bytes_per_s / max(1, ranks - 1))))
