"""A lesson's question: what was predicted is kept, and told beside what came out."""

from __future__ import annotations

import pytest

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.lessons.checks import Prediction

QUESTION, CHOICES = "Which <one>?", ("hash", "metis")


def test_a_prediction_is_told_beside_what_came_out() -> None:
    asked = Prediction(QUESTION, CHOICES)
    assert asked.value is None and "none yet" in repr(asked)
    asked.guess("hash")
    assert asked.reveal("metis") == "Which <one>? It is metis; you predicted hash."
    assert asked.reveal("hash") == "Which <one>? It is hash, as you predicted."


def test_whoever_predicts_nothing_is_told_all_the_same() -> None:
    assert Prediction(QUESTION, CHOICES).reveal("metis").endswith("It is metis. You made no prediction.")


def test_it_is_a_widget_whose_question_is_text_and_no_markup() -> None:
    asked = Prediction(QUESTION, CHOICES)
    data, _ = asked._repr_mimebundle_(), None
    bundle = data[0] if isinstance(data, tuple) else data
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert asked._asked.value == "<b>Which &lt;one&gt;?</b>"


def test_after_the_reveal_nothing_can_be_clicked() -> None:
    asked = Prediction(QUESTION, CHOICES)
    asked.reveal("hash")
    assert asked._buttons.disabled and "hash" in asked._described.value


@pytest.mark.parametrize("choices", [(), ("hash",), ("hash", "hash")])
def test_fewer_than_two_choices_are_refused(choices: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="two different choices"):
        Prediction(QUESTION, choices)


def test_an_answer_that_was_no_choice_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="metsi"):
        Prediction(QUESTION, CHOICES).reveal("metsi")
    with pytest.raises(UnknownNameError, match="metsi"):
        Prediction(QUESTION, CHOICES).guess("metsi")
