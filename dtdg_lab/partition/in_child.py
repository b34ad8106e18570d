"""Partitioning libraries run in a process of their own: one that crashes or hangs takes nothing down with it."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import NotAvailableError, PartitionError

TIME_LIMIT_S = 600.0
_REMEDY = "Choose another partitioner, such as load_aware, which needs no library."


def needs_library(name: str) -> None:
    """Go on where the package ``name`` is installed.

    Raises:
        NotAvailableError: it is not.
    """
    if importlib.util.find_spec(name) is None:
        raise NotAvailableError(
            f"the package {name} is not installed; this partitioner needs it. Install it with: pip install {name}; or "
            "choose another partitioner, such as load_aware."
        )


def in_child(
    solver: str,
    arrays: Mapping[str, NDArray[Any]],
    *,
    vertices: int,
    parts: int,
    time_limit_s: float = TIME_LIMIT_S,
) -> NDArray[np.int32]:
    """Let ``solve(arrays)`` of ``<solver>_solver.py`` run in a child process and return the parts it chose.

    Args:
        solver: such as ``"metis"``.
        arrays: what ``solve`` takes, by name.
        vertices: K, how many parts must come back.
        parts: P.
        time_limit_s: seconds after which the child is killed.

    Returns:
        (K,) int32, 0 to P - 1.

    Raises:
        PartitionError: the child was killed, failed, took too long, or answered something else.
    """
    size = f"{vertices:,} vertices in {parts} parts"
    with tempfile.TemporaryDirectory(prefix="dtdg-lab-partition-") as name:
        given, answer = Path(name) / "given.npz", Path(name) / "answer.npy"
        start = time.monotonic()
        try:
            np.savez(given, allow_pickle=False, **arrays)
            done = subprocess.run(
                [sys.executable, "-P", "-m", "dtdg_lab.partition.child", str(os.getpid()), solver, given, answer],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=time_limit_s, check=False, env=_environment(),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise PartitionError(
                f"{solver} did not divide {size} within {time_limit_s:g} s and was stopped. {_REMEDY}"
            ) from error
        except OSError as error:
            raise PartitionError(f"the process of {solver} could not be started: {error}. {_REMEDY}") from error
        _check_end(solver, done, size, time.monotonic() - start)
        return _answer(solver, answer, vertices, parts)


def _environment() -> dict[str, str]:
    """This process's environment, with this very package where the child looks for it."""
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}


def _check_end(solver: str, done: subprocess.CompletedProcess[bytes], size: str, took_s: float) -> None:
    if not done.returncode:
        return
    last = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()][-1:]
    said = f" It said: {last[0][:300]}" if last else ""
    if done.returncode > 0:
        raise PartitionError(f"{solver} failed on {size} with exit status {done.returncode}.{said} {_REMEDY}")
    number = -done.returncode
    name = signal.Signals(number).name if number in {known.value for known in signal.Signals} else "unknown"
    why = " The system does this where memory runs out." if name == "SIGKILL" else ""
    raise PartitionError(
        f"{solver} was ended by signal {name} ({number}) after {took_s:.1f} s, on {size}.{why}{said} Nothing else was "
        f"harmed: it ran in its own process. {_REMEDY}"
    )


def _answer(solver: str, file: Path, vertices: int, parts: int) -> NDArray[np.int32]:
    try:
        owner = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise PartitionError(f"{solver} ended without an answer that can be read: {error}. {_REMEDY}") from error
    whole = owner.shape == (vertices,) and np.issubdtype(owner.dtype, np.integer)
    if not whole or (vertices and not (owner.min() >= 0 and owner.max() < parts)):
        span = f", from {owner.min()} to {owner.max()}" if whole else ""
        raise PartitionError(
            f"{solver} answered {owner.dtype} of shape {owner.shape}{span}; one part of 0 to {parts - 1} for each of "
            f"{vertices:,} vertices is needed. {_REMEDY}"
        )
    return np.asarray(owner, np.int32)
