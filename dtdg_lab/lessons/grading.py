"""What an exercise's check says, and the points it gives: in a lesson, and to nbgrader."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError

# A number of a lesson, to be estimated before it is seen.


_WIDE = {"width": "auto"}


class Estimate:
    """A field for a number in a notebook; ``reveal`` tells beside it what came out, and takes no more changes.

    Args:
        question: one sentence.
        unit: of the number, such as ``ms`` or ``times as long``.
        factor: how many times too large or too small an estimate may be to count as right.

    Raises:
        ConfigError: the factor is not above 1.
    """

    def __init__(self, question: str, unit: str = "", *, factor: float = 1.5) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        if not factor > 1:
            raise ConfigError(f"factor={factor}: an estimate may be some times too large or small: give more than 1.")
        self.question, self.unit, self.factor = question, unit, factor
        self._asked = ipywidgets.HTML(f"<b>{html.escape(question)}</b>")
        self._field = ipywidgets.Text(
            value="",
            placeholder="a number",
            description=unit,
            layout=_WIDE,
            continuous_update=False,
            style={"description_width": "initial"},
            tooltip=question,
        )
        self._described = ipywidgets.HTML()
        self._box = ipywidgets.VBox([self._asked, self._field, self._described])

    def __repr__(self) -> str:
        said = "none yet" if self.value is None else f"{self.value:g} {self.unit}".strip()
        return f"<Estimate {self.question!r}: {said}>"

    @property
    def value(self) -> float | None:
        """What was typed; None before, and where that is no number."""
        try:
            number = float(str(self._field.value).replace(",", ".").replace("%", ""))
        except ValueError:
            return None
        return number if math.isfinite(number) else None

    def guess(self, value: float) -> None:
        """Estimate without typing, as in tests."""
        self._field.value = f"{value:g}"

    def is_right(self, answer: float) -> bool:
        """Whether the estimate is within the factor of an answer above 0, or is 0 as well."""
        if self.value is None or not math.isfinite(answer):
            return False
        if answer <= 0 or self.value <= 0:
            return self.value == answer
        return 1 / self.factor <= self.value / answer <= self.factor

    def reveal(self, answer: float) -> str:
        """What came out, beside what was estimated, in words."""
        found = f"It is {answer:.3g} {self.unit}".strip()
        if self.value is None:
            words = f"{found}. You made no estimate."
        elif self.is_right(answer):
            words = f"{found}; you said {self.value:g}: right within a factor of {self.factor:g}."
        else:
            way = "too large" if self.value > answer else "too small"
            words = f"{found}; you said {self.value:g}, which is {way}."
        self._field.disabled = True
        self._described.value = html.escape(words)
        return f"{self.question} {words}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self._box._repr_mimebundle_(include=include, exclude=exclude)


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


# A question of a lesson, to be answered before its numbers are seen.


class Prediction:
    """Choices to click in a notebook; ``reveal`` tells beside them what came out, and takes no more clicks.

    Args:
        question: one sentence.
        choices: at least two different ones.

    Raises:
        ConfigError: there are fewer, or one is there twice.
    """

    def __init__(self, question: str, choices: Sequence[str]) -> None:
        import ipywidgets

        if len(choices) < 2 or len(set(choices)) < len(choices):
            raise ConfigError(f"a prediction needs at least two different choices, and got {list(choices)}.")
        self.question, self.choices = question, tuple(choices)
        self._asked = ipywidgets.HTML(f"<b>{html.escape(question)}</b>")
        self._buttons = ipywidgets.RadioButtons(options=self.choices, value=None, layout=_WIDE)
        self._described = ipywidgets.HTML()
        self._box = ipywidgets.VBox([self._asked, self._buttons, self._described])

    def __repr__(self) -> str:
        return f"<Prediction {self.question!r}: {self.value or 'none yet'}>"

    @property
    def value(self) -> str | None:
        """What was clicked; None before."""
        value: str | None = self._buttons.value
        return value

    def guess(self, choice: str) -> None:
        """Choose without a click, as in tests.

        Raises:
            UnknownNameError: that is not one of the choices.
        """
        if choice not in self.choices:
            raise UnknownNameError("choice", choice, self.choices)
        self._buttons.value = choice

    def reveal(self, answer: str) -> str:
        """What came out, beside what was predicted, in words.

        Args:
            answer: one of the choices.

        Raises:
            UnknownNameError: that is not one of the choices.
        """
        if answer not in self.choices:
            raise UnknownNameError("choice", answer, self.choices)
        if self.value is None:
            words = f"It is {answer}. You made no prediction."
        elif self.value == answer:
            words = f"It is {answer}, as you said."
        else:
            words = f"It is {answer}; you said {self.value}."
        self._buttons.disabled = True
        self._described.value = html.escape(words)
        return f"{self.question} {words}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self._box._repr_mimebundle_(include=include, exclude=exclude)
