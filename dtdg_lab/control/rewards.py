"""What a choice of batch size was worth: did steps get shorter, and did the loss fall faster?"""

from __future__ import annotations

import math

from dtdg_lab.core.errors import ConfigError, shortened

MOST = 1.0  # of either term
REWARDS = ("paper", "progress")
LARGEST = 1e300  # rate, in 1/s
FADE = 0.97  # of the best rate of progress, from one decision to the next


def time_reward(last_s: float, now_s: float) -> float:
    """How much shorter a step became, as a share of the last one: (t_l - t_c) / t_l, within [-1, 1].

    Args:
        last_s: seconds of a step under the last choice.
        now_s: seconds of a step under the present one.

    Returns:
        Half the time earns 0.5, twice the time or more costs 1; from a last time of 0 every rise costs 1.
    """
    return _share(last_s - now_s, last_s)


def loss_reward(last_reduction: float | None, now_reduction: float | None) -> float:
    """How much faster the loss fell: (d_c - d_l) / |d_c|, within [-1, 1].

    Args:
        last_reduction: by how much the loss fell under the last choice; negative where it rose, None where unknown.
        now_reduction: by how much it fell under the present one.

    Returns:
        0 where either is unknown or both are the same; where ``now_reduction`` is 0, the sign of the difference, which
        is the limit.

    Differs from the paper: its denominator is signed, which would reward a loss that rises more than it rose before.
    """
    if last_reduction is None or now_reduction is None:
        return 0.0
    return _share(now_reduction - last_reduction, now_reduction)


def reward(last_s: float, now_s: float, last_reduction: float | None, now_reduction: float | None) -> float:
    """R = R_time + R_loss, within [-2, 2].

    Args:
        last_s: seconds of a step under the last choice.
        now_s: seconds of a step under the present one.
        last_reduction: by how much the loss fell under the last choice, None where unknown.
        now_reduction: by how much it fell under the present one, None where unknown.

    References: DynaHB definition 6, equation 3.
    Differs from the paper: each term is bounded to [-1, 1], since both are quotients of measurements that may be next
    to nothing; division by zero and the sign of a negative reduction are as the two terms say.
    """
    return time_reward(last_s, now_s) + loss_reward(last_reduction, now_reduction)


def checked_reward(name: str) -> str:
    """The name of a reward.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in REWARDS:
        raise ConfigError(f"reward={shortened(name)}: {' or '.join(REWARDS)} are allowed.")
    return name


def progress_reward(loss: float, last_loss: float, seconds: float, best: float) -> tuple[float, float]:
    """Progress per second against its own best, within [-1, 1], and the best from here on.

    Progress is the fall of the loss as a share of the last one. A size is rewarded for what it achieves, not for being
    better than the size before. The best rate so far fades by 3 % with every decision, since losses fall more slowly
    later on.

    Args:
        loss: at the end of the window.
        last_loss: at its beginning.
        seconds: of its steps.
        best: the largest rate so far, up or down, in 1/s; 0 at first.

    Returns:
        The reward, 0 where the last loss or the seconds are 0; and the best rate, this window's included.
    """
    whole = abs(last_loss) * seconds
    rate = (last_loss - loss) / whole if 0 < whole < math.inf else 0.0  # of nothing there is no share
    rate = max(-LARGEST, min(LARGEST, rate))
    best = max(FADE * best, abs(rate))
    return (_share(rate, best) if best else 0.0), best


def _share(gain: float, whole: float) -> float:
    """Gain over |whole|, bounded; over nothing it is the sign of the gain."""
    most = MOST * abs(whole)
    if abs(gain) >= most:  # no division: the quotient of tiny numbers may overflow
        return 0.0 if gain == 0 else MOST if gain > 0 else -MOST
    return gain / abs(whole)
