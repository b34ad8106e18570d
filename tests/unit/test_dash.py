"""The dashboard on a pretend session: controls by state, knobs, errors, two dashboards, code."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace

import panel as pn
import param
import pytest
from pretend_session import PretendSession
from runs_synthetic import finished_run

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ClusterError, ControlError
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.dashboard.pages.compare import ComparePage
from dtdg_lab.dashboard.config_code import as_cell, as_json
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.runs.finish import finish
from dtdg_lab.widgets.controls import make_control
from dtdg_lab.widgets.run_page import Pages


@pytest.fixture
def session():
    return PretendSession(2)


@pytest.fixture
def dashboard(session):
    made = Dashboard(session, RunConfig(dataset="growing", ranks=2, epochs=50))
    yield made
    made.close()


def settle(*dashboards: Dashboard) -> None:
    """Let the loop take what a person did, requests end, and every dashboard look at everything."""
    for shown in dashboards:
        shown.tick()
        until = time.monotonic() + 5
        while shown.actions.busy:
            assert time.monotonic() < until, "a request did not end"
            time.sleep(0.005)
            shown.tick()
    for _ in range(2):
        for shown in dashboards:
            shown.watch.look()
            shown.tick()
            shown._refresh_state()


def look(shown: Dashboard) -> None:
    """A second of ticks."""
    for _ in range(8):
        shown.tick()
        shown.watch.look()
    shown.tick()


def open_tab(shown: Dashboard, title: str) -> None:
    """Open the tab of a page, or the one that has it as a part, and choose that part."""
    for place, tab in enumerate(shown.opened):
        if tab.title == title or (isinstance(tab, Pages) and title in tab.parts):
            shown.tabs.active = place
            if isinstance(tab, ComparePage):
                tab.choice.value = title
            return
    raise AssertionError(f"no page {title}")


def live_parts(shown: Dashboard) -> list[str]:
    """The pages that stand under the tab Live."""
    return [title for title, part in shown.pages["Live"].parts.items() if part.panel.visible]


def click(shown: Dashboard, name: str) -> None:
    button = shown.buttons[name]
    assert button.visible and not button.disabled, f"{name} cannot be clicked"
    button.clicks += 1
    settle(shown)


def choose(shown: Dashboard, name: str, value: object) -> None:
    """What a browser does: the value, and for sliders and spinners its release."""
    control = shown.settings.controls[name]
    assert not control.widget.disabled and control.widget.visible, f"{name} cannot be changed"
    if "value_throttled" in control.widget.param:
        with param.edit_constant(control.widget):
            control.widget.param.update(value=value, value_throttled=value)
    else:
        control.widget.value = value
    settle(shown)


@pytest.mark.slow
def test_what_a_person_does_is_done_by_the_loop(dashboard, session):
    """Widgets changed on two threads at once lose updates on their way to the page."""
    import threading

    person = threading.Thread(target=lambda: setattr(dashboard.buttons["run"], "clicks", 1))
    person.start()
    person.join()
    assert dashboard.actions._requests.unfinished_tasks == 0, "the click waits for the loop"
    settle(dashboard)
    assert session.current is not None


def disabled(shown: Dashboard) -> set[str]:
    return {name for name, control in shown.settings.controls.items() if control.widget.disabled}


def test_there_is_a_control_for_every_setting_of_the_glossary(dashboard):
    assert set(dashboard.settings.controls) == {*OPTIONS, "dataset", "model", "system", "protocol"}
    assert set(dashboard.settings.config().flat) <= set(dashboard.settings.controls)
    cards = json.loads(dashboard.settings.cards.cards)
    assert {name for card in cards for name in card["systems"]} == set(catalogue.names("systems"))
    assert [card["name"] for card in cards if card["chosen"]] == ["DyGNeX"]
    assert dashboard.settings.controls["system"].widget.values == ["psg", "blad", "dygnex-g", "dygnex-l"]


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_control_stands_at_what_it_is_shown_and_does_not_call_back(name):
    option = OPTIONS[name]
    control, received = make_control(option), []
    control.on_change(lambda name, value: received.append((name, value)))
    if option.kind is bool:
        value = not option.default
    elif option.choices:
        value = option.choices[-1]
    elif option.kind is str:
        value = "~/a file.npz"
    else:
        value = option.check(option.kind(min(max(option.low or 0, 7), option.high)))
    control.show(value)
    assert control.value == value and received == []
    assert isinstance(control.value, option.kind)


@pytest.mark.slow
def test_a_system_shows_the_settings_that_it_reads_and_brings_its_own(dashboard):
    of_schedules = {"scheduler", "groups_per_rank", "group_times", "profile_epochs", "schedule_gap", "schedule_limit_s"}
    of_layouts = {"halo_reuse", "cache_gib", "blocks", "memory_gib", "row_ranks", "overlap", "delta_transfer"}
    others = {"pipelined", "partitioner", "parts"}
    alone = ("single", "pipad")
    for system in sorted(catalogue.names("systems"), key=alone.__contains__):  # these last: they leave one rank
        choose(dashboard, "system", system)
        made_of = catalogue.system(system).parts
        expected = of_layouts & {*catalogue.entry("parallel", made_of["parallel"]).options}
        expected |= of_schedules if "scheduling" in made_of else set()
        expected |= {"pipelined"} if made_of["parallel"] == "snapshot_group" else set()
        expected |= {"partitioner"} if "partition" in made_of else set()
        expected |= {"parts"} if system not in alone else set()
        controls = dashboard.settings.controls
        shown = {name for name in of_schedules | of_layouts | others if controls[name].widget.visible}
        assert shown == expected, system
        ranks = 1 if system in alone else 2
        assert dashboard.settings.config() == RunConfig(system=system, dataset="growing", ranks=ranks, epochs=50)


def test_the_learning_rate_slider_keeps_values_it_has_no_tick_for():
    control = make_control(OPTIONS["learning_rate"])
    for value in (0.0042, 1e-7, 5.0):
        control.show(value)
        assert control.value == value
        assert control.widget.start <= control.widget.value <= control.widget.end


def test_a_slider_that_is_dragged_is_left_alone_until_the_run_changes():
    config = RunConfig(system="psg", dataset="growing", learning_rate=0.01)
    settings = Settings(2, config, on_change=lambda name, value: None)
    settings.run_is_on(True)
    control = settings.controls["learning_rate"]
    settings.follow(config)
    control.widget.value += 20 * control.widget.step  # of a drag: the browser sends `value_throttled` at its end
    dragged = control.value
    settings.follow(config)
    assert control.value == dragged != 0.01
    settings.follow(config.replace(learning_rate=0.03))  # from a cell
    assert control.value == 0.03
    control.widget.value += 20 * control.widget.step
    settings.refused("learning_rate", config)
    assert control.value == 0.01


def test_sliders_have_an_accessible_name_and_about_a_hundred_steps():
    rate = OPTIONS["learning_rate"]
    for option in (rate, replace(rate, slider=(0.0, 1.0), logarithmic=False)):
        slider = make_control(replace(option, spoken="Rate of learning")).widget
        assert any("Rate of learning" in sheet for sheet in slider.stylesheets)
        assert 50 <= (slider.end - slider.start) / slider.step <= 1000


def test_ranks_are_divisors_and_single_is_alone():
    shown = Dashboard(PretendSession(4), RunConfig(dataset="growing", ranks=4))
    assert shown.settings.controls["ranks"].widget.options == [1, 2, 4]
    choose(shown, "system", "single")
    assert shown.settings.controls["ranks"].widget.options == [1]
    assert not shown.settings.controls["group_window"].widget.visible
    assert shown.settings.config().ranks == 1
    choose(shown, "system", "psg")
    choose(shown, "ranks", 2)
    config = shown.settings.config()
    assert (config.ranks, config.parts) == (2, 2)
    shown.close()


@pytest.mark.slow
def test_buttons_and_controls_follow_the_state_of_the_run(dashboard, session):
    assert disabled(dashboard) == set()
    assert dashboard.buttons["stop"].disabled and dashboard.buttons["pause"].disabled
    assert not dashboard.buttons["resume"].visible and not dashboard.buttons["repair"].visible
    click(dashboard, "run")
    assert session.current.config.epochs == 50
    live = {"system", *(name for name, option in OPTIONS.items() if option.live != "no")}
    assert disabled(dashboard) == set(dashboard.settings.controls) - live
    assert dashboard.buttons["run"].disabled
    click(dashboard, "pause")
    assert session.runs[0].status == "paused" and dashboard.buttons["pause"].label == "Continue"
    click(dashboard, "pause")
    assert session.runs[0].status == "running" and dashboard.buttons["pause"].label == "Pause"
    click(dashboard, "stop")
    assert session.runs[0].status == "stopped"
    assert disabled(dashboard) == set() and not dashboard.buttons["run"].disabled
    click(dashboard, "resume")
    assert session.runs[0].status == "running" and not dashboard.buttons["resume"].visible


def test_a_knob_reaches_the_run_once_and_the_status_says_where_it_was_applied(dashboard, session):
    click(dashboard, "run")
    session.current.advance(5)
    choose(dashboard, "slow_rank", 1)
    choose(dashboard, "slow_ms", 25.0)
    assert session.current.requests == [{"slow_rank": 1}, {"slow_ms": 25.0}]
    assert "slow_ms 25.0: requested" in dashboard.status.value
    session.current.advance(60)
    settle(dashboard)
    assert "slow_ms 25.0: applied at step 5 on 2 ranks" in dashboard.status.value
    assert session.current.requests == [{"slow_rank": 1}, {"slow_ms": 25.0}]
    assert "Rank 1 is slowest" in session.current.live.captions()["phases"]


@pytest.mark.slow
def test_a_slider_that_is_still_held_sends_nothing(dashboard, session):
    click(dashboard, "run")
    dashboard.settings.controls["slow_ms"].widget.value = 40.0  # moves, but no value_throttled yet
    settle(dashboard)
    assert session.current.requests == []


@pytest.mark.slow
def test_two_dashboards_agree_and_do_not_echo(dashboard, session):
    other = Dashboard(session, RunConfig(dataset="growing", system="single"))
    click(dashboard, "run")
    settle(other)
    assert other.settings.config() == session.current.config
    choose(dashboard, "scheduler", "longest_first")
    choose(dashboard, "learning_rate", -1.0)
    session.current.advance(3)
    settle(dashboard, other)
    assert other.settings.controls["learning_rate"].value == pytest.approx(0.1)
    assert other.settings.controls["scheduler"].value == "longest_first"
    session.current.set(learning_rate=0.02)  # from a cell
    session.current.advance(1)
    settle(dashboard, other)
    assert [shown.settings.controls["learning_rate"].value for shown in (dashboard, other)] == [0.02, 0.02]
    assert session.current.requests == [{"scheduler": "longest_first"}, {"learning_rate": 0.1}, {"learning_rate": 0.02}]
    click(other, "stop")
    settle(dashboard)
    assert not dashboard.buttons["run"].disabled
    other.close()


@pytest.mark.slow
def test_a_value_just_asked_for_is_not_taken_back_while_it_is_on_its_way(dashboard, session):
    click(dashboard, "run")
    session.current.advance(1)
    choose(dashboard, "slow_ms", 30.0)
    session.current.version += 1
    settle(dashboard)
    assert dashboard.settings.controls["slow_ms"].value == 30.0


@pytest.mark.slow
def test_what_the_run_refuses_is_shown_and_taken_back(dashboard, session):
    click(dashboard, "run")
    dashboard.settings.controls["slow_rank"]._changed(type("Event", (), {"new": 7}))
    settle(dashboard)
    assert dashboard.alert.visible and "slow_rank=7 is no rank of this run" in dashboard.alert.value
    assert dashboard.settings.controls["slow_rank"].value == -1


def test_what_the_run_has_forgotten_is_not_shown_any_longer(dashboard, session):
    click(dashboard, "run")
    run = session.current
    run.reason = "chunks=100000 was refused and the run goes on as it was: too many"
    look(dashboard)
    assert dashboard.alert.visible and "chunks=100000 was refused" in dashboard.alert.value
    run.reason = ""
    look(dashboard)
    assert not dashboard.alert.visible and not dashboard.alert.value
    run.reason = "chunks=100001 was refused and the run goes on as it was: too many"
    look(dashboard)
    dashboard._show_problem("Repair: no engine answers.")
    run.reason = ""
    look(dashboard)
    assert "no engine answers" in dashboard.alert.value, "of something else"


def test_a_refusal_disappears_when_a_later_change_is_made(dashboard, session):
    click(dashboard, "run")
    dashboard.settings.controls["slow_rank"]._changed(type("Event", (), {"new": 7}))
    settle(dashboard)
    assert "slow_rank=7 is no rank of this run" in dashboard.alert.value
    session.current.set(learning_rate=0.02)  # from a cell
    settle(dashboard)
    assert dashboard.alert.visible, "requested, but not made yet"
    session.current.advance(1)
    settle(dashboard)
    assert not dashboard.alert.visible
    dashboard.settings.controls["slow_rank"]._changed(type("Event", (), {"new": 8}))
    settle(dashboard)
    click(dashboard, "stop")
    session.train(session.current.config)  # elsewhere
    settle(dashboard)
    assert not dashboard.alert.visible, "of another run"


def test_a_status_line_forgets_refusals_before_the_newest_change_that_was_made(dashboard, session):
    click(dashboard, "run")
    run = session.current
    run.advance(2)
    dashboard.settings.controls["chunks"]._changed(type("Event", (), {"new": 100_000}))
    settle(dashboard)
    session.current._pending.clear()  # as a run that refuses it does
    run.reason = "chunks=100000 was refused and the run continues unchanged: too many"
    settle(dashboard)
    assert "chunks 100000: refused, the run continues unchanged" in dashboard.status.value
    choose(dashboard, "slow_ms", 20.0)
    run.advance(1)
    run.reason = ""
    settle(dashboard)
    assert "refused" not in dashboard.status.value and not dashboard.alert.visible


def card(shown: Dashboard, name: str) -> dict:
    return next(each for each in json.loads(shown.settings.cards.cards) if each["name"] == name)


def press(shown: Dashboard, name: str) -> None:
    """What a browser does when a card is clicked."""
    shown.settings.cards._handle_msg(json.dumps({"chosen": name}))
    settle(shown)


def test_a_card_chooses_the_main_system_and_offers_the_others_of_its_families(dashboard):
    names = [each["name"] for each in json.loads(dashboard.settings.cards.cards)]
    assert names == ["ESDG", "DynaHB", "DyGNeX", "FlareDTDG", "GreenDyGNN", "Baselines"]
    for name, system in (("DynaHB", "dynahb"), ("GreenDyGNN", "greendygnn"), ("Baselines", "single")):
        press(dashboard, name)
        assert dashboard.settings.config().system == system
        assert [each for each in names if card(dashboard, each)["chosen"]] == [name]
        assert dashboard.settings.controls["system"].widget.values == card(dashboard, name)["systems"]
        assert all(len(card(dashboard, name)[what]) > 5 for what in ("idea", "sketch"))
    choose(dashboard, "system", "pygt-dist")
    press(dashboard, "Baselines")
    assert dashboard.settings.config().system == "pygt-dist", "it is chosen already"


def test_a_card_of_a_run_under_way_asks_for_the_system(dashboard, session):
    click(dashboard, "run")
    press(dashboard, "ESDG")
    assert session.current.requests == [{"system": "esdg"}]
    session.current.advance(1)
    settle(dashboard)
    assert session.current.config.system == "esdg"
    assert live_parts(dashboard) == ["Common charts", "Blocks"]
    assert "one rank and one part" in dashboard.settings._refused("system")["single"], "two ranks cannot become one"


def test_what_is_certain_to_be_refused_is_not_available_and_says_why(dashboard, session):
    choose(dashboard, "task", "link")
    assert card(dashboard, "DynaHB")["refused"].startswith("Task 'link' needs all nodes at once")
    assert card(dashboard, "Baselines")["refused"] == ""
    press(dashboard, "GreenDyGNN")
    assert dashboard.settings.config().system == "psg", "nothing is chosen that would be refused"
    press(dashboard, "Baselines")
    systems = dashboard.settings.controls["system"].widget
    assert systems.disabled_options == ["pygt-dist"]
    assert "Not available: pygt-dist" in dashboard.settings.notes["system"].value
    assert "needs all nodes at once" in dashboard.settings.notes["system"].value
    choose(dashboard, "task", "regression")
    assert systems.disabled_options == [] and "Not available" not in dashboard.settings.notes["system"].value
    choose(dashboard, "system", "pygt-dist")
    assert dashboard.settings.controls["task"].widget.disabled_options == ["link"]
    dashboard.settings.controls["task"].show("link")  # as a data set without another task brings it
    click(dashboard, "run")
    assert "needs all nodes at once" in dashboard.alert.value and session.runs == []


def test_every_control_has_a_tooltip_with_its_meaning_and_when_a_change_takes_effect(dashboard):
    when = {"step": "at the next step", "epoch": "at the next epoch", "no": "in a new run"}
    for name, control in dashboard.settings.controls.items():
        (tip,) = (sheet for sheet in control.widget.stylesheets if "--dl-tip" in sheet)
        assert json.dumps(control.option.meaning, ensure_ascii=False)[1:-1] in tip, name
        assert f"A change takes effect {when[control.option.live]}." in tip, name
    plain = [
        widget
        for widget in dashboard.layout.select(pn.widgets.Widget)
        if not isinstance(widget, pn.widgets.StaticText) and not any("--dl-tip" in str(s) for s in widget.stylesheets)
    ]
    assert plain == []


def test_errors_are_shown_whatever_they_are(dashboard, session, caplog):
    session.train = lambda config: (_ for _ in ()).throw(ClusterError("no <engine> answers. Call session.repair()."))
    click(dashboard, "run")
    assert dashboard.alert.visible
    assert dashboard.alert.value == '<div role="alert">Run: no &lt;engine&gt; answers. Call session.repair().</div>'
    session.train = lambda config: 1 // 0
    click(dashboard, "run")
    assert "ZeroDivisionError" in dashboard.alert.value and "ZeroDivisionError" in caplog.text
    session.engines = lambda: 1 // 0
    dashboard._clear_problem()
    look(dashboard)
    assert "ZeroDivisionError" in dashboard.alert.value


@pytest.mark.slow
def test_a_session_that_does_not_answer_does_not_hold_up_the_page(dashboard, session):
    answer = threading.Event()
    session.repair = lambda: answer.wait(20)
    session.engines = lambda: {0: True, 1: answer.wait(20)}
    session.alive[1] = False
    dashboard.actions.do("Repair", session.repair)
    begun = time.monotonic()
    for _ in range(20):
        dashboard.tick()
    assert time.monotonic() - begun < 5.0 and dashboard.actions.busy
    assert dashboard.buttons["run"].disabled
    answer.set()
    settle(dashboard)
    assert not dashboard.buttons["run"].disabled


def test_settings_that_do_not_go_together_are_shown(dashboard, session):
    choose(dashboard, "power_idle_w", 500.0)
    click(dashboard, "run")
    assert "power_idle_w=500 exceeds power_max_w" in dashboard.alert.value and session.runs == []
    assert "power_idle_w=500 exceeds" in dashboard.pages["Code"].cell.value


def test_a_failed_run_names_its_rank_and_repair_is_offered(dashboard, session):
    click(dashboard, "run")
    session.current.advance(5)
    session.alive[1] = False
    session.runs[0].fail("rank 1 died: killed by signal 9")
    look(dashboard)
    assert "rank 1 died" in dashboard.alert.value
    assert "dead: rank 1" in dashboard.status.value and "engines 1/2 alive" in dashboard.status.value
    assert dashboard.buttons["run"].disabled and dashboard.buttons["resume"].disabled
    click(dashboard, "repair")
    look(dashboard)
    assert session.repaired == 1
    assert not dashboard.buttons["repair"].visible and not dashboard.buttons["resume"].disabled


def test_a_failure_disappears_when_another_attempt_or_run_begins_in_a_cell(dashboard, session):
    click(dashboard, "run")
    session.current.advance(5)
    session.runs[0].fail("rank 1 died: killed by signal 9")
    look(dashboard)
    assert "rank 1 died" in dashboard.alert.value
    session.train(session.current.config)  # a new handle, as of a resumed run
    settle(dashboard)
    assert not dashboard.alert.visible and not dashboard.alert.value


@pytest.mark.slow
def test_the_status_line_says_how_far_the_run_is(dashboard, session):
    assert "idle" in dashboard.status.value
    click(dashboard, "run")
    session.current.advance(45)
    settle(dashboard)
    assert "step 45 · epoch 3/50" in dashboard.status.value and "left" in dashboard.status.value
    assert "0 lines dropped" in dashboard.status.value


def test_runs_are_compared_while_their_page_is_open(dashboard, session):
    for _ in range(2):
        click(dashboard, "run")
        session.current.advance(60)
        click(dashboard, "stop")
    open_tab(dashboard, "Runs")
    look(dashboard)
    names = [trace["name"] for trace in dashboard.pages["Runs"].figure["data"]]
    assert names == [session.runs[0].id, session.runs[1].id, "persistence"]


@pytest.mark.parametrize("system", catalogue.names("systems"))
@pytest.mark.parametrize("dataset", ["collegemsg", "growing", "slashdot"])
@pytest.mark.parametrize("protocol", ["warm", "esdg-2021", "flare-2026"])
def test_settings_as_code_round_trip(system, dataset, protocol):
    config = RunConfig(system=system, dataset=dataset, ranks=1, learning_rate=0.0042, slow_ms=3.0, edge_life=2,
                       protocol=protocol)  # fmt: skip
    assert RunConfig.from_json(as_json(config)) == config
    text = as_cell(config)
    assert ("protocol=" in text) == (protocol != "warm")
    assert "norm=" not in text, "what the protocol brings need not be said"
    cell = compile(text, "cell", "exec")
    made = {}
    library = type(
        "Library",
        (),
        {
            "RunConfig": RunConfig,
            "Session": lambda ranks: type("S", (), {"train": lambda self, given: made.update(config=given)})(),
            "Dashboard": lambda session: None,
        },
    )
    exec(cell, {"__builtins__": {"__import__": lambda *names: library}})
    assert made["config"] == config


@pytest.mark.slow
def test_the_code_page_follows_the_controls(dashboard):
    choose(dashboard, "epochs", 7)
    assert "epochs=7" in dashboard.pages["Code"].cell.value
    assert "&quot;epochs&quot;: 7" in dashboard.pages["Code"].json.value


def test_a_new_dashboard_stands_where_the_newest_run_does(session):
    session.train(RunConfig(dataset="growing", ranks=2, epochs=9, hidden=8)).advance(5)
    shown = Dashboard(session)
    settle(shown)
    assert shown.settings.config() == session.current.config
    shown.close()


@pytest.mark.slow
def test_the_dashboard_needs_no_torch_and_no_plotly():
    code = "import sys, dtdg_lab.dashboard; print([name for name in ('torch', 'dgl', 'plotly') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_notebook_page_gets_each_style_sheet_once_and_as_text(dashboard, monkeypatch):
    """Panel would replace them one by one in the page, which took most of the time until the dashboard appeared."""
    import panel
    from bokeh.document import Document
    from bokeh.models.css import ImportedStyleSheet, InlineStyleSheet
    from bokeh.models.ui import UIElement

    monkeypatch.setattr(panel.config, "inline", True)
    root = dashboard.layout._render_model(Document())
    sheets = [sheet for model in root.select({"type": UIElement}) for sheet in model.stylesheets]
    addresses = [sheet.url for sheet in sheets if isinstance(sheet, ImportedStyleSheet)]
    assert addresses == []
    texts = {sheet.id: sheet.css for sheet in sheets if isinstance(sheet, InlineStyleSheet)}
    assert len(texts) == len(set(texts.values()))
    assert len(sheets) > 10 * len(texts)


def test_a_closed_dashboard_that_is_shown_again_says_so(dashboard):
    dashboard.close()
    with pytest.raises(ControlError, match="closed: create a new one"):
        dashboard._repr_mimebundle_()


def test_stored_runs_are_compared_with_those_of_the_session(dashboard, session, tmp_path):
    page = dashboard.pages["Runs"]
    page._runs_dir = tmp_path
    stored = finished_run(tmp_path, epochs=2)
    finish(stored, "finished")
    click(dashboard, "run")
    session.current.advance(3)
    open_tab(dashboard, "Runs")
    look(dashboard)
    ((label, name),) = page.stored.options.items()
    assert name == stored.path.name and "finished" in label and name not in str(page.figure)
    page.stored.value = [stored.path.name]
    settle(dashboard)
    look(dashboard)
    assert stored.path.name in str(page.figure) and session.current.id in str(page.figure)
    page.stored.value = []
    settle(dashboard)
    look(dashboard)
    assert stored.path.name not in str(page.figure)
    (stored.path / "config.json").write_text("{")
    page._read.clear()
    page.stored.value = [stored.path.name]
    settle(dashboard)
    assert page.stored.value == [] and f"Open {stored.path.name}" in dashboard.alert.value


def test_values_of_a_held_key_become_one_change(dashboard, session, monkeypatch):
    click(dashboard, "run")
    run, sent, gate = session.current, [], threading.Event()
    change = run.set
    monkeypatch.setattr(run, "set", lambda **settings: sent.append(settings) or change(**settings))
    dashboard.actions.do("Wait", gate.wait)
    for value in (5.0, 10.0, 20.0):
        dashboard.settings.controls["slow_ms"]._changed(type("Event", (), {"new": value}))
        dashboard.tick()
    gate.set()
    settle(dashboard)
    assert sent == [{"slow_ms": 20.0, "by": "page"}]
    choose(dashboard, "slow_ms", 30.0)
    assert sent[1:] == [{"slow_ms": 30.0, "by": "page"}]
