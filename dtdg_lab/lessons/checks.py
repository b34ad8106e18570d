"""Feedback and points for answers to exercises, and the checks of the lessons on races, studies and scaling."""

from __future__ import annotations

import copy
import html
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, PredictionError, UnknownNameError
from dtdg_lab.studies.race_table import best, spread
from dtdg_lab.studies.same_losses import same_losses
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.sheet import standalone

# A number that learners estimate before it is revealed.


_WIDE = {"width": "auto"}
_LISTED = 5  # maximum number of choices in a column; more are placed next to each other
_UNATTENDED = ("DTDG_LAB_FAST", "DTDG_LAB_UNATTENDED")  # environment variables set by tests, grading and the docs


class Shown:
    """Widgets below each other, which a notebook shows as one."""

    def _lay_out(self, *widgets: Any) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        self._picture = ipywidgets.Output()
        self._box = ipywidgets.VBox([*widgets, self._picture])

    def _draw_below(self, figure: Figure, caption: str) -> None:
        """Show a chart below the widgets, or its caption where charts cannot be shown."""
        drawing = json.loads(json.dumps(standalone(figure)))
        data = {"application/vnd.plotly.v1+json": drawing, "text/plain": caption}
        self._picture.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self._box._repr_mimebundle_(include=include, exclude=exclude)


class _Question(Shown):
    """A question with a widget for the answer; what is revealed appears below."""

    _task = "answer it above"
    _by = "you"
    value: Any

    def __init__(self, question: str, given: Any) -> None:
        import ipywidgets

        self.question, self._given = question, given
        self._asked, self._described = ipywidgets.HTML(f"<b>{html.escape(question)}</b>"), ipywidgets.HTML()
        self._lay_out(self._asked, given, self._described)

    def guess(self, value: Any) -> None:
        """Answer from code, as tests do."""
        raise NotImplementedError

    def _first_guess(self) -> Any:
        """Return the answer that code gives when there is no learner."""
        raise NotImplementedError

    def _predicted(self) -> str:
        """Return who made the prediction; in unattended runs, code makes one.

        Raises:
            PredictionError: there is no prediction yet.
        """
        if self.value is not None:
            return self._by
        if not any(name in os.environ for name in _UNATTENDED):
            raise PredictionError(f"No prediction yet: {self.question} First {self._task}, then run this cell again.")
        self.guess(self._first_guess())
        self._by = "code, without a reader,"
        return self._by

    def _revealed(self, text: str) -> str:
        """Disable the widget, show the text, and return it after the question."""
        self._given.disabled = True
        self._described.value = html.escape(text)
        return f"{self.question} {text}"


def predicted(*questions: _Question) -> None:
    """Stop a cell until its questions are answered, if it computes for a long time before the reveal.

    Raises:
        PredictionError: a question has no prediction yet.
    """
    for question in questions:
        if question.value is None:
            question._predicted()


