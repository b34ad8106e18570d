"""The environment report: what is there, what is not, and a remedy for each missing thing."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pynvml
import pytest

from dtdg_lab import environment
from dtdg_lab.cli import main
from dtdg_lab.environment import Finding, environment_report, format_report
from dtdg_lab.partition import child_process


@pytest.fixture(scope="module")
def report() -> dict[str, Finding]:
    return {finding.name: finding for finding in environment_report()}


@pytest.mark.slow
def test_everything_asked_for_is_looked_at(report: dict[str, Finding]) -> None:
    asked = {
        "python",
        "package torch",
        "gpus",
        "torch",
        "gloo",
        "nccl",
        "dgl",
        "metis",
        "hypergraph",
        "solver",
        "nvml",
        "rapl",
        "energy of a run",
        "loopback ports",
        "netem",
        "chromium",
        "data collegemsg",
        "data email-eu",
        "data mathoverflow",
        "data growing",
    }
    assert asked <= set(report)


def test_every_missing_thing_has_a_remedy(report: dict[str, Finding]) -> None:
    assert {finding.state for finding in report.values()} <= {"yes", "partly", "modelled", "no"}
    assert [finding.name for finding in report.values() if finding.state != "yes" and not finding.remedy] == []
    assert [finding.name for finding in report.values() if not finding.value] == []


def test_what_the_tests_run_on_is_found(report: dict[str, Finding]) -> None:
    for name in ("torch", "gloo", "loopback ports", "data growing"):
        assert report[name].state == "yes", report[name]
    if sys.version_info < (3, 12):
        assert report["dgl"].state in ("yes", "partly"), report["dgl"]
        assert report["metis"].state == report["hypergraph"].state == "yes"


def test_real_data_is_found_where_the_variable_points(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTDG_LAB_DATA", str(real_data))
    found = {finding.name: finding for finding in environment._data()}
    assert found["data collegemsg"].state == "yes"
    assert "CollegeMsg" in found["data collegemsg"].value


def test_text_is_aligned_and_carries_the_remedies() -> None:
    findings = [Finding("a", "yes", "1.0"), Finding("longer", "no", "nothing", "install it " * 20)]
    lines = format_report(findings).splitlines()
    assert lines[0] == "a       yes       1.0"
    assert lines[1] == "longer  no        nothing"
    assert lines[2].startswith(" " * 18 + "-> install it")
    assert max(map(len, lines)) <= 120
    assert len(lines) > 3


def test_data_sets_share_a_line_of_the_text() -> None:
    data = [Finding(f"data {name}", "no", "not here", "downloaded on first use") for name in ("a", "b", "c")]
    lines = format_report([Finding("torch", "yes", "2"), *data, Finding("data d", "yes", "generated")]).splitlines()
    assert (
        lines[1]
        == "data sets  yes       1 are here; 3 more are downloaded on first use (`dtdg-lab datasets` lists them)"
    )
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, "can train on its CPU; `dtdg-lab env --check` tests it. Missing, and not needed for that: nothing."),
        ({"gpus": "yes"}, "can train on its CPU;"),  # torch has no nccl
        ({"gpus": "yes", "nccl": "yes"}, "can train on its GPUs;"),
        ({"nccl": "no", "rapl": "no"}, "not needed for that: nccl, rapl."),
        ({"gloo": "no", "rapl": "no"}, "cannot train yet: gloo must be mended first"),
    ],
)
def test_the_last_line_is_a_verdict(states: dict[str, Any], expected: str) -> None:
    found = {"torch": "yes", "gloo": "yes", "loopback ports": "yes", **states}
    text = format_report([Finding(name, state, "value") for name, state in found.items()])
    assert expected in text.splitlines()[-1]


def test_command_prints_the_report_as_json(report: dict[str, Finding], capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.object(environment, "environment_report", return_value=list(report.values())):
        assert main(["env", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert {row["name"] for row in rows} == set(report)
        assert set(rows[0]) == {"name", "state", "value", "remedy"}
        assert main(["env"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert sum(line.startswith("data") for line in lines) == 1
        assert {row["name"] for row in rows if not row["name"].startswith("data ")} <= {
            line.partition("  ")[0] for line in lines
        }


@pytest.mark.parametrize(
    ("code", "timeout_s", "expected"),
    [
        ("print('noise'); print('{\"a\": 1}')", 60, {"a": 1}),
        ("print('{\"a\": 1}', flush=True); import os; os.abort()", 60, {"a": 1}),
        ("raise ImportError('no libfoo')", 60, "ImportError: no libfoo"),
        ("import os; os._exit(3)", 60, "the import ended with exit code 3"),
        ("import time; time.sleep(60)", 0.5, "no answer in 0.5 s"),
    ],
)
def test_a_probe_that_prints_crashes_or_hangs_is_a_finding(code: str, timeout_s: float, expected: object) -> None:
    assert environment._probed(code, timeout_s) == expected


def test_missing_torch_and_dgl_name_what_is_lost() -> None:
    torch, gloo, _ = environment._torch("ModuleNotFoundError: No module named 'torch'", "no driver")
    assert (torch.state, gloo.state) == ("no", "no")
    assert "make env" in torch.remedy
    dgl = environment._dgl("no libgraphbolt", "no driver")
    assert (dgl.state, dgl.value) == ("no", "no libgraphbolt")
    assert "torch kernels" in dgl.remedy


def test_gpus_that_torch_or_dgl_cannot_use_are_partly() -> None:
    seen = {"version": "2", "cuda_build": None, "gpus": [], "gloo": True, "nccl": False}
    assert environment._torch(seen, ["H200"])[0].state == "partly"
    assert environment._torch({**seen, "cuda_build": "13", "gpus": ["H200"]}, ["H200"])[0].state == "yes"
    lacking = environment._dgl({"version": "1", "gpu_defect": "dgl fails there"}, ["H200"])
    assert (lacking.state, lacking.value) == ("partly", "1: cpu")
    assert lacking.remedy == "on GPUs torch kernels are used: dgl fails there"
    assert environment._dgl({"version": "1", "gpu_defect": ""}, ["H200"]).value == "1: cpu, cuda"
    assert environment._dgl({"version": "1", "gpu_defect": "torch finds none"}, "no driver").state == "yes"


def test_partitioners_are_tried_and_named_with_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    metis, hypergraph = environment._partitioners()
    assert (metis.state, metis.value) == ("yes", f"pymetis {importlib.metadata.version('pymetis')}")
    assert (hypergraph.state, hypergraph.value) == ("yes", f"mtkahypar {importlib.metadata.version('mtkahypar')}")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for finding in environment._partitioners():
        assert finding.state == "no" and "pip install" in finding.remedy and "not installed" in finding.value
    monkeypatch.undo()
    monkeypatch.setattr(child_process.subprocess, "Popen", mock.Mock(side_effect=OSError("no more processes")))
    assert environment._partitioners()[0].state == "no" and "no more processes" in environment._partitioners()[0].value


def test_gpus_are_named_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = mock.create_autospec(pynvml)
    fake.NVMLError = pynvml.NVMLError
    fake.nvmlDeviceGetCount.return_value = 2
    fake.nvmlDeviceGetName.return_value = "NVIDIA H200"
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert environment._gpu_names() == ["NVIDIA H200", "NVIDIA H200"]
    fake.nvmlShutdown.assert_called_once_with()
    fake.nvmlInit.side_effect = pynvml.NVMLError_LibraryNotFound()
    assert "An NVIDIA driver is needed: install it" in environment._nvml(environment._gpu_names()).remedy
    fake.nvmlInit.side_effect = pynvml.NVMLError_LibRmVersionMismatch()
    assert environment._nvml(environment._gpu_names()).remedy == (
        "NVML does not start: RM has detected an NVML/RM version mismatch. "
        "The driver was updated, and the old one still runs: restart the machine."
    )
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install" in environment._nvml(environment._gpu_names()).remedy


def test_readable_rapl_becomes_the_energy_source(tmp_path: Path) -> None:
    folder = tmp_path / "intel-rapl:0"
    folder.mkdir()
    for name, text in (("name", "package-0"), ("energy_uj", "5"), ("max_energy_range_uj", "262143328850")):
        (folder / name).write_text(text)
    assert environment._rapl(tmp_path) == Finding("rapl", "yes", "package-0")
    assert environment._energy(False, tmp_path) == Finding("energy of a run", "yes", "rapl (counter)")
    modelled = environment._energy(False, tmp_path / "none")
    assert modelled.state == "modelled"
    assert "power_idle_w" in modelled.remedy


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert environment._netem().state == "no"
    assert environment._browser() == Finding("chromium", "no", "not found", environment._browser().remedy)
    assert "apt-get install chromium" in environment._browser().remedy
