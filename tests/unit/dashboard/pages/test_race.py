"""The page of races: contestants from the settings shown, rules, errors, a small race drawn while it goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.dashboard.actions import Actions
from dtdg_lab.dashboard.pages import race as race_page
from dtdg_lab.dashboard.pages.race import HERE, MOST, RacePage
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.studies.race import prepare
from dtdg_lab.studies.race_plan import StopRule
from tests.dashboards import choose_in, click_button, page_until
from tests.factories import small_config
from tests.pretend_session import PretendSession
from tests.thinning import thinned

CONFIG = small_config("single", epochs=3, threads=1, generated_snapshots=20)


@pytest.fixture
def page(tmp_path: Path):
    problems: list[str] = []
    actions = Actions(problems.append)
    settings = Settings(2, CONFIG, lambda name, value: None, defer=actions.later)
    made = RacePage(settings, PretendSession(2), actions, runs_dir=tmp_path)  # type: ignore[arg-type]
    yield made
    if made._thread is not None:
        made._thread.join(60)
    made.close()
    actions.close()
    assert not problems


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Races of the page are run in this process; what was asked for."""
    asked: list[dict[str, Any]] = []

    def in_process(configs, *, session, **more):
        asked.append({"session": session, **more})
        return prepare(configs, session=None, **more)

    monkeypatch.setattr(race_page, "prepare", in_process)
    return asked


def test_contestants_are_the_settings_shown_each_once(page):
    assert page.start.disabled and page.stop.disabled and page.remove.disabled
    click_button(page, page.add)
    assert list(page.chosen.options) == ["single"] and page.start.disabled
    click_button(page, page.add)
    assert "already a contestant" in page.alert.value and page.alert.visible and len(page.configs) == 1
    for width in (8, 16):
        choose_in(page, "hidden", width)
        click_button(page, page.add)
    assert list(page.chosen.options) == [f"single, hidden {width}" for width in (4, 8, 16)]
    assert not page.alert.visible and not page.start.disabled
    page.chosen.value = [0, 2]
    click_button(page, page.remove)
    assert list(page.chosen.options) == ["single"] and page.configs[0].hidden == 8 and page.start.disabled
    for number in range(MOST):
        choose_in(page, "hidden", 20 + number)
        click_button(page, page.add)
    assert len(page.configs) == MOST and "Remove one" in page.alert.value


def two(page: RacePage) -> None:
    click_button(page, page.add)
    choose_in(page, "system", "adgnn-t")
    choose_in(page, "ranks", 1)
    click_button(page, page.add)


@pytest.mark.parametrize(
    ("field", "text", "said"),
    thinned(
        [
            ("seeds", "0 x", "Seeds: cannot read 'x'"),
            ("patience", "1.5", "Evaluations without gain: cannot read '1.5'"),
            ("loss", "low", "Validation loss reached: cannot read 'low'"),
            ("patience", "0", "patience=0"),
            ("seeds", "", "at least one"),
            ("name", "a/b", "name='a/b'"),
        ],
        (0, 2, 3),
    ),
)
def test_what_cannot_be_is_said_and_nothing_is_trained(page, here, tmp_path, field, text, said):
    two(page)
    getattr(page, field).value = text
    click_button(page, page.start)
    page_until(page, lambda: page.alert.visible and not page.racing)
    assert said in page.alert.value.replace("&#x27;", "'") and not list(tmp_path.iterdir())
    assert not page.start.disabled, "it can be put right and started"


def test_contestants_that_cannot_be_compared_are_named_on_the_page(page, here, tmp_path):
    two(page)
    choose_in(page, "epochs", 7)
    choose_in(page, "system", "psg")
    click_button(page, page.add)
    click_button(page, page.start)
    page_until(page, lambda: page.alert.visible)
    said = page.alert.value.replace("&#x27;", "'")
    assert "the same `epochs`, but 'single' has 3, 'psg' has 7" in said and not list(tmp_path.iterdir())


def test_a_race_is_drawn_while_it_goes_on_and_never_by_the_loop(page, here, monkeypatch):
    drawn_by: set[str] = set()
    real = page._draw
    page._drawer._work = lambda race: (drawn_by.add(threading.current_thread().name), real(race))
    two(page)
    page.seeds.value, page.patience.value, page.epochs.value = "0,", "50", "4"
    click_button(page, page.start)
    assert page.racing and page.start.disabled and not page.stop.disabled
    page_until(page, lambda: not page.racing)
    assert here[0]["stop"] == StopRule(epochs=4, patience=50) and here[0]["seeds"] == [0]
    page_until(page, lambda: "2 of 2 runs have finished" in page.table.value)
    assert not page.alert.visible
    assert "has ended" in page.words.value and page.stop.disabled and not page.start.disabled
    assert drawn_by == {"dashboard-race"}
    figures, captions = page.charts.figures(), page.charts.captions()
    assert {"race-seconds", "race-joules", "race-bytes", "race-peak"} <= figures.keys() == captions.keys()
    for figure in figures.values():
        go.Figure(figure)
    assert "Losses that should be the same are: single and adgnn-t" in page.table.value


def test_stop_ends_the_race_and_it_goes_on_by_its_name(page, here, tmp_path):
    two(page)
    page.seeds.value, page.name.value, page.epochs.value = "0 1", "later", "8"
    click_button(page, page.start)
    page_until(page, lambda: page.race is not None and any(run.state == "finished" for run in page.race.runs))
    click_button(page, page.stop)
    page_until(page, lambda: not page.racing)
    page.update(slow=True)
    made = len([run for run in page.race.runs if run.state == "finished"])
    assert 0 < made < 4 and "was stopped" in page.words.value and not page.alert.visible
    page.seeds.value = "0 1"
    before = {run.path for run in page.race.runs if run.state == "finished"}
    click_button(page, page.start)
    page_until(page, lambda: not page.racing)
    assert before <= {run.path for run in page.race.runs} and page.race.name == "later"


@pytest.mark.slow
def test_a_race_of_the_past_is_shown_again(page, here, tmp_path):
    two(page)
    page.seeds.value, page.name.value = "0", "first"
    click_button(page, page.start)
    page_until(page, lambda: not page.racing)
    page.name.value = "second"
    click_button(page, page.start)
    page_until(page, lambda: not page.racing)
    page.update(slow=True)
    here_now, newest, oldest = page.past.options
    assert here_now == HERE and newest.endswith("-second") and oldest.endswith("-first") and page.race.name == "second"
    first = page.past.options[oldest]
    page.past.value = first
    page_until(page, lambda: page.race.name == "first" and page._shown is page._drawn)
    assert "A past race" in page.words.value and first in page.words.value
    page_until(page, lambda: "psg" not in page.table.value and "adgnn-t" in page.table.value)
    page.past.value = ""
    page_until(page, lambda: page.race.name == "second" and "has ended" in page.words.value)
    page.past.value = first
    page_until(page, lambda: page.race.name == "first")
    page.name.value = "third"
    click_button(page, page.start)
    assert page.past.value == ""
    page_until(page, lambda: not page.racing and page.race is not None and page.race.name == "third")


def test_a_race_that_cannot_be_read_is_said_and_the_shown_one_stays(page, tmp_path):
    broken = tmp_path / "races" / "broken"
    broken.mkdir(parents=True)
    (broken / "race.json").write_text("{")
    page.update(slow=True)
    page.past.value = str(broken)
    problems = page._actions._on_error.__self__
    page_until(page, lambda: bool(problems))
    assert "race.json" in problems[0] and page.race is None
    problems.clear()
    assert (broken / "race.json").read_text() == "{"
