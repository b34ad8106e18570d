"""The benches of the documentation in Chromium: by keyboard and by pointer, with the numbers of the package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.feature_cache.policies.clairvoyant import cost_of
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def benches() -> Any:
    sys.path.insert(0, str(ROOT / "docs"))
    return importlib.import_module("benches")


@pytest.fixture
def page() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip("no /usr/bin/chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page(viewport={"width": 1100, "height": 900})
        shown.on("pageerror", lambda error: pytest.fail(str(error)))
        yield shown
        browser.close()


def opened(page: Any, benches: Any, name: str, folder: Path) -> None:
    """The page as HTML, without the site around it."""
    body = benches.placed(f"<!-- bench {name} -->").replace('src="', f'src="{ROOT}/docs/')
    file = folder / "page.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><body>{body}")
    page.goto(file.as_uri())


def label(page: Any, group: int) -> str:
    """What a screen reader says of a group: it has the focus."""
    assert page.evaluate("document.activeElement.dataset.group") == str(group)
    return str(page.locator(f"[data-group='{group}']").get_attribute("aria-label"))


def test_a_schedule_is_made_by_keyboard_alone(benches: Any, page: Any, tmp_path: Path) -> None:
    opened(page, benches, "schedule", tmp_path)
    assert page.get_by_text("The rules' schedules appear").is_visible()
    rows = [[[0, 7], [1, 6]], [[2, 5], [3, 4]]]
    for iteration, row in enumerate(rows):
        for rank, part in enumerate(row):
            for group in part:
                page.locator(f"[data-group='{group}']").focus()
                page.keyboard.press("ArrowRight")  # to the first place with room
                while not label(page, group).endswith(f"rank {rank}"):
                    page.keyboard.press("ArrowRight")
                while f"iteration {iteration + 1}," not in label(page, group):
                    page.keyboard.press("ArrowDown")
    times_s = benches.TIMES_S["of a growing graph"]
    plan = Schedule(tuple(tuple(tuple(part) for part in row) for row in rows), groups=8)
    end_s, bound_s = plan.makespan_s(times_s), lower_bound_s(times_s, 2)
    wanted = f"Your epoch takes {end_s:g} s, {100 * (end_s / bound_s - 1):.1f} % above the bound of {bound_s:g} s."
    assert wanted in page.locator(".bench-words").inner_text()
    best = page.locator(".bench-rules tr").nth(1).inner_text().split()
    assert best[:3] == ["best_of", "35", "s"]
    page.locator(".bench-rules button").first.click()
    assert "optimal: it reaches the bound" in page.locator(".bench-words").inner_text()
    page.locator("[data-group='7']").press("Delete")
    assert page.locator(".bench-words").inner_text() == "1 of 8 groups are left to place."


def test_a_place_takes_two_groups_and_a_group_moves_by_a_click(benches: Any, page: Any, tmp_path: Path) -> None:
    opened(page, benches, "schedule", tmp_path)
    place = page.get_by_label("move to iteration 1, rank 1")
    for group in (0, 1):
        page.locator(f"[data-group='{group}']").click()
        place.click()
    page.locator("[data-group='2']").click()
    assert place.is_disabled() and page.get_by_label("move to iteration 1, rank 0").is_enabled()
    page.locator("[data-group='2']").drag_to(page.locator("[data-group='0']"))
    assert page.locator(".bench-words").inner_text() == "Rank 1 already has 2 groups in iteration 1."
    page.locator("[data-group='2']").drag_to(page.get_by_label("move to iteration 2, rank 0").locator(".."))
    assert page.locator("[data-group='2']").get_attribute("aria-label") == "group 2 (5 s), iteration 2, rank 0"
    page.get_by_label("seconds of group 0").fill("30")
    page.get_by_label("seconds of group 0").press("Enter")
    assert page.locator("[data-group='0']").inner_text() == "30 s"


def test_a_run_is_played_to_its_end_and_compared(benches: Any, page: Any, tmp_path: Path) -> None:
    opened(page, benches, "cache", tmp_path)
    page.get_by_label("64", exact=True).focus()
    page.keyboard.press("ArrowLeft")  # radios move by arrows
    page.get_by_role("button", name="Build this cache").press("Enter")
    assert page.locator(".bench-words").inner_text().startswith("Step 32 of 300")
    page.get_by_label("partition 2").check()
    page.get_by_role("button", name="Keep this choice to the end").click()
    windows = [(0, 5), *((first, 5 + 16) for first in range(32, 300, 32))]
    episode = next(iter(benches.episodes().values()))
    assert f"your choices took {cost_of(episode, windows):.0f} J" in page.locator(".bench-words").inner_text()
    assert "you" in page.locator(".bench-you").inner_text()
    page.get_by_role("button", name="One back").click()
    assert page.locator(".bench-words").inner_text().startswith("Step 288 of 300")
