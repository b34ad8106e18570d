"""The greedy tuner of K and alpha at epoch boundaries, by the validation losses of trial epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.engine.capabilities import DecisionRow

ALPHA_STEP = 0.1
MIN_ALPHA = 0.1  # lower limit of tuning: the paper starts there, and a smaller alpha would keep nothing
MIN_GAIN = 1e-4  # relative; smaller differences are due to rounding
GIB = 1 << 30
_MAX_ALPHA = OPTIONS["alpha"].high or 1.0
_DIGITS = 6  # repeated steps of 0.1 would give 0.30000000000000004


class Setting(NamedTuple):
    """A point of the K x alpha grid; ordered by full snapshots, then by alpha.

    Attributes:
        full_snapshots: K, 1 or more.
        alpha: in (0, 1].
    """

    full_snapshots: int
    alpha: float


def neighbours(setting: Setting, *, window: int) -> tuple[Setting, ...]:
    """Return the settings one step away, smaller ones first: K-1, alpha-0.1, alpha+0.1, K+1, within the allowed range.

    K stays within 1 .. window, alpha within ``MIN_ALPHA`` .. 1; steps are cut at these bounds. An alpha at or below
    ``MIN_ALPHA`` has no step down. If all snapshots are full (K = window), alpha has no effect, and K-1 is the only
    neighbour.

    Args:
        setting: the current setting; a K above ``window`` counts as ``window``.
        window: snapshots of a window, W.
    """
    full, alpha = min(setting.full_snapshots, window), setting.alpha
    fewer = [Setting(full - 1, alpha)] if full > 1 else []
    if full == window:
        return tuple(fewer)
    down = min(alpha, max(round(alpha - ALPHA_STEP, _DIGITS), MIN_ALPHA))
    up = min(round(alpha + ALPHA_STEP, _DIGITS), _MAX_ALPHA)
    return (*fewer, *(Setting(full, value) for value in (down, up) if value != alpha), Setting(full + 1, alpha))


def candidates(current: Setting, peaks: Mapping[Setting, float], max_bytes: float) -> tuple[Setting, ...]:
    """Return the neighbours to evaluate: those whose predicted peak is within the budget.

    If the current setting and all neighbours exceed the budget, the only candidate is the neighbour with the lowest
    peak, if that is lower than the current one. So several decisions lead back into the budget.

    Args:
        current: the current setting.
        peaks: predicted peak bytes of a step on the largest rank, of the current setting and its neighbours.
        max_bytes: the budget.
    """
    neighbouring = [setting for setting in peaks if setting != current]
    affordable = tuple(setting for setting in neighbouring if peaks[setting] <= max_bytes)
    if affordable or peaks[current] <= max_bytes:
        return affordable
    smaller = [setting for setting in neighbouring if peaks[setting] < peaks[current]]
    return (min(smaller, key=peaks.__getitem__),) if smaller else ()


def next_setting(current: Setting, losses: Mapping[Setting, float], *, must_leave: bool = False) -> Setting:
    """Return the best candidate if it is better than the current setting, otherwise the current one.

    Args:
        current: the current setting.
        losses: validation losses of the current setting and its candidates; a loss that is not finite is never chosen.
        must_leave: True if the current setting exceeds the budget: take the best candidate whatever its loss.

    Returns:
        The smallest of equally good candidates.

    References: FlareDTDG section 3.5, which traverses "the steepest loss reduction direction".
    Differs from the paper: it specifies no minimum gain and no tie rule; ours are ``MIN_GAIN`` and less work.
    """
    finite = [setting for setting in losses if setting != current and math.isfinite(losses[setting])]
    if not finite:
        return current
    best = min(finite, key=lambda setting: (losses[setting], setting))
    loss = losses[current]
    is_better = not math.isfinite(loss) or loss - losses[best] > MIN_GAIN * abs(loss)
    return best if must_leave or is_better else current


def is_due(config: RunConfig, epoch: int) -> bool:
    """Return True if tuning is on and due after this epoch: every ``tune_every``-th epoch."""
    return bool(config["tune"]) and (epoch + 1) % int(config["tune_every"]) == 0


def decide(
    config: RunConfig, trial_loss: Callable[[Setting], float], peak_bytes: Callable[[Setting], float]
) -> DecisionRow:
    """Try the neighbours of K and alpha, and choose; collective if ``trial_loss`` is.

    Every candidate trains the next epoch from the same parameters and moments. The run's own evaluation of the
    validation split gives its loss. Then the trial is undone. The tuner has no state, so resuming changes nothing.

    Args:
        config: the settings at the end of the epoch, including manual changes.
        trial_loss: validation loss after a trial epoch with a setting; the same on every rank.
        peak_bytes: predicted peak of a step on the largest rank; the same on every rank.

    Returns:
        The same decision on every rank. Its state has the current ``full_snapshots`` and ``alpha``, their predicted
        ``bytes``, and the budget ``most_bytes``. Its values are the current setting, then its neighbours, with
        predicted ``bytes`` and validation ``loss``. The loss is None if the setting exceeds the budget, or if the trial
        diverged. The reward is the current setting's loss minus the chosen one's. It is 0 if the setting stays,
        negative only if the budget forced a change, and None if a trial diverged.

    References: FlareDTDG section 3.5: it "periodically evaluates neighbouring settings on the validation set during
        training".
    Differs from the paper: it does not say how a setting is evaluated. Trials of an epoch from a common start are ours,
        and so is the minimum alpha of 0.1, with which the paper's tuning begins.
    """
    window, max_bytes = int(config["window"]), float(config["tune_memory_gib"]) * GIB
    current = Setting(min(int(config["full_snapshots"]), window), float(config["alpha"]))
    allowed = [setting for setting in neighbours(current, window=window) if _is_supported(config, setting)]
    peaks = {setting: float(peak_bytes(setting)) for setting in (current, *allowed)}
    losses = {setting: float(trial_loss(setting)) for setting in (current, *candidates(current, peaks, max_bytes))}
    action = next_setting(current, losses, must_leave=peaks[current] > max_bytes)
    state = current._asdict() | {"bytes": peaks[current], "most_bytes": max_bytes}
    values = [
        setting._asdict() | {"bytes": peak, "loss": _finite(losses.get(setting))} for setting, peak in peaks.items()
    ]
    reward = _finite(losses[current] - losses[action]) if action != current else 0.0
    return DecisionRow("greedy", state, values, action._asdict(), reward)


def _is_supported(config: RunConfig, setting: Setting) -> bool:
    """Return True if the run can have a setting: some models need full snapshots if the loss is at the last one."""
    try:
        config.replace(**setting._asdict())
    except UnsupportedError:
        return False
    return True


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
