"""Rows of the device check, from the results of its work."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from dtdg_lab.config.extensions import Extension, extensions_of
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.units import format_bytes
from dtdg_lab.device_check.case_run import CaseRun
from dtdg_lab.device_check.cases import CheckCase, systems_of
from dtdg_lab.device_check.check_row import CheckedDifference, CheckRow, State, unavailable_row
from dtdg_lab.device_check.device_stops import DeviceStops
from dtdg_lab.device_check.energy_use import EnergyUse
from dtdg_lab.device_check.peak_memory import TOLERANCE, PeakMemory
from dtdg_lab.device_check.units import Broken
from dtdg_lab.studies.same_losses import FIRST, same_losses

PHASE_GAP = 0.01  # allowed difference between a step and the sum of its phases, as a share of the step
Runs = Mapping[str, CaseRun]  # by the JSON of their configs
_PHASES_REMEDY = (
    "The strategy marks a phase that is not recorded, or the clock is wrong. In compute, mark only batch, transfer and "
    "exchanges."
)
_NOT_RUN = "not run, since the processes of this device ended at their start; see the row of processes"
_REPORT = "Report it with the output of `dtdg-lab env --check --json`."


@dataclass(frozen=True, slots=True)
class References:
    """The runs on the CPU that others are compared with.

    Attributes:
        cases: the cases.
        runs: their runs on one rank.
    """

    cases: Sequence[CheckCase]
    runs: Runs

    def same_run(self, config: RunConfig) -> CaseRun | None:
        """Return the trained run with these settings; None if there is none."""
        run = self.runs.get(config.to_json())
        return run if run is not None and run.result == "trained" else None

    def equivalent(self, config: RunConfig) -> tuple[str, CaseRun] | None:
        """Return name and run of the first other system whose losses should equal those of a config in float64.

        A run of the same system comes first if the config has several ranks.
        """
        key = same_losses(config)
        if key is None:
            return None
        cases = [case for case in self.cases if case.model == config.model and case.config is not None]
        if config.ranks > 1:
            cases.sort(key=lambda case: case.system != config.system)
        for case in cases:
            assert case.config is not None
            alike = same_losses(case.config)
            run = self.same_run(case.config)
            if alike is not None and alike[0] == key[0] and run is not None and case.config != config:
                return case.system, run
        return None


def loss_row(case: CheckCase, device: str, runs: Runs, references: References) -> CheckRow:
    """Return the verdict on the losses of a case on a device."""
    if case.config is None:
        return _unavailable(case, device, case.refused)
    trained = [runs[config.to_json()] for config in case.configs]
    for run in trained:
        if run.result != "trained":
            return _untrained_row(case, device, run)
    if same_losses(case.config) is None:
        return _row(case, device, "ok", "trained; not compared, since measured times change what is computed")
    double, single = trained[0], trained[1]
    others: tuple[str, ...] = ()
    if device == "cpu":
        pairs = [_Pair("float32", single, "float64", double)]
        equivalent = references.equivalent(case.config)
        if equivalent is not None:
            others = (equivalent[0],)
            pairs.append(_Pair("float64", double, *equivalent))
    else:
        pairs = []
        for name, run, config in zip(("float64", "float32"), trained, case.configs, strict=False):
            reference = references.same_run(config)
            if reference is None:
                return _unavailable(case, device, "the CPU has no run to compare with; see its row")
            pairs.append(_Pair(name, run, "the CPU", reference))
    return _compared(case, device, pairs, others=others)


def _untrained_row(case: CheckCase, device: str, run: CaseRun) -> CheckRow:
    if run.result == "refused":
        return _unavailable(case, device, run.reason)
    if run.result == "not run":
        return _row(case, device, "not run", _NOT_RUN)
    return _row(case, device, "failed", run.reason, remedy=_repeat(case, device))


def group_row(case: CheckCase, device: str, result: Sequence[Runs] | Broken, references: References) -> CheckRow:
    """Return the verdict on a case that the ranks of a group trained together, in float64."""
    assert case.config is not None
    if isinstance(result, Broken):
        return _broken(result, _repeat(case, device), **_names(case, device, "group"))
    own = result[0][case.config.to_json()]
    for run in (run for runs in result for run in runs.values()):
        if run.result != "trained":
            return _unavailable(case, device, run.reason, check="group")
        if run.phase_gap > PHASE_GAP:
            return _row(case, device, "failed", _gap_text(run), remedy=_PHASES_REMEDY, check="group")
    equivalent = references.equivalent(case.config)
    if equivalent is None:
        return _row(case, device, "ok", "trained; no run on one rank has the same losses", check="group")
    pairs = [_Pair("float64", own, f"{equivalent[0]} on one rank", equivalent[1])]
    return _compared(case, device, pairs, others=equivalent[:1], check="group")


@dataclass(frozen=True, slots=True)
class _Pair:
    """A run and one that should have the same losses.

    Attributes:
        dtype: type of the run's numbers.
        run: the run.
        other_name: name of the other run.
        other: the other run.
    """

    dtype: str
    run: CaseRun
    other_name: str
    other: CaseRun


def _compared(
    case: CheckCase, device: str, pairs: Sequence[_Pair], *, others: Sequence[str], check: str = "losses"
) -> CheckRow:
    differences = tuple(
        CheckedDifference(pair.dtype, pair.other_name, relative_difference(pair.run, pair.other), FIRST[pair.dtype])
        for pair in pairs
    )
    text = "; ".join(
        f"{one.name} differs by {one.largest:.1e} from {one.reference} ({one.allowed:g} allowed)" for one in differences
    )
    is_same = all(one.largest <= one.allowed for one in differences)
    state: State = "ok" if is_same else "failed"
    remedy = "" if is_same else _repeat(case, device, others)
    return _row(case, device, state, text, remedy=remedy, check=check, differences=differences)


def relative_difference(run: CaseRun, other: CaseRun) -> float:
    """Return the largest relative difference of two runs' losses; infinite if one has other losses."""
    if len(run.losses) != len(other.losses):
        return float("inf")
    largest = 0.0
    for one, reference in zip(run.losses, other.losses, strict=True):
        if one is None or reference is None:
            largest = max(largest, 0.0 if one is reference else float("inf"))
        elif one != reference:  # NaN differs from everything
            scale = max(abs(one), abs(reference))
            share = abs(one - reference) / scale
            largest = max(largest, float("inf") if isnan(share) else share)
    return largest


