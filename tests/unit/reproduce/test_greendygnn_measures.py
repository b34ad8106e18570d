import sys
from pathlib import Path

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.reproduction.experiment import read_experiments
from dtdg_lab.reproduction.procedures import load_procedure
from dtdg_lab.rl.dqn import QNetwork
from dtdg_lab.systems.feature_cache.policies.learned import StoredPolicy

FOLDER = Path(__file__).resolve().parents[3] / "reproduce"
EXPERIMENTS = {experiment.name: experiment for experiment in read_experiments(FOLDER, ("greendygnn",))}
SEED = 0  # the paper's training is stored for it
SMALL = {
    "nodes": 240,
    "degree": 6,
    "features": 16,
    "batch_size": 20,
    "cache_rows": 40,
    "fanouts": "3 3",
    "mbit": 20.0,
    "ranks": 1,
    "epochs": 4,
    "congestion_from": 1,
    "congestion_cycle": 1,
    "congestion_table": "1:2",
}


def measure(name, **settings):
    experiment = EXPERIMENTS[name]
    return load_procedure(experiment)({**experiment.settings, **settings}, SEED)


@pytest.fixture
def measures():
    return sys.modules[load_procedure(EXPERIMENTS["table1"]).__module__]


@pytest.mark.slow
def test_a_training_is_compared_with_clean_links_by_its_steps():
    rows = measure("table1", **SMALL, system="fixed-window", throttled=True)
    assert rows["joules"] / rows["clean_joules"] == pytest.approx(1 + rows["overhead"])
    assert rows["robustness"] == 1 - rows["overhead"]
    assert 2 * rows["slow_s"] + 2 * rows["quiet_s"] == pytest.approx(4 * rows["epoch_s"])
    assert 2 * rows["slow_j"] + 2 * rows["quiet_j"] == pytest.approx(rows["joules"])
    assert rows["clean_slow_j"] is None
    assert rows["last_loss"] == rows["clean_last_loss"]
    assert 0 < rows["slow_hit_peak"] <= 1
    assert rows["energy_source"]


@pytest.mark.slow
def test_windows_of_a_policy_are_means_over_steps():
    rows = measure("table2", **{**SMALL, "batch_size": 4}, system="greendygnn", training="paper", uniform=True)
    assert rows["biased_share"] == 0
    assert 1 <= rows["quiet_window"] <= 128


@pytest.mark.slow
def test_a_reward_is_compared_with_its_simulation():
    short = {"rows": [10, 100], "repeats": 2, "calibration_steps": 8, "batch_size": 4}
    rows = measure("live_reward", **{**SMALL, **short})
    assert rows["reward_difference"] == abs(rows["reward"] / rows["simulated_reward"] - 1)
    assert rows["decisions"] > 0


def test_a_graph_has_popular_nodes_and_is_the_same_twice(measures):
    graph, again = (measures.make_graph(240, 6, 16) for _ in range(2))
    assert (graph.num_nodes, graph.num_features, graph.static_features) == (240, 16, True)
    pulled = np.sort(np.bincount(graph.snapshots[0].indices, minlength=240))
    assert pulled[-24:].sum() > 0.5 * pulled[:120].sum()
    assert np.array_equal(graph.snapshots[0].indices, again.snapshots[0].indices)


def test_a_policy_without_bias_keeps_the_best_uniform_window(measures):
    sizes = (23, 8, 32)
    parameters = QNetwork.drawn(sizes, 3).parameters.astype(np.float32)
    stored = StoredPolicy("double_dqn", 4, 0, 1, True, (8,), False, ("x",), "y", parameters)
    states = np.random.default_rng(0).standard_normal((200, 23)).astype(np.float32)
    values = QNetwork(sizes, stored.parameters).values(states)
    uniform = QNetwork(sizes, measures.without_bias(stored).parameters).values(states)
    assert np.array_equal(uniform.argmax(axis=1), values[:, :8].argmax(axis=1))
    assert (values.argmax(axis=1) >= 8).any()  # which it no longer takes


def test_initiation_is_the_intercept_of_the_calls(measures, monkeypatch):
    def calls(rows, features, **_):
        return [
            {"rows": count, "concurrent": at_once, "rtt_s": 2e-4 + 5e-10 * 4 * features * count + 9.0 * at_once}
            for count in rows
            for at_once in (0, 1)
        ]

    monkeypatch.setattr(measures, "measure", calls)
    rows = measure("figure1", features=100)
    assert rows["crossover_rows"] == pytest.approx(1000, rel=1e-3)
    assert rows["initiation_of_100"] == pytest.approx(1 / 1.1, rel=1e-3)


def test_a_decision_is_timed_beside_a_call():
    rows = measure("overhead", policy="double_dqn", repeats=2)
    assert rows["decision_share"] == rows["decision_s"] / rows["call_s"]
    assert rows["episode_ms"] > 0


@pytest.mark.slow
def test_policies_are_compared_with_the_optimum():
    costs = {"dataset": "ogbn-products", "pattern": "one_slow", "episodes": 1}
    best, fixed = (measure("controllers", **costs, policy=policy) for policy in ("best fixed", "fixed-16"))
    assert 1 <= best["over_optimum"] <= fixed["over_optimum"]
    assert (best["over_best_fixed"], fixed["cases"]) == (1, 6)
    assert measure("controllers", **costs, policy="clairvoyant")["over_optimum"] == pytest.approx(1)


def test_throttled_links_cost_what_the_campaign_measured():
    clean, slow = (measure("campaign", dataset="ogbn-products", mbit=mbit, policy="fixed-16") for mbit in (0, 50))
    assert 2_000 < clean["epoch_j"] < 3_500  # measured: 2,190
    assert 20_000 < slow["epoch_j"] < 50_000  # 34,400


def test_step_times_need_the_authors_measurements(measures, monkeypatch, tmp_path):
    measures._calibration.cache_clear()
    monkeypatch.setenv("DTDG_LAB_DATA", str(tmp_path / "real"))
    with pytest.raises(ConfigError, match=r"step_time\.csv"):
        measure("figure8", dataset="reddit", left_out="cell")


def test_step_times_are_predicted_with_cells_left_out(measures, monkeypatch, tmp_path):
    from dtdg_lab.systems.feature_cache.calibration.calibration import SHIPPED

    model = SHIPPED.steps["reddit"]
    cells = [("clean", np.inf, 0, window) for window in (1, 2, 4, 16, 64)]
    cells += [("c1_200mbit", 200, 0, 16), ("c1_50mbit", 50, 0, 16), ("c4_10ms", np.inf, 10, 16)]
    lines = [
        f"reddit,{name},{window},{float(model.step_ms(window, mbit, delay))}" for name, mbit, delay, window in cells
    ]
    folder = tmp_path / "greendygnn"
    folder.mkdir()
    (folder / "step_time.csv").write_text("\n".join(["dataset,condition,window,measured_ms", *lines]))
    measures._calibration.cache_clear()
    monkeypatch.setenv("DTDG_LAB_DATA", str(tmp_path / "real"))
    try:
        rows = measure("figure8", dataset="reddit", left_out="nothing")
    finally:
        measures._calibration.cache_clear()
    assert rows["mean_percent"] < 1
    assert rows["cells"] == 8
