"""Checks of the exercises of lesson 10: how many runs, what is noise, what pruning loses, what chooses."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence, Set
from statistics import median
from typing import Any

from dtdg_lab.dash.grading import Feedback, agrees, close, is_number
from dtdg_lab.studies.pruning import Curve, Median

Losses = Mapping[str, Sequence[float]]  # of each cell, by seeds; or of each trial, by epochs
Row = Mapping[str, Any]

SEVEN: Losses = {
    "A": [0.40, 0.30, 0.27, 0.25, 0.24],
    "B": [0.50, 0.38, 0.33, 0.30, 0.29],
    "C": [0.32, 0.36, 0.34, 0.35, 0.36],
    "D": [0.60, 0.35, 0.26, 0.21, 0.19],
    "E": [0.45, 0.33, 0.30, 0.28, 0.27],
    "F": [0.31, 0.37, 0.36, 0.34, 0.33],
    "G": [0.48, 0.345, 0.31, 0.29, 0.28],
}  # trials in the order in which they are made: losses of their epochs; D is the slow starter


def runs(values: Sequence[int], seeds: int) -> int:
    """Runs of a grid: every combination of the axes' values, with every seed."""
    return math.prod(values) * seeds


def check_runs(function: Any) -> Feedback:
    """Of ``runs(values, seeds)``."""
    wrong = agrees(function, runs, [([3, 2], 2), ([5, 3], 3), ([4], 1), ([2, 3, 4], 5), ([10, 10, 10], 3), ([1, 7], 2)])
    if wrong:
        return Feedback(
            False, f"1: {wrong}; every value of an axis meets every value of the others, and each pair every seed"
        )
    return Feedback(True, "1: axes multiply: one more axis of ten values costs ten times as much")


def left(total: int, finished: int) -> int:
    """Runs that the second call of a study makes."""
    return total - finished


def check_left(answer: Any, total: int, finished: int) -> Feedback:
    """Of the runs that are made when a study goes on.

    Args:
        answer: a number of runs.
        total: of the study.
        finished: by the time it was broken off; one more was half made.
    """
    if not is_number(answer):
        return Feedback(False, "2: put a number of runs in place of None")
    if answer != left(total, finished):
        return Feedback(False, "2: a finished run is never made twice; a half made one of this process is begun anew")
    return Feedback(True, "2: all but the finished ones")


def ties(cells: Losses) -> set[str]:
    """The best cell, and all that cannot be told from it.

    The best has the least median. Another one is told from it where all its losses are above all of the best's.
    """
    best = min(cells, key=lambda name: median(cells[name]))
    return {name for name, losses in cells.items() if min(losses) <= max(cells[best])}


_TIES: tuple[Losses, ...] = (
    {"a": [0.30, 0.34, 0.32], "b": [0.33, 0.36, 0.35], "c": [0.40, 0.41, 0.39]},
    {"a": [0.5, 0.6], "b": [0.1, 0.2], "c": [0.3, 0.15]},
    {"slow": [0.9, 0.8, 0.85], "fast": [0.1, 0.12, 0.11]},
    {"a": [0.20, 0.21, 0.50], "b": [0.22, 0.23, 0.24], "c": [0.45, 0.46, 0.47], "d": [0.6, 0.7, 0.8]},
    {"lucky": [0.10, 0.40, 0.41], "steady": [0.30, 0.31, 0.32], "bad": [0.33, 0.34, 0.35]},
    {"only": [1.0, 2.0]},
    {"a": [2.0, 3.0], "b": [3.0, 4.0], "c": [3.1, 3.2]},
)


def check_ties(function: Any) -> Feedback:
    """Of ``ties(cells)``."""
    wrong = _differs(function, ties, _TIES, _same_names)
    if wrong:
        return Feedback(
            False, f"3: {wrong}; the best has the least median, and another cell is out only where its least loss is "
            "above the best's greatest",
        )  # fmt: skip
    return Feedback(True, "3: the result of a study is a set of settings, not one of them")


def stopped(curves: Losses, epoch: int, trials: int) -> list[str]:
    """The trials that a median rule ends after an epoch, in the order in which they are made."""
    rule, earlier, found = Median(after=epoch, trials=trials), list[Curve](), list[str]()
    for name, losses in curves.items():
        curve = tuple(enumerate(losses[:epoch], 1))
        if rule.why(curve, earlier):
            found.append(name)
        earlier.append(curve)
    return found


def lost(curves: Losses, epoch: int, trials: int) -> str | None:
    """The trial with the least last loss of all, where the rule ends it; None where it does not."""
    best = min(curves, key=lambda name: curves[name][-1])
    return best if best in stopped(curves, epoch, trials) else None


