"""Partitions in the dashboard: widgets, changes that wait for the epoch's end, measuring, and the run's microscope."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import PartitionError
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.dashboard.pages import partition as partition_measurer
from dtdg_lab.dashboard.pages.partition import RUN, table_html
from dtdg_lab.datasets.names import load_for
from dtdg_lab.partition.events import PartitionFacts
from dtdg_lab.partition.measured_partition import partition_graph
from dtdg_lab.visualization.chart import title_of
from tests.dashboards import choose, click, entries, notice, settle
from tests.pretend_partitions import SMALL, PartitionedRun, PartitionedSession
from tests.pretend_session import PER_EPOCH

GROWING = {"dataset": "growing", "epochs": 50, **SMALL}


@pytest.fixture
def session() -> PartitionedSession:
    return PartitionedSession(2)


@pytest.fixture
def dashboard(session):
    made = Dashboard(session, RunConfig(system="adgnn-t", ranks=2, **GROWING))
    yield made
    made.close()


def widget(shown: Dashboard, name: str) -> Any:
    return shown.settings.controls[name].widget


def started(shown: Dashboard) -> PartitionedRun:
    click(shown, "run")
    run = shown.session.current
    run.advance(5)
    settle(shown)
    return run


def to_next_epoch(shown: Dashboard, run: PartitionedRun) -> None:
    run.advance(PER_EPOCH - run.step % PER_EPOCH + 1)
    settle(shown)


# widgets before a run


def test_a_system_brings_its_partitioner_and_takes_it_along_when_it_goes(dashboard):
    assert dashboard.settings.config()["partitioner"] == "metis"
    choose(dashboard, "system", "pygt-dist")
    assert dashboard.settings.config()["partitioner"] == "metis"
    choose(dashboard, "partitioner", "load_aware")
    choose(dashboard, "assignment_order", "plain")
    config = dashboard.settings.config()
    assert (config["partitioner"], config["assignment_order"]) == ("load_aware", "plain")
    choose(dashboard, "system", "adgnn-t")
    assert dashboard.settings.config()["partitioner"] == "metis"


@pytest.mark.slow
def test_parts_are_what_the_ranks_divide():
    shown = Dashboard(PartitionedSession(4), RunConfig(system="adgnn-t", ranks=4, **GROWING))
    parts = widget(shown, "parts")
    assert parts.options == {"as ranks": 0, **{str(count): count for count in (8, 12, 16, 24, 32, 48, 64)}}
    choose(shown, "parts", 12)
    assert shown.settings.config().parts == 12
    choose(shown, "ranks", 2)
    assert shown.settings.config().parts == 12 and 6 in parts.options.values()
    choose(shown, "parts", 6)
    choose(shown, "ranks", 4)
    assert shown.settings.config().parts == 4, "4 ranks cannot share 6 parts"
    shown.close()


def test_a_number_of_parts_that_is_not_offered_is_shown_all_the_same(session):
    shown = Dashboard(session, RunConfig(system="adgnn-t", ranks=2, parts=10, **GROWING))
    choose(shown, "model", "wdgcn")
    assert shown.settings.config().parts == 10
    shown.close()


# widgets during a run


@pytest.mark.slow
def test_a_change_waits_for_the_end_of_the_epoch_then_says_where_it_was_applied(dashboard):
    run = started(dashboard)
    assert not widget(dashboard, "partitioner").disabled and widget(dashboard, "model").disabled
    choose(dashboard, "partitioner", "hash")
    assert run.requests == [{"partitioner": "hash"}]
    assert widget(dashboard, "partitioner").label == "Partitioner · metis → hash"
    assert entries(dashboard)[0]["note"] == "Waiting for epoch 2"
    run.advance(3)
    settle(dashboard)
    assert dashboard.settings.controls["partitioner"].value == "hash", "what waits is not taken back"
    assert run.config["partitioner"] == "metis"
    to_next_epoch(dashboard, run)
    assert run.config["partitioner"] == "hash"
    assert widget(dashboard, "partitioner").label == "Partitioner"
    assert f"step {PER_EPOCH} · you" in entries(dashboard)[0]["meta"]


@pytest.mark.slow
def test_what_waits_outlives_the_patience_for_step_settings(dashboard, monkeypatch):
    run = started(dashboard)
    choose(dashboard, "parts", 4)
    later = time.monotonic() + 3600
    monkeypatch.setattr("dtdg_lab.dashboard.settings.time.monotonic", lambda: later)
    settle(dashboard)
    assert dashboard.settings.controls["parts"].value == 4
    monkeypatch.undo()
    to_next_epoch(dashboard, run)
    assert run.config.parts == 4 and entries(dashboard)[0]["state"] == "applied"
    choose(dashboard, "parts", 0)
    to_next_epoch(dashboard, run)
    assert run.config.parts == 2 and dashboard.settings.controls["parts"].value == 0
    assert "step 40" in entries(dashboard)[0]["meta"]


@pytest.mark.slow
def test_changes_made_at_one_end_of_an_epoch_are_each_told(dashboard):
    run = started(dashboard)
    for name, value in (("partitioner", "round_robin"), ("parts", 4), ("halo_reuse", True)):
        choose(dashboard, name, value)
    choose(dashboard, "slow_ms", 5.0)
    to_next_epoch(dashboard, run)
    steps = [entry["meta"].split(" · ")[1] for entry in entries(dashboard)]
    assert steps == ["step 5", "step 20", "step 20", "step 20"]
    assert not dashboard.settings._asked


def test_a_change_that_does_not_fit_is_refused_with_its_reason_each_time(dashboard):
    run = started(dashboard)
    run.unfit = {"partitioner": "METIS died of signal 11 (SIGSEGV). Choose another partitioner."}
    for _ in range(2):
        choose(dashboard, "partitioner", "load_aware")
        assert widget(dashboard, "partitioner").label == "Partitioner · metis → load_aware"
        to_next_epoch(dashboard, run)
        assert entries(dashboard)[0]["note"].startswith("Refused: METIS died of signal 11")
        assert dashboard.settings.controls["partitioner"].value == "metis"
        assert widget(dashboard, "partitioner").label == "Partitioner"
    run.unfit = {}
    choose(dashboard, "partitioner", "load_aware")
    settle(dashboard)
    assert entries(dashboard)[0]["state"] == "waiting", "an old refusal is not taken for this one's"
    to_next_epoch(dashboard, run)
    assert run.config["partitioner"] == "load_aware"


def test_a_change_the_run_cannot_make_is_refused_at_once(dashboard):
    run = started(dashboard)
    assert "single" in widget(dashboard, "system").disabled_options, "not even offered"
    dashboard.settings.controls["system"].refuse(())
    choose(dashboard, "system", "single")
    assert "one rank and one part" in notice(dashboard) and run.requests == []
    assert dashboard.settings.controls["system"].value == "adgnn-t"
    assert widget(dashboard, "system").label == "System"


@pytest.mark.slow
def test_the_system_itself_changes_and_brings_its_settings_once_the_run_has_it(dashboard):
    run = started(dashboard)
    choose(dashboard, "system", "psg")
    assert widget(dashboard, "system").label == "System · adgnn-t → psg"
    dashboard.settings._refresh()
    assert widget(dashboard, "partitioner").visible and not widget(dashboard, "scheduler").visible
    to_next_epoch(dashboard, run)
    assert run.config.system == "psg" and "step 20" in entries(dashboard)[0]["meta"]
    assert widget(dashboard, "scheduler").visible and not widget(dashboard, "partitioner").visible
    choose(dashboard, "system", "pygt-dist")
    to_next_epoch(dashboard, run)
    assert widget(dashboard, "cache_gib").visible
    assert dashboard.settings.controls["partitioner"].value == "metis"
    click(dashboard, "stop")
    assert dashboard.settings.config() == run.config


def test_a_change_the_run_did_not_live_to_make_is_said_and_stays_for_the_next(dashboard):
    run = started(dashboard)
    choose(dashboard, "system", "pygt-dist")
    click(dashboard, "stop")
    assert entries(dashboard)[0]["note"] == "Not applied: the run ended first."
    assert widget(dashboard, "system").label == "System"
    config = dashboard.settings.config()
    assert (config.system, config["partitioner"]) == ("pygt-dist", "metis")
    assert run.config.system == "adgnn-t"


# measuring


def open_page(shown: Dashboard) -> None:
    """Open the view."""
    shown.open_view("Partition")


def measured(shown: Dashboard, *partitioners: str, parts: int = 2) -> None:
    """Press Measure and wait until every partitioner has an outcome."""
    page = shown.pages["Partition"]
    page.partitioners.value, page.parts.value = list(partitioners), parts
    page.button.clicks += 1
    settle(shown)
    until = time.monotonic() + 60
    while page.status.value.endswith("…"):
        assert time.monotonic() < until, f"still {page.status.value!r}"
        time.sleep(0.01)
        settle(shown)


def test_partitioners_are_measured_and_compared_and_one_is_looked_at(dashboard):
    open_page(dashboard)
    measured(dashboard, "hash", "load_aware", parts=4)
    page = dashboard.pages["Partition"]
    assert page.status.value == "growing in 4 partitions, for tgcn with 1 layer:"
    graph = load_for(dashboard.settings.config())
    for name in ("hash", "load_aware"):
        found = partition_graph(graph, name, 4).measures
        assert f"{found.cut_edges.sum():,} of {found.all_edges.sum():,} edges" in page.table.value, name
        assert f"{found.halo.sum():,} (" in page.table.value, name
    assert page.looked_at.options == ["hash", "load_aware"] and page.looked_at.value == "hash"
    before = page.charts.figures()
    titles = [title_of(figure) for figure in before.values()]
    assert "Rows received" in titles and "Load of the parts" in titles
    assert all(page.charts.captions().values())
    page.looked_at.value = "load_aware"
    settle(dashboard)
    assert page.charts.figures() != before


def test_the_page_begins_at_the_parts_of_the_settings_and_keeps_what_was_measured(dashboard):
    choose(dashboard, "parts", 8)
    assert dashboard.pages["Partition"].parts.value == 8
    measured(dashboard, "hash", parts=4)
    choose(dashboard, "parts", 2)
    assert dashboard.pages["Partition"].parts.value == 4


@pytest.mark.slow
def test_other_data_than_the_settings_can_be_measured(dashboard):
    dashboard.pages["Partition"].data.value = "sbm"
    measured(dashboard, "hash")
    assert dashboard.pages["Partition"].status.value.startswith("sbm in 2 partitions, for ")
    assert dashboard.settings.config().dataset == "growing"


def test_a_partitioner_that_fails_is_told_in_its_row_and_the_others_are_measured(dashboard, monkeypatch, caplog):
    real = partition_graph

    def fails(graph, name, parts, **settings):
        if name == "metis":
            raise PartitionError("METIS died of <signal> 11. Choose another partitioner.")
        if name == "hypergraph":
            raise ZeroDivisionError("a slip")
        return real(graph, name, parts, **settings)

    monkeypatch.setattr(partition_measurer, "partition_graph", fails)
    measured(dashboard, "metis", "hypergraph", "hash", "file")
    table = dashboard.pages["Partition"].table.value
    assert "METIS died of &lt;signal&gt; 11. Choose another partitioner." in table
    assert "ZeroDivisionError: a slip" in table and "ZeroDivisionError" in caplog.text
    assert "partition_file" in table, "partitioner file was given none"
    assert dashboard.pages["Partition"].looked_at.options == ["hash"]


def test_what_cannot_be_asked_is_said_beside_the_button(dashboard, monkeypatch, tmp_path):
    page = dashboard.pages["Partition"]
    measured(dashboard)
    assert page.status.value == "No partitioner is selected. Tick at least one." and not page.table.visible
    choose(dashboard, "power_idle_w", 500.0)
    measured(dashboard, "hash")
    assert "power_idle_w=500 exceeds" in page.status.value
    choose(dashboard, "power_idle_w", 20.0)
    monkeypatch.setenv("DTDG_LAB_DATA", str(tmp_path))
    page.data.value = "stackoverflow"
    measured(dashboard, "hash")
    assert "not on this machine yet" in page.status.value and not page.table.visible


def test_a_graph_that_cannot_be_read_is_told(dashboard, monkeypatch, caplog):
    monkeypatch.setattr(partition_measurer, "load_for", lambda config: 1 // 0)
    measured(dashboard, "hash")
    assert "ZeroDivisionError" in dashboard.pages["Partition"].status.value and "ZeroDivisionError" in caplog.text


def test_measuring_holds_up_neither_page_nor_requests_and_the_newest_request_wins(dashboard, monkeypatch):
    gate, seen, real = threading.Event(), [], partition_graph

    def slow(graph, name, parts, **settings):
        seen.append((name, parts))
        gate.wait(20)
        return real(graph, name, parts, **settings)

    monkeypatch.setattr(partition_measurer, "partition_graph", slow)
    page = dashboard.pages["Partition"]
    for parts in (2, 4):
        page.partitioners.value, page.parts.value = ["hash", "round_robin"], parts
        page.button.clicks += 1
        settle(dashboard)
        while not seen:
            time.sleep(0.005)
    begun = time.monotonic()
    for _ in range(20):
        dashboard.tick()
    assert time.monotonic() - begun < 5 and "measuring" in page.table.value
    click(dashboard, "run")
    assert dashboard.session.current is not None
    gate.set()
    until = time.monotonic() + 60
    while page.status.value.endswith("…"):
        assert time.monotonic() < until
        time.sleep(0.01)
        settle(dashboard)
    assert seen == [("hash", 2), ("hash", 4), ("round_robin", 4)]
    assert {facts.parts for facts in page._measured.values()} == {4}


# the microscope of a run


def test_the_run_is_under_the_microscope_with_what_it_sent_and_before_beside_now(dashboard):
    open_page(dashboard)
    page = dashboard.pages["Partition"]
    run = started(dashboard)
    page.update(slow=True)
    assert page.looked_at.visible and page.looked_at.options == [RUN]
    titles = [title_of(figure) for figure in page.charts.figures().values()]
    assert {"Rows received", "Load of the parts"} <= set(titles)
    before = page.charts.figures()
    choose(dashboard, "partitioner", "hash")
    to_next_epoch(dashboard, run)
    page.update(slow=True)
    assert page.charts.figures() != before
    measured(dashboard, "round_robin")
    assert page.looked_at.options == [RUN, "round_robin"] and page.looked_at.value == RUN


@pytest.mark.slow
def test_a_run_without_parts_has_no_microscope_and_another_runs_one_goes(dashboard):
    open_page(dashboard)
    started(dashboard)
    dashboard.pages["Partition"].update(slow=True)
    assert dashboard.pages["Partition"].charts.figures()
    click(dashboard, "stop")
    choose(dashboard, "system", "psg")
    started(dashboard)
    dashboard.pages["Partition"].update(slow=True)
    assert dashboard.pages["Partition"].charts.figures() == {} and not dashboard.pages["Partition"].looked_at.visible


def test_the_best_of_a_column_is_bold_where_there_are_several():
    graph = load_for(RunConfig(dataset="growing", **SMALL))
    facts = {name: PartitionFacts.read(partition_graph(graph, name, 2).to_dict()) for name in ("hash", "metis")}
    best = min(facts.values(), key=lambda each: each.totals["cut_edges"])
    table = table_html(facts, {"file": "no <file>"}, ["hypergraph"])
    assert table.count("<tr>") == 5 and "no &lt;file&gt;" in table and "measuring" in table
    edges = f"{best.totals['cut_edges']:,.0f} of {best.totals['all_edges']:,.0f} edges"
    assert f'title="{edges}"><b>' in table
    assert "<b>" not in table_html({"hash": facts["hash"]}, {})