def phase_rows(cases: Sequence[CheckCase], device: str, runs: Runs) -> list[CheckRow]:
    """Return the verdict on the clock of each system: phases sum to the step."""
    rows = []
    for system in systems_of(cases):
        trained = [
            (case.model, runs[config.to_json()])
            for case in cases
            if case.system == system
            for config in case.configs
            if runs[config.to_json()].result == "trained"
        ]
        if not trained:
            continue
        model, worst = max(trained, key=lambda item: item[1].phase_gap)
        is_within = worst.phase_gap <= PHASE_GAP
        rows.append(
            CheckRow(
                device=device,
                check="phases",
                system=system,
                model="" if is_within else model,
                state="ok" if is_within else "failed",
                value=_gap_text(worst),
                remedy="" if is_within else _PHASES_REMEDY,
                differences=(CheckedDifference("the sum", "the step", worst.phase_gap, PHASE_GAP),),
            )
        )
    return rows


def _gap_text(run: CaseRun) -> str:
    return f"phases sum to the step within {run.phase_gap:.1e} of it ({PHASE_GAP:g} allowed)"


def stops_row(case: CheckCase, device: str, result: DeviceStops | Broken) -> CheckRow:
    """Return the verdict on waits for the device within a step."""
    if isinstance(result, Broken):
        return _broken(result, _REPORT, **_names(case, device, "synchronization"))
    if result.reason:
        return _unavailable(case, device, result.reason, check="synchronization")
    if result.places:
        remedy = "Copy without waiting (`non_blocking=True`, pinned memory) and read results one step late."
        value = f"a step waits for the device at {', '.join(result.places)}"
        return _row(case, device, "failed", value, remedy=remedy, check="synchronization")
    return _row(case, device, "ok", "a step does not wait for the device", check="synchronization")


def memory_row(system: str, device: str, result: PeakMemory | Broken) -> CheckRow:
    """Return the verdict on the forecast of a system's peak memory."""
    row: dict[str, Any] = {"device": device, "check": "memory", "system": system}
    if isinstance(result, Broken):
        return _broken(result, _REPORT, **row)
    if result.reason:
        return unavailable_row(result.reason, **row)
    measured, forecast = format_bytes(result.measured_bytes), format_bytes(result.forecast_bytes)
    text = f"peak {measured}, forecast {forecast}: {result.error:+.1%} ({TOLERANCE:.0%} allowed)"
    if abs(result.error) <= TOLERANCE:
        return CheckRow(**row, state="ok", value=text)
    remedy = "With blocks=0, set memory_gib lower by this share, or set blocks yourself."
    return CheckRow(**row, state="failed", value=text, remedy=remedy)


