"""Generators that build batches ahead of training, in threads or processes; as a main module, one such process.

The process needs no torch. It exits when its input ends, which also happens if the parent process dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.child_process import ChildProcess, begin_child
from dtdg_lab.core.errors import RunFailedError
from dtdg_lab.core.plans import BatchSize
from dtdg_lab.engine.minibatch.blocks import BlockShape, BuiltBatch, built_batch
from dtdg_lab.engine.views.replicated_part import CachedPart, LocalEdges, Reach
from dtdg_lab.graphs.storage import read
from dtdg_lab.systems.hybrid_batches.reservoir import Reservoir
from dtdg_lab.systems.hybrid_batches.sampler import TargetSampler

NICE = 10  # of 19: about a tenth of a contended core; at 19 a generator hardly progresses on a busy machine
POLL_S = 0.1  # interval at which a generator checks if its full reservoir has room again
PIPE_BYTES = 1 << 20  # the maximum of unprivileged processes; a larger pipe blocks less often


@dataclass(frozen=True, slots=True, eq=False)
class BatchMaker:
    """The inputs of a part's batches, apart from action and index; small and cheap to send.

    Attributes:
        part: index of the part.
        folder: folder of its cached files, which exist.
        reach: the contents of these files.
        sampler: sampler of its targets.
        sizes: sizes of the batches, one per action.
        shape: shape of the model's computation blocks.
    """

    part: int
    folder: Path
    reach: Reach
    sampler: TargetSampler
    sizes: tuple[BatchSize, ...]
    shape: BlockShape

    def opened(self) -> CachedPart:
        """Map the cached part from its files.

        Raises:
            DataError: the files are missing or damaged.
        """
        return CachedPart(read(self.folder, mmap=True)[0], self.reach)

    def make(self, part: CachedPart, action: int, index: int) -> BuiltBatch:
        """Build batch ``index`` of an action from the opened part."""
        return built_batch(part, self.sampler.batch(self.sizes[action], action, index), self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The generator input of one part, and its reservoir.

    Attributes:
        maker: builds the batches.
        reservoir: has a capacity for each of the maker's sizes.
    """

    maker: BatchMaker
    reservoir: Reservoir[BuiltBatch]


def lower_priority() -> None:
    """Lower the priority of this thread on Linux, elsewhere of the whole process.

    Does nothing if the system has no priorities or denies the change.
    """
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id() if sys.platform == "linux" else 0, NICE)


class Generator:
    """A thread that fills a part's reservoir with batches 0, 1, 2 .. of each size while there is room.

    Args:
        source: maker and reservoir of the batches.

    Attributes:
        failure: the exception that ended it, if any.
        made: number of batches of each action that the reservoir has accepted.
        busy_s: CPU seconds of each action so far.
    """

    def __init__(self, source: Source) -> None:
        actions = len(source.maker.sizes)
        self.failure: Exception | None = None
        self.made, self.busy_s = [0] * actions, [0.0] * actions
        self._source = source
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"generators of part {source.maker.part}", daemon=True)

    def start(self) -> None:
        """Start the thread.

        Raises:
            NotAvailableError: the generator's process cannot be started.
        """
        self._thread.start()

    def stop(self) -> None:
        """Request the end; the batch in progress is dropped."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the end of the thread if it was started."""
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        """Build batches until the generator is stopped; a failure goes to ``failure``."""
        raise NotImplementedError

    def _put(self, built: BuiltBatch, busy_s: float) -> None:
        """Put a batch into the reservoir, and count it."""
        action = built.batch.action
        self.busy_s[action] = busy_s
        self.made[action] += self._source.reservoir.put(
            action, built.batch.index, built, built.nbytes, built.batch.content
        )


# A thread of this process.


class StopRequestedError(Exception):
    """Raised in a generator to abandon the batch that it is building."""


