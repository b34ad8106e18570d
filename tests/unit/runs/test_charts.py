"""Charts of a run: what they say where no data will come any more."""

from __future__ import annotations

import shutil
import struct
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dtdg_lab.cluster.followed_run import LocalRun
from dtdg_lab.core.errors import DataError, NotAvailableError, RunStoreError
from dtdg_lab.runs.charts import draw
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.visualization.chart import FIRST_EPOCH, FIRST_STEP, NOTHING_YET, Chart, ChartOptions, always, card
from tests.stored_runs import finished_run
from tests.tables import run_tables

STEPS: list[dict[str, Any]] = [{"rank": rank, "step": step} for step in range(200) for rank in (0, 1)]


def words(empty: str, steps: int, *, ended: bool) -> tuple[str, str]:
    """Return what a chart without data says in its plot and under it."""
    chart = Chart(
        name="bare",
        title="Bare",
        figure=lambda tables, options: card([], "Bare", empty=empty),
        caption=lambda tables, options: NOTHING_YET,
        section="supporting",
        applies=always,
    )
    figure, caption = draw(chart, run_tables({}, {"steps": STEPS[: 2 * steps]}), replace(ChartOptions(), ended=ended))
    return figure["layout"]["annotations"][0]["text"], caption


@pytest.mark.parametrize("empty", [FIRST_STEP, FIRST_EPOCH, "Appears with the first exchange"])
def test_a_chart_of_a_run_that_begins_says_when_it_appears(empty: str) -> None:
    assert words(empty, 0, ended=False) == (empty, NOTHING_YET)
    assert words(empty, 3, ended=False)[0] == empty


@pytest.mark.parametrize("ended", [False, True])
def test_a_chart_says_what_a_run_has_not_recorded(ended: bool) -> None:
    assert words(FIRST_STEP, 200, ended=ended) == ("This run didn't record it", "Nothing was measured.")


def test_a_chart_says_what_a_run_that_has_ended_has_none_of() -> None:
    assert words(FIRST_STEP, 0, ended=True)[0] == "This run has no step"
    assert words(FIRST_EPOCH, 3, ended=True)[0] == "This run has no complete epoch"
    assert words("Appears with the first exchange", 9, ended=True)[0] == "This run has no exchange"
    assert words("Appears when a size was rewarded", 9, ended=True)[0] == "This run has none of it"
    assert words("With one rank, nothing is sent", 9, ended=True)[0] == "With one rank, nothing is sent"


NAMES = {"loss", "step-time", "energy", "timeline"}
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    return StoredRun(finished_run(tmp_path / "runs"))


@pytest.fixture
def without_kaleido(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)


def is_complete_page(file: Path) -> bool:
    """Return whether a page has a chart and plotly.js, and loads nothing."""
    text = file.read_text(encoding="utf-8")
    return "Plotly.newPlot(" in text and "plotly.js v" in text and "<script src" not in text and "<link" not in text


def test_without_kaleido_each_chart_is_a_page_by_itself(run: StoredRun, tmp_path: Path, without_kaleido: None) -> None:
    files = run.save_figures(tmp_path / "new" / "figures")
    assert {file.stem for file in files} == {name.replace("_", "-") for name in run.figures()} >= NAMES
    assert sorted(files) == sorted((tmp_path / "new" / "figures").iterdir())
    assert all(file.suffix == ".html" and is_complete_page(file) for file in files)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
def test_with_kaleido_each_chart_is_a_png_and_an_svg(run: StoredRun, tmp_path: Path) -> None:
    pytest.importorskip("kaleido", reason="pip install 'dtdg-lab[figures]'")
    files = run.save_figures(str(tmp_path / "figures"))
    names = {name.replace("_", "-") for name in run.figures()}
    assert {file.name for file in files} == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    for file in files:
        content = file.read_bytes()
        if file.suffix == ".png":
            assert content[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">I", content[16:20]) == (2000,)
        else:
            assert b"<svg" in content[:200] and content.rstrip().endswith(b"</svg>")
    assert b"mean squared error" in (tmp_path / "figures" / "loss.svg").read_bytes()


def test_a_live_run_saves_what_it_shows(tmp_path: Path, without_kaleido: None) -> None:
    live = LocalRun(finished_run(tmp_path / "runs"))
    live.close()
    files = live.save_figures(tmp_path / "figures")
    assert {file.stem for file in files} >= NAMES and all(map(is_complete_page, files))


def test_a_folder_with_files_is_left_as_it_is(run: StoredRun, tmp_path: Path, without_kaleido: None) -> None:
    folder = tmp_path / "figures"
    folder.mkdir()
    files = run.save_figures(folder)  # an empty one is filled
    (folder / "notes.txt").write_text("mine")
    files[0].write_text("mine too")
    with pytest.raises(RunStoreError, match=r"it is not empty\. Give another folder, or overwrite=True"):
        run.save_figures(folder)
    assert files[0].read_text() == "mine too"
    assert run.save_figures(folder, overwrite=True) == files
    assert is_complete_page(files[0]) and (folder / "notes.txt").read_text() == "mine"
    with pytest.raises(RunStoreError, match="it is a file"):
        run.save_figures(files[0], overwrite=True)
    with pytest.raises(RunStoreError, match="Not a directory"):
        run.save_figures(files[0] / "below")
    with pytest.raises(DataError, match="folder=7"):
        run.save_figures(7)  # type: ignore[arg-type]


def test_kaleido_without_chrome_says_what_to_install_and_leaves_nothing(run: StoredRun, tmp_path: Path) -> None:
    pytest.importorskip("kaleido", reason="pip install 'dtdg-lab[figures]'")
    with (
        mock.patch("choreographer.browsers.chromium.Chromium.find_browser", return_value=None),
        pytest.raises(NotAvailableError, match=r"finds no Chrome or Chromium.*apt-get install chromium"),
    ):
        run.save_figures(tmp_path / "figures")
    assert list((tmp_path / "figures").iterdir()) == []


def test_an_old_or_failing_kaleido_is_stated(run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kaleido = pytest.importorskip("kaleido", reason="pip install 'dtdg-lab[figures]'")
    failure = mock.Mock(side_effect=RuntimeError("the browser\n seemed to close"))
    monkeypatch.setattr(kaleido, "write_fig_from_object_sync", failure)
    with pytest.raises(NotAvailableError, match="the browser seemed to close"):
        run.save_figures(tmp_path / "figures")
    monkeypatch.setattr(metadata, "version", lambda name: "0.2.1")
    with pytest.raises(NotAvailableError, match="kaleido is too old"):
        run.save_figures(tmp_path / "figures")
