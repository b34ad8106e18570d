"""Names of runs tell them apart, by words."""

from __future__ import annotations

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.visualization.run_names import differing_names, run_title, setting_text, system_title

FLARE = RunConfig(system="flaredtdg", dataset="growing", ranks=2)


def test_a_run_is_called_by_its_system_and_data():
    assert run_title(FLARE) == "FlareDTDG on growing"
    assert run_title(FLARE.replace(system="dygnex-l")) == "DyGNeX-L on growing"
    assert system_title("single") == "Single process"


def test_runs_that_are_compared_say_what_differs():
    esdg = RunConfig(system="esdg", dataset="growing", ranks=2)
    assert differing_names([FLARE, esdg]) == ["FlareDTDG", "ESDG"]
    assert differing_names([FLARE, FLARE.replace(learning_rate=0.003)]) == [
        "FlareDTDG, learning rate 0.001",
        "FlareDTDG, learning rate 0.003",
    ]
    assert differing_names([FLARE, FLARE.replace(seed=1)]) == ["FlareDTDG, seed 0", "FlareDTDG, seed 1"]
    assert differing_names([FLARE, FLARE]) == ["FlareDTDG", "FlareDTDG (2)"]
    assert differing_names([FLARE, FLARE], ["", "mine"]) == ["FlareDTDG", "mine"]
    other_data = RunConfig(system="flaredtdg", dataset="collegemsg", ranks=2)
    assert differing_names([FLARE, other_data])[1].startswith("FlareDTDG, collegemsg")


def test_at_most_two_settings_stand_in_a_name():
    many = FLARE.replace(learning_rate=0.003, hidden=8, epochs=7, alpha=0.5)
    assert differing_names([FLARE, many])[1].endswith(", +2 more")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("parts", 4, "4 parts"),
        ("epochs", 5, "5 epochs"),
        ("alpha", 0.1, "alpha 0.1"),
        ("learning_rate", 0.003, "learning rate 0.003"),
        ("system", "greendygnn", "system GreenDyGNN"),
    ],
)
def test_settings_read_as_words(name, value, text):
    assert setting_text(name, value) == text
