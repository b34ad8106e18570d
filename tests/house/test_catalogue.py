"""The catalogue is true: targets load, options have owners that use them, and ALGORITHMS.md says the same."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import memory
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records import events
from tests.algorithms import render

ROOT = Path(__file__).resolve().parents[2]
MODELS, DATASETS, SYSTEMS = catalogue.names("models"), catalogue.names("datasets"), catalogue.names("systems")


@pytest.mark.parametrize("entry", catalogue.ENTRIES, ids=lambda entry: f"{entry.kind}-{entry.name}")
def test_every_target_loads_and_names_a_file_of_the_package(entry: catalogue.Entry) -> None:
    assert entry.target.startswith("dtdg_lab.")
    assert entry.load() is not None
    assert entry.summary.endswith(".")
    assert entry.source


def test_names_are_unique_within_a_kind() -> None:
    keys = [(entry.kind, entry.name) for entry in catalogue.ENTRIES]
    assert len(set(keys)) == len(keys)
    assert len(set(SYSTEMS)) == len(SYSTEMS)


def test_every_option_named_by_an_entry_is_in_the_glossary() -> None:
    named = {name for entry in catalogue.ENTRIES for name in entry.options}
    assert named | {*catalogue.TRAINING_OPTIONS, *catalogue.ENERGY_OPTIONS} <= set(OPTIONS)


def test_every_option_has_an_owner_that_uses_it() -> None:
    used: dict[str, set[str]] = {}
    for system, dataset, model in product(SYSTEMS, DATASETS, MODELS):
        for kind, names in catalogue.option_owners(system, dataset, model).items():
            for name in names:
                used.setdefault(name, set()).add(kind)
    for name, option in OPTIONS.items():
        if option.owner == "run":
            assert name in RunConfig.model_fields, f"{name} belongs to the run, which has no such field"
        else:
            assert used.get(name) == {option.owner}, f"{name} is {option.owner}'s, used by {used.get(name)}"


@pytest.mark.parametrize("system", catalogue.SYSTEMS, ids=lambda system: system.name)
def test_systems_are_made_of_entries_and_make_a_config(system: catalogue.System) -> None:
    for kind, name in system.parts.items():
        assert catalogue.entry(kind, name).name == name
    assert set(system.defaults) <= set(OPTIONS)
    assert "parallel" in system.parts
    assert system.differs_by
    config = RunConfig(system=system.name)
    assert RunConfig.from_json(config.to_json()) == config


def test_no_system_is_an_alias_of_another() -> None:
    made_of = [
        (tuple(sorted(system.parts.items())), tuple(sorted(system.defaults.items()))) for system in catalogue.SYSTEMS
    ]
    assert len(set(made_of)) == len(made_of)


def test_memory_table_speaks_of_every_memory_and_layout() -> None:
    memories = {memory(name) for name in MODELS}
    assert {carried for carried, _ in catalogue.MEMORY_ON_LAYOUT} == memories
    assert {layout for _, layout in catalogue.MEMORY_ON_LAYOUT} == set(catalogue.names("parallel"))


def test_scheduler_choices_are_the_catalogue_s() -> None:
    assert OPTIONS["scheduler"].choices == catalogue.names("scheduling")


def test_algorithms_md_is_up_to_date() -> None:
    assert (ROOT / "ALGORITHMS.md").read_text() == render(), "stale: run `make algorithms`"


def test_algorithms_md_links_to_files_there_are() -> None:
    for entry in catalogue.ENTRIES:
        file = entry.target.partition(":")[0].replace(".", "/") + ".py"
        assert f"]({file})" in render()
        assert (ROOT / file).is_file()


def test_no_two_events_share_a_kind() -> None:
    """The charts of all families read a run's events by their kinds."""
    shared = [of for of in vars(events).values() if isinstance(of, type) and issubclass(of, events.Event) and of.kind]
    declared = {catalogue.load(event) for family in catalogue.families() for event in family.events}
    kinds = [event.kind for event in {*shared, *declared}]
    assert len(kinds) > 10 and sorted(set(kinds)) == sorted(kinds)


@pytest.mark.parametrize(("row", "kind"), [("Models", "models"), ("Schedulers", "scheduling")])
def test_the_quickstart_lists_the_names_of_the_catalogue(row: str, kind: str) -> None:
    text = (ROOT / "docs" / "quickstart.md").read_text()
    (names,) = re.findall(rf"^\| {row} \| `([^`]*)`", text, re.M)
    assert set(names.split()) == set(catalogue.names(kind))
