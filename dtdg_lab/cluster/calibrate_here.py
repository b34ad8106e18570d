"""``lab.control.calibrate_here``: measures the costs of steps and fetches on this machine, in a few minutes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.local import run_config
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunFailedError
from dtdg_lab.runs.calibration import WARM_UPS, power_rows, step_seconds
from dtdg_lab.runs.run import StoredRun
from dtdg_lab.systems.feature_cache.calibration_study import (
    CalibrationStudy,
    Cell,
    cell_config,
    cells_wanted,
    measured_fetches,
    stored_study,
)
from dtdg_lab.systems.feature_cache.policies.calibration import cells_of

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session


WINDOWS, MIDDLE = (1, 2, 4, 8, 16, 32, 64), 16
CONDITIONS = ("c1_500mbit", "c1_200mbit", "c1_100mbit", "c1_50mbit", "c4_5ms", "c4_10ms", "c4_20ms")
ROWS = (10, 30, 100, 300, 1_000, 3_000)
LEAST_STEPS = 60  # of a cell


def calibrate_here(
    config: RunConfig,
    folder: str | Path,
    *,
    windows: Sequence[int] = WINDOWS,
    conditions: Sequence[str] = CONDITIONS,
    rows: Sequence[int] = ROWS,
    repeats: int = 30,
    steps: int = LEAST_STEPS,
    name: str = "",
    session: Session | None = None,
    runs_dir: str | Path = "runs",
    progress: bool = True,
) -> CalibrationStudy:
    """Measure fetches, and steps of short runs under several windows and conditions, and fit cost constants to them.

    With clean links every window has a run, under the other conditions one window. A run is long enough for two
    windows and their rebuilds; its first steps do not count. Measurements are stored in ``folder``, in the format of
    :func:`dtdg_lab.control.calibrate`.

    Args:
        config: of a system that fetches features; its policy, window, links and epochs are replaced.
        folder: for the files; those of an earlier study are replaced.
        windows: W measured on clean links.
        conditions: applied to one owner's links in turn; see
        :mod:`dtdg_lab.systems.feature_cache.policies.calibration`.
        rows: numbers of rows per fetch.
        repeats: fetches of each number and owner, one at a time and concurrently.
        steps: minimum steps of a run that count.
        name: of the data set in the files; by default the config's.
        session: whose engines train; by default this process, with ``ranks=1``.
        runs_dir: folder for the runs, without a session.
        progress: show a progress bar of runs.

    Raises:
        ConfigError: the system fetches nothing, or there are several ranks and no session; or a condition or window
            is invalid, or there are too few.
        RunFailedError: a run did not finish.
        LabError: a run cannot be started.

    References: GreenDyGNN section IV-B, algorithm 1.
    """
    cells = cells_wanted(windows, conditions, MIDDLE)
    cell_config(config, cells[0], 1)  # refused before anything is trained
    _check(config, session, steps)
    from tqdm.auto import tqdm

    named = name or config.dataset
    runs: list[StoredRun] = []
    described: list[dict[str, Any]] = []
    with tqdm(total=len(cells) + 1, unit="run", disable=not progress) as bar:
        first = _trained(config, ("clean", MIDDLE), 1, session, runs_dir)  # its steps are not recorded
        facts = next(event["data"] for event in reversed(first.events) if event["kind"] == "features")
        bar.update()
        for cell in cells:
            epochs = math.ceil((WARM_UPS + max(steps, 2 * cell[1])) / facts["steps_per_epoch"])
            runs.append(_trained(config, cell, epochs, session, runs_dir))
            described += cells_of([(cell[1], seconds) for seconds in step_seconds(runs[-1])], named, condition=cell[0])
            bar.update()
    fetched = measured_fetches(cells, rows, facts["row_bytes"] // 4, parts=config.parts, repeats=repeats, dataset=named)
    words = f"{named}: {len(cells)} cells, {len(fetched):,} fetches, {config.parts} parts on {config.ranks} rank(s)"
    return stored_study(
        Path(folder), words, parts=config.parts, steps=described, fetches=fetched, power=power_rows(runs)
    )


def _check(config: RunConfig, session: Session | None, steps: int) -> None:
    if steps < 1:
        raise ConfigError(f"steps={steps}: give at least one step.")
    if session is None and config.ranks != 1:
        raise ConfigError(
            f"ranks={config.ranks} need engines: lab.control.calibrate_here(config, folder, session=lab.Session(ranks="
            f"{config.ranks})), or config.replace(ranks=1), which keeps the same plan."
        )


def _trained(config: RunConfig, cell: Cell, epochs: int, session: Session | None, runs_dir: str | Path) -> StoredRun:
    """A run of one cell, which came to its end."""
    of_cell = cell_config(config, cell, epochs)
    run = run_config(of_cell, session=session, runs_dir=runs_dir).run
    if run.status != "finished":
        raise RunFailedError(f"run {run.id}, {cell[0]} at W={cell[1]}, was {run.status}: the study ends with it.")
    return run
