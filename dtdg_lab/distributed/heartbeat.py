"""Heartbeats through the run's store, which detect dead ranks before the network times out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dtdg_lab.core.errors import RunFailedError

if TYPE_CHECKING:
    from dtdg_lab.distributed.store import SignedStore


class OtherRankError(RunFailedError, RuntimeError):
    """Raised on a rank because another is silent or has failed; a ``RuntimeError`` too, like a failed collective."""


class Heartbeat:
    """A thread that increments this rank's heartbeat and monitors the others.

    A rank that computes for long still beats; one that was killed does not. ``check()`` costs nothing and raises once
    a rank has been silent for ``limit_s`` seconds, reported a failure, or the store itself is gone.

    Args:
        store: a connection to the run's store, for this heartbeat only.
        rank: this process, 0 .. ranks - 1.
        ranks: number of processes, R.
        limit_s: seconds of silence after which a rank counts as dead.
        name: keeps the keys of several heartbeats on one store apart.
        exists: whether a silent rank is known to exist, and so is not dead.
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
        self._beat()  # at once: a rank without a beat is starting, one that stopped is dead
        self._thread = threading.Thread(target=self._watch, name=f"{name} of rank {rank}", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str:
        """The known failure of another rank or the store; empty if there is none."""
        return self._failure

    @property
    def silent_rank(self) -> int | None:
        """The rank found silent; 0 if the store, which rank 0 serves, is unreachable."""
        return self._silent_rank

    def check(self) -> None:
        """Raise if the run cannot continue.

        Raises:
            OtherRankError: a rank is silent or has failed, or the store cannot be reached.
        """
        if self._failure:
            self.close()
            raise OtherRankError(f"{self._failure} Noticed on rank {self._rank}. Repair the session, resume the run.")

    def hear(self) -> None:
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
        """Stop beating. Call it when no other rank needs this one any more."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(self._limit_s)
        try:
            self._store.set(f"{self._name}/left/{self._rank}", str(self._store.ignored))
        except RuntimeError as error:
            self._failure = self._failure or f"The run's store cannot be reached ({error})."

    def left(self, timeout_s: float) -> dict[int, int]:
        """Return how many of the store's values each stopped rank has ignored, after waiting for all ranks."""
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
                    self._look(rank, beats, received, watched_ranks)
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

    def _look(self, rank: int, beats: dict[int, int], received: dict[int, float], watched_ranks: list[int]) -> None:
        asked_s = time.monotonic()
        beat = self._store.read(f"{self._name}/beat/{rank}")
        # without a beat a rank is starting, or a stranger has overwritten it: that is no sign of a death
        if beat is None or int(beat) != beats[rank]:
            beats[rank], received[rank] = int(beat or 0), asked_s
            return
        silent_s = asked_s - received[rank]
        # three quarters, and two beats of an eighth: all ranks know within the limit
        if silent_s < 0.75 * self._limit_s or self._exists(rank):
            return
        if self._store.read(f"{self._name}/left/{rank}") is not None:
            watched_ranks.remove(rank)
        else:
            self._silent_rank = rank
            self._failure = f"Rank {rank} has given no sign of life for {silent_s:.1f} s."
