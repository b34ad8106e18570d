"""Fetched features in the dashboard: live charts, knobs of cache, links and power, and the table of slow links."""

from __future__ import annotations

import json
from typing import Any

import param
import plotly.graph_objects as go
import pytest
from pretend_features import SYSTEM, FeatureRun, FeatureSession
from test_dash import choose, click, live_parts, look, open_tab, settle

from dtdg_lab.core.config import RunConfig
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.network.patterns import parse_links

CHARTS = [
    f"features-{name}"
    for name in (
        "windows", "hits", "latency", "estimates", "links", "contents", "shares", "owners", "traffic", "actions",
        "values", "energy",
    )
]  # fmt: skip


@pytest.fixture
def session() -> FeatureSession:
    return FeatureSession()


@pytest.fixture
def dashboard(session: FeatureSession):
    made = Dashboard(session, RunConfig(**SYSTEM))
    yield made
    made.close()


def started(shown: Dashboard, steps: int = 30) -> FeatureRun:
    click(shown, "run")
    run = shown.session.current
    run.advance(steps)
    settle(shown)
    look(shown)
    return run


def opened(shown: Dashboard) -> list[dict[str, Any]]:
    """Open the page as a browser does; the messages that its display gets."""
    open_tab(shown, "Features")
    sent: list[dict[str, Any]] = []
    shown.pages["Features"].charts._send_msg = lambda text: sent.append(json.loads(text))
    shown.pages["Features"].charts._handle_msg('{"kind": "ready"}')
    look(shown)
    return sent


def enter(shown: Dashboard, box: Any, value: float) -> None:
    """What a browser does when a number is entered."""
    with param.edit_constant(box):
        box.param.update(value=value, value_throttled=value)
    settle(shown)


@pytest.mark.slow
def test_the_page_shows_caches_and_links(dashboard):
    opened(dashboard)
    page = dashboard.pages["Features"]
    assert page.charts.figures() == {} and page.words.value == ""
    started(dashboard)
    assert page.words.value.startswith("2 parts with batches of 512 seeds")
    assert list(page.charts.figures()) == CHARTS
    for figure in page.charts.figures().values():
        go.Figure(figure)
    assert all(page.charts.captions().values())


@pytest.mark.slow
def test_the_charts_follow_once_a_second_where_the_page_is_open(dashboard):
    open_tab(dashboard, "Data")
    run = started(dashboard)
    assert dashboard.pages["Features"].charts.figures() == {}, "a closed page is not drawn"
    sent = opened(dashboard)
    before = len(sent)
    for _ in range(3):
        run.advance(8)
        dashboard.tick()
    assert len(sent) <= before + 1
    look(dashboard)
    assert sent[-1]["react"] and set(sent[-1]["react"]) <= set(CHARTS)
    assert dashboard.pages["Features"].charts.figures()["features-windows"]["data"][0]["x"][-1] == run.step - 1


def test_a_run_without_fetched_features_does_not_show_them(dashboard):
    opened(dashboard)
    started(dashboard)
    click(dashboard, "stop")
    choose(dashboard, "system", "psg")
    started(dashboard)
    page = dashboard.pages["Features"]
    assert page.charts.figures() == {} and page.words.value == ""
    assert live_parts(dashboard) == ["Common charts", "Schedule"]


@pytest.mark.slow
def test_links_of_a_halo_exchange_can_be_slow_too(dashboard):
    opened(dashboard)
    choose(dashboard, "system", "adgnn-t")
    run = started(dashboard)
    page = dashboard.pages["Features"]
    assert page.words.value == "" and page.editor.panel.visible
    assert live_parts(dashboard) == ["Common charts", "Features"]
    enter(dashboard, page.editor.boxes["delay", 1, 0], 30.0)
    run.advance(1)
    look(dashboard)
    assert run.config["links"] == "1 delay=30", "part 1 has no other link"
    assert list(page.charts.figures()) == ["features-links"]
    assert page.words.value == "Links: part 1 +30 ms."


def test_a_run_that_has_not_told_its_features_yet_is_not_called_one_without(dashboard):
    opened(dashboard)
    started(dashboard)
    dashboard.pages["Features"].follow(dashboard.pages["Features"]._run)
    assert dashboard.pages["Features"].words.value == "No feature data yet."


def test_links_are_entered_one_by_one_and_freed_together(dashboard):
    opened(dashboard)
    run = started(dashboard)
    editor = dashboard.pages["Features"].editor
    enter(dashboard, editor.boxes["delay", 0, 1], 20.0)
    enter(dashboard, editor.boxes["rate", 0, 1], 25.0)
    run.advance(1)
    look(dashboard)
    assert parse_links(run.config["links"], 2) == parse_links("0>1 delay=20 rate=25", 2)
    assert editor.words.value == run.config["links"]
    links = run.live.view("features").congestion.now
    assert (links.delay_of(0), links.rate_of(0), links.congested) == (20.0, 25.0, [0])
    editor.free.clicks += 1
    settle(dashboard)
    run.advance(1)
    look(dashboard)
    assert run.config["links"] == "" and editor.boxes["rate", 0, 1].value == 0.0
    assert run.live.view("features").congestion.now.congested == []


@pytest.mark.slow
def test_links_set_elsewhere_are_shown_but_not_over_what_was_just_entered(dashboard):
    opened(dashboard)
    run = started(dashboard)
    editor = dashboard.pages["Features"].editor
    run.set(links="1 delay=7")
    run.advance(1)
    look(dashboard)
    assert editor.boxes["delay", 1, 0].value == 7.0 and len(run.requests) == 1, "showing asks for nothing"
    enter(dashboard, editor.boxes["delay", 0, 1], 3.0)
    assert editor.boxes["delay", 0, 1].value == 3.0 and run.config["links"] == "1 delay=7", "not applied yet"
    look(dashboard)
    assert editor.boxes["delay", 0, 1].value == 3.0, "it is waited for"
    run.advance(1)
    assert parse_links(run.config["links"], 2) == parse_links("0 delay=3; 1 delay=7", 2)


@pytest.mark.slow
def test_energy_of_the_last_runs_is_compared(dashboard):
    open_tab(dashboard, "Runs")
    started(dashboard, steps=60)
    look(dashboard)
    page = dashboard.pages["Runs"]
    assert page.energy["layout"]["title"]["text"] == "Energy, so far"
    assert {"compute", "idle"} <= {trace["name"].split(" ")[0] for trace in page.energy["data"]}
    assert "needs least" in page.spent
