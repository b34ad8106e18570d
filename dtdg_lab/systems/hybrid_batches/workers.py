"""Workers that build batches ahead of training: threads, and processes with their wire format."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, NotAvailableError, PlanError, RunFailedError, shortened
from dtdg_lab.core.plans import BatchSize
from dtdg_lab.engine.minibatch_blocks import BlockShape, BuiltBatch, TargetBlocks, built_batch
from dtdg_lab.engine.replicated_part import CachedPart, LocalEdges, Reach
from dtdg_lab.graphs.storage import read
from dtdg_lab.systems.hybrid_batches.batches import Reservoir, TargetSampler

# What a generator process and the process it works for send each other, as bytes over pipes.
#
# A message is the length of a head, the head as JSON, and as many bytes as the head says.


_LENGTH = struct.Struct("<I")
Head = Mapping[str, Any]


def send(fd: int, head: Head, *pieces: bytes | memoryview) -> None:
    """Write a message.

    Args:
        fd: of the pipe.
        head: anything that JSON has; ``bytes`` is added to it.
        pieces: bytes that follow it.

    Raises:
        OSError: the reader is gone.
    """
    text = json.dumps({**head, "bytes": sum(len(piece) for piece in pieces)}).encode()
    for piece in (_LENGTH.pack(len(text)) + text, *pieces):
        left = memoryview(piece)
        while left:
            left = left[os.write(fd, left) :]


def receive(fd: int) -> tuple[Head, memoryview]:
    """Read a message: its head, and the bytes that follow it.

    Raises:
        EOFError: the writer is gone.
    """
    length = _LENGTH.unpack(_exactly(fd, _LENGTH.size))[0]
    head = json.loads(bytes(_exactly(fd, length)))
    return head, _exactly(fd, head["bytes"])


def send_built(fd: int, built: BuiltBatch, busy_s: float) -> None:
    """Write a batch.

    Args:
        fd: of the pipe.
        built: the batch.
        busy_s: processor seconds of its generator so far.

    Raises:
        OSError: the reader is gone.
    """
    send(fd, {"built_s": built.built_s, "busy_s": busy_s}, built.blocks.to_bytes())


def built_from(head: Head, content: memoryview) -> BuiltBatch:
    """The batch of a message, whose arrays lie in its bytes."""
    return BuiltBatch(TargetBlocks.from_bytes(content), head["built_s"])


def _exactly(fd: int, length: int) -> memoryview:
    """So many bytes, read into memory that is not cleared first, as a bytearray's would be."""
    content = left = np.empty(length, np.uint8).data
    while left:
        count = os.readv(fd, [left])
        if not count:
            raise EOFError("the pipe's other end is closed")
        left = left[count:]
    return content


# What the batches of one part are made from, and the reservoir they go into.


