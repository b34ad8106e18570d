"""Early stopping of a study's runs by Optuna's pruners, from validation losses only."""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from optuna.trial import TrialState

from dtdg_lab.cluster.stopping_rule import Evaluated, Judge, Verdict
from dtdg_lab.studies.trials import PRUNED, Trial, quiet


def pruning_judge(pruner: optuna.pruners.BasePruner, earlier: Sequence[Trial]) -> Judge:
    """Return a judge of one run's evaluations; losses that are not finite are ignored.

    Args:
        pruner: decides from the losses of all runs, with epochs as steps.
        earlier: trials whose runs have ended, of the same seed.
    """
    with quiet():
        study = optuna.create_study(pruner=pruner)
    for trial in (trial for trial in earlier if trial.curve):
        replayed = study.ask()
        for epoch, loss in trial.curve:
            replayed.report(loss, epoch)
            replayed.should_prune()  # successive halving remembers the rungs that a trial reached
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
        reason = f"validation loss {latest.loss:.4g} after {latest.epoch} epochs: pruned by {type(pruner).__name__}"
        return Verdict("stop", reason)

    return judge
