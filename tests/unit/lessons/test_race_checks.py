"""The exercises of lesson 12 accept right answers, in several forms, and reject wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dtdg_lab.lessons import checks as race_checks
from dtdg_lab.lessons.checks import Feedback
from dtdg_lab.studies.race_plan import contestants
from tests.factories import small_config
from tests.lesson_solutions import NO_FUNCTIONS

BASE = small_config(ranks=2, parts=2)
PAIRS = race_checks.pairs(BASE)
AGREE = {"a", "b", "e", "g"}


def sorts_its_lists(first: list[float], second: list[float]) -> bool:
    first.sort()
    second.sort()
    return min(len(first), len(second)) > 1 and first[-1] < second[0]


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


SAY_WRONG: list[Any] = [
    *NO_FUNCTIONS,
    lambda a, b: True,
    lambda a, b: False,
    lambda a, b: max(a) < min(b),
    lambda a, b: len(a) > 1 and max(a) < min(b),
    lambda a, b: sum(a) < sum(b),
    lambda a, b: len(a) > 1 < len(b) and sum(a) / len(a) < sum(b) / len(b),
    lambda a, b: middle(a) < middle(b),
    lambda a, b: len(a) > 1 < len(b) and max(a) <= min(b),
    lambda a, b: len(a) > 1 < len(b) and a[-1] < b[0],
    lambda a, b: len(a) > 1 < len(b) and min(a) > max(b),
    lambda a, b: len(a) > 1 < len(b) and max(a) < max(b),
    lambda a, b: len(a) > 1 < len(b) and min(a) < min(b),
    lambda a, b: all(x < y for x, y in zip(a, b, strict=False)),
    lambda a, b: len(a) == len(b) > 1 and max(a) < min(b),
    lambda a, b: len(a) > 2 < len(b) and max(a) < min(b),
    lambda a, b: len(a) > 1 < len(b) and max(a) < min(b) * 0.95,
    lambda a, b: len(a) > 1 < len(b) and min(b) - max(a),
    lambda a, b: 1 if len(a) > 1 < len(b) and max(a) < min(b) else 0,
    lambda a, b: "True" if max(a) < min(b) else "False",
]
LETTERS_WRONG = ["a", "abe", "abg", "beg", "aeg", "abceg", "abdeg", "abefg", "abcdefg", "cdf", "abegh"]
PAIRS_WRONG: list[Any] = [
    *map(set, LETTERS_WRONG),
    *(None, set(), "", {}, 3, True, math.nan, {1, 2, 5, 7}, dict.fromkeys("abeg", "yes"), "all of them"),
]
REPORTED_WRONG: list[Any] = [
    *NO_FUNCTIONS,
    lambda v, t: min(t),
    lambda v, t: min(v),
    lambda v, t: max(t),
    lambda v, t: t[0],
    lambda v, t: t[-1],
    lambda v, t: sum(t) / len(t),
    lambda v, t: middle(t),
    lambda v, t: v[t.index(min(t))],
    lambda v, t: t[v.index(max(v))],
    lambda v, t: v.index(min(v)),
    lambda v, t: (min(v) + t[v.index(min(v))]) / 2,
    lambda v, t: t,
    lambda v, t: str(min(t)),
    lambda v, t: min(x + y for x, y in zip(v, t, strict=True)),
    lambda v, t: min(zip(v, t, strict=True)),
    lambda v, t: t[min(range(len(v)), key=lambda at: v[at] + t[at])],
]


Check = Callable[[Any], Feedback]


def check_pairs(answer: Any) -> Feedback:
    return race_checks.check_pairs(answer, PAIRS)


ACCEPTED: dict[Check, list[Any]] = {
    race_checks.check_may_say: [
        race_checks.may_say,
        sorts_its_lists,
        lambda a, b: len(a) > 1 < len(b) and all(x < y for x in a for y in b),
        lambda a, b: np.min([len(a), len(b)]) > 1 and np.max(a) < np.min(b),
    ],
    check_pairs: [AGREE, frozenset(AGREE), [*AGREE], "abeg", "a, b, e, g", "A B E G", {k: k in AGREE for k in PAIRS}],
    race_checks.check_reported: [
        race_checks.reported,
        lambda v, t: t[v.index(min(v))],
        lambda v, t: t[int(np.argmin(v))],
        lambda v, t: min(zip(v, t, strict=True))[1],
    ],
}
REJECTED: list[tuple[Check, str, list[Any]]] = [  # with words of the hint
    (race_checks.check_may_say, "a single seed has no spread", SAY_WRONG),
    (check_pairs, "2: ", PAIRS_WRONG),
    (race_checks.check_reported, "the validation split chooses", REPORTED_WRONG),
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


def test_the_pairs_that_must_agree_are_those_of_the_rule() -> None:
    assert {letter for letter, (_, *pair) in PAIRS.items() if race_checks.must_agree(*pair)} == AGREE


def test_a_hint_is_about_the_pair_that_is_wrong() -> None:
    assert set(race_checks.HINTS) == set(PAIRS)
    for letter, (words, *_) in PAIRS.items():
        feedback = race_checks.check_pairs(AGREE ^ {letter}, PAIRS)
        assert words in feedback.words and race_checks.HINTS[letter] in feedback.words


def test_what_the_lesson_says_may_differ_may() -> None:
    config = BASE.replace(system="adgnn-t")
    for change in ({"partitioner": "hash"}, {"learning_rate": 0.3}):
        assert len(contestants([config, config.replace(**change)], seeds=(0,), stop=None)) == 2
