"""Imports go down only: the contracts of pyproject.toml hold, and would be broken by what they forbid."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_import_contracts_hold() -> None:
    done = _lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_an_import_upwards_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for file in (ROOT / "dtdg_lab").rglob("*.py"):
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(file.read_text())
    (tmp_path / "dtdg_lab" / "core" / "wrong.py").write_text("import dtdg_lab.runs\n")
    done = _lint(tmp_path)
    assert done.returncode != 0
    assert "dtdg_lab.core.wrong -> dtdg_lab.runs" in done.stdout


def test_the_picture_of_the_architecture_has_the_layers_of_the_contract() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    (picture,) = re.findall(r"```text\n(.*?)```", text, re.S)
    lines = [
        re.split(r"\s{2,}", line.strip(" ┌─┐"))[0] for line in picture.splitlines() if not line.startswith(("│", "└"))
    ]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert [set(line.split(" · ")) for line in lines] == [set(layer.split(" | ")) for layer in layers]
