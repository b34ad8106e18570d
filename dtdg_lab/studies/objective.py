"""What a study compares its trials by: numbers of a run that no test label went into."""

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
    """Whether trials may be compared by a number.

    Raises:
        ConfigError: it is of the test split, which nothing that chooses may read.
        UnknownNameError: runs have no such number.
    """
    if name in OF_TEST or name.startswith("test"):
        raise ConfigError(
            f"objective={name!r} is, or may be, of the test split, which nothing that chooses settings may read. Take "
            f"{LAST!r} or {BEST!r}, and look at the test split of the chosen one."
        )
    allowed = {LAST, BEST, *SUMMARY_MEANINGS} - {*OF_TEST, *_WORDS}
    if name not in allowed:
        raise UnknownNameError("objective", name, allowed)


def values_of(run: StoredRun) -> dict[str, Any]:
    """The numbers of a run that ended: its summary, and of its validation split the best loss and the baselines.

    Joules of several sources are summed. What is not known is None.

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
