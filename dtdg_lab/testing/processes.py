"""Run a function in several processes, as training does, and get all results or a full report of the failure."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import forkserver, spawn
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any
from unittest import mock

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import LabError

if TYPE_CHECKING:
    from dtdg_lab.distributed.group import Group, ProcessGroup
    from dtdg_lab.kernels.device_clock import DeviceClock


_ENVIRONMENT = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
# the first optimizer imports torch._dynamo, which takes longer than everything else that a new process does
_IMPORTED = [
    "torch.distributed",
    "torch._dynamo",
    "pytest",
    "dtdg_lab.datasets.names",
    "dtdg_lab.training.assembly",
    "dtdg_lab.testing.models",
    *(f"dtdg_lab.systems.{family}.strategy" for family in catalogue.DECLARED if family),
]
KILLED = "was still alive when the time was up, and was killed"  # the failure of a rank that did not fail itself
_GRACE_S = 3.0  # time in which other ranks may report their failures after the first one


class RanksError(LabError):
    """Raised when ranks fail, die or run out of time; ``failures`` has the failure of each of these ranks."""

    def __init__(self, failures: dict[int, str]) -> None:
        lines = "\n".join(f"rank {rank} {failure}" for rank, failure in sorted(failures.items()))
        super().__init__(f"{len(failures)} rank(s) did not return a result:\n{lines}")
        self.failures = failures


@dataclass(frozen=True, slots=True)
class Death:
    """The result of a rank that was expected to die; ``exit_code`` is minus the signal, such as -9 for kill -9."""

    exit_code: int


@dataclass(slots=True)
class _Rank:
    process: multiprocessing.process.BaseProcess
    connection: Connection
    result: Any = None
    error: BaseException | None = None
    failure: str = ""
    reported: bool = False


def run_ranks(
    function: Callable[..., Any],
    ranks: int,
    *args: Any,
    timeout_s: float = 600.0,
    may_die: tuple[int, ...] = (),
    host: str = "",
) -> list[Any]:
    """Call ``function(rank, ranks, address, *args)`` in ``ranks`` new processes and return their results by rank.

    ``address`` is the address and key of a store that this process holds while the ranks run (see :func:`join_group`),
    so it outlives any rank. Each rank has one thread and treats warnings as errors. For a function of the package,
    ranks do not import the caller's ``__main__``, so that a script may call it without a guard.

    Args:
        function: a function that can be imported by its module and name.
        ranks: number of processes R.
        args: further arguments; these and the results must be picklable.
        timeout_s: seconds allowed for everything, including the start of processes.
        may_die: ranks whose death is part of the test; their result is a :class:`Death`.
        host: address on which the store is served, as for ranks on several machines; if empty, the store is a file.

    Raises:
        RanksError: a rank raised (the message has the traceback, ``__cause__`` the exception), died although it is not
            in ``may_die``, or was still alive after the time limit. No process is left behind.
    """
    from dtdg_lab.distributed.store import open_store

    store, address = open_store(ranks, host=host)
    task = pickle.dumps((function, args))
    with _no_main() if function.__module__.startswith("dtdg_lab.") else nullcontext():
        started = [_start(rank, ranks, address, task) for rank in range(ranks)]
    try:
        _collect(started, timeout_s, may_die)
    finally:
        for rank in started:
            if rank.process.is_alive():
                rank.process.kill()
            rank.process.join()
            rank.connection.close()
        store.remove()  # the store is held until here
    failures = {number: rank.failure for number, rank in enumerate(started) if rank.failure}
    if failures:
        raise RanksError(failures) from next((rank.error for rank in started if rank.error is not None), None)
    return [rank.result for rank in started]


def join_group(
    rank: int, ranks: int, address: str, *, device: str = "cpu", clock: DeviceClock | None = None
) -> ProcessGroup:
    """Connect to the store of :func:`run_ranks` and form the default group there, with one thread per rank.

    It is a gloo group, or with a CUDA device of this rank a NCCL group; then warnings are no longer errors.

    Args:
        rank: this rank.
        ranks: number of ranks.
        address: address of the store.
        device: device of this rank.
        clock: clock of the device; a new one if None.
    """
    import torch

    from dtdg_lab.distributed.group import ProcessGroup
    from dtdg_lab.distributed.store import reach_store

    torch.set_num_threads(1)
    if device != "cpu":
        torch.cuda.set_device(device)
        warnings.simplefilter("default")
    return ProcessGroup.join(reach_store(address, ranks), rank, ranks, device=device, clock=clock)


def delayed_group(group: Group, delay_s: float, bytes_per_s: float = float("inf")) -> Group:
    """Return a group whose exchanges of rows take at least ``delay_s`` on every rank, from start to completion.

    It serves to test overlapping on ranks with fast links.

    Args:
        group: the ranks.
        delay_s: delay of all links in seconds, at least 0.
        bytes_per_s: rate at which a rank sends its rows, if every other rank gets the same number.
    """
    import numpy as np

    from dtdg_lab.network.linked_group import LinkedGroup
    from dtdg_lab.network.links import LinkState

    every = np.ones((group.size, group.size))
    return LinkedGroup(group, LinkState(delay_s * every, bytes_per_s / max(1, group.size - 1) * every))


def _start(rank: int, ranks: int, address: str, task: bytes) -> _Rank:
    context = _context()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, rank, ranks, address, task), name=f"rank {rank}", daemon=True)
    process.start()
    theirs.close()
    return _Rank(process, ours)


def _no_main() -> Any:
    """Start processes without importing this process's ``__main__``, which may itself start processes."""
    prepare = spawn.get_preparation_data

    def without_main(name: str) -> dict[str, Any]:
        return {key: value for key, value in prepare(name).items() if not key.startswith("init_main")}

    return mock.patch.object(spawn, "get_preparation_data", without_main)


