"""Charts of families that have no page of their own stand on the live page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pretend_session import PretendSession
from registrations import registered_apart

import dtdg_lab as lab
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.systems.base import SystemFamily
from dtdg_lab.visualization.layout import Figure, frame
from dtdg_lab.visualization.run_view import Row, RunView


class StepCount(RunView):
    """Steps of each rank."""

    name = "step_count"

    def __init__(self) -> None:
        self.tables = {"steps": self._add}
        self._steps: dict[int, int] = {}

    def _add(self, rank: int, row: Row, attempt: int) -> None:
        self._steps[rank] = row["step"] + 1

    @property
    def shown(self) -> bool:
        return bool(self._steps)

    def figure(self) -> Figure:
        bars = {"type": "bar", "x": [*self._steps], "y": [*self._steps.values()]}
        return {"data": [bars], "layout": frame("Steps", "rank", "steps")}

    def caption(self) -> str:
        return f"{sum(self._steps.values())} steps of {len(self._steps)} ranks."


class Counts(SystemFamily):
    """A family that adds a chart."""

    name = "counts"

    def views(self, config: lab.RunConfig, shared: Any) -> Sequence[RunView]:
        return [StepCount()]


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    with registered_apart():
        lab.register(Counts())
        made = Dashboard(PretendSession(2), lab.RunConfig(dataset="growing", ranks=2, epochs=50))
        yield made
        made.close()


def visible(dashboard: Dashboard) -> list[str]:
    return [title for title, part in dashboard.pages["Live"].parts.items() if part.panel.visible]


def tick(dashboard: Dashboard) -> None:
    for _ in range(10):
        dashboard.tick()
        dashboard.watch.look()
    dashboard.tick()


def test_a_chart_of_a_family_without_systems_is_shown_for_every_run(dashboard: Dashboard) -> None:
    page = dashboard.pages["Charts of counts"]
    run = dashboard.session.train(lab.RunConfig(system="pygt-dist", dataset="growing", ranks=2))
    tick(dashboard)
    assert visible(dashboard) == ["Common charts"], "no step was made"
    run.advance(3)
    until = time.monotonic() + 5
    while not page.charts.figures() and time.monotonic() < until:
        tick(dashboard)
    assert visible(dashboard) == ["Common charts", "Charts of counts"]
    (figure,) = page.charts.figures().values()
    assert figure["data"][0]["y"] == [3, 3]
    assert list(page.charts.captions().values()) == ["6 steps of 2 ranks."]


def test_charts_of_a_family_with_systems_are_shown_for_these_only(dashboard: Dashboard) -> None:
    page = dashboard.pages["Charts of single"]
    run = dashboard.session.train(lab.RunConfig(system="pygt-dist", dataset="growing", ranks=2))
    page.follow(run)
    assert not page.serves(run.config)
