"""Files of a session are its owner's alone; its processes are asked to end first, then killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dtdg_lab.cluster.session_files import SessionFiles, end_processes

# a parent that starts "sleep" with the session's profile and never asks for its end
CARELESS = (
    "import os, subprocess, sys, time; subprocess.Popen(['sleep', '60'], env={**os.environ, "
    "'IPP_PROFILE_DIR': sys.argv[1]}); print('begun', flush=True); time.sleep(60)"
)
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('begun', flush=True); time.sleep(60)"
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionFiles:
    monkeypatch.setenv("DTDG_LAB_STATE", str(tmp_path))
    unknown = {"connection_file": "", "cluster_file": "", "key": ""}
    return SessionFiles(id="mine", name="mine", ranks=1, runs_dir=str(tmp_path), idle_s=1.0, owned=True, **unknown)


def started(program: str, *words: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words], env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    return process


def test_only_the_owner_may_read_the_key(files: SessionFiles) -> None:
    files.write()
    for path in (files.folder, files.folder / "session.json"):
        assert not path.stat().st_mode & 0o077


def test_a_zombie_is_not_waited_for(files: SessionFiles) -> None:
    with started(CARELESS, str(files.folder / "profile")) as parent:
        (process,) = files.processes()
        begun_s = time.monotonic()
        assert end_processes(files, timeout_s=20.0) == 1
        assert time.monotonic() - begun_s < 10
        assert process.status() == psutil.STATUS_ZOMBIE and files.processes() == []
        parent.kill()


def test_one_that_does_not_listen_is_killed_and_leaves_no_zombie(files: SessionFiles) -> None:
    with started(STUBBORN, environment={"IPP_PROFILE_DIR": str(files.folder / "profile")}) as process:
        begun_s = time.monotonic()
        assert end_processes(files, timeout_s=0.3) == 1
        assert time.monotonic() - begun_s > 0.3
        assert not psutil.pid_exists(process.pid)
        process.returncode = 0  # psutil has taken note of its end
