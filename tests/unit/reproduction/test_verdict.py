from dataclasses import replace
from pathlib import Path

import pytest

from dtdg_lab.reproduction.cells import cells_of
from dtdg_lab.reproduction.experiment import Experiment
from dtdg_lab.reproduction.rows import MeasuredRow
from dtdg_lab.reproduction.verdict import FAILS, HOLDS, MISSING, PARTLY, UNTESTABLE, judge

PAPER = {"size": 0.2, "text": "20 % less"}
CLAIM = {
    "name": "less",
    "text": "a is less than b",
    "rule": "less",
    "value": "cost",
    "ours": {"side": "a"},
    "rival": {"side": "b"},
    "paper": PAPER,
}


def experiment_of(claim, **entries) -> Experiment:
    return Experiment(
        **{
            "paper": "paper",
            "name": "table1",
            "folder": Path("paper"),
            "title": "",
            "source": "",
            "question": "",
            "protocol": "",
            "procedure": "measure",
            "cell_s": 1,
            "over": {"side": ["a", "b"], "graph": ["x", "y"]},
            "claims": (claim,),
            **entries,
        }
    )


def rules_of(experiment):
    return tuple(map(experiment.rule_digest, experiment.claims))


def rows_of(experiment, cost, **values):
    """A row of every cell; ``cost`` is a function of its labels and seed."""
    return [
        MeasuredRow(
            key=cell.key,
            labels=cell.labels,
            seed=cell.seed,
            seconds=1,
            rules=rules_of(experiment),
            commit="",
            date="",
            device="cpu",
            machine={"cpu": "a", "cores": 2, "memory_gib": 24, "torch": "2"},
            **{"values": {"cost": cost(cell.labels, cell.seed)}, **values},
        )
        for cell in cells_of(experiment)
    ]


def verdict(cost, claim=CLAIM, **entries):
    experiment = experiment_of(claim, **entries)
    (found,) = judge(experiment, rows_of(experiment, cost))
    return found


def costs(*, ours, seeds=(0.0, 0.01, -0.01)):
    """A cost of 1 for b, and by graph for a, with a little that follows the seed."""
    return lambda labels, seed: 1.0 if labels["side"] == "b" else ours[labels["graph"]] + seeds[seed]


@pytest.mark.parametrize(
    ("ours", "decision"),
    [
        ({"x": 0.7, "y": 0.9}, HOLDS),  # 20 % less
        ({"x": 0.89, "y": 0.89}, HOLDS),  # 11 %: more than half of 20 %
        ({"x": 0.92, "y": 0.92}, PARTLY),  # 8 %: less than half
        ({"x": 0.5, "y": 1.2}, PARTLY),  # better in one of two comparisons
        ({"x": 1.1, "y": 1.0}, FAILS),
    ],
)
def test_half_of_the_size_in_most_comparisons_holds(ours, decision):
    assert verdict(costs(ours=ours)).decision == decision


def test_an_interval_over_seeds_that_includes_zero_holds_partly():
    found = verdict(costs(ours={"x": 0.8, "y": 0.8}, seeds=(0.0, 0.3, -0.3)))
    assert found.gain == pytest.approx(0.2)
    assert found.low is not None and found.low < 0
    assert found.decision == PARTLY


def test_one_seed_of_a_random_result_holds_partly_at_most():
    cost = costs(ours={"x": 0.5, "y": 0.5})
    assert verdict(cost, seeds=(0,)).decision == PARTLY
    assert verdict(cost, seeds=(0,), deterministic=True).decision == HOLDS


def test_times_are_pooled_as_logarithms():
    claim = CLAIM | {"rule": "times", "paper": {"size": 3.0, "text": "3 times"}}
    found = verdict(
        lambda labels, seed: 1.0 if labels["side"] == "b" else {"x": 0.25, "y": 1.0}[labels["graph"]], claim
    )
    assert found.gain == pytest.approx(2.0)
    assert found.decision == PARTLY  # faster on one of two graphs, and equal on the other


def test_times_of_one_comparison_are_pooled_as_logarithms_too():
    claim = CLAIM | {"rule": "times", "paper": {"size": 3.0, "text": "3 times"}}
    found = verdict(
        lambda labels, seed: (0.25, 1.0, 4.0)[seed] if labels["side"] == "a" else 1.0, claim, over={"side": ["a", "b"]}
    )
    (comparison,) = found.comparisons
    assert comparison.gain == pytest.approx(1.0) == found.gain


