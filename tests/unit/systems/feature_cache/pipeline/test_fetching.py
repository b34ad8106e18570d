"""Replies of the wrong shape name their owner."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import RunFailedError
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply, fetch_into


def test_a_reply_of_the_wrong_shape_names_its_owner() -> None:
    rows, keys, owners = np.zeros((2, 3), np.float32), np.array([4, 5]), np.array([2, 2])

    def wrong(wanted: object) -> dict[int, OwnerReply]:
        return {2: OwnerReply(2, np.zeros((2, 4), np.float32), 0.0, 0)}

    with pytest.raises(RunFailedError, match=r"part 2 sent \(2, 4\) for 2 rows of 3 features"):
        fetch_into(rows, np.arange(2), keys, owners, wrong)
    with pytest.raises(RunFailedError, match="part 2 sent nothing"):
        fetch_into(rows, np.arange(2), keys, owners, lambda wanted: {})
