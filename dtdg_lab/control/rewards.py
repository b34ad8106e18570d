"""What a choice of batch size was worth: did steps get shorter, and did the loss fall faster?"""

from __future__ import annotations

MOST = 1.0  # of either term


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


def _share(gain: float, whole: float) -> float:
    """Gain over |whole|, bounded; over nothing it is the sign of the gain."""
    most = MOST * abs(whole)
    if abs(gain) >= most:  # no division: the quotient of tiny numbers may overflow
        return 0.0 if gain == 0 else MOST if gain > 0 else -MOST
    return gain / abs(whole)
