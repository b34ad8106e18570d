"""Workers that build batches ahead of training: threads, and processes with their wire format."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import select
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.child_process import ChildProcess, begin_child
from dtdg_lab.core.errors import ConfigError, PlanError, RunFailedError, shortened
from dtdg_lab.core.plans import BatchSize
from dtdg_lab.engine.minibatch_blocks import BlockShape, BuiltBatch, TargetBlocks, built_batch
from dtdg_lab.engine.replicated_part import CachedPart, LocalEdges, Reach
from dtdg_lab.graphs.storage import read
from dtdg_lab.systems.hybrid_batches.batches import Reservoir, TargetSampler

# Messages between a generator process and its parent, as bytes over pipes.
#
# A message is the length of its header, the header as JSON, and as many bytes as the header specifies.


_LENGTH = struct.Struct("<I")
Head = Mapping[str, Any]


def send(fd: int, head: Head, *pieces: bytes | memoryview) -> None:
    """Write a message.

    Args:
        fd: of the pipe.
        head: the header, any JSON value; ``bytes`` is added to it.
        pieces: the payload.

    Raises:
        OSError: the reader has closed the pipe.
    """
    text = json.dumps({**head, "bytes": sum(len(piece) for piece in pieces)}).encode()
    for piece in (_LENGTH.pack(len(text)) + text, *pieces):
        left = memoryview(piece)
        while left:
            left = left[os.write(fd, left) :]


def receive(fd: int) -> tuple[Head, memoryview]:
    """Read a message: its header and its payload.

    Raises:
        EOFError: the writer has closed the pipe.
    """
    length = _LENGTH.unpack(_exactly(fd, _LENGTH.size))[0]
    head = json.loads(bytes(_exactly(fd, length)))
    return head, _exactly(fd, head["bytes"])


def send_built(fd: int, built: BuiltBatch, busy_s: float) -> None:
    """Write a batch.

    Args:
        fd: of the pipe.
        built: the batch.
        busy_s: CPU seconds of its generator so far.

    Raises:
        OSError: the reader has closed the pipe.
    """
    send(fd, {"built_s": built.built_s, "busy_s": busy_s}, built.blocks.to_bytes())


def built_from(head: Head, content: memoryview) -> BuiltBatch:
    """The batch of a message; its arrays are views of the payload."""
    return BuiltBatch(TargetBlocks.from_bytes(content), head["built_s"])


def _exactly(fd: int, length: int) -> memoryview:
    """Exactly ``length`` bytes, read into memory that is not zeroed first, unlike a bytearray's."""
    content = left = np.empty(length, np.uint8).data
    while left:
        count = os.readv(fd, [left])
        if not count:
            raise EOFError("the pipe's other end is closed")
        left = left[count:]
    return content


# What the batches of one part are made from, and the reservoir that stores them.


