"""Making one trial of a study: begun, gone on with after a kill, judged, and written down whatever becomes of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.run_config import run_config
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ClusterError, ControlError, LabError, RunFailedError, RunStoreError
from dtdg_lab.runs.open import StoredRun, open_run
from dtdg_lab.runs.provenance import provenance
from dtdg_lab.studies.half_runs import go_on, orphan, settle
from dtdg_lab.studies.objective import values_of
from dtdg_lab.studies.pruning import Curve, Pruner, judge_of
from dtdg_lab.studies.trials import FAILED, FINISHED, INTERRUPTED, OVER, PRUNED, RUNNING, Trial, TrialLog

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session

OF_THE_STUDY = (RunStoreError, ControlError, ClusterError)  # no trial's own fault: the study ends, to be called again


@dataclass(frozen=True, slots=True)
class TrialRunner:
    """Makes trials on a session's engines or in this process.

    Attributes:
        log: of the study, which this process holds for writing.
        session: whose engines train; this process where None.
        runs_dir: folder that holds runs, without a session.
        prune: ends runs early; None lets all make their epochs.
        on_start: handed what can be seen of every run that begins.
        say: tells a person what happened to a trial.
    """

    log: TrialLog
    session: Session | None
    runs_dir: Path
    prune: Pruner | None = None
    on_start: Callable[[Any], None] | None = None
    say: Callable[[str], None] = lambda words: None

    def make(self, trial: Trial, config: RunConfig, others: Sequence[Trial]) -> Trial:
        """The trial when it is over: as it was left, where a run of it ended after all, or of a run made now.

        Raises:
            RunFailedError: its run was stopped by somebody; the study ends with it.
            LabError: no trial can be made now, as on a full disk.
        """
        if trial.status in OVER:
            return trial
        found = self._left(trial, config, others) if trial.asked_ns and trial.status != FAILED else None
        return found or self._new(trial, config, others)

    # what an earlier call left

    def _left(self, trial: Trial, config: RunConfig, others: Sequence[Trial]) -> Trial | None:
        """The trial by the run that an earlier call began; None where one has to be made anew."""
        path = trial.run
        if path is None:
            taken = {other.run.resolve() for other in others if other.run is not None}
            path = orphan(config, trial.asked_ns, self._folders(), taken)
            if path is None:
                return None  # it was killed before the run had a folder
            self.log.begun(trial.key, path)
        trial = replace(trial, run=path)
        if not (path / "config.json").is_file():
            self._anew(trial, f"its run {path.name} is gone")
            return None
        state = settle(path, on_engines=trial.on_engines)
        if state == "finished":
            return self._ended(trial, open_run(path), None)
        try:
            if not go_on(path, self.session):
                self._anew(trial, f"its run {path.name} was {state} when the study was called again")
                return None
        except RunFailedError as error:
            return self._failed(trial, str(error))
        self._note(trial, f"run {path.name} was gone on with from its checkpoint")
        return self._ended(trial, open_run(path), None)

    def _folders(self) -> set[Path]:
        return {self.runs_dir} if self.session is None else {self.runs_dir, self.session.runs_dir}

    def _anew(self, trial: Trial, why: str) -> None:
        self._note(trial, f"{why}: begun anew")

    def _note(self, trial: Trial, note: str) -> None:
        self.log.noted(trial.key, note)
        self.say(f"trial {trial.number}, seed {trial.seed}: {note}")

    # what is made now

    def _new(self, trial: Trial, config: RunConfig, others: Sequence[Trial]) -> Trial:
        self.log.asked(trial, on_engines=self.session is not None)
        trial = replace(trial, status=RUNNING, reason="", run=None, asked_ns=time.time_ns())
        begun: list[Path] = []
        of_watching: list[Exception] = []

        def on_start(run: Any) -> None:
            begun.append(Path(run.path))
            self.log.begun(trial.key, begun[0])
            try:
                if self.on_start is not None:
                    self.on_start(run)
            except Exception as error:
                of_watching.append(error)
                raise

        curves: list[Curve] = [other.curve for other in others if other.seed == trial.seed and other.curve]
        judge = None if self.prune is None else judge_of(self.prune, curves)
        started_s = time.monotonic()
        try:
            done = run_config(
                config, session=self.session, runs_dir=self.runs_dir, judge=judge, on_start=on_start
            )  # fmt: skip
        except OF_THE_STUDY as error:
            self._interrupted(trial, begun, str(error))
            raise
        except Exception as error:
            if error in of_watching:
                self._interrupted(trial, begun, f"{type(error).__name__}: {error}")
                raise
            # else, whatever it is, it is this trial's: the others are made, and it is told
            said = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
            return self._failed(replace(trial, run=begun[0] if begun else None), said)
        except BaseException as error:
            self._interrupted(trial, begun, type(error).__name__)
            raise
        trial = replace(trial, run=begun[0] if begun else Path(done.run.path))
        pruned = done.verdict.why if done.verdict is not None and done.verdict.what == "stop" else None
        return self._ended(trial, done.run, pruned, seconds=time.monotonic() - started_s)

    def _interrupted(self, trial: Trial, begun: list[Path], why: str) -> None:
        self.log.ended(replace(trial, status=INTERRUPTED, reason=why, run=begun[0] if begun else None))

    def _failed(self, trial: Trial, why: str) -> Trial:
        trial = replace(trial, status=FAILED, reason=why, values={}, curve=())
        self.log.ended(trial)
        self.say(f"trial {trial.number}, seed {trial.seed} failed: {why}")
        return trial

    def _ended(self, trial: Trial, run: StoredRun, pruned: str | None, *, seconds: float | None = None) -> Trial:
        status = PRUNED if pruned is not None else run.status
        if status not in OVER:
            trial = replace(trial, status=INTERRUPTED, reason=f"run {run.id} was {status}")
            self.log.ended(trial)
            raise RunFailedError(
                f"run {run.id} was {status}, and the study with it: what is done is kept. The same call goes on."
            )
        try:
            values, origin, curve = values_of(run), provenance(run), curve_of(run)
        except LabError as error:
            return self._failed(trial, f"its run cannot be read: {error}")
        trial = replace(
            trial, status=status, reason=pruned or "", values=values, provenance=origin, curve=curve, seconds=seconds
        )  # fmt: skip
        assert trial.status in (FINISHED, PRUNED)
        self.log.ended(trial)
        return trial


def curve_of(run: StoredRun) -> Curve:
    """(epochs done, loss) of every evaluation of the validation part whose loss is finite."""
    table = run.table("evaluations")
    rows = table[table["split"] == "validation"].to_dict("records")
    found = {
        int(row["epoch"]): float(row["loss"])
        for row in rows
        if row["loss"] is not None and math.isfinite(row["loss"])
    }  # fmt: skip
    return tuple(sorted(found.items()))
