"""Two hosts on one machine: network namespaces with addresses of their own, a cable between them, and a cluster.

The test makes the hosts; a child process in the first of them is the kernel: ``python two_hosts.py FOLDER`` attaches,
trains, and prints one line of JSON. It waits where the test is to do something: files in FOLDER tell each other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

DELAY_MS = 25.0


@dataclass(frozen=True)
class Host:
    """A namespace with one address."""

    space: str
    device: str
    address: str

    def start(self, *command: str, log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Run a command there, in a session of its own."""
        with log.open("wb") as output:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.space, *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            )

    def cut(self) -> None:
        """Pull its cable."""
        _ip("-n", self.space, "link", "set", self.device, "down")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def why_not() -> str:
    """Why this machine has no hosts to be tested with; empty where it has."""
    space = f"lab-try-{os.getpid()}"
    try:
        _ip("netns", "add", space)
        _ip("netns", "exec", space, "true")
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        return f"network namespaces cannot be made here: {said.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
    return ""


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts that reach each other, and nobody else."""
    number = os.getpid()
    first = Host(f"lab-a-{number}", "cable0", "10.77.0.1")
    second = Host(f"lab-b-{number}", "cable0", "10.77.0.2")
    with ExitStack() as stack:
        for host in (first, second):
            _ip("netns", "add", host.space)
            stack.callback(subprocess.run, ["ip", "netns", "del", host.space], capture_output=True, check=False)
        cable = f"link add {first.device} netns {first.space} type veth peer name {second.device} netns {second.space}"
        _ip(*cable.split())
        for host in (first, second):
            _ip("-n", host.space, "addr", "add", f"{host.address}/24", "dev", host.device)
            for device in ("lo", host.device):
                _ip("-n", host.space, "link", "set", device, "up")
            _ip("-n", host.space, "route", "add", "default", "dev", host.device)
        yield first, second


def _wait_for(path: Path, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not come"
        time.sleep(0.05)


def _attached(folder: Path) -> Any:
    from dtdg_lab.cluster.session import Session
    from dtdg_lab.core.errors import ClusterError

    connection, deadline = folder / "profile" / "security" / "ipcontroller-client.json", time.monotonic() + 60
    _wait_for(connection)
    while True:
        try:
            session = Session.attach(connection, runs_dir=folder / "runs")
            if session.ranks == 2:
                return session
            session.close()
        except ClusterError:
            pass  # engines are still registering
        assert time.monotonic() < deadline, "two engines never appeared"
        time.sleep(0.5)


def _trained(session: Any, config: Any) -> dict[str, Any]:
    from dtdg_lab.runs.stored_run import open_run

    run = session.train(config).wait(90)
    steps = open_run(run.path).table("steps")
    return {
        "losses": list(steps[steps["rank"] == 0]["global_loss"]),
        "step_s": median(steps["time_s"]),
        "sent": int(steps["bytes_sent"].sum()),
    }


def _kernel(folder: Path) -> dict[str, Any]:
    """What a person's kernel does on the first host."""
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.core.errors import RunFailedError

    sizes = {"generated_nodes": 120, "generated_edges": 500, "generated_snapshots": 20, "hidden": 8}
    how = {"ranks": 2, "epochs": 12, "threads": 1, "device": "cpu", "evaluate_every": 100}
    config = RunConfig(system="adgnn-t", dataset="growing", **how, **sizes)
    session = _attached(folder)
    hosts = {engine.host for engine in session._engines.alive()}
    described: dict[str, Any] = {"machines": len(hosts), "clean": _trained(session, config)}
    described["slow"] = _trained(session, config.replace(links=f"* delay={DELAY_MS:g}", epochs=6))
    run = session.train(config.replace(epochs=100_000))
    while run.live.progress.step < 5:
        time.sleep(0.05)
    (folder / "cut it").touch()
    _wait_for(folder / "cut")
    began_s = time.monotonic()
    try:
        run.wait(90)
        described["failed"] = "it finished"
    except RunFailedError as error:
        described["failed"] = str(error)
    described["noticed_s"] = time.monotonic() - began_s
    described["checkpoint"] = (run.path / "checkpoints" / "last.pt").is_file()
    (folder / "start another").touch()
    described["repaired"] = _repaired(session)
    described["alone"] = _trained(session, config.replace(ranks=1, parts=2, epochs=2))
    session.close()
    return described


def _repaired(session: Any) -> str:
    """What repair says once the host that is left has an engine again."""
    from dtdg_lab.core.errors import ClusterError

    deadline = time.monotonic() + 60
    while True:
        try:
            session.repair()
            return "whole"
        except ClusterError as error:
            if str(error).startswith("1 of 2") or time.monotonic() > deadline:
                return str(error)
            time.sleep(0.5)


if __name__ == "__main__":
    print(json.dumps(_kernel(Path(sys.argv[1]))))
