"""Missing cells and verdicts as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dtdg_lab.core.units import format_seconds
from dtdg_lab.reproduction.experiment import Experiment
from dtdg_lab.reproduction.ranking import rank
from dtdg_lab.reproduction.rows import read_rows
from dtdg_lab.reproduction.runner import Work
from dtdg_lab.reproduction.verdict import MISSING, UNTESTABLE, VERDICTS, ClaimVerdict, judge

EXPERIMENTS = Path(__file__).resolve().parents[2] / "reproduce"  # beside the package in a checkout


def format_work(works: Sequence[Work]) -> str:
    """Return the experiments with missing cells, in the order in which they are measured, and how long that takes."""
    lines = [
        f"  {work.experiment.id:32} {len(work.missing):4} of {len(work.missing) + len(work.rows):4} cells  about "
        f"{format_seconds(work.seconds):>8}  {'alone on an idle machine' if work.experiment.timed else ''}".rstrip()
        for work in works
        if work.missing
    ]
    if not lines:
        return "Nothing is missing."
    total_s = sum(work.seconds for work in works)
    return "\n".join([f"Missing, best value first (about {format_seconds(total_s)} in total):", *lines])


def format_verdicts(experiments: Sequence[Experiment], device: str = "cpu") -> str:
    """Return every claim with its verdict, and how often each verdict occurs."""
    lines: list[str] = []
    counts: Counter[str] = Counter()
    for experiment in experiments:
        lines.append(f"{experiment.id}: {experiment.question} ({experiment.source})")
        rows = read_rows(experiment.rows_file)
        if experiment.ranking is not None:
            rankings = rank(experiment, rows, device)
            lines += [f"  {' '.join(ranking.sentences())}" for ranking in rankings] or [f"  {MISSING}"]
        for verdict in judge(experiment, rows, device):
            counts[verdict.decision] += not verdict.claim.of_lab
            lines.append(f"  {verdict.decision:22} {verdict.claim.text}: {measured_text(verdict)}")
            lines.append(f"  {'':22} paper: {verdict.claim.paper.text}")
    if counts:
        summary = ", ".join(f"{counts[decision]} {decision}" for decision in VERDICTS if counts[decision])
        lines.append(f"{counts.total()} claim{'s' * (counts.total() != 1)} of the papers: {summary}.")
    return "\n".join(lines)


def measured_text(verdict: ClaimVerdict) -> str:
    """Return what was measured for a claim: the pooled gain with its interval, and the comparisons that count.

    In the interval of a share that is less, what is below zero is more.
    """
    if verdict.decision in (UNTESTABLE, MISSING) or verdict.gain is None:
        return verdict.reason
    gain = gain_text(verdict, verdict.gain)
    spread = ""
    if verdict.low is not None and verdict.high is not None and verdict.low < verdict.high:
        form = ".1%" if verdict.claim.rule in ("less", "equal", "no_more") else ".3g"
        spread = f" ({verdict.low:{form}} to {verdict.high:{form}})"
    left_out = len(verdict.comparisons) - len(verdict.counted)
    counted = f"{len(verdict.counted)} comparison{'s' * (len(verdict.counted) != 1)}"
    return f"{gain}{spread}, {counted}" + (f", {left_out} left out" if left_out else "")


def gain_text(verdict: ClaimVerdict, gain: float) -> str:
    """Return a gain in the unit of its rule."""
    match verdict.claim.rule:
        case "less":
            return f"{gain:.1%} less" if gain >= 0 else f"{-gain:.1%} more"
        case "times":
            return f"{gain:.3g} times"
        case "equal" | "no_more":
            return f"{gain:+.2%}"
        case "points":
            return f"{gain:+.3g}"
    return f"{gain:.3g}"
