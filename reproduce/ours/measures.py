"""What experiments of ours measure beside trainings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdg_lab.testing.averaging_probe import weights_in_final_model

SLOW_S, FAST_S = 0.033, 0.003  # seconds of a step on rank 0 and on the others
STEPS = 1200  # steps for each fast rank


def averaging_weights(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return how far the weights of parts in the final model are from their shares of the data.

    Args:
        settings: ``weights`` and ``every_s`` of the averager, and ``shares`` of the parts; rank 0 is the straggler.
        seed: not read, since only clocks differ.
    """
    shares = settings["shares"]
    fast = len(shares) - 1
    found = weights_in_final_model(
        weights=settings["weights"],
        every_s=settings["every_s"],
        shares=shares,
        seconds=(SLOW_S, *[FAST_S] * fast),
        steps=STEPS * fast,
    )
    return {
        "largest_difference": max(abs(weight - share) for weight, share in zip(found, shares, strict=True)),
        "straggler_weight": found[0],
        "straggler_over_share": found[0] / shares[0],
    }
