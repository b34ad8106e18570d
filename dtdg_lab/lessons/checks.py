"""Checks of the tasks in the lessons on races, studies and scaling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from statistics import median
from typing import Any

import numpy as np

from dtdg_lab.core.config import RunConfig
from dtdg_lab.lessons.grading import Feedback, agrees, close, is_number
from dtdg_lab.studies.race_rules import same_losses
from dtdg_lab.studies.race_table import best, spread
from dtdg_lab.studies.runner import Curve, Median
from dtdg_lab.visualization.loss import NEAR

# Checks of the exercises of lesson 9: significance, time to loss, equivalent runs, and reported results.


Pair = tuple[str, RunConfig, RunConfig]  # what differs, as text, and both settings

SAY_CASES: tuple[tuple[list[float], list[float]], ...] = (
    ([1, 2, 3], [4, 5, 6]),
    ([4, 5, 6], [1, 2, 3]),
    ([3, 1, 2], [6, 4, 5]),
    ([6, 4, 5], [3, 1, 2]),
    ([1, 2, 10], [9, 11, 12]),
    ([1, 5], [2, 6]),
    ([1, 5, 2], [4, 6, 7]),
    ([2, 3], [1, 9]),
    ([1, 2, 3], [3, 4, 5]),
    ([1, 1], [1, 1]),
    ([0.1001, 0.1002], [0.1003, 0.1004]),
    ([-3, -2], [-1, 0]),
    ([1, 2], [3, 4, 5]),
    ([1, 2, 3], [5, 4]),
    ([1], [2]),
    ([1], [2, 3]),
    ([1, 2], [3]),
    ([1, math.inf], [5, 6]),
)
NEAR_CASES: tuple[tuple[list[float], list[float], float], ...] = (
    ([1, 2, 3, 4], [10, 5, 4.1, 4], 4),
    ([1, 2, 3, 4], [5, 4.1, 6, 4], 4),
    ([1.5, 2.5, 3.5], [9, 6, 6.1], 4),
    ([1, 2, 3], [0.5, 0.14, 0.1], 0.1),
    ([10, 20], [104, 100], 100),
    ([7], [1], 1),
    ([2, 5, 9], [3, 2, 1], 1),
    ([2, 5, 9], [3, 2, 1.06], 1),
    ([], [], 1),
)
SKILL_CASES = [(0.1, 0.2), (0.2, 0.1), (0.2, 0.2), (1.5, 0.5), (0.0, 2.0), (0.12, 0.06)]
REPORT_CASES: tuple[tuple[list[float], list[float]], ...] = (
    ([0.3, 0.1, 0.2], [0.31, 0.25, 0.11]),
    ([0.1, 0.3, 0.2], [0.4, 0.2, 0.3]),
    ([2, 3, 1], [1.5, 1.2, 1.9]),
    ([5, 4, 3, 2.5], [1, 2, 3, 4]),
    ([1.1, 0.9], [0.8, 1.0]),
)
MEANINGS: Mapping[str, str] = {
    "a": "the loss is below zero",
    "b": "the loss is twice that of predicting that tomorrow equals today",
    "c": "the loss is as high as that of predicting the mean for every node",
    "d": "the loss has doubled while training",
}
MEANS = "b"
HINTS: Mapping[str, str] = {
    "a": "a full-batch step covers the whole training split, however it is partitioned",
    "b": "node ownership decides what is communicated; the sums are the same",
    "c": "one step for all snapshots and one step for every few groups are different updates",
    "d": "more parts put more groups into one step, so that an epoch has fewer steps",
    "e": "a cache decides how features are fetched, not which",
    "f": "a seed draws the initial parameters, and the data if they are synthetic",
    "g": "the plan follows the parts; the ranks only execute it",
}


def may_say(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether the first of two systems may be called better, judging by the losses of their seeds.

    Every seed of the first beats every seed of the second, and both have two or more.
    """
    return best({"first": spread(list(first)), "second": spread(list(second))}) == "first"


def check_may_say(function: Any) -> Feedback:
    """Check ``may_say(first, second)``."""
    wrong = agrees(function, may_say, SAY_CASES, same=_same_truth)
    if wrong:
        hint = "compare the worst seed of one with the best of the other; a single seed has no spread"
        return Feedback(False, f"1: {wrong}; {hint}")
    return Feedback(True, "1: this is the rule for bold numbers in the table")


def first_near(seconds: Sequence[float], losses: Sequence[float], least: float) -> float | None:
    """First time at which a loss was within 5 % of the best of all contestants; None if it never was."""
    return next((at for at, loss in zip(seconds, losses, strict=True) if loss <= least * (1 + NEAR)), None)


