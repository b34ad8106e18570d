"""The recipes of docs/scale_out.md start engines over SSH, Slurm and MPI, where this machine has them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from tests.following import attached, until, until_step

DOC = (Path(__file__).resolve().parents[2] / "docs" / "scale_out.md").read_text()


def recipe(title: str) -> str:
    """The configuration under a heading of the document."""
    section = DOC.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("    ") or not line]
    return "\n".join(line[4:] for line in lines).strip()


def has_slurm() -> bool:
    """Whether a Slurm that takes jobs is here."""
    if not shutil.which("sinfo"):
        return False
    described = subprocess.run(["sinfo", "-h", "-o", "%P"], capture_output=True, text=True, timeout=20, check=False)
    return described.returncode == 0 and bool(described.stdout.strip())


@contextmanager
def ssh_server(folder: Path) -> Iterator[Path]:
    """A server of our own on loopback; gives a client's configuration with hosts node1 and node2."""
    for name in ("user", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    (folder / "authorized").chmod(0o600)
    Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "server").write_text(
        f"Port 22337\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PidFile {folder}/pid\nStrictModes no\nPermitRootLogin yes\nUsePAM no\nPasswordAuthentication no\n"
        "Subsystem sftp /usr/lib/openssh/sftp-server\n"
    )
    (folder / "client").write_text(
        f"Host node1 node2\n  HostName 127.0.0.1\n  Port 22337\n  IdentityFile {folder}/user\n"
        f"  StrictHostKeyChecking no\n  UserKnownHostsFile {folder}/known\n  LogLevel ERROR\n"
    )
    server = subprocess.Popen(
        ["/usr/sbin/sshd", "-D", "-f", str(folder / "server"), "-E", str(folder / "log")], stdin=subprocess.DEVNULL
    )
    try:
        yield folder / "client"
    finally:
        server.terminate()
        server.wait(60)


def trains(tmp_path: Path, text: str, config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a cluster as a configuration says, attach, train on both engines, steer, stop."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    profile = tmp_path / "ipython" / "profile_many"
    subprocess.run(
        [sys.executable, "-m", "IPython", "profile", "create", "--parallel", "--profile=many"],
        check=True,
        capture_output=True,
        timeout=120,
    )
    (profile / "ipcluster_config.py").write_text(text)
    command = [sys.executable, "-m", "ipyparallel.cluster"]
    log = (tmp_path / "cluster.log").open("wb")
    cluster = subprocess.Popen([*command, "start", "-n", "2", "--profile=many"], stdout=log, stderr=log, cwd=tmp_path)
    try:
        connection = profile / "security" / "ipcontroller-client.json"
        until(connection.is_file, timeout_s=60, what="the controller")
        session = attached("many", tmp_path / "runs")
        run = until_step(session.train(config), 10)
        run.set(learning_rate=0.02)
        until(lambda: run.config.learning_rate == 0.02, what="the knob")
        run.stop()
        assert run.wait(30).status == "stopped"
        session.close()
        assert cluster.poll() is None, "closing an attached session must leave the cluster running"
        again = Session.attach(connection, runs_dir=tmp_path / "runs")
        assert [engine.is_alive for engine in again.engines().values()] == [True, True]
        again.close()
    finally:
        subprocess.run([*command, "stop", "--profile=many"], capture_output=True, check=False, timeout=60)
        cluster.terminate()
        cluster.wait(30)
        log.close()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not Path("/usr/sbin/sshd").is_file(), reason="needs root and openssh-server")
def test_engines_over_ssh(tmp_path: Path, config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with ssh_server(tmp_path) as client:
        ours = (
            f"\nc.SSHLauncher.ssh_args = c.SSHLauncher.scp_args = ['-F', '{client}']\n"
            "c.SSHEngineSetLauncher.engines = {'node1': 1, 'node2': 1}\n"
            f"c.SSHEngineSetLauncher.remote_python = '{sys.executable}'\n"
            f"c.SSHLauncher.remote_profile_dir = '{tmp_path}/remote'\n"
        )
        trains(tmp_path, recipe("SSH") + ours, config, monkeypatch)


@pytest.mark.slow
@pytest.mark.skipif(not has_slurm(), reason="no Slurm answers here (sinfo)")
def test_engines_as_a_slurm_job(tmp_path: Path, config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = subprocess.run(["sinfo", "-h", "-o", "%R"], capture_output=True, text=True, check=True).stdout
    trains(tmp_path, recipe("Slurm") + f"\nc.SlurmLauncher.queue = {listed.split()[0]!r}\n", config, monkeypatch)


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("mpiexec") and find_spec("mpi4py")), reason="no mpiexec, or no mpi4py")
def test_engines_by_mpi(tmp_path: Path, config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "\nc.MPILauncher.mpi_args = ['--allow-run-as-root', '--oversubscribe']\n"
    trains(tmp_path, recipe("MPI") + ours, config, monkeypatch)


@pytest.mark.slow
def test_engines_of_the_command_line_tool(tmp_path: Path, config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    trains(tmp_path, "c = get_config()\nc.HeartMonitor.period = 500\n", config, monkeypatch)


def test_the_recipes_are_python() -> None:
    for title in ("SSH", "Slurm", "MPI"):
        text = recipe(title)
        assert text.startswith("c = get_config()") and "engine_launcher_class" in text
        compile(text, title, "exec")
