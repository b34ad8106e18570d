"""The first notebook as a person uses it: Run All, look, click, move a slider, look again; Run All once more."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from dtdg_lab.cluster.session_files import end_session, list_sessions
from dtdg_lab.visualization.palette import PAGE_COLOURS
from tests.browser.jupyterlab import (
    CARDS,
    CHARTS,
    CONTROLS,
    MARKS,
    WIDTHS,
    button,
    choose,
    chromium,
    lab_server,
    look_at,
    points,
    run_all_cells,
    wait_for_change,
    wait_until,
)
from tests.browser.run_again import (
    CELLS,
    NOTEBOOK,
    PAPERS,
    ROOT,
    RUN,
    choose_theme,
    engines_and_runs,
    has_run,
    look_at_dashboard,
    restart_and_run_all,
    run_all_again,
)
from tests.following import applied_at_one_step, kill_rank, knob_steps, until, until_step

PICTURES = ROOT / "artifacts"


pytestmark = MARKS


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The notebook in JupyterLab, all of whose cells were told to run; its server and engines serve every test here."""
    PICTURES.mkdir(exist_ok=True)
    folder = tmp_path_factory.mktemp("live-lab")
    shutil.copy(ROOT / "notebooks" / NOTEBOOK, folder)
    # without real data: generated graphs train in a tenth of the time
    environment = {f"DTDG_LAB_{name.upper()}": str(folder / name) for name in ("state", "cache")}
    environment["DTDG_LAB_DATA"] = ""
    external: list[str] = []
    errors: list[str] = []
    with (
        pytest.MonkeyPatch.context() as patch,
        lab_server(folder, environment) as address,
        chromium(width=1400) as found,
    ):
        patch.setenv("DTDG_LAB_STATE", environment["DTDG_LAB_STATE"])
        found.set_default_timeout(60_000)  # of a click on a slow machine
        found.on(
            "request",
            lambda r: None if "127.0.0.1" in r.url or r.url.startswith(("data:", "blob:")) else external.append(r.url),
        )
        found.on("pageerror", lambda error: errors.append(str(error)))
        try:
            found.goto(address.format(notebook=NOTEBOOK))
            run_all_cells(found)
            yield found
        finally:
            found.screenshot(path=PICTURES / "live-lab-last.png")
            for left in list_sessions():  # engines of a notebook that no test came to use
                end_session(left.id)
    assert external == []
    assert errors == []


@pytest.fixture(scope="module")
def session(page: Any) -> Iterator[Session]:
    """The session that the notebook's cells began."""
    _follow_the_first_run(page)
    session = Session.attach("live-lab")
    yield session
    session.close()


def test_the_live_lab_in_a_browser(page: Any, session: Session, tmp_path_factory: pytest.TempPathFactory) -> None:
    _opens_clean(page)
    _save(page, next(tmp_path_factory.getbasetemp().glob(f"live-lab*/{NOTEBOOK}")))
    _steer_by_hand(page, session)


def _opens_clean(page: Any) -> None:
    """No question about news, and nothing of nbgrader, which is installed here."""
    import nbgrader

    assert nbgrader.__version__
    assert page.locator(".Toastify__toast").all_inner_texts() == []
    assert {"File", "Run"} <= set(menus := page.locator(".lm-MenuBar-itemLabel").all_inner_texts())
    assert "Nbgrader" not in menus
    assert page.get_by_text("Validate", exact=True).count() == 0
    tabs = [tab.get_attribute("title") or "" for tab in page.locator(".jp-SideBar .lm-TabBar-tab").all()]
    assert len(tabs) > 3 and not any("Assignment" in title for title in tabs)


@pytest.mark.slow
def test_cells_pages_and_kernels_can_be_started_again(page: Any, session: Session) -> None:
    page.wait_for_function(RUN, arg=CELLS, timeout=180_000)
    if session.current is None or session.current.status != "running":
        button(page, "run").click()
        until(lambda: session.current.status == "running", timeout_s=60, what="a run is under way")
    session.current.set(epochs=100_000)  # it must not end while it is looked at
    begun = engines_and_runs(session)
    run_all_again(page)
    has_run(page, 2 * CELLS)
    assert engines_and_runs(session) == begun, "running all cells twice begins nothing new"
    page.reload()  # as when the tab is closed and opened: the kernel goes on
    run_all_cells(page)
    has_run(page, 3 * CELLS)
    assert engines_and_runs(session) == begun, "opening the page again begins nothing new"
    restart_and_run_all(page)
    has_run(page, CELLS)
    assert engines_and_runs(session) == begun, "a new kernel finds engines and run"


