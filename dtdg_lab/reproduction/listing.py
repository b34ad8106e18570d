"""Missing cells and verdicts as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from dtdg_lab.core.units import format_seconds
from dtdg_lab.reproduction.effects import comparison_text
from dtdg_lab.reproduction.experiment import Claim, Experiment
from dtdg_lab.reproduction.ranking import rank
from dtdg_lab.reproduction.rows import read_rows
from dtdg_lab.reproduction.runner import Work
from dtdg_lab.reproduction.verdict import MISSING, UNTESTABLE, VERDICTS, ClaimVerdict, judge
from dtdg_lab.visualization.numbers import seconds_text, three_digits
from dtdg_lab.visualization.studies.claims import decided_text

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


def format_verdicts(experiments: Sequence[Experiment], device: str = "cpu", *, details: bool = False) -> str:
    """Return every claim with its verdict, and how often each verdict occurs; with details also each comparison."""
    lines: list[str] = []
    counts: Counter[str] = Counter()
    open_count = 0
    for experiment in experiments:
        lines.append(f"{experiment.id}: {experiment.question} ({experiment.source})")
        rows = read_rows(experiment.rows_file)
        origins = {f"{row.machine_text}, {row.date}" for row in rows if row.device == device}
        lines += [f"  measured on {origin}" for origin in sorted(origins)]
        if experiment.ranking is not None:
            rankings = rank(experiment, rows, device)
            lines += [f"  {' '.join(ranking.sentences())}" for ranking in rankings] or [f"  {MISSING}"]
        for verdict in judge(experiment, rows, device):
            counts[verdict.decision] += not verdict.claim.of_lab
            open_count += verdict.is_open and not verdict.claim.of_lab
            counted = " (not counted)" * verdict.claim.of_lab
            lines.append(f"  {decision_text(verdict):35} {verdict.claim.text}: {measured_text(verdict)}{counted}")
            lines.append(f"  {'':35} paper: {verdict.claim.paper.text}")
            if details:
                heading = f"comparison | ours (least to greatest seed) | rival | {gain_heading(verdict.claim)}"
                table = [heading, *(" | ".join(cells) for cells in comparison_rows(verdict))]
                lines += [f"  {'':35} {line}" for line in table if verdict.comparisons]
    if counts.total():
        summary = ", ".join(decided_text(decision, counts[decision]) for decision in VERDICTS if counts[decision])
        claims = f"{counts.total()} claim{'s' * (counts.total() != 1)} of the papers"
        lines.append(f"{claims}: {summary}; {open_count} not established.")
    return "\n".join(lines)


def gain_heading(claim: Claim) -> str:
    """Return what the last column of comparisons has, with the limit or tolerance that it must keep."""
    size = claim.paper.size
    match claim.rule:
        case "at_most" | "at_least" if size is not None:
            return f"{claim.value}, {claim.rule.replace('_', ' ')} {_value_text(claim.value, size)}"
        case "equal" if size is not None:
            return f"difference ({claim.value}), within {size:.1%}"
        case "no_more" if size is not None:
            return f"difference ({claim.value}), at most {size:.1%}"
    return f"gain ({claim.value})"


def decision_text(verdict: ClaimVerdict) -> str:
    """Return a decision, and whether the interval over seeds leaves it open."""
    return verdict.decision + ", not established" * verdict.is_open


def comparison_rows(verdict: ClaimVerdict) -> list[tuple[str, str, str, str]]:
    """Return, for each comparison, its axes, ours, the rival, and the gain or why it does not count."""
    return [
        (
            comparison_text(comparison),
            _spread_text(comparison.ours_values),
            _spread_text(comparison.rival_values),
            f"left out: {comparison.left_out}"
            if comparison.left_out
            else gain_text(verdict, comparison.gain) + " (a bound)" * comparison.censored,
        )
        for comparison in verdict.comparisons
    ]


def _spread_text(values: Sequence[float]) -> str:
    """Return the mean of seeds, with the least and the greatest if they differ."""
    if not values:
        return "-"
    return f"{fmean(values):.4g}" + (f" ({min(values):.4g} to {max(values):.4g})" if min(values) < max(values) else "")


def measured_text(verdict: ClaimVerdict) -> str:
    """Return what was measured for a claim: the pooled gain with its interval, and the comparisons that count.

    If ours is worse, the interval is turned round with the number: of a share that is more, more is above zero.
    """
    if verdict.decision in (UNTESTABLE, MISSING) or verdict.gain is None:
        return verdict.reason
    gain = gain_text(verdict, verdict.gain)
    spread = ""
    if verdict.low is not None and verdict.high is not None and verdict.low < verdict.high:
        ends = verdict.low, verdict.high
        if verdict.claim.rule == "less" and verdict.gain < 0:
            ends = -verdict.high, -verdict.low
        if verdict.claim.rule == "times" and verdict.gain < 1:
            ends = 1 / verdict.high, 1 / verdict.low
        spread = f" ({' to '.join(_end_text(verdict, end) for end in ends)})"
    left_out = len(verdict.comparisons) - len(verdict.counted)
    counted = f"{len(verdict.counted)} comparison{'s' * (len(verdict.counted) != 1)}"
    energy = ", of modelled joules" if verdict.is_modelled else ""
    return f"{gain}{spread}{energy}, {counted}" + (f", {left_out} left out" if left_out else "")


def gain_text(verdict: ClaimVerdict, gain: float) -> str:
    """Return a gain in the unit of its rule, or of the value that has a limit.

    If ours is worse, it says how much more, or how many times as long, ours takes.
    """
    match verdict.claim.rule:
        case "less":
            return f"{gain:.1%} less" if gain >= 0 else f"{-gain:.1%} more"
        case "times":
            is_time = verdict.claim.value.endswith("_s") or verdict.claim.value.startswith("seconds")
            unit = "long" if is_time else "much"
            return f"{gain:.3g} times" if gain >= 1 else f"{1 / gain:.3g} times as {unit}"
        case "equal" | "no_more":
            return f"{gain:+.2%}".replace("-0.00", "0.00")
        case "points":
            return f"{gain:+.3g}"
    return _value_text(verdict.claim.value, gain)


def _end_text(verdict: ClaimVerdict, end: float) -> str:
    """Return an end of a gain's interval."""
    if verdict.claim.rule in ("less", "equal", "no_more"):
        return f"{end:.1%}".replace("-0.0%", "0.0%")
    return f"{end:.3g}" if verdict.claim.rule in ("times", "points") else _value_text(verdict.claim.value, end)


def _value_text(name: str, number: float) -> str:
    """Return a number of a cell in the unit that the end of its name tells."""
    if name.endswith("_bytes_s"):
        return f"{number / 1e9:.3g} GB/s"
    if name.endswith(("_s", "_ms")):
        return seconds_text(number / 1e3 if name.endswith("_ms") else number)
    if name.endswith(("_share", "_error", "_percent")):
        return f"{number / 100 if name.endswith('_percent') else number:.2%}"
    return three_digits(number)