def check_stopped(answer: Any, curves: Losses, epoch: int, trials: int) -> Feedback:
    """Of the names of the trials that the rule ends."""
    if not isinstance(answer, Set | list | tuple) or not answer:
        return Feedback(False, "4: a set of names is asked for: {'A', 'B'}")
    right, names = set(stopped(curves, epoch, trials)), list(answer)
    if unknown := [str(name) for name in names if not isinstance(name, str) or name not in curves]:
        return Feedback(False, f"4: {', '.join(unknown)} is no trial: {', '.join(curves)} are")
    first = list(curves)[:trials]
    if early := [name for name in first if name in names]:
        return Feedback(False, f"4: {early[0]} has fewer than {trials} before it: nothing is ended yet")
    if more := [name for name in curves if name in names and name not in right]:
        return Feedback(
            False, f"4: {more[0]} goes on: take the LOWEST of its first {epoch} losses, and the median of such lowest "
            "ones of all before it; a median of an even number lies between the middle two",
        )  # fmt: skip
    if missing := [name for name in curves if name in right and name not in names]:
        return Feedback(False, f"4: one more is above the median of those before it ({len(missing)} missing)")
    return Feedback(True, "4: one look, and the others' epochs are saved")


def check_lost(answer: Any, curves: Losses, epoch: int, trials: int) -> Feedback:
    """Of the name of the trial that would have been the best, and was ended."""
    if not isinstance(answer, str) or answer not in curves:
        return Feedback(False, f"5: the name of a trial is asked for: one of {', '.join(curves)}")
    if answer not in stopped(curves, epoch, trials):
        return Feedback(False, f"5: {answer} is not ended by the rule, so it is not lost")
    if answer != lost(curves, epoch, trials):
        return Feedback(False, f"5: {answer} is ended, but others end lower: look at the last epoch")
    return Feedback(True, "5: a slow starter that ends best: what a median rule cannot see")


def choose(rows: Sequence[Row]) -> tuple[str, float]:
    """What a study reports: the cell of the least median validation loss, and the median of its test loss.

    Args:
        rows: of runs: ``cell seed validation_loss test_loss``.
    """
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["cell"], []).append(row)
    best = min(found, key=lambda name: median(row["validation_loss"] for row in found[name]))
    return best, median(row["test_loss"] for row in found[best])


def _rows(cells: Mapping[str, Sequence[tuple[float, float]]]) -> list[Row]:
    return [
        {"cell": name, "seed": seed, "validation_loss": validation, "test_loss": test}
        for seed in range(3)
        for name, each in cells.items()
        for validation, test in each[seed : seed + 1]
    ]


_TABLES = tuple(map(_rows, (
    {"a": [(0.30, 0.50), (0.32, 0.56), (0.31, 0.52)], "b": [(0.40, 0.20), (0.42, 0.22), (0.41, 0.21)]},
    {"lucky": [(0.10, 0.11), (0.60, 0.62), (0.61, 0.60)], "steady": [(0.30, 0.44), (0.31, 0.40), (0.32, 0.42)]},
    {"a": [(0.5, 0.9)], "b": [(0.4, 0.8)], "c": [(0.6, 0.1)]},
    {"a": [(0.2, 0.7), (0.9, 0.9), (0.3, 0.1)], "b": [(0.4, 0.3), (0.41, 0.35), (0.42, 0.5)]},
)))  # fmt: skip


def check_choose(function: Any) -> Feedback:
    """Of ``choose(rows)``."""
    wrong = _differs(function, choose, _TABLES, _same_choice)
    if wrong:
        return Feedback(
            False, f"6: {wrong}; the least median of validation_loss over seeds chooses the cell, and the median of "
            "the test_loss of that cell is told",
        )  # fmt: skip
    return Feedback(True, "6: validation chooses; the test part is looked at once, of what was chosen")


def _differs(function: Any, rule: Callable[[Any], Any], cases: Sequence[Any], same: Callable[[Any, Any], bool]) -> str:
    """As ``agrees``, of functions that give no number."""
    if not callable(function):
        return f"a function is asked for, not {type(function).__name__}"
    for case in cases:
        try:
            answer = function(copy.deepcopy(case))
            if not same(answer, rule(case)):
                return f"for {_briefly(case)} it gives {answer!r}"
        except Exception as error:  # whatever the learner's code does
            return f"for {_briefly(case)} it raises {type(error).__name__}: {error}"
    return ""


def _briefly(case: Any) -> str:
    """A case as a learner can read it: rows of a table by cells."""
    if isinstance(case, Mapping):
        return str(case)
    return "; ".join(f"{row['cell']} {row['validation_loss']}/{row['test_loss']}" for row in case)


def _same_names(answer: Any, right: set[str]) -> bool:
    return isinstance(answer, Set | list | tuple) and set(answer) == right


def _same_choice(answer: Any, right: tuple[str, float]) -> bool:
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        return False
    return isinstance(answer[0], str) and answer[0] == right[0] and close(answer[1], right[1])