@pytest.mark.slow
def test_the_dashboard_follows_jupyterlabs_own_theme(page: Any, session: Session) -> None:
    assert page.evaluate(PAPERS) == ["white"], "as the page is"
    choose_theme(page, "JupyterLab Dark")
    until(lambda: page.evaluate(PAPERS) == [PAGE_COLOURS["dark"]["page"]], what="dark, as the page became")
    page.screenshot(path=PICTURES / "live-lab-dark.png")
    choose_theme(page, "JupyterLab Light")
    until(lambda: page.evaluate(PAPERS) == ["white"], what="light, as the page became")


def _follow_the_first_run(page: Any) -> None:
    look_at_dashboard(page)  # Run All leaves the page at the notebook's end: scroll up as a person would
    wait_until(page, lambda charts: points(charts, "loss") > 20, timeout_s=180, what="20 points of the loss")
    assert page.evaluate(CARDS)[:5] == ["part_needs", "loss", "step_time", "energy", "timeline"]
    before = page.evaluate(CHARTS)
    wait_until(
        page, lambda charts: points(charts, "loss") > points(before, "loss") + 10, timeout_s=60, what="new points"
    )
    wait_until(page, lambda charts: any("1" in mark for mark in charts["loss"]["marks"]), timeout_s=60, what="the mark")
    wait_for_change(page, "slow down rank", timeout_s=60)


def _save(page: Any, path: Path) -> None:
    """The notebook does not keep the scripts that the dashboard brought, 20 MB."""
    before = path.stat().st_mtime_ns
    page.keyboard.press("Control+s")
    until(lambda: path.stat().st_mtime_ns != before and path.read_text().endswith("}\n"), what="the saved notebook")
    outputs = [output for cell in json.loads(path.read_text())["cells"] for output in cell.get("outputs", ())]
    assert len(outputs) > CELLS / 2
    assert path.stat().st_size < 1e6, sorted(len(json.dumps(output)) for output in outputs)


