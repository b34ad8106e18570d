"""Mean ranks of systems over problems, and which of them are distinguishable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from scipy import stats

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.units import join_words
from dtdg_lab.reproduction.cells import ExperimentCell, cells_of
from dtdg_lab.reproduction.experiment import Experiment
from dtdg_lab.reproduction.rows import MeasuredRow
from dtdg_lab.reproduction.time_to_loss import WITHIN_J, losses_within

LEVEL = 0.95
FEWEST = 3  # systems, for Friedman's test
NAMES: Mapping[str, str] = {
    "test_loss": "test loss after equal seconds",
    WITHIN_J: "validation loss within equal joules",
}


@dataclass(frozen=True, slots=True)
class Ranking:
    """Mean ranks by one number, lower is better.

    Attributes:
        value: the number.
        problems: problem -> system -> mean over seeds; of the systems that have it in every problem.
        mean_ranks: system -> mean rank over problems, best first; ties share their mean rank.
        critical_difference: of two mean ranks that differ by more, one is better: Nemenyi's test at 5 % (Demsar, JMLR
            7, 2006).
        p_value: of Friedman's test that all systems are alike.
        left_out: systems without a value in some problem, and how many they have.
        unbeaten: problems in which persistence predicts better than every system; None where it is not compared.
    """

    value: str
    problems: Mapping[str, Mapping[str, float]]
    mean_ranks: Mapping[str, float]
    critical_difference: float
    p_value: float
    left_out: Mapping[str, int]
    unbeaten: tuple[str, ...] | None

    @property
    def alike(self) -> tuple[str, ...]:
        """The systems that are indistinguishable from the best: all, unless Friedman's test finds a difference."""
        best, *others = self.mean_ranks
        if self.p_value > 1 - LEVEL:
            return tuple(others)
        return tuple(
            system for system in others if self.mean_ranks[system] - self.mean_ranks[best] <= self.critical_difference
        )

    def sentences(self) -> tuple[str, str, str]:
        """Return what the ranking says, in three sentences."""
        best = next(iter(self.mean_ranks))
        first = (
            f"By {NAMES.get(self.value, self.value)}, {best} has the best mean rank: {self.mean_ranks[best]:.1f} of "
            f"{len(self.mean_ranks)} systems over {len(self.problems)} problems."
        )
        differs = f"(critical difference {self.critical_difference:.1f}, p = {self.p_value:.2g} that all are alike)"
        others = join_words(list(self.alike))
        second = (
            f"It is indistinguishable from {others} {differs}."
            if others
            else f"It is better than all others {differs}."
        )
        if self.unbeaten is None:
            third = "Persistence is not compared."
        elif self.unbeaten:
            third = f"Persistence is better than every system on {join_words(list(self.unbeaten))}."
        else:
            third = "Some system is better than persistence on every problem."
        return first, second, third


def rank(experiment: Experiment, rows: Sequence[MeasuredRow], device: str = "cpu") -> list[Ranking]:
    """Return the rankings of an experiment by each of its numbers; none until all cells are measured.

    The first is over all problems. If a system cannot be trained on some of them, a second one has all systems, over
    the problems that they all have.

    Raises:
        ConfigError: the experiment has no ranking, or fewer than three systems or two problems can be ranked.
    """
    if experiment.ranking is None:
        raise ConfigError(f"{experiment.id} has no [ranking]. Add one, or judge its claims.")
    cells = cells_of(experiment, device)
    by_key = {row.key: row for row in rows}
    if not all(cell.key in by_key for cell in cells):
        return []
    return [ranking for value in experiment.ranking.values for ranking in _rankings(experiment, cells, by_key, value)]


def _rankings(
    experiment: Experiment, cells: Sequence[ExperimentCell], rows: Mapping[str, MeasuredRow], value: str
) -> list[Ranking]:
    assert experiment.ranking is not None  # checked by the caller
    axis = experiment.ranking.axis
    by_problem: dict[str, dict[str, list[MeasuredRow]]] = {}
    for cell in cells:
        problem = " ".join(str(label) for name, label in cell.labels.items() if name != axis)
        by_problem.setdefault(problem, {}).setdefault(str(cell.labels[axis]), []).append(rows[cell.key])
    means = {problem: _means(systems, value) for problem, systems in by_problem.items()}
    systems = list(dict.fromkeys(system for known in means.values() for system in known))
    counts = {system: sum(system in known for known in means.values()) for system in systems}
    complete = [system for system in systems if counts[system] == len(means)]
    if len(complete) < FEWEST or len(means) < 2:
        raise ConfigError(
            f"{experiment.id}: {len(complete)} systems have {value} in all of {len(means)} problems, but a "
            f"ranking needs {FEWEST} systems and 2 problems."
        )
    left_out = {system: counts[system] for system in systems if system not in complete}
    unbeaten = _unbeaten(by_problem) if value == "test_loss" else None
    rankings = [_ranking(value, means, complete, left_out, unbeaten)]
    shared = {problem: known for problem, known in means.items() if len(known) == len(systems)}
    if left_out and len(shared) > 1:
        beaten = None if unbeaten is None else tuple(problem for problem in unbeaten if problem in shared)
        rankings.append(_ranking(value, shared, systems, {}, beaten))
    return rankings


def _ranking(
    value: str,
    means: Mapping[str, Mapping[str, float]],
    complete: Sequence[str],
    left_out: Mapping[str, int],
    unbeaten: tuple[str, ...] | None,
) -> Ranking:
    """Return the ranking of systems that have a mean in every problem."""
    ranks = [stats.rankdata([known[system] for system in complete]) for known in means.values()]
    mean_ranks = {system: float(fmean(row[index] for row in ranks)) for index, system in enumerate(complete)}
    columns = [[known[system] for known in means.values()] for system in complete]
    count = len(complete)
    critical = float(stats.studentized_range.ppf(LEVEL, count, math.inf)) / math.sqrt(2)
    return Ranking(
        value=value,
        problems={problem: {system: known[system] for system in complete} for problem, known in means.items()},
        mean_ranks=dict(sorted(mean_ranks.items(), key=lambda entry: entry[1])),
        critical_difference=critical * math.sqrt(count * (count + 1) / (6 * len(means))),
        p_value=float(stats.friedmanchisquare(*columns).pvalue),
        left_out=left_out,
        unbeaten=unbeaten,
    )


def _means(systems: Mapping[str, Sequence[MeasuredRow]], value: str) -> dict[str, float]:
    """Return system -> mean over seeds, of those whose seeds all have the number."""
    within = losses_within([row for rows in systems.values() for row in rows]) if value == WITHIN_J else {}
    means: dict[str, float] = {}
    for system, rows in systems.items():
        numbers: list[Any] = [within[row.key] if value == WITHIN_J else row.values.get(value) for row in rows]
        if all(number is not None for number in numbers):
            means[system] = fmean(numbers)
    return means


def _unbeaten(by_problem: Mapping[str, Mapping[str, Sequence[MeasuredRow]]]) -> tuple[str, ...]:
    """Return the problems with a known loss of persistence that is below the mean test loss of every system."""
    problems = []
    for problem, systems in by_problem.items():
        known = [
            (row.values["persistence_loss"], row.values["test_loss"])
            for rows in systems.values()
            for row in rows
            if row.values.get("persistence_loss") is not None and row.values.get("test_loss") is not None
        ]
        means = _means(systems, "test_loss")
        if known and means and fmean(persistence for persistence, _ in known) < min(means.values()):
            problems.append(problem)
    return tuple(problems)
