"""Epochs predicted for other numbers of ranks, by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.systems.snapshot_groups.comparison import predict_epochs

TIMES = [1.0, 2.0, 3.0, 4.0]


def test_epochs_of_other_ranks_by_hand() -> None:
    one, two, four = predict_epochs(
        TIMES, measured_on=2, scheduler="psg", allreduce_s=0.5, step_s=0.25, measured_s={2: 7.0, 4: 6.0}
    )
    assert (one.predicted_s, one.allreduce_s, one.speedup, one.measured_s) == (11.0, 0.0, 1.0, None)
    assert one.error is None
    assert two.predicted_s == 7.5  # 2 + 4, and twice 0.5 + 0.25
    assert two.error == pytest.approx(0.5 / 7)
    assert four.allreduce_s == pytest.approx(0.75)  # 3/4 of the ring's bytes, where two ranks send 1/2
    assert four.predicted_s == pytest.approx(5.0)
    assert four.speedup == pytest.approx(11 / 5)
    assert four.error == pytest.approx(-1 / 6)
    assert all(epoch.bound_s <= epoch.predicted_s * (1 + 1e-12) for epoch in (one, two, four))
    assert json.loads(json.dumps(one.row()))["ranks"] == 1


def test_epochs_measured_several_times_count_the_waiting_that_noise_brings() -> None:
    """Medians are all 2, so a schedule of medians waits for nobody; each epoch another rank is late."""
    epochs = [[1.0, 2.0], [2.0, 3.0], [3.0, 1.0]]
    (noisy,) = predict_epochs(epochs, measured_on=1, ranks=[2], scheduler="psg")
    assert noisy.predicted_s == pytest.approx((2 + 3 + 3) / 3)
    (median,) = predict_epochs([2.0, 2.0], measured_on=1, ranks=[2], scheduler="psg")
    assert median.predicted_s == 2.0


def test_all_reduces_given_by_number_of_ranks() -> None:
    predictions = predict_epochs(TIMES, measured_on=1, ranks=[1, 2], scheduler="psg", allreduce_s={2: 0.5})
    assert [epoch.predicted_s for epoch in predictions] == [10.0, 7.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"measured_on": 1, "allreduce_s": 0.5}, "by number of"),
        ({"measured_on": 2, "allreduce_s": {2: 0.5}}, "not for 4"),
        ({"measured_on": 2, "allreduce_s": -1.0}, "at least 0"),
        ({"measured_on": 2, "step_s": -1.0}, "step_s"),
        ({"measured_on": 0}, "at least 1"),
        ({"measured_on": 2, "ranks": []}, "at least 1"),
        ({"measured_on": 2, "measured_s": {2: 0.0}}, "above 0"),
    ],
)
def test_impossible_measurements_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predict_epochs(TIMES, **settings)
    with pytest.raises(PlanError):
        predict_epochs(np.ones((2, 2, 2)), measured_on=2)
