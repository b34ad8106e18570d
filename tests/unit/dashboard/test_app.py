"""The dashboard on a pretend session: states, settings, changes, errors, two dashboards, code."""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace

import panel as pn
import pytest

from dtdg_lab.cluster.engines import EngineState
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ControlError
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.dashboard.pages.code import as_cell, as_json
from tests.dashboards import (
    buttons,
    choose,
    click,
    entries,
    head,
    left_words,
    look,
    notice,
    press,
    settle,
    systems,
    tiles,
)
from tests.pretend_session import PretendSession

CONFIG = RunConfig(system="psg", dataset="growing", ranks=2, epochs=50)


@pytest.fixture
def session():
    return PretendSession(2)


@pytest.fixture
def dashboard(session):
    made = Dashboard(session, CONFIG)
    yield made
    made.close()


@pytest.fixture
def run(dashboard, session):
    """A run that was begun on the page and has made three steps."""
    click(dashboard, "run")
    session.current.advance(3)
    look(dashboard)
    return session.current


def disabled(shown: Dashboard) -> set[str]:
    return {name for name, control in shown.settings.controls.items() if control.widget.disabled}


def test_what_a_person_does_is_done_by_the_loop(dashboard, session):
    """Widgets changed on two threads at once lose updates on their way to the page."""
    click_message = json.dumps({"action": "run"})
    person = threading.Thread(target=lambda: dashboard.header._handle_msg(click_message))
    person.start()
    person.join()
    assert dashboard.actions._requests.unfinished_tasks == 0, "the click waits for the loop"
    settle(dashboard)
    assert session.current is not None


def test_there_is_a_control_for_every_setting_of_the_glossary(dashboard):
    assert set(dashboard.settings.controls) == {*OPTIONS, "dataset", "model", "system", "protocol"}
    assert set(dashboard.settings.config().flat) <= set(dashboard.settings.controls)
    cards = systems(dashboard)
    assert {name for card in cards.values() for name in card["systems"]} == set(catalogue.names("systems"))
    assert [name for name, card in cards.items() if card["chosen"]] == ["DyGNeX"]
    assert dashboard.settings.controls["system"].widget.values == ["psg", "blad", "dygnex-g", "dygnex-l"]


@pytest.mark.parametrize(("system", "is_folded"), [("greendygnn", False), ("adgnn-t", True)])
def test_slow_links_are_open_for_systems_that_fetch_features(dashboard, session, system, is_folded):
    session.train(RunConfig(system=system, dataset="growing", ranks=2))
    settle(dashboard)
    assert dashboard.slow_links.visible and dashboard.slow_links.collapsed is is_folded


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


def test_buttons_and_controls_follow_the_state_of_the_run(dashboard, session):
    assert disabled(dashboard) == set()
    assert buttons(dashboard) == {"run": True}
    click(dashboard, "run")
    assert session.current.config.epochs == 50
    assert head(dashboard)["state"] == "Preparing" and buttons(dashboard) == {"stop": True}
    live = {"system", *(name for name, option in OPTIONS.items() if option.live != "no")}
    assert disabled(dashboard) == set(dashboard.settings.controls) - live
    session.current.advance(3)
    look(dashboard)
    assert head(dashboard)["state"] == "Running" and buttons(dashboard) == {"pause": True, "stop": True}
    click(dashboard, "pause")
    assert session.runs[0].status == "paused"
    assert [button["label"] for button in head(dashboard)["buttons"]] == ["Continue", "Stop"]
    click(dashboard, "pause")
    assert session.runs[0].status == "running"
    click(dashboard, "stop")
    assert session.runs[0].status == "stopped"
    assert disabled(dashboard) == set() and buttons(dashboard) == {"resume": True, "run": True}
    click(dashboard, "resume")
    assert session.runs[0].status == "running" and "resume" not in buttons(dashboard)


def test_stop_is_answered_before_the_run_has_stopped(dashboard, run):
    gate = threading.Event()
    run.stop = gate.wait
    dashboard.act("stop")
    assert head(dashboard)["state"] == "Stopping"
    gate.set()


def test_a_setting_that_is_chosen_when_the_run_has_just_ended_is_for_the_next_one(dashboard, run):
    run.stop()
    dashboard._setting_changed("slow_ms", 9.0)
    settle(dashboard)
    assert dashboard.settings.config()["slow_ms"] == 9.0 and run.requests == []


def test_stop_on_a_run_that_has_just_ended_shows_its_end(dashboard, run):
    run.stop()
    run.stop = lambda **changes: (_ for _ in ()).throw(ControlError("run.resume()"))
    dashboard.act("stop")
    settle(dashboard)
    assert head(dashboard)["state"] == "Stopped" and "run.resume" not in notice(dashboard)


