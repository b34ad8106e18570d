"""Windows of full and decayed snapshots in the dashboard: settings, and the page that tries a shape before it is."""

from __future__ import annotations

import json
from typing import Any

import param
import plotly.graph_objects as go
import pytest
from pretend_trapezoid import SYSTEM, WindowedRun, WindowedSession
from test_dash import choose, click, live_parts, look, open_tab, settle
from thinning import thinned
from trapezoid_synthetic import CHUNKS

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.options import option
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.systems.decayed_windows.events import Shape
from dtdg_lab.widgets.controls import make_control

KNOBS = (
    "window",
    "full_snapshots",
    "alpha",
    "decay",
    "chunks",
    "chunker",
    "tune",
    "tune_every",
    "tune_memory_gib",
    "fanout",
)


@pytest.fixture
def session() -> WindowedSession:
    return WindowedSession()


@pytest.fixture
def dashboard(session):
    made = Dashboard(session, RunConfig(**SYSTEM))
    yield made
    made.close()


def started(shown: Dashboard, steps: int = 30) -> WindowedRun:
    click(shown, "run")
    run = shown.session.current
    run.advance(steps)
    settle(shown)
    return run


def opened(shown: Dashboard) -> list[dict[str, Any]]:
    """Open the page as a browser does; the messages that the display of the trapezoid gets."""
    open_tab(shown, "Trapezoid")
    sent: list[dict[str, Any]] = []
    for charts, into in ((shown.pages["Trapezoid"].shape, sent), (shown.pages["Trapezoid"].charts, [])):
        charts._send_msg = lambda text, into=into: into.append(json.loads(text))
        charts._handle_msg('{"kind": "ready"}')
    look(shown)
    return sent


def page_on(shown: Dashboard, **more: Any) -> WindowedRun:
    opened(shown)
    run = started(shown, **more)
    look(shown)
    return run


def slide(shown: Dashboard, full: int) -> None:
    """What a browser does while a slider moves: no release yet."""
    with param.edit_constant(shown.pages["Trapezoid"].full):
        shown.pages["Trapezoid"].full.param.update(value=full, value_throttled=2)
    shown.tick()


def press(shown: Dashboard, name: str) -> None:
    button = {"apply": shown.pages["Trapezoid"].button, "back": shown.pages["Trapezoid"].back}[name]
    assert not button.disabled
    button.clicks += 1
    settle(shown)


def shape_figure(shown: Dashboard) -> dict[str, Any]:
    return shown.pages["Trapezoid"].shape.figures()["trapezoid-shape"]


def outlines(shown: Dashboard) -> list[str]:
    return [trace["name"] for trace in shape_figure(shown)["data"] if "proposed" in trace["name"]]


# settings


@pytest.mark.slow
def test_the_settings_of_batches_are_shown_where_they_are_read():
    settings = Settings(1, RunConfig(dataset="growing"), lambda name, value: None)
    for system in catalogue.names("systems"):
        settings.controls["system"].widget.value = system
        batching = catalogue.system(system).parts.get("batching")
        read = () if batching is None else catalogue.entry("batching", batching).options
        assert {name for name in KNOBS if settings.controls[name].widget.visible} == {*KNOBS} & {*read}, system
        assert settings.config() == RunConfig(system=system, dataset="growing")


def test_alpha_is_a_slider_over_powers_of_ten():
    control = make_control(option("alpha"))
    assert control.value == 0.1 and control.widget.value == -1.0 and control.widget.end == 0.0


@pytest.mark.slow
def test_k_and_alpha_are_live_on_the_left_too_and_a_closed_page_is_not_drawn(dashboard):
    open_tab(dashboard, "Data")
    run = started(dashboard)
    look(dashboard)
    assert dashboard.pages["Trapezoid"].charts.figures() == {}
    choose(dashboard, "full_snapshots", 3)
    run.advance(1)
    settle(dashboard)
    assert run.config["full_snapshots"] == 3
    assert "full_snapshots 3: applied at step 30 on 2 ranks" in dashboard.status.value


