"""The time of a fetch, and the delay that it implies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dtdg_lab.systems.feature_cache.costs.rpc_model import PAPER, RpcModel

MODEL = RpcModel(1.3e-3, 3e-9)


def test_a_fetch_by_hand():
    assert MODEL.rtt_s(1e6) == pytest.approx(1.3e-3 + 3e-3)
    assert MODEL.rtt_s(1e6, 0.02, 1e8) == pytest.approx(1.3e-3 + 3e-3 + 0.02 + 0.01)
    assert replace(MODEL, trips=2.0).rtt_s(0, 0.02) == pytest.approx(1.3e-3 + 0.04)
    np.testing.assert_allclose(MODEL.rtt_s([0, 1e6], [[0], [1]]).shape, (2, 2))
    # 4.67 ms, and of 1 MB 1.4 ms and 0.201 ms for each ms of delay
    assert PAPER.rtt_s(1e6, 0.02) == pytest.approx(4.67e-3 + 1.4e-3 + 20 * 0.201e-3)
    assert PAPER.rtt_s(0, 0.02) == PAPER.rtt_s(0) == pytest.approx(4.67e-3)
