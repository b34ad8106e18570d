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
    shutil.copytree(ROOT / "etc", folder / "etc")
    return folder


def _plan(target: str, folder: Path) -> str:
    done = _make("-n", target, "PYTHON=python3", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _installed(plan: str) -> list[str]:
    """What pip installs by name, without torch."""
    return [line.split()[-1].strip("'") for line in plan.splitlines() if "pip install" in line and "grep" not in line]


def _touch_stamps(plan: str, folder: Path) -> None:
    (folder / ".venv").mkdir(exist_ok=True)
    for line in plan.splitlines():
        if line.startswith("touch "):
            (folder / line.split()[-1]).touch()


def test_every_folder_of_tests_is_run_once() -> None:
    calls = [line.split() for line in _make("-n", "test").stdout.splitlines() if "-m pytest" in line]
    folders = {f"tests/{file.relative_to(ROOT).parts[1]}" for file in (ROOT / "tests").glob("*/**/test_*.py")}
    assert sorted(word for call in calls for word in call if word.startswith("tests/")) == sorted(folders)
    (chosen,) = (line for line in _make("-n", "test", "ARGS=-k energy").stdout.splitlines() if "-m pytest" in line)
    assert chosen.endswith("-k energy") and "tests/" not in chosen


@pytest.mark.parametrize(
    ("target", "packages"),
    [
        ("env", [".[lab]"]),
        ("lab", [".[lab]"]),
        ("demo", [".[lab]"]),
        ("test", [".[lab]", "dtdg-lab[test]"]),
        ("check", [".[lab]", "dtdg-lab[test]"]),
        ("lint", [".[lab]", "dtdg-lab[test]"]),
        ("docs", [".[lab]", "dtdg-lab[docs]"]),
        ("bench", [".[lab]", "dtdg-lab[bench]"]),
    ],
)
def test_a_target_installs_what_it_needs(copy: Path, target: str, packages: list[str]) -> None:
    plan = _plan(target, copy)
    assert _installed(plan) == packages
    assert plan.index("grep -E '^torch=='") < plan.index("-e '.[")
    _touch_stamps(plan, copy)
    assert _installed(_plan(target, copy)) == [], "a second call installs nothing"


def test_extras_are_added_to_a_lab_that_stays(copy: Path) -> None:
    _touch_stamps(_plan("lab", copy), copy)
    for target, extra in (("docs", "docs"), ("bench", "bench"), ("test", "test")):
        plan = _plan(target, copy)
        assert _installed(plan) == [f"dtdg-lab[{extra}]"]
        _touch_stamps(plan, copy)
    assert _installed(_plan("lab", copy)) == []


@pytest.mark.parametrize(
    "name", ["pyproject.toml", "constraints.txt", "etc/jupyter/labconfig/page_config.d/dtdg_lab.json"]
)
@pytest.mark.parametrize("target", ["env", "test"])
def test_a_changed_definition_asks_for_an_installation(copy: Path, name: str, target: str) -> None:
    _touch_stamps(_plan("test", copy), copy)
    (copy / name).write_text((copy / name).read_text() + "\n")
    plan = _plan(target, copy)
    assert _installed(plan) == [".[lab]", "dtdg-lab[test]"][: 1 if target == "env" else 2]
    assert "rm -f .venv/.installed-*" in plan, "stamps of the former definition go"


def test_settings_of_jupyterlab_are_copied_into_the_environment(copy: Path) -> None:
    assert "cp -R etc .venv/" in _plan("env", copy).splitlines()


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


TARGETS = ("env", "lab", "demo", "check", "test", "test-full", "soak", "bench", "supply", "docs", "lint", "algorithms")


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
