"""What a paper claims and what was measured here, for a lesson."""

from __future__ import annotations

from dtdg_lab.core.errors import UnknownNameError
from dtdg_lab.reproduction.experiment import read_experiments
from dtdg_lab.reproduction.listing import EXPERIMENTS, measured_text
from dtdg_lab.reproduction.rows import read_rows
from dtdg_lab.reproduction.verdict import HOLDS, PARTLY, judge

MEANINGS = {
    HOLDS: " (at least half of the effect, or the limit is kept; certain over seeds)",
    PARTLY: " (in the paper's direction, but smaller, or not certain over seeds)",
}


def paper_claim(experiment: str, claim: str) -> str:
    """Return a claim of a paper, its numbers, what was measured here, and the verdict; a line each.

    Args:
        experiment: such as ``flaredtdg/accuracy``.
        claim: its name in that experiment.

    Raises:
        UnknownNameError: there is no such experiment or claim.
        RunStoreError: stored rows are damaged.
    """
    (definition,) = read_experiments(EXPERIMENTS, (experiment,))
    verdicts = {verdict.claim.name: verdict for verdict in judge(definition, read_rows(definition.rows_file))}
    if claim not in verdicts:
        raise UnknownNameError(f"claim of {experiment}", claim, verdicts)
    verdict = verdicts[claim]
    return "\n".join(
        [
            f"claim:   {verdict.claim.text} ({definition.source})",
            f"paper:   {verdict.claim.paper.text}",
            f"here:    {measured_text(verdict)}",
            f"verdict: {verdict.decision}{MEANINGS.get(verdict.decision, '')}",
        ]
    )
