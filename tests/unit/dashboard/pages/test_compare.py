"""The page Compare: which runs it lists, which it compares, and what a person changes there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import date
from math import log10
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.dashboard.pages import compare
from dtdg_lab.dashboard.run_list import MOST, ListedRun, RunChoice, ended_text, started_text
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.finish import finish
from tests.dashboards import click, look, settle
from tests.pretend_session import PretendSession
from tests.stored_runs import finished_run

CONFIG = RunConfig(system="esdg", dataset="collegemsg", ranks=2)


def listed(run_id: str, config: RunConfig | None = CONFIG) -> ListedRun:
    return ListedRun(run_id, Path(run_id), config)


# which runs are compared


def test_the_runs_of_the_session_are_compared_and_earlier_ones_when_ticked() -> None:
    choice, session, stored = RunChoice(), [listed("new"), listed("old")], [listed("stored")]
    assert choice.choose(session, stored) == {} and list(choice.colours) == ["old", "new"]
    choice.tick("stored", True)
    choice.tick("old", False)
    choice.choose(session, stored)
    assert list(choice.colours) == ["stored", "new"]


def test_a_run_keeps_its_colour_while_it_is_compared() -> None:
    choice = RunChoice()
    choice.choose([listed("b"), listed("a")], [])
    before = dict(choice.colours)
    choice.choose([listed("c"), listed("b"), listed("a")], [])
    assert choice.colours.items() >= before.items() and len({*choice.colours.values()}) == 3


def test_runs_of_other_data_cannot_be_compared_with_the_newest() -> None:
    choice, other = RunChoice(), CONFIG.replace(dataset="growing")
    session = [listed("new"), listed("other", other), listed("unreadable", None)]
    assert choice.choose(session, []) == {"other": "other data"} and list(choice.colours) == ["new"]
    choice.tick("new", False)
    assert choice.choose(session, []) == {"new": "other data"} and list(choice.colours) == ["other"]


def test_as_many_runs_are_compared_as_there_are_colours() -> None:
    choice, session = RunChoice(), [listed(f"run {place}") for place in range(12)]
    choice.tick("run 11", True)
    choice.choose(session, [])
    assert len(choice.colours) == MOST and choice.is_full and "run 11" in choice.colours


def test_a_run_is_listed_with_its_start_and_its_end() -> None:
    assert started_text("20261128-131431-esdg-1a2b3c4d", date(2026, 11, 28)) == "13:14"
    assert started_text("20261108-131431-esdg-1a2b3c4d", date(2026, 11, 28)) == "8 Nov, 13:14"
    assert started_text("a-folder", date(2026, 11, 28)) == ""
    assert ended_text("stopped", 14) == "stopped at epoch 14" and ended_text("finished", 60) == "finished"


# the page


@pytest.fixture
def session() -> PretendSession:
    return PretendSession(2)


@pytest.fixture
def dashboard(session: PretendSession, tmp_path: Path) -> Iterator[Dashboard]:
    shown = Dashboard(session, RunConfig(system="psg", dataset="growing", ranks=2, epochs=50))
    shown.last_runs._runs_dir = tmp_path
    yield shown
    shown.close()


def train(shown: Dashboard, session: PretendSession, steps: int = 60) -> None:
    click(shown, "run")
    session.current.advance(steps)
    click(shown, "stop")


def until(shown: Dashboard, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        look(shown)
        time.sleep(0.01)


def rows(shown: Dashboard) -> dict[str, Any]:
    content = json.loads(shown.last_runs.list.content)
    return {row["id"]: row for group in content["groups"] for row in group["rows"]}


def head(shown: Dashboard) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(shown.last_runs.head.content)
    return content


def tell(shown: Dashboard, part: Any, **message: Any) -> None:
    part._handle_msg(json.dumps(message))
    settle(shown)


def line_names(shown: Dashboard) -> list[str]:
    figure = json.loads(shown.last_runs.cards._shown["losses"][0])
    return [trace["name"] for trace in figure["data"] if trace["mode"] == "lines"]


def test_one_run_is_no_comparison(dashboard: Dashboard, session: PretendSession) -> None:
    train(dashboard, session)
    dashboard.open_view("Compare")
    look(dashboard)
    assert head(dashboard)["headline"] == "Train or open a second run to compare."
    train(dashboard, session)
    first, second = session.runs
    tell(dashboard, dashboard.last_runs.list, tick=first.id, on=False)
    assert head(dashboard)["headline"] == "Tick a second run to compare."
    tell(dashboard, dashboard.last_runs.list, tick=second.id, on=False)
    assert head(dashboard)["headline"] == "Tick two runs to compare them."


@pytest.mark.parametrize("title", ["Race", "Study"])
def test_a_part_is_shown_alone_and_with_the_settings_beside_it(dashboard: Dashboard, title: str) -> None:
    page = dashboard.compare
    dashboard.open_view("Compare")
    look(dashboard)
    assert not dashboard.left.visible
    page.choice.value = title
    look(dashboard)
    assert [name for name, part in page.parts.items() if part.panel.visible] == [title] and dashboard.left.visible
    for part in page.parts.values():
        assert "display:" not in " ".join(map(str, part.panel.stylesheets)), "Bokeh hides by display"
    dashboard.act("compare")
    assert page.choice.value == "Runs" and not dashboard.left.visible


def test_runs_are_compared_while_their_page_is_open(dashboard: Dashboard, session: PretendSession) -> None:
    for _ in range(2):
        train(dashboard, session)
    dashboard.open_view("Compare")
    look(dashboard)
    names = [row["name"] for row in rows(dashboard).values()]
    assert line_names(dashboard) == sorted(names) and names[0].endswith("(2)")
    assert "a loss of" in head(dashboard)["headline"]
    first, _ = session.runs
    tell(dashboard, dashboard.last_runs.list, tick=first.id, on=False)
    assert len(line_names(dashboard)) == 1 and not rows(dashboard)[first.id]["ticked"]


def test_a_choice_over_the_charts_changes_them(
    dashboard: Dashboard, session: PretendSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        train(dashboard, session)
    dashboard.open_view("Compare")
    look(dashboard)
    monkeypatch.setattr(compare, "headline", lambda comparison, over: f"Who was first, counted in {over}.")
    tell(dashboard, dashboard.last_runs.head, name="over", value="steps")
    assert "counted in steps" in head(dashboard)["headline"]
    tell(dashboard, dashboard.last_runs.head, name="draw", value="all")
    card = json.loads(dashboard.last_runs.cards._shown["losses"][0])["layout"]["meta"]["card"]
    assert card["title"].endswith("over steps") and "median" not in card["unit"]


def test_a_dragged_target_is_taken_back_by_escape(dashboard: Dashboard, session: PretendSession) -> None:
    train(dashboard, session)
    dashboard.open_view("Compare")
    look(dashboard)
    page, losses = dashboard.last_runs, dashboard.last_runs.cards.components[0]
    before = json.loads(page.table.content)["target"]
    dragged = {"display": "a", "visible": ["losses"], "chart": "losses", "handle": "target"}
    tell(dashboard, losses, kind="dragged", value=log10(0.123), **dragged)
    assert "0.123" in json.loads(page.table.content)["target"]
    tell(dashboard, losses, kind="cancelled", **dragged)
    assert json.loads(page.table.content)["target"] == before
    tell(dashboard, losses, kind="released", value=log10(0.234), **dragged)
    assert "0.234" in json.loads(page.table.content)["target"]


def test_stored_runs_are_compared_with_new_ones(dashboard: Dashboard, session: PretendSession, tmp_path: Path) -> None:
    train(dashboard, session)
    config = session.current.live.started_config
    stored = finished_run(tmp_path, **{**config.flat, "epochs": 2})
    finish(stored, "finished")
    name = stored.path.name
    dashboard.open_view("Compare")
    until(dashboard, lambda: name in rows(dashboard))
    assert "finished" in rows(dashboard)[name]["detail"] and len(line_names(dashboard)) == 1
    tell(dashboard, dashboard.last_runs.list, tick=name, on=True)
    until(dashboard, lambda: len(line_names(dashboard)) == 2)
    tell(dashboard, dashboard.last_runs.list, rename=name, name="my best")
    assert RunDirectory(stored.path).name() == "my best" and "my best" in line_names(dashboard)


def test_a_run_that_cannot_be_read_says_why(dashboard: Dashboard, tmp_path: Path) -> None:
    stored = finished_run(tmp_path, epochs=2)
    finish(stored, "finished")
    (stored.path / "config.json").write_text("{")
    dashboard.open_view("Compare")
    until(dashboard, lambda: stored.path.name in rows(dashboard))
    row = rows(dashboard)[stored.path.name]
    assert row["detail"].endswith("can't be read") and row["disabled"] and "config.json" in row["tooltip"]
