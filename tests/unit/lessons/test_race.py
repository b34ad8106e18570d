"""The exercises of lesson 12 accept right answers, in several forms, and reject wrong ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.lessons import checks as race_checks
from dtdg_lab.studies.race_plan import contestants
from tests.lesson_solutions import answers

BASE = RunConfig(
    system="psg",
    dataset="growing",
    generated_nodes=40,
    generated_edges=160,
    generated_snapshots=20,
    hidden=4,
    epochs=1,
    threads=1,
    ranks=2,
    parts=2,
)
PAIRS = race_checks.pairs(BASE)
AGREE = {"a", "b", "e", "g"}


def near(seconds: list[float], losses: list[float], least: float) -> float:
    for at, loss in zip(seconds, losses, strict=True):
        if (loss - least) / least < 0.05:
            return at
    return math.inf


def sorts_its_lists(first: list[float], second: list[float]) -> bool:
    first.sort()
    second.sort()
    return min(len(first), len(second)) > 1 and first[-1] < second[0]


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


SAY_WRONG: list[Any] = [
    None,
    True,
    "max(first) < min(second)",
    lambda a, b: None,
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
    lambda a, b: math.nan,
    lambda a, b: 1 / 0,
    lambda a, b: "True" if max(a) < min(b) else "False",
    lambda a: True,
]
NEAR_WRONG: list[Any] = [
    None,
    3.0,
    "seconds[0]",
    lambda s, v, least: None,
    lambda s, v, least: s[0] if s else None,
    lambda s, v, least: s[-1] if s else None,
    lambda s, v, least: s[v.index(min(v))] if s else None,
    lambda s, v, least: next((i for i, x in enumerate(v) if x <= 1.05 * least), None),
    lambda s, v, least: next((t for t, x in zip(s, v, strict=True) if x <= 1.05 * min(v)), None),
    lambda s, v, least: next((t for t, x in zip(s, v, strict=True) if x <= least), None),
    lambda s, v, least: next((t for t, x in zip(s, v, strict=True) if x <= least + 0.05), None),
    lambda s, v, least: next((t for t, x in zip(s, v, strict=True) if x <= 0.95 * least), None),
    lambda s, v, least: next((t for t, x in zip(s, v, strict=True) if x <= 1.5 * least), None),
    lambda s, v, least: next((t for t, x in zip(s, v, strict=True) if x <= 1.05 * least), 0.0),
    lambda s, v, least: next((t for t, x in zip(s, v, strict=True) if x <= 1.05 * least), math.nan),
    lambda s, v, least: next((x for x in v if x <= 1.05 * least), None),
    lambda s, v, least: math.nan,
    lambda s, v, least: [t for t, x in zip(s, v, strict=True) if x <= 1.05 * least],
    lambda s, v: s[0],
    lambda s, v, least: str(near(s, v, least)),
    lambda s, v, least: next(t for t in s if t < 0),
]
PAIRS_WRONG: list[Any] = [
    None,
    set(),
    "",
    {},
    3,
    True,
    math.nan,
    {"a"},
    {"a", "b", "e"},
    {"a", "b", "g"},
    {"b", "e", "g"},
    {"a", "e", "g"},
    {"a", "b", "c", "e", "g"},
    {"a", "b", "d", "e", "g"},
    {"a", "b", "e", "f", "g"},
    set("abcdefg"),
    {"c", "d", "f"},
    {"a", "b", "e", "g", "h"},
    {1, 2, 5, 7},
    {"a": "yes", "b": "yes", "e": "yes", "g": "yes"},
    "all of them",
]
SKILL_WRONG: list[Any] = [
    None,
    -1.0,
    "1 - loss / persistence",
    lambda v, p: None,
    lambda v, p: v / p,
    lambda v, p: p / v if v else 1,
    lambda v, p: p - v,
    lambda v, p: v / p - 1,
    lambda v, p: max(0.0, 1 - v / p),
    lambda v, p: abs(1 - v / p),
    lambda v, p: 100 * (1 - v / p),
    lambda v, p: 1 - p / v if v else 1,
    lambda v, p: 1 - v,
    lambda v, p: math.nan,
    lambda v, p: str(1 - v / p),
    lambda v: 1 - v,
    lambda v, p: (p - v) / v,
]
REPORTED_WRONG: list[Any] = [
    None,
    0.25,
    "test[0]",
    lambda v, t: None,
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
    lambda v, t: math.nan,
    lambda v, t: str(min(t)),
    lambda v, t: min(x + y for x, y in zip(v, t, strict=True)),
    lambda v: min(v),
    lambda v, t: min(zip(v, t, strict=True)),
    lambda v, t: t[min(range(len(v)), key=lambda at: v[at] + t[at])],
]
RIGHT = answers("12_race")


@pytest.mark.parametrize(
    "right",
    [
        race_checks.may_say,
        sorts_its_lists,
        lambda a, b: len(a) > 1 < len(b) and all(x < y for x in a for y in b),
        lambda a, b: np.min([len(a), len(b)]) > 1 and np.max(a) < np.min(b),
    ],
)
def test_the_rule_of_bold_numbers_is_accepted_in_any_form(right: Any) -> None:
    assert race_checks.check_may_say(right)


@pytest.mark.parametrize("wrong", SAY_WRONG, ids=range(len(SAY_WRONG)))
def test_other_rules_are_not(wrong: Any) -> None:
    feedback = race_checks.check_may_say(wrong)
    assert not feedback and "a single seed has no spread" in feedback.words


@pytest.mark.parametrize("right", [race_checks.first_near, near, lambda s, v, least: np.float64(near(s, v, least))])
def test_the_first_moment_near_the_best_is_accepted(right: Any) -> None:
    assert race_checks.check_first_near(right)


@pytest.mark.parametrize("wrong", NEAR_WRONG, ids=range(len(NEAR_WRONG)))
def test_other_moments_are_not(wrong: Any) -> None:
    feedback = race_checks.check_first_near(wrong)
    assert not feedback and feedback.words.startswith("2: ")


@pytest.mark.parametrize(
    "right",
    [
        AGREE,
        frozenset(AGREE),
        ["g", "a", "b", "e"],
        "abeg",
        "a, b, e, g",
        "A B E G",
        {letter: letter in AGREE for letter in PAIRS},
    ],
)
def test_the_pairs_that_must_agree_are_accepted(right: Any) -> None:
    assert race_checks.check_pairs(right, PAIRS)
    assert {letter for letter, (_, *pair) in PAIRS.items() if race_checks.must_agree(*pair)} == AGREE


@pytest.mark.parametrize("wrong", PAIRS_WRONG, ids=range(len(PAIRS_WRONG)))
def test_other_pairs_are_not(wrong: Any) -> None:
    feedback = race_checks.check_pairs(wrong, PAIRS)
    assert not feedback and feedback.words.startswith("3: ")


def test_a_hint_is_about_the_pair_that_is_wrong() -> None:
    assert set(race_checks.HINTS) == set(PAIRS)
    for letter, (words, *_) in PAIRS.items():
        feedback = race_checks.check_pairs(AGREE ^ {letter}, PAIRS)
        assert words in feedback.words and race_checks.HINTS[letter] in feedback.words


@pytest.mark.parametrize("right", [race_checks.skill, lambda v, p: (p - v) / p, lambda v, p: np.float64(1 - v / p)])
@pytest.mark.parametrize("letter", ["b", "B", " b "])
def test_skill_is_accepted(right: Any, letter: str) -> None:
    assert race_checks.check_skill(right, letter)


@pytest.mark.parametrize("wrong", SKILL_WRONG, ids=range(len(SKILL_WRONG)))
def test_other_skills_are_not(wrong: Any) -> None:
    feedback = race_checks.check_skill(wrong, "b")
    assert not feedback and "equal to persistence gives 0" in feedback.words


@pytest.mark.parametrize("wrong", [None, "", "a", "c", "d", "e", -1, 2, True, ["b"], {"b"}, math.nan, "ab", len])
def test_other_meanings_are_not(wrong: Any) -> None:
    feedback = race_checks.check_skill(race_checks.skill, wrong)
    assert not feedback and "the function is right" in feedback.words


@pytest.mark.parametrize(
    "right",
    [
        race_checks.reported,
        lambda v, t: t[v.index(min(v))],
        lambda v, t: t[int(np.argmin(v))],
        lambda v, t: min(zip(v, t, strict=True))[1],
    ],
)
def test_the_test_loss_of_whom_validation_chose_is_accepted(right: Any) -> None:
    assert race_checks.check_reported(right)


@pytest.mark.parametrize("wrong", REPORTED_WRONG, ids=range(len(REPORTED_WRONG)))
def test_other_losses_are_not(wrong: Any) -> None:
    feedback = race_checks.check_reported(wrong)
    assert not feedback and "the validation split chooses" in feedback.words


def test_what_the_lesson_says_may_differ_may() -> None:
    config = BASE.replace(system="adgnn-t")
    for change in ({"partitioner": "hash"}, {"learning_rate": 0.3}):
        assert len(contestants([config, config.replace(**change)], seeds=(0,), stop=None)) == 2


def test_answers_in_source_are_right() -> None:
    known: dict[str, Any] = {}
    for code in RIGHT.values():
        exec(code, known)
    assert race_checks.check_may_say(known["may_say"]) and race_checks.check_first_near(known["first_near"])
    assert race_checks.check_pairs(known["agree"], PAIRS) and race_checks.check_reported(known["reported"])
    assert race_checks.check_skill(known["skill"], known["minus_one"])
