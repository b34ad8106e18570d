"""A question of a lesson, to be answered before its numbers are seen."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError

_WIDE = {"width": "auto"}


class Prediction:
    """Choices to click in a notebook; ``reveal`` tells beside them what came out, and takes no more clicks.

    Args:
        question: one sentence.
        choices: at least two different ones.

    Raises:
        ConfigError: there are fewer, or one is there twice.
    """

    def __init__(self, question: str, choices: Sequence[str]) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        if len(choices) < 2 or len(set(choices)) < len(choices):
            raise ConfigError(f"a prediction needs at least two different choices, and got {list(choices)}.")
        self.question, self.choices = question, tuple(choices)
        self._asked = ipywidgets.HTML(f"<b>{html.escape(question)}</b>")
        self._buttons = ipywidgets.RadioButtons(options=self.choices, value=None, layout=_WIDE)
        self._told = ipywidgets.HTML()
        self._box = ipywidgets.VBox([self._asked, self._buttons, self._told])

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
        self._told.value = html.escape(words)
        return f"{self.question} {words}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self._box._repr_mimebundle_(include=include, exclude=exclude)
