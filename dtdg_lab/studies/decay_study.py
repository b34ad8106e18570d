"""``lab.studies.decay``: losses, memory and time for values of K and alpha, as a study with its own name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.core.files import writable_folder
from dtdg_lab.datasets.names import load_for
from dtdg_lab.studies.preset import preset
from dtdg_lab.studies.run_study import FOLDER, run_in
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.studies.trials import FINISHED, Trial, TrialJournal

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session

FIGURE8 = "figure8"
FULL_SNAPSHOTS, ALPHAS, SEEDS = (1, 2, 3, 4), (0.05, 0.1, 0.3, 0.6, 1.0), (0, 1, 2)


def study_decay(
    config: RunConfig,
    full_snapshots: Sequence[int] = FULL_SNAPSHOTS,
    alphas: Sequence[float] = ALPHAS,
    seeds: Sequence[int] = SEEDS,
    *,
    session: Session | None = None,
    runs_dir: str | Path = "runs",
    restart: bool = False,
    on_cell: Callable[[Any], None] | None = None,
    progress: bool = True,
) -> Any:
    """Train a run for every K, alpha and seed, one after another; all of the first seed come first.

    The study is in ``runs_dir``, named after the config without K, alpha and seed. The same call, or one with other
    cells, resumes an interrupted study and reuses finished cells of the same data. If K is the whole window, alpha has
    no effect, and one run is used for all alphas. If the run of a cell fails, for example since its loss is not finite,
    the cell has the reason instead of numbers, and the next call tries it again.

    Args:
        config: settings of a system with temporal decay; K, alpha and seed are replaced.
        full_snapshots: values of K, at most the window.
        alphas: values of alpha.
        seeds: seeds of the runs for every K and alpha.
        session: the session whose engines train; by default this process does, with ``ranks=1``.
        runs_dir: folder for the study and, without a session, for the runs.
        restart: whether finished cells are trained again, too.
        on_cell: function called with the study as it is: first with the results of earlier calls, then after every run;
            it can draw the figure, for example.
        progress: whether a progress bar is shown.

    Returns:
        A ``DecayStudy`` with rows, means over seeds, the best cell, and heat maps.

    Raises:
        ConfigError: the system has no decay, the config tunes itself, a number is out of range, or there are several
            ranks and no session.
        RunFailedError: a run was stopped, and the study with it; finished cells are kept.
        RunStoreError: another process writes to the study, or one of its files is damaged.
        LabError: a run cannot be started.

    References: FlareDTDG section 4.6 and Figure 8.
    """
    figure8 = preset(FIGURE8)
    figure8.check(config)
    window = config["window"]
    full_snapshots, alphas = tuple(dict.fromkeys(full_snapshots)), tuple(dict.fromkeys(alphas))
    seeds = tuple(dict.fromkeys(seeds))
    if not (full_snapshots and alphas and seeds):
        raise ConfigError(
            "a study of the decay needs values. Give at least one value each for full_snapshots, alphas and seeds."
        )
    if max(full_snapshots) > window:
        raise ConfigError(
            f"full_snapshots={max(full_snapshots)} exceeds window={window}, the number of snapshots in a step. Leave "
            "it out, or study config.replace(window=...)."
        )
    config = config.replace(full_snapshots=1, alpha=1.0, seed=0)
    root = writable_folder(runs_dir, "runs_dir", RunStoreError)
    folder = root / FOLDER / f"decay-{config.short_hash}"
    trials = [] if restart else TrialJournal(folder).read()
    window_alphas = [trial.settings["alpha"] for trial in trials if trial.settings["full_snapshots"] == window]
    reused = window_alphas[:1] if window in full_snapshots else []  # alpha of the run that is used for all alphas
    all_alphas = tuple(dict.fromkeys([*reused, *alphas]))
    over, skip = figure8.refine(config, {"full_snapshots": full_snapshots, "alpha": all_alphas}, False)
    if reused and reused[0] not in alphas and len(full_snapshots) > 1:
        skip = [*skip, {"full_snapshots": [k for k in full_snapshots if k != window], "alpha": reused[0]}]
    sweep = Sweep(config, over, seeds, skip=skip, shipped=FIGURE8)

    def result(study: Study) -> Any:
        return figure8.result(study, full_snapshots, alphas)

    def report(study: Study) -> None:
        if on_cell is not None and (cells := result(study)).rows:
            on_cell(cells)

    @cache
    def data_hash(seed: int) -> str:
        return load_for(config.replace(seed=seed)).data_hash

    def outdated(trial: Trial) -> str:
        if trial.status != FINISHED or trial.seed not in sweep.all_seeds:
            return ""
        return "" if trial.provenance["data_hash"] == data_hash(trial.seed) else "its data changed"

    study = run_in(
        folder,
        sweep,
        session=session,
        runs_dir=root,
        on_trial=report,
        progress=progress,
        restart=restart,
        outdated=outdated,
    )
    return result(study)
