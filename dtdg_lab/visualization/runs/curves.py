"""Evaluations, joules, bytes and memory of a run over time, for comparisons of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.records.events import RanksGathered
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array, Rows
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.runs.energy import FINE_READINGS, FINE_STEP_JOULES, readings_of

FINE = 1_000  # points of a curve of a long run
NEAR = 0.05  # above the lowest loss, up to which a loss is near the best
EVALUATED = Rollup("evaluations", by=("split",), last=("step", "seconds", "loss", "persistence_loss"), points=FINE)
SENT = Rollup(
    "steps",
    by=("rank",),
    sums=("bytes_sent",),
    most=("seconds",),
    along="seconds",
    width=1e-3,
    points=FINE,
    all_attempts=True,  # bytes of lost steps were sent
)
FETCHED = Rollup("fetches", by=("attempt", "purpose"), sums=("bytes",), most=("step",), points=FINE, all_attempts=True)
FIRST_STEPS = 64  # among which the first loss is looked for


def _first_steps(rows: Rows) -> Rows:
    loss = rows["global_loss"].astype(np.float64)
    return rows.where((rows["rank"] == 0) & (rows["step"] < FIRST_STEPS) & np.isfinite(loss))


FIRST_LOSSES = Rollup("steps", last=("global_loss",), points=FIRST_STEPS, prepare=_first_steps)
PEAKS = Rollup("memory", most=("peak_bytes",), along="", all_attempts=True)
CURVE_ROLLUPS = (EVALUATED, FIRST_LOSSES, SENT, FETCHED, PEAKS, FINE_READINGS, FINE_STEP_JOULES)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The loss of one split at one time.

    Attributes:
        step: of the run.
        seconds: of training.
        loss: None where it is not finite.
        persistence_loss: what persistence reaches; None where unknown.
    """

    step: int
    seconds: float
    loss: float | None
    persistence_loss: float | None


def evaluations_of(tables: RunTables, split: str) -> list[Evaluation]:
    """Return the evaluations of a split in order: all of them, or ``FINE`` and the newest of a very long run."""
    return tables.once(("evaluations of", split), lambda: _evaluations_of(tables, split))


def _evaluations_of(tables: RunTables, split: str) -> list[Evaluation]:
    recent = _of_split(tables.rows("evaluations"), split)
    rows = recent.sort("step").to_dicts("step", "seconds", "loss", "persistence_loss")
    by_step = {row["step"]: Evaluation(**row) for row in rows}
    old = _of_split(tables.rollup(EVALUATED), split)
    first = min(by_step, default=None)
    older = [
        Evaluation(**{**row, "step": int(row["step"])})
        for row in old.to_dicts("step", "seconds", "loss", "persistence_loss")
        if first is None or row["step"] < first
    ]
    return [*older, *by_step.values()]


def _of_split(rows: Rows, split: str) -> Rows:
    return rows.where(rows["split"] == split) if len(rows) else rows


def judged_evaluations(tables: RunTables) -> list[Evaluation]:
    """Return the evaluations by which a run is judged: of validation, or of training where there is none."""
    return evaluations_of(tables, judged_split(tables))


def judged_split(tables: RunTables) -> str:
    """Return the split that a run is judged by."""
    return "validation" if evaluations_of(tables, "validation") or not evaluations_of(tables, "train") else "train"


def finite_losses(tables: RunTables) -> list[tuple[float, float]]:
    """Return seconds of training and loss of the judged evaluations whose loss is finite."""
    judged = judged_evaluations(tables)
    return [(evaluation.seconds, evaluation.loss) for evaluation in judged if evaluation.loss is not None]


def first_loss(tables: RunTables) -> tuple[int, float] | None:
    """Return the first step that has a loss, and that loss; None where the first ``FIRST_STEPS`` have none."""
    rows = tables.rollup(FIRST_LOSSES)
    return (int(rows["bucket"][0]), float(rows["global_loss"][0])) if len(rows) else None


def joules_at(tables: RunTables, seconds: ArrayLike) -> Array | None:
    """Return the joules of all devices until these seconds of training; None where none are known."""
    readings = readings_of(tables, FINE_READINGS, FINE_STEP_JOULES)
    if not readings:
        return None
    times = np.asarray(seconds, np.float64)
    return np.sum([reading.so_far(times) for reading in readings], axis=0)


def joules_until(tables: RunTables, attempts: Sequence[int], times_ns: Sequence[int]) -> Array | None:
    """Return the joules of all devices until instants of attempts; None where none are known."""
    instants = zip(attempts, times_ns, strict=True)
    return joules_at(tables, [tables.clock.seconds_at(attempt, time_ns) for attempt, time_ns in instants])


def bytes_at(tables: RunTables, seconds: ArrayLike, steps: ArrayLike) -> Array | None:
    """Return the bytes that all ranks had sent until these seconds and steps; None where no rank recorded any.

    Steps that a resume made again count twice: both were sent. Beside what steps sent, features that were fetched and
    models that were averaged while ranks waited for each other count, but not probes of links.
    """
    sent = tables.rollup(SENT)
    if not len(sent) or not sent["bytes_sent_known"].any():
        return None
    total = np.zeros(np.shape(seconds))
    for rows in sent.by("rank").values():
        sums = np.concatenate([[0.0], rows["bytes_sent"].cumsum()])
        total += sums[np.searchsorted(rows["seconds_most"], np.asarray(seconds, np.float64), side="right")]
    gathered = tables.events(RanksGathered.kind, all_attempts=True)
    sums = np.cumsum([0, *(event["data"]["bytes_sent"] for event in gathered)])
    total += sums[np.searchsorted([event["seconds"] for event in gathered], np.asarray(seconds, np.float64), "right")]
    fetched = tables.rollup(FETCHED)
    if len(fetched):
        fetched, attempts_then = fetched.where(fetched["purpose"] != "probe"), tables.clock.attempts_at(seconds)
        for attempt, rows in fetched.sort("step_most").by("attempt").items():
            until = np.where(attempts_then == attempt, steps, np.where(attempts_then > attempt, np.inf, -1.0))
            sums = np.concatenate([[0.0], rows["bytes"].cumsum()])
            total += sums[np.searchsorted(rows["step_most"], until, side="left")]
    return total


def steps_sent(tables: RunTables) -> int:
    """Return the steps behind :func:`bytes_at` of the rank that made most, those that a resume replaced too."""
    sent = tables.rollup(SENT)
    by_rank = sent.by("rank").values() if len(sent) else ()
    return max((int(rows["bytes_sent_known"].sum()) for rows in by_rank), default=0)


def peak_bytes(tables: RunTables) -> int | None:
    """Return the largest peak of tensor memory of any rank; None where unknown."""
    rows = tables.rollup(PEAKS)
    largest = float(rows["peak_bytes_most"].max()) if len(rows) else -np.inf
    return int(largest) if np.isfinite(largest) else None
