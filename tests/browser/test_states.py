"""The dashboard in Chromium on a finished run, on a dead session, and in two browsers at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.widgets.header import Header
from tests.browser.jupyterlab import CHARTS, CHROMIUM, FLAGS, MARKS, STATUS, last_step, served
from tests.following import until
from tests.pretend_session import PER_EPOCH, PretendSession

pytestmark = [*MARKS, pytest.mark.slow]

CONFIG = RunConfig(dataset="growing", system="psg", ranks=2, epochs=3)

# from now on, drawing a chart takes 300 ms more; begins and ends are kept
SLOWED = """() => { window.drawn = []; const draw = Plotly.react;
  Plotly.react = (div, ...given) => { const started = performance.now(); while (performance.now() < started + 300);
    const made = draw(div, ...given); window.drawn.push([started, performance.now()]); return made } }"""
# frames that are requested from now on
FRAMES = """() => { window.frames_asked = 0; const ask = window.requestAnimationFrame;
  window.requestAnimationFrame = (call) => { window.frames_asked += 1; return ask(call) } }"""

# a page that is wider than its window is clipped
WIDER = "() => document.documentElement.scrollWidth - window.innerWidth"


@pytest.fixture
def session() -> PretendSession:
    return PretendSession(2)


@pytest.fixture
def address(session: PretendSession) -> Iterator[str]:
    """Of a server that makes each page a dashboard of the session."""
    with served([], lambda: Dashboard(session, CONFIG)) as address:
        yield address


@pytest.fixture
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


def opened(browser: Any, address: str, *, step: float = -1) -> Any:
    """A page of a browser of its own, once its charts are there and show a step."""
    page = browser.new_page(viewport={"width": 1100, "height": 1300})
    page.goto(address, timeout=120_000)
    page.locator(".dl-card").first.wait_for(timeout=120_000)
    until(lambda: last_step(page) == step, timeout_s=60, what=f"step {step}")
    return page


def pressed(page: Any, name: str) -> bool:
    return bool(page.locator(".dl-systems button", has_text=name).get_attribute("aria-pressed") == "true")


def test_a_finished_run_is_shown_whole_and_the_next_can_begin(session: PretendSession, address: str, browser: Any):
    session.train(CONFIG).advance(3 * PER_EPOCH)
    assert session.runs[0].status == "finished"
    page = opened(browser, address, step=59)
    until(lambda: "3 epochs · 60 steps" in page.evaluate(STATUS), timeout_s=60, what="the end of the run")
    assert page.get_by_role("tab").count() == 6
    assert page.evaluate(WIDER) <= 0, "nothing is clipped at 1100 pixels"
    page.locator(".dl-systems button", has_text="ESDG").click()
    until(lambda: pressed(page, "ESDG"), what="the system that was clicked")
    assert session.runs[0].requests == [], "a run that is over is asked for nothing"
    page.get_by_role("button", name="Run ESDG").click()
    until(lambda: len(session.runs) == 2 and session.runs[1].config.system == "esdg", what="a run of ESDG")


def test_stop_is_answered_by_the_page_while_the_kernel_is_busy(
    session: PretendSession, address: str, browser: Any, monkeypatch: pytest.MonkeyPatch
):
    session.train(CONFIG.replace(epochs=1000)).advance(10)
    page = opened(browser, address, step=9)
    heard: list[Any] = []
    monkeypatch.setattr(Header, "_handle_msg", lambda self, data: heard.append(data))
    stop, chip = page.get_by_role("button", name="Stop", exact=True), page.locator(".dl-head .dl-chip")
    stop.click()
    assert chip.inner_text() == "Stopping" and stop.is_disabled()
    session.runs[0].advance(30)
    until(lambda: last_step(page) == 39, timeout_s=60, what="more steps, drawn meanwhile")
    assert chip.inner_text() == "Stopping" and len(heard) == 1
    session.runs[0].stop()
    until(lambda: chip.inner_text() == "Stopped", what="the end")


def test_a_run_id_is_shown_where_there_is_no_clipboard_and_the_window_of_a_report_that_failed_closes(
    session: PretendSession, address: str, browser: Any
):
    session.train(CONFIG).advance(10)
    page = opened(browser, address, step=9)
    page.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")  # as over plain http
    for entry in ("Copy run id", "Open report"):  # a pretended run has no folder
        page.get_by_role("button", name="More", exact=True).click()
        page.get_by_role("menuitem", name=entry).click()
        if entry == "Copy run id":
            page.get_by_role("dialog").filter(has_text=session.current.id).get_by_role("button", name="Close").click()
    page.locator(".dl-notice").filter(has_text="Open the report").wait_for(timeout=60_000)
    until(lambda: page.context.pages == [page], what="the window to close")


def test_a_dead_session_says_so_and_gets_new_engines(session: PretendSession, address: str, browser: Any):
    session.train(CONFIG).advance(10)
    page = opened(browser, address, step=9)
    answers = session.engines
    session.engines = lambda: (_ for _ in ()).throw(ClusterError("No engine answers. Call session.repair()."))
    page.get_by_role("alert").filter(has_text="No engine answers").wait_for(timeout=60_000)
    assert last_step(page) == 9, "what is known stays"
    session.engines, session.alive = answers, dict.fromkeys(range(2), False)
    session.runs[0].fail("rank 0 died: killed by signal 9")
    until(lambda: "Rank 0 died" in page.evaluate(STATUS), timeout_s=60, what="the dead rank")
    assert page.get_by_role("button", name="New run").is_disabled()
    page.get_by_role("button", name="More", exact=True).click()
    page.get_by_role("menuitem", name="Restart engines").click()
    until(lambda: session.repaired == 1, what="the repair")
    until(lambda: page.get_by_role("button", name="New run").is_enabled(), timeout_s=60, what="engines that are alive")


def test_two_browsers_show_the_same_run_and_each_other_s_changes(session: PretendSession, address: str, browser: Any):
    one, other = opened(browser, address), opened(browser, address)
    one.locator(".dl-do-run").click()
    until(lambda: session.current is not None, what="a run")
    session.current.advance(10)
    for page in (one, other):
        until(lambda page=page: last_step(page) == 9, timeout_s=60, what="ten steps")
    other.locator(".dl-systems button", has_text="FlareDTDG").click()
    until(lambda: session.current.requests == [{"system": "flaredtdg"}], what="the request of the other browser")
    assert pressed(one, "DyGNeX"), "requested, not made yet"
    session.current.advance(5)
    until(lambda: pressed(one, "FlareDTDG") and pressed(other, "FlareDTDG"), timeout_s=60, what="the change in both")
    for page in (one, other):
        until(lambda page=page: last_step(page) == 14, timeout_s=60, what="the same steps")
        assert "1" in page.evaluate(CHARTS)["loss"]["marks"]
    assert "another page" in one.evaluate(STATUS) and "you" in other.evaluate(STATUS)


def test_a_page_that_draws_slowly_rests_between_drawings(session: PretendSession, address: str, browser: Any):
    session.train(CONFIG.replace(epochs=100)).advance(10)
    page = opened(browser, address, step=9)
    page.evaluate(SLOWED)
    for _ in range(50):
        session.current.advance(1)
        page.wait_for_timeout(100)
    until(lambda: last_step(page) == 59, timeout_s=60, what="the newest step")
    drawn = page.evaluate("window.drawn")
    assert len(drawn) >= 3
    assert min(begin - end for (_, end), (begin, _) in pairwise(drawn)) > 590, "twice as long as a drawing took"


def test_cards_that_are_removed_while_the_page_rests_stop_drawing(session: PretendSession, address: str, browser: Any):
    session.train(CONFIG.replace(epochs=100)).advance(10)
    page = opened(browser, address, step=9)
    page.evaluate(SLOWED)
    for _ in range(100):
        session.current.advance(1)
        page.wait_for_timeout(100)
        if page.evaluate("window.drawn.length"):
            break
    session.current.advance(1)  # waits while the page rests
    page.wait_for_timeout(200)
    page.evaluate(FRAMES)
    page.evaluate("Bokeh.documents[0].clear()")
    page.wait_for_timeout(3000)
    assert page.evaluate(CHARTS) == {}
    assert page.evaluate("window.frames_asked") < 20
