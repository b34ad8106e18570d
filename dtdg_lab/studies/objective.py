"""Objectives of studies: numbers of a run that do not depend on test labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.runs.run import StoredRun
from dtdg_lab.runs.summary import SUMMARY_MEANINGS

Goal = Literal["min", "max"]
LAST, BEST = "validation_loss", "best_validation_loss"
OF_TEST = ("test_loss", "skill", "persistence_loss", "mean_loss", "metrics", "skill_split")
_WORDS = (
    "partitioner",
    "scheduler",
    "without_edges",
    "phase_time_s",
    "phase_j",
    "gpu_j",
    "processor_j",
    "energy_coverage",
    "link_intervals",
    "link_warning",
)
BASELINES: Mapping[str, str] = MappingProxyType(
    {"validation_persistence_loss": "persistence_loss", "validation_mean_loss": "mean_loss"}
)


def check_objective(name: str) -> None:
    """Check that trials may be compared by a number.

    Raises:
        ConfigError: it depends on the test split, which model selection must not use.
        UnknownNameError: runs have no such number.
    """
    if name in OF_TEST or name.startswith("test"):
        raise ConfigError(
            f"objective={name!r} depends, or may depend, on the test split, which must not be used to choose "
            "settings. Use "
            f"{LAST!r} or {BEST!r}, and evaluate the chosen settings on the test split."
        )
    allowed = {LAST, BEST, *SUMMARY_MEANINGS} - {*OF_TEST, *_WORDS}
    if name not in allowed:
        raise UnknownNameError("objective", name, allowed)


def values_of(run: StoredRun) -> dict[str, Any]:
    """The numbers of a run that ended: its summary, its best validation loss, and the baselines of that split.

    Joules of several sources are summed. Unknown values are None.

    Raises:
        RunStoreError, DataError: its files cannot be read.
    """
    evaluations = run.table("evaluations")
    rows = evaluations[evaluations["split"] == "validation"].to_dict("records")
    losses = [float(row["loss"]) for row in rows if row["loss"] is not None and math.isfinite(row["loss"])]
    last = rows[-1] if rows else {}
    described = {name: run.summary.get(name) for name in SUMMARY_MEANINGS}
    joules = described.get("energy_j")
    return {
        **described,
        LAST: described.get(LAST) if described.get(LAST) is not None else (losses[-1] if losses else None),
        BEST: min(losses, default=None),
        **{name: last.get(column) for name, column in BASELINES.items()},
        "energy_j": sum(joules.values()) if isinstance(joules, dict) else joules,
    }


def number(value: Any) -> float | None:
    """A value as a number; None where it is none, or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
