"""Peak memory against blocks of time: measured on real steps, with equal losses and gradients, and drawn."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.snapshot_blocks.block_study import MEMORY_MEANINGS, estimate_block_memory
from tests.thinning import thinned

SETTINGS = {"dataset": "growing", "dtype": "float64", "device": "cpu"}


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return load_dataset("growing", generated_nodes=200, generated_edges=800, generated_snapshots=24)


@pytest.mark.parametrize("model", thinned(["cdgcn", "tgcn"]))
def test_more_blocks_hold_less_at_once_and_give_the_same_gradients(graph: DynamicGraph, model: str) -> None:
    config = RunConfig(system="esdg", model=model, ranks=2, hidden=6, layers=2, **SETTINGS)
    study = estimate_block_memory(config, (1, 2, 4), graph=graph, steps=1, predicted={2: 123})
    assert [row["blocks"] for row in study.rows] == [1, 2, 4]
    peaks = [row["peak_bytes"] for row in study.rows]
    assert peaks[0] > peaks[1] > peaks[2] > 0
    assert all(row["gradient_difference"] < 1e-10 for row in study.rows)
    assert len({f"{row['loss']:.10g}" for row in study.rows}) == 1
    assert [row["predicted_bytes"] for row in study.rows] == [None, 123, None]
    assert set(study.rows[0]) == set(MEMORY_MEANINGS)
    ways = [way for _, _, way in study.traces[2].blocks]
    assert ways == ["forward", "forward", "backward", "rerun", "backward"], "the last block is not run again"
    figure = study.figure
    go.Figure(figure)
    json.dumps(figure, allow_nan=False)
    assert "blocks" in repr(study) and "<table" in study._repr_html_()


def test_what_cannot_be_compared_is_refused(graph: DynamicGraph) -> None:
    with pytest.raises(ConfigError, match="esdg"):
        estimate_block_memory(RunConfig(system="psg", **SETTINGS), graph=graph)
    config = RunConfig(system="esdg", **SETTINGS)
    with pytest.raises(ConfigError, match="1 or more"):
        estimate_block_memory(config, (0, 1), graph=graph)
    with pytest.raises(PlanError, match="blocks=1000"):
        estimate_block_memory(config, (1000,), graph=graph)
