"""A session starts wherever the notebook lies; a start that fails keeps its logs and says what ended it, and when."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

import psutil
import pytest

from dtdg_lab.cluster.session import Session
from dtdg_lab.cluster.session_files import KEPT_LOGS, list_sessions
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError
from dtdg_lab.core.units import state_root

CONFIG = RunConfig(system="dynahb", dataset="growing", epochs=1, parts=2, threads=1)
THIRD_PARTY = ("torch", "numpy", "pandas", "zmq", "tornado", "psutil", "ipyparallel", "ipykernel", "IPython", "dgl")
# in a folder of PYTHONPATH: runs as each Python starts
SITE = """
import os, sys, time
words = " ".join(sys.orig_argv)
if {of!r} in words:
    print({said!r}, file=sys.stderr, flush=True)
    {end}
"""


@pytest.fixture
def spoiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that lets controllers or engines end, or stand still, as they start."""

    def spoil(of: str, said: str, end: str) -> None:
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "sitecustomize.py").write_text(SITE.format(of=of, said=said, end=end))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))

    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path / "state"))
    return spoil


def failed_start(runs: Path, **settings: float) -> tuple[str, Path, float]:
    """Return the message of a start that fails, the folder of logs it names, and its seconds."""
    begun_s = time.monotonic()
    with pytest.raises(ClusterError) as caught:
        Session(ranks=2, runs_dir=runs, **settings)
    took_s = time.monotonic() - begun_s
    message = str(caught.value)
    folder = re.search(r"Logs are in (\S+?)[.;]? ", message + " ")
    assert folder is not None, message
    return message, Path(folder.group(1)), took_s


def test_a_session_starts_beside_files_named_like_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = tmp_path / "notebook"
    notebook.mkdir()
    for name in filter(importlib.util.find_spec, (*sys.stdlib_module_names, *THIRD_PARTY)):
        (notebook / f"{name}.py").write_text("raise SystemExit(f'{__file__} was imported')\n")
    (notebook / "my_model.py").write_text("WIDTH = 7\n")
    monkeypatch.chdir(notebook)
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path / "state"))
    with Session(ranks=1, name="mine", runs_dir=tmp_path / "runs") as session:
        assert session.train(CONFIG).wait(120).status == "finished"
        assert on_engine(session, "__import__('my_model').WIDTH") == 7
        assert on_engine(session, "__import__('os').getcwd()") == str(notebook)
        again = Session(ranks=1, name="mine", runs_dir=tmp_path / "runs")  # as another kernel finds it
        for handle in (session, again):
            handle._engines.kill([on_engine(handle, "__import__('os').getpid()")])
            handle.repair()
            assert handle.ready and on_engine(handle, "__import__('my_model').WIDTH") == 7
        again.detach()


def on_engine(session: Session, expression: str) -> object:
    (value,) = session._engines.client[:].apply_sync(eval, expression)
    return value


@pytest.mark.parametrize("of", ["engine", "controller"])
def test_what_ends_at_its_start_is_quoted_and_its_log_kept(spoiled, tmp_path: Path, of: str) -> None:
    spoiled(f"ipyparallel.{of}" if of == "controller" else "engine_process", f"the {of} has no licence", "os._exit(3)")
    message, folder, took_s = failed_start(tmp_path / "runs")
    assert f"the last line of the {of}'s log" in message and f"the {of} has no licence" in message
    assert f"the {of} has no licence" in "".join(path.read_text() for path in folder.iterdir())
    told_s = re.search(r"(?:after|within) ([\d.]+) s", message)
    assert told_s is not None and -0.1 < took_s - float(told_s.group(1)) < 8 and took_s < 30
    assert "within 60" not in message
    assert list_sessions() == []


def test_one_engine_of_two_that_ends_fails_the_start_at_once(spoiled, tmp_path: Path) -> None:
    first = tmp_path / "first"
    spoiled(
        "engine_process",
        "one of us goes",
        f"os.path.exists({str(first)!r}) or (open({str(first)!r}, 'x'), os._exit(3))",
    )
    message, _, took_s = failed_start(tmp_path / "runs")
    assert "one of us goes" in message and took_s < 30


def test_what_stands_still_is_told_after_the_time_that_was_given(spoiled, tmp_path: Path) -> None:
    spoiled("engine_process", "waiting for a licence", "time.sleep(600)")
    message, folder, took_s = failed_start(tmp_path / "runs", timeout_s=3.0)
    assert "timeout_s=3" in message and "waiting for a licence" in message and 3 <= took_s < 12
    told_s = re.search(r"(?:after|within) ([\d.]+) s", message)
    assert told_s is not None and -0.1 < took_s - float(told_s.group(1)) < 8
    assert folder.is_dir()
    for process in psutil.process_iter(["environ", "status"]):
        profile = (process.info["environ"] or {}).get("IPP_PROFILE_DIR", "")
        assert not profile.startswith(str(tmp_path)) or process.info["status"] == psutil.STATUS_ZOMBIE


def test_kept_logs_hold_no_key_and_only_the_newest_stay(spoiled, tmp_path: Path) -> None:
    old = state_root() / "failed"
    for number in range(KEPT_LOGS + 3):
        (old / f"20200101-00000{number:02d}-abcdef").mkdir(parents=True)
    spoiled("ipyparallel.controller", "no", "os._exit(3)")
    _, folder, _ = failed_start(tmp_path / "runs")
    assert folder.parent == old and len(list(old.iterdir())) == KEPT_LOGS
    assert {path.suffix for path in folder.rglob("*")} == {".log"}
    assert not folder.stat().st_mode & 0o077
    assert not list(state_root().glob("sessions/*"))


def test_a_session_starts_beside_a_broken_profile_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    warnings.filterwarnings("ignore", "IPython dir")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "file"))
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path / "state"))
    with Session(ranks=1, runs_dir=tmp_path / "runs") as session:
        assert session.ready


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_disk_that_fills_while_a_session_starts_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=120k", "tmpfs", small]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        (small / "most").write_bytes(bytes(100_000))
        monkeypatch.setenv("DTDG_LAB_STATE", str(small / "state"))
        message, folder, _ = failed_start(tmp_path / "runs", timeout_s=20.0)
        assert "did not start" in message and folder.is_dir()
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)
