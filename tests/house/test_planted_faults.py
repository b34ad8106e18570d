"""The planted faults of tests/faults fit the present code; tests/faults/run.py finds out which test sees each."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATCHES = sorted((ROOT / "tests" / "faults").glob("*.patch"))


def test_there_are_sixty_faults_with_a_number_each() -> None:
    numbers = [int(patch.name.partition("_")[0]) for patch in PATCHES]
    assert numbers == list(range(1, len(PATCHES) + 1))
    assert len(PATCHES) >= 60


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_fault_applies_and_names_tests_that_exist(patch: Path) -> None:
    checked = subprocess.run(
        ["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    advice = "plant the fault again in the present code: see tests/faults/README.md"
    assert not checked.returncode, f"{advice}\n{checked.stderr}"
    text = patch.read_text()
    assert all(file.startswith("dtdg_lab/") for file in re.findall(r"^\+\+\+ b/(\S+)$", text, re.M))
    (tests,) = re.findall(r"^Seen by: (.+)$", text, re.M)
    assert [test for test in tests.split() if not _runs(*test.split("::"))] == [], "make test does not run these"


def _runs(file: str, name: str = "") -> bool:
    """Whether `make test` runs a file, or a test of it."""
    path = ROOT / file
    if not name:
        return path.is_file()
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    found = [node.decorator_list for node in functions if node.name == name]
    return bool(found) and not any(ast.unparse(decorator) == "pytest.mark.slow" for decorator in found[0])
