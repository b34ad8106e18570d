"""Objectives of studies: numbers of a run that do not depend on labels of the test split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.runs.summary import NON_NUMERIC, SUMMARY_MEANINGS

Goal = Literal["min", "max"]
LAST, BEST = "validation_loss", "best_validation_loss"
OF_TEST = ("test_loss", "skill", "persistence_loss", "mean_loss", "metrics", "skill_split")
BASELINES: Mapping[str, str] = MappingProxyType(
    {"validation_persistence_loss": "persistence_loss", "validation_mean_loss": "mean_loss"}
)


def check_objective(name: str) -> None:
    """Check that trials may be compared by a number.

    Raises:
        ConfigError: the number depends on the test split, which must not be used to choose settings.
        UnknownNameError: runs have no such number.
    """
    if name in OF_TEST or name.startswith("test"):
        raise ConfigError(
            f"objective={name!r} depends, or may depend, on the test split, which must not be used to choose settings. "
            f"Use {LAST!r} or {BEST!r}, and evaluate the chosen settings on the test split."
        )
    allowed = {LAST, BEST, *SUMMARY_MEANINGS} - {*OF_TEST, *NON_NUMERIC}
    if name not in allowed:
        raise UnknownNameError("objective", name, allowed)


def validation_curve(run: StoredRun) -> tuple[tuple[int, float], ...]:
    """Return (completed epochs, loss) of every evaluation on the validation split with a finite loss."""
    evaluations = run.table("evaluations")
    rows = evaluations[evaluations["split"] == "validation"].to_dict("records")
    losses = {int(row["epoch"]): loss for row in rows if (loss := finite_number(row["loss"])) is not None}
    return tuple(sorted(losses.items()))


def values_of(run: StoredRun) -> dict[str, Any]:
    """Return the summary of a run that has ended, its best validation loss, and the baselines of that split.

    Joules of several sources are summed. Unknown values are None.

    Raises:
        RunStoreError, DataError: the run's files cannot be read.
    """
    evaluations = run.table("evaluations")
    rows = evaluations[evaluations["split"] == "validation"].to_dict("records")
    losses = [loss for row in rows if (loss := finite_number(row["loss"])) is not None]
    last_row = rows[-1] if rows else {}
    summary = {name: run.summary.get(name) for name in SUMMARY_MEANINGS}
    joules = summary.get("energy_j")
    if summary.get(LAST) is None and losses:
        summary[LAST] = losses[-1]
    return {
        **summary,
        BEST: min(losses, default=None),
        **{name: last_row.get(column) for name, column in BASELINES.items()},
        "energy_j": sum(joules.values()) if isinstance(joules, dict) else joules,
    }


def finite_number(value: Any) -> float | None:
    """Return a value as a number; None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
