"""Regression against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.tasks.regression import Regression
from tests.labelled_graphs import NODES, PARTS, SPLIT, graph, readout, scored, task_of


class Absolute(Regression):
    """Absolute errors."""

    def penalty(self, errors: Tensor) -> Tensor:
        return errors.abs()


def test_a_regression_with_another_penalty_trains_with_it_and_is_scored_by_it() -> None:
    data, task = graph(), Absolute(graph(), SPLIT, dtype=torch.float64)
    z = readout(task)
    errors = np.abs(z.detach().numpy()[..., 0] - data.targets.astype(np.float64))
    assert task.loss(z[2:5], range(2, 5), slice(0, NODES)).tolist() == pytest.approx(errors[2:5].mean(1), rel=1e-12)
    mean = data.targets[:5].astype(np.float64).mean()
    found = scored(task, z, "test")
    assert found.loss == pytest.approx(errors[8:].mean(), rel=1e-12) == found.metrics["mae"]
    assert found.persistence_loss == found.metrics["persistence_mae"]
    assert found.mean_loss == pytest.approx(np.abs(mean - data.targets[8:].astype(np.float64)).mean(), rel=1e-12)


def test_regression_by_hand() -> None:
    data, task = graph(), task_of("regression")
    z = readout(task)
    targets, today = data.targets.astype(np.float64), data.persistence.astype(np.float64)
    said = z.detach().numpy()[..., 0]
    losses = task.loss(z[2:5], range(2, 5), slice(0, NODES)).tolist()
    assert losses == pytest.approx([((said[t] - targets[t]) ** 2).mean() for t in (2, 3, 4)], rel=1e-12)
    mean = targets[:5].mean()
    for part, where in PARTS.items():
        found, place = scored(task, z, part), list(where)
        assert found.loss == pytest.approx(((said[place] - targets[place]) ** 2).mean(), rel=1e-12)
        assert found.persistence_loss == pytest.approx(((today[place] - targets[place]) ** 2).mean(), rel=1e-12)
        assert found.mean_loss == pytest.approx(((mean - targets[place]) ** 2).mean(), rel=1e-12)
        assert found.metrics == pytest.approx(
            {
                "mae": np.abs(said[place] - targets[place]).mean(),
                "persistence_mae": np.abs(today[place] - targets[place]).mean(),
            }
        )
        assert found.snapshots == len(place)
