"""Schedules in the dashboard: widgets, the live Gantt chart, what others would have done, epochs on other ranks."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from pretend_schedules import SYSTEM, TIMES, ScheduledRun, ScheduledSession
from pretend_session import PretendRun
from schedules_synthetic import EXCHANGE_S, REST_S
from test_dash import choose, click, open_tab, settle
from test_dash_feed import Display

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.systems.snapshot_groups import page as schedule_asker
from dtdg_lab.systems.snapshot_groups.page import ASK, TOO_EARLY, calibrate
from dtdg_lab.systems.snapshot_groups.schedulers.base import replay
from dtdg_lab.systems.snapshot_groups.time_model import predict_epochs
from dtdg_lab.widgets.live import ChartFeed


@pytest.fixture
def session() -> ScheduledSession:
    return ScheduledSession(2)


@pytest.fixture
def dashboard(session):
    made = Dashboard(session, RunConfig(ranks=2, **SYSTEM))
    yield made
    made.close()


def started(shown: Dashboard, epochs: int = 0) -> ScheduledRun:
    click(shown, "run")
    run = shown.session.current
    run.through(epochs)
    settle(shown)
    return run


def opened(shown: Dashboard) -> list[dict[str, Any]]:
    """Open the page as a browser does; the messages its displays get."""
    open_tab(shown, "Schedule")
    sent: list[dict[str, Any]] = []
    for charts in (shown.pages["Schedule"].gantt, shown.pages["Schedule"].charts):
        charts._send_msg = lambda text: sent.append(json.loads(text))
        charts._handle_msg('{"kind": "ready"}')
    look(shown)
    return sent


def look(shown: Dashboard) -> None:
    """A second of ticks."""
    for _ in range(9):
        shown.tick()


def asked(shown: Dashboard) -> None:
    shown.pages["Schedule"].button.clicks += 1
    answered(shown)


def answered(shown: Dashboard) -> None:
    settle(shown)
    until = time.monotonic() + 60
    while shown.pages["Schedule"].status.value.endswith("…"):
        assert time.monotonic() < until
        time.sleep(0.01)
        settle(shown)
    look(shown)


def titles(shown: Dashboard) -> list[str]:
    page = shown.pages["Schedule"]
    found = {**page.gantt.figures(), **page.charts.figures()}
    for figure in found.values():
        go.Figure(figure)
        json.dumps(figure, allow_nan=False)
    return [figure["layout"]["title"]["text"] for figure in found.values()]


def figure_of(shown: Dashboard, title: str) -> tuple[dict[str, Any], str]:
    page = shown.pages["Schedule"]
    name = next(n for n, figure in page.charts.figures().items() if figure["layout"]["title"]["text"].startswith(title))
    return page.charts.figures()[name], page.charts.captions()[name]


# widgets


@pytest.mark.slow
def test_a_system_takes_its_schedule_along_when_it_goes(dashboard):
    def stands() -> tuple[Any, ...]:
        config = dashboard.settings.config()
        return tuple(config[name] for name in ("scheduler", "groups_per_rank", "pipelined"))

    assert stands() == ("dygnex_greedy", 2, False)
    choose(dashboard, "system", "blad")
    assert stands() == ("consecutive", 2, True)
    choose(dashboard, "groups_per_rank", 3)
    choose(dashboard, "system", "psg")
    assert stands() == ("round_robin", 1, False)
    choose(dashboard, "system", "dygnex-l")
    assert stands() == ("dygnex_ilp", 2, False)


@pytest.mark.slow
def test_another_scheduler_waits_for_the_end_of_the_epoch_and_is_told_where_it_begins(dashboard):
    run = started(dashboard, 3)
    opened(dashboard)
    run.advance(2)
    choose(dashboard, "scheduler", "fold")
    choose(dashboard, "groups_per_rank", 3)
    assert run.requests == [{"scheduler": "fold"}, {"groups_per_rank": 3}]
    assert dashboard.settings.controls["scheduler"].widget.label == "Scheduler · waits"
    run.through(2)
    settle(dashboard)
    look(dashboard)
    assert run.config["scheduler"] == "fold" and "scheduler fold: applied at step" in dashboard.status.value
    assert dashboard.pages["Schedule"].words.value.startswith("fold, 40 groups on 2 ranks, at most 3 a part")
    marks = [note["text"] for note in figure_of(dashboard, "Imbalance")[0]["layout"]["annotations"]]
    assert marks == ["dygnex_greedy", "fold"], "the schedule from measured times, and the new one"


# what the run tells


def test_what_there_is_before_a_run_and_of_a_run_without_schedule(dashboard, session):
    opened(dashboard)
    page = dashboard.pages["Schedule"]
    assert page.words.value == ""
    assert not page.button.visible and titles(dashboard) == []
    choose(dashboard, "system", "adgnn-t")
    session._make = PretendRun
    click(dashboard, "run")
    session.current.advance(3)
    look(dashboard)
    assert page.words.value == "" and titles(dashboard) == []
    click(dashboard, "stop")
    choose(dashboard, "system", "psg")
    click(dashboard, "run")
    session.current.advance(3)
    look(dashboard)
    assert page.words.value == "No schedule data yet."


@pytest.mark.slow
def test_the_page_names_the_slowest_rank_and_draws_everything(dashboard):
    opened(dashboard)
    run = started(dashboard)
    run.slow = [1.0, 1.4]
    run.through(4)
    look(dashboard)
    assert titles(dashboard) == [
        "Gantt chart of epoch 4 · dygnex_greedy", "Imbalance of own time", "Where the ranks' time goes",
        "Group times: predicted against measured", "What would the others have done",
    ]  # fmt: skip
    assert "Rank 1 is slowest: it is" in dashboard.pages["Schedule"].words.value
    assert all(dashboard.pages["Schedule"].charts.captions().values()) and dashboard.pages["Schedule"].button.visible
    assert "Orange ones set the pace" in dashboard.pages["Schedule"].gantt.captions()["schedule-gantt"]


def test_the_gantt_chart_follows_at_every_tick_and_the_rest_once_a_second(dashboard):
    run = started(dashboard, 3)
    sent = opened(dashboard)
    dashboard._ticks = 1
    sent.clear()
    for _ in range(3):
        run.through(1)
        dashboard.tick()
    assert [sorted(message["react"]) for message in sent] == [["schedule-gantt"]] * 3
    begins = [message["react"]["schedule-gantt"]["layout"]["title"]["text"] for message in sent]
    assert begins == [f"Gantt chart of epoch {epoch} · dygnex_greedy" for epoch in (4, 5, 6)]
    sent.clear()
    dashboard.tick()
    assert sent == [], "nothing happened"
    look(dashboard)
    assert any("schedule-0" in message["react"] for message in sent)


def test_a_large_gantt_chart_is_drawn_at_every_other_tick(dashboard, monkeypatch):
    monkeypatch.setattr("dtdg_lab.systems.snapshot_groups.page._QUICK", 30)
    run = started(dashboard, 3)
    sent = opened(dashboard)
    dashboard._ticks = 1
    sent.clear()
    for _ in range(6):
        run.through(1)
        dashboard.tick()
    assert [sorted(message["react"]) for message in sent] == [["schedule-gantt"]] * 3


@pytest.mark.slow
def test_a_page_behind_another_tab_draws_nothing(dashboard, monkeypatch):
    open_tab(dashboard, "Code")
    run = started(dashboard, 2)
    monkeypatch.setattr(type(run.live.view("schedule")), "gantt_panel", lambda view: pytest.fail("drawn"))
    monkeypatch.setattr(type(run.live.view("schedule")), "caption", lambda view: pytest.fail("told"))
    run.through(1)
    look(dashboard)
    assert not dashboard.alert.visible, dashboard.alert.value


def test_another_runs_charts_go_and_many_ranks_have_a_higher_chart():
    shown = Dashboard(ScheduledSession(32), RunConfig(ranks=32, **SYSTEM))
    opened(shown)
    started(shown, 2)
    look(shown)
    assert shown.pages["Schedule"].gantt.figures()["schedule-gantt"]["layout"]["height"] > 600
    click(shown, "stop")
    choose(shown, "ranks", 2)
    click(shown, "run")
    assert shown.session.current.config.ranks == 2
    look(shown)
    assert titles(shown)[0] == "Gantt chart" and len(titles(shown)) == 5, "of the new run, nothing timed yet"
    shown.session.current.through(1)
    look(shown)
    assert shown.pages["Schedule"].gantt.figures()["schedule-gantt"]["layout"]["height"] == 330
    shown.close()


def test_the_live_charts_are_the_same_four_where_a_run_has_a_schedule(dashboard):
    run = started(dashboard, 2)
    feed, display = ChartFeed(), Display()
    display.take(feed.snapshot(run.live, "steps"))
    run.through(1)
    display.take(feed.patch(run.live, "steps"))
    live = {"loss", "phases", "energy", "timeline"}
    assert set(display.figures) == set(display.captions) == live
    captions = run.live.captions()
    assert display.captions == {name: captions[name] for name in live}


# what others would have done


def test_the_other_schedulers_are_asked_with_the_times_of_the_run(dashboard):
    opened(dashboard)
    run = started(dashboard, 4)
    look(dashboard)
    assert len(figure_of(dashboard, "What would")[0]["data"][0]["y"]) == 2, "told by the run: psg and its own"
    view = run.live.view("schedule")
    found = replay(view.times_s(), 2, per_rank=2, allreduce_s=EXCHANGE_S)
    asked(dashboard)
    bars = figure_of(dashboard, "What would")[0]["data"][0]
    by_name = {name.split("<br>")[0]: value for name, value in zip(bars["y"], bars["x"], strict=True)}
    expected = {each.scheduler: each.makespan_s for each in found.outcomes}
    unit = 1e3 if max(expected.values()) < 1 else 1.0
    assert by_name == pytest.approx({name: unit * value for name, value in expected.items()}, abs=1e-3)
    assert "dygnex_greedy<br>(in use)" in bars["y"] and "dygnex_ilp" in by_name
    assert dashboard.pages["Schedule"].status.value.startswith("Asked with the group times up to epoch 4: 7 schedulers")


def test_a_scheduler_that_replays_pass_over_is_asked_for_all_the_same(session):
    shown = Dashboard(session, RunConfig(ranks=2, **SYSTEM, scheduler="dygnex_auto"))
    opened(shown)
    started(shown, 3)
    asked(shown)
    assert "dygnex_auto<br>(in use)" in figure_of(shown, "What would")[0]["data"][0]["y"]
    shown.close()


@pytest.mark.slow
def test_epochs_on_other_ranks_are_predicted_and_compared_with_those_measured(dashboard, session):
    for ranks in (1, 2):
        choose(dashboard, "ranks", ranks)
        run = started(dashboard, 4)
        click(dashboard, "stop")
    opened(dashboard)
    answered(dashboard)
    assert run is session.current and run.config.ranks == 2
    figure, words = figure_of(dashboard, "Epoch time on other")
    predicted, measured = figure["data"][:2]
    assert predicted["x"] == ["1", "2", "4", "8", "16"]
    assert [value is not None for value in measured["y"]] == [True, True, False, False, False]
    view = run.live.view("schedule")
    found = predict_epochs(
        view.times_s(), measured_on=2, ranks=(1, 2, 4, 8, 16), scheduler="dygnex_greedy", per_rank=2,
        allreduce_s=EXCHANGE_S, step_s=REST_S,
    )  # fmt: skip
    unit = 1e3 if max(each.predicted_s for each in found) < 1 else 1.0
    assert predicted["y"] == pytest.approx([unit * each.predicted_s for each in found], rel=1e-3)
    last = view.balance.last(view.facts.iterations)
    assert measured["y"][1] == pytest.approx(unit * last.time_s, rel=1e-4)
    assert abs(predicted["y"][1] / measured["y"][1] - 1) < 0.05, "with 2 % of noise in each group"
    assert "on 1, " in words and "on 2 ranks." in words and "all-reduces of 2 ms and 2 ms of other work" in words


def test_runs_that_differ_in_more_than_ranks_are_not_compared_with(dashboard):
    choose(dashboard, "ranks", 1)
    started(dashboard, 3)
    click(dashboard, "stop")
    choose(dashboard, "ranks", 2)
    choose(dashboard, "hidden", 48)
    started(dashboard, 3)
    opened(dashboard)
    asked(dashboard)
    assert [value is not None for value in figure_of(dashboard, "Epoch time")[0]["data"][1]["y"]][:2] == [False, True]


def test_one_rank_has_no_exchange_and_shared_cores_are_said(session):
    shown = Dashboard(session, RunConfig(ranks=1, **SYSTEM))
    opened(shown)
    run = started(shown, 3)
    with run.lock:
        for rows in run.live.view("schedule").times._times.values():
            rows[:] = [(epoch, rank, wall, wall / 2) for epoch, rank, wall, _ in rows]
    asked(shown)
    words = figure_of(shown, "Epoch time")[1]
    assert "One rank has no all-reduce to measure: none is added." in words and "all-reduces of" not in words
    assert "these ranks had 50 % of a core" in words
    shown.close()


@pytest.mark.slow
def test_an_epoch_counts_as_measured_only_where_all_of_it_was_computed_as_scheduled(dashboard):
    run = started(dashboard)
    assert calibrate(run.live.view("schedule")) is None
    run.advance(3)
    part = calibrate(run.live.view("schedule"))
    assert part.epoch_s is None and part.epoch == 0 and np.isfinite(part.times_s).all()
    run.through(1)
    whole = calibrate(run.live.view("schedule"))
    assert whole.epoch == 1 and whole.epoch_s > TIMES.sum() / 2
    choose(dashboard, "scheduler", "longest_first")
    run.advance()
    assert calibrate(run.live.view("schedule")).epoch_s is None, "the last whole epoch is of the schedule before"
    assert (whole.scheduler, whole.facts.rank_groups) == ("dygnex_greedy", 2)
    assert (whole.exchange_s, whole.step_s) == pytest.approx((EXCHANGE_S, REST_S), abs=1e-6)


def test_before_a_group_was_timed_there_is_nothing_to_ask_with(dashboard):
    opened(dashboard)
    started(dashboard)
    look(dashboard)
    asked(dashboard)
    assert dashboard.pages["Schedule"].status.value == TOO_EARLY


@pytest.mark.slow
def test_a_run_that_is_over_is_asked_about_once_without_a_click(dashboard, monkeypatch):
    calls = []
    monkeypatch.setattr(schedule_asker, "replay", lambda *args, **more: calls.append(args) or replay(*args, **more))
    run = started(dashboard, 3)
    opened(dashboard)
    look(dashboard)
    assert calls == [], "the run is under way: its time is measured"
    click(dashboard, "stop")
    look(dashboard)
    answered(dashboard)
    look(dashboard)
    assert len(calls) == 1 and len(titles(dashboard)) == 6
    assert run.live.view("schedule").facts is not None


def test_an_answer_for_another_schedule_or_run_is_not_drawn(dashboard, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(schedule_asker, "replay", lambda *args, **more: gate.wait(20) and replay(*args, **more))
    came, page = [], dashboard.pages["Schedule"]
    real = page._came
    monkeypatch.setattr(page, "_came", lambda wanted, outcome: (real(wanted, outcome), came.append(outcome)))
    opened(dashboard)
    run = started(dashboard, 3)
    look(dashboard)
    dashboard.pages["Schedule"].button.clicks += 1
    settle(dashboard)
    assert dashboard.pages["Schedule"].status.value.endswith("Computing …")
    begun = time.monotonic()
    look(dashboard)
    assert time.monotonic() - begun < 5, "the page does not wait"
    choose(dashboard, "scheduler", "fold")
    run.through(1)
    gate.set()
    until = time.monotonic() + 20
    while not came:
        assert time.monotonic() < until
        time.sleep(0.01)
        dashboard.tick()
    assert came[0].others and came[0].epochs
    assert page.status.value.startswith(ASK) and not page.status.value.endswith("…")
    look(dashboard)
    assert not run.live.view("schedule")._replayed and len(titles(dashboard)) == 5
    asked(dashboard)
    assert len(titles(dashboard)) == 6
    choose(dashboard, "scheduler", "longest_first")
    run.through(1)
    look(dashboard)
    assert len(titles(dashboard)) == 5 and "How long would an epoch" in dashboard.pages["Schedule"].status.value


def test_what_fails_is_said_and_leaves_the_other_answer(dashboard, monkeypatch, caplog):
    opened(dashboard)
    started(dashboard, 3)
    monkeypatch.setattr(schedule_asker, "predict_epochs", lambda *args, **more: 1 // 0)
    asked(dashboard)
    assert "other numbers of ranks: ZeroDivisionError" in dashboard.pages["Schedule"].status.value
    assert "ZeroDivisionError" in caplog.text
    assert len(figure_of(dashboard, "What would")[0]["data"][0]["y"]) == 7

    def missing(*args: Any, **more: Any) -> Any:
        raise NotAvailableError("dygnex_ilp needs <ortools>.")

    monkeypatch.setattr(schedule_asker, "predict_epochs", predict_epochs)
    monkeypatch.setattr(schedule_asker, "replay", missing)
    asked(dashboard)
    assert dashboard.pages["Schedule"].status.value == "the other schedulers: dygnex_ilp needs &lt;ortools&gt;."
    assert len(titles(dashboard)) == 6
