"""The feedback of an exercise's check, and its points: in a lesson, and for nbgrader."""

from __future__ import annotations

import copy
import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError

# A number of a lesson, to be estimated before it is revealed.


_WIDE = {"width": "auto"}


class _Question:
    """A question above the widget of its answer; what is revealed stands below."""

    def __init__(self, question: str, given: Any) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        self.question, self._given = question, given
        self._asked, self._described = ipywidgets.HTML(f"<b>{html.escape(question)}</b>"), ipywidgets.HTML()
        self._box = ipywidgets.VBox([self._asked, given, self._described])

    def _revealed(self, words: str) -> str:
        """Disable the widget, and show and return the words."""
        self._given.disabled = True
        self._described.value = html.escape(words)
        return f"{self.question} {words}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self._box._repr_mimebundle_(include=include, exclude=exclude)


class Estimate(_Question):
    """A field for a number in a notebook; ``reveal`` shows the answer beside it and disables the field.

    Args:
        question: one sentence.
        unit: of the number, such as ``ms`` or ``times as long``.
        factor: largest ratio between estimate and answer that counts as right.

    Raises:
        ConfigError: the factor is not above 1.
    """

    def __init__(self, question: str, unit: str = "", *, factor: float = 1.5) -> None:
        import ipywidgets

        if not factor > 1:
            raise ConfigError(f"factor={factor}: the allowed ratio of estimate and answer must be above 1.")
        self.unit, self.factor = unit, factor
        self._field = ipywidgets.Text(
            value="",
            placeholder="a number",
            description=unit,
            layout=_WIDE,
            continuous_update=False,
            style={"description_width": "initial"},
            tooltip=question,
        )
        super().__init__(question, self._field)

    def __repr__(self) -> str:
        said = "none yet" if self.value is None else f"{self.value:g} {self.unit}".strip()
        return f"<Estimate {self.question!r}: {said}>"

    @property
    def value(self) -> float | None:
        """The typed number; None if the field is empty or not a number."""
        try:
            number = float(str(self._field.value).replace(",", ".").replace("%", ""))
        except ValueError:
            return None
        return number if math.isfinite(number) else None

    def guess(self, value: float) -> None:
        """Enter an estimate without typing, as in tests."""
        self._field.value = f"{value:g}"

    def is_right(self, answer: float) -> bool:
        """Whether the estimate is within the factor of a positive answer, or both are 0."""
        if self.value is None or not math.isfinite(answer):
            return False
        if answer <= 0 or self.value <= 0:
            return self.value == answer
        return 1 / self.factor <= self.value / answer <= self.factor

    def reveal(self, answer: float) -> str:
        """The answer beside the estimate, as text."""
        found = f"It is {answer:.3g} {self.unit}".strip()
        if self.value is None:
            words = f"{found}. You made no estimate."
        elif self.is_right(answer):
            words = f"{found}; you estimated {self.value:g}: right within a factor of {self.factor:g}."
        else:
            way = "too large" if self.value > answer else "too small"
            words = f"{found}; you estimated {self.value:g}, which is {way}."
        return self._revealed(words)


TOLERANCE = 1e-6  # relative, of computed answers


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback on one answer.

    Attributes:
        right: whether it is correct.
        words: why it is correct, or a hint.
    """

    right: bool
    words: str

    def __str__(self) -> str:
        return f"{'done   ' if self.right else 'not yet'} {self.words}"

    def __bool__(self) -> bool:
        return self.right


def is_number(answer: Any) -> bool:
    """Whether an answer is one number, and not a string, a truth value or several numbers."""
    return isinstance(answer, Real) and not isinstance(answer, bool) and math.isfinite(answer)


def close(answer: Any, to: float, *, within: float = TOLERANCE) -> bool:
    """Whether an answer is close to a number, relative to it."""
    return is_number(answer) and abs(answer - to) <= within * max(abs(to), 1e-12)


def agrees(
    function: Any,
    rule: Callable[..., Any],
    cases: Iterable[tuple[Any, ...]],
    *,
    same: Callable[[Any, Any], bool] = close,
    shown: Callable[[tuple[Any, ...]], str] = str,
) -> str:
    """The difference between a learner's function and a rule in any of the cases, as text; empty where they agree.

    Exceptions become text and are not raised: a wrong answer is not a failure of the notebook. Changes of arguments
    are discarded.

    Args:
        function: of the learner.
        rule: the right one.
        cases: arguments of both.
        same: whether an answer is the right one.
        shown: a case as text.
    """
    if not callable(function):
        return f"give a function, not {type(function).__name__}"
    for case in cases:
        try:
            answer = function(*copy.deepcopy(case))
            if not same(answer, rule(*case)):
                return f"for {shown(case)} it returns {answer!r}"
        except Exception as error:  # the learner's code may raise anything
            return f"for {shown(case)} it raises {type(error).__name__}: {error}"
    return ""


def points(feedback: Feedback, most: float = 1.0) -> float:
    """The points of an answer, all or none; as the last value of a cell, nbgrader takes them as its score.

    The feedback is shown above.
    """
    from IPython.display import display

    display({"text/plain": str(feedback)}, raw=True)
    return most if feedback.right else 0.0


# A question of a lesson, to be answered before its numbers are revealed.


class Prediction(_Question):
    """Choices to click in a notebook; ``reveal`` shows the answer beside them and disables them.

    Args:
        question: one sentence.
        choices: at least two different ones.

    Raises:
        ConfigError: there are fewer, or one is there twice.
    """

    def __init__(self, question: str, choices: Sequence[str]) -> None:
        import ipywidgets

        if len(choices) < 2 or len(set(choices)) < len(choices):
            raise ConfigError(f"a prediction needs at least two different choices, but got {list(choices)}.")
        self.choices = tuple(choices)
        self._buttons = ipywidgets.RadioButtons(options=self.choices, value=None, layout=_WIDE)
        super().__init__(question, self._buttons)

    def __repr__(self) -> str:
        return f"<Prediction {self.question!r}: {self.value or 'none yet'}>"

    @property
    def value(self) -> str | None:
        """The clicked choice; None before."""
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
        """The answer beside the prediction, as text.

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
            words = f"It is {answer}, as you predicted."
        else:
            words = f"It is {answer}; you predicted {self.value}."
        return self._revealed(words)
