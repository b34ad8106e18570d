"""What ranks do in a step, counted by hand; rates found again from steps made of them; runs continued."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log2

import numpy as np
import plotly.graph_objects as go
import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.forecast.step_scaling import continued, extrapolate
from dtdg_lab.graphs.delta import SequenceChanges, scaled
from dtdg_lab.systems.snapshot_blocks.workload import StepSettings, measured_step
from dtdg_lab.systems.step_time import MeasuredStep, NetworkCosts, ScalingModel, fit_scaling

NODES = 5
CHANGES = SequenceChanges(
    NODES, False, np.array([4, 6, 8, 10, 12]), np.array([0, 1, 1, 1, 1]), np.array([0, 3, 3, 3, 3])
)
TMGCN = StepSettings("tmgcn", 2, 6, 2, pairs=2, blocks=2)
RATES = ScalingModel(np.array([2e-8, 1e-7, 3e-5, 1e-5, 4e-5]), np.array([1e-5, 1e-9, 2e-9]), 3e-4, 2e-9)


def test_passes_by_hand():
    """Five snapshots in blocks of two and three; the first is passed over thrice, the last twice."""
    work = TMGCN.work(CHANGES, 2)
    # rank 0 has snapshot 0 and snapshot 2, rank 1 has 1 and 3, 4; nodes 0, 1 and 2, 3, 4 through time
    rows = [3 * (NODES + 2 * 2) + 2 * (NODES + 3 * 2), 3 * (NODES + 2 * 3) + 2 * (2 * NODES + 3 * 3)]
    assert work.passes.tolist() == [
        [3 * 4 + 2 * 8, rows[0], 3 * 1 + 2 * 1, 3 * 2 + 2 * 3, 3 * 2 + 2 * 3],
        [3 * 6 + 2 * 22, rows[1], 3 * 1 + 2 * 2, 3 * 2 + 2 * 3, 3 * 2 + 2 * 3],
    ]
    assert (work.nodes, work.edges, work.ranks) == (NODES, 40, 2)


def test_blocks_are_brought_again_for_their_rerun():
    work = TMGCN.work(CHANGES, 2)

    def whole(edges):  # offsets and sources
        return 4 * (NODES + 1 + edges)

    second = whole(10) + 4 * (1 + 2 * 3)  # snapshot 4 as its difference: one leaves, three arrive as pairs
    assert work.brought.tolist() == [
        [3, 2 * whole(4) + whole(8), 2 * whole(4) + whole(8)],
        [4, 2 * whole(6) + second, 2 * whole(6) + whole(10) + whole(12)],
    ]
    assert not replace(TMGCN, blocks=1).work(CHANGES, 2).brought.any()
    plain = replace(TMGCN, difference=False).work(CHANGES, 2)
    assert plain.brought[:, 1].tolist() == work.brought[:, 2].tolist()
    once = replace(TMGCN, model="evolvegcn-o").work(CHANGES, 2)
    assert once.brought[:, 0].tolist() == [2, 3] and once.passes[0, 2] == 2 * 2  # nothing is rerun


def test_exchanges_are_legs_and_gradients():
    """One exchange for each leg in each block: the paper's order, without the readout of blocks scored in the rerun."""
    assert TMGCN.work(CHANGES, 1).exchanges == 0
    # forward 3 in two blocks, readout in the last; rerun 4 in one; backward 4 in two, and gradients
    assert TMGCN.work(CHANGES, 2).exchanges == 3 * 2 + 1 + 4 + 3 * 2 + 1
    assert replace(TMGCN, model="evolvegcn-o").work(CHANGES, 2).exchanges == 1
    assert TMGCN.work(CHANGES, 2).sent.diagonal().tolist() == [0, 0]
    assert replace(TMGCN, itemsize=8).work(CHANGES, 2).sent.tolist() == (2 * TMGCN.work(CHANGES, 2).sent).tolist()


def test_a_grown_sequence_keeps_density_and_overlap():
    grown = scaled(CHANGES, 4)
    assert (grown.nodes, grown.edges.tolist()) == (20, [16, 24, 32, 40, 48])
    assert grown.overlap == CHANGES.overlap
    with pytest.raises(PlanError, match="larger factor"):
        scaled(CHANGES, 0.01)


