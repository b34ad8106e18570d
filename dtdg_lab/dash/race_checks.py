"""Checks of the exercises of lesson 9: who may be called better, how fast, who must agree, and what may be reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dtdg_lab.core.config import RunConfig
from dtdg_lab.dash.grading import Feedback, agrees, close
from dtdg_lab.studies.coincide import same_losses
from dtdg_lab.studies.significance import best, spread
from dtdg_lab.views.time_to_loss import NEAR

Pair = tuple[str, RunConfig, RunConfig]  # what differs, in words, and both settings

SAY_CASES: tuple[tuple[list[float], list[float]], ...] = (
    ([1, 2, 3], [4, 5, 6]), ([4, 5, 6], [1, 2, 3]), ([3, 1, 2], [6, 4, 5]), ([6, 4, 5], [3, 1, 2]),
    ([1, 2, 10], [9, 11, 12]), ([1, 5], [2, 6]), ([1, 5, 2], [4, 6, 7]), ([2, 3], [1, 9]), ([1, 2, 3], [3, 4, 5]),
    ([1, 1], [1, 1]),
    ([0.1001, 0.1002], [0.1003, 0.1004]), ([-3, -2], [-1, 0]), ([1, 2], [3, 4, 5]), ([1, 2, 3], [5, 4]),
    ([1], [2]), ([1], [2, 3]), ([1, 2], [3]), ([1, math.inf], [5, 6]),
)  # fmt: skip
NEAR_CASES: tuple[tuple[list[float], list[float], float], ...] = (
    ([1, 2, 3, 4], [10, 5, 4.1, 4], 4), ([1, 2, 3, 4], [5, 4.1, 6, 4], 4), ([1.5, 2.5, 3.5], [9, 6, 6.1], 4),
    ([1, 2, 3], [0.5, 0.14, 0.1], 0.1), ([10, 20], [104, 100], 100), ([7], [1], 1), ([2, 5, 9], [3, 2, 1], 1),
    ([2, 5, 9], [3, 2, 1.06], 1), ([], [], 1),
)  # fmt: skip
SKILL_CASES = [(0.1, 0.2), (0.2, 0.1), (0.2, 0.2), (1.5, 0.5), (0.0, 2.0), (0.12, 0.06)]
REPORT_CASES: tuple[tuple[list[float], list[float]], ...] = (
    ([0.3, 0.1, 0.2], [0.31, 0.25, 0.11]), ([0.1, 0.3, 0.2], [0.4, 0.2, 0.3]), ([2, 3, 1], [1.5, 1.2, 1.9]),
    ([5, 4, 3, 2.5], [1, 2, 3, 4]), ([1.1, 0.9], [0.8, 1.0]),
)  # fmt: skip
MEANINGS: Mapping[str, str] = {
    "a": "the loss is below zero",
    "b": "the loss is twice that of saying that tomorrow is as today",
    "c": "the loss is as high as that of saying the mean for every vertex",
    "d": "the loss has doubled while training",
}
MEANS = "b"
HINTS: Mapping[str, str] = {
    "a": "a step of a full batch sees the whole training part, however it was divided",
    "b": "who owns which vertex decides what travels; what it is summed to is the same",
    "c": "one step for all snapshots and one for each few groups are different steps",
    "d": "more parts take more groups in one step, so that an epoch has fewer steps",
    "e": "a cache decides how rows come, not which",
    "f": "a seed draws the first parameters, and the data where they are generated",
    "g": "the plan follows the parts; ranks carry it out",
}


def may_say(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether the first of two systems may be called better, by the losses of their seeds.

    Every seed of the first beats every seed of the second, and both have two or more.
    """
    return best({"first": spread(list(first)), "second": spread(list(second))}) == "first"


def check_may_say(function: Any) -> Feedback:
    """Of ``may_say(first, second)``."""
    wrong = _differs(function, may_say, SAY_CASES, _same_truth)
    if wrong:
        hint = "compare the worst seed of the one with the best of the other; one seed shows no spread"
        return Feedback(False, f"1: {wrong}; {hint}")
    return Feedback(True, "1: that is when a number of the table is bold")


def first_near(seconds: Sequence[float], losses: Sequence[float], least: float) -> float | None:
    """When a loss was within 5 % of the least of all contestants for the first time; None where it never was."""
    return next((at for at, loss in zip(seconds, losses, strict=True) if loss <= least * (1 + NEAR)), None)


def check_first_near(function: Any) -> Feedback:
    """Of ``first_near(seconds, losses, least)``."""
    wrong = _differs(function, first_near, NEAR_CASES, _same_moment)
    if wrong:
        hint = "seconds, not places; the first point, not the best; 5 % of the least of all; None where there is none"
        return Feedback(False, f"2: {wrong}; {hint}")
    return Feedback(True, "2: the column 'to near the best'")


