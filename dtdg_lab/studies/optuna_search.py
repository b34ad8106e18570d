"""A search by Optuna, whose journal lies in the study's folder; what is drawn depends on the trials before only."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dtdg_lab.core.streams import key
from dtdg_lab.studies.space import Choice, Drawn
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.studies.trials import drop_torn_end

if TYPE_CHECKING:
    import optuna

JOURNAL, NAME = "optuna.journal", "study"
_STREAM = "studies/search"
BETTER = 0.5  # share of the trials


class OptunaSearch:
    """Draws combinations of a sweep's space, one after another, and hears what became of them.

    Every draw has a seed of its own, made of the sweep's seed and the trial's number: a search that was killed draws
    what one that was not would have. Only the holder of the study's lock may make one.
    """

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        self._sweep = sweep
        self._study = open_journal(folder, sweep)
        self._distributions = {name: _distribution(drawn) for name, drawn in sweep.space.items()}

    def ask(self, number: int) -> dict[str, Any]:
        """The settings of a combination; the same again where it was asked for before."""
        import optuna

        trials = self._study.get_trials(deepcopy=False)
        if number < len(trials):
            return dict(trials[number].params)
        seed = key(self._sweep.all_seeds[0], _STREAM, number) % 2**32
        makers: dict[str, Any] = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        self._study.sampler = makers[self._sweep.sampler](seed=seed)
        with quiet():
            return dict(self._study.ask(self._distributions).params)

    def tell(self, number: int, value: float | None) -> None:
        """What a combination came to; None where it has no number. A second word on it is passed over."""
        import optuna

        failed = optuna.trial.TrialState.FAIL
        with quiet():
            if self._study.get_trials(deepcopy=False)[number].state.is_finished():
                return
            if value is None:
                self._study.tell(number, state=failed)
            else:
                self._study.tell(number, value)


def open_journal(folder: Path, sweep: Sweep) -> optuna.Study:
    """Optuna's own study of a sweep, made where there is none yet."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = folder / JOURNAL
    if path.exists():
        drop_torn_end(path)
    with quiet():
        # the study's lock keeps others away; Optuna's own would stay behind after a kill
        storage = JournalStorage(JournalFileBackend(str(path), lock_obj=_NoLock()))  # type: ignore[arg-type]
        how: dict[str, Any] = {"direction": _direction(sweep), "load_if_exists": True}
        return optuna.create_study(storage=storage, study_name=NAME, **how)


def importance(folder: Path, sweep: Sweep) -> Mapping[str, float]:
    """Optuna's importance of each setting, by PED-ANOVA: how much it decides whether a trial is in the better half.

    Optuna by itself takes the best tenth: of some dozens of trials that says nothing. Empty before there are enough.

    References: Watanabe et al. 2023, PED-ANOVA.
    """
    import optuna

    if not (folder / JOURNAL).exists():
        return {}
    study = _read_only(folder, sweep)
    values = [trial.value for trial in study.get_trials(states=(optuna.trial.TrialState.COMPLETE,))]
    if len(set(values)) < 4:
        return {}
    with quiet():
        found = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BETTER)
        )
    return {str(name): float(share) for name, share in found.items()}


def _read_only(folder: Path, sweep: Sweep) -> optuna.Study:
    """A copy in memory of what the journal holds: a reader writes nothing."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    with quiet():
        backend = JournalFileBackend(str(folder / JOURNAL), lock_obj=_NoLock())  # type: ignore[arg-type]
        stored = optuna.load_study(study_name=NAME, storage=JournalStorage(backend))
        copy = optuna.create_study(direction=_direction(sweep))
        copy.add_trials(stored.get_trials(states=(optuna.trial.TrialState.COMPLETE,)))
    return copy


def _direction(sweep: Sweep) -> Literal["minimize", "maximize"]:
    return "minimize" if sweep.goal == "min" else "maximize"


def _distribution(drawn: Drawn) -> Any:
    from optuna import distributions

    if isinstance(drawn, Choice):
        return distributions.CategoricalDistribution(drawn.values)
    low, high = drawn.ends()
    if drawn.kind == "integer":
        return distributions.IntDistribution(int(low), int(high), step=drawn.step)
    return distributions.FloatDistribution(low, high, log=drawn.kind == "log_uniform")


class _NoLock:
    """Stands for a lock where there is one already."""

    def acquire(self) -> bool:
        """Nothing to wait for."""
        return True

    def release(self) -> None:
        """Nothing to let go of."""


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's notes on every trial and on what it calls experimental."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
