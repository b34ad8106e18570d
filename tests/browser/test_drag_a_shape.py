"""The circles of the trapezoid in a browser: they stand where K and alpha show, and tell where they are dragged."""

from __future__ import annotations

import socket
import tempfile
from typing import Any

import panel as pn
import pytest
from following import until
from jupyterlab import CHROMIUM, FLAGS

from dtdg_lab.systems.decayed_windows.charts import Batch, shape_figure, snapped
from dtdg_lab.systems.decayed_windows.events import Shape, TrapezoidFacts
from dtdg_lab.widgets.live import WholeCharts

CHUNKS = 128
FACTS = TrapezoidFacts.read({
    "window": 8, "full_snapshots": 2, "alpha": 0.1, "decay": "ladder", "chunks": CHUNKS, "nodes": 640,
    "row_counts": [5 * c for c in range(CHUNKS + 1)], "base_bytes": 1e6, "row_bytes": 1e3,
})  # fmt: skip
BATCH = Batch(123, 6, 57, 50, 2, (1, 2, 3, 5, 8, 13), 1440, 99)

# pixels of the page for a snapshot and a number of chunks
PIXELS = """([snapshot, chunks]) => { let found = null; const walk = root => root.querySelectorAll('*').forEach(e => {
  if (e.classList && e.classList.contains('dl-chart') && e.data) {
    const box = e.getBoundingClientRect(), f = e._fullLayout;
    found = [box.x + f.xaxis._offset + f.xaxis.l2p(snapshot), box.y + f.yaxis._offset + f.yaxis.l2p(chunks)]; }
  if (e.shadowRoot) walk(e.shadowRoot); }); walk(document); return found; }"""


class Tried:
    """Charts of one shape that follows what is dragged; ``to_dict`` has every message."""

    def __init__(self) -> None:
        self.shape = FACTS.shape
        self.described: list[tuple[str, float]] = []
        self.charts = WholeCharts(self.figures, chart_height=360, width=1000)
        self.charts.on_drag(self.dragged)

    def figures(self) -> dict[str, Any]:
        proposed = None if self.shape == FACTS.shape else self.shape
        return {"shape": shape_figure(FACTS, BATCH, proposed, handles=("full_snapshots", "alpha"))}

    def dragged(self, handle: str, value: float) -> None:
        self.described.append((handle, value))
        self.shape = snapped(FACTS, self.shape, handle, value)
        self.charts.redraw()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_k_and_alpha_are_dragged_in_the_figure() -> None:
    from playwright.sync_api import sync_playwright

    pn.extension("plotly")
    tried = Tried()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = pn.serve(lambda: tried.charts, port=port, show=False, threaded=True)
    errors: list[str] = []
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch_persistent_context(
                tempfile.mkdtemp(), executable_path=CHROMIUM, headless=True, args=FLAGS,
                viewport={"width": 1100, "height": 500},
            )  # fmt: skip
            page = browser.pages[0]
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(f"http://127.0.0.1:{port}/")
            until(lambda: page.locator(".dl-handle").count() == 2, what="the circles are there")
            _drag(page, tried, "full_snapshots", start=(55.5, 64), end=(53.8, 20), wanted=Shape(4, 0.1, "ladder"))
            _drag(page, tried, "alpha", start=(53.3, 12.8), end=(51, 64), wanted=Shape(4, 0.5, "ladder"))
            _press(
                page, tried, "full_snapshots", key="ArrowLeft", wanted=Shape(5, 0.5, "ladder"), said="5 full snapshots"
            )
            _press(page, tried, "alpha", key="PageUp", wanted=Shape(5, 0.578, "ladder"), said="alpha 0.578")
            browser.close()
    finally:
        server.stop()
    assert {handle for handle, _ in tried.described} == {"full_snapshots", "alpha"}
    assert errors == []


def _drag(
    page: Any, tried: Tried, handle: str, *, start: tuple[float, float], end: tuple[float, float], wanted: Shape
) -> None:
    """Drag a circle that stands at ``start`` (snapshot, chunks) to ``end``; it moves along its own axis alone."""
    dot = page.locator(f".dl-handle[data-handle={handle}]")
    assert _middle(dot) == pytest.approx(page.evaluate(PIXELS, start), abs=1.5)
    before = len(tried.described)
    page.mouse.move(*_middle(dot))
    page.mouse.down()
    for share in (0.3, 0.7, 1.0):
        between = [one + share * (two - one) for one, two in zip(start, end, strict=True)]
        page.mouse.move(*page.evaluate(PIXELS, between))
        page.wait_for_timeout(100)
    assert len(tried.described) > before, "told while it is dragged, for what it would mean to be seen"
    page.mouse.up()
    until(lambda: tried.shape == wanted, timeout_s=5, what=f"{handle} is dragged to {wanted}")
    until(lambda: _rests(page, dot, handle, wanted), timeout_s=5, what="the circle goes where the figure has it")


def _press(page: Any, tried: Tried, handle: str, *, key: str, wanted: Shape, said: str) -> None:
    """What a pointer does, by a key; a screen reader is told what the circle stands at."""
    dot = page.locator(f".dl-handle[data-handle={handle}]")
    dot.focus()
    page.keyboard.press(key)
    until(lambda: tried.shape == wanted, timeout_s=5, what=f"{key} makes it {wanted}, and it is {tried.shape}")
    until(lambda: dot.get_attribute("aria-valuetext") == said, timeout_s=5, what=f"{handle} says {said}")
    assert dot.get_attribute("role") == "slider" and dot.get_attribute("aria-label")
    assert dot.evaluate("e => e.getRootNode().activeElement === e"), "it keeps the focus when the figure is drawn again"


def _rests(page: Any, dot: Any, handle: str, shape: Shape) -> bool:
    snapshot, chunks = (57.5 - shape.full_snapshots, 64.0)
    if handle == "alpha":
        snapshot, chunks = snapshot - 0.2, shape.alpha * CHUNKS
    return _middle(dot) == pytest.approx(page.evaluate(PIXELS, [snapshot, chunks]), abs=1.5)


def _middle(dot: Any) -> list[float]:
    box = dot.bounding_box()
    return [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