def pairs(base: RunConfig) -> dict[str, Pair]:
    """Pairs of settings by letter, of which some must have the same losses.

    Args:
        base: what they have in common; of one rank.
    """

    def of(system: str, **changes: Any) -> RunConfig:
        return base.replace(system=system, ranks=1, **{"parts": 1, **changes})

    hashed, metis = (of("adgnn-t", parts=2, partitioner=name) for name in ("hash", "metis"))
    groups = of("psg", parts=2)
    return {
        "a": ("single | esdg with 2 parts", of("single"), of("esdg", parts=2)),
        "b": ("adgnn-t, partitioner hash | metis", hashed, metis),
        "c": ("single | psg with 2 parts", of("single"), groups),
        "d": ("psg with 2 parts | 4 parts", groups, of("psg", parts=4)),
        "e": ("dgl-default (no cache) | greendygnn (cache)", of("dgl-default", parts=2), of("greendygnn", parts=2)),
        "f": ("single, seed 0 | seed 1", of("single", seed=0), of("single", seed=1)),
        "g": ("psg with 2 parts, on 1 rank | on 2 ranks", groups, groups.replace(ranks=2)),
    }


def must_agree(one: RunConfig, other: RunConfig) -> bool:
    """Whether two runs must have the same losses, but for rounding."""
    keys = same_losses(one), same_losses(other)
    return keys[0] is not None and keys[1] is not None and keys[0][0] == keys[1][0]


def check_pairs(answer: Any, asked: Mapping[str, Pair]) -> Feedback:
    """Of the letters of the pairs that must agree.

    Args:
        answer: a set of letters, or letters in any other order.
        asked: see :func:`pairs`.
    """
    letters = _letters(answer)
    if letters is None:
        return Feedback(False, '3: a set of letters is asked for, such as {"a", "b"}')
    if unknown := sorted(letters - asked.keys()):
        return Feedback(False, f"3: {', '.join(unknown)} is no letter of a pair")
    for letter, (words, one, other) in asked.items():
        if (letter in letters) != must_agree(one, other):
            return Feedback(False, f"3: think again about {letter} ({words}): {HINTS.get(letter, '')}".rstrip(": "))
    return Feedback(True, "3: whatever computes the same steps must have the same losses, else something is broken")


def skill(loss: float, persistence: float) -> float:
    """The share of persistence's loss that is saved."""
    return 1 - loss / persistence


def check_skill(function: Any, meaning: Any) -> Feedback:
    """Of ``skill(loss, persistence)``, and of what -1 means.

    Args:
        function: of the learner.
        meaning: a letter of ``MEANINGS``.
    """
    wrong = agrees(function, skill, SKILL_CASES)
    if wrong:
        return Feedback(False, f"4: {wrong}; as good as persistence is 0, and no loss at all is 1")
    if not isinstance(meaning, str) or meaning.strip().lower() != MEANS:
        return Feedback(False, "4: the function is right; put -1 into it backwards: which loss has that skill?")
    return Feedback(True, "4: below 0 it would be better to train nothing, and say that tomorrow is as today")


def reported(validation: Sequence[float], test: Sequence[float]) -> float:
    """The test loss of the system whose validation loss is least."""
    return test[min(range(len(validation)), key=validation.__getitem__)]


def check_reported(function: Any) -> Feedback:
    """Of ``reported(validation, test)``."""
    wrong = _differs(function, reported, REPORT_CASES, close)
    if wrong:
        hint = "the validation part chooses one system; then that one's test loss is looked at, and no other"
        return Feedback(False, f"5: {wrong}; {hint}")
    return Feedback(True, "5: chosen by one part, measured by another")


def _differs(
    function: Any,
    rule: Callable[..., Any],
    cases: Iterable[tuple[Any, ...]],
    same: Callable[[Any, Any], bool],
) -> str:
    """Where a function of the learner's differs from a rule, in words; nothing where it does not.

    What it raises is told, and what it does to its lists is lost.
    """
    if not callable(function):
        return f"a function is asked for, not {type(function).__name__}"
    for case in cases:
        given = [list(value) if isinstance(value, list) else value for value in case]
        try:
            answer = function(*given)
        except Exception as error:  # whatever the learner's code does
            return f"for {case} it raises {type(error).__name__}: {error}"
        if not same(answer, rule(*case)):
            return f"for {case} it gives {answer!r}"
    return ""


def _same_truth(answer: Any, truth: bool) -> bool:
    return isinstance(answer, bool | np.bool_) and bool(answer) is truth


def _same_moment(answer: Any, moment: float | None) -> bool:
    """Never is None, or infinitely late."""
    if moment is None:
        return answer is None or (isinstance(answer, float) and answer == math.inf)
    return close(answer, moment)


def _letters(answer: Any) -> set[str] | None:
    """The letters of an answer; None where it is none."""
    if isinstance(answer, str):
        answer = answer.replace(",", " ").split() if "," in answer or " " in answer else list(answer)
    if isinstance(answer, Mapping):
        if not all(isinstance(said, bool) for said in answer.values()):
            return None
        answer = [letter for letter, said in answer.items() if said]
    if not isinstance(answer, Iterable):
        return None
    found = list(answer)
    if not found or not all(isinstance(letter, str) for letter in found):
        return None
    return {letter.strip().lower() for letter in found}
