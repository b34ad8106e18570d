import sys
from pathlib import Path

import pytest

from dtdg_lab.core.errors import LabError
from dtdg_lab.reproduction.experiment import read_experiments
from dtdg_lab.reproduction.procedures import load_procedure
from dtdg_lab.testing.example_graphs import power_law

FOLDER = Path(__file__).resolve().parents[3] / "reproduce"
EXPERIMENTS = {experiment.name: experiment for experiment in read_experiments(FOLDER, ("dynahb",))}
SEED = 99  # none of the stored rows'


def measure(name, **settings):
    experiment = EXPERIMENTS[name]
    return load_procedure(experiment)({**experiment.settings, **settings}, SEED)


@pytest.mark.parametrize("partition", ["hash", "metis", "load-aware"])
def test_the_loads_of_figure_4_are_compared_with_the_published_ones(partition):
    assert measure("figure4", partition=partition) == {"largest_difference": 0.0}


def test_a_partition_has_a_balance_and_a_cut():
    numbers = measure("section4-2", dataset="growing", partitioner="hash")
    assert numbers["load_imbalance"] >= 1
    assert 0 < numbers["cut_share"] <= 1


def test_a_simulated_controller_is_compared_with_the_best_size():
    landscape = "small batches are best"
    best, middle = (
        measure("table10-simulated", landscape=landscape, controller=f"{name} size")["over_best"]
        for name in ("best", "middle")
    )
    assert (best, middle >= 1) == (1.0, True)
    assert measure("table10-simulated", landscape=landscape, controller="random")["over_best"] > 1


def test_the_bound_of_lemma_1_is_tight_on_a_quadratic_and_loose_elsewhere():
    short = {"steps": 200, "runs": 2000, "p": 0.5, "noise": "weighted"}
    assert measure("lemma1", objective="quadratic", **short)["over_bound"] == pytest.approx(1, abs=0.01)
    assert measure("lemma1", objective="saturating", **short)["over_bound"] < 1


def test_noise_that_is_always_drawn_is_the_weighted_noise():
    short = {"objective": "quadratic", "steps": 20, "runs": 50, "p": 1.0}
    weighted, drawn = (measure("lemma1", noise=noise, **short)["over_bound"] for noise in ("weighted", "drawn"))
    assert weighted == pytest.approx(drawn, rel=0.2)


def test_the_learning_rate_of_lemma_2_falls_with_the_root_of_the_rounds():
    short = {"objective": "saturating", "noise": "weighted", "runs": 2, "workers": 2, "local_steps": 3}
    few, many = (measure("lemma2", rounds=rounds, **short) for rounds in (16, 64))
    assert few["gamma_times_smoothness"] == pytest.approx(2 * many["gamma_times_smoothness"])
    assert 0 < many["over_bound"] < 1


def test_a_share_of_a_graph_is_its_first_snapshots():
    module = sys.modules[load_procedure(EXPERIMENTS["table9"]).__module__]
    graph = power_law(nodes=20)
    half = module.shorten(graph, 0.5)
    assert (half.num_snapshots, half.num_nodes) == (round(graph.num_snapshots / 2), graph.num_nodes)
    assert half.snapshots == graph.snapshots[: half.num_snapshots]


SMALL = {
    "dataset": "growing",
    "system": "dynahb",
    "ranks": 1,
    "hidden": 4,
    "epoch_batches": 3,
    "batch_nodes": 0.5,
    "device": "cpu",
    "batch_policy": "none",
    "reservoir": False,
    "evaluate_every": 1,
}


def test_phases_of_a_step_sum_to_the_step():
    numbers = measure("table3", **SMALL, stop={"epochs": 2})
    assert numbers["step_s"] > numbers["compute_s"] > 0
    assert numbers["exchange_share"] == pytest.approx(
        (numbers["wait_s"] + numbers["communicate_s"]) / numbers["step_s"]
    )
    assert numbers["batch_over_compute"] == pytest.approx(numbers["batch_s"] / numbers["compute_s"])


def test_a_training_on_a_share_leaves_a_curve():
    numbers = measure("table9", **SMALL, fraction=0.5, stop={"epochs": 2})
    assert len(numbers["curve"]) == 2
    assert numbers["persistence_loss"] > 0


def test_a_failed_training_says_so():
    with pytest.raises(LabError):
        measure("table3", **SMALL | {"layers": 1000})


def test_the_mean_error_of_sampled_nodes_is_compared_with_chance():
    settings = {"dataset": "growing", "hidden": 4, "device": "cpu"}
    numbers = measure("lemma1-assumption", **settings, batch_nodes=0.5, draws=30)
    assert 0 < numbers["bias_over_chance"] < 10
    assert numbers["noise_over_gradient"] > 0
    whole = measure("lemma1-assumption", **settings, batch_nodes=0.99, draws=30)
    assert whole["noise_over_gradient"] < numbers["noise_over_gradient"]
