"""The runner of ranks: results, exceptions, deaths and time-outs all come back."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
import warnings
from multiprocessing import forkserver
from typing import Any

import psutil
import pytest
import torch

from dtdg_lab.testing.processes import Death, RanksError, run_ranks


def _rank_and_sum(rank: int, ranks: int, address: str, numbers: list[int]) -> tuple[int, int]:
    return rank, ranks + sum(numbers)


def _raise_on_one(rank: int, ranks: int, address: str) -> None:
    if rank == 1:
        raise KeyError("lost")


def _end_badly(rank: int, ranks: int, address: str) -> int:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return rank


def _sleep_on_one(rank: int, ranks: int, address: str) -> None:
    if rank == 1:
        time.sleep(60)


def _state_before_changing_it(rank: int, ranks: int, address: str) -> dict[str, Any]:
    """What code may leave behind in a process; it is read, then changed."""
    found = {
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "dtype": str(torch.get_default_dtype()),
        "threads": torch.get_num_threads(),
        "random": torch.initial_seed(),
        "handlers": len(logging.root.handlers),
        "gc": gc.isenabled(),
        "warnings": len(warnings.filters),
        "running": threading.active_count(),
        "death": Death.__name__,
    }
    os.chdir("/")
    os.environ["LEFT"] = "behind"
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    torch.manual_seed(99)
    logging.basicConfig()
    gc.disable()
    warnings.simplefilter("ignore")
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    Death.__name__ = "Changed"
    return found


def test_no_call_sees_what_another_has_changed() -> None:
    first, second = (run_ranks(_state_before_changing_it, 2) for _ in range(2))
    assert first == second
    assert first[0]["running"] == 1 and first[0]["threads"] == 1 and "LEFT" not in first[0]["environment"]


def test_results_come_back_by_rank() -> None:
    assert run_ranks(_rank_and_sum, 2, [1, 2]) == [(0, 5), (1, 5)]


def test_an_exception_comes_back_with_rank_and_traceback() -> None:
    with pytest.raises(RanksError, match="rank 1 raised") as caught:
        run_ranks(_raise_on_one, 2)
    assert "_raise_on_one" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    assert list(caught.value.failures) == [1]


def test_a_death_comes_back_by_exit_code() -> None:
    with pytest.raises(RanksError, match="rank 1 died with exit code -9"):
        run_ranks(_end_badly, 2)
    assert run_ranks(_end_badly, 2, may_die=(1,)) == [0, Death(-9)]


def test_a_time_out_names_who_was_alive_and_leaves_nobody() -> None:
    began = time.monotonic()
    with pytest.raises(RanksError, match="rank 1 was still alive") as caught:
        run_ranks(_sleep_on_one, 2, timeout_s=2.0)
    assert "was still alive" in caught.value.failures[1]
    assert time.monotonic() - began < 40
    assert psutil.Process(forkserver._forkserver._forkserver_pid).children() == []
