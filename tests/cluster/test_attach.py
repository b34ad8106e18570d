"""Attaching to a cluster that the command line tool started, as on Slurm or over SSH."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, UnknownNameError
from tests.following import until, until_step


@pytest.mark.slow
def test_a_cluster_of_the_command_line_tool_trains(
    tmp_path: Path, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    profile = tmp_path / "ipython" / "profile_elsewhere"
    command = [sys.executable, "-m", "ipyparallel.cluster"]
    cluster = subprocess.Popen(
        [*command, "start", "-n", "2", "--profile=elsewhere", "--Cluster.controller_args=--HeartMonitor.period=500"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        connection = profile / "security" / "ipcontroller-client.json"
        until(connection.is_file, timeout_s=30, what="the controller's connection file")
        deadline = time.monotonic() + 40
        while True:
            try:
                session = Session.attach("elsewhere", runs_dir=tmp_path / "runs")
                if session.ranks == 2:
                    break
                session.close()
            except ClusterError:
                pass  # engines are still registering
            assert time.monotonic() < deadline, "two engines never appeared"
            time.sleep(0.5)
        run = session.train(config)
        until_step(run, 10)
        run.set(learning_rate=0.02)
        until(lambda: run.config.learning_rate == 0.02, what="the knob")
        run.stop()
        run.wait(60)
        assert run.status == "stopped"
        session.close()
        assert cluster.poll() is None, "closing an attached session must leave the cluster running"
        again = Session.attach(connection, runs_dir=tmp_path / "runs")
        assert again.engines() == {0: True, 1: True}
        again.close()
    finally:
        subprocess.run([*command, "stop", "--profile=elsewhere"], capture_output=True, check=False, timeout=60)
        cluster.terminate()
        cluster.wait(60)


def test_attaching_to_nothing_says_what_there_is() -> None:
    with pytest.raises(ClusterError, match=r"Session\(ranks=2\)"):
        Session.attach()
    with pytest.raises(UnknownNameError, match="connection file or profile"):
        Session.attach("no-such-cluster")
