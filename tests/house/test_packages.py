"""The eight packages of the lab import without a warning, and the files that name them agree."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import supply

ROOT = Path(__file__).resolve().parents[2]
# import name -> distribution
EIGHT = {
    "jupyterlab": "jupyterlab",
    "ipywidgets": "ipywidgets",
    "torch": "torch",
    "dgl": "dgl",
    "plotly": "plotly",
    "panel": "panel",
    "pynvml": "nvidia-ml-py",
    "ipyparallel": "ipyparallel",
}


def _project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _requirements(extra: str | None) -> dict[str, Requirement]:
    project = _project()
    lines = project["dependencies"] if extra is None else project["optional-dependencies"][extra]  # type: ignore[index]
    parsed = [Requirement(line) for line in lines]  # type: ignore[attr-defined]
    return {canonicalize_name(requirement.name): requirement for requirement in parsed}


def _pins() -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pairs = [line.split("==") for line in lines if line]
    assert all(len(pair) == 2 for pair in pairs), "every line of constraints.txt pins one version with =="
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.slow  # of the environment, not of this project
def test_all_eight_import_with_warnings_as_errors() -> None:
    names = [name for name in EIGHT if name != "dgl" or sys.version_info < (3, 12)]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import {', '.join(names)}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("extra", [None, "lab", "test", "bench", "docs"])
def test_every_dependency_is_pinned_and_the_pin_is_allowed(extra: str | None) -> None:
    pins = _pins()
    for name, requirement in _requirements(extra).items():
        if name == "dtdg-lab":
            continue
        assert name in pins, f"constraints.txt lacks {name}"
        assert requirement.specifier.contains(pins[name]), f"{requirement} does not allow {pins[name]}"


def test_everything_the_dependencies_need_is_pinned() -> None:
    """Follow what is installed from our requirements down: what pip would add must be in constraints.txt."""
    pins, seen = _pins(), set[tuple[str, frozenset[str]]]()
    waiting = [("dtdg-lab", frozenset({"lab", "test", "bench", "docs"}))]
    while waiting:
        name, extras = waiting.pop()
        for line in importlib.metadata.requires(name) or []:
            requirement = Requirement(line)
            environments = [{**default_environment(), "extra": extra} for extra in extras or {""}]
            needed = canonicalize_name(requirement.name)
            # builds of torch for CPU and for CUDA need different things, and none of CUDA's are pinned here
            if name == "torch" or (requirement.marker and not any(map(requirement.marker.evaluate, environments))):
                continue
            step = (needed, frozenset(requirement.extras))
            if step not in seen and needed != "dtdg-lab":
                seen.add(step)
                waiting.append(step)
    needed_names = {name for name, _ in seen}
    assert len(needed_names) > 50
    assert sorted(needed_names - set(pins)) == []


def test_what_is_installed_is_what_is_pinned() -> None:
    """The tests speak about the pinned versions, so they must run on them."""
    pins = _pins()
    installed = {
        name: importlib.metadata.version(name) for name in EIGHT.values() if name != "dgl" or sys.version_info < (3, 12)
    }
    differing = {name: version for name, version in installed.items() if version.partition("+")[0] != pins[name]}
    assert differing == {}


def test_environment_yml_makes_the_lab_extra_with_constraints() -> None:
    text = (ROOT / "environment.yml").read_text()
    entries = [
        line.strip().removeprefix("- ").strip('"') for line in text.splitlines() if line.strip().startswith("- ")
    ]
    assert {"python=3.11", "pip", "-c constraints.txt", "-e .[lab]"} <= set(entries)
    assert re.search(r"^name: dtdg-lab$", text, re.M)


def test_python_of_all_files_agrees() -> None:
    assert _project()["requires-python"] == ">=3.11"
    assert "sys.version_info[:2] == (3, 11)" in (ROOT / "Makefile").read_text()


# The supply of packages: `make supply` also asks for known vulnerabilities


def test_every_pinned_package_has_a_licence_on_the_list() -> None:
    refused, missing = supply.licences()
    assert refused == {}
    assert len(missing) < 20 < len(supply.pins()) - len(missing)


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only", False),
        ("(MIT AND Apache-2.0 WITH LLVM-exception)", True),
        ("Apache-2.0 WITH Other-exception", False),
        ("", False),
    ],
)
def test_licences_are_compared_part_by_part(expression: str, allowed: bool) -> None:
    assert supply.is_allowed(expression) is allowed


def _audited(tmp_path: Path, report: str, code: int, error: str = "") -> tuple[list[str], list[str]]:
    script = tmp_path / "audit.py"
    script.write_text(f"import sys; print({report!r}); print({error!r}, file=sys.stderr); sys.exit({code})")
    return supply.vulnerabilities([sys.executable, str(script)])


def test_what_pip_audit_could_not_check_is_named(tmp_path: Path) -> None:
    known, unchecked = _audited(tmp_path, "", 1, "ServiceError: cannot connect")
    assert known == [] and unchecked == ["vulnerabilities: pip-audit ended with 1: ServiceError: cannot connect"]
    _, unchecked = supply.vulnerabilities(None)
    assert "not installed" in unchecked[0]
    whole = [{"name": name, "version": version, "vulns": []} for name, version in supply.pins().items()]
    assert _audited(tmp_path, json.dumps({"dependencies": whole}), 0) == ([], [])
    whole[0]["vulns"] = [{"id": "CVE-1", "fix_versions": ["9"]}]
    whole[1] = {"name": whole[1]["name"], "skip_reason": "not found on the index"}
    known, unchecked = _audited(tmp_path, json.dumps({"dependencies": whole[:-1]}), 1)
    assert known == [f"{whole[0]['name']} {whole[0]['version']}: CVE-1, fixed in 9"]
    assert [line.rpartition(": ")[2] for line in unchecked] == ["not found on the index", "pip-audit does not list it"]