@dataclass(frozen=True, slots=True, eq=False)
class BatchMaker:
    """Everything that a part's batches depend on, apart from action and index: small, and cheap to send.

    Attributes:
        part: its index.
        folder: of its cached files, which exist.
        reach: the contents of these files.
        sampler: of its targets.
        sizes: of the batches, one per action.
        shape: what the model needs of the blocks.

    Raises:
        PlanError: there is no size, or the sampler belongs to another part.
    """

    part: int
    folder: Path
    reach: Reach
    sampler: TargetSampler
    sizes: tuple[BatchSize, ...]
    shape: BlockShape

    def __post_init__(self) -> None:
        if not self.sizes:
            raise PlanError(f"no batch size for the generators of part {self.part}: give one per action.")
        if self.sampler.part != self.part:
            raise PlanError(f"the sampler of part {self.sampler.part} for the generators of part {self.part}.")

    def opened(self) -> CachedPart:
        """The cached part, mapped from its files.

        Raises:
            DataError: they are missing or damaged.
        """
        return CachedPart(read(self.folder, mmap=True)[0], self.reach)

    def make(self, part: CachedPart, action: int, index: int) -> BuiltBatch:
        """Batch ``index`` of an action, from the opened part."""
        return built_batch(part, self.sampler.batch(self.sizes[action], action, index), self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The generator input of one part, and its reservoir.

    Attributes:
        maker: what the batches are made from.
        reservoir: with a capacity for each of the maker's sizes.

    Raises:
        PlanError: sizes and reservoir differ in their number of actions.
    """

    maker: BatchMaker
    reservoir: Reservoir[BuiltBatch]

    def __post_init__(self) -> None:
        sizes, capacities = len(self.maker.sizes), len(self.reservoir.capacities)
        if sizes != capacities:
            raise PlanError(f"{sizes} batch sizes for a reservoir of {capacities}: each size needs a capacity.")


# Low scheduling priority, so that generators do not take cores from training.


NICE = 10  # of 19: about a tenth of a contended core; at 19 a busy machine makes hardly any progress


def lower_priority() -> None:
    """Lower the priority of this thread; of the whole process except on Linux, where threads have priorities.

    Does nothing if the system has no priorities or denies the change.
    """
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id() if sys.platform == "linux" else 0, NICE)


# A thread that fills the reservoir of one part.


IDLE_S = 0.1  # interval at which a generator checks whether its full reservoir has room again


class StopAskedError(Exception):
    """Raised in a generator to abandon the batch that it is building."""


class StoppablePart(CachedPart):
    """A cached part whose reads can be interrupted.

    Args:
        part: the opened part.
        stop: once it is set, reading arrays raises.
    """

    def __init__(self, part: CachedPart, stop: threading.Event) -> None:
        self._stop = stop
        super().__init__(part._arrays, part.reach)

    def edges(self, t: int, direction: str) -> LocalEdges:
        """As :meth:`CachedPart.edges`.

        Raises:
            StopAskedError: the batch is no longer needed.
        """
        if self._stop.is_set():
            raise StopAskedError
        return super().edges(t, direction)

    def joined(self, name: str, snapshots: range) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """As :meth:`CachedPart.joined`.

        Raises:
            StopAskedError: the batch is no longer needed.
        """
        if self._stop.is_set():
            raise StopAskedError
        return super().joined(name, snapshots)


class Generator:
    """A thread that fills the reservoir of a part with batches 0, 1, 2 .. of each size, as long as it has room.

    Args:
        source: of the batches.

    Attributes:
        failure: the exception that ended it, None if there was none.
        made: batches of each action that the reservoir has accepted.
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
            NotAvailableError: a process that it needs cannot be started.
        """
        self._thread.start()

    def stop(self) -> None:
        """Request the end; the batch in progress is dropped."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the end of the thread."""
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        """Build batches until the generator is stopped; a failure goes to ``failure``."""
        raise NotImplementedError


class GeneratorThread(Generator):
    """Builds the batches itself.

    Sizes take turns by CPU time: the next size is the one with the least so far.
    """

    def _run(self) -> None:
        lower_priority()
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
        except Exception as error:  # raised again by Generators.check, in the training thread
            self.failure = error


# A process that builds the batches of one part, of all sizes, and the thread that puts them into the reservoir.


PIPE_BYTES = 1 << 20  # the limit of unprivileged processes; a larger pipe blocks less often


class GeneratorProcess(Generator):
    """One child process with a generator per size: holding the interpreter lock there does not block training.

    One batch at a time is requested of each action with room, so that no more is built than the reservoir takes.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._requested: set[int] = set()

    def start(self) -> None:
        """Start process and thread."""
        self._child = ChildProcess(
            "dtdg_lab.systems.hybrid_batches.workers", purpose="builds batches", advice="Set generators='threads'."
        )
        with contextlib.suppress(OSError, AttributeError):  # only Linux can resize pipes
            fcntl.fcntl(self._child.answers, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self._thread.start()
        except RuntimeError:  # the system has no thread left
            self._child.kill()
            self._child.wait()
            self._child.release()
            raise

    def stop(self) -> None:
        """Kill the process; it leaves nothing behind."""
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
        try:
            send(self._child.orders.fileno(), {}, pickle.dumps(self._source.maker))
            while not self._stop.is_set():
                self._order()
                if select.select([self._child.answers], [], [], IDLE_S)[0]:
                    self._take()
        except (EOFError, BrokenPipeError) as error:
            if not self._stop.is_set():
                self.failure = RunFailedError(f"its process {self._child.ended(f' ({error})')}")
        except Exception as error:  # raised again by Generators.check, in the training thread
            self.failure = error

    def _order(self) -> None:
        """Request a batch of each action that has room and no request in progress."""
        for action, index in enumerate(self.made):
            if action not in self._requested and self._source.reservoir.wants(action):
                self._requested.add(action)
                send(self._child.orders.fileno(), {"action": action, "index": index})

    def _take(self) -> None:
        """Put the received batch into the reservoir."""
        head, content = receive(self._child.answers)
        if "failed" in head:
            raise RunFailedError(head["failed"])
        built = built_from(head, content)
        action, index = built.batch.action, built.batch.index
        self.busy_s[action] = head["busy_s"]
        self._requested.remove(action)
        self.made[action] += self._source.reservoir.put(action, index, built, built.nbytes, built.batch.content)


# Generators that fill reservoirs with batches during training.


KINDS = ("threads", "processes")


class Generators:
    """One generator per batch size and part, at a low priority; those of a part take turns.

    Batch i of an action is the same for both kinds. The reservoirs bound what is built: a full one is checked again
    ten times a second.

    Args:
        sources: the parts, each with its own reservoir.
        kind: ``processes``: one per part, which sends finished batches as bytes. ``threads`` of this process: one per
            part, which start at once and copy nothing, but block training while they hold the interpreter lock.

    Raises:
        ConfigError: the kind is unknown.

    References: DynaHB section 5.2 (pipelined hybrid batch generator), algorithm 2, lines 1 and 2.
    Differs from the paper: a thread per size would contend with training for the interpreter lock; here the sizes of a
    part share a thread or a process.
    """

    def __init__(self, sources: Sequence[Source], *, kind: str) -> None:
        if kind not in KINDS:
            raise ConfigError(f"generators={shortened(kind)}: {' or '.join(KINDS)} are allowed.")
        make: type[Generator] = GeneratorThread if kind == "threads" else GeneratorProcess
        self._generators = [make(source) for source in sources]
        self._parts = [source.maker.part for source in sources]
        self._started = self._closed = False

    def start(self) -> None:
        """Start filling the reservoirs; does nothing if it has started.

        Raises:
            PlanError: the generators are closed.
            NotAvailableError: a process cannot be started; all others are stopped then.
        """
        if self._closed:
            raise PlanError("these generators are closed: make new ones.")
        if self._started:
            return
        self._started = True
        try:
            for generator in self._generators:
                generator.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all generators and wait for their end, within a second; batches in progress are dropped."""
        self._closed = True
        if not self._started:
            return
        self._started = False
        for generator in self._generators:
            generator.stop()
        for generator in self._generators:
            generator.join()

    def check(self) -> None:
        """Raise if a generator has failed; this check is cheap.

        Raises:
            RunFailedError: with its exception and its part.
        """
        for part, failure in zip(self._parts, (of.failure for of in self._generators), strict=True):
            if failure is not None:
                name = "" if isinstance(failure, RunFailedError) else f"{type(failure).__name__}: "
                raise RunFailedError(
                    f"the generator of batches of part {part} failed: {name}{failure} Fix the cause and "
                    "resume the run; with reservoir=False it needs no generators."
                ) from failure

    @property
    def made(self) -> tuple[tuple[int, ...], ...]:
        """Batches that reservoirs have accepted, of each action of each source."""
        return tuple(tuple(of.made) for of in self._generators)

    @property
    def busy_s(self) -> tuple[tuple[float, ...], ...]:
        """CPU seconds of the generators so far, of each action of each source."""
        return tuple(tuple(of.busy_s) for of in self._generators)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


# The process that builds batches: it receives its configuration first, then one request per batch.
#
# It needs no torch. It exits when its input ends, which also happens if the parent process dies.


ORDERS, ANSWERS = 0, 1  # standard input and output
LOOK_S = 1.0  # interval at which it is checked whether the parent is alive


class Builder:
    """The thread that builds requested batches; the next is of the size with the least CPU time so far.

    Args:
        maker: what the batches are made from.
        part: the opened part.
    """

    def __init__(self, maker: BatchMaker, part: CachedPart) -> None:
        self._maker, self._part = maker, part
        self._orders: dict[int, int] = {}
        self._changed = threading.Condition()
        self._busy_s = [0.0] * len(maker.sizes)
        threading.Thread(target=self._run, name="generators", daemon=True).start()

    def order(self, action: int, index: int) -> None:
        """Build this batch, the only pending one of its action."""
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
                send_built(ANSWERS, built, self._busy_s[action])
        except BrokenPipeError:  # the parent has closed the pipe
            os._exit(0)
        except Exception as error:
            with contextlib.suppress(OSError):
                report(error)
            os._exit(1)


def report(error: Exception) -> None:
    """Send an error message."""
    send(ANSWERS, {"failed": f"{type(error).__name__}: {error}"})


def serve(parent_lives: Callable[[], bool]) -> None:
    """Build requested batches until the requests end or the parent is gone."""
    try:
        maker: BatchMaker = pickle.loads(receive(ORDERS)[1])
        builder = Builder(maker, maker.opened())
    except EOFError:
        return
    except Exception as error:
        report(error)
        raise
    while parent_lives():
        if select.select([ORDERS], [], [], LOOK_S)[0]:
            try:
                order = receive(ORDERS)[0]
            except EOFError:
                return
            builder.order(order["action"], order["index"])


if __name__ == "__main__":
    alive = begin_child()
    lower_priority()
    serve(alive)
    os._exit(0)  # without waiting for batches that are no longer needed