def _context() -> Any:
    """Return a context that forks from a server with all imports of a rank, which take most of a process's start.

    The server has one thread and has computed nothing. It does not see what this process does later.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    with mock.patch.dict(os.environ, _ENVIRONMENT):  # before the server imports torch
        forkserver.ensure_running()
    return context


def _work(connection: Connection, rank: int, ranks: int, address: str, task: bytes) -> None:
    os.environ.update(_ENVIRONMENT)  # before the task's module imports torch
    error: BaseException | None = None
    text = ""
    result = b""
    try:
        function, args = pickle.loads(task)
        gc.freeze()  # leaves imports out of garbage collections
        warnings.simplefilter("error")
        result = pickle.dumps(function(rank, ranks, address, *args))
    except BaseException as raised:
        error, text = raised, traceback.format_exc()
    connection.send((result, _portable(error), text))
    connection.close()


def _portable(error: BaseException | None) -> BaseException | None:
    """Return the exception if it survives pickling, otherwise None; some need more arguments than they store."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return None
    return error


def _collect(started: list[_Rank], timeout_s: float, may_die: tuple[int, ...]) -> None:
    end = time.monotonic() + timeout_s
    while waiting := [rank for rank in started if not _done(rank)]:
        if any(rank.failure for rank in started):
            end = min(end, time.monotonic() + _GRACE_S)
        ready = wait([_source(rank) for rank in waiting], timeout=max(0.0, end - time.monotonic()))
        for rank in waiting:
            if _source(rank) in ready:
                _receive(rank, started.index(rank) in may_die)
        if not ready and time.monotonic() >= end:
            for rank in waiting:
                rank.failure = KILLED
            return


def _done(rank: _Rank) -> bool:
    return bool(rank.failure) or (rank.reported and rank.process.exitcode is not None)


def _source(rank: _Rank) -> Any:
    """Return the object to wait for: first the rank's report, then the end of its process."""
    return rank.process.sentinel if rank.reported else rank.connection


def _receive(rank: _Rank, may_die: bool) -> None:
    if rank.reported:
        rank.process.join()
        if rank.process.exitcode:
            rank.failure = f"returned, then ended with exit code {rank.process.exitcode}"
        return
    try:
        result, rank.error, text = rank.connection.recv()
    except EOFError:
        rank.process.join()
        if may_die:
            rank.reported, rank.result = True, Death(rank.process.exitcode or 0)
        else:
            rank.failure = f"died with exit code {rank.process.exitcode}"
        return
    rank.reported = True
    if text:
        rank.failure = f"raised:\n{text}"
    else:
        rank.result = pickle.loads(result)
