"""``lab.studies.decay``: losses, memory and time over K and alpha, one run per cell, stored as they finish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.local import train
from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunFailedError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.runs.decay_study import Cell, DecayCells, DecayStudy, cell_row, failed_row
from dtdg_lab.runs.directory import ENDED
from dtdg_lab.runs.run import StoredRun, open_run

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session


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
    on_cell: Callable[[DecayStudy], None] | None = None,
    progress: bool = True,
) -> DecayStudy:
    """Train once for every K, alpha and seed, one run after another; the whole map of the first seed comes first.

    Finished cells are stored in a file of ``runs_dir``: the same call, or one with more cells, resumes an
    interrupted study. If K is the whole window, alpha has no effect, and one run serves all alphas. A cell whose run
    fails,
    for example by a loss that is not finite, has the reason but no numbers, and is retried by the next call.

    Args:
        config: of a system with temporal decay; its K, alpha and seed are replaced.
        full_snapshots: K of the map; at most the window.
        alphas: of the map.
        seeds: runs of every K and alpha.
        session: whose engines train; by default this process, with ``ranks=1``.
        runs_dir: folder for finished cells and, without a session, the runs.
        restart: train all cells again, including finished ones.
        on_cell: called with the current study: with the results of earlier calls, then after every cell, for example to
            draw its figure.
        progress: show a progress bar of cells.

    Raises:
        ConfigError: the system has no decay, the config tunes by itself, a number is out of range, or there are
            several ranks and no session.
        RunFailedError: a run was stopped, and the study with it; finished cells are kept.
        LabError: a run cannot be started.

    References: FlareDTDG section 4.6 and Figure 8.
    """
    configs = _configs(config, full_snapshots, alphas, seeds)
    _check(config, session)
    from tqdm.auto import tqdm

    kept = DecayCells(Path(runs_dir), config, restart=restart)
    rows = _done(kept, configs)
    frame = _frame(config, configs)

    def study() -> DecayStudy:
        return replace(frame, rows=tuple(rows[cell] for cell in configs if cell in rows))

    if rows and on_cell is not None:
        on_cell(study())
    with tqdm(total=len(configs), initial=len(rows), unit="cell", disable=not progress) as bar:
        for cell, of_cell in configs.items():
            if cell in rows:
                continue
            rows[cell] = _row(cell, of_cell, rows, kept, session=session, runs_dir=runs_dir)
            bar.update()
            if on_cell is not None:
                on_cell(study())
    return study()


def _frame(config: RunConfig, cells: Iterable[Cell]) -> DecayStudy:
    """A study of these cells; no cell is finished yet."""
    full, alphas, seeds = (tuple(dict.fromkeys(values)) for values in zip(*cells, strict=True))
    shape = f"{config['window']} snapshots, {config['decay']} decay"
    described = f"{config.model} on {config.dataset}, {config.system}: windows of {shape}"
    return DecayStudy((), full, alphas, seeds, config["task"], described)


def _configs(
    config: RunConfig, full_snapshots: Sequence[int], alphas: Sequence[float], seeds: Sequence[int]
) -> dict[Cell, RunConfig]:
    """Every cell with its config, so that all are validated before training starts."""
    if "alpha" not in config.flat:
        named = [name for name in catalogue.names("systems") if _decays(name)]
        raise ConfigError(
            f"system={config.system!r} has no decay; {', '.join(named)} {'has' if len(named) == 1 else 'have'} one. "
            f"Choose it: config.replace(system={named[0]!r})."
        )
    if not (len(full_snapshots) and len(alphas) and len(seeds)):
        raise ConfigError(
            f"full_snapshots={tuple(full_snapshots)}, alphas={tuple(alphas)}, seeds={tuple(seeds)}: give at least "
            "one of "
            "each."
        )
    if max(full_snapshots) > config["window"]:
        raise ConfigError(
            f"full_snapshots={max(full_snapshots)} exceeds window={config['window']}, which is all snapshots of a "
            "step: leave it out, or study config.replace(window=...)."
        )
    found = {}
    for seed in seeds:
        for full in full_snapshots:
            for alpha in alphas:
                of_cell = config.replace(full_snapshots=full, alpha=alpha, seed=seed)
                found[of_cell["full_snapshots"], of_cell["alpha"], of_cell.seed] = of_cell
    return found


def _decays(system: str) -> bool:
    batching = catalogue.system(system).parts.get("batching")
    return batching is not None and "alpha" in catalogue.entry("batching", batching).options


def _check(config: RunConfig, session: Session | None) -> None:
    if config["tune"]:
        raise ConfigError("tune=True changes K and alpha while a cell trains: study config.replace(tune=False).")
    if session is None and config.ranks != 1:
        raise ConfigError(
            f"ranks={config.ranks} need engines: lab.studies.decay(config, session=lab.Session(ranks={config.ranks})), "
            "or config.replace(ranks=1), which keeps the same plan."
        )


def _done(kept: DecayCells, configs: dict[Cell, RunConfig]) -> dict[Cell, dict[str, Any]]:
    """Results of earlier calls on the same data."""
    if not len(kept):
        return {}
    hashes = {of_cell.seed: of_cell for of_cell in configs.values()}
    data = {seed: load_for(of_cell).data_hash for seed, of_cell in hashes.items()}
    found = {cell: kept.find(cell, data[cell[2]]) for cell in configs}
    return {cell: row for cell, row in found.items() if row is not None}


def _row(
    cell: Cell,
    config: RunConfig,
    rows: dict[Cell, dict[str, Any]],
    kept: DecayCells,
    *,
    session: Session | None,
    runs_dir: str | Path,
) -> dict[str, Any]:
    """The row of a cell: from its own run, or from the run of another alpha if alpha has no effect."""
    if config["full_snapshots"] == config["window"]:
        like = (other for other in rows if (other[0], other[2]) == (cell[0], cell[2]) and not rows[other]["reason"])
        other = next(like, None)
        if other is not None:
            kept.put(row := {**rows[other], "alpha": cell[1]}, kept.data_hash(other))
            return row
    try:
        run = train(config, runs_dir=runs_dir, progress=False) if session is None else _on_engines(config, session)
    except RunFailedError as error:
        return failed_row(cell, str(error))
    if run.status != "finished":
        raise RunFailedError(
            f"run {run.id} was {run.status}, and the study with it: {len(kept)} cells are kept in {kept.path}. Call "
            "lab.studies.decay again to resume."
        )
    row = cell_row(cell, run)
    kept.put(row, run.environment["data"]["sha256"])
    return row


def _on_engines(config: RunConfig, session: Session) -> StoredRun:
    run = session.train(config)
    try:
        run.wait()
    except KeyboardInterrupt:  # an interrupted study stops its run
        if run.status not in ENDED:
            run.stop()
        raise
    return open_run(run.path)
