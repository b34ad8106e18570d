"""Target batches as plans: their numbers are checked, and they compare by value."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import BatchSize, TargetBatch


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"part": -1}, "of part -1: numbers from 0 on"),
        ({"action": -1}, "action -1"),
        ({"index": -2}, "batch -2"),
        ({"snapshots": range(3, 3)}, "at least one, and consecutive ones"),
        ({"snapshots": range(3, 9, 2)}, "consecutive"),
        ({"snapshots": range(-1, 2)}, "consecutive"),
        ({"targets": np.zeros(0, np.int64)}, "non-empty vector"),
        ({"targets": np.ones((2, 2), np.int64)}, r"shape \(2, 2\)"),
        ({"targets": np.array([0.5, 1.5])}, "not float64"),
        ({"targets": np.array([1, 1])}, "strictly ascending"),
        ({"targets": np.array([2, 1])}, "ascending"),
        ({"targets": np.array([-1, 1])}, "strictly ascending from 0"),
    ],
)
def test_a_batch_that_is_none_is_refused(fields: dict[str, object], said: str) -> None:
    whole = {"part": 0, "action": 0, "index": 0, "snapshots": range(2), "targets": np.arange(2)}
    TargetBatch(**whole)
    with pytest.raises(PlanError, match=said):
        TargetBatch(**{**whole, **fields})


@pytest.mark.parametrize("numbers", [(0, 5), (5, 0)])
def test_a_size_below_1_is_refused(numbers: tuple[int, int]) -> None:
    with pytest.raises(PlanError, match="at least 1 of both"):
        BatchSize(*numbers)


def test_a_batch_s_targets_are_its_own() -> None:
    given = np.array([1, 4], np.int32)
    batch = TargetBatch(0, 0, 0, range(2), given)
    given[0] = 3
    assert batch.targets.tolist() == [1, 4]
    with pytest.raises(ValueError, match="read-only"):
        batch.targets[0] = 2
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert batch == TargetBatch(0, 0, 0, range(2), np.array([1, 4]))
    assert batch != TargetBatch(0, 0, 0, range(2), np.array([1, 5]))
    assert batch != TargetBatch(0, 0, 0, range(1, 3), np.array([1, 4]))
