"""The tests' own budget: it covers every folder, sums to at most ten minutes, and is enforced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import pytest

from tests import budget, changed, thinning

TESTS = Path(__file__).resolve().parents[1]


def test_every_folder_has_seconds_and_the_whole_is_at_most_ten_minutes() -> None:
    seconds = budget.read_budget(budget.TABLE.read_text())
    folders = {file.relative_to(TESTS).parts[0] for file in TESTS.glob("*/**/test_*.py")}
    assert folders <= set(seconds)
    assert 60 < sum(seconds.values()) <= 600


def test_what_takes_longer_or_is_not_listed_is_named() -> None:
    assert budget.overdrawn({"unit": 5.0}, {"unit": 5}) == []
    assert "tests/unit took 5.1 s of 5 s" in budget.overdrawn({"unit": 5.1}, {"unit": 5})[0]
    assert "has no line" in budget.overdrawn({"new": 0.1}, {"unit": 5})[0]


@pytest.mark.parametrize(
    ("spent_s", "named"),
    [
        ((20.0, 100.0), []),
        ((21.0, 60.0), ["tests/contracts"]),
        ((29.0, 150.0), []),
        ((31.0, 150.0), ["tests/contracts"]),
        ((10.0, 205.0), ["tests/unit"]),
        ((19.0, 205.0), []),
        ((39.0, 405.0), ["all tests"]),
    ],
)
def test_a_folder_is_judged_by_the_speed_of_the_others(spent_s: tuple[float, float], named: list[str]) -> None:
    folders = ("contracts", "unit")
    spent = dict(zip(folders, spent_s, strict=True))
    lines = budget.failures(spent, dict(zip(folders, (10.0, 100.0), strict=True)))
    assert [line.partition(" took")[0] for line in lines] == named
    assert len(budget.failures({"unit": 205.0}, {"unit": 100.0, "cluster": 100.0})) == 1, "the others did not run"
    assert len(budget.failures({"new": 0.1}, {"unit": 100.0})) == 1


@pytest.mark.parametrize(("arguments", "code"), [([], 1), (["-n", "2", "--no-budget"], 0)])
def test_a_slow_session_fails_and_reasons_of_skips_are_counted(tmp_path: Path, arguments: list[str], code: int) -> None:
    folder = tmp_path / "tests" / "unit"
    folder.mkdir(parents=True)
    (folder / "test_it.py").write_text(
        "import time, pytest\ndef test_it(): time.sleep(0.05)\n"
        "@pytest.mark.parametrize('one', [1, 2])\ndef test_that(one): pytest.skip('no GPU here')\n"
    )
    (tmp_path / "tests" / "budget.py").write_text((TESTS / "budget.py").read_text())
    (tmp_path / "tests" / "BUDGET.md").write_text("| folder | seconds |\n| --- | --- |\n| unit | 0.001 |\n")
    (tmp_path / "tests" / "conftest.py").write_text('pytest_plugins = ["budget"]\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    command = [sys.executable, "-m", "pytest", "-p", "xdist.plugin", *arguments]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # installed plugins take longer than the tests
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=300, check=False)
    assert "OVER BUDGET: tests/unit took 0." in done.stdout, done.stdout + done.stderr
    assert "   2  no GPU here" in done.stdout
    assert done.returncode == code
    (stored,) = (tmp_path / ".pytest_cache" / "v").glob("budget/*")
    assert json.loads(stored.read_text())["tests/unit/test_it.py"] > 0.05


def test_a_check_runs_the_nearest_tests_first() -> None:
    near = changed.nearest_tests(["dtdg_lab/rl/dqn.py", "tests/house/test_budget.py"])
    assert near["tests/house/test_budget.py"] == 0
    assert near["tests/unit/rl/test_dqn.py"] == 1
    assert list(near.values()) == sorted(near.values()) and max(near.values()) > 1
    assert changed.chosen({"a": 1, "b": 1, "c": 2}, {"a": 5, "b": 1, "c": 1}, limit_s=6) == (["b", "a"], ["c"])
    modules = ["dtdg_lab.energy.monitor", "dtdg_lab.energy", "dtdg_lab"]
    assert changed.module_of("dtdg_lab/energy/monitor.py", modules) == "dtdg_lab.energy.monitor"
    assert changed.module_of("dtdg_lab/energy/weights/a.npz", modules) == "dtdg_lab.energy"


def test_a_product_of_three_is_thinned_to_its_pairs() -> None:
    tuples = list(product(range(4), range(3), range(3)))
    chosen = [tuples[place] for place in sorted(thinning.covering(tuples))]
    assert len(chosen) < len(tuples) / 2
    for one, other in combinations(range(3), 2):
        assert {(t[one], t[other]) for t in chosen} == {(t[one], t[other]) for t in tuples}
    kept = [place for place, case in enumerate(thinning.thinned("abcde", 3)) if isinstance(case, str)]
    assert kept == [0, 2, 4]
    with pytest.raises(ValueError, match="there are 2 cases"):
        thinning.thinned("ab", [2])
