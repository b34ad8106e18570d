"""Charts of simulated schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dtdg_lab as lab
from dtdg_lab.systems.snapshot_groups.forecast import ScheduleStudy
from dtdg_lab.systems.snapshot_groups.schedulers.heuristics import schedule_round_robin as round_robin
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import outcome
from dtdg_lab.systems.snapshot_groups.simulation_chart import simulation_figure
from tests.drawing import checked_figure


def outcomes(*ranks: int) -> list[dict[str, Any]]:
    """psg and a schedule as good as the bound."""
    times = [0.1 * (1 + i % 7) for i in range(256)]
    rows = []
    for count in ranks:
        plan = round_robin(times, count, per_rank=1)
        bound = sum(times) / count
        psg = replace(outcome("psg", plan, np.array(times), per_rank=1, allreduce_s=0.0, bound_s=bound), solve_s=0.001)
        best = psg.row() | {"scheduler": "best_of", "throughput": 1.0, "imbalance": None, "idle_share": 0.0}
        rows += [psg.row(), best]
    return rows


def test_simulation_draws_every_scheduler_the_bound_and_the_paper() -> None:
    rows = [{"curve": curve} | row for curve in ("linear", "exponential") for row in outcomes(4, 16, 64)]
    figure = checked_figure(simulation_figure(rows))
    heads = " ".join(note["text"] for note in figure["layout"]["annotations"])
    assert "<b>Throughput per rank · linear</b>" in heads and "<b>Imbalance of an epoch · exponential</b>" in heads
    lines = [trace for trace in figure["data"] if trace["xaxis"] == "x"]
    throughput = {row["ranks"]: row["throughput"] for row in rows if row["scheduler"] == "psg"}
    assert dict(zip(lines[0]["x"], lines[0]["y"], strict=True)) == pytest.approx(throughput, abs=1e-5)
    assert [trace["name"] for trace in lines] == ["psg", "best_of", "bound: none can be better", "the paper's DyGNeX-G"]
    assert lines[3]["x"] == [512, 1024] and lines[3]["y"] == [0.95, 0.85]
    words = " ".join(note["text"].replace("<br>", " ") for note in figure["layout"]["annotations"])
    assert "On 64 ranks best_of keeps 100% of one rank's throughput; the bound is 100%" in words
    assert "the ratio is infinite" in words
    assert simulation_figure([])["layout"]["annotations"]


def test_plot_draws_a_study() -> None:
    rows = outcomes(4, 16)
    study = ScheduleStudy({}, "nothing")
    assert "nothing simulated" in lab.plot(study).to_json()
    assert "Throughput" in lab.plot(simulation_figure(rows)).to_json()
