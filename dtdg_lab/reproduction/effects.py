"""Verdicts as effects relative to the paper's, for a chart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dtdg_lab.reproduction.experiment import Claim, Experiment
from dtdg_lab.reproduction.verdict import FAILS, HOLDS, PARTLY, ClaimComparison, ClaimVerdict
from dtdg_lab.visualization.studies.claims import ClaimEffect

SCALED = ("less", "times", "points")  # rules whose size is an effect


def claim_effects(verdicts: Sequence[tuple[Experiment, ClaimVerdict]]) -> list[ClaimEffect]:
    """Return the decided claims whose size is an effect, in the same order.

    Limits and equalities are left out, as are claims of a direction, for which the paper has no size.
    """
    return [
        ClaimEffect(
            label=f"{experiment.source}: {verdict.claim.text}",
            decision=verdict.decision,
            effect=relative(verdict, verdict.gain),
            low=None if verdict.low is None else relative(verdict, verdict.low),
            high=None if verdict.high is None else relative(verdict, verdict.high),
            comparisons={
                comparison_text(comparison): relative(verdict, comparison.gain) for comparison in verdict.counted
            },
        )
        for experiment, verdict in verdicts
        if verdict.decision in (HOLDS, PARTLY, FAILS) and _has_size(verdict.claim) and verdict.gain is not None
    ]


def _has_size(claim: Claim) -> bool:
    return claim.rule in SCALED and claim.paper.size != claim.neutral


def relative(verdict: ClaimVerdict, gain: float) -> float:
    """Return a gain over the paper's size; times are compared as logarithms."""
    size = verdict.claim.paper.size
    assert size is not None  # claims with a rule have one
    return math.log(gain) / math.log(size) if verdict.claim.rule == "times" else gain / size


def comparison_text(comparison: ClaimComparison) -> str:
    """Return the axes of a comparison, and its rival, as text."""
    labels = ", ".join(f"{value}" for value in comparison.labels.values())
    rival = ", ".join(f"{value}" for value in comparison.rival.values())
    return f"{labels} beside {rival}" if labels and rival else labels or f"beside {rival}"
