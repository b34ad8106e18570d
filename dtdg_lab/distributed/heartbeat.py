"""Heartbeats through the run's store, to detect dead ranks before the network times out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dtdg_lab.core.errors import RunFailedError

if TYPE_CHECKING:
    from dtdg_lab.distributed.store import SignedStore


class OtherRankError(RunFailedError, RuntimeError):
    """Another rank is silent or has failed; also a ``RuntimeError``, like a failed collective."""


class Heartbeat:
    """A thread that increments this rank's heartbeat and monitors the others.

    A rank keeps beating during a long computation, and stops when it is killed. ``check()`` is cheap. It raises once a
    rank has been silent for ``limit_s`` seconds or has reported a failure, or the store is gone.

    Args:
        store: a connection to the run's store, for this heartbeat only.
        rank: this process, 0 .. ranks - 1.
        ranks: number of processes, R.
        limit_s: seconds of silence after which a rank counts as dead.
        name: prefix of the keys in the store, one for each heartbeat.
        exists: returns True if a silent rank is known to be alive.
    """

    def __init__(
        self,
        store: SignedStore,
        rank: int,
        ranks: int,
        *,
        limit_s: float,
        name: str = "heartbeat",
        exists: Callable[[int], bool] = lambda rank: False,
    ) -> None:
        self._exists = exists
        self._store, self._rank, self._ranks, self._limit_s, self._name = store, rank, ranks, limit_s, name
        self._failure = ""
        self._silent_rank: int | None = None
        self._stop = threading.Event()
        self._beats = 0
        self._beat()
        self._thread = threading.Thread(target=self._watch, name=f"{name} of rank {rank}", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str:
        """The known failure of another rank or the store; empty if there is none."""
        return self._failure

    @property
    def silent_rank(self) -> int | None:
        """The silent rank; 0 if the store, which rank 0 serves, is unreachable."""
        return self._silent_rank

    def check(self) -> None:
        """Raise if the run cannot continue.

        Raises:
            OtherRankError: a rank is silent or has failed, or the store cannot be reached.
        """
        if self._failure:
            self.close()
            raise OtherRankError(f"{self._failure} Detected on rank {self._rank}. Repair the session, resume the run.")

    def check_failures(self) -> None:
        """Check immediately whether a rank has reported a failure, instead of at the next beat."""
        try:
            self._failure = (self._store.read(f"{self._name}/cause") or b"").decode() or self._failure
        except RuntimeError as error:
            self._failure = self._failure or f"The run's store cannot be reached ({error})."

    def fail(self, cause: str) -> None:
        """Report the cause of a failure to all ranks, so that they report it instead of a later silence."""
        try:
            self._store.set_once(f"{self._name}/cause", cause)
        except RuntimeError as error:  # the store died with the rank we would report
            self._failure = self._failure or f"The run's store cannot be reached ({error})."

    def close(self) -> None:
        """Stop beating; call it when no other rank needs this rank any more."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(self._limit_s)
        try:
            self._store.set(f"{self._name}/left/{self._rank}", str(self._store.ignored))
        except RuntimeError as error:
            self._failure = self._failure or f"The run's store cannot be reached ({error})."

    def wait_for_leaving(self, timeout_s: float) -> dict[int, int]:
        """Wait for all ranks to stop; return how many values of the store each stopped rank has ignored."""
        end_s = time.monotonic() + timeout_s
        while True:
            marks = {rank: self._store.read(f"{self._name}/left/{rank}") for rank in range(self._ranks)}
            ignored_values = {rank: int(mark) for rank, mark in marks.items() if mark is not None}
            if len(ignored_values) == self._ranks or time.monotonic() > end_s:
                return ignored_values
            time.sleep(0.005)

    def _watch(self) -> None:
        watched_ranks = [rank for rank in range(self._ranks) if rank != self._rank]
        start_s = time.monotonic()
        beats = dict.fromkeys(watched_ranks, -1)
        received = dict.fromkeys(watched_ranks, start_s)
        while not self._stop.wait(self._limit_s / 8):
            try:
                self._beat()
                for rank in list(watched_ranks):
                    self._check_rank(rank, beats, received, watched_ranks)
                self._failure = (self._store.read(f"{self._name}/cause") or b"").decode() or self._failure
            except RuntimeError as error:
                self._failure = f"The run's store cannot be reached ({error})."
                self._silent_rank = 0 if self._rank else None
            if self._failure:
                self.fail(self._failure)
                return

    def _beat(self) -> None:
        self._beats += 1
        self._store.set(f"{self._name}/beat/{self._rank}", str(self._beats))

    def _check_rank(
        self, rank: int, beats: dict[int, int], received: dict[int, float], watched_ranks: list[int]
    ) -> None:
        now_s = time.monotonic()
        beat = self._store.read(f"{self._name}/beat/{rank}")
        # a rank without a beat is starting, or another process has overwritten its beat
        if beat is None or int(beat) != beats[rank]:
            beats[rank], received[rank] = int(beat or 0), now_s
            return
        silent_s = now_s - received[rank]
        # three quarters of the limit plus two periods of an eighth: all ranks know within the limit
        if silent_s < 0.75 * self._limit_s or self._exists(rank):
            return
        if self._store.read(f"{self._name}/left/{rank}") is not None:
            watched_ranks.remove(rank)
        else:
            self._silent_rank = rank
            self._failure = f"Rank {rank} has given no sign of life for {silent_s:.1f} s."