def check_first_near(function: Any) -> Feedback:
    """Check ``first_near(seconds, losses, least)``."""
    wrong = agrees(function, first_near, NEAR_CASES, same=_same_moment)
    if wrong:
        hint = (
            "return seconds, not an index, of the first point within 5 % of the best of all, or None if there is none"
        )
        return Feedback(False, f"2: {wrong}; {hint}")
    return Feedback(True, "2: the column 'time to near best'")


def pairs(base: RunConfig) -> dict[str, Pair]:
    """Pairs of settings by letter; some pairs must have the same losses.

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
    """Whether two runs must have the same losses, apart from rounding."""
    keys = same_losses(one), same_losses(other)
    return keys[0] is not None and keys[1] is not None and keys[0][0] == keys[1][0]


def check_pairs(answer: Any, asked: Mapping[str, Pair]) -> Feedback:
    """Check the letters of the pairs that must agree.

    Args:
        answer: a set of letters, or letters in any other order.
        asked: see :func:`pairs`.
    """
    letters = _letters(answer)
    if letters is None:
        return Feedback(False, '3: give a set of letters, such as {"a", "b"}')
    if unknown := sorted(letters - asked.keys()):
        return Feedback(False, f"3: {', '.join(unknown)} does not name a pair")
    for letter, (words, one, other) in asked.items():
        if (letter in letters) != must_agree(one, other):
            return Feedback(False, f"3: think again about {letter} ({words}): {HINTS.get(letter, '')}".rstrip(": "))
    return Feedback(
        True, "3: runs that compute the same steps must have the same losses; otherwise something is broken"
    )


def skill(loss: float, persistence: float) -> float:
    """The share of persistence's loss that the model saves."""
    return 1 - loss / persistence


def check_skill(function: Any, meaning: Any) -> Feedback:
    """Check ``skill(loss, persistence)``, and the meaning of -1.

    Args:
        function: of the learner.
        meaning: a letter of ``MEANINGS``.
    """
    wrong = agrees(function, skill, SKILL_CASES)
    if wrong:
        return Feedback(False, f"4: {wrong}; equal to persistence gives 0, zero loss gives 1")
    if not isinstance(meaning, str) or meaning.strip().lower() != MEANS:
        return Feedback(False, "4: the function is right; solve it for -1: which loss has that skill?")
    return Feedback(True, "4: below 0, predicting that tomorrow equals today beats the trained model")


def reported(validation: Sequence[float], test: Sequence[float]) -> float:
    """The test loss of the system with the lowest validation loss."""
    return test[min(range(len(validation)), key=validation.__getitem__)]


def check_reported(function: Any) -> Feedback:
    """Check ``reported(validation, test)``."""
    wrong = agrees(function, reported, REPORT_CASES)
    if wrong:
        hint = "the validation split chooses one system; then only that system's test loss is read"
        return Feedback(False, f"5: {wrong}; {hint}")
    return Feedback(True, "5: chosen on one split, measured on another")


def _same_truth(answer: Any, truth: bool) -> bool:
    return isinstance(answer, bool | np.bool_) and bool(answer) is truth


def _same_moment(answer: Any, moment: float | None) -> bool:
    """Treats None and infinity alike: the loss was never reached."""
    if moment is None:
        return answer is None or (isinstance(answer, float) and answer == math.inf)
    return close(answer, moment)


def _letters(answer: Any) -> set[str] | None:
    """The letters of an answer; None where it is not a set of letters."""
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


# Checks of the exercises of lesson 11: communication volume, speed-up, engine placement, and lost steps.


def ring(gradient_bytes: float, ranks: int) -> float:
    """Bytes that each rank sends in a ring all-reduce: all but its own share, in reduce-scatter and in all-gather."""
    return 2 * (ranks - 1) / ranks * gradient_bytes


def check_ring(function: Any) -> Feedback:
    """Check ``sent(gradient_bytes, ranks)``."""
    wrong = agrees(function, ring, [(1000, 1), (1000, 2), (1000, 4), (3000, 3), (800, 1024)])
    if wrong:
        hint = "one rank sends nothing, and each of two ranks sends the gradient's size once (half of it, twice)"
        return Feedback(False, f"1: {wrong}; {hint}")
    return Feedback(True, "1: twice the other ranks' share, so it hardly grows with the number of ranks")


def efficiency(one_rank_s: float, seconds: float, ranks: int) -> float:
    """Speed-up over ranks."""
    return one_rank_s / (ranks * seconds)


