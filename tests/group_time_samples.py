"""Samples of group times, on which schedulers are tested."""

from __future__ import annotations

import numpy as np

from dtdg_lab.core.rng import generator

KINDS = ("even", "few values", "heavy", "alike", "far apart", "growing")


def sample_times(kind: str, groups: int, number: int) -> np.ndarray:
    """Return (K,) seconds of a kind; another number gives another sample."""
    draw = generator(number, f"test/schedulers/{kind}")
    return {
        "even": lambda: draw.random(groups),
        "few values": lambda: draw.integers(0, 6, groups).astype(float),
        "heavy": lambda: np.exp(3 * draw.standard_normal(groups)),
        "alike": lambda: np.full(groups, draw.random()),
        "far apart": lambda: 10.0 ** draw.integers(-17, 17, groups),  # sums that rounding makes equal
        "growing": lambda: np.linspace(1, 10, groups) * (1 + 0.05 * draw.standard_normal(groups)),
    }[kind]()