def step(changes, ranks, *, alone=True, name="step"):
    work = TMGCN.work(changes, ranks)
    exchanged = 3e-4 * work.exchanges * log2(ranks) + 2e-9 * max(work.sent.sum(0).max(), work.sent.sum(1).max())
    seconds = work.passes @ RATES.compute, work.brought @ RATES.transfer
    described = (float(exchanged), float(exchanged + sum(seconds).max())) if alone else (None, None)
    return MeasuredStep(name, work, *seconds, *described)


LARGE = scaled(CHANGES, 400)
FITTED = [step(scaled(CHANGES, size), ranks) for ranks in (1, 2) for size in (40, 400, 900)]
FITTED += [step(replace(LARGE, edges=3 * LARGE.edges), 2), step(LARGE, 4, alone=False)]


def test_rates_are_found_again():
    actual = fit_scaling(FITTED)
    assert actual.message_s == pytest.approx(3e-4, rel=1e-6) and actual.byte_s == pytest.approx(2e-9, rel=1e-6)
    for work in (TMGCN.work(scaled(CHANGES, 700), 2), TMGCN.work(LARGE, 8)):
        near = NetworkCosts(per_node=8)
        described, truth = actual.predict(work, near), RATES.predict(work, near)
        for part in ("compute_s", "communicate_s", "transfer_s", "total_s"):
            assert getattr(described, part) == pytest.approx(getattr(truth, part), rel=1e-4), part


def test_no_rate_is_negative():
    """Steps that get faster the more they do: no rate can say that, and none becomes negative."""
    odd = [
        replace(one, compute_s=1 / one.compute_s, transfer_s=1e-6 / np.maximum(one.transfer_s, 1e-9)) for one in FITTED
    ]
    actual = fit_scaling(odd)
    assert (actual.compute >= 0).all() and actual.compute.any() and (actual.transfer >= 0).all()


def test_what_goes_between_nodes():
    sent = np.array([[0, 1, 2, 3], [10, 0, 20, 30], [100, 200, 0, 300], [1000, 2000, 3000, 0]], float)
    # within: 3 sends rank 2 3,000; between: node 1 sends 3,300, node 0 55
    assert NetworkCosts(per_node=2).moved(sent) == (3000, 3300)
    assert NetworkCosts(per_node=4).moved(sent) == (6000, 0)
    assert NetworkCosts(per_node=1).moved(sent) == (0, 6000)
    work = TMGCN.work(LARGE, 4)
    slow = RATES.predict(work, NetworkCosts(per_node=2, node_bytes_s=1e6)).communicate_s
    assert slow == pytest.approx(
        3e-4 * work.exchanges * 2
        + 2e-9 * NetworkCosts(per_node=2).moved(work.sent)[0]
        + NetworkCosts(per_node=2).moved(work.sent)[1] / 1e6
    )
    described = RATES.predict(work, NetworkCosts(rank_bytes_s=1e3, message_s=0.0)).communicate_s
    assert described == pytest.approx(max(work.sent.sum(0).max(), work.sent.sum(1).max()) / 1e3)
    for wrong in ({"per_node": 0}, {"node_bytes_s": -1.0}, {"message_s": -1.0}):
        with pytest.raises(PlanError, match=next(iter(wrong))):
            NetworkCosts(**wrong)


def test_what_was_never_measured_is_not_told():
    alone = fit_scaling([step(LARGE, 1)])
    with pytest.raises(PlanError, match="no run of two ranks"):
        alone.predict(TMGCN.work(LARGE, 2))
    assert alone.predict(TMGCN.work(LARGE, 2), NetworkCosts(rank_bytes_s=1e9, message_s=1e-4)).communicate_s > 0
    work = replace(TMGCN, blocks=1).work(LARGE, 1)
    never = fit_scaling([MeasuredStep("one block", work, work.passes @ RATES.compute, np.zeros(1), 0.0, 1.0)])
    with pytest.raises(PlanError, match="blocks=2"):
        never.predict(TMGCN.work(LARGE, 1))
    with pytest.raises(PlanError, match="steps is empty"):
        fit_scaling([])


