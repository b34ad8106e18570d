"""The catalogue, the record tables and the protocols: data that others rely on."""

from __future__ import annotations

import pytest

from dtdg_lab.core import catalogue, records
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError, UnsupportedError
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.protocols import PROTOCOLS, Protocol

ROOMS = sorted({entry.room for entry in catalogue.ENTRIES})


@pytest.mark.parametrize("room", ROOMS)
def test_entries_are_found_by_name(room: str) -> None:
    for name in catalogue.names(room):
        assert catalogue.entry(room, name).name == name
    assert len(set(catalogue.names(room))) == len(catalogue.names(room))
    with pytest.raises(UnknownNameError, match=f"unknown entry of {room} 'no such name'"):
        catalogue.entry(room, "no such name")


@pytest.mark.parametrize("system", catalogue.SYSTEMS, ids=lambda system: system.name)
def test_systems_are_made_of_entries_and_say_how_they_differ(system: catalogue.System) -> None:
    assert catalogue.system(system.name) is system
    for room, part in system.parts.items():
        assert catalogue.entry(room, part).room == room
    assert "parallel" in system.parts
    assert system.differs_by
    assert set(system.defaults) <= set(OPTIONS)


@pytest.mark.parametrize("entry", catalogue.ENTRIES, ids=lambda entry: f"{entry.room}-{entry.name}")
def test_entries_are_whole(entry: catalogue.Entry) -> None:
    module, colon, attribute = entry.target.partition(":")
    assert (colon, module.split(".")[:2]) == (":", ["dtdg_lab", entry.room])
    assert attribute.isidentifier()
    assert entry.summary.endswith(".")
    assert entry.source
    assert all(OPTIONS[name].owner == entry.room for name in entry.options)
    assert bool(entry.memory) == (entry.room == "models")


@pytest.mark.parametrize("system", catalogue.names("systems"))
def test_a_name_has_one_owner_within_a_system(system: str) -> None:
    for model in catalogue.names("models"):
        for dataset in (*catalogue.names("datasets"), "graph:0123"):
            owners = catalogue.option_owners(system, dataset, model)
            flat = [name for names in owners.values() for name in names]
            assert len(flat) == len(set(flat))
            assert all(OPTIONS[name].owner == room for room, names in owners.items() for name in names)


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
    memory = catalogue.entry("models", model).memory
    if (memory, layout) in catalogue.MEMORY_ON_LAYOUT:
        assert catalogue.check_memory(model, layout)
    else:
        with pytest.raises(UnsupportedError):
            catalogue.check_memory(model, layout)


def test_a_refused_cell_names_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {cell: how for cell, how in catalogue.MEMORY_ON_LAYOUT.items() if cell != ("weights", "single")}
    monkeypatch.setattr(catalogue, "MEMORY_ON_LAYOUT", without)
    with pytest.raises(UnsupportedError, match=r"remembers weights.*'single'.*Layouts that can: snapshot_group"):
        catalogue.check_memory("evolvegcn-o", "single")
    monkeypatch.setattr(catalogue, "MEMORY_ON_LAYOUT", {})
    with pytest.raises(UnsupportedError, match="none yet"):
        catalogue.check_memory("evolvegcn-o", "single")


def test_refusals_of_the_table_are_errors_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "MEMORY_ON_LAYOUT", {("weights", "snapshot_group"): "exact"})
    with pytest.raises(ConfigError, match="cannot carry"):
        RunConfig(model="tgcn")
    assert RunConfig(model="evolvegcn-o").model == "evolvegcn-o"


@pytest.mark.parametrize("name", [*catalogue.names("systems"), *(entry.name for entry in catalogue.ENTRIES)])
def test_describe_says_where_a_thing_comes_from(name: str) -> None:
    text = catalogue.describe(name)
    assert name in text
    assert "source: " in text


def test_describe_of_a_system_names_its_parts() -> None:
    text = catalogue.describe("psg")
    assert "parallel: snapshot_group" in text
    assert "scheduling: round_robin" in text
    with pytest.raises(UnknownNameError, match="Did you mean 'tgcn'"):
        catalogue.describe("tgcm")


@pytest.mark.parametrize("table", records.TABLES)
def test_tables_have_unique_columns(table: str) -> None:
    columns = records.TABLES[table]
    assert columns
    assert len(set(columns)) == len(columns)
    assert not {"rank", "attempt", "seq"} & set(columns)  # they hold for a whole line


def test_steps_have_a_column_for_every_phase() -> None:
    assert len(set(records.PHASES)) == len(records.PHASES)
    assert {f"{phase}_s" for phase in records.PHASES} <= set(records.STEPS)
    assert not set(records.PHASES) & set(records.BETWEEN_STEPS)


def test_meanings_are_of_columns() -> None:
    columns = {column for table in records.TABLES.values() for column in table}
    assert set(records.MEANINGS) <= columns


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


def test_protocols_differ() -> None:
    facts = [
        (one.train_share, one.validation_share, one.test_snapshots, one.purge, one.state, one.strict_label,
         dict(one.settings))
        for one in PROTOCOLS.values()
    ]  # fmt: skip
    assert all(one != other for i, one in enumerate(facts) for other in facts[:i])


@pytest.mark.parametrize("name", ["flare-2026", "dynahb-2024", "esdg-2021", "evolvegcn-2020", "roland-2022", "tgb"])
def test_the_papers_protocols_are_marked_and_bring_their_settings(name: str) -> None:
    protocol = PROTOCOLS[name]
    assert protocol.leaky
    assert protocol.source != "ours"
    config = RunConfig(protocol=name)
    for option, value in protocol.settings.items():
        assert config[option] == value


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
    with pytest.raises(ConfigError, match=r"'collegemsg', which serves regression, link.*cora-t"):
        RunConfig(task="classification")
    assert RunConfig(dataset="cora-t")["task"] == "classification"


@pytest.mark.parametrize("entry", [entry for entry in catalogue.ENTRIES if entry.defaults], ids=lambda e: e.name)
def test_defaults_of_entries_are_allowed_values(entry: catalogue.Entry) -> None:
    for name, value in entry.defaults.items():
        assert OPTIONS[name].check(value) == value
        assert name in (*entry.options, *catalogue.TASK_OPTIONS)
