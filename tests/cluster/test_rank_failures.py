"""An exception on one rank: the run names it, the other rank leaves, the engines stay and resume."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import RunFailedError
from dtdg_lab.runs.stored_run import open_run
from tests.following import until, until_step

# on the engine that is to fail: once the flag is there, its next step raises an error, with a tensor in its frame
SHORT = """
import os
import torch
from dtdg_lab.systems.{module}.strategy import {strategy} as Short

Short.whole = getattr(Short, "whole", Short.compute)

def compute(self, *given):
    if os.path.exists({flag!r}):
        os.remove({flag!r})
        kept = torch.zeros(1 << 20)
        raise {error}
    return Short.whole(self, *given)

Short.compute = compute
"""
OUT_OF_MEMORY = (
    'torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 '
    'GiB of which 1.20 GiB is free. Of the allocated memory 70 GiB is allocated by PyTorch. See documentation.")'
)
LARGEST = """
import gc, torch
largest = max((one.numel() for one in gc.get_objects() if type(one) is torch.Tensor), default=0)
"""


def pids(session: Session) -> list[int]:
    return [engine.pid for engine in session._engines.alive()]


@pytest.mark.parametrize(
    ("failing", "error", "text"),
    [
        (0, OUT_OF_MEMORY, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"),
        (1, "MemoryError", "MemoryError. "),
    ],
    ids=["gpu", "machine"],
)
def test_a_rank_without_memory_fails_the_run_with_a_remedy_and_the_engines_stay(
    session: Session, config: RunConfig, tmp_path: Path, failing: int, error: str, text: str
) -> None:
    flag, before = tmp_path / "now", pids(session)
    code = SHORT.format(module="snapshot_groups", strategy="SnapshotGroupStrategy", flag=str(flag), error=error)
    engine = session._engines.client[session._engines.alive()[failing].id]
    engine.execute(code, silent=True).get(20)
    run = until_step(session.train(config.replace(epochs=30, slow_rank=1 - failing, slow_ms=20.0)), 12)
    flag.touch()
    began_s = time.monotonic()
    with pytest.raises(RunFailedError, match=f"rank {failing} failed at step"):
        run.wait(30)
    assert time.monotonic() - began_s < 16.0
    step = int(run.reason.split(" at step ")[1].split(":")[0])
    assert run.failed_rank == failing and step >= 12
    assert text in run.reason
    assert "See documentation" not in run.reason
    assert "lowers the predicted memory of a rank from" in run.reason and "run.resume(group_window=" in run.reason
    assert open_run(run.path).summary["reason"] == run.reason
    until(lambda: not list((run.path / "live").glob("rank*.json")), timeout_s=10, what="both ranks have left")
    assert pids(session) == before and session.ready
    engine.execute(LARGEST, silent=True).get(20)
    assert engine["largest"] < 1 << 20, "tensors of the failed step are still there"
    again = run.resume(slow_ms=0.0).wait(60)
    assert again.status == "finished" and pids(session) == before
    assert again.summary["epochs"] == 30


def test_a_rank_in_a_long_step_keeps_its_engine_when_another_fails(
    session: Session, config: RunConfig, tmp_path: Path
) -> None:
    flag, before = tmp_path / "now", pids(session)
    code = SHORT.format(
        module="snapshot_groups", strategy="SnapshotGroupStrategy", flag=str(flag), error='RuntimeError("a bad kernel")'
    )
    session._engines.client[session._engines.alive()[1].id].execute(code, silent=True).get(20)
    run = until_step(session.train(config.replace(epochs=1000, slow_rank=0, slow_ms=20.0)), 5)
    run.set(slow_ms=5000.0)
    until(lambda: run.config["slow_ms"] == 5000.0, timeout_s=20, what="the long step")
    flag.touch()
    with pytest.raises(RunFailedError, match=r"rank 1 failed at step \d+: RuntimeError: a bad kernel"):
        run.wait(30)
    until(lambda: not list((run.path / "live").glob("rank*.json")), timeout_s=15, what="rank 0 has ended its step")
    assert pids(session) == before
    assert "predicted memory" not in run.reason
