"""Registered code, also of a notebook cell, trains on engines; its runs open where it is not registered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.children import TESTS, run_python

MODEL = '''"""Models of a user."""

import dtdg_lab as lab
from dtdg_lab.models.tgcn import TGCN


class Plain(TGCN):
    """A T-GCN by another name."""


lab.register(Plain, "model", "plain")
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registered")


@pytest.fixture(scope="module")
def trial(folder: Path) -> dict[str, Any]:
    """What trained with code that only the script has."""
    printed = run_python(TESTS / "registered_code" / "trial.py", folder, folder=folder, paths=[TESTS])
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def visit(trial: dict[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """What another process saw of it."""
    printed = run_python(TESTS / "registered_code" / "visit.py", json.dumps(trial), folder, folder=folder)
    yield json.loads(printed.splitlines()[-1])


def test_code_of_a_script_trains_on_engines_as_here(trial: dict[str, Any]) -> None:
    assert trial["loss"] == pytest.approx(trial["here"], rel=1e-5)
    assert trial["resumed"] == "stopped" and trial["forked"] == "finished" and trial["replayed"]
    assert trial["trials"] == ["finished", "finished"]
    assert "If scheduler 'late' was registered after this attempt began" in trial["late"]
    assert trial["described"] == ["paced", "late"]
    assert "model 'locked' cannot be sent to engines" in trial["refused"] and trial["beside"] == "finished"


def test_code_that_has_changed_continues_no_run_race_or_study(trial: dict[str, Any]) -> None:
    for what, message in zip(("run", "race", "study"), trial["changed"], strict=True):
        assert message.startswith(what) and "the code of model 'paced' differs (sha256" in message
        assert "lab.runs.fork" in message if what == "run" else "another name" in message


def test_a_run_keeps_the_description_of_its_code(trial: dict[str, Any]) -> None:
    (model,) = json.loads((Path(trial["model"]) / "extensions.json").read_text())["extensions"]
    assert (model["kind"], model["name"], model["target"]) == ("models", "paced", "")
    assert "class Paced(TGCN)" in model["code"] and "HALF = 0.5" in model["code"] and model["sha256"]
    assert model["declared"][0]["high"] == 2.0
    (family,) = json.loads((Path(trial["family"]) / "extensions.json").read_text())["extensions"]
    assert family["target"] == "outside_family.striped:FAMILY" and family["code"] == ""


@pytest.mark.parametrize("kind", ["model", "scheduler", "partitioner", "task", "data", "family"])
def test_a_run_opens_where_its_code_is_not_registered(kind: str, visit: dict[str, Any]) -> None:
    seen = visit[kind]
    assert seen["status"] == "finished" and seen["same"] and seen["settings"] and seen["noted"] and seen["checkpoints"]
    assert "is not registered here. Register it first: lab.register(" in seen["train"]
    assert seen["fork"] == seen["train"]


def test_races_and_studies_open_and_are_not_continued(visit: dict[str, Any]) -> None:
    assert visit["compared"] == ["finished"] * 6
    assert visit["race"] == ["mine", "plain"] and visit["race script"] and visit["study"] == ["finished"] * 2
    for action in ("repeat", "again", "resume", "replay"):
        assert 'lab.register(Paced, "model", "paced", options=[Option(name="pace"' in visit[action], action
    assert not {"paced", "backwards", "striped"} & set(visit["listed"]), "absent names are not offered"


def test_an_exported_script_registers_and_repeats(trial: dict[str, Any], folder: Path) -> None:
    printed = run_python(trial["script"], folder / "again", folder=folder)
    assert f"train_loss: {trial['loss']!r}, recorded {trial['loss']!r}" in printed


def test_the_command_line_registers_a_file_that_engines_import(folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    (home / "plain_models.py").write_text(MODEL)
    sizes = {"generated_nodes": 60, "generated_edges": 240, "generated_snapshots": 20, "hidden": 4, "ranks": 2}
    config = folder / "plain.json"
    config.write_text(json.dumps({"system": "psg", "dataset": "growing", "model": "plain", "epochs": 1, **sizes}))
    run = ["-m", "dtdg_lab", "run", str(config), "--runs", str(folder / "plain")]
    assert "Unknown model 'plain'" in run_python(*run, folder=folder, code=2)
    assert "finished: 1 epochs" in run_python(*run, "--register", "home/plain_models.py", folder=folder)
    (made,) = (folder / "plain").iterdir()
    (model,) = json.loads((made / "extensions.json").read_text())["extensions"]
    assert model["target"] == "plain_models:Plain" and model["sha256"]
    assert "plain_models.py" not in (made / "environment.json").read_text(), "no path of this machine"
