"""Sweeps as data: grids and spaces, their cells, what is refused before anything is trained, JSON both ways."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.studies.search_space import choice, integer, log_uniform, uniform
from dtdg_lab.studies.sweep import Sweep

BASE = RunConfig(system="flaredtdg", dataset="growing")
SLOW = {"quiet": {}, "slow": {"congestion": "one_slow", "congestion_ms": 20}}


def test_a_grid_has_every_combination_of_the_first_seed_first() -> None:
    sweep = Sweep(BASE, {"full_snapshots": (1, 2), "alpha": np.array([0.1, 1])}, seeds=(3, 4))
    described = [(cell.seed, cell.settings["full_snapshots"], cell.settings["alpha"]) for cell in sweep.cells]
    assert described == [(seed, k, alpha) for seed in (3, 4) for k in (1, 2) for alpha in (0.1, 1.0)]
    assert [cell.config["alpha"] for cell in sweep.cells[:2]] == [0.1, 1.0] and sweep.total == 8
    assert {cell.config.seed for cell in sweep.cells} == {3, 4}
    assert (
        len({cell.key for cell in sweep.cells}) == 8
        and sweep.cells[0].key == Sweep.from_json(sweep.to_json()).cells[0].key
    )
    assert Sweep(BASE, {"alpha": (0.1,)}).all_seeds == (0, 1, 2)
    assert Sweep(BASE.replace(seed=7), space={"alpha": uniform(0.1, 1)}, trials=2).all_seeds == (7,)


SPACE = {
    "learning_rate": log_uniform(1e-4, 0.1),
    "full_snapshots": integer(1, 7, step=2),
    "decay": choice("ladder", "text"),
}
SWEEPS = {
    "cases": Sweep(
        BASE, {"full_snapshots": (1, 2), "network": SLOW}, seeds=(5,), skip={"network": "slow", "full_snapshots": [2]}
    ),
    "refused": Sweep(BASE, {"system": ("flaredtdg", "psg"), "alpha": (0.5,)}, skip="refused", objective="epoch_time_s"),
    "space": Sweep(BASE, space=SPACE, trials=4, sampler="random", goal="max", objective="hit_rate"),
}


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=SWEEPS)
def test_a_sweep_is_the_same_after_json(sweep: Sweep) -> None:
    again = Sweep.from_json(sweep.to_json())
    assert again == sweep and hash(again) == hash(sweep) and again.to_dict() == sweep.to_dict()
    assert [cell.config for cell in again.cells] == [cell.config for cell in sweep.cells]
    assert again.skipped == sweep.skipped
    assert Sweep.from_json(sweep.to_json()[:-1] + ', "goal": "min"}').goal == "min" and repr(sweep) == repr(again)


def test_cases_are_several_settings_under_one_name() -> None:
    sweep = Sweep(BASE, {"network": SLOW}, seeds=(0,))
    assert [cell.settings["network"] for cell in sweep.cells] == ["quiet", "slow"]
    assert [cell.config["congestion"] for cell in sweep.cells] == ["none", "one_slow"]


def test_what_is_left_out_is_told_and_why() -> None:
    sweep = Sweep(BASE, {"system": ("flaredtdg", "psg"), "alpha": (0.1, 0.5)}, seeds=(0, 1), skip="refused")
    assert sweep.total == 4 and [each.settings["system"] for each in sweep.skipped] == ["psg", "psg"]
    assert (
        "Option 'alpha' does not apply to system 'psg'" in sweep.skipped[0].reason
        and len(sweep.skipped[0].reason) < 300
    )
    ruled = Sweep(
        BASE, {"full_snapshots": (1, 8), "alpha": (0.1, 0.5)}, seeds=(0,), skip=[{"full_snapshots": 8, "alpha": 0.5}]
    )
    assert ruled.total == 3 and ruled.skipped[0].settings == {"full_snapshots": 8, "alpha": 0.5}


def test_parts_follow_ranks_where_the_base_has_as_many() -> None:
    psg = RunConfig(system="psg", dataset="growing")
    assert [cell.config.parts for cell in Sweep(psg, {"ranks": (1, 2, 4)}, seeds=(0,)).cells] == [1, 2, 4]
    fixed = psg.replace(parts=4)
    assert [cell.config.parts for cell in Sweep(fixed, {"ranks": (1, 2, 4)}, seeds=(0,)).cells] == [4, 4, 4]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "there is nothing to study"),
        ({"over": {"alpha": (0.1,)}, "space": {"alpha": uniform(0.1, 1)}}, "both over= and space="),
        ({"over": {"alpha": ()}}, r"over\['alpha'\] is empty"),
        ({"over": {"alpha": 0.1}}, "Give a sequence of values"),
        ({"over": {"decay": "ladder"}}, "Give a sequence of values"),
        ({"over": {"alpha": (0.1, 0.1)}}, "has 0.1 twice"),
        ({"over": {"full_snapshots": (1, 1.0)}}, "has 1 twice"),
        ({"over": {"alfa": (0.1,)}}, "Did you mean 'alpha'"),
        ({"over": {"seed": (0, 1)}}, "Give seeds="),
        ({"over": {"data_hash": ("a",)}}, "no config can set it"),
        ({"over": {"alpha": (0.1, 3)}}, "alpha=3.0 is out of range"),
        ({"over": {"group_window": (2,)}}, "group_window=2 is not allowed.*skip='refused'"),
        ({"over": {"network": {}}}, "is empty"),
        ({"over": {"network": {"a": {"delay": 3}}}}, "Unknown setting"),
        ({"over": {"network": {"a": {"alpha": 0.2}}, "alpha": (0.1,)}}, "both set alpha"),
        ({"over": {"network": {"a": {"alpha": 0.2}, "b": {"alpha": 0.2}}}}, "are the same run"),
        ({"over": {"alpha": (0.1,)}, "seeds": ()}, "at least one"),
        ({"over": {"alpha": (0.1,)}, "seeds": (1, 1)}, "only once"),
        ({"over": {"alpha": (0.1,)}, "skip": {"alpha": 0.1}}, "combinations are skipped"),
        ({"over": {"alpha": (0.1,)}, "skip": {"K": 1}}, "Unknown axis in skip"),
        ({"over": {"alpha": (0.1,)}, "trials": 3}, "apply only to a search"),
        ({"over": {"alpha": (0.1,)}, "goal": "low"}, "Give 'min' or 'max'"),
        ({"over": {"seed_": (1,)}}, "Unknown setting"),
        ({"over": {"learning_rate": tuple(1e-6 * n for n in range(1, 7001))}}, "at most 20,000 runs"),
        ({"space": {"alpha": (0.1, 1)}, "trials": 2}, "not a search space"),
        ({"space": {"group_window": integer(1, 4)}, "trials": 2}, "Option 'group_window' does not apply to system"),
        ({"space": {"system": choice("psg", "pgs")}, "trials": 2}, "Did you mean 'psg'"),
        ({"space": {"alpha": uniform(0.1, 4)}, "trials": 2}, "alpha=4.0 is out of range"),
        ({"space": {"alpha": uniform(0.1, 1)}}, "number of combinations"),
        ({"space": {"alpha": uniform(0.1, 1)}, "trials": 2, "sampler": "tpu"}, "Did you mean 'tpe'"),
        ({"space": {"seed": integer(0, 9)}, "trials": 2}, "Give seeds="),
        ({"space": {"dataset": choice("growing", "collegemsg")}, "trials": 2}, "fixed in a search"),
        ({"space": {"protocol": choice("warm", "cold")}, "trials": 2}, "fixed in a search"),
        ({"space": {"edge_life": integer(1, 3)}, "trials": 2}, "fixed in a search"),
        ({"space": {"task": choice("link", "regression")}, "trials": 2}, "fixed in a search"),
    ],
)
def test_bad_sweeps_are_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sweep(BASE, **given)


@pytest.mark.parametrize("name", ["test_loss", "skill", "persistence_loss", "metrics", "test_auc"])
def test_nothing_chooses_by_the_test_part(name: str) -> None:
    with pytest.raises(ConfigError, match="on the test split"):
        Sweep(BASE, {"alpha": (0.1,)}, objective=name)
    with pytest.raises(UnknownNameError, match="Unknown objective"):
        Sweep(BASE, {"alpha": (0.1,)}, objective="loss")


def test_ranges_with_nothing_in_them_are_refused() -> None:
    empty = [(uniform, 1, 1), (uniform, 0, float("nan")), (log_uniform, 0, 1), (integer, 1, 2.5), (choice, 1, 1)]
    for make, *limits in [*empty, (choice, "a")]:
        with pytest.raises(ConfigError):
            make(*limits)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object with a base"),
        ('{"base": {}, "schema": 9}', "Update dtdg_lab"),
        ('{"base": {}, "ovr": {}}', "Did you mean 'over'"),
    ],
)
def test_bad_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sweep.from_json(text)


def test_json_written_by_hand_needs_little() -> None:
    text = json.dumps({"base": {"system": "psg", "dataset": "growing"}, "over": {"group_window": [2, 4]}})
    assert Sweep.from_json(text).total == 6
