"""The probe of a calibration measures each owner alone and all at once."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.systems.feature_cache.calibration.study import measure
from tests.feature_servers import PARTS, links


def test_the_probe_measures_each_owner_by_itself_and_all_at_once() -> None:
    slow = links({(1, 0): 0.02})
    table = measure([1, 500], 10, repeats=3, parts=PARTS, links=slow, condition="one late")
    assert len(table) == 3 * 2 * (2 + 2)
    assert list(table[0]) == ["dataset", "condition", "concurrent", "requester", "owner", "rows", "rtt_s", "feat_dim"]
    late = [row["rtt_s"] for row in table if row["owner"] == 1]
    assert min(late) > 0.02 > np.median([row["rtt_s"] for row in table if row["owner"] == 2])
    assert {row["concurrent"] for row in table} == {0, 1}
    with pytest.raises(PlanError, match="parts=1"):
        measure([1], 10, parts=1)
