"""The catalogue, the record tables and the protocols: data that others rely on."""

from __future__ import annotations

import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS, Protocol
from dtdg_lab.config.description import describe
from dtdg_lab.config.model_facts import check_memory, memory
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError, UnsupportedError
from dtdg_lab.graphs.split import split

KINDS = sorted({entry.kind for entry in catalogue.ENTRIES})


@pytest.mark.parametrize("kind", KINDS)
def test_entries_are_found_by_name(kind: str) -> None:
    for name in catalogue.names(kind):
        assert catalogue.entry(kind, name).name == name
    assert len(set(catalogue.names(kind))) == len(catalogue.names(kind))
    with pytest.raises(UnknownNameError, match=r"Unknown .* 'no such name'"):
        catalogue.entry(kind, "no such name")


@pytest.mark.parametrize("system", catalogue.SYSTEMS, ids=lambda system: system.name)
def test_systems_are_made_of_entries_and_say_how_they_differ(system: catalogue.System) -> None:
    assert catalogue.system(system.name) is system
    for kind, part in system.parts.items():
        assert catalogue.entry(kind, part).kind == kind
    assert "parallel" in system.parts
    assert system.differs_by
    assert set(system.defaults) <= set(OPTIONS)


@pytest.mark.parametrize("entry", catalogue.ENTRIES, ids=lambda entry: f"{entry.kind}-{entry.name}")
def test_entries_are_whole(entry: catalogue.Entry) -> None:
    module, colon, attribute = entry.target.partition(":")
    assert (colon, module.split(".")[0]) == (":", "dtdg_lab")
    assert attribute.isidentifier()
    assert entry.summary.endswith(".")
    assert entry.source
    assert all(OPTIONS[name].owner == entry.kind for name in entry.options)


@pytest.mark.parametrize("system", catalogue.names("systems"))
def test_a_name_has_one_owner_within_a_system(system: str) -> None:
    for model in catalogue.names("models"):
        for dataset in (*catalogue.names("datasets"), "graph:0123"):
            owners = catalogue.option_owners(system, dataset, model)
            flat = [name for names in owners.values() for name in names]
            assert len(flat) == len(set(flat))
            assert all(OPTIONS[name].owner == kind for kind, names in owners.items() for name in names)


def test_every_option_is_read_by_some_system() -> None:
    read = {
        name
        for system in catalogue.names("systems")
        for model in catalogue.names("models")
        for dataset in catalogue.names("datasets")
        for names in catalogue.option_owners(system, dataset, model).values()
        for name in names
    }
    assert {name for name, option in OPTIONS.items() if option.owner != "run"} == read


@pytest.mark.parametrize("model", catalogue.names("models"))
@pytest.mark.parametrize("layout", catalogue.names("parallel"))
def test_every_cell_of_the_memory_table_is_kept_or_refused(model: str, layout: str) -> None:
    if (memory(model), layout) in catalogue.MEMORY_ON_LAYOUT:
        assert check_memory(model, layout)
    else:
        with pytest.raises(UnsupportedError):
            check_memory(model, layout)


def test_a_refused_cell_names_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {cell: how for cell, how in catalogue.MEMORY_ON_LAYOUT.items() if cell != ("weights", "single")}
    monkeypatch.setattr(catalogue, "MEMORY_ON_LAYOUT", without)
    with pytest.raises(UnsupportedError, match=r"memory is 'weights', .* 'single' .*Compatible systems: pipad, psg"):
        check_memory("evolvegcn-o", "single")
    monkeypatch.setattr(catalogue, "MEMORY_ON_LAYOUT", {})
    with pytest.raises(UnsupportedError, match="none yet"):
        check_memory("evolvegcn-o", "single")


def test_refusals_of_the_table_are_errors_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "MEMORY_ON_LAYOUT", {("weights", "snapshot_group"): "exact"})
    with pytest.raises(ConfigError, match="does not work with"):
        RunConfig(model="tgcn")
    assert RunConfig(model="evolvegcn-o").model == "evolvegcn-o"


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda protocol: protocol.name)
def test_protocols_leave_something_on_every_side(protocol: Protocol) -> None:
    assert PROTOCOLS[protocol.name] is protocol
    assert 0 < protocol.train_share < 1
    assert 0 <= protocol.validation_share < 1
    assert set(protocol.settings) <= set(OPTIONS)
    for name, value in protocol.settings.items():
        assert OPTIONS[name].check(value) == value
    assert protocol.state in ("warm", "cold")
    assert protocol.meaning


