"""``lab.plot`` and ``lab.inspect``: what is drawn of what, and what a model is found to hold of a node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import ConfigError, RunStoreError, UnknownNameError
from dtdg_lab.lessons.figures import panels
from dtdg_lab.runs.charts import all_rollups
from dtdg_lab.runs.stored_run import StoredRun
from tests.tables import run_tables, run_under_way

WIDTH, NODES, STEPS = 4, 30, 14


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.DynamicGraph]:
    """Vertex 0 points at node 1, that at 2, and so on, in every snapshot."""
    steps = range(STEPS + 1)
    src = [v for _ in steps for v in range(NODES - 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTDG_LAB_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))  # as each test has it
        yield lab.datasets.from_edges(
            src, [v + 1 for v in src], [t for t in steps for _ in range(NODES - 1)], cut=STEPS + 1
        )


@pytest.fixture(scope="module")
def runs(graph: lab.DynamicGraph, tmp_path_factory: pytest.TempPathFactory) -> dict[str, StoredRun]:
    folder = tmp_path_factory.mktemp("runs")
    made = {}
    for model in ("graphsage", "tgcn", "tmgcn", "dcrnn"):
        config = lab.RunConfig(system="single", dataset=graph, model=model, hidden=WIDTH, epochs=1, seed=3)
        made[model] = lab.train(config, runs_dir=folder, progress=False)
    return made


def test_everything_that_has_a_picture_gets_one(graph, runs) -> None:
    compared = lab.runs.compare(list(runs.values()))
    graphs = lab.datasets.compare({"a": graph, "b": graph})
    perturbed = lab.inspect.perturb(runs["tgcn"], node=5, snapshot=3)
    followed = lab.inspect.follow_node([lab.inspect.activations(run) for run in runs.values()], 5)
    of_graphs = [graph, graph.describe(), graphs, graphs.figure]
    for shown in [*of_graphs, runs["tgcn"], compared, perturbed, [perturbed, perturbed], followed]:
        figure = lab.plot(shown)
        assert isinstance(figure, go.Figure) and figure.data, shown
        assert figure.layout.title.text or figure.layout.annotations[-1].text.startswith("<b>"), shown
    assert "protocol strict" in lab.plot(graph, protocol="strict").layout.title.text
    assert "seconds of training" in lab.plot(runs["tgcn"], x="seconds").to_json()


@pytest.mark.parametrize("shown", [None, 3, "collegemsg", [], [1], {"data": []}])
def test_what_has_no_picture_is_refused_with_what_has(shown) -> None:
    with pytest.raises(ConfigError, match=r"it draws a DynamicGraph, graph.describe\(\), a run"):
        lab.plot(shown)


def test_an_unknown_protocol_is_named(graph) -> None:
    with pytest.raises(UnknownNameError, match="warm"):
        lab.plot(graph, protocol="warmish")


def test_activations_hold_what_training_evaluated(graph, runs) -> None:
    """Its predictions score what the run's own evaluation of the test split found."""
    trace = lab.inspect.activations(runs["tgcn"])
    assert trace.hidden.shape == (graph.num_snapshots, NODES, WIDTH)
    tested = slice(int(graph.num_snapshots * 0.4), None)
    error = np.mean((trace.outputs[tested, :, 0].astype(float) - graph.targets[tested]) ** 2)
    assert error == pytest.approx(runs["tgcn"].summary["test_loss"], rel=1e-4)
    gate = (2 * WIDTH + WIDTH) + (2 * WIDTH * WIDTH + WIDTH)  # convolution of 2 features, then features beside state
    assert (trace.parameters, trace.remembered) == (3 * gate + WIDTH + 1, NODES * WIDTH)


def test_a_node_is_followed_through_features_label_and_every_model(graph, runs) -> None:
    traces = [lab.inspect.activations(run) for run in runs.values()]
    table = traces[0].node(7)
    assert table["in-neighbours"].tolist() == [1] * graph.num_snapshots
    assert table["label"].to_numpy() == pytest.approx(graph.targets[:, 7])
    assert table["feature 0"].to_numpy() == pytest.approx(graph.features[:, 7, 0])
    followed = lab.inspect.follow_node(traces, 7)
    assert list(followed.table.columns) == ["in-neighbours", "label", "persistence", *runs]
    assert followed.table["dcrnn"].to_numpy() == pytest.approx(traces[3].outputs[:, 7, 0])
    assert "node 7" in followed._repr_html_()


def test_following_refuses_what_does_not_go_together(graph, runs) -> None:
    trace = lab.inspect.activations(runs["tgcn"])
    with pytest.raises(ConfigError, match="nodes 0 to 29"):
        trace.node(30)
    with pytest.raises(ConfigError, match="got no activations"):
        lab.inspect.follow_node([], 1)
    with pytest.raises(ConfigError, match="tgcn"):
        lab.inspect.follow_node([trace, trace], 1)
    with pytest.raises(ConfigError, match="got no graph"):
        lab.datasets.compare({})


def test_a_change_is_heard_as_far_and_as_long_as_the_model_says(graph, runs) -> None:
    """On a path, from node 10: a graph convolution reaches 11 only, diffusion goes both ways, step by step."""
    perturbed = {model: lab.inspect.perturb(run, node=10, snapshot=2) for model, run in runs.items()}
    received = {model: each.affected_mask for model, each in perturbed.items()}
    for model in ("graphsage", "tgcn", "tmgcn"):
        assert set(np.flatnonzero(received[model].any(axis=0))) == {10, 11}, model
        assert not received[model][:2].any()
        assert perturbed[model].hops == 1
    assert perturbed["graphsage"].duration == 1
    assert perturbed["tmgcn"].duration == 5
    assert perturbed["tgcn"].duration > 5
    reached = [set(np.flatnonzero(received["dcrnn"][t])) for t in range(2, 5)]
    assert reached[0] < reached[1] < reached[2], "the hidden state is convolved again at every snapshot"
    assert 1 < perturbed["dcrnn"].hops <= 4
    assert perturbed["dcrnn"].distance.tolist() == [abs(v - 10) for v in range(NODES)]
    assert perturbed["tgcn"].table()["affected nodes"].tolist()[:2] == [2, 2]


def test_a_perturbation_refuses_places_and_times_that_are_not_there(runs) -> None:
    with pytest.raises(ConfigError, match="nodes 0 to 29"):
        lab.inspect.perturb(runs["tgcn"], node=30, snapshot=2)
    with pytest.raises(ConfigError, match="0 to 13"):
        lab.inspect.perturb(runs["tgcn"], node=3, snapshot=14)
    with pytest.raises(ConfigError, match="0 to 1"):
        lab.inspect.perturb(runs["tgcn"], node=3, snapshot=12).affected(2)


def test_a_run_without_a_checkpoint_says_so(graph, runs, tmp_path: Path) -> None:
    run = lab.train(runs["tgcn"].config, runs_dir=tmp_path, progress=False)
    run.directory.checkpoint_file.unlink()
    with pytest.raises(RunStoreError, match="no checkpoint"):
        lab.inspect.activations(run)


def test_a_run_under_way_is_drawn_under_its_lock() -> None:
    steps = [{"rank": rank, "step": step, "time_s": 0.01} for step in range(3) for rank in range(2)]
    run = run_under_way(run_tables({"dataset": "growing"}, {"steps": steps}, rollups=all_rollups()))
    for figure in (lab.plot(run), panels(run, "loss", "step_time")):
        assert figure["data"]
    assert not run.lock.locked()