class Estimate(_Question):
    """A field for a number in a notebook; ``reveal`` shows the answer next to it and disables the field.

    Args:
        question: one sentence.
        unit: unit of the number, such as ``ms`` or ``times as long``.
        factor: largest ratio between estimate and answer that counts as right.

    Raises:
        ConfigError: the factor is not above 1.
    """

    def __init__(self, question: str, unit: str = "", *, factor: float = 1.5) -> None:
        import ipywidgets

        if not factor > 1:
            raise ConfigError(f"factor={factor} is invalid. The allowed ratio of estimate and answer must be above 1.")
        self.unit, self.factor = unit, factor
        widget_options = {"layout": _WIDE, "style": {"description_width": "initial"}, "continuous_update": False}
        self._field = ipywidgets.Text("", placeholder="a number", description=unit, tooltip=question, **widget_options)
        super().__init__(question, self._field)

    def __repr__(self) -> str:
        answer = "none yet" if self.value is None else f"{self.value:g} {self.unit}".strip()
        return f"<Estimate {self.question!r}: {answer}>"

    @property
    def value(self) -> float | None:
        """The typed number; None if the field is empty or not a number."""
        try:
            number = float(str(self._field.value).replace(",", ".").replace("%", ""))
        except ValueError:
            return None
        return number if math.isfinite(number) else None

    _task = "type a number into its field"

    def guess(self, value: float) -> None:
        """Enter an estimate from code, as tests do."""
        self._field.value = f"{value:g}"

    def _first_guess(self) -> float:
        return 1.0

    def is_right(self, answer: float) -> bool:
        """Return whether the estimate is within the factor of a positive answer, or both are 0."""
        if self.value is None or not math.isfinite(answer):
            return False
        if answer <= 0 or self.value <= 0:
            return self.value == answer
        return 1 / self.factor <= self.value / answer <= self.factor

    def reveal(self, answer: float) -> str:
        """Return the answer next to the estimate, as text.

        Raises:
            PredictionError: there is no estimate yet.
        """
        who, guess = self._predicted(), self.value
        assert guess is not None
        way = "too large" if guess > answer else "too small"
        judged = f": right within a factor of {self.factor:g}" if self.is_right(answer) else f", which is {way}"
        return self._revealed(f"It is {answer:.3g} {self.unit}".strip() + f"; {who} estimated {guess:g}{judged}.")


TOLERANCE = 1e-6  # relative tolerance for computed answers


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback on one answer.

    Attributes:
        right: whether the answer is correct.
        words: why it is correct, or a hint.
    """

    right: bool
    words: str

    def __str__(self) -> str:
        return f"{'done   ' if self.right else 'not yet'} {self.words}"

    def __bool__(self) -> bool:
        return self.right


def is_number(answer: Any) -> bool:
    """Return whether an answer is a single finite number, and not a string or a truth value."""
    return isinstance(answer, Real) and not isinstance(answer, bool) and math.isfinite(answer)


def close(answer: Any, to: float, *, within: float = TOLERANCE) -> bool:
    """Return whether an answer is a number with a small relative difference from the right one."""
    return is_number(answer) and abs(answer - to) <= within * max(abs(to), 1e-12)


def agrees(
    function: Any,
    rule: Callable[..., Any],
    cases: Iterable[tuple[Any, ...]],
    *,
    same: Callable[[Any, Any], bool] = close,
    shown: Callable[[tuple[Any, ...]], str] = str,
) -> str:
    """Return where a learner's function first differs from a rule, as text; empty if they agree in all cases.

    Exceptions become text and are not raised, since a wrong answer is not a failure of the notebook. The function gets
    copies of the arguments, so that it cannot change them.

    Args:
        function: the learner's function.
        rule: the right function.
        cases: arguments with which both are called.
        same: whether an answer equals the right one.
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


def points(feedback: Feedback, maximum: float = 1.0) -> float:
    """Return the points of an answer, all or none; nbgrader takes the last value of a cell as its score.

    The feedback is shown above.
    """
    from IPython.display import display

    display({"text/plain": str(feedback)}, raw=True)
    return maximum if feedback.right else 0.0


# A question that learners answer before its numbers are revealed.


