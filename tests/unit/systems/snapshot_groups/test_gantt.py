"""Gantt charts of planned epochs."""

from __future__ import annotations

import pytest

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.gantt import planned_figure


def test_charts_of_one_time_axis_can_be_compared() -> None:
    plan = Schedule((((0,), (1,)),), 2)
    alone, beside = planned_figure(plan, [0.1, 0.2], label="fold"), planned_figure(plan, [0.1, 0.2], until_s=0.4)
    assert alone["layout"]["title"]["text"] == "Planned epoch · fold"
    assert alone["layout"]["xaxis"]["range"] == [0, pytest.approx(1.02 * 200)]  # milliseconds
    assert beside["layout"]["xaxis"]["range"] == [0, pytest.approx(1.02 * 400)]