def test_the_display_is_told_to_show_what_it_has_after_a_click_on_stop(dashboard, run):
    sent = []
    dashboard.header._send_msg = sent.append
    click(dashboard, "stop")
    assert json.loads(sent[-1]) == {"kind": "again"}


def test_the_display_is_told_that_there_is_no_report(dashboard, session):
    click(dashboard, "run")
    sent = []
    dashboard.header._send_msg = sent.append
    dashboard.act("report")
    settle(dashboard)
    assert json.loads(sent[-1]) == {"kind": "no page"} and notice(dashboard).startswith("Open the report")


def test_after_a_run_the_button_names_another_system_and_suggestions_are_for_it(dashboard, run):
    click(dashboard, "stop")
    chips = json.loads(dashboard.live.chips.content)["chips"]
    assert [button["label"] for button in head(dashboard)["buttons"]] == ["Resume", "▶ New run"]
    press(dashboard, "ESDG")
    look(dashboard)
    assert [button["label"] for button in head(dashboard)["buttons"]] == ["Resume", "▶ Run ESDG"]
    content = json.loads(dashboard.live.chips.content)
    assert content["disabled"] and "Use 8 blocks" in content["chips"] != chips


def test_a_change_reaches_the_run_once_and_the_log_says_where_it_was_applied(dashboard, run):
    choose(dashboard, "slow_rank", 1)
    choose(dashboard, "slow_ms", 25.0)
    assert run.requests == [{"slow_rank": 1}, {"slow_ms": 25.0}]
    assert [(entry["number"], entry["state"]) for entry in entries(dashboard)] == [(2, "asked"), (1, "asked")]
    run.advance(60)
    settle(dashboard)
    newest, first = entries(dashboard)
    assert first["changes"] == [["slow down rank", "none → 1"]]
    assert newest["state"] == "applied" and "step 3 · you" in newest["meta"] and newest["undo"]
    assert run.requests == [{"slow_rank": 1}, {"slow_ms": 25.0}]


def test_undo_requests_the_old_value(dashboard, run):
    choose(dashboard, "slow_rank", 1)
    run.advance(2)
    settle(dashboard)
    dashboard.live.log._handle_msg(json.dumps({"undo": 1}))
    settle(dashboard)
    assert run.requests == [{"slow_rank": 1}, {"slow_rank": -1}]


def test_a_suggestion_requests_what_it_says_and_is_not_offered_again(dashboard, session):
    press(dashboard, "FlareDTDG")
    content = json.loads(dashboard.live.chips.content)
    assert content["disabled"] and content["words"] == "After you press Run, try"
    click(dashboard, "run")
    session.current.advance(2)
    look(dashboard)
    chip = json.loads(dashboard.live.chips.content)["chips"][0]
    dashboard.live.chips._handle_msg(json.dumps({"text": chip}))
    settle(dashboard)
    (changes,) = session.current.requests
    session.current.advance(2)
    look(dashboard)
    assert changes and chip not in json.loads(dashboard.live.chips.content)["chips"]


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
    assert [entry["meta"].split(" · ")[-1] for entry in entries(other)] == ["another page"] * 2
    session.current.set(learning_rate=0.02, by="notebook")
    session.current.advance(1)
    settle(dashboard, other)
    assert [shown.settings.controls["learning_rate"].value for shown in (dashboard, other)] == [0.02, 0.02]
    assert session.current.requests == [{"scheduler": "longest_first"}, {"learning_rate": 0.1}, {"learning_rate": 0.02}]
    click(other, "stop")
    settle(dashboard)
    assert buttons(dashboard)["run"]
    other.close()


@pytest.mark.slow
def test_a_value_just_asked_for_is_not_taken_back_while_it_is_on_its_way(dashboard, run):
    choose(dashboard, "slow_ms", 30.0)
    run.version += 1
    settle(dashboard)
    assert dashboard.settings.controls["slow_ms"].value == 30.0


def test_what_the_run_refuses_is_shown_and_taken_back(dashboard, session):
    click(dashboard, "run")
    dashboard.settings.controls["slow_rank"]._changed(SimpleNamespace(new=7))
    settle(dashboard)
    assert "slow_rank=7 is no rank of this run" in notice(dashboard)
    assert dashboard.settings.controls["slow_rank"].value == -1
    click(dashboard, "dismiss")
    assert notice(dashboard) == ""


