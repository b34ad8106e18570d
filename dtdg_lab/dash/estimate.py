"""A number of a lesson, to be estimated before it is seen."""

from __future__ import annotations

import html
import math
from typing import Any

from dtdg_lab.core.errors import ConfigError

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
            value="", placeholder="a number", description=unit, layout=_WIDE, continuous_update=False,
            style={"description_width": "initial"}, tooltip=question,
        )  # fmt: skip
        self._told = ipywidgets.HTML()
        self._box = ipywidgets.VBox([self._asked, self._field, self._told])

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
        self._told.value = html.escape(words)
        return f"{self.question} {words}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self._box._repr_mimebundle_(include=include, exclude=exclude)
