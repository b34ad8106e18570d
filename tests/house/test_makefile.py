"""The Makefile: a current environment costs nothing, a missing Python 3.11 says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")


def _make(*arguments: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS", "DTDG_LAB_", "ARGS"))
    }
    return subprocess.run(
        ["make", *arguments],
        cwd=cwd,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that define the environment, and no more."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


def _stamp(folder: Path) -> Path:
    planned = _make("-n", "env", "PYTHON=python3", cwd=folder).stdout
    return folder / next(line.split()[-1] for line in planned.splitlines() if line.startswith("touch "))


def test_every_folder_of_tests_is_run_once() -> None:
    calls = [line.split() for line in _make("-n", "test").stdout.splitlines() if "-m pytest" in line]
    folders = {f"tests/{file.parent.name}" for file in (ROOT / "tests").glob("*/test_*.py")}
    assert sorted(word for call in calls for word in call if word.startswith("tests/")) == sorted(folders)
    (chosen,) = (line for line in _make("-n", "test", "ARGS=-k energy").stdout.splitlines() if "-m pytest" in line)
    assert chosen.endswith("-k energy") and "tests/" not in chosen


def test_a_current_environment_installs_nothing(copy: Path) -> None:
    stamp = _stamp(copy)
    stamp.parent.mkdir()
    stamp.touch()
    done = _make("env", cwd=copy)
    assert done.returncode == 0, done.stderr
    assert "install" not in done.stdout.lower(), "nothing is installed"


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_definition_asks_for_an_installation(copy: Path, name: str) -> None:
    stamp = _stamp(copy)
    stamp.parent.mkdir()
    stamp.touch()
    (copy / name).write_text((copy / name).read_text() + "\n# changed\n")
    planned = _make("-n", "env", "PYTHON=python3", cwd=copy).stdout
    assert "pip install --quiet -c constraints.txt -e '.[lab,test,bench,docs]'" in planned
    assert planned.index("grep -E '^torch=='") < planned.index("-e '.[")


def test_without_python_311_it_names_conda_and_fails(copy: Path) -> None:
    done = _make("env", "PYTHON=", cwd=copy)
    assert done.returncode != 0
    assert "conda env create -f environment.yml" in done.stderr
    assert not (copy / ".venv").exists()


def test_data_beside_the_project_is_used_unless_the_user_names_some(copy: Path) -> None:
    real = copy.parent / "shared" / "data" / "real"
    (copy / "Makefile").write_text((copy / "Makefile").read_text() + "\nshow:\n\t@echo data=$${DTDG_LAB_DATA:-}\n")
    assert "data=\n" in _make("show", cwd=copy).stdout
    real.mkdir(parents=True)
    (real / "index.json").write_text("{}")
    assert f"data={real}\n" in _make("show", cwd=copy).stdout
    assert "data=mine\n" in _make("show", cwd=copy, DTDG_LAB_DATA="mine").stdout


TARGETS = ("env", "lab", "demo", "check", "test", "test-full", "soak", "bench", "supply", "lint", "algorithms")


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_can_be_planned(target: str) -> None:
    done = _make("-n", target, "PYTHON=python3")
    assert done.returncode == 0, done.stderr


def test_help_is_what_plain_make_shows() -> None:
    assert "make lab" in _make().stdout


def test_ci_script_is_executable_bash() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert script.read_text().splitlines()[0] == "#!/usr/bin/env bash"
