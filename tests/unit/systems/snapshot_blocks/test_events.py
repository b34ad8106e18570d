"""Events of time blocks: what training records is read and drawn, and what does not fit is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.split import split
from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.records.events import MemoryFacts
from dtdg_lab.systems.snapshot_blocks.ownership_chart import PICTURE
from dtdg_lab.training.build import make_task
from dtdg_lab.training.partition import blocks_event
from dtdg_lab.visualization.chart import ChartOptions
from tests.plan_events import blocks_data, memory_data, plan
from tests.tables import run_tables


@pytest.mark.parametrize(
    "wrong", [{"bounds": [0, 5, 13]}, {"bounds": [0, 5, 5, 13]}, {"chunks": [[0, 5]]}, {"ranks": 3}]
)
def test_facts_that_do_not_fit_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="do not fit"):
        BlockFacts.read(blocks_data(plan(), **wrong))


def test_memory_that_does_not_fit_its_times_is_refused() -> None:
    data = memory_data()
    with pytest.raises(DataError, match="another version"):
        MemoryFacts.read({**data, "bytes": data["bytes"][:-1]})
    with pytest.raises(DataError, match="'seconds'"):
        MemoryFacts.read({"bytes": [], "blocks": []})


def test_a_prediction_without_reruns_has_none() -> None:
    assert set(BlockFacts.read(blocks_data(plan(4, 1))).predicted) == {"forward", "backward"}


@pytest.mark.parametrize(("model", "task", "row_ranks"), [("cdgcn", "link", 2), ("evolvegcn-h", "regression", 1)])
def test_what_training_records_is_drawn(model: str, task: str, row_ranks: int) -> None:
    graph = load_dataset("growing", generated_nodes=20, generated_edges=60, generated_snapshots=20)
    settings = {"system": "esdg", "dataset": "growing", "model": model, "task": task, "ranks": 4, "layers": 2}
    config = RunConfig(**settings, row_ranks=row_ranks, blocks=2)
    parts = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[config.protocol])
    built = SnapshotBlocks(parts.train, 2, 4, 20, row_ranks)
    data = json.loads(json.dumps(blocks_event(config, graph, built, make_task(config, graph, parts)).write()))
    figure = PICTURE.figure(run_tables(config, events=[{"kind": "blocks", "data": data}]), ChartOptions())
    assert ("xaxis2" in figure["layout"]) == (model == "cdgcn"), "weights alone go from rank to rank in the other"
