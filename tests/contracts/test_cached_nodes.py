"""Layout cached_vertex keeps the layouts' contract: four parts give the same on one, two and four ranks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import Partition
from dtdg_lab.datasets.names import load_for
from dtdg_lab.engine.strategy import Strategy
from dtdg_lab.engine.views.replicated_sequence import cached_sequences
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.models.base import DynamicModel, make_model
from dtdg_lab.systems.vertex_parts.strategy import ReplicatedStrategy
from dtdg_lab.tasks.regression import Regression
from dtdg_lab.testing.strategies import check_strategy

PARTS, TRAIN = 4, range(5)


@cache
def _graph() -> DynamicGraph:
    return load_for(
        RunConfig(dataset="growing", generated_nodes=24, generated_edges=60, generated_snapshots=12, dtype="float64")
    )


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _graph()  # from the cache of all tests
    monkeypatch.setenv("DTDG_LAB_CACHE", str(tmp_path))


@pytest.mark.usefixtures("one_thread")  # the products are too small to be shared
@pytest.mark.parametrize("name", ["tgcn", "gatlstm", "evolvegcn-o", "evolvegcn-h", "dcrnn", "graphsage"])  # memories
def test_cached_nodes_keep_the_contract(name: str) -> None:
    graph = _graph()
    partition = Partition(np.arange(graph.num_nodes, dtype=np.int32) % PARTS, PARTS)

    def make(rank: int, size: int) -> tuple[Strategy, DynamicModel]:
        model_class = catalogue.entry("models", name).load()
        model = make_model(model_class, graph.num_features, 4, 1 if name == "dcrnn" else 2, seed=1).double()
        share = PARTS // size
        sequences = cached_sequences(
            graph,
            partition,
            range(rank * share, (rank + 1) * share),
            model,
            TRAIN,
            cache_gib=1.0,
            settings=OperatorSettings(dtype=torch.float64),
        )
        task = Regression(graph, Split(TRAIN, range(0), range(9, 10)), dtype=torch.float64)
        return ReplicatedStrategy(model, sequences, task, TRAIN, counts_group=rank == 0), model

    check_strategy(make)
