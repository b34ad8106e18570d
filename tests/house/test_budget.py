"""The tests' own budget: it covers every folder, sums to at most forty minutes of one process, and is enforced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import budget
import pytest

TESTS = Path(__file__).resolve().parents[1]


def test_every_folder_has_seconds_and_the_whole_is_at_most_forty_minutes() -> None:
    seconds = budget.read_budget(budget.TABLE.read_text())
    folders = {file.relative_to(TESTS).parts[0] for file in TESTS.glob("*/test_*.py")}
    assert folders <= set(seconds)
    assert 300 < sum(seconds.values()) <= 2400


def test_what_takes_longer_or_is_not_listed_is_named() -> None:
    assert budget.overdrawn({"unit": 5.0}, {"unit": 5}) == []
    assert "tests/unit took 5.1 s of 5 s" in budget.overdrawn({"unit": 5.1}, {"unit": 5})[0]
    assert "has no line" in budget.overdrawn({"new": 0.1}, {"unit": 5})[0]


@pytest.mark.parametrize(("arguments", "code"), [([], 1), (["--no-budget"], 0)])
def test_a_slow_session_fails(tmp_path: Path, arguments: list[str], code: int) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_it.py").write_text("import time\ndef test_it(): time.sleep(0.05)\n")
    (tmp_path / "tests" / "budget.py").write_text((TESTS / "budget.py").read_text())
    (tmp_path / "tests" / "BUDGET.md").write_text("| folder | seconds |\n| --- | --- |\n| unit | 0.01 |\n")
    (tmp_path / "tests" / "conftest.py").write_text('pytest_plugins = ["budget"]\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "OVER BUDGET: tests/unit took 0." in done.stdout, done.stdout + done.stderr
    assert done.returncode == code
