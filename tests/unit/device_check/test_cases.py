"""Which runs the device check makes."""

from __future__ import annotations

from dtdg_lab.config import catalogue
from dtdg_lab.device_check.cases import group_configs, list_cases, make_case
from dtdg_lab.studies.same_losses import same_losses


def test_every_system_meets_every_model() -> None:
    cases = list_cases()
    systems, models = catalogue.names("systems"), catalogue.names("models")
    assert [(case.system, case.model) for case in cases] == [(name, model) for name in systems for model in models]
    assert all((case.config is None) == bool(case.refused) for case in cases)


def test_a_quick_check_has_every_system_and_every_model_once() -> None:
    cases = list_cases(quick=True)
    systems, models = catalogue.names("systems"), catalogue.names("models")
    assert [case.model for case in cases if case.system == systems[0]] == list(models)
    assert [case.system for case in cases[len(models) :]] == list(systems[1:])


def test_losses_of_all_cases_can_be_compared() -> None:
    for case in list_cases():
        assert case.config is None or same_losses(case.config) is not None, case
    timed = {case.system for case in list_cases(quick=True) if case.timed is not None}
    assert timed == {"dygnex-l", "bvr", "dynahb"}


def test_no_case_on_one_rank_shares_rows_between_ranks() -> None:
    assert {case.config["row_ranks"] for case in list_cases() if case.config is not None} == {1}


def test_a_group_has_a_part_for_each_rank_and_also_trains_what_depends_on_times() -> None:
    case = make_case(catalogue.system("dynahb"), "tgcn", ranks=4)
    double, timed = group_configs(case)
    assert (double.ranks, double.parts, double["dtype"], double["exchange"]) == (4, 4, "float64", "gradients")
    assert (timed.ranks, timed["dtype"], timed["exchange"]) == (4, "float32", "models")
