"""What an exercise's check says, and the points it gives: in a lesson, and to nbgrader."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

TOLERANCE = 1e-6  # relative, of numbers that are worked out


@dataclass(frozen=True, slots=True)
class Feedback:
    """Of one answer.

    Attributes:
        right: whether it is.
        words: why it is, or what to look at.
    """

    right: bool
    words: str

    def __str__(self) -> str:
        return f"{'done   ' if self.right else 'not yet'} {self.words}"

    def __bool__(self) -> bool:
        return self.right


def is_number(answer: Any) -> bool:
    """Whether an answer is one number, and not a word, a truth value or several."""
    return isinstance(answer, Real) and not isinstance(answer, bool) and math.isfinite(answer)


def close(answer: Any, to: float, *, within: float = TOLERANCE) -> bool:
    """Whether an answer is a number near another, relative to it."""
    return is_number(answer) and abs(answer - to) <= within * max(abs(to), 1e-12)


def agrees(
    function: Any, rule: Callable[..., float], cases: list[tuple[Any, ...]], *, within: float = TOLERANCE
) -> str:
    """Whether a function of the learner's gives what a rule does, in every case; what differs, in words, else nothing.

    What it raises is told, not passed on: a wrong answer is no failure of the notebook.
    """
    if not callable(function):
        return f"a function is asked for, not {type(function).__name__}"
    for case in cases:
        try:
            answer = function(*case)
        except Exception as error:  # whatever the learner's code does
            return f"for {case} it raises {type(error).__name__}: {error}"
        if not close(answer, rule(*case), within=within):
            return f"for {case} it gives {answer!r}"
    return ""


def points(feedback: Feedback, most: float = 1.0) -> float:
    """The points of an answer, all or none; as the last value of a cell, nbgrader takes them as its score.

    The words are shown above.
    """
    from IPython.display import display

    display({"text/plain": str(feedback)}, raw=True)
    return most if feedback.right else 0.0
