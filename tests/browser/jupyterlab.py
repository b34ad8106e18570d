"""JupyterLab in headless Chromium, driven as a person would."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import panel as pn
import pytest

from dtdg_lab.dashboard.app import Dashboard

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-quic", "--disable-sync"]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", *QUIET]

# charts live in shadow roots, which page.evaluate does not enter by itself
CHARTS = """() => { const found = {}; const walk = root => root.querySelectorAll('*').forEach(e => {
  if (e.classList && e.classList.contains('dl-chart') && e.dataset.chart && e.data) found[e.dataset.chart] = {
    traces: e.data.map(t => ({name: t.name, points: (t.x || []).length, last: (t.y || []).slice(-1)[0] ?? null,
                              sum: (t.x || []).reduce((a, b) => a + (+b || 0), 0)})),
    marks: ((e.layout && e.layout.annotations) || []).map(a => a.text),
    last_x: e.data[0] && e.data[0].x ? [...e.data[0].x].pop() : null, x_range: e._fullLayout.xaxis.range,
    shapes: ((e.layout && e.layout.shapes) || []).length};
  if (e.shadowRoot) walk(e.shadowRoot); }); walk(document); return found; }"""

WIDTHS = """() => { const found = []; const walk = root => root.querySelectorAll('*').forEach(e => {
  if (e.classList && e.classList.contains('dl-chart') && e.dataset.chart && e.data) found.push(e.offsetWidth);
  if (e.shadowRoot) walk(e.shadowRoot); }); walk(document); return found; }"""

# values of choices and positions of sliders, as the page shows them
CONTROLS = """() => { const found = []; const walk = root => root.querySelectorAll('*').forEach(e => {
  if (e.tagName === 'SELECT') found.push(e.value);
  if (e.classList.contains('noUi-handle')) found.push(Number(e.getAttribute('aria-valuenow')));
  if (e.shadowRoot) walk(e.shadowRoot); }); walk(document); return found; }"""

# names of the cards with charts, drawn or not, in their order
CARDS = """() => { const found = []; const walk = root => root.querySelectorAll('*').forEach(e => {
  if (e.dataset && e.dataset.card) found.push(e.dataset.card);
  if (e.shadowRoot) walk(e.shadowRoot); }); walk(document); return found; }"""

# what the head of the dashboard, the notice under it and the log of changes say, a line each
STATUS = """() => { const found = []; const walk = root => root.querySelectorAll('*').forEach(e => {
  if (e.matches('.dl-head .who, .dl-chip, .dl-head .words, .dl-notice, .dl-log li') && e.offsetWidth)
    found.push(e.innerText.replace(/\\s+/g, ' '));
  if (e.shadowRoot) walk(e.shadowRoot); }); walk(document); return found.join('\\n'); }"""


MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@contextmanager
def chromium(*flags: str, width: int = 1300, height: int = 900) -> Iterator[Any]:
    """Start a browser with a light theme; yields its page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tempfile.mkdtemp(),
            executable_path=CHROMIUM,
            headless=True,
            args=[*FLAGS, *flags],
            color_scheme="light",
            viewport={"width": width, "height": height},
        )
        try:
            yield browser.pages[0]
        finally:
            browser.close()


@contextmanager
def served(made: list[Dashboard], make: Callable[[], Dashboard]) -> Iterator[str]:
    """Serve a dashboard to each page that is opened, and note it; yields the address."""

    def page() -> Any:
        made.append(make())
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


def last_step(page: Any) -> float:
    """Return the last step that the chart of the loss shows; -1 before it is drawn."""
    last = page.evaluate(CHARTS).get("loss", {}).get("last_x")
    return -1 if last is None else float(last)


