"""``lab.describe`` answers for systems, entries and options."""

from __future__ import annotations

import pytest

import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.config.description import describe
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.core.errors import UnknownNameError


@pytest.mark.parametrize("name", [*catalogue.names("systems"), *(entry.name for entry in catalogue.ENTRIES)])
def test_describe_says_where_a_thing_comes_from(name: str) -> None:
    text = describe(name)
    assert name in text
    assert "source: " in text


def test_describe_of_a_system_names_its_parts() -> None:
    text = describe("psg")
    assert "parallel: snapshot_group" in text
    assert "scheduling: round_robin" in text
    with pytest.raises(UnknownNameError, match="Did you mean 'tgcn'"):
        describe("tgcm")


def test_describe_answers_for_options() -> None:
    text = lab.describe("alpha")
    for part in (OPTIONS["alpha"].meaning, OPTIONS["alpha"].allowed, "default: ", "next step", "flaredtdg"):
        assert part in text
    assert "read by: every system" in lab.describe("learning_rate")
    assert "model tgcn" in lab.describe("gc_layers")
    assert "unit: epochs" in lab.describe("epochs")
    assert "'dygnex_greedy' for dygnex-g" in lab.describe("scheduler"), "defaults of systems that differ"


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_can_be_described(name: str) -> None:
    assert f"option {name}: {OPTIONS[name].meaning}" in lab.describe(name)


def test_a_misspelt_option_is_told_from_its_neighbour() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'learning_rate'"):
        lab.describe("learning_rat")