# the page


@pytest.mark.slow
def test_the_page_shows_the_batch_and_what_became_of_it(dashboard):
    opened(dashboard)
    page = dashboard.pages["Trapezoid"]
    assert not page.choice.visible and page.shape.figures() == page.charts.figures() == {}
    started(dashboard)
    look(dashboard)
    assert "the newest 2 full, those before in 13, 8, 5, 3, 2, 1 of 128 chunks" in page.words.value
    assert "about 1,440 rows (28 % of full), 1.8 MiB" in page.needs.value
    assert list(page.charts.figures()) == [f"trapezoid-{name}" for name in ("windows", "rows", "phases", "shrinking")]
    for figure in (*page.shape.figures().values(), *page.charts.figures().values()):
        go.Figure(figure)
    assert all({**page.charts.captions(), **page.shape.captions()}.values())
    assert shape_figure(dashboard)["layout"]["title"]["text"].startswith("Batch of step 29: target snapshot ")


def test_a_shape_is_drawn_and_told_before_it_is_set(dashboard):
    run = page_on(dashboard)
    page = dashboard.pages["Trapezoid"]
    assert page.button.disabled and page.back.disabled and outlines(dashboard) == []
    slide(dashboard, 4)
    assert outlines(dashboard) == ["proposed: K 4, alpha 0.1, ladder"]
    chunks = 4 * CHUNKS + 1 + 3 + 6 + 13
    assert f"Proposed K 4, alpha 0.1, ladder: about {5 * chunks:,} rows" in page.needs.value
    assert f"; {chunks / 288:.2f} times the rows and " in page.needs.value
    assert run.requests == [], "nothing was asked of the run"
    run.advance(3)
    look(dashboard)
    assert page.full.value == 4 and outlines(dashboard), "what the run does leaves what was chosen here"
    press(dashboard, "back")
    assert page.full.value == 2 and outlines(dashboard) == [] and "Proposed" not in page.needs.value


@pytest.mark.slow
def test_all_that_was_chosen_is_applied_at_one_step(dashboard):
    run = page_on(dashboard)
    slide(dashboard, 3)
    dashboard.pages["Trapezoid"].alpha.widget.value = 0.0
    dashboard.pages["Trapezoid"].decay.widget.value = "text"
    dashboard.tick()
    press(dashboard, "apply")
    assert run.requests == [{"full_snapshots": 3, "alpha": 1.0, "decay": "text"}]
    run.advance(1)
    look(dashboard)
    for words in ("full_snapshots 3", "alpha 1.0", "decay text"):
        assert f"{words}: applied at step 30 on 2 ranks" in dashboard.status.value
    assert outlines(dashboard) == [] and dashboard.pages["Trapezoid"].button.disabled
    assert "Now K 3, alpha 1, text" in dashboard.pages["Trapezoid"].needs.value
    assert dashboard.settings.controls["full_snapshots"].value == 3, "and the left follows"


def test_only_what_differs_is_asked_for_and_widgets_follow_what_is_changed_elsewhere(dashboard):
    run = page_on(dashboard)
    slide(dashboard, 5)
    press(dashboard, "apply")
    assert run.requests == [{"full_snapshots": 5}]
    run.advance(1)
    look(dashboard)
    run.set(full_snapshots=6, alpha=0.123456)
    run.advance(1)
    look(dashboard)
    page = dashboard.pages["Trapezoid"]
    assert page.full.value == 6 and page.alpha.value == 0.123
    assert page.proposed is None, "three digits of a slider are no other alpha"
    assert page.chosen == Shape(6, 0.123456, "ladder")


