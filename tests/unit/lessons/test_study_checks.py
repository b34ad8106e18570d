"""The exercises of lesson 13 accept right answers and reject wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean, median, median_low
from typing import Any

import numpy as np
import pytest

from dtdg_lab.lessons import checks as study_checks
from dtdg_lab.lessons.checks import SEVEN, Feedback
from tests.lesson_solutions import NO_FUNCTIONS, answers

RIGHT = answers("13_parameter_study")


def of_right(name: str) -> Callable[..., Any]:
    """The function that a right answer makes."""
    made: dict[str, Any] = {}
    exec(RIGHT[f"study-{name}"], made)
    function: Callable[..., Any] = made[name]
    return function


def product(values: list[int], seeds: int) -> int:
    return math.prod(values) * seeds


def by(middle: Callable[[Any], float], described: Callable[[Any, Any], bool]) -> Callable[[Any], set[str]]:
    """A rule for ties: what is best by ``middle``, and what is not told from it."""

    def rule(cells: Any) -> set[str]:
        best = min(cells, key=lambda name: middle(cells[name]))
        return {name for name in cells if not described(cells[name], cells[best])}

    return rule


def chosen_by(column: str, reported: str, of_choice: Callable[[Any], float], of_report: Callable[[Any], float]) -> Any:
    """A rule for what is told of a study."""

    def rule(rows: Any) -> tuple[str, float]:
        cells: dict[str, list[Any]] = {}
        for row in rows:
            cells.setdefault(row["cell"], []).append(row)
        best = min(cells, key=lambda name: of_choice([row[column] for row in cells[name]]))
        return best, of_report([row[reported] for row in cells[best]])

    return rule


def changing(rows: Any) -> tuple[str, float]:
    rows.sort(key=lambda row: row["test_loss"])
    return rows[0]["cell"], rows[0]["test_loss"]


RUNS_WRONG: list[Any] = [
    *NO_FUNCTIONS,
    lambda v, s: sum(v) * s,
    lambda v, s: math.prod(v),
    lambda v, s: sum(v) + s,
    lambda v, s: math.prod(v) + s,
    lambda v, s: math.prod(v) ** s,
    lambda v, s: len(v) * s,
    lambda v, s: max(v) * s,
    lambda v, s: v[0] * v[1] * s,
    lambda v, s: math.prod(v) * (s + 1),
    lambda v, s: str(math.prod(v) * s),
    lambda v, s: [math.prod(v) * s],
    lambda v, s: v[0] ** len(v) * s,
]
TIES_WRONG: list[Any] = [
    *NO_FUNCTIONS,
    {"a"},
    lambda c: set(),
    lambda c: set(c),
    lambda c: len(c),
    lambda c: "a",
    lambda c: {min(c, key=lambda name: median(c[name]))},  # the best alone
    lambda c: study_checks.ties(c) - {min(c, key=lambda name: median(c[name]))},  # without the best
    by(min, lambda other, best: min(other) > max(best)),  # the luckiest seed
    by(fmean, lambda other, best: min(other) > max(best)),
    by(max, lambda other, best: min(other) > max(best)),
    by(median, lambda other, best: median(other) > max(best)),
    by(median, lambda other, best: median(other) > median(best)),
    by(median, lambda other, best: min(other) > median(best)),
    by(median, lambda other, best: min(other) >= max(best)),
    by(median, lambda other, best: max(other) > max(best)),
    by(median, lambda other, best: min(other) > min(best)),
    by(lambda losses: -median(losses), lambda other, best: max(other) < min(best)),  # the most is best
    lambda c: [[name] for name in study_checks.ties(c)],
    lambda c: {c[name] for name in c},
]
CHOOSE_WRONG: list[Any] = [
    *NO_FUNCTIONS,
    ("a", 0.5),
    lambda rows: (None, None),
    lambda rows: "a",
    lambda rows: ("a", 0.52),
    chosen_by("test_loss", "test_loss", median, median),  # the test split chooses
    chosen_by("validation_loss", "validation_loss", median, median),  # what chose is told
    chosen_by("validation_loss", "test_loss", median, min),  # the best seed is told
    chosen_by("validation_loss", "test_loss", min, median),  # the luckiest seed chooses
    chosen_by("validation_loss", "test_loss", fmean, median),
    chosen_by("validation_loss", "test_loss", median, fmean),
    chosen_by("validation_loss", "test_loss", max, median),
    chosen_by("validation_loss", "test_loss", median, max),
    chosen_by("validation_loss", "test_loss", lambda losses: -median(losses), median),
    lambda rows: study_checks.choose(rows)[0],
    lambda rows: study_checks.choose(rows)[1],
    lambda rows: study_checks.choose(rows)[::-1],
    lambda rows: (*study_checks.choose(rows), 3),
    lambda rows: (study_checks.choose(rows)[0], math.nan),
    lambda rows: (study_checks.choose(rows)[0], "0.5"),
    lambda rows: rows["a"],
    changing,
]
Check = Callable[[Any], Feedback]


ACCEPTED: dict[Check, list[Any]] = {
    study_checks.check_runs: [product, of_right("runs"), lambda v, s: int(np.prod(v)) * s],
    study_checks.check_ties: [study_checks.ties, of_right("ties"), lambda c: sorted(study_checks.ties(c))],
    study_checks.check_choose: [study_checks.choose, of_right("choose"), lambda rows: list(study_checks.choose(rows))],
}
REJECTED: list[tuple[Check, str, list[Any]]] = [  # with words of the hint
    (study_checks.check_runs, "combine every value of an axis", RUNS_WRONG),
    (study_checks.check_ties, "the best cell has the lowest median", TIES_WRONG),
    (study_checks.check_choose, "validation_loss over seeds, and report", CHOOSE_WRONG),
]


@pytest.mark.parametrize(
    ("check", "right"), [(check, right) for check, answers in ACCEPTED.items() for right in answers]
)
def test_right_answers_are_accepted_in_any_form(check: Check, right: Any) -> None:
    assert check(right)


@pytest.mark.parametrize(
    ("check", "hint", "wrong"), [(check, hint, wrong) for check, hint, answers in REJECTED for wrong in answers]
)
def test_wrong_answers_get_a_hint(check: Check, hint: str, wrong: Any) -> None:
    feedback = check(wrong)
    assert not feedback and hint in feedback.words


def test_the_seven_trials_hold_the_traps() -> None:
    """The lowest so far is not the last loss, a median of four is no loss of theirs, and the worst comes too early."""
    lows = {name: min(losses[:2]) for name, losses in SEVEN.items()}
    assert SEVEN["F"][1] > median([lows[name] for name in "ABCDE"]) >= lows["F"]
    assert median([lows[name] for name in "ABCD"]) >= lows["E"] > median_low([lows[name] for name in "ABCD"])
    assert lows["B"] == max(lows.values()), "it is among the first three"
    assert min(SEVEN, key=lambda name: SEVEN[name][-1]) == "D"


def test_a_median_rule_ends_the_slow_starter() -> None:
    assert study_checks.stopped(SEVEN, 2, 3) == ["D", "G"] and study_checks.lost(SEVEN, 2, 3) == "D"


def test_a_rule_that_looks_late_loses_nobody() -> None:
    assert study_checks.lost(SEVEN, 4, 3) is None and "D" not in study_checks.stopped(SEVEN, 4, 3)


def test_answers_that_change_their_data_change_a_copy() -> None:
    for _ in range(2):
        study_checks.check_choose(changing)
        assert study_checks.check_choose(study_checks.choose)