class StoppablePart(CachedPart):
    """A cached part whose reads can be interrupted.

    Args:
        part: the opened part.
        stop: once it is set, reading arrays raises :class:`StopRequestedError`.
    """

    def __init__(self, part: CachedPart, stop: threading.Event) -> None:
        self._stop = stop
        super().__init__(part._arrays, part.reach)

    def edges(self, t: int, direction: str) -> LocalEdges:
        """Return :meth:`CachedPart.edges`, unless the batch is no longer needed."""
        self._raise_if_stopped()
        return super().edges(t, direction)

    def joined(self, name: str, snapshots: range) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return :meth:`CachedPart.joined`, unless the batch is no longer needed."""
        self._raise_if_stopped()
        return super().joined(name, snapshots)

    def _raise_if_stopped(self) -> None:
        if self._stop.is_set():
            raise StopRequestedError


class GeneratorThread(Generator):
    """Builds the batches itself.

    Sizes take turns by CPU time: the next size is the one with the lowest CPU time so far.
    """

    def _run(self) -> None:
        lower_priority()
        maker, reservoir = self._source.maker, self._source.reservoir
        try:
            part = StoppablePart(maker.opened(), self._stop)
            while not self._stop.is_set():
                actions = [action for action in range(len(self.made)) if reservoir.has_room(action)]
                if not actions:
                    self._stop.wait(POLL_S)
                    continue
                action, begin_s = min(actions, key=self.busy_s.__getitem__), time.thread_time()
                built = maker.make(part, action, self.made[action])
                self._put(built, self.busy_s[action] + time.thread_time() - begin_s)
        except StopRequestedError:
            return
        except Exception as error:  # raised again by Generators.check, in the training thread
            self.failure = error


# A process that builds the batches of one part, of all sizes, and the thread that puts them into the reservoir.
#
# The parent sends the BatchMaker, then (action, index) of each batch. The process replies with (batch, CPU seconds of
# its action), or with the text of a failure.


class GeneratorProcess(Generator):
    """Builds batches in a child process, whose interpreter lock does not block training.

    Each action with room has one pending request, so that no more is built than the reservoir takes.
    """

    def start(self) -> None:
        """Start process and thread."""
        self._child = ChildProcess(
            "dtdg_lab.systems.hybrid_batches.generators", purpose="builds batches", advice="Set generators='threads'."
        )
        with contextlib.suppress(OSError, AttributeError):  # only Linux can resize pipes
            fcntl.fcntl(self._child.answers, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads can be started
            self._child.kill()
            self._child.wait()
            self._child.release()
            raise

    def stop(self) -> None:
        """Kill the process; nothing is left behind."""
        super().stop()
        if self._thread.ident is not None:
            self._child.kill()

    def join(self) -> None:
        """Wait for the end of process and thread."""
        super().join()
        if self._thread.ident is not None:
            self._child.wait()
            self._child.release()

    def _run(self) -> None:
        child, requested = self._child, set[int]()
        try:
            with (
                Connection(os.dup(child.orders.fileno()), readable=False) as orders,
                Connection(os.dup(child.answers), writable=False) as answers,
            ):
                orders.send(self._source.maker)
                while not self._stop.is_set():
                    for action, index in enumerate(self.made):
                        if action not in requested and self._source.reservoir.has_room(action):
                            requested.add(action)
                            orders.send((action, index))
                    if answers.poll(POLL_S):
                        requested.remove(self._take(answers.recv()))
        except (EOFError, OSError) as error:
            if not self._stop.is_set():
                self.failure = RunFailedError(f"its process {child.ended(f' ({error})' if str(error) else '')}")
        except Exception as error:  # raised again by Generators.check, in the training thread
            self.failure = error

    def _take(self, answer: tuple[BuiltBatch, float] | str) -> int:
        """Put a received batch into the reservoir; return its action."""
        if isinstance(answer, str):
            raise RunFailedError(answer)
        self._put(*answer)
        return answer[0].batch.action


class _Builder:
    """The thread of the child process that builds requested batches; sizes take turns by CPU time.

    Args:
        maker: builds the batches.
        answers: pipe for the finished batches.
    """

    def __init__(self, maker: BatchMaker, answers: Connection) -> None:
        self._maker, self._part, self._answers = maker, maker.opened(), answers
        self._orders: dict[int, int] = {}  # action -> index
        self._changed = threading.Condition()
        self._busy_s = [0.0] * len(maker.sizes)
        threading.Thread(target=self._run, name="generators", daemon=True).start()

    def order(self, action: int, index: int) -> None:
        """Request a batch, the only pending one of its action."""
        with self._changed:
            self._orders[action] = index
            self._changed.notify()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: bool(self._orders))
                    action = min(self._orders, key=self._busy_s.__getitem__)
                    index = self._orders.pop(action)
                begin_s = time.thread_time()
                built = self._maker.make(self._part, action, index)
                self._busy_s[action] += time.thread_time() - begin_s
                self._answers.send((built, self._busy_s[action]))
        except BrokenPipeError:  # the parent has closed the pipe
            os._exit(0)
        except Exception as error:
            with contextlib.suppress(OSError):
                self._answers.send(_failure_text(error))
            os._exit(1)


def _failure_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def serve(parent_lives: Callable[[], bool]) -> None:
    """Build requested batches until the requests end or the parent exits."""
    orders, answers = Connection(0, writable=False), Connection(1, readable=False)  # standard input and output
    try:
        builder = _Builder(orders.recv(), answers)
        while parent_lives():
            if orders.poll(1.0):
                builder.order(*orders.recv())
    except EOFError:
        return
    except Exception as error:
        answers.send(_failure_text(error))
        raise


# All generators of a rank.


class Generators:
    """One low-priority generator per part, in which batch sizes take turns; all start at once.

    Batch i of an action is the same for both kinds. The reservoirs limit the number of batches; a full one is checked
    again ten times a second.

    Args:
        sources: the parts, each with its own reservoir.
        kind: ``processes``: one per part, which sends finished batches. ``threads``: one per part in this process,
            which start quickly and copy nothing, but block training while they hold the interpreter lock.

    Raises:
        NotAvailableError: a process cannot be started; all others are stopped first.

    References: DynaHB section 5.2 (pipelined hybrid batch generator), algorithm 2, lines 1 and 2.
    Differs from the paper: a thread per size would contend with training for the interpreter lock, so here the sizes of
        a part share a thread or a process.
    """

    def __init__(self, sources: Sequence[Source], *, kind: str) -> None:
        make: type[Generator] = GeneratorThread if kind == "threads" else GeneratorProcess
        self._generators = [make(source) for source in sources]
        self._parts = [source.maker.part for source in sources]
        try:
            for generator in self._generators:
                generator.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all generators and wait for their end, within a second; batches in progress are dropped."""
        for generator in self._generators:
            generator.stop()
        for generator in self._generators:
            generator.join()

    def check(self) -> None:
        """Raise if a generator has failed; the check is cheap.

        Raises:
            RunFailedError: with its exception and its part.
        """
        for part, generator in zip(self._parts, self._generators, strict=True):
            failure = generator.failure
            if failure is not None:
                text = str(failure) if isinstance(failure, RunFailedError) else _failure_text(failure)
                raise RunFailedError(
                    f"the generator of batches of part {part} failed: {text} Fix the cause and resume the run, or set "
                    "reservoir=False to train without generators."
                ) from failure

    @property
    def made(self) -> tuple[tuple[int, ...], ...]:
        """Number of batches that reservoirs have accepted, by source and action."""
        return tuple(tuple(generator.made) for generator in self._generators)

    @property
    def busy_s(self) -> tuple[tuple[float, ...], ...]:
        """CPU seconds of the generators so far, by source and action."""
        return tuple(tuple(generator.busy_s) for generator in self._generators)


if __name__ == "__main__":
    alive = begin_child()
    lower_priority()
    serve(alive)
    os._exit(0)  # do not wait for unneeded batches
