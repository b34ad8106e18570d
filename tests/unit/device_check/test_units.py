"""Work of the device check in processes, some of which end too early."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outside_family.smoothed import SmoothedGCN

import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.device_check.cases import make_case
from dtdg_lab.device_check.units import Broken, ResultFolder, Unit, execute, execute_together
from dtdg_lab.device_check.verdicts import stops_row
from dtdg_lab.testing import processes
from tests.registrations import registered_apart

SLOW = ("flaredtdg", "greendygnn")  # still busy when the other process ends


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with registered_apart():
        yield


class EndsItsProcess(SmoothedGCN):
    """A model that ends the process of its run, as an out-of-memory killer does."""

    def spatial(self, layer: int, graph: Any, x: Any, state: Any) -> Any:
        if graph.num_rows >= 20:  # more than the dry run of a registration has
            os._exit(3)
        return super().spatial(layer, graph, x, state)


def unit_of(system: str, model: str, ranks: int = 1) -> Unit:
    config = make_case(catalogue.system(system), model, ranks).configs[0]
    return Unit("train", f"{system} {model}", "cpu" if ranks == 1 else "", (config,))


def test_a_unit_whose_process_dies_is_broken_and_the_others_are_executed() -> None:
    lab.register(EndsItsProcess, "model", "ends")
    units = [unit_of("single", "tgcn"), unit_of("single", "ends"), unit_of("esdg", "graphsage")]
    first, second, third = execute(units, ["cpu"])
    assert second == Broken("process 0: died with exit code 3")
    assert [run.result for runs in (first, third) for run in runs.values()] == ["trained", "trained"]


class FailsToRegister(SmoothedGCN):
    """A model whose dry run fails in the processes of a check."""

    def spatial(self, layer: int, graph: Any, x: Any, state: Any) -> Any:
        if multiprocessing.parent_process() is not None:
            raise ValueError("no file here.")
        return super().spatial(layer, graph, x, state)


@pytest.mark.parametrize("executed", [execute, execute_together])
def test_a_registration_that_fails_in_all_processes_has_one_reason(executed: Any) -> None:
    lab.register(FailsToRegister, "model", "fails")
    results = executed([unit_of("single", "fails"), unit_of("single", "tgcn")], ["cpu", "cpu"])
    assert results[0] == results[1] and isinstance(results[0], Broken) and not results[0].began
    assert results[0].reason.count("no file here.") == 1 and ".." not in results[0].reason
    assert "was killed" not in results[0].reason


def test_work_of_a_process_that_is_ended_with_another_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_GRACE_S", 0.0)
    lab.register(EndsItsProcess, "model", "ends")
    broken, *others = execute([unit_of("single", "ends"), *map(unit_of, SLOW, ["tgcn"] * len(SLOW))], ["cpu", "cpu"])
    assert isinstance(broken, Broken) and "died with exit code 3" in broken.reason
    assert [run.result for runs in others for run in runs.values()] == ["trained"] * len(SLOW)


def test_a_group_exchanges_and_trains_and_survives_a_rank_that_fails() -> None:
    lab.register(EndsItsProcess, "model", "ends")
    units = [Unit("exchange", ""), unit_of("psg", "ends", 2), unit_of("psg", "tgcn", 2)]
    exchanged, broken, trained = execute_together(units, ["cpu", "cpu"])
    assert not isinstance(exchanged, Broken) and not isinstance(trained, Broken)
    assert [set(differences.values()) for differences in exchanged] == [{""}, {""}]
    assert isinstance(broken, Broken) and "died with exit code 3" in broken.reason
    one, other = ([run.losses for run in runs.values()] for runs in trained)
    assert one[0] and one[0][0] == other[0][0]


def test_a_unit_of_stops_that_is_refused_is_no_failure() -> None:
    case = make_case(catalogue.system("pipad"), "gatlstm")
    (result,) = execute([Unit("stops", "pipad gatlstm", "cpu", case.configs[1:2])], ["cpu"])
    row = stops_row(case, "cuda:0", result)
    assert row.state == "unavailable" and "aggregates by attention" in row.value


def test_one_process_claims_a_unit_and_results_wait_for_all_ranks(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path)
    assert folder.claim(3, process=1) and not folder.claim(3, process=0)
    assert folder.claimer(3) == 1 and folder.claimer(4) is None
    folder.release(3)
    assert folder.claimer(3) is None
    folder.write(3, 1, "second")
    assert folder.read(3, ranks=2) is None
    folder.write(3, 0, "first")
    assert folder.read(3, ranks=2) == ["first", "second"]
    assert folder.count() == 2
