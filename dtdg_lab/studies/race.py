"""``lab.race``: train several systems, or settings of one system, on the same data under the same rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.worker import rehearse
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError, shortened
from dtdg_lab.core.files import writable_folder
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.studies.race_plan import RacePlan, StopRule, contestants, data_hashes, find_race, new_race
from dtdg_lab.studies.race_result import Race
from dtdg_lab.studies.race_table import copy_bandwidth
from dtdg_lab.studies.trial_runner import TrialRunner, progress_bar
from dtdg_lab.studies.trials import FINISHED, Trial, one_writer

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session


SEEDS = (0, 1, 2)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")


def race(
    configs: Sequence[RunConfig] | Mapping[str, RunConfig],
    *,
    seeds: Sequence[int] = SEEDS,
    session: Session | None = None,
    parallel: bool = False,
    stop: StopRule | None = None,
    runs_dir: str | Path = "runs",
    name: str = "",
    on_change: Callable[[Race], None] | None = None,
    progress: bool = True,
) -> Race:
    """Train every config with every seed, and compare losses over time, joules, bytes and memory.

    Data, split, task, evaluation, epochs and precision must be the same for all; otherwise the race is refused. All
    contestants run with the first seed before the next seed starts. The same call with the same name resumes an
    interrupted race, and may add contestants and seeds: finished runs are kept, and unfinished runs start again so that
    their times are complete.

    Args:
        configs: settings of at least two contestants; a mapping also gives their names. Their seeds are replaced.
        seeds: seeds of each contestant's runs. At least two are needed for a spread; without a spread, nothing is
            called the best.
        session: the session whose engines train, into its own folder of runs; by default this process, with
            ``ranks=1``.
        parallel: whether two contestants run at the same time, on halves of the session's engines; they share the
            machine.
        stop: a rule that stops runs early, which only uses the validation split and the clock.
        runs_dir: folder for ``races/`` and, without a session, for the runs.
        name: the race's name, which is needed to resume it. By default it is made from the systems, and every call is a
            new race.
        on_change: function called with the race after every validation evaluation, and when a run starts or ends; it
            can draw the figure, for example.
        progress: whether a progress bar is shown.

    Raises:
        ConfigError: contestants differ in a setting that must be the same (the message has both values), there are
            fewer than two, one needs other engines, or a race of this name has other contents.
        RunStoreError: another process runs the race of this name, or the race cannot be written.
        RunFailedError: a run was stopped, and the race with it; finished runs are kept. If a run fails, this is
            recorded and the race continues.
    """
    return prepare(
        configs,
        seeds=seeds,
        session=session,
        parallel=parallel,
        stop=stop,
        runs_dir=runs_dir,
        name=name,
        on_change=on_change,
        progress=progress,
    ).run()


def prepare(
    configs: Sequence[RunConfig] | Mapping[str, RunConfig],
    *,
    seeds: Sequence[int] = SEEDS,
    session: Session | None = None,
    parallel: bool = False,
    stop: StopRule | None = None,
    runs_dir: str | Path = "runs",
    name: str = "",
    on_change: Callable[[Race], None] | None = None,
    progress: bool = True,
) -> RaceRunner:
    """Return a race that was checked, has its folder and is ready to run; see :func:`race`."""
    root = writable_folder(runs_dir, "runs_dir", RunStoreError)
    by_label = contestants(configs, seeds=seeds, stop=stop)
    _check_engines(by_label, session, parallel=parallel)
    if not isinstance(name, str) or (name and not _NAME.fullmatch(name)):
        raise ConfigError(
            f"name={shortened(name)} is invalid. It names a folder: use up to 80 letters, digits, '.', '_', '+' and "
            "'-', beginning with a letter or digit."
        )
    systems = list(dict.fromkeys(config.system for config in by_label.values()))
    suffix = f"-and-{len(systems) - 4}-more" if len(systems) > 4 else ""
    plan = RacePlan(
        name=name or "-".join(systems[:4]) + suffix,
        configs=by_label,
        seeds=tuple(int(seed) for seed in seeds),
        stop=stop,
        parallel=parallel,
        data=data_hashes(by_label, seeds),
        copy_bytes_per_s=copy_bandwidth(),
    )
    folder = find_race(name, root) if name else None
    return RaceRunner(folder or new_race(plan, root), plan, session, root, on_change=on_change, progress=progress)


class RaceRunner:
    """A race whose folder this process holds. It trains the missing runs; other threads may call ``stop``.

    Args:
        folder: the race's folder.
        plan: the plan that is joined to the one in the folder.
        session: the session whose engines train; None for this process.
        runs_dir: folder of runs if there is no session.
        on_change: see :func:`race`. The thread that trains or waits calls it, one call at a time.
        progress: whether a progress bar is shown.

    Attributes:
        race: the race, as it is now.

    Raises:
        ConfigError: the folder contains another race.
        RunStoreError: another process writes to it, or it cannot be read or written.
    """

    race: Race

    def __init__(
        self,
        folder: Path,
        plan: RacePlan,
        session: Session | None,
        runs_dir: Path,
        *,
        on_change: Callable[[Race], None] | None = None,
        progress: bool = False,
    ) -> None:
        self._session, self._on_change, self._progress = session, on_change, progress
        with ExitStack() as stack:
            stack.enter_context(one_writer(folder, "race"))
            self._plan = plan = RacePlan.load(folder).joined(plan, folder)
            judge = None if plan.stop is None else plan.stop.verdict
            self._runner = TrialRunner(
                folder,
                "race",
                session,
                runs_dir,
                decide=lambda *_: judge,
                resumes=False,
                start=self._started,
                evaluated=self._report,
                report=self._report,
            )
            for trial in list(self._runner.trials.values()):
                if trial.status == FINISHED and not (trial.run and RunDirectory(trial.run).config_file.is_file()):
                    self._runner.forget(trial, f"its run {trial.run and trial.run.name} is gone")
            plan.save(folder)
            self._lock = stack.pop_all()
        self.race = Race(folder, plan, self._runner.trials)

    def run(self) -> Race:
        """Train every run that is not finished yet. If a run fails, this is recorded and the race continues.

        Raises:
            RunFailedError: a run was stopped, and the race with it; finished runs are kept.
            LabError: the race cannot be written.
        """
        cells = self._plan.cells
        with self._lock, progress_bar(len(cells), self._progress) as self._runner.bar:
            if self._session is None and not self.race.over:
                rehearse()  # loads libraries, so that this does not count as the first contestant's time
            self._runner.execute(cells, parallel=self._plan.parallel)
        return self.race

    @property
    def stopped(self) -> bool:
        """Whether a stop was requested."""
        return self._runner.stopped

    def stop(self) -> None:
        """Stop the active runs and start no more; runs in this process stop after their next validation evaluation."""
        self._runner.stop()

    def close(self) -> None:
        """Let other processes write to the race; ``run`` does this at its end."""
        self._lock.close()

    def _started(self, trial: Trial, run: Any) -> None:
        self.race.show(trial.key, run)
        self._report()

    def _report(self) -> None:
        if self._on_change is not None:
            self._on_change(self.race)


def _check_engines(configs: Mapping[str, RunConfig], session: Session | None, *, parallel: bool) -> None:
    """Check before training that the engines can run all contestants.

    Raises:
        ConfigError: a contestant has more ranks than there are engines for it, or there are no engines.
        ClusterError: a single engine cannot be split into halves.
    """
    if parallel and session is None:
        raise ConfigError(
            "parallel=True needs engines. Use race(..., session=lab.Session(ranks=4)), or parallel=False."
        )
    engines = 1 if session is None else len(session.halves()[0]) if parallel else session.ranks
    for label, config in configs.items():
        if config.ranks <= engines:
            continue
        if session is None:
            raise ConfigError(
                f"{label!r} has ranks={config.ranks}, which need engines. Use race(..., session=lab.Session(ranks="
                f"{config.ranks})), or config.replace(ranks=1), which keeps the same plan."
            )
        group = f"half of the session's {session.ranks} engines" if parallel else f"the session's {engines} engines"
        raise ConfigError(
            f"{label!r} has ranks={config.ranks}, but {group} can run only {engines} rank{'s' * (engines > 1)}. Make "
            f"a Session(ranks={config.ranks * (1 + parallel)}), or use config.replace(ranks={engines})."
        )
