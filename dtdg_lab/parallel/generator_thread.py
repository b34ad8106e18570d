"""A thread that fills the reservoir of one part."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.parallel.cached_part import CachedPart, LocalEdges
from dtdg_lab.parallel.generator_source import Source
from dtdg_lab.parallel.low_priority import give_way

IDLE_S = 0.1  # how often a generator looks whether its full reservoir wants batches again


class StopAskedError(Exception):
    """Raised in a generator to leave the batch that it is building."""


class StoppablePart(CachedPart):
    """A cached part that can be taken away from who is reading it.

    Args:
        part: the same, opened.
        stop: once it is set, asking for arrays raises.
    """

    def __init__(self, part: CachedPart, stop: threading.Event) -> None:
        self._stop = stop
        super().__init__(part._arrays, part.reach)

    def edges(self, t: int, way: str) -> LocalEdges:
        """As :meth:`CachedPart.edges`.

        Raises:
            StopAskedError: nobody wants the batch any more.
        """
        if self._stop.is_set():
            raise StopAskedError
        return super().edges(t, way)

    def joined(self, name: str, snapshots: range) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """As :meth:`CachedPart.joined`.

        Raises:
            StopAskedError: nobody wants the batch any more.
        """
        if self._stop.is_set():
            raise StopAskedError
        return super().joined(name, snapshots)


class GeneratorThread:
    """Builds a part's batches 0, 1, 2 .. of each size, as long as the reservoir wants them.

    Sizes take turns by time: next is the one that had least of it.

    Args:
        source: of the batches.

    Attributes:
        failure: what ended it, None while nothing has.
        made: batches of each action that the reservoir took so far.
        busy_s: processor seconds for each action so far.
    """

    def __init__(self, source: Source) -> None:
        actions = len(source.maker.sizes)
        self.failure: Exception | None = None
        self.made, self.busy_s = [0] * actions, [0.0] * actions
        self._source = source
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"generators of part {source.maker.part}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end; the batch in work is dropped."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the end."""
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        give_way()
        maker, reservoir = self._source.maker, self._source.reservoir
        try:
            part = StoppablePart(maker.opened(), self._stop)
            while not self._stop.is_set():
                wanted = [action for action in range(len(self.made)) if reservoir.wants(action)]
                if not wanted:
                    self._stop.wait(IDLE_S)
                    continue
                action, begin_s = min(wanted, key=self.busy_s.__getitem__), time.thread_time()
                built = maker.make(part, action, self.made[action])
                self.busy_s[action] += time.thread_time() - begin_s
                content = built.batch.content
                self.made[action] += reservoir.put(action, self.made[action], built, built.nbytes, content)
        except StopAskedError:
            return
        except Exception as error:  # told by Generators.check, on the thread that trains
            self.failure = error
