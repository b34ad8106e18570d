"""The congestion of a run as a file that another run repeats."""

from __future__ import annotations

from pathlib import Path

from dtdg_lab.congestion.recorded import save_trace
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.paths import as_path
from dtdg_lab.runs.open import StoredRun


def save_congestion(run: StoredRun, file: str | Path) -> Path:
    """Write when a run's links were how slow, for ``RunConfig(congestion="recorded", congestion_file=file)``.

    Changes that were made by hand while it ran are in it, as what they came to.

    Args:
        run: with events ``congestion``: of a system that moves features or rows between parts.
        file: JSON lines.

    Raises:
        DataError: the run has no such events, or the file cannot be written.
    """
    events, steps = run.table("events"), run.table("steps")
    told = events[(events["kind"] == "congestion") & (events["rank"] == 0)]
    if not len(told) or not len(steps):
        raise DataError(
            f"{run.path} tells nothing of its links: runs of systems that move features or rows between parts do, once "
            "they have made a step."
        )
    per_epoch = int(steps.groupby("epoch")["iteration"].max().max()) + 1
    return save_trace(told.to_dict("records"), as_path(file, "file"), steps_per_epoch=per_epoch)
