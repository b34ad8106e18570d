"""Blocks of time in the dashboard: widgets, their changes in a run, and the page that shows what they do."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest
from pretend_blocks import FITTING, SYSTEM, BlockedRun, BlockedSession
from pretend_session import PretendSession
from test_dash import choose, click, live_parts, look, open_tab, settle
from test_dash_feed import Display

from dtdg_lab.core.config import RunConfig
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.widgets.live import ChartFeed

KNOBS = ("blocks", "memory_gib", "row_ranks", "overlap", "delta_transfer")


@pytest.fixture
def session() -> BlockedSession:
    return BlockedSession(2)


@pytest.fixture
def dashboard(session):
    made = Dashboard(session, RunConfig(ranks=2, **SYSTEM))
    yield made
    made.close()


def widget(shown: Dashboard, name: str) -> Any:
    return shown.settings.controls[name].widget


def started(shown: Dashboard, steps: int = 5) -> BlockedRun:
    click(shown, "run")
    run = shown.session.current
    run.advance(steps)
    settle(shown)
    return run


def opened(shown: Dashboard) -> list[dict[str, Any]]:
    """Open the page as a browser does; the messages its display gets."""
    open_tab(shown, "Blocks")
    sent: list[dict[str, Any]] = []
    shown.pages["Blocks"].charts._send_msg = lambda text: sent.append(json.loads(text))
    shown.pages["Blocks"].charts._handle_msg('{"kind": "ready"}')
    look(shown)
    return sent


def titles(shown: Dashboard) -> list[str]:
    return [figure["layout"]["title"]["text"] for figure in shown.pages["Blocks"].charts.figures().values()]


def figure(shown: Dashboard, title: str) -> dict[str, Any]:
    return next(
        each
        for each in shown.pages["Blocks"].charts.figures().values()
        if each["layout"]["title"]["text"].startswith(title)
    )


# widgets


def test_a_hybrid_brings_two_ranks_to_a_snapshot():
    shown = Dashboard(PretendSession(4), RunConfig(ranks=4, **SYSTEM))
    assert widget(shown, "row_ranks").options == [1, 2, 4]
    assert shown.settings.config()["row_ranks"] == 1
    choose(shown, "system", "esdg-hybrid")
    assert shown.settings.config()["row_ranks"] == 2
    choose(shown, "row_ranks", 4)
    assert shown.settings.config()["row_ranks"] == 4
    shown.close()


@pytest.mark.slow
def test_every_knob_of_blocks_is_live(dashboard):
    run = started(dashboard)
    assert widget(dashboard, "model").disabled
    for name, value in (("overlap", "off"), ("delta_transfer", False), ("blocks", 0), ("memory_gib", 2.0)):
        choose(dashboard, name, value)
        run.advance(1)
        settle(dashboard)
        assert run.config[name] == value
        assert f"{name} {value}: applied at step" in dashboard.status.value


@pytest.mark.slow
def test_a_number_of_blocks_below_none_cannot_be_entered(dashboard):
    assert widget(dashboard, "blocks").start == 0


# the page


@pytest.mark.slow
def test_the_page_shows_who_owns_what_memory_transfers_exchanges_and_bytes(dashboard):
    opened(dashboard)
    started(dashboard)
    look(dashboard)
    assert titles(dashboard)[:6] == [
        "Before: spatial part, by snapshot", "After: temporal part, by node",
        "Memory over a step · 4 blocks", "Graphs brought to the ranks", "Share of the exchanges that is hidden",
        "Time in flight: exposed and hidden",
    ]  # fmt: skip
    assert titles(dashboard)[6:] == [
        f"Bytes {what}, layer {layer}" for layer in (0, 1) for what in ("predicted", "measured in step 3")
    ]
    for each in dashboard.pages["Blocks"].charts.figures().values():
        go.Figure(each)
    assert all(dashboard.pages["Blocks"].charts.captions().values())
    assert "4 blocks of 10 snapshots on 2 ranks" in dashboard.pages["Blocks"].words.value
    assert "equal to the byte" in dashboard.pages["Blocks"].words.value


@pytest.mark.slow
def test_only_an_open_page_is_drawn_and_only_once_a_second(dashboard):
    open_tab(dashboard, "Data")
    run = started(dashboard)
    look(dashboard)
    assert dashboard.pages["Blocks"].charts.figures() == {}
    sent = opened(dashboard)
    assert sent and sent[-1]["charts"] == list(dashboard.pages["Blocks"].charts.figures())
    before = len(sent)
    for _ in range(8):
        run.advance(1)
        dashboard.tick()
    assert len(sent) - before <= 2


@pytest.mark.slow
def test_changes_show_on_the_page(dashboard):
    opened(dashboard)
    run = started(dashboard, steps=8)
    look(dashboard)
    shares = figure(dashboard, "Share of the exchanges")["data"][-1]
    assert set(shares["y"]) == {75.0}
    for name in ("overlap", "delta_transfer"):
        choose(dashboard, name, False)
    run.advance(5)
    look(dashboard)
    share = figure(dashboard, "Share of the exchanges")
    assert share["data"][-1]["y"][-5:] == [0.0] * 5
    assert [note["text"] for note in share["layout"]["annotations"]] == ["overlap off,<br>delta_transfer False"]
    assert "each in full" in dashboard.pages["Blocks"].charts.captions()["blocks-transfers"]
    choose(dashboard, "blocks", 0)
    run.advance(2)
    look(dashboard)
    assert f"{FITTING} blocks of 8 snapshots" in dashboard.pages["Blocks"].words.value
    assert (
        f"Probed with 4 blocks; the run has {FITTING} now."
        in dashboard.pages["Blocks"].charts.captions()["blocks-memory"]
    )


@pytest.mark.slow
def test_one_rank_exchanges_nothing(session):
    shown = Dashboard(session, RunConfig(ranks=1, **SYSTEM))
    opened(shown)
    started(shown)
    look(shown)
    assert not [title for title in titles(shown) if "Bytes" in title or "hidden" in title]
    assert "One rank keeps everything" in shown.pages["Blocks"].charts.captions()["blocks-after"]
    shown.close()


def test_a_run_without_blocks_does_not_show_them(dashboard):
    opened(dashboard)
    run = started(dashboard)
    look(dashboard)
    assert dashboard.pages["Blocks"].charts.figures()
    choose(dashboard, "system", "psg")
    run.advance(2)
    look(dashboard)
    assert live_parts(dashboard) == ["Common charts", "Schedule"]
    click(dashboard, "stop")
    click(dashboard, "run")
    look(dashboard)
    assert dashboard.pages["Blocks"].charts.figures() == {}


@pytest.mark.slow
def test_the_live_charts_are_the_same_four_where_a_run_has_blocks(dashboard):
    run = started(dashboard)
    assert "blocks" in run.live.figures()
    feed, display = ChartFeed(), Display()
    display.take(feed.snapshot(run.live, "steps"))
    run.advance(30)
    display.take(feed.patch(run.live, "steps"))
    live = {"loss", "phases", "energy", "timeline"}
    assert set(display.figures) == set(display.captions) == live