@contextmanager
def lab_server(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """JupyterLab on loopback serving a folder; yields its address with the token left to add."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(8)
    options = "--no-browser --ip=127.0.0.1 --allow-root --LabApp.extension_manager=readonly --ServerApp.log_level=WARN"
    command = [sys.executable, "-m", "jupyterlab", *options.split(), f"--port={port}"]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    # themes that are chosen, and what was open, are the page's own affair, not the person's who tests
    apart = {f"JUPYTERLAB_{name.upper()}_DIR": str(folder / name) for name in ("settings", "workspaces")}
    apart["JUPYTER_CONFIG_PATH"] = str(Path(__file__).resolve().parents[2] / "etc" / "jupyter")  # as make env copies it
    with open(folder / "lab.log", "wb") as log:
        server = subprocess.Popen(command, env={**os.environ, **apart, **environment}, stdout=log, stderr=log)
    try:
        _until_it_answers(f"http://127.0.0.1:{port}/api/status?token={token}", server)
        yield f"http://127.0.0.1:{port}/lab/tree/{{notebook}}?token={token}&reset"
    finally:
        server.terminate()
        server.wait(20)


def _until_it_answers(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        if server.poll() is not None:
            raise RuntimeError(f"JupyterLab ended with {server.returncode}; its log is beside the notebook")
        try:
            with urllib.request.urlopen(url):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("JupyterLab did not answer within 60 s")


def run_all_cells(page: Any) -> None:
    """Run > Run All Cells, again where the page was not listening yet; cells are made to be run twice."""
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=60_000)
    page.get_by_text("| Idle").first.wait_for(timeout=60_000)  # the kernel is connected, not only the page
    started = "[...document.querySelectorAll('.jp-InputPrompt')].some(e => /\\[[*0-9]+\\]/.test(e.textContent))"
    click_run_all(page, started)


def click_run_all(page: Any, started: str) -> None:
    """Choose Run All Cells until a script says that cells run."""
    for _ in range(6):
        if page.locator(".jp-Dialog .jp-mod-accept").count():
            page.locator(".jp-Dialog .jp-mod-accept").first.click()  # asks for the kernel when it came too early
        page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^Run$")).first.click()
        page.get_by_text("Run All Cells", exact=True).first.click()
        try:
            page.wait_for_function(started, timeout=5000)
            return
        except Exception as error:
            if type(error).__name__ != "TimeoutError":
                raise
    raise AssertionError("Run All Cells was clicked six times and no cell ran")


def wait_until(page: Any, condition: Any, *, timeout_s: float, what: str) -> float:
    """Poll the charts until ``condition(charts)`` holds; returns the seconds it took."""
    started = time.monotonic()
    charts: dict[str, Any] = {}
    while time.monotonic() - started < timeout_s:
        charts = page.evaluate(CHARTS)
        if charts and condition(charts):
            return time.monotonic() - started
        page.wait_for_timeout(50)
    raise AssertionError(f"not within {timeout_s:g} s: {what}; the charts hold {charts}")


def wait_for_change(page: Any, words: str, *, timeout_s: float) -> str:
    """Wait until the log has a change with these words that was applied; returns its entry."""
    started = time.monotonic()
    while True:
        said: str = page.evaluate(STATUS)
        applied = [line for line in said.splitlines() if words in line.lower() and " · step " in line]
        if applied:
            return applied[0]
        assert time.monotonic() - started < timeout_s, f"not within {timeout_s:g} s: {words!r} in {said!r}"
        page.wait_for_timeout(50)


def look_at(page: Any, chart: str) -> None:
    """Scroll to a chart: only those in view are drawn."""
    card = page.locator(f"[data-card={chart}]").first
    card.wait_for(state="attached", timeout=180_000)
    card.evaluate("card => card.scrollIntoView({block: 'center'})")


def button(page: Any, action: str) -> Any:
    """The button of the head, or of its notice, that asks for an action."""
    return page.locator(f"button[data-action={action}]").first


def choose(page: Any, option: str) -> None:
    """Choose in the selection that offers the option."""
    choice = page.locator("select:visible", has=page.locator(f"option[value='{option}']")).first
    choice.select_option(option)


def points(charts: dict[str, Any], chart: str) -> int:
    """Return the most points that a line of a chart has."""
    return max((trace["points"] for trace in charts.get(chart, {}).get("traces", ())), default=0)
