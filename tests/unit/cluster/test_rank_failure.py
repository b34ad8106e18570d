"""The text of a rank's failure, its remedy, and the memory that an error holds."""

from __future__ import annotations

import re
import threading
import weakref
from pathlib import Path
from unittest import mock

import pytest
import torch

from dtdg_lab.cluster import rank_failure
from dtdg_lab.cluster.beacon import is_in_collective
from dtdg_lab.cluster.rank_failure import (
    explain_failure,
    is_out_of_memory,
    release_memory,
    suggest_memory_remedy,
)
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import RunFailedError

SIZES = {"generated_nodes": 200, "generated_edges": 800, "generated_snapshots": 30, "hidden": 8}


def test_a_failure_names_rank_step_and_cause() -> None:
    assert explain_failure(RuntimeError("NCCL error"), 2, 7) == "rank 2 failed at step 7: RuntimeError: NCCL error"
    assert explain_failure(RuntimeError("no route"), 0, None) == "rank 0 failed: RuntimeError: no route"
    assert explain_failure(MemoryError(), 0, 7) == "rank 0 failed at step 7: MemoryError"
    long = torch.cuda.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has 80 GiB. See documentation."
    )
    assert explain_failure(long, 1, 3).endswith("Tried to allocate 2 GiB. GPU 0 has 80 GiB")


def test_a_lack_of_memory_is_known_from_the_cause_of_an_error_too() -> None:
    for cause in (
        torch.cuda.OutOfMemoryError("no memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        torch.distributed.DistBackendError("NCCL error: Cuda failure 2 'out of memory'"),
    ):
        error = ValueError("a step failed")
        error.__cause__ = cause
        assert is_out_of_memory(error) and is_out_of_memory(cause)
    assert not is_out_of_memory(RuntimeError("NCCL error"))
    assert not is_out_of_memory(RunFailedError("rank 1 failed: CUDA out of memory"))
    own_cause = RuntimeError("raised from itself")
    own_cause.__cause__ = own_cause
    assert not is_out_of_memory(own_cause)


def test_torch_2_4_which_has_the_error_under_cuda_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    error = torch.cuda.OutOfMemoryError("no memory")
    monkeypatch.delattr(torch, "OutOfMemoryError", raising=False)
    assert is_out_of_memory(error) and not is_out_of_memory(RuntimeError("NCCL error"))


def test_a_remedy_that_cannot_be_computed_for_lack_of_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (MemoryError(), RuntimeError("CUDA error: out of memory")):
        monkeypatch.setattr(rank_failure, "load_for", mock.Mock(side_effect=error))
        text = suggest_memory_remedy(RunConfig(ranks=2))
        assert text.startswith("The forecast cannot tell which setting lowers the memory")
        assert type(error).__name__ in text


@pytest.mark.parametrize(
    ("system", "settings", "remedy"),
    [
        ("psg", {}, r"group_window=1 lowers .* from .* to .*: run\.resume\(group_window=1\)"),
        ("esdg", {"model": "evolvegcn-o"}, r"blocks=\d+ lowers .*: run\.resume\(blocks=\d+\)"),
        ("single", {"ranks": 1}, "Use more ranks, a smaller hidden, or a device with more memory"),
    ],
)
def test_the_remedy_is_a_setting_of_the_system_with_its_forecast(system: str, settings: dict, remedy: str) -> None:
    config = RunConfig(system=system, dataset="growing", **{"ranks": 2, **settings}, **SIZES)
    text = suggest_memory_remedy(config)
    assert re.search(remedy, text), text


def test_released_frames_hold_no_tensors() -> None:
    held: list[weakref.ref] = []

    def fail() -> None:
        tensor = torch.zeros(10)
        cycle = [tensor]
        cycle.append(cycle)
        held.append(weakref.ref(tensor))
        raise RuntimeError("no memory")

    try:
        try:
            fail()
        except RuntimeError as error:
            raise ValueError("the rank failed") from error
    except ValueError as error:
        assert held[0]() is not None
        release_memory(error)
        assert held[0]() is None


def test_a_thread_is_in_a_collective_while_one_of_its_frames_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_in_collective(threading.get_ident())
    folder = Path(torch.distributed.__file__).parent
    code = compile("answer = ask()", str(folder / "distributed_c10d.py"), "exec")
    space = {"ask": lambda: is_in_collective(threading.get_ident())}
    exec(code, space)
    assert space["answer"] is True
    assert not is_in_collective(-1)
