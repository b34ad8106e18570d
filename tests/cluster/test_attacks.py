"""Others on the machine attack a run while it trains: it continues, and ends as it would have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from dtdg_lab.cluster import worker
from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.runs.liveness import read_notes
from dtdg_lab.runs.stored_run import open_run
from tests.cluster import stranger
from tests.following import stop, until, until_step

ROOT = os.name == "posix" and os.geteuid() == 0
NOBODY = 65534
QUIET = {**os.environ, "TORCH_CPP_LOG_LEVEL": "FATAL"}


@contextmanager
def attack(ports: Sequence[int], *, files: Sequence[Path] = ()) -> Iterator[dict[str, int]]:
    """A stranger attacks while the block runs, as another account where possible; yields what it did, at the end."""
    given = {"ports": list(ports), "files": [str(file) for file in files], "account": NOBODY if ROOT else 0}
    command = [sys.executable, stranger.__file__, json.dumps(given)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=QUIET)
    done: dict[str, int] = {}
    try:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        yield done
        first = process.stdout.readline()  # of the first round, which may outlast the block
    finally:
        process.kill()
        output, _ = process.communicate(timeout=60)
    done.update(json.loads((first + output).rsplit("\n", 2)[-2]))


def ports_of(run: Run) -> list[int]:
    """Ports at which processes of the ranks listen: control, telemetry, gloo, ipyparallel."""
    notes = read_notes(run.path / "live", run.attempt)
    lines = [line for note in notes.values() for line in psutil.Process(note.pid).net_connections("tcp")]
    return sorted({line.laddr.port for line in lines if line.status == psutil.CONN_LISTEN})


def test_a_run_on_one_machine_goes_on_while_another_account_attacks(session: Session, config: RunConfig) -> None:
    engines, leave_s = session._engines.client[:], worker.LEAVE_S
    engines.execute("from dtdg_lab.cluster import worker; worker.LEAVE_S = 30.0", block=True)
    run = until_step(session.train(config.replace(epochs=100_000, evaluate_every=50)), 5)
    file = Path(read_notes(run.path / "live", run.attempt)[0].store.removeprefix("file:"))
    ports = ports_of(run)
    assert ports
    with attack(ports, files=[file]) as done:
        for number in range(5):
            first = run.live.progress.step
            run.set(learning_rate=0.01 * (number + 2))
            until_step(run, first + 20)
        stop(run)
    assert run.status == "stopped"
    assert done["junk"] > 0
    assert (done["stores"], done["set"]) == (0, 0), "no port is that of a store"
    assert done["opened"] == (0 if ROOT else 1)
    events = open_run(run.path).events
    assert sum(event["kind"] == "settings" for event in events) == 2 * 5
    until(lambda: not file.parent.exists(), what="a run that has ended leaves no store")
    engines.execute(f"worker.LEAVE_S = {leave_s}", block=True)
