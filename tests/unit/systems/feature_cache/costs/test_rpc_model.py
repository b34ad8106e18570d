"""The time of a fetch, and the delay that it implies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError
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


@pytest.mark.parametrize("model", [MODEL, replace(MODEL, trips=2.5), PAPER])
def test_a_delay_is_found_in_a_time(model):
    for delay_s in (0.0, 1e-3, 0.05):
        assert model.delay_s(model.rtt_s(2e6, delay_s), 2e6) == pytest.approx(delay_s, abs=1e-12)
    assert model.delay_s(0.5 * model.rtt_s(2e6), 2e6) == 0.0
    assert PAPER.delay_s(1.0, 0) == 0.0


def test_impossible_models_are_refused():
    for wrong in ((-1e-3, 0, 1), (0, -1, 1), (0, 0, 0), (np.nan, 0, 1)):
        with pytest.raises(ConfigError):
            RpcModel(*wrong)