def _steer_by_hand(page: Any, session: Session) -> None:
    button(page, "stop").click()
    first = session.current
    assert first is not None
    first.wait(60)
    assert first.status == "stopped"
    button(page, "run").click()
    clicked = time.monotonic()
    while session.current is None or session.current.id == first.id:
        assert time.monotonic() - clicked < 60, "the Run button started no run"
        time.sleep(0.02)
    run = session.current
    run.set(epochs=100_000)  # it must not end while it is looked at
    until(lambda: run.config.epochs == 100_000, what="more epochs")
    look_at(page, "loss")
    wait_until(page, lambda charts: points(charts, "loss") > 0, timeout_s=60, what="the first point after Run")
    before = page.evaluate(CHARTS)
    page.get_by_role("slider", name="Learning rate").first.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    wait_for_change(page, "learning rate", timeout_s=60)
    look_at(page, "loss")
    wait_until(page, lambda charts: charts["loss"]["marks"] != before["loss"]["marks"], timeout_s=60, what="the mark")
    wait_until(
        page, lambda charts: points(charts, "loss") > points(before, "loss") + 10, timeout_s=60, what="new points"
    )
    wait_until(
        page,
        lambda charts: (charts["loss"]["last_x"] or 0) > 30 and _holds_its_points(charts["loss"]),
        timeout_s=60,
        what="an axis that holds the points",
    )
    slowed = {-1: "none"}.get(run.config["slow_rank"], f"rank {run.config['slow_rank']}")
    until(lambda: {slowed, run.config["slow_ms"]} <= set(page.evaluate(CONTROLS)), timeout_s=60, what="the controls")
    page.keyboard.press("Control+b")  # away with the file browser: the picture shows the lab
    button(page, "stop").evaluate("button => button.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(500)
    page.screenshot(path=PICTURES / "live-lab.png")
    assert knob_steps(run, "learning_rate")
    applied_at_one_step(run, "learning_rate")
    _look_at_the_data(page)
    _look_at_a_narrow_window(page)
    _change_the_partition(page, run)
    _repair_by_hand(page, session, run)


def _holds_its_points(drawn: dict[str, Any]) -> bool:
    return bool(drawn["x_range"][0] <= 0 and drawn["x_range"][1] >= drawn["last_x"])


def _has_points(charts: dict[str, Any], name: str) -> bool:
    return name in charts and points(charts, name) > 10


def open_view(page: Any, name: str) -> None:
    page.locator(".dl-views button", has_text=name).first.click()


def _look_at_the_data(page: Any) -> None:
    """The view of charts about the data set."""
    open_view(page, "Data")
    for name in ("size", "overlap", "degrees", "baselines"):
        look_at(page, name)
        wait_until(page, partial(_has_points, name=name), timeout_s=60, what=f"chart {name!r} of the data set")
    page.screenshot(path=PICTURES / "live-lab-data.png")
    open_view(page, "Live")
    look_at(page, "loss")
    page.wait_for_timeout(500)


def _look_at_a_narrow_window(page: Any) -> None:
    before = page.evaluate(WIDTHS)
    page.set_viewport_size({"width": 1100, "height": 800})
    until(lambda: page.evaluate(WIDTHS) != before, timeout_s=60, what="charts of another width")
    page.wait_for_timeout(500)
    page.screenshot(path=PICTURES / "live-lab-1100.png")
    for name in ("part_needs", "loss", "step_time", "energy"):
        look_at(page, name)
        widths = [width for width in page.evaluate(WIDTHS) if width]  # of the charts that are drawn
        assert widths and min(widths) >= 280, f"charts of {widths} pixels cannot be read"
    tabs = "tabs => tabs.map(tab => [tab.innerText, tab.getBoundingClientRect().right])"
    for name, right in page.locator(".dl-views button").evaluate_all(tabs):
        assert right <= 1100, f"the tab {name} is off the page"
    page.set_viewport_size({"width": 1400, "height": 900})


def _change_the_partition(page: Any, run: Run) -> None:
    """The nodes are assigned again, and the microscope draws it; from then on snapshots are cut in blocks."""
    open_view(page, "Partition")
    wait_until(
        page, lambda charts: any(name.startswith("partition-") for name in charts), timeout_s=60, what="the microscope"
    )
    choose(page, "round_robin")
    assert "round_robin" in wait_for_change(page, "partitioner", timeout_s=60)
    look_at(page, "partition-1")
    page.get_by_text("now: round_robin").first.wait_for(timeout=60_000)
    page.set_viewport_size({"width": 1100, "height": 900})
    page.wait_for_timeout(500)
    page.screenshot(path=PICTURES / "live-lab-partition.png")
    until(lambda: min(filter(None, page.evaluate(WIDTHS)), default=0) >= 280, what="charts that are wide enough")
    page.locator(".dl-systems button", has_text="ESDG").click()
    assert "ESDG" in wait_for_change(page, "system", timeout_s=60)
    for name in ("system", "partitioner"):
        (applied,) = knob_steps(run, name).values()
        assert {rank for rank, _ in applied} == {0, 1} and len({step for _, step in applied}) == 1, (name, applied)

    def fits() -> bool:
        button, notebook = (
            found.first.bounding_box()
            for found in (page.get_by_role("button", name="Measure"), page.locator(".jp-Notebook"))
        )
        return bool(button["x"] + button["width"] <= notebook["x"] + notebook["width"])

    until(fits, what="a page that is no wider than its place")
    page.set_viewport_size({"width": 1400, "height": 900})


def _repair_by_hand(page: Any, session: Session, run: Run) -> None:
    """An engine is killed; the buttons bring it back and go on."""
    kill_rank(run, 1)
    button(page, "resume").wait_for(timeout=60_000)  # the run has failed
    page.locator(".dl-head .dl-dots").first.click()
    page.get_by_role("menuitem", name="Restart engines").click(timeout=60_000)
    until(lambda: session.ready, timeout_s=60, what="the engine is replaced")
    button(page, "resume").click(timeout=60_000)
    until(lambda: session.current is not None and session.current.attempt == 2, what="the run is resumed")
    again = session.current
    assert again is not None and again.id == run.id
    until_step(again, run.live.progress.step + 5)
    button(page, "stop").click()
    again.wait(60)
