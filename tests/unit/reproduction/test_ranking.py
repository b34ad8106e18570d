from dataclasses import replace
from pathlib import Path

import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.reproduction.cells import cells_of
from dtdg_lab.reproduction.experiment import Experiment
from dtdg_lab.reproduction.ranking import Ranking, rank
from dtdg_lab.reproduction.rows import MeasuredRow

PROBLEMS = ["a", "b", "c", "d", "e", "f"]


def experiment_of(systems=("first", "second", "third"), values=("test_loss",)):
    return Experiment(
        paper="ours",
        name="which",
        folder=Path("ours"),
        title="",
        source="",
        question="",
        protocol="",
        procedure="measure",
        cell_s=1,
        seeds=(0, 1),
        over={"problem": PROBLEMS, "system": list(systems)},
        ranking={"axis": "system", "values": values},
    )


def rows_of(experiment, loss, persistence=1.0, joules=(10.0, 10.0)):
    """A row of each cell; ``loss`` is a function of problem, system and seed."""
    return [
        MeasuredRow(
            key=cell.key,
            labels=cell.labels,
            seed=cell.seed,
            seconds=1,
            rules=(),
            commit="",
            date="",
            device="cpu",
            machine={},
            curve=((1.0, joules[0], 0.9), (2.0, sum(joules), loss(*cell.labels.values(), cell.seed))),
            values={"test_loss": loss(*cell.labels.values(), cell.seed), "persistence_loss": persistence},
        )
        for cell in cells_of(experiment)
    ]


def test_the_system_that_is_always_first_is_better_than_the_last():
    experiment = experiment_of()
    order = {"first": 0.1, "second": 0.2, "third": 0.3}
    (ranking,) = rank(experiment, rows_of(experiment, lambda problem, system, seed: order[system] + seed / 100))
    assert ranking.mean_ranks == {"first": 1.0, "second": 2.0, "third": 3.0}
    assert ranking.critical_difference == pytest.approx(2.343 * (3 * 4 / 36) ** 0.5, abs=1e-3)  # Demsar's Table 5
    assert ranking.alike == ("second",)
    assert ranking.p_value < 0.01
    assert ranking.unbeaten == ()
    assert ranking.sentences() == (
        "By test loss after equal seconds, first has the best mean rank: 1.0 of 3 systems over 6 problems.",
        "It is indistinguishable from second (critical difference 1.4, p = 0.0025 that all are alike).",
        "Some system is better than persistence on every problem.",
    )


@pytest.mark.parametrize(("p_value", "alike"), [(0.07, ("second",)), (0.04, ())])
def test_no_system_is_better_where_all_may_be_alike(p_value, alike):
    """Nemenyi's test presumes that Friedman's has found a difference."""
    ranking = Ranking("test_loss", {}, {"first": 1.0, "second": 5.0}, 2.0, p_value, {}, None)
    assert ranking.alike == alike


def test_problems_in_which_persistence_wins_are_named():
    experiment = experiment_of()

    def loss(problem, system, seed):
        return (2.0 if problem == "c" else 0.5) + len(system) / 100

    (ranking,) = rank(experiment, rows_of(experiment, loss))
    assert ranking.unbeaten == ("c",)
    assert ranking.sentences()[2] == "Persistence is better than every system on c."


def test_a_system_that_does_not_apply_everywhere_is_ranked_where_it_does():
    experiment = experiment_of(("first", "second", "third", "fourth"))
    rows = rows_of(experiment, lambda problem, system, seed: len(system) / 10)
    lacking = [
        MeasuredRow(**{name: getattr(row, name) for name in row.__slots__} | {"values": {}, "failed": "no"})
        if row.labels == {"problem": "b", "system": "fourth"}
        else row
        for row in rows
    ]
    ranking, of_all = rank(experiment, lacking)
    assert ranking.left_out == {"fourth": 5} and list(ranking.problems) == PROBLEMS
    assert list(ranking.mean_ranks) == ["first", "third", "second"]
    assert of_all.left_out == {} and list(of_all.problems) == [problem for problem in PROBLEMS if problem != "b"]
    assert list(of_all.mean_ranks) == ["first", "third", "second", "fourth"]
    with pytest.raises(ConfigError, match="2 systems have test_loss"):
        rank(experiment_of(("first", "second")), rows_of(experiment_of(("first", "second")), lambda *_: 1.0))


def test_losses_within_equal_joules_are_those_of_the_cheapest_training():
    experiment = experiment_of(values=("within_j",))
    rows = [
        MeasuredRow(
            key=cell.key,
            labels=cell.labels,
            seed=cell.seed,
            seconds=1,
            rules=(),
            commit="",
            date="",
            device="cpu",
            machine={},
            values={},
            curve=((1.0, 10.0, 0.5), (2.0, 100.0, 0.1)) if cell.labels["system"] == "first" else ((1.0, 20.0, 0.4),),
        )
        for cell in cells_of(experiment)
    ]
    (ranking,) = rank(experiment, rows)
    assert ranking.problems["a"] == {"first": 0.5, "second": 0.4, "third": 0.4}  # 0.1 took more than 20 J


def test_a_training_that_failed_sets_no_budget_of_joules():
    experiment = experiment_of(("first", "second", "third", "fourth"), values=("within_j",))
    rows = [
        replace(row, values={}, failed="no", curve=()) if row.labels == {"problem": "b", "system": "fourth"} else row
        for row in rows_of(experiment, lambda problem, system, seed: len(system) / 10)
    ]
    ranking, of_all = rank(experiment, rows)
    assert list(ranking.mean_ranks) == ["first", "third", "second"] and ranking.left_out == {"fourth": 5}
    assert list(of_all.problems) == [problem for problem in PROBLEMS if problem != "b"]


def test_there_is_no_ranking_until_all_cells_are_measured():
    experiment = experiment_of()
    assert rank(experiment, rows_of(experiment, lambda *_: 1.0)[1:]) == []
