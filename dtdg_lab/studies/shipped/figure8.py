"""Figure 8 of FlareDTDG: loss, memory and time over the full snapshots K and alpha."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.cluster.study_decay import ALPHAS, FULL_SNAPSHOTS, SEEDS
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.runs.decay_study import MEANINGS, DecayStudy
from dtdg_lab.studies.shipped.entry import Panel, Shipped
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.studies.trials import FAILED, FINISHED, Trial

NAME = "figure8"
K, ALPHA = "full_snapshots", "alpha"
_QUICK_K, _QUICK_ALPHAS, _QUICK_SEEDS = (1, 2, 4), (0.1, 0.6), (0, 1)


def sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """K x alpha x seeds, as ``lab.study_decay`` has them; where K is the window, alpha says nothing and one run serves.

    Raises:
        ConfigError: the base's system has no decay, or it tunes K and alpha itself.
    """
    sizes = {"generated_nodes": 60, "generated_edges": 240, "generated_snapshots": 30, "hidden": 8, "epochs": 2}
    small = {"dataset": "growing", "window": 4, "chunks": 8, **sizes}
    config = base or RunConfig(system="flaredtdg", model="tgcn", **(small if quick else {"epochs": 10}))
    if ALPHA not in config.flat:
        raise ConfigError(f"system={config.system!r} has no decay: study config.replace(system='flaredtdg').")
    if config["tune"]:
        raise ConfigError("tune=True moves K and alpha while a cell trains: study config.replace(tune=False).")
    window = config["window"]
    full = [k for k in (_QUICK_K if quick else FULL_SNAPSHOTS) if k <= window]
    alphas = _QUICK_ALPHAS if quick else ALPHAS
    skip = [{K: window, ALPHA: alphas[1:]}] if window in full else []
    seeds = _QUICK_SEEDS if quick else SEEDS
    return Sweep(config, {K: full, ALPHA: alphas}, seeds, skip=skip, shipped=NAME)


def decay_study(study: Study) -> DecayStudy:
    """The study as ``lab.study_decay`` gives it."""
    values = {axis.name: axis.values for axis in study.sweep.axes}
    config, seeds = study.sweep.base, study.sweep.all_seeds
    rows = []
    for seed in seeds:
        for full in values[K]:
            of_line = [trial for trial in study.trials if trial.seed == seed and trial.settings[K] == full]
            for alpha in values[ALPHA]:
                found = [trial for trial in of_line if trial.settings[ALPHA] == alpha]
                if full == config["window"] and not found:
                    found = of_line  # alpha says nothing
                rows += [_row(trial, full, alpha) for trial in found if trial.status in (FINISHED, FAILED)]
    shape = f"{config['window']} snapshots, {config['decay']} decay"
    told = f"{config.model} on {config.dataset}, {config.system}: windows of {shape}"
    return DecayStudy(tuple(rows), tuple(values[K]), tuple(values[ALPHA]), seeds, config["task"], told)


def _row(trial: Trial, full: int, alpha: float) -> dict[str, Any]:
    known: Mapping[str, Any] = {**trial.values, **trial.provenance} if trial.status == FINISHED else {}
    named = {
        K: full, ALPHA: alpha, "seed": trial.seed, "run": "" if trial.run is None else str(trial.run),
        "reason": trial.reason if trial.status == FAILED else "",
    }  # fmt: skip
    return {name: {**known, **named}.get(name) for name in MEANINGS}


def analysis(study: Study) -> dict[str, Panel]:
    """The three maps, and which cell is best."""
    found = decay_study(study)
    return {NAME: (found.figure(), _words(found))}


def _words(found: DecayStudy) -> str:
    best, rows = found.best, found.settings
    if best is None:
        return "No cell has a validation loss yet."
    heaviest = max((row["peak_bytes"] or 0 for row in rows), default=0)
    share = "" if not heaviest or best["peak_bytes"] is None else f", at {best['peak_bytes'] / heaviest:.0%} of the "
    memory = f"{share}most memory of a cell" if share else ""
    spread = "" if best["validation_spread"] is None else f" ± {best['validation_spread']:.2g}"
    return (
        f"Least validation loss {best['validation_loss']:.4g}{spread} at K = {best[K]}, alpha {best[ALPHA]:g}{memory}. "
        "Look for a region of cells that cannot be told from it and cost less."
    )


FIGURE8 = Shipped(
    name=NAME, sweep=sweep, analysis=analysis,
    question="How few full snapshots, and how fast a decay, keep the loss, and what do they save?",
    source="FlareDTDG section 4.6, Figure 8",
)  # fmt: skip