def test_held_out_steps_judge():
    truth = step(scaled(CHANGES, 600), 2, name="held")
    slower = replace(truth, compute_s=2 * truth.compute_s)
    study = continued(FITTED, [slower], TMGCN, LARGE, ranks=(1, 2, 4), described="told")
    assert study.error("compute", fitted=True)[1] < 1e-4
    assert study.error("compute") == pytest.approx((0.5, 0.5), rel=1e-3)
    assert study.error("communicate")[1] < 1e-4
    rows = {(row["ranks"], row["source"]): row for row in study.rows}
    assert set(rows) == {
        (1, "predicted"),
        (1, "measured"),
        (2, "predicted"),
        (2, "measured"),
        (4, "predicted"),
        (4, "own time"),
    }
    assert rows[4, "own time"]["communicate_s"] is None and rows[4, "own time"]["speedup"] is None
    assert rows[2, "predicted"]["speedup"] == pytest.approx(rows[2, "measured"]["speedup"], rel=1e-4)
    assert "1 held-out step" in repr(study) and "told" in repr(study)
    json.dumps(study.rows + study.errors)


def test_weak_scaling_grows_the_graph():
    study = continued(FITTED, [], TMGCN, LARGE, ranks=(1, 4), weak=True)
    one, four = (row for row in study.rows if row["source"] == "predicted")
    assert four["nodes"] == 4 * one["nodes"] and four["edges"] == 4 * one["edges"]
    assert four["speedup"] == pytest.approx(4 * one["step_s"] / four["step_s"])
    assert "none was held out" in repr(study)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = lab.RunConfig(
        system="esdg",
        model="tmgcn",
        dataset="powerlaw",
        generated_nodes=40,
        generated_edges=380,
        generated_snapshots=30,
        hidden=6,
        blocks=2,
        epochs=3,
        device="cpu",
        threads=1,
        graph_storage="streamed",
    )
    return lab.train(config, runs_dir=tmp_path_factory.mktemp("runs"), progress=False)


def test_a_run_brings_what_is_counted(run):
    measured, settings, changes = measured_step(run)
    brought = run.table("transfers").query("step == 2")
    (counted,) = measured.work.brought.tolist()
    assert counted[0] == brought["snapshots"].sum() and counted[2] == brought["whole_bytes"].sum()
    assert counted[1] <= brought["bytes"].sum() <= counted[1] / 0.95  # bound, and the share of it that is reached
    assert (settings.pairs, settings.blocks, changes.nodes) == (0, 2, 40)
    steps = run.table("steps").query("step >= 1")
    assert measured.transfer_s[0] == pytest.approx(steps["transfer_s"].median())
    shared, _, _ = measured_step(run, cores=0)
    assert shared.communicate_s is None and shared.step_s is None
    assert float((shared.compute_s + shared.transfer_s)[0]) == pytest.approx(steps["cpu_s"].median())


def test_runs_are_continued(run):
    network = NetworkCosts(rank_bytes_s=1e9, message_s=1e-5)
    study = extrapolate([run], (1, 2, 8), network=network)
    assert [row["ranks"] for row in study.rows] == [1, 1, 2, 8]
    assert study.error(fitted=True)[1] < 0.01  # one step, several rates
    assert "tmgcn by snapshots, extrapolated from 1 run on up to 1 ranks" in study.described
    assert go.Figure(study.figure).layout.title.text == study.described
    assert "<table" in study._repr_html_()
    larger = extrapolate([run.path], (1,), size=10, network=network)
    assert larger.rows[0]["nodes"] == 400 and len(larger.rows) == 1
    with pytest.raises(PlanError, match="two ranks or more"):
        extrapolate([run], (2,))


def test_runs_that_do_not_fit_are_refused(run, tmp_path):
    with pytest.raises(ConfigError, match="at least one"):
        extrapolate([])
    with pytest.raises(ConfigError, match="needs runs or their folders"):
        extrapolate([3])
    settings = {
        "dataset": "powerlaw",
        "generated_nodes": 40,
        "generated_edges": 380,
        "generated_snapshots": 30,
        "epochs": 2,
        "device": "cpu",
        "threads": 1,
    }
    other = lab.train(
        lab.RunConfig(system="esdg", model="tmgcn", hidden=4, **settings), runs_dir=tmp_path, progress=False
    )
    with pytest.raises(ConfigError, match="differs from the first in hidden"):
        extrapolate([run], (1,), held_out=[other])
    single = lab.train(lab.RunConfig(system="single", **settings), runs_dir=tmp_path, progress=False)
    with pytest.raises(ConfigError, match="system 'single'"):
        extrapolate([single], (1,))