def energy_rows(device: str, result: EnergyUse | Broken) -> list[CheckRow]:
    """Return the verdicts on the readers of a device, and what cannot be measured."""
    row: dict[str, Any] = {"device": device, "check": "energy"}
    if isinstance(result, Broken):
        return [_broken(result, _REPORT, **row)]
    rows = []
    for name, (joules, source) in result.joules.items():
        if joules is None:
            rows.append(unavailable_row(f"{name} ({source}): joules stay unknown", **row))
        elif joules > 0 and source == "modelled":
            value = f"{name} computed {joules:.3g} J from assumed watts; nothing is measured"
            rows.append(CheckRow(**row, state="modelled", value=value))
        elif joules > 0:
            rows.append(CheckRow(**row, state="ok", value=f"{name} ({source}) counted {joules:.3g} J during work"))
        else:
            remedy = "The counter does not move: look at it with `nvidia-smi` or in /sys/class/powercap."
            rows.append(
                CheckRow(
                    **row, state="failed", value=f"{name} ({source}) counted {joules:g} J during work", remedy=remedy
                )
            )
    return rows + [unavailable_row(note, **row) for note in result.notes]


def exchange_rows(device: str, result: Sequence[Mapping[str, str]] | Broken) -> list[CheckRow]:
    """Return the verdicts on the exchanges of a group."""
    row: dict[str, Any] = {"device": device, "check": "exchange"}
    remedy = "Check the network of the ranks: docs/scale_out.md. With NCCL, NCCL_DEBUG=INFO shows its transports."
    if isinstance(result, Broken):
        return [_broken(result, remedy, **row)]
    rows = []
    for name in result[0]:
        wrong = {rank: differences[name] for rank, differences in enumerate(result) if differences[name]}
        value = "; ".join(f"rank {rank}: {text}" for rank, text in wrong.items()) or "exact"
        rows.append(
            CheckRow(
                **row,
                state="failed" if wrong else "ok",
                value=f"{name}: {value}",
                remedy=remedy if wrong else "",
            )
        )
    return rows


def process_rows(device: str, results: Sequence[Any]) -> list[CheckRow]:
    """Return a failed row if the processes of a device ended at their start, so that nothing was run there."""
    reasons = dict.fromkeys(result.reason for result in results if isinstance(result, Broken) and not result.began)
    remedy = "Mend what the reason names, such as a file of --register, and check again: nothing else was run."
    return [
        CheckRow(device=device, check="processes", state="failed", value=reason, remedy=remedy) for reason in reasons
    ]


def _broken(result: Broken, remedy: str, **row: Any) -> CheckRow:
    if result.began:
        return CheckRow(**row, state="failed", value=result.reason, remedy=remedy)
    return CheckRow(**row, state="not run", value=_NOT_RUN)


def _row(case: CheckCase, device: str, state: State, value: str, *, check: str = "losses", **more: Any) -> CheckRow:
    return CheckRow(**_names(case, device, check), state=state, value=value, **more)


def _unavailable(case: CheckCase, device: str, reason: str, *, check: str = "losses") -> CheckRow:
    return unavailable_row(reason, **_names(case, device, check))


def _names(case: CheckCase, device: str, check: str) -> dict[str, Any]:
    return {"device": device, "check": check, "system": case.system, "model": case.model}


def _repeat(case: CheckCase, device: str, others: Sequence[str] = ()) -> str:
    """Return the command that repeats a check of a case on a device of this kind.

    Args:
        case: the case.
        device: its device, or the group's.
        others: systems that it was compared with.
    """
    assert case.config is not None
    systems = dict.fromkeys((case.system, *others))
    words = ["--device", "cuda" if "cuda" in device else "cpu", "--systems", *systems]
    for argument in dict.fromkeys(map(_register_argument, extensions_of(case.config))):
        words += ["--register", argument]
    return f"Repeat it: dtdg-lab env --check {shlex.join(words)}"


def _register_argument(extension: Extension) -> str:
    """Return the argument of ``--register`` for an extension of this process, with the path of its file."""
    module = sys.modules.get(extension.target.partition(":")[0])
    return (
        str(getattr(module, "__file__", extension.argument))
        if extension.argument.endswith(".py")
        else extension.argument
    )
