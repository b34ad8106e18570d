"""What a race refuses, when its runs end, who may be called the best, and which losses should be the same."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.cluster.stopping_rule import Evaluated
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import all_rollups
from dtdg_lab.studies.race_plan import RacePlan, StopRule, contestants, data_hashes, labels_for
from dtdg_lab.studies.race_table import best, spread
from dtdg_lab.studies.same_losses import checks, groups, same_losses
from tests.factories import small_config
from tests.synthetic_lines import evaluation_row, line, step_row


def seen(*losses: float | None, seconds: float = 1.0) -> tuple[Evaluated, ...]:
    return tuple(Evaluated(at, at, at * seconds, loss) for at, loss in enumerate(losses, 1))


# the stopping rule


def test_a_run_ends_where_the_loss_is_low_the_time_is_over_or_nothing_is_gained():
    assert StopRule(loss=0.5).verdict(seen(0.9, 0.6)) is None
    assert StopRule(loss=0.5).verdict(seen(0.9, 0.5)).what == "finish"
    assert StopRule(seconds=3).verdict(seen(0.9, 0.8)) is None
    assert "time limit of 3.0 s" in StopRule(seconds=3).verdict(seen(0.9, 0.8, 0.7)).why
    patient = StopRule(patience=2)
    assert patient.verdict(seen(0.9, 0.8, 0.81)) is None
    assert patient.verdict(seen(0.9, 0.8, 0.81, 0.8)).what == "finish", "as low as before is no gain"
    assert patient.verdict(seen(0.9, 0.8, 0.81, 0.79)) is None
    assert patient.verdict(seen(None, None, 0.9)) is None and patient.verdict(seen(0.9, None, None)) is not None
    assert StopRule(epochs=3).verdict(seen(0.1)) is None, "epochs are the config's"


@given(
    losses=st.lists(st.floats(0.01, 10), min_size=2, max_size=12), patience=st.integers(1, 4), more=st.floats(0.0, 5.0)
)
def test_more_patience_never_ends_a_run_sooner(losses, patience, more):
    def ends(rule: StopRule) -> int:
        return next((at for at in range(1, len(losses) + 1) if rule.verdict(seen(*losses[:at]))), len(losses) + 1)

    assert ends(StopRule(patience=patience + 1)) >= ends(StopRule(patience=patience)) > min(patience, len(losses))
    assert ends(StopRule(seconds=2 + more)) >= ends(StopRule(seconds=2))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "needs a condition"),
        ({"patience": 0}, "patience=0"),
        ({"patience": 1.5}, "patience=1.5"),
        ({"seconds": 0}, "above 0"),
        ({"loss": math.nan}, "loss=nan"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        StopRule(**wrong)


def test_a_rule_on_validation_needs_a_validation_part():
    with pytest.raises(ConfigError, match=r"dynahb-2024.*has none.*warm"):
        contestants(
            [small_config(protocol="dynahb-2024"), small_config("single", protocol="dynahb-2024")],
            seeds=(0,),
            stop=StopRule(patience=2),
        )
    assert StopRule.from_dict(StopRule(loss=0.5, epochs=3).to_dict()) == StopRule(loss=0.5, epochs=3)


# what contestants have in common


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"protocol": "leaky"}, {}, r"the same `protocol`, but 'psg' has 'leaky', 'single' has 'warm'"),
        ({"epochs": 7}, {}, r"`epochs`, .* has 7, .* has 5"),
        ({"dtype": "float64"}, {}, r"`dtype`, .* has 'float64', .* has 'float32'"),
        ({}, {"evaluate_every": 2}, r"`evaluate_every`, .* has 1, .* has 2"),
        ({"hidden": 8}, {}, r"`hidden`, .* has 8, .* has 4.*or compare its values"),
        ({"model": "wdgcn"}, {}, r"`model`, .* has 'wdgcn', .* has 'tgcn'"),
        ({"power_max_w": 200.0}, {}, r"`power_max_w`, .* has 200"),
    ],
)
def test_what_must_be_alike_is_named_with_both_values(one, other, said):
    with pytest.raises(ConfigError, match=said):
        contestants([small_config(**one), small_config("single", **other)], seeds=(0, 1), stop=None)


def test_a_model_may_be_raced_where_the_system_is_one_and_epochs_may_come_from_the_rule():
    found = contestants([small_config(model="tgcn"), small_config(model="wdgcn")], seeds=(3,), stop=None)
    assert list(found) == ["psg, model tgcn", "psg, model wdgcn"] and {each.seed for each in found.values()} == {3}
    found = contestants([small_config(epochs=3), small_config("single", epochs=9)], seeds=(0,), stop=StopRule(epochs=4))
    assert {each.epochs for each in found.values()} == {4}


@pytest.mark.parametrize(
    ("configs", "seeds", "said"),
    [
        ([small_config()], (0,), "at least two"),
        ([small_config(), small_config("single")], (), "at least one"),
        ([small_config(), small_config("single")], (0, 0), "only once"),
        ([small_config(), small_config(seed=4)], (0,), "same settings"),
        ([small_config(), "single"], (0,), "a RunConfig for each"),
        ({"a": small_config(), "": small_config("single")}, (0,), "label ''"),
    ],
)
def test_what_is_no_race_is_refused(configs, seeds, said):
    with pytest.raises(ConfigError, match=said):
        contestants(configs, seeds=seeds, stop=None)


def test_other_data_are_refused_with_what_differs_and_the_hash_follows_the_seed():
    pair = contestants([small_config(), small_config("single", churn=0.2)], seeds=(0,), stop=None)
    with pytest.raises(ConfigError, match=r"churn=0.1 and churn=0.2"):
        data_hashes(pair, (0,))
    hashes = data_hashes(contestants([small_config(), small_config("single")], seeds=(0, 1), stop=None), (0, 1))
    assert hashes[0] != hashes[1] and all(len(digits) == 64 for digits in hashes.values())


def test_labels_tell_contestants_apart_however_much_they_share():
    many = [
        small_config("dbov", batch_nodes=share, load_groups=groups_, epoch_batches=number)
        for share in (0.1, 0.2)
        for groups_ in (4, 5)
        for number in (3, 4)
    ]
    labels = labels_for(many)
    assert len(set(labels)) == len(labels) and max(map(len, labels)) <= 66
    assert labels_for([small_config(), small_config("single")]) == ["psg", "single"]


def test_every_contestant_begins_a_round_in_turn():
    cells = RacePlan(name="x", configs={"a": small_config(), "b": small_config("single")}, seeds=(5, 6, 7)).cells
    order = [(cell.settings["contestant"], cell.seed) for cell in cells]
    assert order == [("a", 5), ("b", 5), ("b", 6), ("a", 6), ("a", 7), ("b", 7)]


# who is best


def test_bold_needs_spreads_that_do_not_touch():
    apart = {"a": spread([1.0, 2.0]), "b": spread([2.1, 3.0]), "c": spread([9.0, 9.5])}
    assert best(apart) == "a" and best(apart, high_is_good=True) == "c"
    assert best({"a": spread([1.0, 2.0]), "b": spread([2.0, 3.0])}) is None, "they touch"
    assert best({"a": spread([1.0]), "b": spread([2.1])}) is None, "a single seed has no spread"
    assert best({"a": spread([1.0, 1.1]), "b": spread([2.1])}) is None
    wide = {"a": spread([1.0, 2.0]), "b": spread([2.5, 2.6]), "c": spread([1.5, 9.0])}
    assert best(wide) is None, "the median of c is the last, but one of its seeds is not"
    assert best({"a": spread([1.0, math.inf]), "b": spread([5.0, 6.0])}) is None, "a seed never got there"
    assert best({"a": spread([1.0, 2.0]), "b": spread([math.inf, math.inf])}) == "a"
    assert best({"a": spread([1.0, 2.0]), "b": spread([None, None])}) is None, "nothing is known of b"


@given(
    groups_=st.lists(st.lists(st.floats(-100, 100), min_size=2, max_size=5), min_size=2, max_size=5), high=st.booleans()
)
def test_the_best_beats_every_seed_of_everybody(groups_, high):
    spreads = {str(at): spread(values) for at, values in enumerate(groups_)}
    found = best(spreads, high_is_good=high)
    sign = -1 if high else 1
    beats = [
        at
        for at, own in enumerate(groups_)
        if all(
            sign * mine < sign * theirs
            for mine in own
            for k, other in enumerate(groups_)
            if k != at
            for theirs in other
        )
    ]
    assert found == (str(beats[0]) if beats else None)


def test_a_spread_counts_who_never_got_there():
    each = spread([1.0, math.inf, 3.0, None])
    assert (each.middle, each.low, each.high, each.count, each.missed) == (3.0, 1.0, 3.0, 3, 1)
    assert spread([None]).middle is None and spread([1.0, math.inf, math.inf]).middle == math.inf


# whose losses are the same


def test_full_batches_coincide_whatever_the_layout_and_paths_of_features_do():
    configs = {
        name: small_config(name, parts=1 if name == "single" else 2)
        for name in ("single", "adgnn-t", "pygt-dist", "esdg", "hypergraph-vertex", "psg", "flaredtdg")
    }
    ((labels, _),) = groups(configs)
    assert labels == ("single", "adgnn-t", "pygt-dist", "esdg", "hypergraph-vertex")
    remote = {
        name: small_config(name, model="graphsage", parts=2) for name in ("dgl-default", "bgl", "greendygnn", "psg")
    }
    ((labels, _),) = groups(remote)
    assert labels == ("dgl-default", "bgl", "greendygnn")


def test_what_changes_the_numbers_or_follows_a_clock_is_not_compared():
    assert same_losses(small_config("single"))[0] != same_losses(small_config("single", learning_rate=0.1))[0]
    assert same_losses(small_config("pygt-dist", model="evolvegcn-h", parts=2)) != same_losses(
        small_config("single", model="evolvegcn-h")
    )
    assert (
        same_losses(small_config("dygnex-g", parts=2)) is None and same_losses(small_config("dynahb", parts=2)) is None
    )
    assert same_losses(small_config("dygnex-g", parts=2, group_times="size")) is not None
    overlapped = {str(on): small_config("flaredtdg", parts=2, overlap=on) for on in (True, False)}
    assert len(groups(overlapped)) == 1
    assert not groups({str(k): small_config("flaredtdg", parts=2, full_snapshots=k) for k in (1, 2)})


def tables(first: float, later: float, config: RunConfig) -> RunTables:
    made_ = RunTables(config, rollups=all_rollups())
    made_.add_lines([line("steps", [step_row(0, first), step_row(1, first)])])
    made_.add_lines([line("evaluations", [evaluation_row(2, "validation", later)], seq=1)])
    return made_


def test_losses_that_should_coincide_and_do_not_are_flagged():
    configs = {"single": small_config("single"), "adgnn-t": small_config("adgnn-t", parts=2)}
    one = tables(1.0, 0.5, configs["single"])

    def compared(first: float, later: float) -> list:
        return checks(configs, {("single", 0): one, ("adgnn-t", 0): tables(first, later, configs["adgnn-t"])})

    (good,) = compared(1.0 + 5e-6, 0.5 + 2e-4)
    assert good.ok and "whole training split" in good.summary()
    (bad,) = compared(1.0 + 5e-5, 0.5)
    assert bad.ok is False and "DIFFER" in bad.summary()
    (bad,) = compared(1.0, 0.5 + 2e-3)
    assert bad.ok is False and bad.curve == pytest.approx(2e-3 / 0.502)
    (empty,) = checks(
        configs, {("single", 0): one, ("adgnn-t", 0): RunTables(configs["adgnn-t"], rollups=all_rollups())}
    )
    assert empty.ok is None
    double = {label: config.replace(dtype="float64") for label, config in configs.items()}
    (strict,) = checks(double, {("single", 0): one, ("adgnn-t", 0): tables(1.0 + 1e-8, 0.5, double["adgnn-t"])})
    assert strict.ok is False, "1e-8 is no rounding of float64"
