"""Gantt charts of planned epochs."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.gantt import lengths_ns, planned_epoch, planned_figure
from dtdg_lab.visualization.chart import title_of


def test_charts_of_one_time_axis_can_be_compared() -> None:
    plan = Schedule((((0,), (1,)),), 2)
    alone, beside = planned_figure(plan, [0.1, 0.2], label="fold"), planned_figure(plan, [0.1, 0.2], until_s=0.4)
    assert title_of(alone) == "Planned epoch · fold"
    assert alone["layout"]["xaxis"]["range"] == [0, pytest.approx(1.02 * 200)]  # milliseconds
    assert beside["layout"]["xaxis"]["range"] == [0, pytest.approx(1.02 * 400)]


def test_a_planned_epoch_has_every_group_and_every_second_of_waiting() -> None:
    plan = Schedule((((0, 3), (1,)), ((), (2,))), 4)
    blocks = planned_epoch(plan, [1, 2, 3, 4], allreduce_s=0.5)
    places = zip(*(blocks.groups[name].tolist() for name in ("group", "rank", "step")), strict=True)
    assert set(places) == {(0, 0, 0), (3, 0, 0), (1, 1, 0), (2, 1, 1)}
    waits = blocks.pauses.where(blocks.pauses["phase"] == "wait")
    assert dict(zip(waits["rank"].tolist(), (lengths_ns(waits) / 1e9).tolist(), strict=True)) == {1: 3.0, 0: 3.0}
    assert blocks.span_s == plan.makespan_s(np.array([1, 2, 3, 4]), allreduce_s=0.5) == 9.0
    assert blocks.waiting_share(2) == pytest.approx(6 / 18)


def test_parts_of_one_rank_are_computed_one_after_the_other() -> None:
    blocks = planned_epoch(Schedule((((0,), (1,), (2,), (3,)),), 4), [1, 2, 3, 4], ranks=2)
    assert blocks.groups["rank"].tolist() == [0, 0, 1, 1] and blocks.span_s == 7
