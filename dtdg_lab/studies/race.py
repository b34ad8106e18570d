"""``lab.race``: train several systems, or settings of one, on the same data under the same rules, seed by seed."""

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
    """Train every config with every seed, and compare losses against time, joules, bytes and memory.

    Data, split, task, evaluation, epochs and precision must be equal for all; otherwise the race is refused. The first
    seed of all contestants comes first. The same call with its name resumes an interrupted race: finished runs are not
    repeated; unfinished runs restart so that their times are complete. The call may add contestants and seeds.

    Args:
        configs: of the contestants, at least two; a mapping names them. Their seeds are replaced.
        seeds: of the runs of each; at least two are needed for a spread, without which nothing is called the best.
        session: whose engines train, into its own folder of runs; by default this process, with ``ranks=1``.
        parallel: run two contestants in parallel, on disjoint halves of the session's engines. They share the machine.
        stop: stops runs early, judging by the validation split and the clock alone.
        runs_dir: folder that holds ``races/`` and, without a session, the runs.
        name: of the race, needed to resume it; by default made of the systems, and then every call is a new race.
        on_change: called with the race after every validation evaluation, and when a run starts or ends, for example to
            draw its figure.
        progress: show a progress bar of runs.

    Raises:
        ConfigError: contestants differ in a setting that must be equal (named with both values), there are fewer than
            two, one needs other engines, or a race of this name has other contents.
        RunStoreError: the race of this name is running in another process, or cannot be written.
        RunFailedError: a run was stopped, and the race with it; finished runs are kept. A run that fails is recorded,
            and the race continues.
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
    """Return a race that is ready to run: it is checked and its folder exists; see :func:`race`."""
    root = writable_folder(runs_dir, "runs_dir", RunStoreError)
    by_label = contestants(configs, seeds=seeds, stop=stop)
    _check_engines(by_label, session, parallel=parallel)
    if not isinstance(name, str) or (name and not _NAME.fullmatch(name)):
        raise ConfigError(
            f"name={shortened(name)}: up to 80 letters, digits, '.', '_', '+' and '-' are allowed, beginning with a "
            "letter or digit, because it names a folder."
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
    """A race whose folder this process holds: trains the missing runs; ``stop`` may be called from another thread.

    Args:
        folder: of the race.
        plan: joined to that in the folder.
        session: whose engines train; this process where None.
        runs_dir: folder of runs, without a session.
        on_change: see :func:`race`; called by the thread that trains or waits, one call at a time.
        progress: show a progress bar of runs.

    Attributes:
        race: in its current state.

    Raises:
        ConfigError: the folder holds another race.
        RunStoreError: another process writes it, or it cannot be read or written.
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
        """Train every run that is not finished yet; a run that fails is recorded, and the race continues.

        Raises:
            RunFailedError: a run was stopped, and the race with it; finished runs are kept.
            LabError: the race cannot be written.
        """
        cells = self._plan.cells
        with self._lock, progress_bar(len(cells), self._progress) as self._runner.bar:
            if self._session is None and not self.race.over:
                rehearse()  # warm-up of libraries must not count as the first contestant's time
            self._runner.execute(cells, parallel=self._plan.parallel)
        return self.race

    @property
    def stopped(self) -> bool:
        """True once a stop was requested."""
        return self._runner.stopped

    def stop(self) -> None:
        """Stop the active runs and start no more; in this process at the next evaluation of the validation split."""
        self._runner.stop()

    def close(self) -> None:
        """Let another process write the race; ``run`` does it at its end."""
        self._lock.close()

    def _started(self, trial: Trial, run: Any) -> None:
        self.race.show(trial.key, run)
        self._report()

    def _report(self) -> None:
        if self._on_change is not None:
            self._on_change(self.race)


def _check_engines(configs: Mapping[str, RunConfig], session: Session | None, *, parallel: bool) -> None:
    """Raise for contestants that the engines cannot run, before anything is trained.

    Raises:
        ConfigError: a contestant has more ranks than there are engines for it, or engines are needed but missing.
        ClusterError: a single engine cannot be split into halves.
    """
    if parallel and session is None:
        raise ConfigError("parallel=True needs engines: race(..., session=lab.Session(ranks=4)), or parallel=False.")
    engines = 1 if session is None else len(session.halves()[0]) if parallel else session.ranks
    for label, config in configs.items():
        if config.ranks <= engines:
            continue
        if session is None:
            raise ConfigError(
                f"{label!r} has ranks={config.ranks}, which need engines: race(..., session=lab.Session(ranks="
                f"{config.ranks})), or config.replace(ranks=1), which keeps the same plan."
            )
        group = f"half of the session's {session.ranks} engines" if parallel else f"the session's {engines} engines"
        raise ConfigError(
            f"{label!r} has ranks={config.ranks} and {group} {'serve' if engines > 1 else 'serves'} {engines}: make a "
            f"Session(ranks={config.ranks * (1 + parallel)}), or config.replace(ranks={engines})."
        )
