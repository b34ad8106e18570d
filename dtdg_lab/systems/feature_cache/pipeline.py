"""The feature path of a part: what samples, caches, fetches and hands over batches, ahead of training."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PlanError, RunFailedError
from dtdg_lab.core.feature_store import CacheDecision, Fetcher, OwnerReply
from dtdg_lab.systems.feature_cache.modes import FeaturePath
from dtdg_lab.systems.feature_cache.policy_inputs import Boundary, FetchTime, StepTime
from dtdg_lab.systems.feature_cache.store import FeatureCache, Fetch, KeySpace, OwnRows, check_cache_memory, fetch_into
from dtdg_lab.systems.feature_cache.windows import (
    BuiltCache,
    CacheBuilder,
    Epochs,
    Lookahead,
    Order,
    Swap,
    WindowSchedule,
    nearest_action,
    plan_window,
)

# What the feature path must know of a sampled batch.


class Sampled(Protocol):
    """A batch whose neighbours are drawn and whose features are not there yet."""

    @property
    def keys(self) -> NDArray[np.int64]:
        """(K,) distinct keys of the first layer's inputs, in the order in which their rows are wanted."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that holding the batch costs."""
        ...


# How a batch gets its features: own rows, rows of the cache, and the rest from their owners.


@dataclass(frozen=True, slots=True, eq=False)
class ResolveFacts:
    """What resolving a batch took.

    Attributes:
        step: of the batch.
        window: number of the cache's window that served it; -1 without a cache.
        hits: (P,) rows of each part that the cache held; 0 for the own part.
        misses: (P,) rows that each part sent.
        rpcs: requests made.
        nbytes: of requests and replies.
        resolve_s: seconds the resolver took.
        wait_s: seconds that training stood still for the batch, without those for the first cache.
        exposed_s: seconds that it stood still for the first cache.
    """

    step: int
    window: int
    hits: NDArray[np.int64]
    misses: NDArray[np.int64]
    rpcs: int
    nbytes: int
    resolve_s: float
    wait_s: float = 0.0
    exposed_s: float = 0.0

    @property
    def remote(self) -> int:
        """Remote rows that the batch asked for."""
        return int(self.hits.sum() + self.misses.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """A batch with its features.

    Attributes:
        sampled: the batch.
        rows: (K, F) float32, the rows of ``sampled.keys`` in their order.
        facts: what it took.
    """

    sampled: Sampled
    rows: NDArray[np.float32]
    facts: ResolveFacts


def resolve(
    step: int, sampled: Sampled, own: OwnRows, fetch: Fetch, *, cache: FeatureCache | None = None, window: int = -1
) -> tuple[Resolved, list[OwnerReply]]:
    """The rows of a batch, bitwise the same whatever the cache holds.

    Args:
        step: of the batch.
        sampled: the batch.
        own: rows of its part.
        fetch: asks other parts.
        cache: of others' rows, if there is one.
        window: its number.

    Returns:
        The batch with its rows, and what each owner sent.

    Raises:
        RunFailedError: an owner did not answer, or returned the wrong rows.
    """
    began, space = time.perf_counter(), own.space
    keys = sampled.keys
    owners = space.owners(keys)
    rows = np.empty((len(keys), own.features), dtype=np.float32)
    mine = owners == own.part
    missed = ~mine
    hits = np.zeros(space.parts, dtype=np.int64)
    if cache is not None and len(cache):
        slots = cache.find(keys)  # own keys are never held
        held = np.flatnonzero(slots >= 0)
        rows[held] = cache.rows[slots[held]]
        missed[held] = False
        hits = np.bincount(owners[held], minlength=space.parts)
    mine = np.flatnonzero(mine)
    rows[mine] = own.take(keys[mine])
    places = np.flatnonzero(missed)
    replies = fetch_into(rows, places, keys[places], owners[places], fetch)
    misses = np.bincount(owners[places], minlength=space.parts)
    nbytes = sum(reply.nbytes for reply in replies)
    facts = ResolveFacts(step, window, hits, misses, len(replies), nbytes, time.perf_counter() - began)
    return Resolved(sampled, rows, facts), replies


# What the stages of a feature path note down: rows for the records, and facts to decide by.


Row = tuple[Any, ...]
MOST = 4096  # facts that are kept where nobody asks for them


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What was counted since somebody asked last; see
    :class:`dtdg_lab.systems.feature_cache.policy_inputs.Boundary`.
    """

    served: int
    remote: NDArray[np.int64]
    hits: NDArray[np.int64]
    resolve_s: float
    fetches: tuple[FetchTime, ...]
    stepped: tuple[StepTime, ...]


class FeatureNotes:
    """Notes of one part; any thread may write and read.

    Args:
        part: its number.
        parts: P.
    """

    def __init__(self, part: int, parts: int) -> None:
        self._part, self._parts, self._lock = part, parts, threading.Lock()
        self._rows: dict[str, list[Row]] = {"resolved": [], "fetches": [], "windows": []}
        self._fetches: deque[FetchTime] = deque(maxlen=MOST)
        self._stepped: deque[StepTime] = deque(maxlen=MOST)
        self._clear()

    def fetched(self, replies: Sequence[OwnerReply], purpose: str, step: int) -> None:
        """RPCs were made; ``purpose`` is miss or bulk."""
        with self._lock:
            for reply in replies:
                rows = len(reply.rows)
                self._rows["fetches"].append((self._part, reply.owner, purpose, rows, reply.nbytes, reply.rtt_s))
                self._fetches.append(FetchTime(reply.owner, purpose, rows, reply.nbytes, reply.rtt_s, step))

    def resolved(self, facts: ResolveFacts) -> None:
        """A batch has its features."""
        with self._lock:
            self._served += 1
            self._remote += facts.hits + facts.misses
            self._hits += facts.hits
            self._resolve_s += facts.resolve_s

    def handed(self, facts: ResolveFacts) -> None:
        """A batch was handed to training."""
        row = (
            self._part,
            facts.window,
            facts.remote,
            facts.hits.tolist(),
            facts.misses.tolist(),
            facts.rpcs,
            facts.nbytes,
            facts.resolve_s,
            facts.wait_s,
        )
        with self._lock:
            self._rows["resolved"].append(row)

    def swapped(self, swap: Swap, exposed_s: float) -> None:
        """A cache began to serve, for which training stood still so long."""
        built, plan = swap.built, swap.built.plan
        row = (
            self._part,
            plan.number,
            swap.due,
            plan.length,
            swap.late_steps,
            plan.policy,
            plan.action,
            plan.biased,
            plan.capacity,
            len(built.cache),
            built.copied,
            built.fetched,
            built.by_owner.tolist(),
            built.rebuild_s,
            exposed_s,
        )
        with self._lock:
            self._rows["windows"].append(row)

    def stepped(self, time: StepTime) -> None:
        """A step of training ended."""
        with self._lock:
            self._stepped.append(time)

    def observed(self) -> Observed:
        """What was counted since the last call."""
        with self._lock:
            seen = Observed(
                self._served, self._remote, self._hits, self._resolve_s, tuple(self._fetches), tuple(self._stepped)
            )
            self._fetches.clear()
            self._stepped.clear()
            self._clear()
        return seen

    def taken(self) -> dict[str, list[Row]]:
        """Rows noted since the last call, of each table, without the step and epoch columns."""
        with self._lock:
            rows, self._rows = self._rows, {table: [] for table in self._rows}
        return rows

    def _clear(self) -> None:
        self._served, self._resolve_s = 0, 0.0
        self._remote, self._hits = (np.zeros(self._parts, dtype=np.int64) for _ in range(2))


# Batches sampled before they are needed: held while memory allows, else only their keys, and sampled again.


class Halted(Exception):  # noqa: N818 - nothing went wrong
    """Raised in a thread that waits for what will not come: it is to stop, or to do something else."""


class SampledAhead:
    """The batches of a part from the next to be taken on, filled by one thread and read by others.

    Args:
        sample: draws the batch of a step; a pure function; one thread calls it at a time.
        part: whose batches they are.
        space: of all keys.
        first: step of the first batch.
        moved: what threads wait on; told whenever something changed here.
    """

    def __init__(
        self, sample: Callable[[int], Sampled], part: int, space: KeySpace, *, first: int, moved: threading.Condition
    ) -> None:
        self._sample, self._part, self._space, self._moved = sample, part, space, moved
        self._floor = self._next = first  # the next batch to be taken; the next that was never sampled
        self._remote: dict[int, NDArray[np.int64]] = {}
        self._held: dict[int, Sampled] = {}
        self._bytes = 0
        self._one_samples = threading.Lock()  # not every sampler may be called by two threads at once

    @property
    def held_bytes(self) -> int:
        """Of the batches that are held."""
        return self._bytes

    @property
    def until(self) -> int:
        """The step before which everything was sampled."""
        return self._next

    def job(self, until: int, near: int) -> int | None:
        """The step whose batch should be sampled now; None if there is none. The caller holds the lock.

        Args:
            until: steps before it are wanted.
            near: of how many next steps the batches themselves are wanted, not only their keys.
        """
        for step in range(self._floor, min(self._floor + near, self._next)):
            if step not in self._held:
                return step
        return self._next if self._next < until else None

    def sample(self, step: int, limit: int, near: int) -> None:
        """Sample a batch and keep it, or its keys alone.

        Args:
            step: of the batch.
            limit: bytes of batches that may be held.
            near: of how many next steps they are held in any case.
        """
        with self._one_samples:
            batch = self._sample(step)
        remote = batch.keys[self._space.owners(batch.keys) != self._part]
        with self._moved:
            if step == self._next:
                self._next += 1
            if step < self._floor:
                return  # taken meanwhile by somebody who sampled it as well
            self._remote[step] = remote
            if step < self._floor + near or self._bytes + batch.nbytes <= limit:
                self._held[step] = batch
                self._bytes += batch.nbytes
            self._moved.notify_all()

    def take(self, step: int, halted: Callable[[], bool]) -> Sampled:
        """The batch of a step, when it is there; it and those before it are forgotten.

        Raises:
            Halted: it will not come.
        """
        with self._moved:
            while step not in self._held:
                if halted():
                    raise Halted
                self._moved.wait()
            return self._forget(step)

    def take_now(self, step: int) -> Sampled:
        """The batch of a step, sampled by the caller if it is not there."""
        with self._moved:
            if step in self._held:
                return self._forget(step)
        with self._one_samples:
            batch = self._sample(step)
        with self._moved:
            if step in self._held:
                self._forget(step)
            self._floor, self._next = max(self._floor, step + 1), max(self._next, step + 1)
            self._remote.pop(step, None)
        return batch

    def asked(self, first: int, length: int, halted: Callable[[], bool]) -> list[NDArray[np.int64]]:
        """Remote keys of some steps' batches, when all are there; without those that were taken before.

        Raises:
            Halted: they will not come.
        """
        found = []
        with self._moved:
            for step in range(first, first + length):
                while step >= self._floor and step not in self._remote:
                    if halted():
                        raise Halted
                    self._moved.wait()
                if step in self._remote:
                    found.append(self._remote[step])
        return found

    def listed(self, first: int) -> list[NDArray[np.int64]]:
        """Remote keys of the batches from a step on that are there now."""
        with self._moved:
            return [self._remote[step] for step in range(max(first, self._floor), self._next) if step in self._remote]

    def _forget(self, step: int) -> Sampled:
        batch = self._held.pop(step)
        self._bytes -= batch.nbytes
        self._remote.pop(step, None)
        self._floor = step + 1
        return batch


# The threads of a feature path: one samples ahead, one builds caches, one resolves batches.


Found = TypeVar("Found")
PROMPT_S = 0.1  # that threads have to end by themselves


@dataclass(frozen=True, slots=True, eq=False)
class PathJob:
    """What a feature path is for; see :class:`dtdg_lab.systems.feature_cache.pipeline.FeaturePipeline`."""

    own: OwnRows
    sample: Callable[[int], Sampled]
    fetcher: Callable[[], Fetcher]
    decide: Callable[[Boundary], CacheDecision | None] | None
    watch: Callable[[Sequence[OwnerReply], int], bool] | None = None

    @property
    def part(self) -> int:
        """Whose batches they are."""
        return self.own.part

    @property
    def parts(self) -> int:
        """P."""
        return self.own.space.parts


class Stages:
    """All threads of a path from one start to its stop, and what they share.

    Everything shared is read and written under one lock, ``_moved``, for moments; sampling, fetching, copying and
    deciding are done without it. Caches and batches never change, so whoever got one under the lock may use it after.

    Args:
        job: what to do.
        path: settings at first.
        first: step to begin at.
        epochs: lengths of epochs.
        notes: where facts go.
    """

    def __init__(self, job: PathJob, path: FeaturePath, first: int, epochs: Epochs, notes: FeatureNotes) -> None:
        self._job, self._path, self._epochs, self._notes = job, path, epochs, notes
        self._moved = threading.Condition()
        self._position = self._wanted = first  # next to be resolved; next that training takes
        self._due: int | None = None  # the step that the resolver waits for
        self._ready: dict[int, Resolved] = {}
        self._schedule = WindowSchedule(epochs)
        self._ahead = SampledAhead(job.sample, job.part, job.own.space, first=first, moved=self._moved)
        self._built_until = 0  # steps before it are sampled for the cache being built
        self._late_steps = 0
        self._waits_for_first = path.caches
        self._asked_at: float | None = None  # since when training waits
        self._exposed_s = 0.0
        self._stopping = False
        self._failure: RunFailedError | None = None
        self._threads: list[threading.Thread] = []
        self._fetchers: list[Fetcher] = []
        self._own_fetcher: Fetcher | None = None  # of the thread that trains
        with self._moved:
            self._schedule.begin(first, path, first=True)
            self._run_threads()

    # what the thread that trains calls

    def next(self, step: int) -> Resolved:
        """The batch of a step; see :meth:`FeaturePipeline.next`."""
        began = time.perf_counter()
        with self._moved:
            self._raise_if_over()
            if step != self._wanted:
                raise PlanError(f"step {step} was asked for where {self._wanted} is next; call start({step}) before.")
            if self._epochs.stop is not None and step >= self._epochs.stop:
                raise PlanError(f"step {step} was asked for, and the run was said to stop at {self._epochs.stop}.")
            self._asked_at = began
            while step not in self._ready and (self._path.runs_ahead or self._position != step):
                self._raise_if_over()
                self._moved.wait()
            self._raise_if_over()
            resolved = self._ready.pop(step, None)
            self._position = max(self._position, step + 1)
            self._wanted, self._asked_at = step + 1, None
            exposed_s, self._exposed_s = self._exposed_s, 0.0
            self._moved.notify_all()
        if resolved is None:
            resolved = self._on_demand(step)
        wait_s = max(time.perf_counter() - began - exposed_s, 0.0)
        facts = replace(resolved.facts, wait_s=wait_s, exposed_s=exposed_s)
        self._notes.handed(facts)
        return replace(resolved, facts=facts)

    def apply_settings(self, path: FeaturePath) -> None:
        """Other settings from the next step that is resolved."""
        with self._moved:
            before, self._path = self._path, path
            self._waits_for_first &= path.caches
            if not path.same_windows(before):
                self._built_until = 0
                self._schedule.begin(self._position, path, first=self._waits_for_first)
            self._run_threads()
            self._moved.notify_all()

    @property
    def serving(self) -> FeatureCache | None:
        """The cache that serves now."""
        serving = self._schedule.serving
        return None if serving is None else serving.cache

    @property
    def held_bytes(self) -> int:
        """Of batches that are sampled and wait for their features."""
        return self._ahead.held_bytes

    def check(self) -> None:
        """Raise the exception of a failed thread."""
        if self._failure is not None:
            raise self._failure

    def stop(self, patience_s: float) -> None:
        """Tell all threads to end, wait so long for them, and wake those that still ask an owner."""
        with self._moved:
            self._stopping = True
            self._ready.clear()
            self._moved.notify_all()
        self._join(PROMPT_S)
        for fetcher in list(self._fetchers):
            fetcher.close()
        self._join(patience_s - PROMPT_S)

    def _join(self, patience_s: float) -> None:
        until = time.perf_counter() + patience_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(until - time.perf_counter(), 0.0))

    def _on_demand(self, step: int) -> Resolved:
        sampled = self._ahead.take_now(step)
        if self._own_fetcher is None:
            self._own_fetcher = self._job.fetcher()
            self._fetchers.append(self._own_fetcher)
        resolved, replies = resolve(step, sampled, self._job.own, self._own_fetcher.fetch)
        self._notes.fetched(replies, "miss", step)
        self._notes.resolved(resolved.facts)
        return resolved

    # the threads

    def _run_threads(self) -> None:
        if self._threads or not self._path.runs_ahead:
            return
        for name, work in (("sampler", self._sampling), ("builder", self._building), ("resolver", self._resolving)):
            thread = threading.Thread(
                target=self._guarded, args=(name, work), name=f"features-{name}-{self._job.part}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Halted:
            return  # told to end
        except Exception as error:
            if self._stopping:
                return  # its connection was closed under it
            failure = RunFailedError(f"the {name} of part {self._job.part}'s features failed: {error!r}")
            failure.__cause__ = error
            with self._moved:
                self._failure = self._failure or failure
                self._moved.notify_all()

    @contextmanager
    def _asking(self) -> Iterator[Fetcher]:
        with closing(self._job.fetcher()) as fetcher:
            self._fetchers.append(fetcher)
            yield fetcher

    def _sampling(self) -> None:
        while True:
            with self._moved:
                step = self._when(lambda: self._ahead.job(self._until(), self._near()))
                limit, near = self._path.ahead_bytes, self._near()
            self._ahead.sample(step, limit, near)

    def _resolving(self) -> None:
        with self._asking() as fetcher:
            while True:
                with self._moved:
                    step = self._when(self._claimed)
                sampled = self._ahead.take(step, self._over)
                with self._moved:
                    self._due = None
                    cache, window = self._turn(step)
                resolved, replies = resolve(step, sampled, self._job.own, fetcher.fetch, cache=cache, window=window)
                self._notes.fetched(replies, "miss", step)
                self._notes.resolved(resolved.facts)
                changed = self._job.watch is not None and self._job.watch(replies, step)
                with self._moved:
                    if changed and self._path.decides:
                        self._schedule.reconsider(self._position)
                    self._ready[step] = resolved
                    self._moved.notify_all()

    def _building(self) -> None:
        builder = CacheBuilder(self._job.part, self._job.own.space, self._job.own.features)
        with self._asking() as fetcher:
            while True:
                with self._moved:
                    order = self._when(self._ordered)
                try:
                    built, replies = self._build(order, builder, fetcher)
                except Halted:
                    continue  # something else is wanted by now, or the run ends before the window
                self._notes.fetched(replies, "bulk", built.plan.first)
                del replies  # their rows have been copied
                with self._moved:
                    self._schedule.offer(order, built)
                    self._moved.notify_all()

    def _build(self, order: Order, builder: CacheBuilder, fetcher: Fetcher) -> tuple[BuiltCache, list[OwnerReply]]:
        def unwanted() -> bool:
            return self._over() or not self._schedule.current(order)

        with self._moved:
            path, serving = self._path, self._schedule.serving
            if unwanted():
                raise Halted
        decision = None
        if order.decided and self._job.decide is not None and self._job.parts > 1:
            if not order.early:
                self._ahead_of_decision(order, path, serving, unwanted)
            decision = self._job.decide(self._boundary(order, path, serving))
            if order.early and decision is None:
                raise Halted  # what was decided before stays
        with self._moved:
            # a window whose first steps have passed meanwhile looks at those that come
            plan = plan_window(
                order.number,
                max(order.first, self._position),
                path,
                part=self._job.part,
                parts=self._job.parts,
                epochs=self._epochs,
                decision=decision,
            )
            if unwanted() or plan.length < 1:
                raise Halted
            self._built_until = plan.first + plan.length
            self._moved.notify_all()
        asked = self._ahead.asked(plan.first, plan.length, unwanted)
        return builder.build(plan, asked, fetcher.fetch, None if serving is None else serving.cache)

    def _ahead_of_decision(
        self, order: Order, path: FeaturePath, serving: BuiltCache | None, unwanted: Callable[[], bool]
    ) -> None:
        """Wait until as many batches are sampled as a window like the last one needs; no longer than it serves.

        Of a longer window than the path looks ahead, only so many are sampled before it is decided.
        """
        if not path.ahead:
            return
        wanted = order.first + min(path.window if serving is None else serving.plan.length, path.ahead)
        if self._epochs.stop is not None:
            wanted = min(wanted, self._epochs.stop)
        with self._moved:
            while self._ahead.until < wanted and self._position < order.first and not unwanted():
                self._moved.wait()
            if unwanted():
                raise Halted

    def _boundary(self, order: Order, path: FeaturePath, serving: BuiltCache | None) -> Boundary:
        seen, job = self._notes.observed(), self._job
        if serving is None:
            previous = nearest_action(path.window, None, job.parts)
        else:
            previous = serving.plan.nearest_action(job.part)
        with self._moved:
            now, pending, left = self._position, self._schedule.pending, self._schedule.ends - self._position
        lookahead = Lookahead(
            order.first,
            self._ahead.listed(order.first),
            job.own.space,
            part=job.part,
            capacity=path.capacity,
            serving=None if serving is None else serving.cache,
        )
        return Boundary(
            part=job.part,
            parts=job.parts,
            number=order.number,
            step=order.first,
            steps_left=self._epochs.left(order.first),
            previous=previous,
            served=seen.served,
            remote=seen.remote,
            hits=seen.hits,
            resolve_s=seen.resolve_s,
            fetches=seen.fetches,
            rebuild_s=0.0 if serving is None else serving.rebuild_s,
            late_steps=self._late_steps,
            stepped=seen.stepped,
            lookahead=lookahead,
            now=now,
            early=order.early,
            left=max(left, 0),
            pending=previous if pending is None else pending.plan.nearest_action(job.part),
        )

    # what they wait for; the lock is held

    def _when(self, found: Callable[[], Found | None]) -> Found:
        """What is found, when it is; not None."""
        while True:
            if self._over():
                raise Halted
            value = found()
            if value is not None:
                return value
            self._moved.wait()

    def _over(self) -> bool:
        return self._stopping or self._failure is not None

    def _raise_if_over(self) -> None:
        self.check()
        if self._stopping:
            raise RunFailedError(f"part {self._job.part}'s features were asked for while their path was closed.")

    def _until(self) -> int:
        """The step before which everything should be sampled."""
        if not self._path.runs_ahead:
            return 0 if self._due is None else self._due + 1
        until = self._position + self._path.depth + 1
        if self._path.caches:
            until = max(until, self._built_until, self._schedule.ends + self._path.ahead)
        return until if self._epochs.stop is None else min(until, self._epochs.stop)

    def _near(self) -> int:
        """Of how many next steps the batches themselves should be there."""
        if self._path.runs_ahead:
            return self._path.depth + 1
        return 0 if self._due is None else 1

    def _claimed(self) -> int | None:
        """The next step to be resolved, which nobody else will resolve now."""
        step = self._position
        at_end = self._epochs.stop is not None and step >= self._epochs.stop
        if not self._path.runs_ahead or at_end or step - self._wanted >= self._path.depth:
            return None
        if self._waits_for_first and not self._schedule.ready:
            return None
        self._position, self._due = step + 1, step
        return step

    def _ordered(self) -> Order | None:
        order, self._schedule.order = self._schedule.order, None
        return order

    def _turn(self, step: int) -> tuple[FeatureCache | None, int]:
        """The cache that serves a step, and the number of its window."""
        swap = self._schedule.turn(step, self._path)
        if swap is not None:
            exposed_s = 0.0
            if self._waits_for_first and self._asked_at is not None:
                exposed_s = self._exposed_s = time.perf_counter() - self._asked_at
            self._waits_for_first, self._late_steps = False, swap.late_steps
            self._notes.swapped(swap, exposed_s)
            self._moved.notify_all()
        serving = self._schedule.serving
        return (None, -1) if serving is None else (serving.cache, serving.plan.number)


PATIENCE_S = 0.5  # that close() waits for threads; one that is stuck even then is left to end by itself


class FeaturePipeline:
    """Batches with their features, in the order of steps; bitwise the same in every mode.

    Threads of its own sample ahead, build caches and resolve batches; training takes them one by one and never waits
    for a rebuild, but for that of the first cache.

    Args:
        own: rows of the part, and of which part.
        sample: draws the batch of a step; a pure function of it.
        fetcher: opens what asks other parts, one for each thread; if it is closed while its thread waits for an
            answer, the thread should be woken with an error.
        path: the mode and its settings.
        epoch_steps: steps of an epoch.
        decide: chooses a window where ``path.decides``; called in the builder's thread. Where ``boundary.early``, None
            keeps to what was decided before.
        watch: takes in the replies of a step's misses, and says whether links have changed, so that the window which
            serves is to be reconsidered; called in the resolver's thread.
        stop: the step after the run's last, where it is known; nothing is sampled beyond it.

    Raises:
        ConfigError: a cache larger than memory, or a path that asks a policy where there is none.

    References: GreenDyGNN section V-A.
    """

    def __init__(
        self,
        own: OwnRows,
        *,
        sample: Callable[[int], Sampled],
        fetcher: Callable[[], Fetcher],
        path: FeaturePath,
        epoch_steps: int,
        decide: Callable[[Boundary], CacheDecision | None] | None = None,
        watch: Callable[[Sequence[OwnerReply], int], bool] | None = None,
        stop: int | None = None,
    ) -> None:
        self._job = PathJob(own, sample, fetcher, decide, watch)
        self._epoch_steps, self._stop, self._stages = epoch_steps, stop, None
        self._notes = FeatureNotes(own.part, own.space.parts)
        self._path = self._checked(path)

    _stages: Stages | None

    @property
    def path(self) -> FeaturePath:
        """The settings in force."""
        return self._path

    @property
    def serving(self) -> FeatureCache | None:
        """The cache that serves now; None without one. It never changes, another takes its place."""
        return None if self._stages is None else self._stages.serving

    @property
    def held_bytes(self) -> int:
        """Of batches that are sampled and wait for their features."""
        return 0 if self._stages is None else self._stages.held_bytes

    def start(self, step: int, *, epoch_first: int = 0) -> None:
        """Begin at a step, or begin anew at another; a window begins there as well. Returns at once.

        Call it as well where what ``sample`` draws has changed: batches that were sampled before are forgotten.

        Args:
            step: the first that will be asked for.
            epoch_first: first step of some epoch, where epochs do not begin at multiples of their steps.
        """
        self.close()
        epochs = Epochs(self._epoch_steps, epoch_first % self._epoch_steps, self._stop)
        self._stages = Stages(self._job, self._path, step, epochs, self._notes)

    def next(self, step: int) -> Resolved:
        """The batch of a step with its features; waits until it is there.

        Raises:
            PlanError: it is not the step that comes next, or nothing was started.
            RunFailedError: a thread failed; the message and the cause say how.
        """
        return self._running().next(step)

    def apply_settings(self, path: FeaturePath) -> None:
        """Go on by other settings from the next step that is resolved; batches that are ready are handed over.

        Where windows are planned otherwise than before, one begins at once, and the cache that serves goes on until
        the new one is there.

        Raises:
            ConfigError: as of the constructor; nothing has changed then.
        """
        self._path = self._checked(path)
        if self._stages is not None:
            self._stages.apply_settings(path)

    def stepped(self, seconds: float, joules: float | None = None) -> None:
        """Tell that a step of training ended, for policies."""
        self._notes.stepped(StepTime(seconds, joules))

    def taken(self) -> dict[str, list[Row]]:
        """New rows of the tables ``resolved``, ``fetches`` and ``windows``, without the columns step and epoch."""
        return self._notes.taken()

    def check(self) -> None:
        """Raise the exception of a failed thread.

        Raises:
            RunFailedError: as said.
        """
        if self._stages is not None:
            self._stages.check()

    def close(self) -> None:
        """Stop all threads, in less than a second; further calls do nothing."""
        stages, self._stages = self._stages, None
        if stages is not None:
            stages.stop(PATIENCE_S)

    def _running(self) -> Stages:
        if self._stages is None:
            raise PlanError("nothing was started: call start(step) with the step that comes next.")
        return self._stages

    def _checked(self, path: FeaturePath) -> FeaturePath:
        if path.decides and self._job.decide is None:
            raise ConfigError(f"policy {path.policy!r} decides about windows, and nothing was given that does.")
        if path.caches:
            check_cache_memory(path.capacity, self._job.own.features * 4)
        return path
