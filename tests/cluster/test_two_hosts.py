"""Two hosts with addresses of their own train as one cluster, over a slow link too, and one of them is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dtdg_lab.cluster.addresses import interface_of
from dtdg_lab.core.errors import ClusterError
from dtdg_lab.runs.liveness import host_id
from tests.cluster import two_hosts
from tests.following import until

WHY_NOT = two_hosts.why_not()


@pytest.mark.slow
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "can be")
def test_two_hosts_train_as_one_and_the_loss_of_one_is_noticed(tmp_path: Path) -> None:
    profile, runs = tmp_path / "profile", tmp_path / "runs"
    environment = {
        "DTDG_LAB_STATE": str(tmp_path / "state"),
        "DTDG_LAB_CACHE": str(tmp_path / "cache"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "HOME": str(tmp_path),
    }
    running: list[subprocess.Popen[bytes]] = []
    with two_hosts.two_hosts() as (first, second):
        try:
            controller = [sys.executable, "-m", "ipyparallel.controller", f"--profile-dir={profile}", "--ip=*"]
            heart = ["--HeartMonitor.period=500", "--HeartMonitor.max_heartmonitor_misses=6"]
            place = f"--location={first.address}"
            running.append(first.start(*controller, place, *heart, log=tmp_path / "controller.log", **environment))
            file = profile / "security" / "ipcontroller-engine.json"
            until(file.is_file, timeout_s=60, what="the engines' connection file")
            engine = (sys.executable, "-m", "ipyparallel.engine", f"--profile-dir={profile}", f"--file={file}")
            for number, host in enumerate((first, second)):
                running.append(host.start(*engine, log=tmp_path / f"engine{number}.log", **environment))
            kernel = first.start(
                sys.executable, two_hosts.__file__, str(tmp_path), log=tmp_path / "kernel.log", **environment
            )
            running.append(kernel)
            until((tmp_path / "cut it").exists, timeout_s=120, what="training on both hosts")
            second.cut()
            (tmp_path / "cut").touch()
            until((tmp_path / "start another").exists, timeout_s=90, what="the failure of the run")
            running.append(first.start(*engine, log=tmp_path / "engine2.log", **environment))
            kernel.wait(120)
        finally:
            for process in running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(60)
    sys.stdout.write((tmp_path / "kernel.log").read_text())
    text = (tmp_path / "kernel.log").read_text()
    assert kernel.returncode == 0, text
    described = json.loads(text.splitlines()[-1])
    assert described["machines"] == 2
    assert described["clean"]["sent"] > 0 and len(described["clean"]["losses"]) == 12
    assert described["slow"]["losses"] == described["clean"]["losses"][:6], "links change when rows come, never which"
    clean_s, slow_s = described["clean"]["step_s"], described["slow"]["step_s"]
    assert slow_s > two_hosts.DELAY_MS * 1e-3, "every step waits for the link at least once"
    assert slow_s - clean_s > 0.5 * two_hosts.DELAY_MS * 1e-3, "what a step does meanwhile is hidden behind the link"
    assert "rank 1" in described["failed"] or "rank 0" in described["failed"], described["failed"]
    assert described["noticed_s"] < 45 and described["checkpoint"]
    assert described["repaired"].startswith("1 of 2 engines are alive") and "up to 1 ranks" in described["repaired"]
    assert described["alone"]["losses"] == pytest.approx(described["clean"]["losses"][:2], rel=1e-5)
    assert len(list(runs.iterdir())) >= 4


def test_gloo_is_bound_to_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") in ("lo", "lo0")
    with pytest.raises(ClusterError, match=r"has the address 203\.0\.113\.9 .*GLOO_SOCKET_IFNAME"):
        interface_of("203.0.113.9")


def test_a_machine_is_told_from_its_containers() -> None:
    boot, *spaces = Path("/proc/sys/kernel/random/boot_id").read_text().strip(), *host_id().split("-")[-2:]
    assert host_id().startswith(boot) and all(space.isdigit() for space in spaces)
