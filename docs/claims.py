"""Tables and charts of the papers' claims and of rankings, from reproduce/.

A page places them by `<!-- claims PAPER -->` and `<!-- ranking PAPER/NAME -->`. Of one experiment,
`<!-- means PAPER/NAME VALUE; down AXIS; across AXIS; only AXIS=LABEL -->` places means over seeds with their standard
errors, `<!-- differences PAPER/NAME -->` those of the paired differences that its claims speak of, and
`<!-- answer PAPER/NAME: CLAIM, CLAIM -->` what was measured for some of its claims, as a list.

`python docs/claims.py` prints the sentence that README.md has about all of them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from gallery import figure_html

from dtdg_lab.reproduction.effects import claim_effects
from dtdg_lab.reproduction.experiment import Experiment, read_experiments
from dtdg_lab.reproduction.listing import EXPERIMENTS, comparison_rows, decision_text, measured_text
from dtdg_lab.reproduction.ranking import NAMES, rank
from dtdg_lab.reproduction.rows import MeasuredRow, read_rows
from dtdg_lab.reproduction.verdict import (
    FAILS,
    HOLDS,
    MISSING,
    PARTLY,
    UNTESTABLE,
    VERDICTS,
    ClaimVerdict,
    half_interval,
    judge,
)
from dtdg_lab.visualization.sheet import standalone
from dtdg_lab.visualization.studies.claims import claims_chart, decided_text
from dtdg_lab.visualization.studies.ranks import ranks_chart

PLACE = re.compile(r"^<!-- claims ([a-z]+) -->$", re.M)
RANKING = re.compile(r"^<!-- ranking ([a-z_/]+) -->$", re.M)
MEANS = re.compile(
    r"^<!-- means (?P<name>[a-z0-9_/-]+) (?P<value>[a-z0-9_.]+); down (?P<down>\w+); across (?P<across>\w+)"
    r"(?:; only (?P<axis>\w+)=(?P<label>[^;]+?))? -->$",
    re.M,
)
ANSWER = re.compile(r"^<!-- answer ([a-z0-9_/-]+): ([a-z0-9, -]+?) -->$", re.M)
DIFFERENCES = re.compile(r"^<!-- differences ([a-z0-9_/-]+) -->$", re.M)
SENTENCE = (
    "Of {total} claims of the five papers, {holds} hold here, {partly} hold partly, {fails} do not hold, and "
    "{untestable} cannot be tested.{missing} For {open} of those that hold partly or do not hold, that is not "
    "established: the 95 % interval over seeds includes zero gain, or the limit or tolerance."
)
Judged = tuple[Experiment, ClaimVerdict]


def placed(markdown: str) -> str:
    """Return a page with its claims."""
    makers: dict[re.Pattern[str], Callable[[re.Match[str]], str]] = {
        PLACE: lambda place: claims_of(place[1]),
        RANKING: lambda place: ranking_of(place[1]),
        MEANS: lambda place: means_of(**place.groupdict()),
        DIFFERENCES: lambda place: differences_of(place[1]),
        ANSWER: lambda place: answer_of(place[1], place[2].split(", ")),
    }
    for pattern, text_of in makers.items():
        markdown = pattern.sub(text_of, markdown)
    return markdown


def claims_of(paper: str) -> str:
    """Return a paper's counts, the table of its claims, the chart of effects, and the numbers of each comparison."""
    judged = _judged((paper,))
    parts = [_summary(judged), _table(judged)]
    if effects := claim_effects(judged):
        figure, caption = claims_chart(effects, "Effects here over the paper's")
        parts.append(f"{figure_html(standalone(figure))}\n\n{caption}")
    return "\n\n".join([*parts, *map(_details, judged), _origins(judged)]) + "\n"


