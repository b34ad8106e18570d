"""``lab.calibration.calibrate_here``: measures the costs of steps and fetches on this machine, in a few minutes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.one_run import run_config
from dtdg_lab.config.catalogue import family, system
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunFailedError
from dtdg_lab.runs.environment import describe_environment
from dtdg_lab.runs.measurements import WARM_UPS, power_rows, step_seconds
from dtdg_lab.runs.stored_run import StoredRun

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session


WINDOWS = (1, 2, 4, 8, 16, 32, 64)
CONDITIONS = ("c1_500mbit", "c1_200mbit", "c1_100mbit", "c1_50mbit", "c4_5ms", "c4_10ms", "c4_20ms")
ROWS = (10, 30, 100, 300, 1_000, 3_000)
LEAST_STEPS = 60  # minimum steps per cell


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
) -> Any:
    """Measure fetches, and steps of short runs under several windows and conditions, and fit cost constants to them.

    With clean links every window has a run, under other conditions only one window. A run is long enough for two
    windows and their rebuilds; its first steps do not count, nor do those after its last rebuild. Measurements are
    stored in ``folder``, in the format that :func:`dtdg_lab.calibration.calibrate` reads; ``calibration.json`` says
    what was measured, when, and where.

    Args:
        config: config of a system that fetches features; its policy, window, links and epochs are replaced.
        folder: folder for the files; files of an earlier study are replaced.
        windows: W measured on clean links.
        conditions: applied to one owner's links in turn: ``clean``, ``c1_<X>mbit`` (rate) or ``c4_<Y>ms`` (delay).
        rows: numbers of rows per fetch.
        repeats: fetches of each number and owner, one at a time and concurrently.
        steps: minimum measured steps of a run.
        name: name of the data set in the files; by default the config's.
        session: whose engines train; by default this process, with ``ranks=1``.
        runs_dir: folder for the runs, without a session.
        progress: show a progress bar of runs.

    Returns:
        The ``calibration``, with ``costs()``, ``table()`` and ``figure()``.

    Raises:
        ConfigError: the system fetches nothing, several ranks have no session, or conditions or windows are invalid or
            too few.
        RunFailedError: a run did not finish.
        LabError: a run cannot be started.

    References: GreenDyGNN section IV-B, algorithm 1.
    """
    sizes = {"windows": windows, "conditions": conditions, "rows": rows, "repeats": repeats, "steps": steps}
    plan = family(system(config.system).family).calibration(config, name=name or config.dataset, **sizes)
    if session is None and config.ranks != 1:
        raise ConfigError(
            f"ranks={config.ranks} need engines. Pass session=lab.Session(ranks={config.ranks}), or "
            "config.replace(ranks=1), which keeps the same plan."
        )
    from tqdm.auto import tqdm

    def trained(cell_config: RunConfig) -> StoredRun:
        run = run_config(cell_config, session=session, runs_dir=runs_dir).run
        if run.status != "finished":
            raise RunFailedError(f"run {run.id} was {run.status}: the study ends with it.")
        bar.update()
        return run

    with tqdm(total=len(plan.cells) + 1, unit="run", disable=not progress) as bar:
        first = trained(plan.first)  # warms up; its steps are not recorded
        runs = [trained(cell_config) for cell_config in plan.configs(first, WARM_UPS)]
    return plan.study(Path(folder), [step_seconds(run) for run in runs], power_rows(runs), describe_environment())