class Prediction(_Question):
    """Choices to click in a notebook; ``reveal`` shows the answer next to them and disables them.

    Args:
        question: one sentence.
        choices: at least two different choices; a mapping gives the number that each stands for, so that ``reveal``
            takes a number and shows the nearest choice.

    Raises:
        ConfigError: there are fewer than two choices, or one is given twice.
    """

    def __init__(self, question: str, choices: Sequence[str] | Mapping[str, float]) -> None:
        import ipywidgets

        if len(choices) < 2 or len(set(choices)) < len(choices):
            raise ConfigError(f"a prediction needs at least two different choices, but got {list(choices)}.")
        self.choices = tuple(choices)
        self._numbers = dict(choices) if isinstance(choices, Mapping) else {}
        many = len(choices) > _LISTED
        shape = ipywidgets.ToggleButtons if many else ipywidgets.RadioButtons
        self._buttons = shape(options=self.choices, value=None, layout=_WIDE)
        if many:
            self._buttons.style.button_width = "auto"
        super().__init__(question, self._buttons)

    def __repr__(self) -> str:
        return f"<Prediction {self.question!r}: {self.value or 'none yet'}>"

    @property
    def value(self) -> str | None:
        """The clicked choice; None before a click."""
        value: str | None = self._buttons.value
        return value

    _task = "click a choice"

    def guess(self, choice: str) -> None:
        """Choose from code, as tests do.

        Raises:
            UnknownNameError: there is no such choice.
        """
        if choice not in self.choices:
            raise UnknownNameError("choice", choice, self.choices)
        self._buttons.value = choice

    def _first_guess(self) -> str:
        return self.choices[0]

    def reveal(self, answer: str | float) -> str:
        """Return the answer next to the prediction, as text.

        Args:
            answer: one of the choices, or a number, whose nearest choice is the answer.

        Raises:
            UnknownNameError: the answer is not one of the choices.
            PredictionError: there is no prediction yet.
        """
        exact = ""
        if self._numbers and is_number(answer):
            number = float(answer)
            answer = min(self._numbers, key=lambda choice: abs(self._numbers[choice] - number))
            exact = f" ({number:.3g})"
        if answer not in self.choices:
            raise UnknownNameError("choice", str(answer), self.choices)
        who = self._predicted()
        if self.value == answer:
            return self._revealed(f"It is {answer}{exact}, as {who} predicted.")
        return self._revealed(f"It is {answer}{exact}; {who} predicted {self.value}.")


# Checks of the exercises of lesson 12: significance, equivalent runs, and reported results.


Pair = tuple[str, RunConfig, RunConfig]  # a description of the difference, and both configs

_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
HINTS: Mapping[str, str] = _DATA["hints"]


def _cases(function: str) -> list[tuple[Any, ...]]:
    """Return the arguments with which a learner's function is called."""
    return [tuple(case) for case in _DATA["cases"][function]]


def _judged(task: int, wrong: str, hint: str, praise: str) -> Feedback:
    """Return the feedback on a learner's function; ``wrong`` says where it differs, and is empty if it is right."""
    return Feedback(not wrong, f"{task}: {'; '.join(filter(None, (wrong, hint))) if wrong else praise}")


def _counted(task: int, answer: Any, right: float | None, noun: str, *, hint: str, praise: str) -> Feedback:
    """Return the feedback on a count; if ``right`` is None, no number is right."""
    if not is_number(answer):
        return Feedback(False, f"{task}: put a number of {noun} in place of None")
    return _judged(task, "" if right is not None and close(answer, right) else hint, "", praise)


def _compared(task: int, function: Any, rule: Callable[..., Any], hint: str, praise: str, **how: Any) -> Feedback:
    """Return the feedback on a learner's function, tried in all cases of a rule; see :func:`agrees` for ``how``."""
    return _judged(task, agrees(function, rule, _cases(rule.__name__), **how), hint, praise)


