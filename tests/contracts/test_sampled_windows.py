"""Layout sampled_window keeps the layouts' contract: four parts give the same on one, two and four ranks."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import Partition
from dtdg_lab.datasets.names import load_for
from dtdg_lab.engine.strategy import Strategy
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.models.base import DynamicModel, make_model
from dtdg_lab.systems.decayed_windows.sampled import SampledWindows, SampledWindowStrategy
from dtdg_lab.tasks.regression import Regression
from dtdg_lab.testing.strategies import check_strategy

pytestmark = pytest.mark.usefixtures("one_thread")
PARTS, TRAIN = 4, range(5)


@cache
def _graph() -> DynamicGraph:
    return load_for(
        RunConfig(dataset="growing", generated_nodes=24, generated_edges=90, generated_snapshots=12, dtype="float64")
    )


@pytest.mark.parametrize("name", ["tgcn", "gatlstm", "evolvegcn-o", "graphsage"])  # every memory that it carries
def test_sampled_windows_keep_the_contract(name: str) -> None:
    graph = _graph()
    partition = Partition(np.arange(graph.num_nodes, dtype=np.int32) % PARTS, PARTS)

    def make(rank: int, size: int) -> tuple[Strategy, DynamicModel]:
        model = make_model(catalogue.entry("models", name).load(), graph.num_features, 4, 2, seed=1).double()
        share = PARTS // size
        windows = SampledWindows(TRAIN, 3, 2, 0, partition, range(rank * share, (rank + 1) * share))
        task = Regression(graph, Split(TRAIN, range(0), range(9, 10)), dtype=torch.float64)
        settings = OperatorSettings(dtype=torch.float64)
        return SampledWindowStrategy(model, graph, task, windows, settings, counts_group=rank == 0), model

    check_strategy(make)