@dataclass(frozen=True, slots=True, eq=False)
class BatchMaker:
    """All that a part's batches are a pure function of, beside action and index: small, and fit to be sent.

    Attributes:
        part: its number.
        folder: of its cached files, which are there.
        reach: what they hold.
        sampler: of its targets.
        sizes: of the batches, one for each action.
        shape: what the model needs of the blocks.

    Raises:
        PlanError: there is no size, or the sampler is another part's.
    """

    part: int
    folder: Path
    reach: Reach
    sampler: TargetSampler
    sizes: tuple[BatchSize, ...]
    shape: BlockShape

    def __post_init__(self) -> None:
        if not self.sizes:
            raise PlanError(f"no batch size for the generators of part {self.part}: give one for each action.")
        if self.sampler.part != self.part:
            raise PlanError(f"the sampler of part {self.sampler.part} for the generators of part {self.part}.")

    def opened(self) -> CachedPart:
        """The cached part, mapped from its files.

        Raises:
            DataError: they are gone or damaged.
        """
        return CachedPart(read(self.folder, mmap=True)[0], self.reach)

    def make(self, part: CachedPart, action: int, index: int) -> BuiltBatch:
        """Batch ``index`` of an action, from the opened part."""
        return built_batch(part, self.sampler.batch(self.sizes[action], action, index), self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One part's batches to be, and the reservoir for them.

    Attributes:
        maker: what the batches are made from.
        reservoir: with a place for each of the maker's sizes.

    Raises:
        PlanError: sizes and reservoir differ in their number of actions.
    """

    maker: BatchMaker
    reservoir: Reservoir[BuiltBatch]

    def __post_init__(self) -> None:
        sizes, places = len(self.maker.sizes), len(self.reservoir.capacities)
        if sizes != places:
            raise PlanError(f"{sizes} batch sizes for a reservoir of {places}: every size needs its place in it.")


# Work that leaves the cores to others as long as they want them.


NICE = 10  # of 19: a tenth of a core that somebody else wants; at 19 hardly anything gets done on a busy machine


def give_way() -> None:
    """Take a low priority for this thread; on other systems than Linux, where only processes have one, for all.

    Nothing happens where the system has no priorities or allows no change.
    """
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id() if sys.platform == "linux" else 0, NICE)


# A thread that fills the reservoir of one part.


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


# A process that builds the batches of one part, of all sizes, and the thread that puts them into the reservoir.


PIPE_BYTES = 1 << 20  # what unprivileged processes may ask for: fewer waits for each other
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class GeneratorProcess:
    """One child process with a generator for each size: what holds the interpreter there stops nobody here.

    Of each action that the reservoir wants, one batch is ordered at a time, so that no more is built than it takes.

    Args:
        source: of the batches.

    Attributes:
        failure: what ended it, None while nothing has.
        made: batches of each action that the reservoir took so far.
        busy_s: processor seconds for each action so far.

    Raises:
        NotAvailableError: the process cannot be started.
    """

    def __init__(self, source: Source) -> None:
        actions = len(source.maker.sizes)
        self.failure: Exception | None = None
        self.made, self.busy_s = [0] * actions, [0.0] * actions
        self._source = source
        self._ordered: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"generators of part {source.maker.part}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (join closes it)
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "dtdg_lab.systems.hybrid_batches.workers", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                bufsize=0,
                env=_environment(),
            )
        except OSError as error:
            self._said.close()
            raise NotAvailableError(
                f"the process that builds batches could not be started: {error}. Set generators='threads'."
            ) from error
        assert self._child.stdin and self._child.stdout
        self._orders, self._answers = self._child.stdin.fileno(), self._child.stdout.fileno()
        with contextlib.suppress(OSError, AttributeError):  # elsewhere than on Linux pipes have the size they have
            fcntl.fcntl(self._answers, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._thread.start()

    def stop(self) -> None:
        """End the process, whatever it is doing: it leaves nothing behind."""
        self._stop.set()
        if self._thread.ident is not None:
            self._child.kill()

    def join(self) -> None:
        """Wait for the end."""
        if self._thread.ident is None:
            return
        self._thread.join()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout, self._said):
            assert pipe
            pipe.close()

    def _run(self) -> None:
        try:
            send(self._orders, {}, pickle.dumps(self._source.maker))
            while not self._stop.is_set():
                self._order()
                if select.select([self._answers], [], [], IDLE_S)[0]:
                    self._take()
        except (EOFError, BrokenPipeError) as error:
            if not self._stop.is_set():
                self.failure = self._ended(error)
        except Exception as error:  # told by Generators.check, on the thread that trains
            self.failure = error

    def _order(self) -> None:
        """Order a batch of each action that is wanted and not under way."""
        for action, index in enumerate(self.made):
            if action not in self._ordered and self._source.reservoir.wants(action):
                self._ordered.add(action)
                send(self._orders, {"action": action, "index": index})

    def _take(self) -> None:
        """Put the batch that has come into the reservoir."""
        head, content = receive(self._answers)
        if "failed" in head:
            raise RunFailedError(head["failed"])
        built = built_from(head, content)
        action, index = built.batch.action, built.batch.index
        self.busy_s[action] = head["busy_s"]
        self._ordered.remove(action)
        self.made[action] += self._source.reservoir.put(action, index, built, built.nbytes, built.batch.content)

    def _ended(self, error: Exception) -> RunFailedError:
        """Why the process ended although nobody asked for it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1.0)
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        said = f" It said: {lines[-1][:300]}" if lines else ""
        why = " The system does this where memory runs out." if self._child.returncode == -9 else ""
        return RunFailedError(f"its process ended with status {self._child.returncode} ({error}).{why}{said}")


def _environment() -> dict[str, str]:
    """This process's environment, with this very package where the child looks for it, and no thread pools."""
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **_ONE_THREAD, "PYTHONPATH": path}


# Generators that fill reservoirs with batches while training goes on.


KINDS = ("threads", "processes")


