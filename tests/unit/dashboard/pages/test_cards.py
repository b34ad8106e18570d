"""The page of paper cards: made beside the event loop, with the run's charts where it is of the chosen system."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.cards.card import TEXTS
from dtdg_lab.core.errors import PlanError
from dtdg_lab.dashboard.pages import cards as card_page
from dtdg_lab.dashboard.pages.cards import CardPage
from dtdg_lab.runs.stored_run import open_run
from tests.dashboards import Loop
from tests.stored_runs import finished_run


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def page(loop: Loop) -> Iterator[CardPage]:
    made = CardPage(loop.defer)
    yield made
    made.close()


def _run(root: Path, **settings: Any) -> Any:
    run = open_run(finished_run(root, **settings).path)
    run.lock, run.version = threading.RLock(), 1
    return run


def test_nothing_is_made_before_the_page_is_opened(page: CardPage, loop: Loop) -> None:
    assert page.card.value == "" and page.charts.figures() == {}
    page.open()
    loop.until(lambda: page.card.value)
    first = page.system.value
    assert f"<h1>{first}</h1>" in page.card.value and "<a " not in page.card.value
    assert "$$" in page.card.value, "MathJax shows the formulas"
    assert list(page.charts.figures()) == list(page.charts.captions()) != []
    assert all(name.startswith(f"card-{first}-small-") for name in page.charts.figures())


def test_another_choice_brings_another_card_and_charts_of_other_names(page: CardPage, loop: Loop) -> None:
    page.open()
    for name in ("esdg", "bgl"):
        page.system.value = name
        loop.until(lambda name=name: f"<h1>{name}</h1>" in page.card.value)
        assert all(chart.startswith(f"card-{name}-small-") for chart in page.charts.figures())
    assert "Simulated now" in page.words.value
    assert sorted(name for group in page.system.groups.values() for name in group) == sorted(TEXTS)


def test_the_run_that_is_followed_is_shown_on_its_card(page: CardPage, loop: Loop, tmp_path: Path) -> None:
    run = _run(tmp_path, system="psg")
    page.open()
    page.follow(run)
    assert page.system.value == "psg"
    loop.until(lambda: "<h1>psg</h1>" in page.card.value)
    page.update(slow=False)
    assert all("-small-" in name for name in page.charts.figures())
    page.update(slow=True)
    assert page.charts.figures() and all("-run-" in name for name in page.charts.figures())
    assert run.id in page.words.value
    assert [spec.section for spec in page.charts.specs.values()][:2] == ["whole", "supporting"]
    for figure in page.charts.figures().values():
        assert figure["layout"]["meta"]["card"]["title"] and figure["layout"]["yaxis"]["automargin"]
    page.system.value = "esdg"
    loop.until(lambda: "<h1>esdg</h1>" in page.card.value)
    page.update(slow=True)
    assert all("card-esdg-small-" in name for name in page.charts.figures())


def test_a_card_that_cannot_be_made_says_why(page: CardPage, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise PlanError("no <plan>")

    monkeypatch.setattr(card_page, "Card", broken)
    page.open()
    loop.until(lambda: "could not be made" in page.words.value)
    assert "no &lt;plan&gt;" in page.words.value and page.charts.figures() == {}