@pytest.mark.parametrize(("share", "decision"), [(1.0, HOLDS), (0.5, PARTLY), (None, PARTLY)])
def test_modelled_energy_holds_partly_at_most(share, decision):
    experiment = experiment_of(CLAIM | {"value": "epoch_j"})
    rows = [
        replace(row, values={"epoch_j": row.values["cost"], "measured_share": share})
        for row in rows_of(experiment, costs(ours={"x": 0.7, "y": 0.7}))
    ]
    (found,) = judge(experiment, rows)
    assert (found.decision, found.is_modelled) == (decision, share != 1.0)


def test_energy_on_clean_links_has_a_measured_share_of_its_own():
    experiment = experiment_of(CLAIM | {"value": "clean_joules"})
    shares = {"measured_share": 0.0, "clean_measured_share": 1.0}
    rows = [
        replace(row, values={"clean_joules": row.values["cost"], **shares})
        for row in rows_of(experiment, costs(ours={"x": 0.7, "y": 0.7}))
    ]
    (verdict_of_clean,) = judge(experiment, rows)
    assert (verdict_of_clean.decision, verdict_of_clean.is_modelled) == (HOLDS, False)


def test_equality_needs_the_interval_within_the_tolerance():
    claim = CLAIM | {"rule": "equal", "paper": {"size": 0.05, "text": "the same"}}
    assert verdict(costs(ours={"x": 1.0, "y": 1.0}, seeds=(0.0, 0.001, -0.001)), claim).decision == HOLDS
    assert verdict(costs(ours={"x": 1.0, "y": 1.0}, seeds=(0.0, 0.1, -0.1)), claim).decision == PARTLY
    assert verdict(costs(ours={"x": 1.2, "y": 1.2}), claim).decision == FAILS


def test_no_more_than_the_rival_welcomes_less():
    claim = CLAIM | {"rule": "no_more", "paper": {"size": 0.05, "text": "at most 5 % more"}}
    assert verdict(costs(ours={"x": 0.5, "y": 1.0}), claim).decision == HOLDS
    assert verdict(costs(ours={"x": 1.04, "y": 1.04}, seeds=(0.0, 0.1, -0.1)), claim).decision == PARTLY
    assert verdict(costs(ours={"x": 1.1, "y": 1.1}), claim).decision == FAILS


def test_a_limit_has_to_be_kept_in_every_comparison():
    claim = {**CLAIM, "rule": "at_most", "rival": {}, "paper": {"size": 0.5, "text": "at most half"}}
    assert verdict(costs(ours={"x": 0.4, "y": 0.4}), claim).decision == HOLDS
    assert verdict(costs(ours={"x": 0.6, "y": 0.3}), claim).decision == PARTLY
    assert verdict(costs(ours={"x": 0.6, "y": 0.6}), claim).decision == FAILS
    assert verdict(costs(ours={"x": 0.4, "y": 0.4}), claim, seeds=(0,)).decision == PARTLY


def test_the_best_rival_is_chosen_for_each_comparison():
    over = {"side": ["a", "b", "c"], "graph": ["x"]}
    claim = CLAIM | {"rival": {"side": ["b", "c"]}, "best_rival": True}
    cost = {"a": 0.8, "b": 1.0, "c": 0.5}
    found = verdict(lambda labels, seed: cost[labels["side"]], claim, over=over)
    assert [comparison.rival for comparison in found.comparisons] == [{"side": "c"}]
    assert found.decision == FAILS


def test_no_more_is_asked_beside_the_rival_that_has_least():
    over = {"side": ["a", "b", "c"], "graph": ["x"]}
    claim = CLAIM | {"rule": "no_more", "rival": {"side": ["b", "c"]}, "best_rival": True}
    cost = {"a": 0.8, "b": 1.0, "c": 0.5}
    found = verdict(lambda labels, seed: cost[labels["side"]], claim, over=over)
    assert [comparison.rival for comparison in found.comparisons] == [{"side": "c"}]
    assert found.decision == FAILS


def test_a_missing_cell_decides_nothing():
    experiment = experiment_of(CLAIM)
    (found,) = judge(experiment, rows_of(experiment, costs(ours={"x": 0.5, "y": 0.5}))[1:])
    assert (found.decision, found.reason) == (MISSING, "1 of 12 cells are missing")


def test_a_row_that_was_measured_under_another_rule_decides_nothing():
    rows = rows_of(experiment_of(CLAIM), costs(ours={"x": 0.5, "y": 0.5}))
    relaxed = experiment_of(CLAIM | {"paper": PAPER | {"size": 0.1}})
    assert judge(relaxed, rows)[0].decision == MISSING


