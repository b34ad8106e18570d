"""Loads, costs and simulated controllers of the lessons on hybrid batches."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.lessons.batches import batch_loads, loads_picture, simulated_bench, times_to_target

GRAPH = load_dataset("powerlaw", generated_nodes=300, generated_edges=900, generated_snapshots=25)


def test_groups_narrow_the_loads() -> None:
    uniform, grouped = batch_loads(GRAPH, 1), batch_loads(GRAPH, 10)
    assert len(uniform) == len(grouped) == 200 and (np.diff(grouped) >= 0).all()
    assert grouped[-1] - grouped[0] < uniform[-1] - uniform[0]
    figure, caption = loads_picture(GRAPH, groups=10)
    assert [trace["name"] for trace in figure["data"]] == ["uniform draws", "from 10 groups"]
    assert caption == f"The heaviest batch has {grouped[-1] / grouped[0]:.2f} times the load of the lightest."


def test_controllers_are_named_beside_fixed_sizes() -> None:
    bench = simulated_bench(noisy=False, seeds=(0,))
    seconds = times_to_target(bench)
    assert [*seconds][:3] == ["the DQN", "the bandit", "random sizes"]
    assert seconds["the best fixed size"] == pytest.approx(min(bench.fixed_s))
    assert seconds["the worst fixed size"] == pytest.approx(max(bench.fixed_s))
