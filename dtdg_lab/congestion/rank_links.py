"""Links between ranks, where each rank computes several parts."""

from __future__ import annotations

import numpy as np

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.links import LinkState


def links_of_ranks(links: LinkState, ranks: int) -> LinkState:
    """The links between R ranks, of which each has P / R consecutive parts.

    Between two ranks the greatest delay and the least rate of their parts hold: an exchange has come when its last rows
    have. Nothing is added within a rank.

    Raises:
        PlanError: the ranks do not divide the parts.
    """
    if ranks < 1 or links.parts % ranks:
        raise PlanError(
            f"links of {links.parts} parts cannot be those of {ranks} rank(s): each has equally many parts."
        )
    each = links.parts // ranks
    shape = (ranks, each, ranks, each)
    delay_s = links.delay_s.reshape(shape).max(axis=(1, 3))
    bytes_per_s = links.bytes_per_s.reshape(shape).min(axis=(1, 3))
    np.fill_diagonal(delay_s, 0.0)
    np.fill_diagonal(bytes_per_s, np.inf)
    return LinkState(delay_s, bytes_per_s)