def test_a_refusal_disappears_with_the_next_request_and_with_another_run(dashboard, session, run):
    dashboard.settings.controls["slow_rank"]._changed(SimpleNamespace(new=7))
    settle(dashboard)
    assert "slow_rank=7 is no rank of this run" in notice(dashboard)
    choose(dashboard, "slow_rank", 1)
    assert notice(dashboard) == ""
    dashboard.settings.controls["slow_rank"]._changed(SimpleNamespace(new=8))
    settle(dashboard)
    assert "slow_rank=8" in notice(dashboard)
    session.current.stop()
    session.train(session.current.config)  # elsewhere
    settle(dashboard)
    assert notice(dashboard) == ""


def test_a_card_chooses_the_main_system_and_offers_the_others_of_its_families(dashboard):
    names = list(systems(dashboard))
    assert names == ["ESDG", "DynaHB", "DyGNeX", "FlareDTDG", "GreenDyGNN", "Baselines"]
    for name, system in (("DynaHB", "dynahb"), ("GreenDyGNN", "greendygnn"), ("Baselines", "single")):
        press(dashboard, name)
        assert dashboard.settings.config().system == system
        shown = systems(dashboard)
        assert [each for each in names if shown[each]["chosen"]] == [name]
        assert dashboard.settings.controls["system"].widget.values == shown[name]["systems"]
        assert all(len(shown[name][what]) > 5 for what in ("idea", "sketch"))
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
    assert [spec.title for spec in dashboard.live.charts.picture.specs.values()] == ["Who owns what in a step"]
    assert "one rank and one part" in dashboard.settings._refused("system")["single"], "two ranks cannot become one"


def test_what_is_certain_to_be_refused_is_not_available_and_says_why(dashboard, session):
    choose(dashboard, "task", "link")
    assert systems(dashboard)["DynaHB"]["refused"].startswith("Task 'link' needs all nodes at once")
    assert systems(dashboard)["Baselines"]["refused"] == ""
    press(dashboard, "GreenDyGNN")
    assert dashboard.settings.config().system == "psg", "nothing is chosen that would be refused"
    press(dashboard, "Baselines")
    offered = dashboard.settings.controls["system"].widget
    assert offered.disabled_options == ["pygt-dist"]
    assert "Not available: pygt-dist" in dashboard.settings.notes["system"].value
    assert "needs all nodes at once" in dashboard.settings.notes["system"].value
    choose(dashboard, "task", "regression")
    assert offered.disabled_options == [] and "Not available" not in dashboard.settings.notes["system"].value
    choose(dashboard, "system", "pygt-dist")
    assert dashboard.settings.controls["task"].widget.disabled_options == ["link"]
    dashboard.settings.controls["task"].show("link")  # as a data set without another task brings it
    click(dashboard, "run")
    assert "needs all nodes at once" in notice(dashboard) and session.runs == []


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
    assert notice(dashboard) == "Run: no <engine> answers. Call session.repair()."
    session.train = lambda config: 1 // 0
    click(dashboard, "run")
    assert "ZeroDivisionError" in notice(dashboard) and "ZeroDivisionError" in caplog.text
    session.engines = lambda: 1 // 0
    dashboard._clear_problem()
    look(dashboard)
    assert "ZeroDivisionError" in notice(dashboard)


def test_engines_are_shown_with_their_devices(dashboard, session, monkeypatch):
    shown = []
    monkeypatch.setattr(dashboard.header, "tell_details", lambda *texts: shown.append(texts))
    session.devices = EngineState(True, "cuda:0", "NVIDIA H200", 140 << 30)
    settle(dashboard)
    assert ["Show engines", "engines"] in head(dashboard)["menu"]
    assert head(dashboard)["sub"] == "2 of 2 engines are ready · 2 × NVIDIA H200"
    dashboard.act("engines")
    assert shown[0][0] == "Engines" and "1       1        cuda:0  140.0 GiB  NVIDIA H200" in shown[0][1]


@pytest.mark.slow
def test_a_session_that_does_not_answer_does_not_hold_up_the_page(dashboard, session):
    answer = threading.Event()
    session.repair = lambda: answer.wait(20)
    session.engines = lambda: {0: session.devices, 1: EngineState(answer.wait(20))}
    session.alive[1] = False
    dashboard.actions.do("Repair", session.repair)
    begun = time.monotonic()
    for _ in range(20):
        dashboard.tick()
    assert time.monotonic() - begun < 5.0 and dashboard.actions.busy
    assert not buttons(dashboard)["run"]
    answer.set()
    settle(dashboard)
    assert buttons(dashboard)["run"]