def check_efficiency(function: Any) -> Feedback:
    """Check ``efficiency(one_rank_s, seconds, ranks)``."""
    wrong = agrees(function, efficiency, [(8.0, 8.0, 1), (8.0, 4.0, 2), (8.0, 4.0, 4), (9.0, 2.0, 3), (1.0, 0.5, 8)])
    if wrong:
        return Feedback(False, f"2: {wrong}; two ranks that take half as long have efficiency 1, like a single rank")
    return Feedback(True, "2: the share of the ranks' time that shortens the epoch")


def first_below(rows: Iterable[Mapping[str, Any]], curve: str, share: float) -> int | None:
    """The smallest number of ranks at which a curve of efficiency is below a share; None if it never is."""
    of_curve = [row for row in rows if row["quantity"] == "efficiency" and row["curve"] == curve]
    return min((row["ranks"] for row in of_curve if row["value"] < share), default=None)


def check_first_below(answer: Any, rows: Sequence[Mapping[str, Any]], curve: str, share: float) -> Feedback:
    """Check the smallest number of ranks at which a curve is below a share."""
    found = first_below(rows, curve, share)
    if not is_number(answer):
        return Feedback(False, "3: put a number of ranks in place of None")
    if found is None or not close(answer, found):
        return Feedback(False, f"3: look for the first row of {curve} in the table whose value is below {share:.0%}")
    return Feedback(True, f"3: from {found} ranks on {curve} uses less than {share:.0%} of them")


def check_hosts(answer: Any, hosts: Mapping[str, int]) -> Feedback:
    """Check the engines of an SSH recipe: one for each GPU of every host.

    Args:
        answer: host -> engines.
        hosts: host -> GPUs.
    """
    if not isinstance(answer, Mapping) or not answer:
        return Feedback(False, "4: give a dict: {'host': engines}")
    if missing := [host for host in hosts if host not in answer]:
        return Feedback(False, f"4: {', '.join(missing)} has GPUs too")
    if more := [str(host) for host in answer if host not in hosts]:
        return Feedback(False, f"4: {', '.join(more)} is not a host of the task")
    for host, gpus in hosts.items():
        if not is_number(answer[host]) or answer[host] != gpus:
            return Feedback(False, f"4: {host} has {gpus} GPUs, and one engine uses one of them")
    return Feedback(True, "4: one engine for each GPU: run.config.ranks may be up to their total")


def check_lost(answer: Any, steps_made: int, checkpoint_step: int) -> Feedback:
    """Check the number of steps that must be repeated after a rank is lost.

    Args:
        answer: a number of steps.
        steps_made: steps before the loss.
        checkpoint_step: step from which the run resumes.
    """
    if not is_number(answer):
        return Feedback(False, "5: put a number of steps in place of None")
    if answer != steps_made - checkpoint_step:
        return Feedback(False, "5: work after the checkpoint is lost; work before it is kept")
    return Feedback(True, "5: the more recent the checkpoint, the less is lost")


# Checks of the exercises of lesson 10: number of runs, noise, the cost of pruning, model selection.


Losses = Mapping[str, Sequence[float]]  # by cell and seed, or by trial and epoch
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
    """Check ``runs(values, seeds)``."""
    wrong = agrees(function, runs, [([3, 2], 2), ([5, 3], 3), ([4], 1), ([2, 3, 4], 5), ([10, 10, 10], 3), ([1, 7], 2)])
    if wrong:
        return Feedback(
            False,
            f"1: {wrong}; combine every value of an axis with every value of the others, and each combination with "
            "every seed",
        )
    return Feedback(True, "1: axes multiply: one more axis of ten values costs ten times as much")


def left(total: int, finished: int) -> int:
    """Runs that the second call of a study executes."""
    return total - finished


def check_left(answer: Any, total: int, finished: int) -> Feedback:
    """Check the number of runs that a resumed study executes.

    Args:
        answer: a number of runs.
        total: of the study.
        finished: runs finished before the interruption; one more was half done.
    """
    if not is_number(answer):
        return Feedback(False, "2: put a number of runs in place of None")
    if answer != left(total, finished):
        return Feedback(False, "2: a finished run is never repeated; a half-done run of this process restarts")
    return Feedback(True, "2: all runs except the finished ones")


