"""The search of a sweep's space by Optuna, kept in the study's journal, and the early stopping of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna import distributions
from optuna.trial import TrialState

from dtdg_lab.cluster.stopping_rule import Evaluated, Judge, Verdict
from dtdg_lab.core.rng import key
from dtdg_lab.studies.search_space import Choice, SearchSpace
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.studies.trials import FILE, PRUNED, Trial, open_journal, open_optuna_study, quiet

_STUDY, _STREAM = "search", "studies/search"
BETTER_SHARE = 0.5  # share of the trials that count as the better ones
_SAMPLERS: Mapping[str, Any] = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}


class SpaceSearch:
    """Draws combinations from a sweep's space, one after another, and records their results.

    Every draw has its own seed, made from the sweep's seed and the draw's number, so an interrupted search draws the
    same combinations as an uninterrupted one.

    Args:
        folder: the study's folder, whose lock the caller holds.
        sweep: the sweep to search.
    """

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        self._sweep = sweep
        self._study = open_optuna_study(folder, _STUDY, direction=_direction(sweep))
        self._distributions = {name: _distribution(space) for name, space in sweep.space.items()}

    def ask(self, number: int) -> dict[str, Any]:
        """Return the settings of a combination; the same number always has the same settings."""
        trials = self._study.get_trials(deepcopy=False)
        if number < len(trials):
            return dict(trials[number].params)
        seed = key(self._sweep.all_seeds[0], _STREAM, number) % 2**32
        self._study.sampler = _SAMPLERS[self._sweep.sampler](seed=seed)
        with quiet():
            return dict(self._study.ask(self._distributions).params)

    def report(self, number: int, value: float | None) -> None:
        """Record the result of a combination, or None if it has none; a second result is ignored."""
        with quiet():
            if self._study.get_trials(deepcopy=False)[number].state.is_finished():
                return
            if value is None:
                self._study.tell(number, state=TrialState.FAIL)
            else:
                self._study.tell(number, value)


def importance(folder: Path, sweep: Sweep) -> dict[str, float]:
    """Return Optuna's importance of each setting: how strongly it decides whether a trial is in the better half.

    The evaluator is PED-ANOVA. Its default, the best tenth, is too small for a few dozen trials. Empty if there are too
    few trials.

    References: Watanabe et al. 2023, PED-ANOVA.
    """
    if not (folder / FILE).exists():
        return {}
    with quiet():  # works on a copy in memory, since readers must not write to the journal
        stored = optuna.load_study(study_name=_STUDY, storage=open_journal(folder))
        study = optuna.create_study(direction=_direction(sweep))
        study.add_trials(stored.get_trials(states=(TrialState.COMPLETE,)))
        if len({trial.value for trial in study.get_trials()}) < 4:
            return {}
        shares = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BETTER_SHARE)
        )
    return {str(name): float(share) for name, share in shares.items()}


def _direction(sweep: Sweep) -> Literal["minimize", "maximize"]:
    return "minimize" if sweep.goal == "min" else "maximize"


def _distribution(space: SearchSpace) -> Any:
    if isinstance(space, Choice):
        return distributions.CategoricalDistribution(space.values)
    low, high = space.bounds()
    if space.kind == "integer":
        return distributions.IntDistribution(int(low), int(high), step=space.step)
    return distributions.FloatDistribution(low, high, log=space.kind == "log_uniform")


def pruning_judge(pruner: optuna.pruners.BasePruner, earlier: Sequence[Trial]) -> Judge:
    """Return a function that judges the evaluations of one run; losses that are not finite are ignored.

    Args:
        pruner: decides from the losses of all runs, with epochs as steps.
        earlier: trials of the same seed whose runs have ended.
    """
    with quiet():
        study = optuna.create_study(pruner=pruner)
    for trial in (trial for trial in earlier if trial.curve):
        replayed = study.ask()
        for epoch, loss in trial.curve:
            replayed.report(loss, epoch)
            replayed.should_prune()  # needed since successive halving remembers the rungs that a trial reached
        with quiet():
            if trial.status == PRUNED:
                study.tell(replayed, state=TrialState.PRUNED)
            else:
                study.tell(replayed, trial.curve[-1][1])
    current = study.ask()

    def judge(evaluations: tuple[Evaluated, ...]) -> Verdict | None:
        latest = evaluations[-1]
        if latest.loss is None:
            return None
        current.report(latest.loss, latest.epoch)
        if not current.should_prune():
            return None
        reason = f"validation loss {latest.loss:.4g} after {latest.epoch} epochs, pruned by {type(pruner).__name__}"
        return Verdict("stop", reason)

    return judge