def may_say(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether the first of two systems may be called better, judging by the losses of their seeds.

    This holds if every seed of the first beats every seed of the second, and both have at least two.
    """
    return best({"first": spread(list(first)), "second": spread(list(second))}) == "first"


def check_may_say(function: Any) -> Feedback:
    """Check ``may_say(first, second)``."""
    hint = "compare the worst seed of one with the best of the other; a single seed has no spread"
    return _compared(1, function, may_say, hint, "this is the rule for bold numbers in the table", same=_same_truth)


def pairs(base: RunConfig) -> dict[str, Pair]:
    """Return pairs of settings by letter; learners decide which of them must have the same losses.

    Args:
        base: settings that all of them share.
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
    """Return whether two runs must have the same losses, except for rounding."""
    keys = same_losses(one), same_losses(other)
    return keys[0] is not None and keys[1] is not None and keys[0][0] == keys[1][0]


def check_pairs(answer: Any, pairs: Mapping[str, Pair]) -> Feedback:
    """Check the letters of the pairs that must agree.

    Args:
        answer: a set of letters, or letters in another form.
        pairs: the pairs (see :func:`pairs`).
    """
    letters = _letters(answer)
    if letters is None:
        return Feedback(False, '2: give a set of letters, such as {"a", "b"}')
    if unknown := sorted(letters - pairs.keys()):
        return Feedback(False, f"2: {', '.join(unknown)} does not name a pair")
    for letter, (description, one, other) in pairs.items():
        if (letter in letters) != must_agree(one, other):
            return Feedback(
                False, f"2: think again about {letter} ({description}): {HINTS.get(letter, '')}".rstrip(": ")
            )
    return Feedback(
        True, "2: runs that compute the same steps must have the same losses; otherwise something is broken"
    )


def reported(validation: Sequence[float], test: Sequence[float]) -> float:
    """Return the test loss of the system with the lowest validation loss."""
    return test[min(range(len(validation)), key=validation.__getitem__)]


def check_reported(function: Any) -> Feedback:
    """Check ``reported(validation, test)``."""
    hint = "the validation split chooses one system; then only that system's test loss is read"
    return _compared(3, function, reported, hint, "chosen on one split, measured on another")


def _same_truth(answer: Any, truth: bool) -> bool:
    return isinstance(answer, bool | np.bool_) and bool(answer) is truth


def _letters(answer: Any) -> set[str] | None:
    """Return the letters of an answer; None if it is not a set of letters."""
    if isinstance(answer, str):
        answer = answer.replace(",", " ").split() if "," in answer or " " in answer else list(answer)
    if isinstance(answer, Mapping):
        if not all(isinstance(value, bool) for value in answer.values()):
            return None
        answer = [letter for letter, is_in in answer.items() if is_in]
    if not isinstance(answer, Iterable):
        return None
    letters = list(answer)
    if not letters or not all(isinstance(letter, str) for letter in letters):
        return None
    return {letter.strip().lower() for letter in letters}


# Checks of the exercises of lesson 14: communication volume, efficiency, and lost steps.


def ring(gradient_bytes: float, ranks: int) -> float:
    """Return the bytes that each rank sends in a ring all-reduce, in its reduce-scatter and its all-gather."""
    return 2 * (ranks - 1) / ranks * gradient_bytes


def check_ring(function: Any) -> Feedback:
    """Check ``sent(gradient_bytes, ranks)``."""
    hint = "one rank sends nothing, and each of two ranks sends the gradient's size once (half of it, twice)"
    praise = "twice the other ranks' share, so it hardly grows with the number of ranks"
    return _compared(1, function, ring, hint, praise)


def efficiency(one_rank_s: float, seconds: float, ranks: int) -> float:
    """Return the speed-up divided by the number of ranks."""
    return one_rank_s / (ranks * seconds)


def check_efficiency(function: Any) -> Feedback:
    """Check ``efficiency(one_rank_s, seconds, ranks)``."""
    hint = "two ranks that take half as long have efficiency 1, like a single rank"
    return _compared(2, function, efficiency, hint, "the share of the ranks' time that shortens the epoch")


def check_lost(answer: Any, steps_made: int, checkpoint_step: int) -> Feedback:
    """Check the number of steps that must be repeated after a rank is lost.

    Args:
        answer: a number of steps.
        steps_made: steps made before the rank was lost.
        checkpoint_step: step from which the run resumes.
    """
    hint = "work after the checkpoint is lost; work before it is kept"
    praise = "the more recent the checkpoint, the less is lost"
    return _counted(3, answer, steps_made - checkpoint_step, "steps", hint=hint, praise=praise)


# Checks of the exercises of lesson 13: number of runs, noise, model selection.


Losses = Mapping[str, Sequence[float]]  # losses by cell and seed, or by trial and epoch
Row = Mapping[str, Any]

SEVEN: Losses = _DATA["seven"]


def runs(values: Sequence[int], seeds: int) -> int:
    """Return the number of runs of a grid: every combination of the axes' values, with every seed."""
    return math.prod(values) * seeds


def check_runs(function: Any) -> Feedback:
    """Check ``runs(values, seeds)``."""
    hint = "combine every value of an axis with every value of the others, and each combination with every seed"
    return _compared(1, function, runs, hint, "axes multiply: one more axis of ten values costs ten times as much")


def ties(cells: Losses) -> set[str]:
    """Return the best cell, and all cells that do not clearly differ from it.

    The best cell has the lowest median. Another cell clearly differs if all its losses are above all of the best's.
    """
    best = min(cells, key=lambda name: median(cells[name]))
    return {name for name, losses in cells.items() if min(losses) <= max(cells[best])}


def check_ties(function: Any) -> Feedback:
    """Check ``ties(cells)``."""
    hint = (
        "the best cell has the lowest median, and another cell is excluded only if its lowest loss is "
        "above the best cell's highest"
    )
    praise = "the result of a study is a set of settings, not one of them"
    return _compared(2, function, ties, hint, praise, same=_same_names, shown=_briefly)


def stopped(curves: Losses, epoch: int, trials: int) -> list[str]:
    """Return the trials that a median rule stops after an epoch, in the order in which they are trained."""
    lowest = [min(losses[:epoch]) for losses in curves.values()]
    return [name for n, name in enumerate(curves) if n >= trials and lowest[n] > median(lowest[:n])]


def lost(curves: Losses, epoch: int, trials: int) -> str | None:
    """Return the trial with the lowest final loss, if the rule stops it; otherwise None."""
    best = min(curves, key=lambda name: curves[name][-1])
    return best if best in stopped(curves, epoch, trials) else None


def choose(rows: Sequence[Row]) -> tuple[str, float]:
    """Return the cell with the lowest median validation loss, and its median test loss.

    Args:
        rows: one per run, with ``cell``, ``seed``, ``validation_loss`` and ``test_loss``.
    """
    rows_by_cell: dict[str, list[Row]] = {}
    for row in rows:
        rows_by_cell.setdefault(row["cell"], []).append(row)
    best = min(rows_by_cell, key=lambda name: median(row["validation_loss"] for row in rows_by_cell[name]))
    return best, median(row["test_loss"] for row in rows_by_cell[best])


def _rows(cells: Mapping[str, Sequence[tuple[float, float]]]) -> list[Row]:
    return [
        {"cell": name, "seed": seed, "validation_loss": validation, "test_loss": test}
        for seed in range(3)
        for name, losses in cells.items()
        for validation, test in losses[seed : seed + 1]
    ]


def check_choose(function: Any) -> Feedback:
    """Check ``choose(rows)``."""
    wrong = agrees(function, choose, zip(map(_rows, _DATA["cases"]["choose"])), same=_same_choice, shown=_briefly)
    hint = "choose the cell by the lowest median of validation_loss over seeds, and report the median of its test_loss"
    return _judged(3, wrong, hint, "choose on the validation split; evaluate the chosen cell once on the test split")


def _briefly(case: tuple[Any, ...]) -> str:
    """Return a table in a form that learners can read."""
    (table,) = case
    if isinstance(table, Mapping):
        return str(table)
    return "; ".join(f"{row['cell']} {row['validation_loss']}/{row['test_loss']}" for row in table)


def _same_names(answer: Any, right: set[str]) -> bool:
    return isinstance(answer, Set | list | tuple) and set(answer) == right


def _same_choice(answer: Any, right: tuple[str, float]) -> bool:
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        return False
    return isinstance(answer[0], str) and answer[0] == right[0] and close(answer[1], right[1])