def ties(cells: Losses) -> set[str]:
    """The best cell, and all cells that are not significantly different from it.

    The best cell has the lowest median. Another cell differs where all its losses are above all losses of the best.
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
    """Check ``ties(cells)``."""
    wrong = agrees(function, ties, zip(_TIES), same=_same_names, shown=_briefly)
    if wrong:
        return Feedback(
            False,
            f"3: {wrong}; the best cell has the lowest median, and another cell is excluded only if its lowest loss is "
            "above the best cell's highest",
        )
    return Feedback(True, "3: the result of a study is a set of settings, not one of them")


def stopped(curves: Losses, epoch: int, trials: int) -> list[str]:
    """The trials that a median rule stops after an epoch, in the order of execution."""
    rule, earlier, found = Median(after=epoch, trials=trials), list[Curve](), list[str]()
    for name, losses in curves.items():
        curve = tuple(enumerate(losses[:epoch], 1))
        if rule.why(curve, earlier):
            found.append(name)
        earlier.append(curve)
    return found


def lost(curves: Losses, epoch: int, trials: int) -> str | None:
    """The trial with the lowest final loss of all, if the rule stops it; None otherwise."""
    best = min(curves, key=lambda name: curves[name][-1])
    return best if best in stopped(curves, epoch, trials) else None


def check_stopped(answer: Any, curves: Losses, epoch: int, trials: int) -> Feedback:
    """Check the names of the trials that the rule stops."""
    if not isinstance(answer, Set | list | tuple) or not answer:
        return Feedback(False, "4: give a set of names: {'A', 'B'}")
    right, names = set(stopped(curves, epoch, trials)), list(answer)
    if unknown := [str(name) for name in names if not isinstance(name, str) or name not in curves]:
        return Feedback(False, f"4: {', '.join(unknown)} is not a trial: choose from {', '.join(curves)}")
    first = list(curves)[:trials]
    if early := [name for name in first if name in names]:
        return Feedback(False, f"4: {early[0]} has fewer than {trials} trials before it: nothing is stopped yet")
    if more := [name for name in curves if name in names and name not in right]:
        return Feedback(
            False,
            f"4: {more[0]} continues: take the LOWEST of its first {epoch} losses, and the median of the same "
            "quantity over all trials before it; a median of an even number lies between the middle two",
        )
    if missing := [name for name in curves if name in right and name not in names]:
        return Feedback(False, f"4: one more is above the median of those before it ({len(missing)} missing)")
    return Feedback(True, "4: one check saves the remaining epochs of the stopped trials")


def check_lost_values(answer: Any, curves: Losses, epoch: int, trials: int) -> Feedback:
    """Check the name of the trial that would have been the best, but was stopped."""
    if not isinstance(answer, str) or answer not in curves:
        return Feedback(False, f"5: give the name of a trial: one of {', '.join(curves)}")
    if answer not in stopped(curves, epoch, trials):
        return Feedback(False, f"5: {answer} is not stopped by the rule, so it is not lost")
    if answer != lost(curves, epoch, trials):
        return Feedback(False, f"5: {answer} is stopped, but others reach a lower final loss: look at the last epoch")
    return Feedback(True, "5: a slow starter with the best final loss: the weakness of a median rule")


def choose(rows: Sequence[Row]) -> tuple[str, float]:
    """The reported result of a study: the cell with the lowest median validation loss, and its median test loss.

    Args:
        rows: one per run: ``cell seed validation_loss test_loss``.
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


_TABLES = tuple(
    map(
        _rows,
        (
            {"a": [(0.30, 0.50), (0.32, 0.56), (0.31, 0.52)], "b": [(0.40, 0.20), (0.42, 0.22), (0.41, 0.21)]},
            {"lucky": [(0.10, 0.11), (0.60, 0.62), (0.61, 0.60)], "steady": [(0.30, 0.44), (0.31, 0.40), (0.32, 0.42)]},
            {"a": [(0.5, 0.9)], "b": [(0.4, 0.8)], "c": [(0.6, 0.1)]},
            {"a": [(0.2, 0.7), (0.9, 0.9), (0.3, 0.1)], "b": [(0.4, 0.3), (0.41, 0.35), (0.42, 0.5)]},
        ),
    )
)


def check_choose(function: Any) -> Feedback:
    """Check ``choose(rows)``."""
    wrong = agrees(function, choose, zip(_TABLES), same=_same_choice, shown=_briefly)
    if wrong:
        return Feedback(
            False,
            f"6: {wrong}; choose the cell by the lowest median of validation_loss over seeds, and report the median of "
            "its test_loss",
        )
    return Feedback(True, "6: choose on the validation split; evaluate the chosen cell once on the test split")


def _briefly(case: tuple[Any, ...]) -> str:
    """A table in a form that a learner can read: rows by cells."""
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