CUT = {"features": "degrees", "drop_first": True, "min_edges": 51}
LINKS = {"drop_partial": True, "task": "link", "negatives": 1}
NORM = {"norm": "in", "self_loops": True}
PRESETS = {  # as FIELD.md 3.2 to 3.4 has them: train share, validation share, test snapshots, state, settings
    "flare-2026": (0.4, 0.0, 0, "warm", {**CUT, "norm": "in_out", "self_loops": False}),
    "dynahb-2024": (0.4, 0.0, 0, "cold", {**CUT, **NORM}),
    "esdg-2021": (
        *(0.4, 0.0, 1, "warm"),
        {**LINKS, **NORM, "features": "degrees", "link_share": 0.1, "link_head": "concat"},
    ),
    "evolvegcn-2020": (
        *(0.8, 0.125, 0, "warm"),
        {**LINKS, **NORM, "features": "one_hot_degree", "link_share": 1.0, "link_head": "concat"}
        | {"negatives": 100, "ranking_negatives": 1000},
    ),
    "roland-2022": (
        *(0.8, 0.125, 0, "warm"),
        {**LINKS, **NORM, "features": "constant", "link_share": 1.0, "link_head": "dot", "ranking_negatives": 1000},
    ),
    "tgb": (*(0.85, 15 / 85, 0, "warm"), {**LINKS, "link_share": 1.0, "link_head": "dot", "ranking_negatives": 100}),
}


@pytest.mark.parametrize("name", PRESETS)
def test_the_papers_protocols_are_what_is_known_of_them(name: str) -> None:
    protocol = PROTOCOLS[name]
    found = (
        protocol.train_share,
        protocol.validation_share,
        protocol.test_snapshots,
        protocol.state,
        dict(protocol.settings),
    )
    assert found == PRESETS[name]
    assert protocol.leaky
    assert not protocol.strict_label
    assert protocol.source != "ours"
    config = RunConfig(protocol=name)
    assert {option: config[option] for option in PRESETS[name][4]} == PRESETS[name][4]
    assert protocol.meaning in describe(name)


@pytest.mark.parametrize(
    ("name", "train", "validation", "test"),
    [
        ("flare-2026", (0, 40), 0, (40, 100)),
        ("dynahb-2024", (0, 40), 0, (40, 100)),
        ("esdg-2021", (0, 99), 0, (99, 100)),
        ("evolvegcn-2020", (0, 70), 10, (80, 100)),
        ("roland-2022", (0, 70), 10, (80, 100)),
        ("tgb", (0, 70), 15, (85, 100)),
    ],
)
def test_the_papers_protocols_split_a_hundred_snapshots(
    name: str, train: tuple[int, int], validation: int, test: tuple[int, int]
) -> None:
    parts = split(100, 5, PROTOCOLS[name])
    assert (parts.train, len(parts.validation), parts.test) == (range(*train), validation, range(*test))


@pytest.mark.parametrize("name", ["chickenpox", "cora-t"])
def test_a_data_set_with_features_of_its_own_keeps_them_under_every_protocol(name: str) -> None:
    config = RunConfig(dataset=name, protocol="dynahb-2024")
    assert config["features"] == "given"
    assert config["task"] == ("classification" if name == "cora-t" else "regression")


def test_given_values_win_over_a_protocol_s_and_its_defaults_leave_with_it() -> None:
    config = RunConfig(protocol="esdg-2021", features="constant")
    assert (config["features"], config["task"]) == ("constant", "link")
    other = config.replace(protocol="warm")
    assert (other["features"], other["task"]) == ("constant", "regression")


def test_a_data_set_brings_its_cut_and_takes_it_along() -> None:
    config = RunConfig(dataset="slashdot")
    assert (config["cut"], config["edge_life"], config["min_edges"], config["drop_first"]) == (200, 31, 51, True)
    assert config.replace(dataset="collegemsg")["cut"] == 0
    assert config.replace(edge_life=3).replace(dataset="collegemsg")["edge_life"] == 3


def test_a_task_without_labels_is_refused_with_the_data_sets_that_have_them() -> None:
    with pytest.raises(ConfigError, match=r"'collegemsg', which supports regression, link.*cora-t"):
        RunConfig(task="classification")
    assert RunConfig(dataset="cora-t")["task"] == "classification"


@pytest.mark.parametrize("entry", [entry for entry in catalogue.ENTRIES if entry.defaults], ids=lambda e: e.name)
def test_defaults_of_entries_are_allowed_values(entry: catalogue.Entry) -> None:
    for name, value in entry.defaults.items():
        assert OPTIONS[name].check(value) == value
        assert name in (*entry.options, *catalogue.TASK_OPTIONS)


@pytest.mark.parametrize("task", catalogue.names("tasks"))
def test_the_catalogue_says_what_the_class_says(task: str) -> None:
    entry = catalogue.entry("tasks", task)
    kind = entry.load()
    assert (entry.needs, entry.per_vertex) == (kind.needs, kind.per_vertex)
    assert (entry.loss, entry.metrics) == (kind.loss_name, kind.main_metrics)


def test_three_strategies_never_have_all_nodes() -> None:
    assert [entry.name for entry in catalogue.entries("parallel") if not entry.all_nodes] == [
        "cached_vertex",
        "sampled_window",
        "remote_feature",
    ]
