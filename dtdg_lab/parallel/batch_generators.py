"""Generators that fill reservoirs with batches while training goes on."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from dtdg_lab.core.errors import ConfigError, PlanError, RunFailedError, shortened
from dtdg_lab.parallel.generator_process import GeneratorProcess
from dtdg_lab.parallel.generator_source import Source
from dtdg_lab.parallel.generator_thread import GeneratorThread

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
