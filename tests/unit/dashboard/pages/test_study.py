"""The page of studies: read from the disk while they grow, a click opens a run, nothing is raised at the loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtdg_lab.dashboard.pages.study import StudyPage
from dtdg_lab.runs.finish import finish
from dtdg_lab.studies.run_study import run_study
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.visualization.chart import title_of
from tests.dashboards import Loop
from tests.pretend_studies import BASE, PretendTraining, pretend_training
from tests.stored_runs import finished_run

SWEEP = Sweep(BASE, {"full_snapshots": (1, 2), "alpha": (0.1, 0.6)}, seeds=(0,))


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> PretendTraining:
    return pretend_training(monkeypatch)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def page(tmp_path: Path, loop: Loop) -> Iterator[StudyPage]:
    made = StudyPage(loop.defer, tmp_path / "studies")
    yield made
    made.close()


def study_in(folder: Path, **how: object) -> Study:
    return run_study(SWEEP, name="mine", runs_dir=folder, progress=False, **how)  # type: ignore[arg-type]


def test_a_page_without_studies_says_how_to_make_one(page: StudyPage, loop: Loop) -> None:
    page.update(slow=True)
    assert page.words.value.startswith("No study here yet.") and page.map.figures() == {}
    assert page.report.disabled


def test_the_map_grows_with_the_study(tmp_path: Path, training: PretendTraining, page: StudyPage, loop: Loop) -> None:
    seen = []

    def on_trial(study: Study) -> None:
        done = study.counts.get("finished", 0)
        if done:
            loop.until(lambda: f"{done} finished" in page.words.value, page=page)
            heat = page.map.figures()["study-map"]["data"][0]["z"]
            seen.append(sum(value is not None for row in heat for value in row))

    study_in(tmp_path, on_trial=on_trial)
    assert seen == [1, 2, 3, 4]
    assert page.study.options == ["mine"] and page.across.value == "full_snapshots" and page.up.value == "alpha"
    assert page.map.captions()["study-map"].startswith("Lowest validation_loss")
    page.colour.value = "peak_bytes"
    loop.until(lambda: title_of(page.map.figures()["study-map"]) == "mine: peak_bytes", page=page)
    page.across.value = "alpha"
    loop.until(lambda: page.up.value == "full_snapshots", page=page)


def test_a_click_opens_a_run_and_report(tmp_path: Path, training: PretendTraining, page: StudyPage, loop: Loop) -> None:
    study = study_in(tmp_path)
    real = finished_run(tmp_path / "real")
    finish(real, "finished")
    log = study.path / "optuna.journal"
    log.write_text(log.read_text().replace(json.dumps(study.trials[3].run.name), json.dumps(str(real.path))))
    loop.until(lambda: len(page.trial.options) == 5, page=page)
    click(page, ["told", study.trials[3].key])
    loop.until(lambda: bool(page.charts.figures()), page=page)
    assert page.trial.value == study.trials[3].key and real.id in page.run_words.value
    assert {"study-run-loss", "study-run-step_time"} <= set(page.charts.figures())
    assert page.charts.captions()["study-run-loss"]
    assert page.charts.figures()["study-run-loss"]["layout"]["meta"]["card"]["title"] == "Loss"
    assert not page.report.disabled and page.report.filename == f"{real.id}.html"
    assert page.report.callback() == str(real.report_file)
    click(page, ["", ""])
    loop.until(lambda: page.run_words.value == "That cell has no run yet.")


def click(page: StudyPage, customdata: list[str]) -> None:
    """Click on a cell of the map."""
    point = {"chart": "study-map", "x": 0, "y": 0, "customdata": customdata}
    page.map._handle_msg(json.dumps({"display": "d", "visible": ["study-map"], "kind": "clicked", **point}))


def test_damage_is_said_on_the_page(tmp_path: Path, training: PretendTraining, page: StudyPage, loop: Loop) -> None:
    study = study_in(tmp_path)
    loop.until(lambda: len(page.trial.options) == 5, page=page)
    page.trial.value = study.trials[0].key  # a run without records
    loop.until(lambda: bool(page.run_words.value), page=page)
    (study.path / "optuna.journal").write_text("garbage\n")
    loop.until(lambda: "is damaged" in page.words.value, page=page)
    assert page.map.figures() == {}
