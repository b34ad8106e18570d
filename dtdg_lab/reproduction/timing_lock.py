"""The machine-wide lock of timed measurements: one at a time, with nothing else of the lab beside it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from dtdg_lab.core.errors import ClusterError

FILE = Path("/tmp/dtdg-lab-timing.lock")  # the same for all accounts, whatever their TMPDIR is
BUSY_SHARE = 0.2  # of the machine's processors, above which other programs disturb a clock
PATIENCE_S = 300.0
LOOK_S = 2.0


@contextmanager
def timing_lock(
    *, timed: bool, patience_s: float = PATIENCE_S, waiting: Callable[[str], None] = lambda reason: None
) -> Iterator[None]:
    """Hold the lock: alone while a clock decides, otherwise shared with others that time nothing.

    The operating system releases it when the process ends, however it ends.

    Args:
        timed: whether a clock decides.
        patience_s: how long to wait for others.
        waiting: receives the reason for a wait, once.

    Raises:
        ClusterError: others still hold it.
    """
    # another account's file can be locked; systems refuse to open it with O_CREAT
    descriptor = os.open(FILE, os.O_RDONLY if FILE.exists() else os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        deadline_s, said = time.monotonic() + patience_s, False
        kind = fcntl.LOCK_EX if timed else fcntl.LOCK_SH
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    waiting(f"waits for another measurement on this machine ({FILE})")
                    said = True
                if time.monotonic() >= deadline_s:
                    raise ClusterError(
                        f"another process of this machine has measured for {patience_s:.0f} s and holds {FILE}. Wait "
                        "for its end, or end it."
                    ) from None
                time.sleep(LOOK_S)
        yield
    finally:
        os.close(descriptor)


def busy_share() -> float:
    """Return the share of the processors that programs use now, measured for a second."""
    return float(psutil.cpu_percent(interval=1.0)) / 100


def wait_until_idle(*, patience_s: float = PATIENCE_S, waiting: Callable[[str], None] = lambda reason: None) -> float:
    """Wait until other programs leave the processors to a timed cell, and return the share that they still use.

    Raises:
        ClusterError: they do not.
    """
    deadline_s, said = time.monotonic() + patience_s, False
    while (busy := busy_share()) > BUSY_SHARE:
        if not said:
            waiting(f"waits, since other programs use {busy:.0%} of the processors")
            said = True
        if time.monotonic() >= deadline_s:
            raise ClusterError(
                f"other programs have used more than {BUSY_SHARE:.0%} of the processors for {patience_s:.0f} s (now "
                f"{busy:.0%}), so times would mean nothing. End them, or run what is not timed."
            )
        time.sleep(LOOK_S)
    return busy