def ranking_of(name: str) -> str:
    """Return sentences, chart and losses of a ranking by each of its numbers."""
    (experiment,) = read_experiments(EXPERIMENTS, (name,))
    rankings = rank(experiment, read_rows(experiment.rows_file))
    parts = [experiment.protocol] if rankings else [experiment.protocol, "Not all problems have been measured yet."]
    for ranking in rankings:
        title = NAMES.get(ranking.value, ranking.value)
        figure, _ = ranks_chart(ranking.mean_ranks, ranking.critical_difference, title)
        parts.append(f"## {title.capitalize()}: {len(ranking.mean_ranks)} systems, {len(ranking.problems)} problems")
        parts += [" ".join(ranking.sentences()), figure_html(standalone(figure))]
        systems = list(ranking.mean_ranks)
        lines = [f"| problem | {' | '.join(systems)} |", "|---" * (len(systems) + 1) + "|"]
        for problem, losses in ranking.problems.items():
            best = min(losses.values())
            cells = [f"**{losses[one]:.4g}**" if losses[one] == best else f"{losses[one]:.4g}" for one in systems]
            lines.append(f"| {problem} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
        if ranking.left_out:
            left_out = ", ".join(ranking.left_out)
            parts.append(f"Not ranked, as they cannot train some problems: {left_out}. Below are those that all can.")
    return "\n\n".join(parts) + "\n"


def means_of(
    name: str, value: str, *, down: str, across: str, axis: str | None = None, label: str | None = None
) -> str:
    """Return a table of an experiment's means over seeds, with their standard errors.

    A seed's value is its mean over the axes that are neither down nor across.

    Args:
        name: the experiment, as ``paper/name``.
        value: number of its rows.
        down: axis of the lines.
        across: axis of the columns.
        axis: axis that is restricted; None for no restriction.
        label: its only label.
    """
    (experiment,) = read_experiments(EXPERIMENTS, (name,))
    rows = [
        row
        for row in read_rows(experiment.rows_file)
        if row.device == "cpu" and not row.failed and (axis is None or row.labels[axis] == label)
    ]
    if not rows:
        return "*Nothing has been measured yet.*\n"
    values: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        of_seeds = values.setdefault((str(row.labels[down]), str(row.labels[across])), {})
        of_seeds.setdefault(row.seed, []).append(row.values[value])
    columns = [column for column in map(str, experiment.over[across]) if any(key[1] == column for key in values)]
    lines = [f"| {down} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for line in map(str, experiment.over[down]):
        means = [map(fmean, values.get((line, column), {}).values()) for column in columns]
        cells = [_mean_text(list(of_seeds)) for of_seeds in means]
        lines.append(f"| {line} | {' | '.join(cells)} |")
    baselines = {name: {row.values.get(name) for row in rows} for name in ("persistence_loss", "mean_loss")}
    common = [f"{name.removesuffix('_loss')} {min(each):.3f}" for name, each in baselines.items() if len(each) == 1]
    seeds = len({row.seed for row in rows})
    notes = [f"Means over {seeds} seeds with their standard errors", *common]
    return "\n".join(lines) + f"\n\n{'; '.join(notes)}. `dtdg-lab reproduce {experiment.id}`\n"


def _mean_text(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {stdev(values) / math.sqrt(len(values)):.3f}" if len(values) > 1 else ""
    return f"{fmean(values):.3f}{spread}"


def differences_of(name: str) -> str:
    """Return, for each comparison of an experiment's claims, how far ours is below the rival over seeds.

    A difference is established if its 95 % t-interval over seeds leaves out zero.
    """
    (experiment,) = read_experiments(EXPERIMENTS, (name,))
    lines = ["| claim | on | below the rival by | established |", "|---|---|---|---|"]
    for verdict in judge(experiment, read_rows(experiment.rows_file)):
        for comparison in verdict.counted:
            gaps = [rival - ours for ours, rival in zip(comparison.ours_values, comparison.rival_values, strict=True)]
            error, half, mean = stdev(gaps) / math.sqrt(len(gaps)), half_interval(gaps), fmean(gaps)
            where = ", ".join(str(label) for label in comparison.labels.values())
            is_established = "yes" if mean > half else "the opposite" if mean < -half else "no"
            lines.append(f"| {verdict.claim.text} | {where} | {mean:.3f} ± {error:.3f} | {is_established} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else "*Nothing has been measured yet.*\n"


def answer_of(name: str, claims: Sequence[str]) -> str:
    """Return what was measured for claims of an experiment, with intervals and verdicts, as a list."""
    (experiment,) = read_experiments(EXPERIMENTS, (name,))
    verdicts = {verdict.claim.name: verdict for verdict in judge(experiment, read_rows(experiment.rows_file))}
    lines = []
    for claim in claims:
        verdict = verdicts[claim]
        text = verdict.claim.text.split(": ", 1)[-1]
        lines.append(f"- {text[0].upper()}{text[1:]}: {measured_text(verdict)} (**{decision_text(verdict)}**)")
    return "\n".join(lines) + "\n"


def sentence() -> str:
    """Return how many claims hold, hold partly and do not."""
    verdicts = [verdict for _, verdict in _judged(()) if not verdict.claim.of_lab]
    counts = Counter(verdict.decision for verdict in verdicts)
    return SENTENCE.format(
        open=sum(verdict.is_open for verdict in verdicts),
        total=counts.total(),
        holds=counts[HOLDS],
        partly=counts[PARTLY],
        fails=counts[FAILS],
        untestable=counts[UNTESTABLE],
        missing=f" {counts[MISSING]} have not been measured yet." * bool(counts[MISSING]),
    )


def _judged(names: tuple[str, ...]) -> list[Judged]:
    """Return the verdicts: what the paper stands on first, then what else counts, then what does not."""
    judged = [
        (experiment, verdict)
        for experiment in read_experiments(EXPERIMENTS, names)
        for verdict in judge(experiment, read_rows(experiment.rows_file))
    ]
    return sorted(judged, key=lambda pair: (pair[1].claim.of_lab, pair[1].decision == UNTESTABLE, not pair[0].core))


def _summary(judged: Sequence[Judged]) -> str:
    """Return how many claims of a paper hold, and which tables and figures have not been measured."""
    counts = Counter(verdict.decision for _, verdict in judged if not verdict.claim.of_lab)
    verdicts = ", ".join(decided_text(decision, counts[decision]) for decision in VERDICTS[:-1])
    summary = f"Of {counts.total()} claims, {verdicts}."
    if not (missing := counts[MISSING]):
        return summary
    sources = dict.fromkeys(
        experiment.source for experiment, verdict in judged if verdict.decision == MISSING and not verdict.claim.of_lab
    )
    return f"{summary} Not measured yet: {'; '.join(sources)} ({missing} claim{'s' * (missing != 1)})."


def _table(judged: Sequence[Judged]) -> str:
    lines = ["| claim | paper | here | verdict | command |", "|---|---|---|---|---|"]
    for experiment, verdict in judged:
        claim = verdict.claim
        cells = (
            f"{claim.text} ({experiment.source})",
            claim.paper.text,
            measured_text(verdict),
            f"**{decision_text(verdict)}**{' (not counted)' * claim.of_lab}",
            f"`dtdg-lab reproduce {experiment.id}`",
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _details(judged: Judged) -> str:
    """Return the comparisons of a claim, folded."""
    experiment, verdict = judged
    if not verdict.comparisons:
        return ""
    lines = [f'??? note "{experiment.source}: {verdict.claim.text}"', "", f"    {experiment.protocol}", ""]
    lines += ["    | comparison | ours | rival | gain |", "    |---|---|---|---|"]
    lines += [f"    | {' | '.join(cells)} |" for cells in comparison_rows(verdict)]
    return "\n".join(lines)


def _origins(judged: Sequence[Judged]) -> str:
    """Return which commits were measured, when, and on which machines."""
    experiments = {experiment.id: experiment for experiment, _ in judged}
    rows: list[MeasuredRow] = [row for one in experiments.values() for row in read_rows(one.rows_file)]
    if not rows:
        return "*Nothing has been measured yet.*"
    machines = dict.fromkeys(row.machine_text for row in rows)
    commits = ", ".join(dict.fromkeys(row.commit for row in rows))
    dates = sorted({row.date for row in rows})
    return f"*{len(rows)} rows of {dates[0]} to {dates[-1]}, commits {commits}; {'; '.join(machines)}.*"


if __name__ == "__main__":
    print(sentence())
