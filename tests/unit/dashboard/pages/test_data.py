"""What the dashboard offers and shows of data sets: choices with words, defaults, tasks, and the graph's picture."""

from __future__ import annotations

import html
import threading
import time
from pathlib import Path

import pytest

import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.dashboard import choices
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.dashboard.pages import data as graph_loader
from dtdg_lab.dashboard.pages.data import Description, GraphLoader, data_key, describe_data
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.visualization.chart import title_of
from tests.dashboards import choose, click, settle
from tests.pretend_session import PretendSession

SMALL = {"generated_nodes": 40, "generated_edges": 60, "generated_snapshots": 12}


@pytest.fixture
def session():
    return PretendSession(2)


@pytest.fixture
def dashboard(session):
    made = Dashboard(session, RunConfig(dataset="growing", ranks=2, epochs=50, **SMALL))
    yield made
    made.close()


def mine(name: str = "mine", edge_life: int = 1) -> lab.DynamicGraph:
    steps = [t for t in range(30) for _ in range(5)]
    return lab.datasets.from_edges(
        [i % 7 for i in range(150)],
        [(i * 3 + 1) % 7 for i in range(150)],
        steps,
        cut=30,
        name=name,
        edge_life=edge_life,
    )


def drawn(shown: Dashboard, words: str) -> None:
    """Wait until the picture beside the controls says something."""
    until = time.monotonic() + 20
    while words not in shown.graph.picture.value:
        assert time.monotonic() < until, f"the picture says {shown.graph.picture.value!r}"
        time.sleep(0.01)
        settle(shown)


def value(shown: Dashboard, name: str) -> object:
    return shown.settings.controls[name].value