def test_settings_that_do_not_go_together_are_shown(dashboard, session):
    choose(dashboard, "power_idle_w", 500.0)
    click(dashboard, "run")
    assert "ower_idle_w=500 exceeds power_max_w" in notice(dashboard) and session.runs == []
    assert "power_idle_w=500 exceeds" in dashboard.pages["Code"].cell.value


def test_a_failed_run_names_its_rank_and_new_engines_are_offered(dashboard, session, run):
    session.alive[1] = False
    run.fail("rank 1 died: killed by signal 9")
    look(dashboard)
    assert notice(dashboard).startswith("Rank 1 died")
    assert buttons(dashboard) == {"resume": False, "run": False}
    dashboard.act("repair")
    settle(dashboard)
    assert session.repaired == 1
    assert buttons(dashboard) == {"resume": True, "run": True}


def test_a_failure_disappears_when_another_run_begins_in_a_cell(dashboard, session, run):
    run.fail("rank 1 died: killed by signal 9")
    look(dashboard)
    assert "Rank 1 died" in notice(dashboard)
    session.train(session.current.config)  # a new handle, as of a resumed run
    settle(dashboard)
    assert notice(dashboard) == ""


def test_head_and_tiles_say_how_far_the_run_is(dashboard, session):
    assert head(dashboard)["state"] == "No run yet"
    click(dashboard, "run")
    session.current.advance(45)
    settle(dashboard)
    assert left_words(dashboard) == "Epoch 3 of 50 · step 45"
    assert head(dashboard)["right"].endswith("left")
    assert tiles(dashboard)["Validation loss"] != "–"


def test_the_view_of_a_run_is_drawn_only_while_it_is_open(dashboard, run):
    dashboard.open_view("Code")
    run.advance(3)
    look(dashboard)
    assert not dashboard.live.rest.visible and not dashboard.live.picture.visible
    assert dashboard.pages["Code"].panel.visible and dashboard.left.visible
    dashboard.open_view("Compare")
    assert not dashboard.left.visible
    dashboard.open_view("Live")
    assert dashboard.live.rest.visible and dashboard.live.picture.visible
    assert not dashboard.pages["Compare"].panel.visible


@pytest.mark.parametrize("system", catalogue.names("systems"))
@pytest.mark.parametrize("dataset", ["collegemsg", "growing", "slashdot"])
@pytest.mark.parametrize("protocol", ["warm", "esdg-2021", "flare-2026"])
def test_settings_as_code_round_trip(system, dataset, protocol):
    config = RunConfig(
        system=system, dataset=dataset, ranks=1, learning_rate=0.0042, slow_ms=3.0, edge_life=2, protocol=protocol
    )
    assert RunConfig.from_json(as_json(config)) == config
    text = as_cell(config)
    assert ("protocol=" in text) == (protocol != "warm")
    assert "norm=" not in text, "what the protocol brings need not be said"
    made = {}
    session = SimpleNamespace(train=lambda given: made.update(config=given))
    library = SimpleNamespace(RunConfig=RunConfig, Session=lambda ranks: session, Dashboard=lambda session: None)
    exec(compile(text, "cell", "exec"), {"__builtins__": {"__import__": lambda *names: library}})
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
    with pytest.raises(ControlError, match="closed"):
        dashboard._repr_mimebundle_()


def test_values_of_a_held_key_become_one_change(dashboard, session, monkeypatch):
    click(dashboard, "run")
    run, sent, gate = session.current, [], threading.Event()
    change = run.set
    monkeypatch.setattr(run, "set", lambda **settings: sent.append(settings) or change(**settings))
    dashboard.actions.do("Wait", gate.wait)
    for value in (5.0, 10.0, 20.0):
        dashboard.settings.controls["slow_ms"]._changed(SimpleNamespace(new=value))
        dashboard.tick()
    gate.set()
    settle(dashboard)
    assert sent == [{"slow_ms": 20.0, "by": "page"}]
    choose(dashboard, "slow_ms", 30.0)
    assert sent[1:] == [{"slow_ms": 30.0, "by": "page"}]


def test_a_trouble_of_the_session_is_shown_until_it_is_over(session):
    session.train(CONFIG)
    session.problem = "The controller is gone."
    shown = Dashboard(session, CONFIG)
    look(shown)
    assert notice(shown) == "The controller is gone.", "though it comes with a run"
    session.problem = ""
    look(shown)
    assert notice(shown) == ""
    shown.close()


def test_the_log_goes_on_beside_other_views(dashboard, run):
    dashboard.open_view("Partition")
    choose(dashboard, "learning_rate", -2.5)
    run.advance(3)
    look(dashboard)
    assert entries(dashboard)[0]["state"] == "applied"
