"""Processor seconds of processes that work for a rank."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import psutil


class ChildSeconds:
    """Processor seconds so far of some processes; those of one that has ended stay counted.

    Threads may share it. What a process used between the last look and its end is lost.

    Args:
        pids: the processes that live now, such as a rank's server of features.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._living: dict[int, psutil.Process] = {}
        self._seconds: dict[tuple[int, float], float] = {}  # by number and start: numbers are used again
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Seconds of all of them together."""
        with self._lock:
            pids = set(self._pids())
            self._living = {pid: process for pid, process in self._living.items() if pid in pids}
            for pid in pids:
                try:
                    if pid not in self._living:
                        self._living[pid] = psutil.Process(pid)
                    process = self._living[pid]
                    times = process.cpu_times()
                    self._seconds[pid, process.create_time()] = times.user + times.system
                except psutil.NoSuchProcess:
                    self._living.pop(pid, None)  # it has ended since it was listed: what was last seen of it stands
            return sum(self._seconds.values())
