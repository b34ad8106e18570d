"""Rows of the device check, from the results of its work."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from dtdg_lab.config.options import default
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.units import format_bytes
from dtdg_lab.device_check.case_run import CaseRun
from dtdg_lab.device_check.cases import CheckCase, group_configs, systems_of
from dtdg_lab.device_check.check_row import CheckRow, State
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
        return _row(case, device, "unavailable", case.refused)
    trained = [runs[config.to_json()] for config in case.configs]
    for config, run in zip(case.configs, trained, strict=True):
        if run.result == "refused":
            return _row(case, device, "unavailable", run.reason)
        if run.result == "failed":
            return _row(case, device, "failed", run.reason, remedy=_reproduce(config, device))
    if same_losses(case.config) is None:
        return _row(case, device, "ok", "trained; not compared, since measured times change what is computed")
    double, single = trained[0], trained[1]
    if device == "cpu":
        pairs = [_Pair("float32", case.configs[1], single, "float64", double)]
        equivalent = references.equivalent(case.config)
        if equivalent is not None:
            pairs.append(_Pair("float64", case.config, double, *equivalent))
    else:
        pairs = []
        for name, run, config in zip(("float64", "float32"), trained, case.configs, strict=False):
            reference = references.same_run(config)
            if reference is None:
                return _row(case, device, "unavailable", "the CPU has no run to compare with; see its row")
            pairs.append(_Pair(name, config, run, "the CPU", reference))
    return _compared(case, device, pairs)


def group_row(case: CheckCase, device: str, result: Sequence[Runs] | Broken, references: References) -> CheckRow:
    """Return the verdict on a case that the ranks of a group trained together, in float64."""
    assert case.config is not None
    if isinstance(result, Broken):
        remedy = " ".join(_reproduce(config, device) for config in group_configs(case))
        return _row(case, device, "failed", result.reason, remedy=remedy, check="group")
    own = result[0][case.config.to_json()]
    for run in (run for runs in result for run in runs.values()):
        if run.result != "trained":
            return _row(case, device, "unavailable", run.reason, check="group")
        if run.phase_gap > PHASE_GAP:
            return _row(case, device, "failed", _gap_text(run), remedy=_PHASES_REMEDY, check="group")
    equivalent = references.equivalent(case.config)
    if equivalent is None:
        return _row(case, device, "ok", "trained; no run on one rank has the same losses", check="group")
    pairs = [_Pair("float64", case.config, own, f"{equivalent[0]} on one rank", equivalent[1])]
    return _compared(case, device, pairs, check="group")


@dataclass(frozen=True, slots=True)
class _Pair:
    """A run and one that should have the same losses.

    Attributes:
        dtype: type of the run's numbers.
        config: its settings.
        run: the run.
        other_name: name of the other run.
        other: the other run.
    """

    dtype: str
    config: RunConfig
    run: CaseRun
    other_name: str
    other: CaseRun


def _compared(case: CheckCase, device: str, pairs: Sequence[_Pair], *, check: str = "losses") -> CheckRow:
    texts, wrong = [], []
    for pair in pairs:
        difference, allowed = relative_difference(pair.run, pair.other), FIRST[pair.dtype]
        wrong += [pair.config] if difference > allowed else []
        texts.append(f"{pair.dtype} differs by {difference:.1e} from {pair.other_name} ({allowed:g} allowed)")
    if not wrong:
        return _row(case, device, "ok", "; ".join(texts), check=check)
    return _row(case, device, "failed", "; ".join(texts), remedy=_reproduce(wrong[0], device), check=check)


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
            )
        )
    return rows


def _gap_text(run: CaseRun) -> str:
    return f"phases sum to the step within {run.phase_gap:.1e} of it ({PHASE_GAP:g} allowed)"


def stops_row(case: CheckCase, device: str, result: DeviceStops | Broken) -> CheckRow:
    """Return the verdict on waits for the device within a step."""
    if isinstance(result, Broken):
        return _row(case, device, "failed", result.reason, remedy=_REPORT, check="synchronization")
    if result.reason:
        return _row(case, device, "unavailable", result.reason, check="synchronization")
    if result.places:
        remedy = "Copy without waiting (`non_blocking=True`, pinned memory) and read results one step late."
        value = f"a step waits for the device at {', '.join(result.places)}"
        return _row(case, device, "failed", value, remedy=remedy, check="synchronization")
    return _row(case, device, "ok", "a step does not wait for the device", check="synchronization")


def memory_row(system: str, device: str, result: PeakMemory | Broken) -> CheckRow:
    """Return the verdict on the forecast of a system's peak memory."""
    row = {"device": device, "check": "memory", "system": system}
    if isinstance(result, Broken):
        return CheckRow(**row, state="failed", value=result.reason, remedy=_REPORT)
    if result.reason:
        return CheckRow(**row, state="unavailable", value=result.reason)
    measured, forecast = format_bytes(result.measured_bytes), format_bytes(result.forecast_bytes)
    text = f"peak {measured}, forecast {forecast}: {result.error:+.1%} ({TOLERANCE:.0%} allowed)"
    if abs(result.error) <= TOLERANCE:
        return CheckRow(**row, state="ok", value=text)
    remedy = "With blocks=0, set memory_gib lower by this share, or set blocks yourself."
    return CheckRow(**row, state="failed", value=text, remedy=remedy)


def energy_rows(device: str, result: EnergyUse | Broken) -> list[CheckRow]:
    """Return the verdicts on the readers of a device, and what cannot be measured."""
    row = {"device": device, "check": "energy"}
    if isinstance(result, Broken):
        return [CheckRow(**row, state="failed", value=result.reason, remedy=_REPORT)]
    rows = []
    for name, (joules, source) in result.joules.items():
        if joules is None:
            rows.append(CheckRow(**row, state="unavailable", value=f"{name} ({source}): joules stay unknown"))
        elif joules > 0:
            rows.append(CheckRow(**row, state="ok", value=f"{name} ({source}) counted {joules:.3g} J during work"))
        else:
            remedy = "The counter does not move: look at it with `nvidia-smi` or in /sys/class/powercap."
            rows.append(
                CheckRow(
                    **row, state="failed", value=f"{name} ({source}) counted {joules:g} J during work", remedy=remedy
                )
            )
    notes = [CheckRow(**row, state="unavailable", value=note) for note in result.notes]
    return rows + notes


def exchange_rows(device: str, result: Sequence[Mapping[str, str]] | Broken) -> list[CheckRow]:
    """Return the verdicts on the exchanges of a group."""
    row = {"device": device, "check": "exchange"}
    remedy = "Check the network of the ranks: docs/scale_out.md. With NCCL, NCCL_DEBUG=INFO shows its transports."
    if isinstance(result, Broken):
        return [CheckRow(**row, state="failed", value=result.reason, remedy=remedy)]
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


def _row(
    case: CheckCase, device: str, state: State, value: str, *, remedy: str = "", check: str = "losses"
) -> CheckRow:
    return CheckRow(
        device=device, check=check, system=case.system, model=case.model, state=state, value=value, remedy=remedy
    )


def _reproduce(config: RunConfig, device: str) -> str:
    """Return the command that repeats a run on a device of this kind."""
    settings = {**config.flat, "device": "cuda" if "cuda" in device else "cpu"}
    chosen = {"system": config.system, "dataset": config.dataset, "protocol": config.protocol}
    words = [
        shlex.quote(f"{name}={value}")
        for name, value in settings.items()
        if name in RunConfig.model_fields or value != default(name, **chosen)
    ]
    return f"Reproduce it: dtdg-lab run --set {' '.join(words)}"
