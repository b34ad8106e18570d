"""Rewards of a batch size: shorter steps, and a faster decrease of the loss."""

from __future__ import annotations

import math

LIMIT = 1.0  # of either term
MAX_RATE = 1e300  # in 1/s
FADE = 0.97  # factor of the best rate of progress per decision


def time_reward(last_s: float, now_s: float) -> float:
    """Return the relative reduction of the seconds of a step: (t_l - t_c) / t_l, within [-1, 1].

    Args:
        last_s: seconds of a step under the last choice.
        now_s: seconds of a step under the current choice.

    Returns:
        0.5 for half the time, -1 for twice the time or more; if the last time is 0, any increase gives -1.
    """
    return _share(last_s - now_s, last_s)


def loss_reward(last_reduction: float | None, now_reduction: float | None) -> float:
    """Return the relative gain in the decrease of the loss: (d_c - d_l) / |d_c|, within [-1, 1].

    Args:
        last_reduction: decrease of the loss under the last choice; negative if it rose, None if unknown.
        now_reduction: decrease under the current choice.

    Returns:
        0 if either is unknown or both are equal; if ``now_reduction`` is 0, the sign of the difference, which is the
        limit.

    Differs from the paper: its denominator is signed, which would reward an increase that is faster than before.
    """
    if last_reduction is None or now_reduction is None:
        return 0.0
    return _share(now_reduction - last_reduction, now_reduction)


def reward(last_s: float, now_s: float, last_reduction: float | None, now_reduction: float | None) -> float:
    """Return R = R_time + R_loss, within [-2, 2].

    Args:
        last_s: seconds of a step under the last choice.
        now_s: seconds of a step under the current choice.
        last_reduction: decrease of the loss under the last choice, None if unknown.
        now_reduction: decrease under the current choice, None if unknown.

    References: DynaHB definition 6, equation 3.
    Differs from the paper: each term is bounded to [-1, 1], since both are quotients of measurements that may be nearly
    0; see the two terms for division by zero and the sign of a negative decrease.
    """
    return time_reward(last_s, now_s) + loss_reward(last_reduction, now_reduction)


def progress_reward(loss: float, last_loss: float, seconds: float, best: float) -> tuple[float, float]:
    """Return progress per second relative to its best, within [-1, 1], and the updated best.

    Progress is the relative decrease of the loss. A size is rewarded for its progress, not for being better than the
    size before. The best rate so far is reduced by 3 % with every decision, since losses fall more slowly later on.

    Args:
        loss: at the end of the window.
        last_loss: at its beginning.
        seconds: of its steps.
        best: the largest absolute rate so far, in 1/s; 0 at first.

    Returns:
        The reward, 0 if the last loss or the seconds are 0; and the best rate, including this window.
    """
    scale = abs(last_loss) * seconds
    rate = (last_loss - loss) / scale if 0 < scale < math.inf else 0.0
    rate = max(-MAX_RATE, min(MAX_RATE, rate))
    best = max(FADE * best, abs(rate))
    return (_share(rate, best) if best else 0.0), best


def _share(gain: float, scale: float) -> float:
    """Return gain over |whole|, bounded; the sign of the gain if the whole is 0."""
    if abs(gain) >= LIMIT * abs(scale):  # no division: the quotient of tiny numbers may overflow
        return 0.0 if gain == 0 else math.copysign(LIMIT, gain)
    return gain / abs(scale)
