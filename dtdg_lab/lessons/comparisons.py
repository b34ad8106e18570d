"""What the lessons on races, studies and scaling read from their results, and how a rank is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd

from dtdg_lab.core.errors import RunFailedError
from dtdg_lab.forecast.rank_curves import RankCurves
from dtdg_lab.lessons.figures import bar_chart, side_by_side
from dtdg_lab.runs.liveness import read_notes
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.studies.study import Study, importance_of
from dtdg_lab.visualization.chart import Figure

WAIT_S = 60.0
LOSSES = ("validation_loss", "test_loss", "persistence_loss")


def spent_chart(table: pd.DataFrame) -> Figure:
    """Return what each contestant of a race spent: time, energy, bytes and memory, medians over seeds."""
    titles = {
        "total_time_s": ("Training time", "s"),
        "joules": ("Energy (modelled without a meter)", "J"),
        "bytes": ("Sent by all ranks", "bytes (log)"),
        "peak_bytes": ("Peak memory of a rank", "bytes (log)"),
    }
    bars = [
        bar_chart(title, unit, table[column].to_dict(), log="log" in unit) for column, (title, unit) in titles.items()
    ]
    return side_by_side(*bars, title="What each contestant spent: medians over the seeds")


def importance_within(study: Study, name: str, values: Sequence[Any]) -> dict[str, float]:
    """Return the importance of each setting in the part of a study in which one has some of its values."""
    combinations = [combination for combination in study.combinations if combination.settings[name] in values]
    trials = [trial for combination in combinations for trial in combination.trials]
    return dict(importance_of(study.sweep, trials, study.path))


def rows_of(study: Study) -> list[dict[str, Any]]:
    """Return a row for each run of a study: its cell, seed and losses."""
    names = {combination.number: combination.described for combination in study.combinations}
    return [
        {"cell": names[trial.number], "seed": trial.seed, **{loss: trial.values[loss] for loss in LOSSES}}
        for trial in study.trials
    ]


def middle(values: Iterable[float]) -> float:
    """Return the median."""
    return float(median(values))


def sent_by_a_rank(curves: RankCurves, *, ranks: int) -> dict[str, float]:
    """Return, for one of so many ranks, what is sent in a step -> bytes, as forecast."""
    return {
        row["curve"]: row["value"]
        for row in curves.rows
        if row["quantity"] == "rank_bytes" and row["ranks"] == ranks and row["kind"] != "measured"
    }


def kind_sent_least(bytes_sent: Mapping[str, float]) -> str:
    """Return which kind of data is least: ``halo rows``, ``rows by snapshots`` or ``gradients``."""
    least = min(bytes_sent, key=lambda name: bytes_sent[name])
    return "halo rows" if "halo" in least else "rows by snapshots" if "snapshots" in least else "gradients"


def kill_rank(run: Any, *, rank: int) -> tuple[str, float]:
    """Kill the process of a rank, as a failing machine does, and return the run's reason and the seconds until then."""
    began_s = time.monotonic()
    os.kill(read_notes(run.path / "live", run.attempt)[rank].pid, 9)
    reason = ""
    try:
        run.wait(WAIT_S)
    except RunFailedError as error:
        reason = str(error)
    return reason, time.monotonic() - began_s


def steps_of(run: Any) -> int:
    """Return how many steps a run has made."""
    return int(open_run(run.path).table("steps")["step"].max()) + 1


def first_step(run: Any, *, attempt: int) -> int:
    """Return the first step of an attempt."""
    steps = open_run(run.path).table("steps", all_attempts=True)
    return int(steps[steps["attempt"] == attempt]["step"].min())
