"""A lookahead without sampled batches predicts nothing."""

from __future__ import annotations

import numpy as np

from dtdg_lab.systems.feature_cache.pipeline.lookahead import Lookahead
from tests.feature_world import World


def test_an_empty_lookahead_predicts_zeros() -> None:
    space = World().space
    seen = Lookahead(3, [], space, part=0, capacity=5, serving=None).outlook(4, np.array([0.5, 0.5]))
    assert (seen.steps, seen.copied, seen.requested.tolist(), seen.missed.tolist()) == (0, 0, [0, 0], [0, 0])
