"""A run of the device check on one rank."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from dtdg_lab.config.record_tables import PHASES
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group
from dtdg_lab.testing.small_runs import REFUSALS
from dtdg_lab.testing.training import RecordingRecorder, train_in_memory


@dataclass(frozen=True, slots=True)
class CaseRun:
    """Losses and clock of a run.

    Attributes:
        result: ``trained``; ``refused`` before its first step, as not supported or not available; ``failed``; or
            ``not run``, since no process could start.
        losses: losses of the steps, then those of the evaluations.
        phase_gap: largest difference between a step's seconds and the sum of its phases, as a share of the step.
        reason: why it was refused or failed.
    """

    result: Literal["trained", "refused", "failed", "not run"]
    losses: tuple[float | None, ...] = ()
    phase_gap: float = 0.0
    reason: str = ""


def run_case(config: RunConfig, device: str, group: Group | None = None) -> CaseRun:
    """Train a run on a device, alone or with the ranks of a group, and return the result.

    Args:
        config: settings of the run.
        device: device of this rank; it takes the place of the config's.
        group: the ranks; None for this process alone.

    Raises:
        Exception: the error of a run of a group, since other ranks may wait for this one, or one after which this
            process can no longer use its GPU. Other errors of a run alone are returned.
    """
    recorder = RecordingRecorder()
    config = config.replace(device=device.partition(":")[0])
    try:
        with tempfile.TemporaryDirectory() as folder:
            train_in_memory(
                config, load_for(config), Path(folder) / "checkpoint", group=group, device=device, recorder=recorder
            )
    except Exception as error:
        if isinstance(error, REFUSALS) and not recorder.events("kernel"):  # the first event of a started run
            return CaseRun("refused", reason=str(error))
        if group is not None and group.size > 1:
            raise
        if device != "cpu":
            torch.cuda.synchronize(device)  # raises after an error that spoils all later work of the process
        return CaseRun("failed", reason=f"{type(error).__name__}: {error}")
    losses = (*recorder.column("steps", "global_loss"), *recorder.column("evaluations", "loss"))
    gap = max(map(_phase_gap, recorder.tables["steps"]), default=0.0)
    return CaseRun("trained", losses, gap)


def _phase_gap(step: Mapping[str, Any]) -> float:
    seconds = float(step["time_s"])
    return abs(sum(step[f"{phase}_s"] for phase in PHASES) - seconds) / max(seconds, 1e-9)