@pytest.mark.slow
def test_a_refused_change_is_told_and_stays_proposed(dashboard):
    run = page_on(dashboard)

    def refuse(**live_settings: Any) -> int:
        raise ConfigError("full_snapshots=7 cannot be now.")

    run.set = refuse
    slide(dashboard, 7)
    press(dashboard, "apply")
    assert "Set full_snapshots: full_snapshots=7 cannot be now." in dashboard.alert.value
    assert outlines(dashboard) == ["proposed: K 7, alpha 0.1, ladder"]


@pytest.mark.slow
def test_handles_of_the_figure_are_dragged(dashboard):
    page_on(dashboard)
    page = dashboard.pages["Trapezoid"]
    handles = {point["name"]: point for point in shape_figure(dashboard)["layout"]["meta"]["handles"]}
    assert set(handles) == {"full_snapshots", "alpha"}

    def drag(handle: str, value: float) -> None:
        page.shape._handle_msg(json.dumps({"kind": "dragged", "handle": handle, "value": value}))
        dashboard.tick()

    drag("full_snapshots", -3.2)
    drag("alpha", 64.0)
    assert page.proposed == Shape(3, 0.5, "ladder") and page.full.value == 3
    assert outlines(dashboard) == ["proposed: K 3, alpha 0.5, ladder"]


def test_a_drag_is_sent_to_the_display_at_once(dashboard):
    sent = opened(dashboard)
    started(dashboard)
    look(dashboard)
    before = len(sent)
    dashboard.pages["Trapezoid"].shape._handle_msg('{"kind": "dragged", "handle": "full_snapshots", "value": -4}')
    dashboard.tick()
    dashboard.tick()
    assert len(sent) == before + 1, "and what did not change is not sent"
    figure = sent[-1]["react"]["trapezoid-shape"]
    assert figure["layout"]["meta"]["handles"][0]["x"] - figure["layout"]["meta"]["handles"][0]["origin"] == -4


@pytest.mark.slow
def test_a_run_that_is_over_can_be_tried_but_not_changed(dashboard):
    page_on(dashboard)
    click(dashboard, "stop")
    look(dashboard)
    slide(dashboard, 4)
    look(dashboard)
    assert (
        outlines(dashboard)
        and dashboard.pages["Trapezoid"].button.disabled
        and not dashboard.pages["Trapezoid"].back.disabled
    )


@pytest.mark.parametrize(("system", "visible"), thinned([("full-history", []), ("recent-only", [])], [1]))
def test_systems_without_decay_have_what_they_read(system, visible, session):
    shown = Dashboard(session, RunConfig(**SYSTEM | {"system": system}))
    page_on(shown)
    page = shown.pages["Trapezoid"]
    widgets = {"full_snapshots": page.full, "alpha": page.alpha.widget, "decay": page.decay.widget}
    assert [name for name, widget in widgets.items() if widget.visible] == visible
    assert page.choice.visible == bool(visible)
    handles = shape_figure(shown)["layout"].get("meta", {}).get("handles", [])
    assert [point["name"] for point in handles] == visible
    go.Figure(shape_figure(shown))
    shown.close()


def test_a_run_without_windows_does_not_show_them(dashboard):
    page_on(dashboard)
    slide(dashboard, 4)
    click(dashboard, "stop")
    choose(dashboard, "system", "psg")
    click(dashboard, "run")
    look(dashboard)
    page = dashboard.pages["Trapezoid"]
    assert page.charts.figures() == page.shape.figures() == {} and not page.choice.visible
    assert page.words.value == "" and live_parts(dashboard) == ["Common charts", "Schedule"]


@pytest.mark.slow
def test_the_tuner_is_shown_where_it_looks(session):
    shown = Dashboard(session, RunConfig(**SYSTEM, tune=True))
    page_on(shown, steps=130)
    page = shown.pages["Trapezoid"]
    assert {"trapezoid-tuner-losses", "trapezoid-tuner-path"} <= set(page.charts.figures())
    assert "2 moves in 3 looks" in page.words.value
    shown.close()