def test_data_sets_are_offered_in_groups_by_where_they_come_from(dashboard, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("DTDG_LAB_DATA", str(tmp_path))
    (tmp_path / "CollegeMsg.txt.gz").write_bytes(b"")
    groups = choices.dataset_choices()
    assert list(groups) == [choices.HERE, choices.GENERATED, choices.DOWNLOAD]
    assert list(groups[choices.HERE]) == ["collegemsg"]
    assert {"growing", "sbm", "transactions"} <= set(groups[choices.GENERATED])
    assert "slashdot" in groups[choices.DOWNLOAD]
    offered = [name for group in groups.values() for name in group.values()]
    assert sorted(offered) == sorted(catalogue.names("datasets"))
    assert set(dashboard.settings.controls["dataset"].widget.values) == set(catalogue.names("datasets"))


def pick(settings: Settings, name: str, value: str) -> str:
    """Choose; the note under the choice."""
    settings.controls[name].widget.value = value
    return html.unescape(settings.notes[name].value)


@pytest.fixture
def settings() -> Settings:
    return Settings(2, RunConfig(dataset="growing", ranks=2, epochs=50, **SMALL), lambda name, value: None)


@pytest.mark.slow
def test_every_data_set_can_be_chosen_and_says_what_it_is(settings) -> None:
    for dataset in catalogue.names("datasets"):
        entry = catalogue.entry("datasets", dataset)
        assert entry.summary.split()[0] in pick(settings, "dataset", dataset), dataset
        assert settings.config().dataset == dataset
        assert list(settings.controls["task"].widget.options) == list(catalogue.tasks_of(dataset)), dataset


@pytest.mark.slow
def test_every_model_says_what_it_is(settings) -> None:
    for model in catalogue.names("models"):
        assert html.unescape(catalogue.entry("models", model).summary) in pick(settings, "model", model)
        assert settings.config().model == model


def test_a_protocol_says_what_it_means_and_brings_its_settings(settings) -> None:
    pick(settings, "dataset", "collegemsg")
    for protocol in sorted(PROTOCOLS):
        assert PROTOCOLS[protocol].meaning[1:] in pick(settings, "protocol", protocol)
        config = settings.config()
        assert config.protocol == protocol
        assert {name: config[name] for name in PROTOCOLS[protocol].settings} == dict(PROTOCOLS[protocol].settings)
        assert config == RunConfig(dataset="collegemsg", protocol=protocol, ranks=2, epochs=50)


def test_what_a_choice_brought_goes_when_it_goes(dashboard) -> None:
    choose(dashboard, "dataset", "slashdot")
    assert (value(dashboard, "cut"), value(dashboard, "edge_life"), value(dashboard, "min_edges")) == (200, 31, 51)
    choose(dashboard, "protocol", "flare-2026")
    assert (value(dashboard, "features"), value(dashboard, "norm")) == ("degrees", "in_out")
    choose(dashboard, "dataset", "collegemsg")
    assert (value(dashboard, "cut"), value(dashboard, "edge_life")) == (0, 1)
    assert value(dashboard, "min_edges") == 51, "flare-2026 brings it as well"
    choose(dashboard, "protocol", "warm")
    assert (value(dashboard, "min_edges"), value(dashboard, "features")) == (0, "log_degrees")
    assert dashboard.settings.config() == RunConfig(dataset="collegemsg", ranks=2, epochs=50)


def test_what_a_person_set_stays_when_other_choices_change(dashboard) -> None:
    choose(dashboard, "hidden", 77)
    choose(dashboard, "edge_life", 4)
    choose(dashboard, "dataset", "collegemsg")
    choose(dashboard, "model", "dcrnn")
    assert (value(dashboard, "hidden"), value(dashboard, "edge_life")) == (77, 4)


def test_link_settings_show_only_where_links_are_learned(dashboard) -> None:
    controls = dashboard.settings.controls
    assert not controls["negatives"].widget.visible
    choose(dashboard, "task", "link")
    assert controls["negatives"].widget.visible and controls["link_head"].widget.visible
    choose(dashboard, "task", "regression")
    assert not controls["link_head"].widget.visible


def test_a_task_that_the_new_data_set_does_not_serve_is_left(dashboard) -> None:
    choose(dashboard, "dataset", "sbm")
    choose(dashboard, "task", "classification")
    choose(dashboard, "dataset", "collegemsg")
    assert value(dashboard, "task") == "regression"
    dashboard.settings.config()


def test_a_graph_of_ones_own_is_offered_by_its_name_and_trained_on(session) -> None:
    shown = Dashboard(session, RunConfig(dataset=mine("my friends"), ranks=2))
    control = shown.settings.controls["dataset"]
    assert control.value.startswith("graph:")
    assert list(control.widget.groups[choices.OWN]) == [f"my friends ({control.value[6:14]})"]
    assert "given in memory" in shown.settings.notes["dataset"].value
    assert list(shown.settings.controls["task"].widget.options) == ["regression", "link"]
    drawn(shown, "29 snapshots, 7 nodes")
    click(shown, "run")
    assert session.current.config.dataset == control.value
    click(shown, "stop")
    choose(shown, "dataset", "growing")
    choose(shown, "dataset", control.widget.values[-1])
    assert shown.settings.config().dataset == control.value
    shown.close()


def test_a_stored_graph_that_is_gone_is_named_and_does_not_break_the_page(session) -> None:
    shown = Dashboard(session, RunConfig(dataset="graph:0123456789abcdef", ranks=2))
    assert "not on this machine" in next(iter(shown.settings.controls["dataset"].widget.groups[choices.OWN]))
    drawn(shown, "is not stored in")
    shown.close()


def test_the_picture_follows_the_choice_and_the_page_has_four_charts(dashboard) -> None:
    drawn(dashboard, "11 snapshots, 40 nodes")
    assert "<svg" in dashboard.graph.picture.value
    dashboard.open_view("Data")
    titles = [title_of(figure) for figure in dashboard.graph.figures().values()]
    assert len(titles) == 4 and all(titles)
    choose(dashboard, "generated_snapshots", 20)
    drawn(dashboard, "19 snapshots")
    assert all(caption for caption in dashboard.graph.captions().values())


def test_what_is_not_here_or_too_large_is_not_read_only_to_be_drawn(dashboard, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("DTDG_LAB_DATA", str(tmp_path))
    monkeypatch.setattr(graph_loader, "load_for", lambda config: pytest.fail("it was loaded"))
    for config, words in (
        (RunConfig(dataset="stackoverflow"), "not on this machine yet"),
        (RunConfig(dataset="growing", generated_edges=1_000_000, generated_nodes=10_000), "50,000,000 edges"),
        (RunConfig(dataset="growing", edge_life=40, generated_edges=40_000), "2,000,000 edges that live 40"),
    ):
        assert words in describe_data(config).why_not
    choose(dashboard, "dataset", "stackoverflow")
    drawn(dashboard, "No chart: not on this machine yet")
    figure = dashboard.graph.figures()["size"]
    assert "not on this machine" in figure["layout"]["annotations"][0]["text"] and figure["data"] == []
    assert set(dashboard.graph.captions().values()) == {""}


@pytest.mark.slow
def test_a_graph_that_takes_long_does_not_hold_up_the_page_and_an_old_one_is_not_shown(session, monkeypatch) -> None:
    gate, real = threading.Event(), graph_loader.load_for

    def slow(config: RunConfig) -> lab.DynamicGraph:
        gate.wait(20)
        return real(config)

    monkeypatch.setattr(graph_loader, "load_for", slow)
    shown = Dashboard(session, RunConfig(dataset="growing", ranks=2, **SMALL))
    begun = time.monotonic()
    for _ in range(20):
        shown.tick()
    choose(shown, "generated_nodes", 50)
    assert time.monotonic() - begun < 5 and "reading" in shown.graph.picture.value
    gate.set()
    drawn(shown, "11 snapshots, 50 nodes")
    shown.close()


def test_the_graph_is_looked_at_again_once_a_run_has_brought_it(dashboard, session, monkeypatch) -> None:
    monkeypatch.setattr(graph_loader, "why_not", lambda config: "not on this machine yet")
    choose(dashboard, "generated_nodes", 44)
    drawn(dashboard, "not on this machine yet")
    monkeypatch.setattr(graph_loader, "why_not", lambda config: "")
    click(dashboard, "run")
    session.current.advance(2)
    drawn(dashboard, "44 nodes")


def test_the_loader_passes_over_what_was_asked_before_the_newest(monkeypatch) -> None:
    gate, seen, done = threading.Event(), [], []

    def describe_slowly(config: RunConfig) -> Description:
        seen.append(config.seed)
        gate.wait(20)
        return Description(config, why_not="no")

    monkeypatch.setattr(graph_loader, "describe_data", describe_slowly)
    loader = GraphLoader(lambda described: done.append(described.config.seed))
    configs = [RunConfig(dataset="growing", seed=seed) for seed in range(5)]
    loader.ask(configs[0])
    while not seen:
        time.sleep(0.005)
    for config in configs[1:]:
        loader.ask(config)
    gate.set()
    until = time.monotonic() + 20
    while len(done) < 2 and time.monotonic() < until:
        time.sleep(0.005)
    assert seen == done == [0, 4]
    loader.close()


def test_an_error_while_reading_is_told(caplog, monkeypatch) -> None:
    monkeypatch.setattr(graph_loader, "load_for", lambda config: 1 // 0)
    done: list[Description] = []
    loader = GraphLoader(done.append)
    loader.ask(RunConfig(dataset="growing"))
    until = time.monotonic() + 20
    while not done and time.monotonic() < until:
        time.sleep(0.005)
    assert "ZeroDivisionError" in done[0].why_not and "ZeroDivisionError" in caplog.text
    loader.close()


def test_equal_data_is_known_whatever_else_differs() -> None:
    config = RunConfig(dataset="growing", seed=1)
    assert data_key(config) == data_key(config.replace(hidden=8, model="dcrnn", epochs=9))
    assert data_key(config) != data_key(config.replace(seed=2))
    assert data_key(config) != data_key(config.replace(protocol="leaky"))
    assert data_key(RunConfig(seed=1)) == data_key(RunConfig(seed=2)), "the seed does not enter files"


@pytest.mark.slow
def test_a_graphs_file_on_this_machine_is_drawn(real_data: Path, session, monkeypatch) -> None:
    monkeypatch.setenv("DTDG_LAB_DATA", str(real_data))
    shown = Dashboard(session, RunConfig(dataset="collegemsg", ranks=2))
    drawn(shown, "88 snapshots, 1,899 nodes")
    shown.close()
