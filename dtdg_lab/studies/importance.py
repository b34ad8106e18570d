"""How much of what a study found each of its settings explains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pvariance

from dtdg_lab.studies.combinations import Combination
from dtdg_lab.studies.objective import number
from dtdg_lab.studies.optuna_search import importance
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.studies.trials import FINISHED


def importance_of(sweep: Sweep, combinations: Sequence[Combination], folder: Path) -> dict[str, float]:
    """Setting -> share, largest first; empty where too little is done, or nothing varies.

    In a search Optuna's; in a grid main effects: the variance of the means of each axis's values over the variance of
    all runs, each less the mean of its seed's. What is left to 1 is settings acting together.
    """
    if sweep.is_search:
        return dict(importance(folder, sweep))
    known = [
        (trial, value)
        for each in combinations
        for trial in each.trials
        if trial.status == FINISHED and (value := number(trial.values.get(sweep.objective))) is not None
    ]
    by_seed: dict[int, list[float]] = {}
    for trial, value in known:
        by_seed.setdefault(trial.seed, []).append(value)
    centred = [(trial.settings, value - fmean(by_seed[trial.seed])) for trial, value in known]
    if len(centred) < 2 or not (whole := pvariance([value for _, value in centred], 0.0)):
        return {}
    shares = {}
    for name in sweep.names:
        groups: dict[object, list[float]] = {}
        for settings, value in centred:
            groups.setdefault(settings[name], []).append(value)
        between = sum(len(values) * fmean(values) ** 2 for values in groups.values()) / len(centred)
        shares[name] = between / whole
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))
