"""The curve of a training: a point for each epoch that was evaluated."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from dtdg_lab.reproduction import training


@pytest.mark.parametrize("joules", [None, [10.0, 20.0, 30.0]])
def test_epochs_of_a_rank_without_a_step_have_points_of_their_own(monkeypatch, joules):
    """Where ranks average models, the other ranks may make all steps of an epoch."""
    steps = pd.DataFrame({"epoch": [0, 0, 1, 2], "rank": [0, 1, 1, 0], "time_s": [1.0, 2.0, 4.0, 8.0]})
    evaluations = pd.DataFrame(
        {
            "epoch": [1, 1, 2, 3, 3],
            "step": [1, 1, 1, 2, 2],
            "split": ["train", "validation", "validation", "validation", "test"],
            "loss": [0.9, 0.8, 0.7, 0.6, 0.5],
            "attempt": 1,
            "time_ns": [1, 2, 3, 4, 5],
        }
    )
    asked = []

    def joules_until(tables, attempts, times_ns):
        asked.append((attempts, times_ns))
        return None if joules is None else pd.Series(joules)

    monkeypatch.setattr(training, "joules_until", joules_until)
    run = SimpleNamespace(table={"steps": steps, "evaluations": evaluations}.__getitem__, live=None)
    points = training._curve(run)
    assert points == tuple(zip([2.0, 6.0, 14.0], joules or [None] * 3, [0.8, 0.7, 0.6], strict=True))
    assert asked == [([1, 1, 1], [2, 3, 4])]
