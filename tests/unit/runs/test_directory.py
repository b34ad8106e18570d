"""RunDirectory: made whole or not at all, status without torn reads, errors that say what to do."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import sys
import threading
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from dtdg_lab.cluster.replay import replay
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.runs import directory as directory_module
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.environment import describe_environment
from dtdg_lab.runs.json_files import read_json, write_json
from dtdg_lab.runs.stored_run import open_run

CONFIG = RunConfig(system="psg", dataset="growing", ranks=2)


def test_a_new_run_has_its_config_environment_status_and_folders(tmp_path: Path) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path / "deep" / "runs")
    assert re.fullmatch(rf"\d{{8}}-\d{{6}}-psg-{CONFIG.short_hash}", run.id)
    assert run.config() == CONFIG
    assert run.environment()["versions"]["numpy"]
    assert run.status()["state"] == "starting"
    assert {path.name for path in run.path.iterdir() if path.is_dir()} == {"records", "checkpoints", "live"}
    with pytest.raises(FrozenInstanceError):
        run.path = tmp_path
    assert RunDirectory.open(run.path) == run
    assert [path.name for path in (tmp_path / "deep" / "runs").iterdir()] == [run.id]


def test_a_run_with_an_option_that_no_longer_exists_can_be_opened(tmp_path: Path) -> None:
    config = RunConfig(system="dgl-default", parts=2)
    run = RunDirectory.create(config, root=tmp_path)
    settings = read_json(run.config_file)
    settings["options"]["batching"]["sampler"] = "dgl"
    write_json(run.config_file, settings)
    assert RunDirectory.open(run.path).config() == config
    assert open_run(run.path).config == config
    with pytest.raises(ConfigError, match="but not resumed or replayed"):
        replay(run.path)


def test_taken_names_get_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(directory_module.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 1, 31, 12, 0, 0)

    monkeypatch.setattr(directory_module, "datetime", Clock)
    name = f"20260131-120000-psg-{CONFIG.short_hash}"
    assert RunDirectory.create(CONFIG, root=tmp_path).id == name
    assert RunDirectory.create(CONFIG, root=tmp_path).id == f"{name}-2"
    (tmp_path / f"{name}-3").write_text("a file in the way")
    assert RunDirectory.create(CONFIG, root=tmp_path).id == f"{name}-4"


def test_a_file_in_place_of_the_root_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    with pytest.raises(RunStoreError, match=r"runs: .*root="):
        RunDirectory.create(CONFIG, root=tmp_path / "runs")
    assert (tmp_path / "runs").read_text() == "not a folder"


@pytest.mark.parametrize(("code", "words"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only")])
def test_an_unwritable_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RunStoreError, match=words):
        RunDirectory.create(CONFIG, root=tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into read-only folders")
def test_a_folder_without_permission_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunStoreError, match="No write permission"):
        RunDirectory.create(CONFIG, root=tmp_path / "runs")
    tmp_path.chmod(0o700)


def test_status_is_never_torn(tmp_path: Path) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path)
    stop, seen = threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            status = run.status()
            assert status["reason"] == "x" * status["attempt"]
            seen.add(status["attempt"])

    run.write_status("running", reason="x", attempt=1)
    reader = threading.Thread(target=read)
    reader.start()
    for attempt in range(1, 60):
        run.write_status("running", reason="x" * attempt, attempt=attempt)
    stop.set()
    reader.join()
    assert len(seen) > 1
    assert not [path for path in run.path.iterdir() if path.name.endswith(".tmp")]


def test_status_refuses_states_that_do_not_exist(tmp_path: Path) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path)
    with pytest.raises(ConfigError, match="choose one of starting, running"):
        run.write_status("runing")
    assert run.status()["state"] == "starting"


def test_json_files_hold_no_nan_and_no_numpy(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    path = write_json(
        tmp_path / "a.json", {"x": float("nan"), "y": numpy.float32(1.5), "z": numpy.arange(2), 3: (1, float("inf"))}
    )
    assert json.loads(path.read_text(), parse_constant=pytest.fail) == {
        "x": None,
        "y": 1.5,
        "z": [0, 1],
        "3": [1, None],
    }
    path.write_text("{")
    with pytest.raises(RunStoreError, match="not valid JSON"):
        read_json(path)


def test_the_environment_names_neither_machine_nor_person_and_needs_no_torch() -> None:
    facts = describe_environment(CONFIG, graph_source="generator", data_hash="ab" * 32)
    described = json.dumps(facts)
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["data"] == {"dataset": "growing", "source": "generator", "sha256": "ab" * 32}
    assert facts["cpu"]["usable"] >= 1
    assert facts["memory_bytes"] > 2**20
    assert facts["versions"]["torch"]
    assert str(Path.home()) not in described
    assert socket.gethostname() not in described


def test_facts_known_later_are_added(tmp_path: Path) -> None:
    run = RunDirectory.create(CONFIG, root=tmp_path)
    run.add_environment(energy="modelled")
    assert run.environment()["energy"] == "modelled"
    assert run.environment()["python"]


def test_a_name_that_a_person_gave_is_kept_beside_the_run(tmp_path):
    directory = RunDirectory(tmp_path)
    assert directory.name() == ""
    directory.rename("  my best run ")
    assert directory.name() == "my best run"
    directory.rename("")
    assert directory.name() == ""
