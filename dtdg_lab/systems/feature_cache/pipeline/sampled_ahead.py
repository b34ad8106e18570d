"""Batches sampled ahead within a memory limit; beyond it only their keys are stored."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace
from dtdg_lab.systems.feature_cache.pipeline.resolving import Sampled


class Halted(Exception):  # noqa: N818 - not an error
    """Raised in a waiting thread when its request was withdrawn or the pipeline stops."""


class SampledAhead:
    """The batches of a part from the next one on; one thread fills it, others read.

    Args:
        sample: draws the batch of a step; a pure function; called by one thread at a time.
        part: the part that trains them.
        space: the space of all keys.
        first: step of the first batch.
        changed: condition that threads wait for; notified of every change.
    """

    def __init__(
        self, sample: Callable[[int], Sampled], part: int, space: KeySpace, *, first: int, changed: threading.Condition
    ) -> None:
        self._sample, self._part, self._space, self._changed = sample, part, space, changed
        self._floor = self._next = first  # the next batch to take; the next step that was never sampled
        self._remote: dict[int, NDArray[np.int64]] = {}
        self._held: dict[int, Sampled] = {}
        self._bytes = 0
        self._one_samples = threading.Lock()  # samplers need not be thread-safe

    @property
    def held_bytes(self) -> int:
        """Bytes of the stored batches."""
        return self._bytes

    @property
    def until(self) -> int:
        """The first step without a batch."""
        return self._next

    def next_step(self, until: int, near: int) -> int | None:
        """Return the next step to sample, or None. The caller holds the lock.

        Args:
            until: steps before it are needed.
            near: number of next steps whose whole batches are needed, not only their keys.
        """
        for step in range(self._floor, min(self._floor + near, self._next)):
            if step not in self._held:
                return step
        return self._next if self._next < until else None

    def sample(self, step: int, limit: int, near: int) -> None:
        """Sample a batch and store it, or only its keys.

        Args:
            step: step of the batch.
            limit: maximum bytes of stored batches.
            near: number of next steps whose batches are stored in any case.
        """
        with self._one_samples:
            batch = self._sample(step)
        remote = batch.keys[self._space.owners(batch.keys) != self._part]
        with self._changed:
            if step == self._next:
                self._next += 1
            if step < self._floor:
                return  # taken meanwhile by a thread that sampled it as well
            self._remote[step] = remote
            if step < self._floor + near or self._bytes + batch.nbytes <= limit:
                self._held[step] = batch
                self._bytes += batch.nbytes
            self._changed.notify_all()

    def take(self, step: int, halted: Callable[[], bool]) -> Sampled:
        """Wait for the batch of a step, and remove it and all earlier ones.

        Raises:
            Halted: the wait was ended.
        """
        with self._changed:
            while step not in self._held:
                if halted():
                    raise Halted
                self._changed.wait()
            return self._forget(step)

    def take_now(self, step: int) -> Sampled:
        """Return the batch of a step, sampled in the calling thread if necessary."""
        with self._changed:
            if step in self._held:
                return self._forget(step)
        with self._one_samples:
            batch = self._sample(step)
        with self._changed:
            if step in self._held:
                self._forget(step)
            self._floor, self._next = max(self._floor, step + 1), max(self._next, step + 1)
            self._remote.pop(step, None)
        return batch

    def remote_keys(self, first: int, length: int, halted: Callable[[], bool]) -> list[NDArray[np.int64]]:
        """Wait for the remote keys of some steps' batches; batches that were taken earlier are omitted.

        Raises:
            Halted: the wait was ended.
        """
        batches = []
        with self._changed:
            for step in range(first, first + length):
                while step >= self._floor and step not in self._remote:
                    if halted():
                        raise Halted
                    self._changed.wait()
                if step in self._remote:
                    batches.append(self._remote[step])
        return batches

    def sampled_keys(self, first: int) -> list[NDArray[np.int64]]:
        """Return the remote keys of the sampled batches from a step on."""
        with self._changed:
            return [self._remote[step] for step in range(max(first, self._floor), self._next) if step in self._remote]

    def _forget(self, step: int) -> Sampled:
        batch = self._held.pop(step)
        self._bytes -= batch.nbytes
        self._remote.pop(step, None)
        self._floor = step + 1
        return batch
