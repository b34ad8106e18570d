"""Cells of the first notebook run again, in JupyterLab or in Notebook 7, and what must be there afterwards."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dtdg_lab.cluster.session import Session
from dtdg_lab.runs.liveness import read_notes
from tests.browser.jupyterlab import CHARTS, click_run_all, look_at, points, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOK = "00_live_lab.ipynb"
CELLS = sum(cell["cell_type"] == "code" for cell in json.loads((ROOT / "notebooks" / NOTEBOOK).read_text())["cells"])

# the newest cell that has run is the kernel's number so and so, and none of those that are drawn waits
RUN = """last => { const all = [...document.querySelectorAll('.jp-InputPrompt')].map(e => e.textContent);
  return !all.some(e => e.includes('*')) && Math.max(0, ...all.map(e => Number(e.replace(/\\D/g, '')))) === last; }"""
WAITS = "() => [...document.querySelectorAll('.jp-InputPrompt')].some(e => e.textContent.includes('*'))"

# background of every chart of the loss that is shown: one dashboard has one
PAPERS = """() => { const shown = []; const walk = root => root.querySelectorAll('*').forEach(e => {
  if (e.classList && e.classList.contains('dl-chart') && e.dataset.chart === 'loss' && e.offsetWidth && e._fullLayout)
    shown.push(e._fullLayout.paper_bgcolor);
  if (e.shadowRoot) walk(e.shadowRoot); }); walk(document); return shown; }"""


def engines_and_runs(session: Session) -> tuple[Any, ...]:
    """Processes of the run that is under way, and the runs there have been."""
    run = session.current
    assert run is not None and run.status == "running", run
    pids = tuple(note.pid for note in read_notes(run.path / "live", run.attempt).values())
    return (pids, tuple(each.id for each in session.runs))


def run_all_again(page: Any) -> None:
    """Run > Run All Cells of a notebook whose kernel is connected."""
    click_run_all(page, WAITS)


def restart_and_run_all(page: Any) -> None:
    """Kernel > Restart Kernel and Run All Cells, with its question answered."""
    page.locator(".lm-MenuBar-itemLabel", has_text="Kernel").first.click()
    page.get_by_text("Restart Kernel and Run All Cells", exact=False).first.click()
    page.locator(".jp-Dialog .jp-mod-accept").first.click()


def has_run(page: Any, last: int) -> None:
    """Wait until all cells have run, the last as the kernel's number ``last``, and one dashboard is there and live.

    Raises:
        AssertionError: there are two, history is missing, or nothing new comes.
    """
    page.wait_for_function(RUN, arg=last, timeout=180_000)
    look_at_dashboard(page)
    wait_until(page, lambda charts: points(charts, "loss") > 20, timeout_s=180, what="20 points of the loss")
    before = page.evaluate(CHARTS)
    wait_until(
        page, lambda charts: points(charts, "loss") > points(before, "loss") + 5, timeout_s=60, what="new points"
    )
    assert len(page.evaluate(PAPERS)) == 1
    assert page.evaluate(CHARTS)["loss"]["x_range"][0] <= 0, "the history from its first step on"


def look_at_dashboard(page: Any) -> None:
    """Scroll to the chart of the loss: JupyterLab draws what is looked at, and so does the dashboard."""
    heading = page.locator(".jp-RenderedMarkdown h2", has_text="The dashboard").first
    heading.evaluate("heading => heading.scrollIntoView({block: 'start'})")
    look_at(page, "loss")


def choose_theme(page: Any, name: str) -> None:
    """Settings > Theme > ``name``."""
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^Settings$")).first.click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Theme$")).first.click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{name}$")).first.click()
