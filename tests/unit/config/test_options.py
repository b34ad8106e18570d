"""The glossary: bounds, types and choices of every option."""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS, Option, option
from dtdg_lab.config.registration import register
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.systems.base import SystemFamily
from tests.registrations import registered_apart

WHOLE = Option(name="whole", owner="test", kind=int, default=2, low=1, high=9, meaning="A number.", unit="things")
REAL = Option(name="real", owner="test", kind=float, default=0.5, low=0.0, high=1.0, meaning="A share.")
WORD = Option(name="word", owner="test", kind=str, default="adam", choices=("adam", "sgd"), meaning="A rule.")
SWITCH = Option(name="switch", owner="test", kind=bool, default=False, meaning="On or off.")
GLOSSARY = tuple(OPTIONS.values())
NUMBERS = [one for one in GLOSSARY if one.kind in (int, float)]


@pytest.mark.parametrize("one", GLOSSARY, ids=lambda one: one.name)
def test_every_entry_is_whole(one: Option) -> None:
    assert one.check(one.default) == one.default
    assert type(one.default) is one.kind
    assert one.meaning.endswith(".")
    assert one.allowed
    assert one.live in ("step", "epoch", "no")
    if one.kind is str:
        lists = all(word.replace(".", "").isdigit() for word in one.default.split())
        assert one.choices or lists  # a path may be anything; so may a list of numbers


@pytest.mark.parametrize("one", NUMBERS, ids=lambda one: one.name)
def test_bounds_hold_on_both_sides(one: Option) -> None:
    for bound, beyond in ((one.low, -1), (one.high, 1)):
        assert one.check(bound) == bound
        with pytest.raises(ConfigError, match=f"{one.name}=.*out of range: allowed"):
            one.check(one.kind(bound + beyond))


@pytest.mark.parametrize("one", NUMBERS, ids=lambda one: one.name)
@pytest.mark.parametrize("value", [True, False, None, "1", math.nan, math.inf, [1], 1j, np.bool_(True)])
def test_what_is_no_number_is_refused(one: Option, value: object) -> None:
    with pytest.raises(ConfigError, match=one.name):
        one.check(value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"slider": (0.0,)},
        {"slider": (0.0, 0.5, 1.0)},
        {"slider": (1.0, 0.0)},
        {"slider": (0.0, 2.0)},
        {"slider": (0.6, 1.0)},
        {"logarithmic": True},
        {"slider": (0.0, 1.0), "logarithmic": True},
        {"slider": (0.1, 1.0), "kind": bool},
        {"slider": (0.1, 1.0), "kind": int, "logarithmic": True},
    ],
)
def test_a_slider_that_does_not_fit_the_option_is_refused(wrong: dict[str, object]) -> None:
    assert replace(REAL, slider=(0.1, 1.0), logarithmic=True).logarithmic
    with pytest.raises(ConfigError, match=r"option real: .*slider"):
        replace(REAL, **wrong)


@pytest.mark.parametrize("one", [one for one in GLOSSARY if one.choices], ids=lambda one: one.name)
def test_choices_are_closed(one: Option) -> None:
    for choice in one.choices:
        assert one.check(choice) == choice
    with pytest.raises(UnknownNameError, match=f"value of {one.name}"):
        one.check("no such choice")
    switch = {"on", "off"} <= set(one.choices)
    assert not switch or (one.check(True), one.check(False)) == ("on", "off")
    for value in (1, None, ["adam"], *([] if switch else [True])):
        with pytest.raises(ConfigError):
            one.check(value)


@pytest.mark.parametrize("value", [0, 1, "True", None, 0.0])
def test_a_switch_is_true_or_false(value: object) -> None:
    assert SWITCH.check(True) is True
    with pytest.raises(ConfigError, match="True or False"):
        SWITCH.check(value)


@given(st.integers(-100, 100))
def test_whole_numbers_within_bounds_pass_in_any_form(value: int) -> None:
    for given_as in (value, float(value), np.int32(value), np.float64(value)):
        if 1 <= value <= 9:
            checked = WHOLE.check(given_as)
            assert checked == value
            assert type(checked) is int
        else:
            with pytest.raises(ConfigError, match="from 1 to 9"):
                WHOLE.check(given_as)


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_checked_number_is_finite_and_within_bounds(value: float) -> None:
    try:
        checked = REAL.check(value)
    except ConfigError:
        assert not 0.0 <= value <= 1.0
    else:
        assert checked == value
        assert 0.0 <= checked <= 1.0


@given(st.floats(1.0, 9.0).filter(lambda value: not value.is_integer()))
def test_a_broken_number_is_no_whole_number(value: float) -> None:
    with pytest.raises(ConfigError, match="whole number"):
        WHOLE.check(value)


def test_what_is_allowed_is_said_in_words() -> None:
    assert WHOLE.allowed == "a whole number from 1 to 9 (things)"
    assert REAL.allowed == "a number from 0 to 1"
    assert WORD.allowed == "one of adam, sgd"
    assert option("seed").allowed == "a whole number from 0 to 9007199254740992"


def test_names_are_unique_and_looked_up() -> None:
    declared = [kind for each in catalogue.DECLARED.values() for kind in each.get("options", {}).values()]
    assert max(Counter(name for kind in declared for name in kind).values()) == 1, "no file replaces another's"
    assert all(option(name) is one and one.name == name for name, one in OPTIONS.items())
    with pytest.raises(UnknownNameError, match="Did you mean 'group_window'"):
        option("groupwindow")


def test_a_family_adds_its_options_and_replaces_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Adds(SystemFamily):
        name, options = "adds", (WHOLE, REAL)

    class Replaces(SystemFamily):
        name, options = "replaces", (WORD, replace(WHOLE, name="seed"))

    families = SimpleNamespace(ADDS=Adds(), REPLACES=Replaces())
    monkeypatch.setitem(sys.modules, "families_of_a_test", families)
    with registered_apart():
        before = dict(OPTIONS)
        with pytest.raises(ConfigError, match="there is another option 'seed'"):
            register("families_of_a_test:REPLACES")
        assert before == OPTIONS, "all of a family's options are added, or none"
        for _ in range(2):
            assert register("families_of_a_test:ADDS") is families.ADDS
            assert {**before, "whole": WHOLE, "real": REAL} == OPTIONS
            assert option("whole") is WHOLE and option("seed") is OPTIONS["seed"]


def test_choices_follow_the_catalogue() -> None:
    assert option("scheduler").choices == catalogue.names("scheduling")


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
