"""The first notebook in Notebook 7: all cells run, run twice, and its own dark theme."""

from __future__ import annotations

import json
import shutil
import urllib.request
from pathlib import Path

import pytest

from dtdg_lab.cluster.session import Session
from dtdg_lab.visualization.palette import PAGE_COLOURS
from tests.browser.jupyterlab import MARKS, chromium, lab_server
from tests.browser.run_again import (
    CELLS,
    NOTEBOOK,
    PAPERS,
    ROOT,
    choose_theme,
    engines_and_runs,
    has_run,
    run_all_again,
)
from tests.following import until

pytestmark = [*MARKS, pytest.mark.slow]


def test_the_live_lab_in_notebook_7(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("notebook")
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path / "state"))
    shutil.copy(ROOT / "notebooks" / NOTEBOOK, tmp_path)
    environment = {"DTDG_LAB_STATE": str(tmp_path / "state"), "DTDG_LAB_CACHE": str(tmp_path / "cache")}
    errors: list[str] = []
    session = None
    with lab_server(tmp_path, environment) as address, chromium(width=1400) as page:
        # its own scripts complain of settings that are not there, whatever the notebook holds: no matter of the lab's
        page.on("pageerror", lambda e: None if "/static/notebook/" in (e.stack or "") else errors.append(str(e)))
        lab = address.format(notebook=NOTEBOOK)
        try:
            page.goto(lab.replace("/lab/tree/", "/notebooks/"))
            page.locator(".jp-InputPrompt").first.wait_for(timeout=60_000)
            # its page shows no state of the kernel by words: the server knows when the page is connected
            until(lambda: _kernels(lab) == [("idle", 1)], timeout_s=90, what="the kernel waits for the page's cells")
            run_all_again(page)
            has_run(page, CELLS)
            session = Session.attach("live-lab")
            session.current.set(epochs=100_000)  # it must not end while it is looked at
            begun = engines_and_runs(session)
            run_all_again(page)
            has_run(page, 2 * CELLS)
            assert engines_and_runs(session) == begun, "running all cells twice begins nothing new"
            assert page.evaluate(PAPERS) == ["white"]
            choose_theme(page, "JupyterLab Dark")
            until(lambda: page.evaluate(PAPERS) == [PAGE_COLOURS["dark"]["page"]], what="dark, as the page became")
        finally:
            page.screenshot(path=ROOT / "artifacts" / "notebook-7-last.png")
            if session is not None:
                session.close()
    assert errors == []


def _kernels(lab: str) -> list[tuple[str, int]]:
    """State of each kernel of the server whose page is ``lab``, and how many pages are connected to it."""
    root, rest = lab.split("/lab/tree/")
    token = rest.split("token=")[1].split("&")[0]
    with urllib.request.urlopen(f"{root}/api/kernels?token={token}") as answer:
        return [(kernel["execution_state"], kernel["connections"]) for kernel in json.load(answer)]
