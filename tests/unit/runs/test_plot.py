"""Pictures of runs under way."""

from __future__ import annotations

import dtdg_lab as lab
from dtdg_lab.lessons.figures import panels
from dtdg_lab.runs.charts import all_rollups
from tests.tables import run_tables, run_under_way


def test_a_run_under_way_is_drawn_under_its_lock() -> None:
    steps = [{"rank": rank, "step": step, "time_s": 0.01} for step in range(3) for rank in range(2)]
    run = run_under_way(run_tables({"dataset": "growing"}, {"steps": steps}, rollups=all_rollups()))
    for figure in (lab.plot(run), panels(run, "loss", "step_time")):
        assert figure["data"]
    assert not run.lock.locked()
