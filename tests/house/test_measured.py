"""What benchmarks keep is what the documentation shows, number by number, and what they write is read again."""

from __future__ import annotations

import importlib
import json
import re
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dtdg_lab.core.child_process import is_running

ROOT = Path(__file__).resolve().parents[2]
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if "<!-- measured " in page.read_text()]
STORED = {file.stem: json.loads(file.read_text()) for file in sorted((ROOT / "benchmarks/results").glob("*.json"))}
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?")


@pytest.fixture(scope="module")
def measured() -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs"))
    return importlib.import_module("measured")


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("result_files")
    monkeypatch.setattr(module, "FOLDER", tmp_path / "results")
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(module, "commit", lambda: "0123abc")
    yield module
    for name in [name for name in sys.modules if name in ("result_files", "quick")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", STORED)
def test_every_part_says_where_its_numbers_come_from(name: str) -> None:
    for part, found in STORED[name].items():
        assert re.fullmatch(r"[0-9a-f]{7,}", found["commit"]), part
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", found["date"]), part
        script = re.match(r"python (?:-m pytest .*?(tests/\S+)|(benchmarks/\w+\.py))", found["command"])
        assert script is not None and (ROOT / (script[1] or script[2])).exists(), part
        assert found["source"] == "measured", part
        assert found["machine"]["cores"] >= 1 and found["machine"]["torch"], part
        for row in found["rows"]:
            assert row["case"] and row["measured"], part
            assert all({"min", "median", "max"} & set(values) for values in row["measured"].values()), row


def test_every_part_is_shown_and_every_table_has_one(measured: ModuleType) -> None:
    shown = {re.split(r";", found)[0].strip() for page in PAGES for found in measured.PLACE.findall(page.read_text())}
    assert shown == {f"{name} {part}" for name, parts in STORED.items() for part in parts}


def test_a_table_s_numbers_are_those_of_the_file(measured: ModuleType) -> None:
    for page in PAGES:
        text = page.read_text()
        assert not re.findall(r"^\|.*\d.*\|$", text, flags=re.M), f"{page.name}: a table by hand"
        for asked in measured.PLACE.findall(text):
            name, _, part = asked.split(";")[0].strip().partition(" ")
            rows = STORED[name][part]["rows"]
            known = {measured.spread(values) for row in rows for values in row["measured"].values()}
            named = {str(value) for row in rows for value in row["case"].values()}
            named |= {f"{value:,}" for row in rows for value in row["case"].values() if isinstance(value, int)}
            said = {row[each] for row in rows for each in ("reference", "note") if each in row}
            _, _, *lines = [line for line in measured.table_of(asked).splitlines() if line.startswith("|")]
            cells = {cell for line in lines for cell in line.strip("| ").split(" | ")}
            assert lines and cells <= known | named | said | {"-", ""}, asked
            assert cells & known, asked


def test_a_kept_run_is_read_by_the_docs(
    results: ModuleType, measured: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks/speed.py", "first", "--json", "x.json", "--keep"])
    monkeypatch.setattr(measured, "RESULTS", results.FOLDER)
    rows = [
        {"graph": "grown", "ranks": 2, "system": "psg", "epoch_s": (0.02, 0.5, 1.0), "share": 0.5, "failed_runs": None},
        {"graph": "grown", "ranks": 2, "system": "blad", "epoch_s": (1.0, 2.0, 4.0), "losses": [1.0, 2.0]},
        {"graph": "grown", "ranks": 2, "system": "dygnex-l", "failed": "not built"},
    ]
    given = Namespace(json=None, keep=True, device="cpu")
    results.write(given, results.machine(), {"first": rows, "second": {"rows": rows[:1]}, "words": "no rows"}, plan={})
    file = results.FOLDER / "speed.json"
    stored = json.loads(file.read_text())
    assert list(stored) == ["first", "second"] and stored["first"]["command"] == "python benchmarks/speed.py first"
    assert [row["case"]["system"] for row in stored["first"]["rows"]] == ["psg", "blad"]
    assert stored["first"]["rows"][0]["measured"]["epoch_s"] == {"min": 0.02, "median": 0.5, "max": 1.0, "unit": "s"}
    text = measured.placed("a\n\n<!-- measured speed first; by system; show epoch_s -->\n\nb")
    assert "| 0.5 s (20 ms to 1 s) | 2 s (1 s to 4 s) |" in text and "commit 0123abc" in text
    with pytest.raises(ValueError, match=r"no row of benchmarks/results/speed\.json"):
        measured.placed("<!-- measured speed first; only graph=other -->")
    with pytest.raises(ValueError, match="by, only, show, without exist"):
        measured.placed("<!-- measured speed first; order size -->")


def test_a_new_run_replaces_its_part_and_leaves_the_others(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks/speed.py"])
    row = {"graph": "grown", "epoch_s": 2.0}
    results.keep("speed", {"cores": 2}, {"first": [{**row, "reference": "3 s in the paper"}], "second": [row]})
    results.keep("speed", {"cores": 4}, {"first": [{**row, "epoch_s": 1.0}, {"graph": "other", "epoch_s": 9.0}]})
    stored = json.loads((results.FOLDER / "speed.json").read_text())
    assert (stored["first"]["machine"], stored["second"]["machine"]) == ({"cores": 4}, {"cores": 2})
    first, other = stored["first"]["rows"]
    assert first["measured"]["epoch_s"]["median"] == 1.0 and first["reference"] == "3 s in the paper"
    assert "reference" not in other and stored["second"]["rows"][0]["measured"]["epoch_s"]["median"] == 2.0


def test_a_row_that_fell_is_marked_and_ratios_of_another_machine_are_shown_alone(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = importlib.import_module("quick")
    here, there = ({"processor": name, "cores": 2, "loop_ms": 5.0} for name in ("a", "b"))
    rows = [
        {"case": "slower", "seconds_s": [0.98, 1.0, 1.02], "width": 3.0},
        {"case": "same", "seconds_s": [0.98, 1.0, 1.02]},
        {"case": "once", "seconds_s": 1.0},
        {"case": "peer", "lab_s": 1.0, "ratio": [3.9, 4.0, 4.1]},
    ]
    monkeypatch.setattr(sys, "argv", ["benchmarks/models.py"])
    results.keep("models", here, {"rows": rows})
    now = [
        {"case": "slower", "seconds_s": [1.18, 1.2, 1.22], "width": 9.0},
        {"case": "same", "seconds_s": [1.08, 1.1, 1.12]},
        {"case": "once", "seconds_s": 9.0},
        {"case": "peer", "lab_s": 9.0, "ratio": [2.9, 3.0, 3.1]},
        {"case": "new", "seconds_s": 1.0},
    ]
    of_now = results.parts_of({"rows": now, "machine": here})["rows"]
    found = list(quick.compare("models", "rows", of_now, here, results.FOLDER))
    marked = {(row.case, row.what): row.fell for row in found if row.worse is not None}
    assert marked == {
        ("slower", "seconds_s"): True,
        ("same", "seconds_s"): False,
        ("once", "seconds_s"): False,
        ("peer", "ratio"): True,
    }
    text = quick.table(found)
    assert "2 of 4 compared rows fell by more than 15 %." in text and "-25 %" in text and "<-- FELL" in text
    assert "not shown: 1 of models rows." in text and "width" not in text  # neither better nor worse
    elsewhere = {row.what: row for row in quick.compare("models", "rows", of_now, there, results.FOLDER) if row.stored}
    assert elsewhere["ratio"].worse == 0.25 and elsewhere["seconds_s"].worse is None
    assert not any(row.fell for row in elsewhere.values())
    assert "another machine" in elsewhere["ratio"].about
    quick_rows = results.FOLDER / "quick"
    results.keep("models", there, {"rows": now}, folder=quick_rows, ran="python benchmarks/models.py --quick")
    again = [row.worse for row in quick.compare("models", "rows", of_now, there, quick_rows)]
    assert again == [0, 0, 0, 0, 0]
    scripts = {script.stem for script in (ROOT / "benchmarks").glob("*.py")}
    assert set(quick.QUICK) == scripts - {"quick", "result_files", "partition_epochs", "growth"}


def test_seconds_are_not_compared_with_those_of_a_machine_at_another_speed(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = importlib.import_module("quick")
    monkeypatch.setattr(sys, "argv", ["benchmarks/models.py"])
    fast = {"processor": "a", "cores": 2, "loop_ms": 5.0}
    row = {"case": "peer", "lab_s": [0.9, 1.0, 1.1]}
    results.keep("models", fast, {"rows": [row]})
    of_now = results.parts_of({"rows": [{**row, "lab_s": [1.4, 1.5, 1.6]}]})["rows"]
    (equal,) = quick.compare("models", "rows", of_now, {**fast, "loop_ms": 5.5}, results.FOLDER)
    (slower,) = quick.compare("models", "rows", of_now, {**fast, "loop_ms": 10.0}, results.FOLDER)
    (unknown,) = quick.compare("models", "rows", of_now, {"processor": "a", "cores": 2}, results.FOLDER)
    assert equal.fell and slower.worse is None and "the machine was 2.00 times as fast" in slower.about
    assert unknown.worse is None and "unknown speed" in unknown.about
    assert results.machine()["loop_ms"] > 0


def test_a_benchmark_that_takes_too_long_is_ended_with_its_processes(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quick = importlib.import_module("quick")
    monkeypatch.setattr(quick, "SCRIPTS", tmp_path)
    (tmp_path / "slow.py").write_text(
        "import pathlib, psutil, subprocess, sys, time\n"
        f"file = pathlib.Path({str(tmp_path / 'pid')!r})\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "file.write_text(f'{child.pid} {psutil.Process(child.pid).create_time()}')\n"
        "sys.exit(f'the graph is empty') if 'empty' in sys.argv else time.sleep(60)\n"
    )
    for words, why in (((), "slow: not within 5 s"), (("empty",), "slow: the graph is empty")):
        assert quick.measure("slow", words, 5.0) == ({}, why)
        child, started_s = (tmp_path / "pid").read_text().split()
        until_s = time.monotonic() + 10.0
        while is_running(int(child), float(started_s)):
            assert time.monotonic() < until_s
            time.sleep(0.02)
        (tmp_path / "pid").unlink()


@pytest.mark.parametrize("whole", [False, True])
def test_quick_rows_are_compared_with_quick_ones_and_whole_with_whole(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], whole: bool
) -> None:
    quick = importlib.import_module("quick")
    monkeypatch.setattr(sys, "argv", ["quick", "--only", "models", *(["--full"] if whole else [])])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    here = {"processor": "a", "cores": 2, "loop_ms": 5.0}
    row = {"case": "peer", "ratio": [1.9, 2.0, 2.1]}
    results.keep("models", here, {"rows": [row]}, folder=results.FOLDER / "quick")
    results.keep("models", here, {"rows": [{**row, "ratio": [3.9, 4.0, 4.1]}]})
    monkeypatch.setattr(quick, "measure", lambda *_: ({"machine": here, "rows": [row]}, ""))
    quick.main()
    said = capsys.readouterr().out
    assert ("<-- FELL" in said) == ("-50 %" in said) == whole and f"{int(whole)} of 1 compared rows fell" in said
