"""The dashboard in Chromium on a finished run, on a dead session, and in two browsers at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import panel as pn
import pytest
from following import until
from jupyterlab import CHANGES, CHARTS, CHROMIUM, FLAGS, HEAD, button, look_at
from pretend_session import PER_EPOCH, PretendSession

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ClusterError
from dtdg_lab.dashboard.app import Dashboard

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

CONFIG = RunConfig(dataset="growing", system="psg", ranks=2, epochs=3)

# from now on, drawing a chart takes 300 ms more; begins and ends of it are kept
SLOWED = """() => { window.drawn = []; const draw = Plotly.react;
  Plotly.react = (...given) => { const started = performance.now(); while (performance.now() < started + 300);
    const made = draw(...given); window.drawn.push([started, performance.now()]); return made } }"""
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
    made: list[Dashboard] = []

    def page() -> Any:
        made.append(Dashboard(session, CONFIG))
        return made[-1].layout

    pn.extension("plotly")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = pn.serve(page, port=port, show=False, threaded=True)
    yield f"http://127.0.0.1:{port}/"
    for dashboard in made:
        dashboard.close()
    server.stop()


@pytest.fixture
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


def opened(browser: Any, address: str) -> Any:
    """A page of a browser of its own, at the chart of the loss."""
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.set_default_timeout(120_000)
    page.goto(address)
    look_at(page, "loss")
    return page


def system(page: Any, name: str) -> Any:
    return page.locator(".dl-systems button", has_text=name)


def pressed(page: Any, name: str) -> bool:
    return bool(system(page, name).get_attribute("aria-pressed") == "true")


def test_a_finished_run_is_shown_whole_and_the_next_can_begin(session: PretendSession, address: str, browser: Any):
    session.train(CONFIG).advance(3 * PER_EPOCH)
    assert session.runs[0].status == "finished"
    page = opened(browser, address)
    until(lambda: "loss" in page.evaluate(CHARTS), timeout_s=120, what="the loss")
    until(lambda: "3 epochs · 60 steps" in page.evaluate(HEAD), timeout_s=60, what="the end of the run")
    loss = page.evaluate(CHARTS)["loss"]
    assert loss["last_x"] == 59 and page.get_by_role("tab").count() == 6
    assert page.evaluate(WIDER) <= 0, "nothing is clipped at 1100 pixels"
    system(page, "ESDG").click()
    until(lambda: pressed(page, "ESDG"), what="the card that was clicked")
    assert session.runs[0].requests == [], "a run that is over is asked for nothing"
    button(page, "run").click()
    until(lambda: len(session.runs) == 2 and session.runs[1].config.system == "esdg", what="a run of ESDG")


def test_a_dead_session_says_so_and_is_repaired(session: PretendSession, address: str, browser: Any):
    session.train(CONFIG).advance(10)
    page = opened(browser, address)
    until(lambda: "loss" in page.evaluate(CHARTS), timeout_s=120, what="the loss")
    answers = session.engines
    session.engines = lambda: (_ for _ in ()).throw(ClusterError("No engine answers. Call session.repair()."))
    page.get_by_role("alert").filter(has_text="No engine answers").wait_for(timeout=60_000)
    assert page.evaluate(CHARTS)["loss"]["last_x"] == 9, "what is known stays"
    session.engines, session.alive = answers, dict.fromkeys(range(2), False)
    session.runs[0].fail("rank 0 died: killed by signal 9")
    until(lambda: "Rank 0 died: killed by signal 9." in page.evaluate(HEAD), timeout_s=60, what="the dead rank")
    assert button(page, "run").is_disabled() and button(page, "resume").is_disabled()
    page.locator(".dl-head .dl-dots").click()
    page.get_by_role("menuitem", name="Restart engines").click()
    until(lambda: session.repaired == 1, what="the repair")
    until(lambda: button(page, "run").is_enabled(), timeout_s=60, what="engines that are alive")


def test_two_browsers_show_the_same_run_and_each_other_s_changes(session: PretendSession, address: str, browser: Any):
    one, other = opened(browser, address), opened(browser, address)
    button(one, "run").click()
    until(lambda: session.current is not None, what="a run")
    session.current.advance(10)
    for page in (one, other):
        until(lambda page=page: page.evaluate(CHARTS)["loss"]["last_x"] == 9, timeout_s=60, what="ten steps")
    system(other, "FlareDTDG").click()
    until(lambda: session.current.requests == [{"system": "flaredtdg"}], what="the request of the other browser")
    assert pressed(one, "DyGNeX"), "requested, not made yet"
    session.current.advance(5)
    until(lambda: pressed(one, "FlareDTDG") and pressed(other, "FlareDTDG"), timeout_s=60, what="the change in both")
    for page in (one, other):
        until(lambda page=page: page.evaluate(CHARTS)["loss"]["last_x"] == 14, timeout_s=60, what="the same steps")
        assert any("1" in mark for mark in page.evaluate(CHARTS)["loss"]["marks"])
    assert "you" in other.evaluate(CHANGES)[0] and "another page" in one.evaluate(CHANGES)[0]


def test_a_page_that_draws_slowly_rests_between_drawings(session: PretendSession, address: str, browser: Any):
    session.train(CONFIG.replace(epochs=100)).advance(10)
    page = opened(browser, address)
    page.evaluate(SLOWED)
    for _ in range(50):
        session.current.advance(1)
        page.wait_for_timeout(100)
    until(lambda: page.evaluate(CHARTS)["loss"]["last_x"] == 59, timeout_s=60, what="the newest step")
    drawn = page.evaluate("window.drawn")
    assert len(drawn) >= 3
    assert min(begin - end for (_, end), (begin, _) in pairwise(drawn)) > 590, "twice as long as a drawing took"


def test_charts_that_are_removed_while_the_page_rests_stop_drawing(session: PretendSession, address: str, browser: Any):
    session.train(CONFIG.replace(epochs=100)).advance(10)
    page = opened(browser, address)
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
