"""Rows and keys of three small feature servers, and states of their links."""

from __future__ import annotations

import numpy as np

from dtdg_lab.network.patterns import LinkState

TOKEN, PARTS, K, F = b"t" * 32, 3, 4000, 50  # K keys of a part, F floats of a row
ROWS = {part: np.random.default_rng(part).random((K, F), dtype=np.float32) for part in range(PARTS)}
KEYS = {part: np.arange(K, dtype=np.int64) * PARTS + part for part in range(PARTS)}


def links(delay_s: dict[tuple[int, int], float], bytes_per_s: dict[tuple[int, int], float] | None = None) -> LinkState:
    """Return links of which some have a delay or a rate, by (owner, requester)."""
    delays, rates = np.zeros((PARTS, PARTS)), np.full((PARTS, PARTS), np.inf)
    for link, seconds in delay_s.items():
        delays[link] = seconds
    for link, rate in (bytes_per_s or {}).items():
        rates[link] = rate
    return LinkState(delays, rates)
