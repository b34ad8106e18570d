"""Claims of papers beside what was measured: one row a claim, on an axis where 1 is the paper's effect."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dtdg_lab.visualization import palette, traces
from dtdg_lab.visualization.axes import NAMES
from dtdg_lab.visualization.chart import CaptionedFigure, card, trace_keys

LOWEST, HIGHEST = -2.0, 3.0  # effects beyond are drawn at the edge
ROW_HEIGHT, FRAME_HEIGHT = 38, 70  # pixels
LABEL_LENGTH = 46  # characters of a line
COLOURS: Mapping[str, str] = MappingProxyType(
    {"holds": "#009E73", "holds partly": "#E69F00", "does not hold here": "#D55E00"}
)
HELP = (
    "A claim's effect here over the effect in the paper: 1 is the paper's, 0 none, below 0 the opposite. Bars are 95 % "
    "intervals over seeds, small dots comparisons."
)


@dataclass(frozen=True, slots=True)
class ClaimEffect:
    """A claim with an effect.

    Attributes:
        label: the claim in few words.
        decision: its verdict.
        effect: what was measured, over the paper's.
        low: lower end of its interval over seeds; None if it is unknown.
        high: upper end.
        comparisons: label -> effect of each comparison.
    """

    label: str
    decision: str
    effect: float
    low: float | None
    high: float | None
    comparisons: Mapping[str, float]


def claims_chart(claims: Sequence[ClaimEffect], title: str) -> CaptionedFigure:
    """Return measured effects over the paper's, the first claim on top.

    Args:
        claims: those that have an effect and a verdict.
        title: of the chart.
    """
    data = []
    hovers = [
        (claim, f"{name}: {effect:.2f} of the paper's", effect)
        for claim in claims
        for name, effect in claim.comparisons.items()
    ]
    if hovers:
        data.append(
            traces.points(
                "one comparison",
                [_clipped(effect) for _, _, effect in hovers],
                [_label(claim) for claim, _, _ in hovers],
                palette.translucent(palette.BASELINE_COLOUR, 0.45),
                "%{customdata}<extra></extra>",
                size=5,
                customdata=[text for _, text, _ in hovers],
            )
        )
    for decision, colour in COLOURS.items():
        decided = [claim for claim in claims if claim.decision == decision]
        if not decided:
            continue
        middle = [_clipped(claim.effect) for claim in decided]
        low = [_clipped(claim.effect if claim.low is None else claim.low) for claim in decided]
        high = [_clipped(claim.effect if claim.high is None else claim.high) for claim in decided]
        data.append(
            traces.points(
                decision,
                middle,
                [_label(claim) for claim in decided],
                colour,
                "%{y}: %{customdata:.2f} of the paper's<extra></extra>",
                size=10,
                customdata=[claim.effect for claim in decided],
                error_x=traces.whiskers(low, middle, high, colour),
            )
        )
    figure = card(
        data,
        title,
        x_title="effect here over the paper's",
        keys=trace_keys(data),
        empty="no claim has been measured yet",
        shapes=[traces.rule(x=0.0), traces.rule(x=1.0, colour=palette.MARK_COLOUR, dash="dash")],
        xaxis={"range": [LOWEST - 0.1, HIGHEST + 0.1], "dtick": 1},
        yaxis={**NAMES, "categoryarray": [_label(claim) for claim in claims], "categoryorder": "array"},
        height=FRAME_HEIGHT + ROW_HEIGHT * len(claims),
    )
    counts = {decision: sum(claim.decision == decision for claim in claims) for decision in COLOURS}
    verdicts = ", ".join(decided_text(decision, count) for decision, count in counts.items() if count)
    return figure, f"Of {len(claims)} measured effects, {verdicts}." if claims else "No claim has been measured yet."


def decided_text(decision: str, count: int) -> str:
    """Return how many claims have a verdict: ``1 holds``, ``2 hold``."""
    verb = decision if count == 1 else decision.replace("holds", "hold", 1).replace("does not", "do not", 1)
    return f"{count} {verb}"


def _label(claim: ClaimEffect) -> str:
    return "<br>".join(map(traces.escaped, textwrap.wrap(claim.label, LABEL_LENGTH)))


def _clipped(effect: float) -> float:
    return min(max(effect, LOWEST), HIGHEST)
