"""A lesson's question: what was predicted is kept, and told beside what came out."""

from __future__ import annotations

import pytest

from dtdg_lab.core.errors import ConfigError, PredictionError, UnknownNameError
from dtdg_lab.lessons.checks import Prediction, predicted

QUESTION, CHOICES = "Which <one>?", ("hash", "metis")


def test_a_prediction_is_told_beside_what_came_out() -> None:
    asked = Prediction(QUESTION, CHOICES)
    assert asked.value is None and "none yet" in repr(asked)
    asked.guess("hash")
    assert asked.reveal("metis") == "Which <one>? It is metis; you predicted hash."
    assert asked.reveal("hash") == "Which <one>? It is hash, as you predicted."


@pytest.fixture(autouse=True)
def a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DTDG_LAB_FAST", "DTDG_LAB_UNATTENDED"):
        monkeypatch.delenv(name, raising=False)


def test_nothing_is_revealed_before_it_is_predicted() -> None:
    asked = Prediction(QUESTION, CHOICES)
    with pytest.raises(PredictionError, match=r"No prediction yet: Which <one>\? First click a choice, then run this"):
        asked.reveal("metis")
    assert asked.value is None and not asked._buttons.disabled and asked._described.value == ""
    asked.guess("hash")
    assert "you predicted hash" in asked.reveal("metis")
    assert asked._buttons.disabled and "metis" in asked._described.value, "nothing can be clicked after it"


def test_a_long_cell_asks_for_its_predictions_first() -> None:
    one, other = Prediction(QUESTION, CHOICES), Prediction("And which other?", CHOICES)
    one.guess("hash")
    with pytest.raises(PredictionError, match="And which other"):
        predicted(one, other)
    other.guess("metis")
    predicted(one, other)


@pytest.mark.parametrize("variable", ["DTDG_LAB_FAST", "DTDG_LAB_UNATTENDED"])
def test_without_a_reader_code_predicts_and_says_so(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    asked, guessed = Prediction(QUESTION, CHOICES), Prediction(QUESTION, CHOICES)
    predicted(asked)
    assert asked.reveal("metis").endswith("It is metis; code, without a reader, predicted hash.")
    guessed.guess("metis")
    assert guessed.reveal("metis").endswith("as you predicted."), "a prediction that was made is kept"


def test_a_notebook_shows_the_message_without_a_traceback() -> None:
    assert PredictionError("No prediction yet.")._render_traceback_() == ["No prediction yet."]


def test_many_choices_stand_beside_each_other() -> None:
    asked = Prediction(QUESTION, [f"system {number}" for number in range(7)])
    assert type(asked._buttons).__name__ == "ToggleButtons" and asked.value is None
    asked.guess("system 3")
    assert asked.value == "system 3"


def test_it_is_a_widget_whose_question_is_text_and_no_markup() -> None:
    asked = Prediction(QUESTION, CHOICES)
    data, _ = asked._repr_mimebundle_(), None
    bundle = data[0] if isinstance(data, tuple) else data
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert asked._asked.value == "<b>Which &lt;one&gt;?</b>"


@pytest.mark.parametrize("choices", [(), ("hash",), ("hash", "hash")])
def test_fewer_than_two_choices_are_refused(choices: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="two different choices"):
        Prediction(QUESTION, choices)


def test_an_answer_that_was_no_choice_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="metsi"):
        Prediction(QUESTION, CHOICES).reveal("metsi")
    with pytest.raises(UnknownNameError, match="metsi"):
        Prediction(QUESTION, CHOICES).guess("metsi")