class Generators:
    """One generator for each batch size of each part, at a low priority; those of a part take turns.

    Batch i of an action is the same whichever kind makes it. What is made is bounded by the reservoirs: a full one is
    looked at again ten times a second.

    Args:
        sources: the parts, each with its own reservoir.
        kind: ``processes``, one a part, from which finished batches come as bytes; ``threads`` of this process, one a
            part, which start at once and copy nothing, but stop training whenever they hold the interpreter.

    Raises:
        ConfigError: another kind.

    References: DynaHB section 5.2 (pipelined hybrid batch generator), algorithm 2, lines 1 and 2.
    Differs from the paper: a thread for each size would take the interpreter from training ever so many times; here the
    sizes of a part share one, or a process.
    """

    def __init__(self, sources: Sequence[Source], *, kind: str) -> None:
        if kind not in KINDS:
            raise ConfigError(f"generators={shortened(kind)}: {' or '.join(KINDS)} are allowed.")
        make = GeneratorThread if kind == "threads" else GeneratorProcess
        self._generators: list[GeneratorThread | GeneratorProcess] = [make(source) for source in sources]
        self._parts = [source.maker.part for source in sources]
        self._started = self._closed = False

    def start(self) -> None:
        """Begin filling the reservoirs; nothing happens where that goes on already.

        Raises:
            PlanError: they are closed.
            NotAvailableError: a process cannot be started; none is left running then.
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
        """Stop all generators and wait for their end, within a second; batches in work are dropped."""
        self._closed = True
        if not self._started:
            return
        self._started = False
        for generator in self._generators:
            generator.stop()
        for generator in self._generators:
            generator.join()

    def check(self) -> None:
        """Raise where a generator has failed; costs nothing.

        Raises:
            RunFailedError: with what it failed with, and for which part.
        """
        for part, failure in zip(self._parts, (of.failure for of in self._generators), strict=True):
            if failure is not None:
                name = "" if isinstance(failure, RunFailedError) else f"{type(failure).__name__}: "
                raise RunFailedError(
                    f"the generator of batches of part {part} failed: {name}{failure} Repair the cause and "
                    "resume the run; with reservoir=False it goes on without generators."
                ) from failure

    @property
    def made(self) -> tuple[tuple[int, ...], ...]:
        """Batches that reservoirs took so far, of each action of each source."""
        return tuple(tuple(of.made) for of in self._generators)

    @property
    def busy_s(self) -> tuple[tuple[float, ...], ...]:
        """Processor seconds of the generators so far, of each action of each source."""
        return tuple(tuple(of.busy_s) for of in self._generators)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


# The process that builds batches for another one: what to make batches from comes first, then one order a batch.
#
# It needs no torch. It ends when the orders end, which they do when the process that gives them ends, however that
# is.


ORDERS, ANSWERS = 0, 1  # standard input and output
LOOK_S = 1.0  # a child of the giver's may hold the orders' other end open: look for the giver itself so often


class Builder:
    """The thread that builds what is ordered, of all sizes in turn: next is the one that had least time so far.

    Args:
        maker: what the batches are made from.
        part: opened.
    """

    def __init__(self, maker: BatchMaker, part: CachedPart) -> None:
        self._maker, self._part = maker, part
        self._orders: dict[int, int] = {}
        self._changed = threading.Condition()
        self._busy_s = [0.0] * len(maker.sizes)
        threading.Thread(target=self._run, name="generators", daemon=True).start()

    def order(self, action: int, index: int) -> None:
        """Build this batch, the only one of its action that is waited for."""
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
        except BrokenPipeError:  # nobody reads any more
            os._exit(0)
        except Exception as error:
            with contextlib.suppress(OSError):
                report(error)
            os._exit(1)


def report(error: Exception) -> None:
    """Send what went wrong."""
    send(ANSWERS, {"failed": f"{type(error).__name__}: {error}"})


def serve(giver: int) -> None:
    """Build what is ordered until nobody orders any more.

    Args:
        giver: number of the process that orders.
    """
    try:
        maker: BatchMaker = pickle.loads(receive(ORDERS)[1])
        builder = Builder(maker, maker.opened())
    except EOFError:
        return
    except Exception as error:
        report(error)
        raise
    while os.getppid() == giver:
        if select.select([ORDERS], [], [], LOOK_S)[0]:
            try:
                order = receive(ORDERS)[0]
            except EOFError:
                return
            builder.order(order["action"], order["index"])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted giver ends its generators itself
    give_way()
    serve(int(sys.argv[1]))
    os._exit(0)  # not waiting for batches that nobody wants