def test_failed_cells_and_reasons_cannot_be_tested():
    experiment = experiment_of(CLAIM)
    rows = rows_of(experiment, costs(ours={"x": 0.5, "y": 0.5}), failed="out of memory", values={})
    (found,) = judge(experiment, rows)
    assert (found.decision, found.reason) == (UNTESTABLE, "out of memory")
    named = {"name": "large", "text": "", "paper": {"text": "732 GB"}, "untestable": "needs 732 GB"}
    assert judge(experiment_of(named, over={}), [])[0].decision == UNTESTABLE


def test_comparisons_that_a_constant_wins_do_not_count():
    claim = CLAIM | {"value": "test_loss", "needs_skill": True}
    experiment = experiment_of(claim)
    losses = {("a", "x"): 0.5, ("b", "x"): 0.9, ("a", "y"): 1.5, ("b", "y"): 1.1}
    rows = [
        MeasuredRow(
            key=cell.key,
            labels=cell.labels,
            seed=cell.seed,
            seconds=1,
            rules=rules_of(experiment),
            commit="",
            date="",
            device="cpu",
            machine={"cpu": "a", "cores": 2, "memory_gib": 24, "torch": "2"},
            values={"test_loss": losses[cell.labels["side"], cell.labels["graph"]], "persistence_loss": 1.0},
        )
        for cell in cells_of(experiment)
    ]
    (found,) = judge(experiment, rows)
    assert [comparison.left_out for comparison in found.comparisons] == [
        "",
        "no compared system predicts better than persistence",
    ]
    assert found.gain == pytest.approx(1 - 0.5 / 0.9)


def test_ours_gains_nothing_where_it_does_not_reach_the_loss():
    claim = CLAIM | {"rule": "times", "value": "near_s", "paper": {"size": 2.0, "text": "2 times"}}
    experiment = experiment_of(claim, over={"side": ["a", "b"]})
    curves = {"a": ((1.0, None, 0.9),), "b": ((1.0, None, 0.8), (9.0, None, 0.4))}  # ours ends early, and far away
    rows = [replace(row, curve=curves[row.labels["side"]]) for row in rows_of(experiment, lambda labels, seed: 1.0)]
    (found,) = judge(experiment, rows)
    assert [comparison.censored for comparison in found.comparisons] == [True]
    assert (found.gain, found.decision) == (1.0, FAILS)


def test_opposite_deviations_are_not_equal():
    claim = CLAIM | {"rule": "equal", "paper": {"size": 0.05, "text": "the same"}}
    assert verdict(costs(ours={"x": 1.3, "y": 0.7}), claim).decision == FAILS
    assert verdict(costs(ours={"x": 1.06, "y": 0.98}, seeds=(0.0, 0.001, -0.001)), claim).decision == PARTLY


def test_a_limit_has_to_be_kept_by_the_interval_over_seeds():
    claim = {**CLAIM, "rule": "at_most", "rival": {}, "paper": {"size": 3.0, "text": "at most 3"}}
    assert verdict(costs(ours={"x": 2.36, "y": 1.0}, seeds=(2.44, -2.03, -0.42)), claim).decision == PARTLY


def test_a_failed_rival_leaves_the_best_rival_in_doubt():
    over = {"side": ["a", "b", "c"], "graph": ["x"]}
    claim = CLAIM | {"rival": {"side": ["b", "c"]}, "best_rival": True}
    experiment = experiment_of(claim, over=over)
    rows = rows_of(experiment, lambda labels, seed: {"a": 0.5, "b": 1.0, "c": 1.0}[labels["side"]])
    assert judge(experiment, rows)[0].decision == HOLDS
    rows = [replace(row, failed="out of memory") if row.labels["side"] == "c" else row for row in rows]
    (found,) = judge(experiment, rows)
    assert found.decision == PARTLY
    assert [comparison.left_out for comparison in found.comparisons] == ["", "out of memory"]


def test_times_of_several_machines_are_not_compared():
    experiment = experiment_of(CLAIM, timed=True)
    rows = rows_of(experiment, costs(ours={"x": 0.7, "y": 0.7}))
    elsewhere = [
        replace(row, machine=row.machine | {"cpu": "b"}) if row.labels["side"] == "b" else row for row in rows[:-1]
    ]
    (found,) = judge(experiment, [*elsewhere, rows[-1]])
    assert (found.decision, found.reason) == (MISSING, "5 of 12 cells are missing")


def test_a_rival_of_zero_makes_no_ratio():
    found = verdict(lambda labels, seed: 0.0 if labels["graph"] == "y" else 1.0)
    assert [comparison.left_out for comparison in found.comparisons] == ["", "there is no ratio, since cost is 0"]
