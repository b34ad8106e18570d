"""Rows of benchmarks have their device, and benchmarks refuse a device that they do not measure on."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
COMMON = ("quick", "result_files", "partition_epochs")  # what benchmarks share
SCRIPTS = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in COMMON)


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("result_files")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("peers", *COMMON, *SCRIPTS)]:
        del sys.modules[name]


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Card 9")


def parser_of(results: Any) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    results.add_arguments(parser)
    return parser


@pytest.mark.usefixtures("pretended_gpu")
@pytest.mark.parametrize(("device", "name"), [("cpu", "cpu"), ("cuda", "cuda Card 9")])
def test_every_row_has_its_device(results: Any, tmp_path: Path, device: str, name: str) -> None:
    given = parser_of(results).parse_args(["--device", device, "--json", str(tmp_path / "rows.json")])
    parts = {"rows": [{"graph": "W0", "lab_s": 1.0}], "claims": {"rows": [{"graph": "W1"}], "claims": []}, "note": "x"}
    results.write(given, {"cores": 2}, parts)
    written = json.loads((tmp_path / "rows.json").read_text())
    assert written["rows"] == [{"graph": "W0", "lab_s": 1.0, "device": name}]
    assert written["claims"] == {"rows": [{"graph": "W1", "device": name}], "claims": []}
    assert written["note"] == "x"
    (row,) = results.parts_of(written)["rows"]
    assert row["case"] == {"graph": "W0", "device": name}


def test_rows_without_a_device_are_of_the_cpu(results: Any) -> None:
    old, new, other = ({"case": {"graph": "W0", **more}} for more in ({}, {"device": "cpu"}, {"device": "cuda Card 9"}))
    assert results.key(old) == results.key(new) != results.key(other)
    assert [results.stored_name("models", device) for device in ("cpu", "cuda")] == ["models", "models-cuda"]


@pytest.mark.usefixtures("pretended_gpu")
def test_a_gpu_measures_the_parts_that_can(results: Any) -> None:
    parser = parser_of(results)
    assert results.parts_on(parser, "cpu", ["b"], on_gpu=["a"]) == ["b"]
    assert results.parts_on(parser, "cuda", on_gpu=["a", "c"]) == ["a", "c"]
    assert results.parts_on(parser, "cuda", ["c"], on_gpu=["a", "c"]) == ["c"]


@pytest.mark.parametrize(
    ("named", "on_gpu", "message"),
    [([], [], "measures on the CPU only"), (["b"], ["a"], "b is measured on the CPU only"), ([], ["a"], "no GPU here")],
)
def test_what_cannot_be_measured_there_is_refused(
    results: Any, capsys: pytest.CaptureFixture[str], named: list[str], on_gpu: list[str], message: str
) -> None:
    if torch.cuda.is_available() and "GPU" in message:
        pytest.skip("there is a GPU here")
    with pytest.raises(SystemExit) as ended:
        results.parts_on(parser_of(results), "cuda", named, on_gpu=on_gpu)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("results", "pretended_gpu")
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_benchmark_takes_a_device_or_says_why_not(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = importlib.import_module(script).arguments
    assert arguments([]).device == "cpu"
    try:
        assert arguments(["--device", "cuda"]).device == "cuda"
    except SystemExit:
        assert "measures on the CPU only" in capsys.readouterr().err


def test_a_checkout_is_dirty_by_changed_code_and_not_by_changed_results(
    results: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    code, rows = tmp_path / "code.py", folder / "rows.json"
    for file in (code, rows):
        file.write_text("1")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(results, "FOLDER", folder)
    name = results.commit()
    rows.write_text("2")
    assert results.commit() == name
    code.write_text("2")
    assert results.commit() == f"{name}-dirty"
