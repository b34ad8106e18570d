"""Verdicts of the device check on results that are made up."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.extensions import register_from
from dtdg_lab.device_check.case_run import CaseRun
from dtdg_lab.device_check.cases import CheckCase, make_case
from dtdg_lab.device_check.device_stops import DeviceStops
from dtdg_lab.device_check.energy_use import EnergyUse
from dtdg_lab.device_check.peak_memory import PeakMemory
from dtdg_lab.device_check.units import Broken
from dtdg_lab.device_check.verdicts import (
    References,
    Runs,
    energy_rows,
    exchange_rows,
    group_row,
    loss_row,
    memory_row,
    phase_rows,
    process_rows,
    relative_difference,
    stops_row,
)
from tests.registrations import registered_apart


def case_of(system: str, ranks: int = 1) -> CheckCase:
    return make_case(catalogue.system(system), "tgcn", ranks)


def trained(*losses: float | None, phase_gap: float = 0.0) -> CaseRun:
    return CaseRun("trained", losses, phase_gap)


def runs_of(case: CheckCase, *runs: CaseRun) -> Runs:
    return {config.to_json(): run for config, run in zip(case.configs, runs, strict=True)}


SINGLE, ESDG, PSG = (case_of(name) for name in ("single", "esdg", "psg"))


def test_float32_is_compared_with_float64_and_float64_with_an_equal_system() -> None:
    runs = {**runs_of(SINGLE, trained(1.0), trained(1.0)), **runs_of(ESDG, trained(1.0), trained(1.0 + 1e-6))}
    references = References([SINGLE, ESDG], runs)
    row = loss_row(ESDG, "cpu", runs, references)
    assert row.state == "ok"
    single, double = row.value.split("; ")
    assert single == "float32 differs by 1.0e-06 from float64 (1e-05 allowed)"
    assert double == "float64 differs by 0.0e+00 from single (1e-10 allowed)"
    alone = loss_row(PSG, "cpu", runs_of(PSG, trained(1.0), trained(1.0)), references)
    assert alone.value == "float32 differs by 0.0e+00 from float64 (1e-05 allowed)"


@pytest.mark.parametrize(("double", "single"), [(1.0 + 1e-9, 1.0), (1.0, 1.0 + 2e-5), (1.0, float("nan"))])
def test_losses_beyond_rounding_fail_with_the_command_that_repeats_them(double: float, single: float) -> None:
    runs = {**runs_of(SINGLE, trained(1.0), trained(1.0)), **runs_of(ESDG, trained(double), trained(single))}
    row = loss_row(ESDG, "cpu", runs, References([SINGLE, ESDG], runs))
    assert row.state == "failed"
    assert row.remedy == "Repeat it: dtdg-lab env --check --device cpu --systems esdg single"
    assert [one.reference for one in row.differences] == ["float64", "single"]


def test_a_gpu_is_compared_with_the_cpu() -> None:
    references = References([SINGLE], runs_of(SINGLE, trained(1.0, 0.5), trained(1.0, 0.5)))
    near = loss_row(SINGLE, "cuda:1", runs_of(SINGLE, trained(1.0, 0.5), trained(1.0, 0.500004)), references)
    assert near.state == "ok" and "float32 differs by 8.0e-06 from the CPU" in near.value
    far = loss_row(SINGLE, "cuda:1", runs_of(SINGLE, trained(1.0, 0.50001), trained(1.0, 0.5)), references)
    assert far.state == "failed" and far.remedy.endswith("--check --device cuda --systems single")


def test_refused_and_failed_runs_give_their_reasons() -> None:
    nothing = References([], {})
    unsupported = CheckCase("esdg", "dcrnn", None, refused="its memory is no use")
    assert loss_row(unsupported, "cpu", {}, nothing).value == "its memory is no use"
    refused = CaseRun("refused", reason="needs two ranks")
    assert loss_row(SINGLE, "cpu", runs_of(SINGLE, refused, refused), nothing).state == "unavailable"
    failed = CaseRun("failed", reason="RuntimeError: out of order")
    row = loss_row(SINGLE, "cpu", runs_of(SINGLE, trained(1.0), failed), nothing)
    assert (row.state, row.value) == ("failed", "RuntimeError: out of order")
    assert row.remedy.endswith("--device cpu --systems single")


def test_a_run_with_other_losses_differs_without_bound() -> None:
    assert relative_difference(trained(1.0, None), trained(1.0, None)) == 0.0
    assert relative_difference(trained(1.0, None), trained(1.0, 2.0)) == float("inf")
    assert relative_difference(trained(1.0), trained(1.0, 2.0)) == float("inf")
    assert relative_difference(trained(-1.0), trained(1.0)) == 2.0


@pytest.mark.parametrize("gaps", [(1e-9, 0.2), (0.2, 1e-9)])
def test_the_worst_clock_of_a_system_counts(gaps: tuple[float, float]) -> None:
    runs = runs_of(SINGLE, trained(1.0, phase_gap=gaps[0]), trained(1.0, phase_gap=gaps[1]))
    (row,) = phase_rows([SINGLE], "cpu", runs)
    assert row.state == "failed" and row.model == "tgcn" and "within 2.0e-01" in row.value
    (row,) = phase_rows([SINGLE], "cpu", runs_of(SINGLE, trained(1.0), trained(1.0)))
    assert row.state == "ok" and not row.remedy


def test_a_group_trains_as_one_rank_does() -> None:
    case = case_of("psg", 2)
    assert case.config is not None
    alone = References([PSG], runs_of(PSG, trained(1.0), trained(1.0)))
    name = case.config.to_json()
    same = group_row(case, "2 x cpu", [{name: trained(1.0)}, {name: trained(1.0)}], alone)
    assert same.state == "ok" and "psg on one rank" in same.value
    other = group_row(case, "2 x cpu", [{name: trained(1.1)}, {name: trained(1.1)}], alone)
    assert other.state == "failed"
    clock = group_row(case, "2 x cpu", [{name: trained(1.0)}, {name: trained(1.0, phase_gap=0.5)}], alone)
    assert clock.state == "failed" and "phases" in clock.value
    died = group_row(case, "2 x cpu", Broken("process 1: died with exit code -9"), alone)
    assert died.state == "failed" and died.remedy.endswith("--device cpu --systems psg")


def test_the_command_that_repeats_a_failure_registers_the_files_of_its_code(tmp_path: Path) -> None:
    file = tmp_path / "models_of_a_check.py"
    source = """
        import dtdg_lab as lab
        from outside_family.smoothed import SmoothedGCN
        class Mine(SmoothedGCN): ...
        lab.register(Mine, "model", "mine")
    """
    file.write_text(textwrap.dedent(source))
    with registered_apart():
        register_from(str(file))
        case = make_case(catalogue.system("psg"), "mine")
        row = loss_row(case, "cpu", runs_of(case, *[CaseRun("failed", reason="lost")] * 2), References([case], {}))
    assert row.remedy == f"Repeat it: dtdg-lab env --check --device cpu --systems psg --register {file}"


def test_units_that_no_process_began_are_not_run_and_one_row_says_why() -> None:
    broken = Broken("process 0: ConfigError: no such class", began=False)
    case = case_of("psg", 2)
    rows = [
        loss_row(PSG, "cpu", runs_of(PSG, *[CaseRun("not run", reason=broken.reason)] * 2), References([], {})),
        group_row(case, "2 x cpu", broken, References([], {})),
        stops_row(PSG, "cuda:0", broken),
        memory_row("esdg", "cpu", broken),
        *energy_rows("cpu", broken),
        *exchange_rows("2 x cpu", broken),
    ]
    assert {row.state for row in rows} == {"not run"} and not any("ConfigError" in row.value for row in rows)
    (failed,) = process_rows("cpu", [broken, broken, {}])
    assert (failed.check, failed.state, failed.value) == ("processes", "failed", broken.reason)
    assert process_rows("cpu", [Broken("process 0: died"), {}]) == []


def test_waits_for_the_device_name_their_places() -> None:
    assert stops_row(SINGLE, "cuda:0", DeviceStops()).state == "ok"
    row = stops_row(SINGLE, "cuda:0", DeviceStops(("distributed/gradients.py:97",)))
    assert row.state == "failed" and "distributed/gradients.py:97" in row.value and row.remedy


@pytest.mark.parametrize(("measured", "state"), [(109.0, "ok"), (91.0, "ok"), (120.0, "failed"), (80.0, "failed")])
def test_peaks_beyond_the_tolerance_fail(measured: float, state: str) -> None:
    assert memory_row("esdg", "cpu", PeakMemory(100.0, measured)).state == state


def test_joules_grow_or_are_not_available() -> None:
    joules = {"nvml": (3.0, "counter"), "rapl": (0.0, "counter"), "gpu-model": (None, "modelled")}
    joules["processor-model"] = (3.0, "modelled")
    rows = energy_rows("cuda:0", EnergyUse(joules, ("no RAPL here. Load it.",)))
    assert [row.state for row in rows] == ["ok", "failed", "unavailable", "modelled", "unavailable"]
    assert (rows[4].value, rows[4].remedy) == ("no RAPL here", "Load it.")


def test_one_wrong_rank_fails_an_exchange() -> None:
    right, wrong = {"gather": "", "barrier": ""}, {"gather": "3 of 9 numbers are wrong", "barrier": ""}
    gather, barrier = exchange_rows("2 x cpu", [right, wrong])
    assert gather.state == "failed" and gather.value == "gather: rank 1: 3 of 9 numbers are wrong"
    assert barrier.value == "barrier: exact"
    (broken,) = exchange_rows("2 x cuda", Broken("process 0: NCCL error"))
    assert broken.state == "failed" and "docs/scale_out.md" in broken.remedy
