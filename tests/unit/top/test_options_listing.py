"""``lab.options`` lists the settings of a system, and ``lab.describe`` answers for one of them."""

from __future__ import annotations

import pytest

import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import UnknownNameError


@pytest.mark.parametrize("system", catalogue.names("systems"))
def test_it_lists_what_a_config_of_the_system_takes_with_its_defaults(system: str) -> None:
    config = RunConfig(system=system, dataset="growing", parts=1 if system in ("single", "pipad") else 2)
    listed = {row["name"]: row for row in lab.options(system, dataset="growing").rows}
    assert set(listed) == set(config.flat) - {"system", "dataset", "model", "protocol"}
    assert {name: row["default"] for name, row in listed.items() if name != "parts"} == {
        name: config[name] for name in listed if name != "parts"
    }


def test_a_row_says_what_a_setting_means_and_takes() -> None:
    frame = lab.options("flaredtdg").to_pandas().set_index("name")
    assert list(frame.columns) == ["meaning", "unit", "allowed", "default", "takes_effect"]
    assert frame.loc["alpha", "meaning"] == OPTIONS["alpha"].meaning
    assert frame.loc["alpha", "takes_effect"] == "next step"
    assert frame.loc["partitioner", "takes_effect"] == "next epoch"
    assert frame.loc["optimizer", "allowed"].startswith("one of ")
    assert "alpha" not in lab.options("psg").to_pandas()["name"].tolist()
    assert frame.loc["epochs", "unit"] == "epochs" and "(epochs)" not in frame.loc["epochs", "allowed"]


def test_it_shows_itself_as_text_and_as_a_table() -> None:
    listed = lab.options("flaredtdg")
    assert str(listed) == repr(listed)
    assert OPTIONS["alpha"].meaning in str(listed)
    page = listed._repr_html_()
    assert page.startswith("<table") and page.count("<tr") == len(listed.rows) + 1
    assert max((row["meaning"] for row in listed.rows), key=len).split("; ")[-1][-20:] in page, "no meaning is cut"


def test_a_system_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="psg"):
        lab.options("psgg")


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
