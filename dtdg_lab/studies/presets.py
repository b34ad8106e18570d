"""Studies shipped with the lab, by name, and lab.studies.decay; those of one family of systems lie with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError, UnknownNameError
from dtdg_lab.core.files import writable_folder
from dtdg_lab.core.units import format_seconds
from dtdg_lab.datasets.names import load_for
from dtdg_lab.studies.preset import StudyPreset, declared_presets
from dtdg_lab.studies.runner import FOLDER, run_in
from dtdg_lab.studies.study import Panel, Study
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.studies.trials import FINISHED, Trial, TrialLog
from dtdg_lab.visualization.runs.curves import NEAR, finite_losses
from dtdg_lab.visualization.studies.spread import SpreadBar, order_words, spread_bars

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session


# Studies shipped with the lab, by name; those of one family of systems lie with it.


def presets() -> dict[str, StudyPreset]:
    """Return all shipped studies by name."""
    of_families = [
        preset for family in catalogue.families() for preset in (*family.studies(), *declared_presets(family.name))
    ]
    return {preset.name: preset for preset in (*of_families, *declared_presets(""))}


def preset(name: str) -> StudyPreset:
    """The shipped study called ``name``.

    Raises:
        UnknownNameError: none is.
    """
    known = presets()
    if name not in known:
        raise UnknownNameError("shipped study", name, known)
    return known[name]


def sweep_of(made: StudyPreset, base: RunConfig | None, quick: bool) -> Sweep:
    """The runs of a shipped study.

    Args:
        made: the study.
        base: settings in place of the study's own data, model and sizes.
        quick: its short form.

    Raises:
        ConfigError: the base's system lacks what is studied.
    """
    config = base or RunConfig(**made.base, **(made.quick if quick else made.full))
    made.check(config)
    over, skip = made.refine(config, dict(made.quick_over if quick else made.over), quick)
    seeds = made.quick_seeds if quick else made.seeds
    config = config.replace(**made.fixed)
    return Sweep(config, over, seeds, skip=skip, objective=made.objective, shipped=made.name)


def analysis_of(made: StudyPreset, study: Study) -> dict[str, Panel]:
    """The figures of a shipped study, finished or not, each with its caption."""
    axis, *more = study.sweep.names
    found = {} if made.analysis is None else dict(made.analysis(study))
    if made.bars:
        found[made.name] = near_best_panel(study, axis, paper=made.paper, title=made.bars)
    return found | {name: study.map_panel(axis, more[0], colour) for name, colour in made.maps.items()}


# Time to a loss close to the best of all runs, which papers call convergence time.


Points = tuple[tuple[float, float], ...]  # (seconds of the run, validation loss)
MOST_READ = 1000
_READ: dict[Path, Points] = {}


def seconds_to_near_best(study: Study, axis: str, paper: Mapping[str, float]) -> list[SpreadBar]:
    """A bar for each value of the one axis: wall seconds to a validation loss 5 % above the lowest of its seed.

    Args:
        study: finished or not.
        axis: that is studied.
        paper: value -> seconds that the paper reports.
    """
    done = [trial for trial in study.trials if trial.status == FINISHED]
    points = {trial.key: _points(study, trial) for trial in done}
    least: dict[int, float] = {}  # by seed: generated data depend on the seed
    for trial in done:
        for _, loss in points[trial.key]:
            least[trial.seed] = min(loss, least.get(trial.seed, loss))
    bars = []
    for value in study.sweep.axes[0].values:
        seconds = []
        for trial in (each for each in done if each.settings[axis] == value):
            aim = least.get(trial.seed, 0.0) * (1 + NEAR)
            seconds.append(next((at for at, loss in points[trial.key] if loss <= aim), None))
        known = tuple(each for each in seconds if each is not None)
        bars.append(SpreadBar(str(value), known, len(seconds) - len(known), paper.get(str(value))))
    return bars


def _points(study: Study, trial: Trial) -> Points:
    """Seconds and losses of a finished run; cached, because a study is redrawn with every trial."""
    path = None if trial.run is None else trial.run.resolve()
    if path is None or path not in _READ:
        found = tuple(finite_losses(study.open(trial).live))
        if path is None:
            return found
        if len(_READ) >= MOST_READ:
            _READ.clear()
        _READ[path] = found
    return _READ[path]


def near_best_panel(study: Study, axis: str, *, paper: Mapping[str, float], title: str) -> Panel:
    """The bars and their ranking, beside the values that the paper reports for its own data and machines."""
    bars = seconds_to_near_best(study, axis, paper)
    figure = spread_bars(bars, title, f"seconds to a validation loss {NEAR:.0%} above the lowest of the seed")
    reported = ", ".join(f"{bar.label} {format_seconds(bar.paper)}" for bar in bars if bar.paper is not None)
    said = f" The paper reports, on other data and machines: {reported}." if reported else ""
    return figure, f"{order_words(bars, 'time')}{said}"


# lab.studies.decay: losses, memory and time over K and alpha, as a study of its own name.


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
    """Train once for every K, alpha and seed, one run after another; the whole map of the first seed comes first.

    It is a study in ``runs_dir``, named after the config without K, alpha and seed: the same call, or one with other
    cells, resumes an interrupted study and reuses finished cells of the same data. If K is the whole window, alpha has
    no effect, and one run serves all alphas. A cell whose run fails, for example by a loss that is not finite, has the
    reason but no numbers, and is retried by the next call.

    Args:
        config: of a system with temporal decay; its K, alpha and seed are replaced.
        full_snapshots: K of the map; at most the window.
        alphas: of the map.
        seeds: runs of every K and alpha.
        session: whose engines train; by default this process, with ``ranks=1``.
        runs_dir: folder for the study and, without a session, the runs.
        restart: train all cells again, including finished ones.
        on_cell: called with the current study: with the results of earlier calls, then after every run, for example to
            draw its figure.
        progress: show a progress bar of runs.

    Returns:
        A ``DecayStudy``: rows, means over seeds, the best cell, heat maps.

    Raises:
        ConfigError: the system has no decay, the config tunes by itself, a number is out of range, or there are
            several ranks and no session.
        RunFailedError: a run was stopped, and the study with it; finished cells are kept.
        RunStoreError: another process writes the study, or a file of it is damaged.
        LabError: a run cannot be started.

    References: FlareDTDG section 4.6 and Figure 8.
    """
    made = preset(FIGURE8)
    made.check(config)
    window = config["window"]
    full_snapshots, alphas = tuple(dict.fromkeys(full_snapshots)), tuple(dict.fromkeys(alphas))
    seeds = tuple(dict.fromkeys(seeds))
    if not (full_snapshots and alphas and seeds):
        raise ConfigError(
            "a study of the decay needs values: give at least one value each of full_snapshots, alphas and seeds."
        )
    if max(full_snapshots) > window:
        raise ConfigError(
            f"full_snapshots={max(full_snapshots)} exceeds window={window}, which is all snapshots of a step: leave it "
            "out, or study config.replace(window=...)."
        )
    config = config.replace(full_snapshots=1, alpha=1.0, seed=0)
    root = writable_folder(runs_dir, "runs_dir", RunStoreError)
    folder = root / FOLDER / f"decay-{config.short_hash}"
    known = [] if restart else TrialLog(folder).read()
    served = [trial.settings["alpha"] for trial in known if trial.settings["full_snapshots"] == window]
    kept = [alpha for alpha in served if window in full_snapshots][:1]  # of a run that serves all alphas
    order = tuple(dict.fromkeys([*kept, *alphas]))
    over, skip = made.refine(config, {"full_snapshots": tuple(full_snapshots), "alpha": order}, False)
    if kept and kept[0] not in alphas and len(full_snapshots) > 1:
        skip = [*skip, {"full_snapshots": [k for k in full_snapshots if k != window], "alpha": kept[0]}]
    sweep = Sweep(config, over, seeds, skip=skip, shipped=FIGURE8)

    def result(study: Study) -> Any:
        return made.result(study, full_snapshots, alphas)

    def report(study: Study) -> None:
        if on_cell is not None and (found := result(study)).rows:
            on_cell(found)

    @cache
    def data_hash(seed: int) -> str:
        return load_for(config.replace(seed=seed)).data_hash

    def outdated(trial: Trial) -> str:
        if trial.status != FINISHED or trial.seed not in sweep.all_seeds:
            return ""
        return "" if trial.provenance["data_hash"] == data_hash(trial.seed) else "its data changed"

    return result(
        run_in(
            folder,
            sweep,
            session=session,
            runs_dir=root,
            on_trial=report,
            progress=progress,
            restart=restart,
            outdated=outdated,
        )
    )
