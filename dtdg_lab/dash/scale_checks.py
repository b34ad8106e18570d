"""Checks of the exercises of lesson 11: what ranks send, what they bring, where they are, and who was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dtdg_lab.dash.grading import Feedback, agrees, close, is_number


def ring(gradient_bytes: float, ranks: int) -> float:
    """Bytes that each rank sends in a ring all-reduce: all but its own share, once to sum and once to spread."""
    return 2 * (ranks - 1) / ranks * gradient_bytes


def check_ring(function: Any) -> Feedback:
    """Of ``sent(gradient_bytes, ranks)``."""
    wrong = agrees(function, ring, [(1000, 1), (1000, 2), (1000, 4), (3000, 3), (800, 1024)])
    if wrong:
        hint = "a rank alone sends nothing, and each of two sends what there is once (half of it, twice)"
        return Feedback(False, f"1: {wrong}; {hint}")
    return Feedback(True, "1: twice the share of the others: it hardly grows with the ranks")


def efficiency(one_rank_s: float, seconds: float, ranks: int) -> float:
    """Speed-up over ranks."""
    return one_rank_s / (ranks * seconds)


def check_efficiency(function: Any) -> Feedback:
    """Of ``efficiency(one_rank_s, seconds, ranks)``."""
    wrong = agrees(function, efficiency, [(8.0, 8.0, 1), (8.0, 4.0, 2), (8.0, 4.0, 4), (9.0, 2.0, 3), (1.0, 0.5, 8)])
    if wrong:
        return Feedback(False, f"2: {wrong}; two ranks that take half as long have efficiency 1, as one rank alone")
    return Feedback(True, "2: the share of the ranks' time that shortens the epoch")


def first_below(rows: Iterable[Mapping[str, Any]], curve: str, share: float) -> int | None:
    """The least number of ranks at which a curve of efficiency is below a share; None where it never is."""
    of_curve = [row for row in rows if row["quantity"] == "efficiency" and row["curve"] == curve]
    return min((row["ranks"] for row in of_curve if row["value"] < share), default=None)


def check_first_below(answer: Any, rows: Sequence[Mapping[str, Any]], curve: str, share: float) -> Feedback:
    """Of the number of ranks from which on a curve is below a share."""
    found = first_below(rows, curve, share)
    if not is_number(answer):
        return Feedback(False, "3: put a number of ranks in place of None")
    if found is None or not close(answer, found):
        return Feedback(False, f"3: look for the first row of {curve} in the table whose value is below {share:.0%}")
    return Feedback(True, f"3: from {found} ranks on {curve} uses less than {share:.0%} of them")


def check_hosts(answer: Any, hosts: Mapping[str, int]) -> Feedback:
    """Of the engines of an SSH recipe: one for each GPU of every host.

    Args:
        answer: host -> engines.
        hosts: host -> GPUs.
    """
    if not isinstance(answer, Mapping) or not answer:
        return Feedback(False, "4: a dict is asked for: {'host': engines}")
    if missing := [host for host in hosts if host not in answer]:
        return Feedback(False, f"4: {', '.join(missing)} has GPUs too")
    if more := [str(host) for host in answer if host not in hosts]:
        return Feedback(False, f"4: {', '.join(more)} is no host of the task")
    for host, gpus in hosts.items():
        if not is_number(answer[host]) or answer[host] != gpus:
            return Feedback(False, f"4: {host} has {gpus} GPUs, and one engine uses one of them")
    return Feedback(True, "4: one engine for each GPU: run.config.ranks may be as many as all of them together")


def check_lost(answer: Any, steps_made: int, checkpoint_step: int) -> Feedback:
    """Of the steps that must be made again after the loss of a rank.

    Args:
        answer: a number of steps.
        steps_made: before it was lost.
        checkpoint_step: that the run goes on from.
    """
    if not is_number(answer):
        return Feedback(False, "5: put a number of steps in place of None")
    if answer != steps_made - checkpoint_step:
        return Feedback(False, "5: what was done after the checkpoint is lost; what was done before it is not")
    return Feedback(True, "5: as long as a checkpoint is young, little is lost")
