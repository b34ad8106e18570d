"""Hybrid batches in the dashboard: the map live, charts of what makes and chooses batches, and the verdict."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest
from pretend_hybrid import SYSTEM, HybridRun, HybridSession
from test_dash import choose, click, live_parts, look, open_tab, settle

from dtdg_lab.core.config import RunConfig
from dtdg_lab.dashboard.app import Dashboard

CHARTS = [
    f"batches-{name}"
    for name in ("sources", "reservoir", "made", "values", "choices", "rewards", "regret", "staleness")
]


@pytest.fixture
def session() -> HybridSession:
    return HybridSession()


@pytest.fixture
def dashboard(session: HybridSession):
    made = Dashboard(session, RunConfig(**SYSTEM))
    yield made
    made.close()


def started(shown: Dashboard, steps: int = 30) -> HybridRun:
    click(shown, "run")
    run = shown.session.current
    run.advance(steps)
    settle(shown)
    look(shown)
    return run


def opened(shown: Dashboard) -> dict[str, list[dict[str, Any]]]:
    """Open the page as a browser does; the messages that its displays get."""
    open_tab(shown, "Batches")
    sent: dict[str, list[dict[str, Any]]] = {"map": [], "charts": []}
    for name, charts in (("map", shown.pages["Batches"].map), ("charts", shown.pages["Batches"].charts)):
        charts._send_msg = lambda text, into=sent[name]: into.append(json.loads(text))
        charts._handle_msg('{"kind": "ready"}')
    look(shown)
    return sent


def test_the_page_shows_the_batch_and_what_makes_it(dashboard):
    opened(dashboard)
    page = dashboard.pages["Batches"]
    assert live_parts(dashboard) == ["Common charts"]
    assert page.map.figures() == page.charts.figures() == {}
    started(dashboard)
    assert live_parts(dashboard) == ["Common charts", "Batches"]
    assert page.words.value.startswith("Batches of 4 of 20 snapshots and 10 to 12 of 200 to 240 nodes")
    assert list(page.map.figures()) == ["batches-map"] and list(page.charts.figures()) == CHARTS
    for figure in (*page.map.figures().values(), *page.charts.figures().values()):
        go.Figure(figure)
    assert all({**page.charts.captions(), **page.map.captions()}.values())
    assert not page.verdict.visible, "there is no run with a fixed size"


@pytest.mark.slow
def test_the_map_is_live_and_the_charts_follow_once_a_second(dashboard):
    sent = opened(dashboard)
    run = started(dashboard)
    look(dashboard)
    before = {name: len(messages) for name, messages in sent.items()}
    for _ in range(3):
        run.advance(1)
        dashboard.tick()
    assert len(sent["map"]) == before["map"] + 3, "a batch is drawn as soon as it is told"
    assert len(sent["charts"]) <= before["charts"] + 1
    assert sent["map"][-1]["react"]["batches-map"]["layout"]["title"]["text"] == "Batch of step 32"
    look(dashboard)
    newest = sent["charts"][-1]["react"]
    assert newest and set(newest) <= set(CHARTS)


@pytest.mark.slow
def test_a_closed_page_is_not_drawn(dashboard):
    open_tab(dashboard, "Data")
    started(dashboard)
    assert dashboard.pages["Batches"].map.figures() == dashboard.pages["Batches"].charts.figures() == {}


@pytest.mark.slow
def test_a_run_without_hybrid_batches_does_not_show_them(dashboard):
    opened(dashboard)
    started(dashboard)
    click(dashboard, "stop")
    choose(dashboard, "system", "psg")
    started(dashboard)
    page = dashboard.pages["Batches"]
    assert page.charts.figures() == page.map.figures() == {}
    assert page.words.value == "" and live_parts(dashboard) == ["Common charts", "Schedule"]


@pytest.mark.slow
def test_a_run_that_has_not_told_its_batches_yet_is_not_called_one_without(dashboard):
    opened(dashboard)
    started(dashboard)
    dashboard.pages["Batches"].follow(dashboard.pages["Batches"]._run)
    assert dashboard.pages["Batches"].words.value == "No batch data yet."


@pytest.mark.slow
def test_an_batch_policy_is_judged_where_fixed_sizes_ran_too(dashboard, session):
    opened(dashboard)
    started(dashboard, steps=100)
    click(dashboard, "stop")
    session.train(RunConfig(**SYSTEM, batch_policy="none")).advance(100)
    look(dashboard)
    look(dashboard)
    verdict = dashboard.pages["Batches"].verdict
    assert verdict.visible and "The best of 1 fixed size, in hindsight, is 20 % x 5 %" in verdict.value
    assert verdict.value.endswith("does not beat it here."), "as fast is not faster"


def test_runs_are_compared_over_wall_time(dashboard):
    open_tab(dashboard, "Runs")
    started(dashboard, steps=60)
    look(dashboard)
    page = dashboard.pages["Runs"]
    assert page.wall_time["layout"]["title"]["text"].startswith("Loss over wall time")
    assert page.words.startswith("Protocol warm, 0 snapshots left out") and "To loss " in page.words
    assert list(page.charts._figures()) == ["compare", "wall-time", "energy-by-run"]
