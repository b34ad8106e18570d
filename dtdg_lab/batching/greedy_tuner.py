"""Greedy choice of K and alpha: one step to the neighbouring setting of the lowest validation loss, within memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.options import OPTIONS

ALPHA_STEP = 0.1
LEAST_ALPHA = 0.1  # that tuning goes down to: the paper's tuning begins there, and a step below it would leave none
LEAST_GAIN = 1e-4  # relative: below it a neighbour is no better, only differently rounded
_MOST_ALPHA = OPTIONS["alpha"].high or 1.0
_DIGITS = 6  # steps of 0.1 that are added up would leave 0.30000000000000004


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """A point of the K x alpha map; of two, the smaller one has fewer full snapshots, then fewer chunks.

    Attributes:
        full_snapshots: K, 1 or more.
        alpha: in (0, 1].

    Raises:
        PlanError: a number is out of its bounds.
    """

    full_snapshots: int
    alpha: float

    def __post_init__(self) -> None:
        if self.full_snapshots < 1 or not 0 < self.alpha <= 1:
            raise PlanError(
                f"full_snapshots={self.full_snapshots}, alpha={self.alpha}: at least 1 full snapshot and an alpha in "
                "(0, 1] are needed."
            )


def neighbours(at: Setting, *, window: int) -> tuple[Setting, ...]:
    """The settings one step away, smaller ones first: K-1, alpha-0.1, alpha+0.1, K+1, as far as they are allowed.

    K stays within 1 .. window, alpha within ``LEAST_ALPHA`` .. 1: a step that would lead beyond ends at the bound, and
    from an alpha at or below the least one there is no step down. Where all snapshots are full (K = window), alpha says
    nothing, and only K-1 is a neighbour.

    Args:
        at: the present setting; a K above ``window`` counts as ``window``.
        window: snapshots of a batch, W.
    """
    full, alpha = min(at.full_snapshots, window), at.alpha
    fewer = [Setting(full - 1, alpha)] if full > 1 else []
    if full == window:
        return tuple(fewer)
    down = min(alpha, max(round(alpha - ALPHA_STEP, _DIGITS), LEAST_ALPHA))
    up = min(round(alpha + ALPHA_STEP, _DIGITS), _MOST_ALPHA)
    beside = [Setting(full, value) for value in (down, up) if value != alpha]
    return (*fewer, *beside, Setting(full + 1, alpha))


def candidates(
    at: Setting, *, window: int, predicted: Callable[[Setting], float], most_bytes: float
) -> tuple[Setting, ...]:
    """The neighbours worth asking about: those whose predicted peak is within the budget.

    Where the present setting is over the budget itself and no neighbour is within it, the one that needs least is the
    only candidate, if it needs less than the present one: several decisions then lead back into the budget.

    Args:
        at: the present setting.
        window: snapshots of a batch, W.
        predicted: setting -> peak bytes of a step on the largest rank.
        most_bytes: the budget.
    """
    around = neighbours(at, window=window)
    within = tuple(setting for setting in around if predicted(setting) <= most_bytes)
    if within or predicted(at) <= most_bytes:
        return within
    smaller = [setting for setting in around if predicted(setting) < predicted(at)]
    return (min(smaller, key=predicted),) if smaller else ()


def next_setting(at: Setting, values: Mapping[Setting, float], *, must_leave: bool = False) -> Setting:
    """The setting to go on with: the best candidate if it is better than the present one, else the present one.

    Args:
        at: the present setting.
        values: validation loss of the present setting and of its candidates; one that is not finite is never chosen.
        must_leave: the present setting is over the budget: go to the best candidate whatever its loss.

    Returns:
        Of equally good candidates the smallest.

    Raises:
        PlanError: there is no loss of the present setting.

    References: FlareDTDG section 3.5, which traverses "the steepest loss reduction direction".
    Differs from the paper: it names no least gain and no rule for ties; ours are ``LEAST_GAIN`` and less work.
    """
    if at not in values:
        raise PlanError(f"values has no loss of the present setting {at}: ask for it as for its neighbours.")
    finite = [setting for setting in values if setting != at and math.isfinite(values[setting])]
    if not finite:
        return at
    best = min(finite, key=lambda setting: (values[setting], setting))
    present = values[at]
    is_better = not math.isfinite(present) or present - values[best] > LEAST_GAIN * abs(present)
    return best if must_leave or is_better else at
