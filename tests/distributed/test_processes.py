"""The runner of ranks: results, exceptions, deaths and time-outs all come back."""

from __future__ import annotations

import os
import signal
import time

import pytest

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
        run_ranks(_sleep_on_one, 2, timeout_s=4.0)
    assert "was still alive" in caught.value.failures[1]
    assert time.monotonic() - began < 12
