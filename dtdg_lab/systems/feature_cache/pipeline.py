"""The feature pipeline of a part: it samples, caches, fetches and delivers batches ahead of training."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PlanError, RunFailedError
from dtdg_lab.systems.feature_cache import windows
from dtdg_lab.systems.feature_cache.actions import CacheDecision, FeaturePath, Fetcher, OwnerReply
from dtdg_lab.systems.feature_cache.policy_inputs import Boundary, FetchTime, StepTime
from dtdg_lab.systems.feature_cache.store import FeatureCache, Fetch, KeySpace, OwnRows, check_cache_memory, fetch_into

# What the pipeline needs of a sampled batch.


class Sampled(Protocol):
    """A batch with sampled neighbours and without features."""

    @property
    def keys(self) -> NDArray[np.int64]:
        """(K,) distinct keys of the first layer's inputs, in the order of the requested rows."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory of the batch in bytes."""
        ...


# Features of a batch: own rows, cached rows, and the rest from their owners.


@dataclass(frozen=True, slots=True, eq=False)
class ResolveFacts:
    """Costs of resolving a batch.

    Attributes:
        step: of the batch.
        window: index of the cache's window; -1 without a cache.
        hits: (P,) rows of each part that the cache contained; 0 for the own part.
        misses: (P,) rows that each part sent.
        rpcs: number of requests.
        nbytes: of requests and replies.
        resolve_s: seconds of the resolver.
        wait_s: seconds that training waited for the batch, without those for the first cache.
        exposed_s: seconds that it waited for the first cache.
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
        """Number of remote rows of the batch."""
        return int(self.hits.sum() + self.misses.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """A batch with its features.

    Attributes:
        sampled: the batch.
        rows: (K, F) float32, the rows of ``sampled.keys`` in their order.
        facts: costs of resolving it.
    """

    sampled: Sampled
    rows: NDArray[np.float32]
    facts: ResolveFacts


def resolve(
    step: int, sampled: Sampled, own: OwnRows, fetch: Fetch, *, cache: FeatureCache | None = None, window: int = -1
) -> tuple[Resolved, list[OwnerReply]]:
    """Collect the rows of a batch, bitwise the same for any cache.

    Args:
        step: of the batch.
        sampled: the batch.
        own: rows of its part.
        fetch: requests rows from other parts.
        cache: of remote rows, if there is one.
        window: its index.

    Returns:
        The batch with its rows, and the reply of each owner.

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
        slots = cache.find(keys)  # own keys are never cached
        held = np.flatnonzero(slots >= 0)
        rows[held] = cache.rows[slots[held]]
        missed[held] = False
        hits = np.bincount(owners[held], minlength=space.parts)
    mine = np.flatnonzero(mine)
    rows[mine] = own.take(keys[mine])
    indices = np.flatnonzero(missed)
    replies = fetch_into(rows, indices, keys[indices], owners[indices], fetch)
    misses = np.bincount(owners[indices], minlength=space.parts)
    nbytes = sum(reply.nbytes for reply in replies)
    facts = ResolveFacts(step, window, hits, misses, len(replies), nbytes, time.perf_counter() - began)
    return Resolved(sampled, rows, facts), replies


# Observations of the pipeline's stages: rows for the records, and measurements for policies.


class ResolvedRow(NamedTuple):
    """A batch delivered to training, of the table ``resolved``, without the columns step and epoch."""

    part: int
    window: int
    remote: int
    hits: list[int]
    misses: list[int]
    rpcs: int
    bytes: int
    resolve_s: float
    wait_s: float


class FetchRow(NamedTuple):
    """A fetch from an owner, of the table ``fetches``, without the columns step and epoch."""

    part: int
    owner: int
    purpose: str
    rows: int
    bytes: int
    rtt_s: float


class CacheWindowRow(NamedTuple):
    """A cache that came into use, of the table ``windows``, without the columns step and epoch."""

    part: int
    number: int
    first: int
    length: int
    late_steps: int
    policy: str
    action: int
    biased: int
    capacity: int
    held: int
    copied: int
    fetched: int
    by_owner: list[int]
    rebuild_s: float
    exposed_s: float


Rows = dict[str, list[tuple[Any, ...]]]  # table -> its rows
MOST = 4096  # measurements that are kept if no policy reads them


class FeatureNotes:
    """Records of one part; thread-safe.

    Args:
        part: its index.
        parts: P.
    """

    def __init__(self, part: int, parts: int) -> None:
        self._part, self._parts, self._lock = part, parts, threading.Lock()
        self._rows: Rows = {"resolved": [], "fetches": [], "windows": []}
        self._fetches: deque[FetchTime] = deque(maxlen=MOST)
        self._stepped: deque[StepTime] = deque(maxlen=MOST)
        self._clear()

    def fetched(self, replies: Sequence[OwnerReply], purpose: str, step: int) -> None:
        """Record RPCs; ``purpose`` is miss or bulk."""
        with self._lock:
            for reply in replies:
                rows = len(reply.rows)
                self._rows["fetches"].append(
                    FetchRow(self._part, reply.owner, purpose, rows, reply.nbytes, reply.rtt_s)
                )
                self._fetches.append(FetchTime(reply.owner, purpose, rows, reply.nbytes, reply.rtt_s, step))

    def resolved(self, facts: ResolveFacts) -> None:
        """Record that a batch has its features."""
        with self._lock:
            self._served += 1
            self._remote += facts.hits + facts.misses
            self._hits += facts.hits
            self._resolve_s += facts.resolve_s

    def handed(self, facts: ResolveFacts) -> None:
        """Record that a batch was delivered to training."""
        of = facts
        counts = of.window, of.remote, of.hits.tolist(), of.misses.tolist(), of.rpcs, of.nbytes
        row = ResolvedRow(self._part, *counts, of.resolve_s, of.wait_s)
        with self._lock:
            self._rows["resolved"].append(row)

    def swapped(self, swap: windows.Swap, exposed_s: float) -> None:
        """Record that a cache came into use, and the seconds that training waited for it."""
        built, plan = swap.built, swap.built.plan
        when = plan.number, swap.due, plan.length, swap.late_steps
        what = plan.policy, plan.action, plan.biased, plan.capacity
        rows = len(built.cache), built.copied, built.fetched, built.by_owner.tolist()
        row = CacheWindowRow(self._part, *when, *what, *rows, built.rebuild_s, exposed_s)
        with self._lock:
            self._rows["windows"].append(row)

    def stepped(self, time: StepTime) -> None:
        """Record that a training step ended."""
        with self._lock:
            self._stepped.append(time)

    def observed(self) -> dict[str, Any]:
        """Counts since the last call; :class:`dtdg_lab.systems.feature_cache.policy_inputs.Boundary` explains them."""
        with self._lock:
            seen = {
                "served": self._served,
                "remote": self._remote,
                "hits": self._hits,
                "resolve_s": self._resolve_s,
                "fetches": tuple(self._fetches),
                "stepped": tuple(self._stepped),
            }
            self._fetches.clear()
            self._stepped.clear()
            self._clear()
        return seen

    def taken(self) -> Rows:
        """New rows of each table, without the columns step and epoch."""
        with self._lock:
            rows, self._rows = self._rows, {table: [] for table in self._rows}
        return rows

    def _clear(self) -> None:
        self._served, self._resolve_s = 0, 0.0
        self._remote, self._hits = (np.zeros(self._parts, dtype=np.int64) for _ in range(2))


# Batches sampled ahead: stored within a memory limit; beyond it only their keys are kept, and they are sampled again.


class Halted(Exception):  # noqa: N818 - nothing went wrong
    """Raised in a thread that waits for something that will not come: it must stop or do something else."""


class SampledAhead:
    """The batches of a part from the next one on, filled by one thread and read by others.

    Args:
        sample: draws the batch of a step; a pure function; called by one thread at a time.
        part: the part that trains them.
        space: of all keys.
        first: step of the first batch.
        moved: condition that threads wait for; notified of every change.
    """

    def __init__(
        self, sample: Callable[[int], Sampled], part: int, space: KeySpace, *, first: int, moved: threading.Condition
    ) -> None:
        self._sample, self._part, self._space, self._moved = sample, part, space, moved
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
        """The first step that is not sampled."""
        return self._next

    def job(self, until: int, near: int) -> int | None:
        """The step to sample next; None if there is none. The caller holds the lock.

        Args:
            until: steps before it are needed.
            near: number of next steps whose batches are needed, not only their keys.
        """
        for step in range(self._floor, min(self._floor + near, self._next)):
            if step not in self._held:
                return step
        return self._next if self._next < until else None

    def sample(self, step: int, limit: int, near: int) -> None:
        """Sample a batch and store it, or only its keys.

        Args:
            step: of the batch.
            limit: maximum bytes of stored batches.
            near: number of next steps whose batches are stored in any case.
        """
        with self._one_samples:
            batch = self._sample(step)
        remote = batch.keys[self._space.owners(batch.keys) != self._part]
        with self._moved:
            if step == self._next:
                self._next += 1
            if step < self._floor:
                return  # taken meanwhile by a thread that sampled it as well
            self._remote[step] = remote
            if step < self._floor + near or self._bytes + batch.nbytes <= limit:
                self._held[step] = batch
                self._bytes += batch.nbytes
            self._moved.notify_all()

    def take(self, step: int, halted: Callable[[], bool]) -> Sampled:
        """Wait for the batch of a step, and remove it and those before it.

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
        """The batch of a step, sampled by the caller if necessary."""
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
        """Wait for the remote keys of some steps' batches; batches that were taken before are omitted.

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
        """Remote keys of the batches that are sampled, from a step on."""
        with self._moved:
            return [self._remote[step] for step in range(max(first, self._floor), self._next) if step in self._remote]

    def _forget(self, step: int) -> Sampled:
        batch = self._held.pop(step)
        self._bytes -= batch.nbytes
        self._remote.pop(step, None)
        self._floor = step + 1
        return batch


# The threads of a pipeline: one samples ahead, one builds caches, one resolves batches.


Found = TypeVar("Found")
PROMPT_S = 0.1  # that threads have to exit by themselves


@dataclass(frozen=True, slots=True, eq=False)
class PathJob:
    """Constants of a pipeline; see :class:`FeaturePipeline`."""

    own: OwnRows
    sample: Callable[[int], Sampled]
    fetcher: Callable[[], Fetcher]
    decide: Callable[[Boundary], CacheDecision | None] | None
    watch: Callable[[Sequence[OwnerReply], int], bool] | None = None

    @property
    def part(self) -> int:
        """The part that trains the batches."""
        return self.own.part

    @property
    def parts(self) -> int:
        """P."""
        return self.own.space.parts


class Stages:
    """All threads of a pipeline between start and stop, and their shared state.

    Shared state is only accessed under one lock, ``_moved``, for short times; sampling, fetching, copying and deciding
    happen without it. Caches and batches are immutable, so they may be used after the lock is released.

    Args:
        job: constants of the pipeline.
        path: initial settings.
        first: first step.
        epochs: lengths of epochs.
        notes: receives the records.
    """

    def __init__(
        self, job: PathJob, path: FeaturePath, first: int, epochs: windows.Epochs, notes: FeatureNotes
    ) -> None:
        self._job, self._path, self._epochs, self._notes = job, path, epochs, notes
        self._moved = threading.Condition()
        self._position = self._wanted = first  # next step to resolve; next step of training
        self._due: int | None = None  # the step that the resolver waits for
        self._ready: dict[int, Resolved] = {}
        self._schedule = windows.WindowSchedule(epochs)
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
        self._own_fetcher: Fetcher | None = None  # of the training thread
        with self._moved:
            self._schedule.begin(first, path, first=True)
            self._run_threads()

    # called by the training thread

    def next(self, step: int) -> Resolved:
        """The batch of a step; see :meth:`FeaturePipeline.next`."""
        began = time.perf_counter()
        with self._moved:
            self._raise_if_over()
            if step != self._wanted:
                raise PlanError(f"step {step} was requested, but {self._wanted} is next; call start({step}) before.")
            if self._epochs.stop is not None and step >= self._epochs.stop:
                raise PlanError(f"step {step} was requested, but the run stops at {self._epochs.stop}.")
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
        """Change the settings from the next resolved step on."""
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
        """The current cache."""
        serving = self._schedule.serving
        return None if serving is None else serving.cache

    @property
    def held_bytes(self) -> int:
        """Bytes of the sampled batches that wait for their features."""
        return self._ahead.held_bytes

    def check(self) -> None:
        """Raise the exception of a failed thread."""
        if self._failure is not None:
            raise self._failure

    def stop(self, patience_s: float) -> None:
        """Stop all threads: wait up to this time, then interrupt those that wait for an owner."""
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
            return  # stopped
        except Exception as error:
            if self._stopping:
                return  # its connection was closed by stop()
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
        builder = windows.CacheBuilder(self._job.part, self._job.own.space, self._job.own.features)
        with self._asking() as fetcher:
            while True:
                with self._moved:
                    order = self._when(self._ordered)
                try:
                    built, replies = self._build(order, builder, fetcher)
                except Halted:
                    continue  # the request has changed, or the run ends before the window
                self._notes.fetched(replies, "bulk", built.plan.first)
                del replies  # their rows are copied
                with self._moved:
                    self._schedule.offer(order, built)
                    self._moved.notify_all()

    def _build(
        self, order: windows.Order, builder: windows.CacheBuilder, fetcher: Fetcher
    ) -> tuple[windows.BuiltCache, list[OwnerReply]]:
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
                raise Halted  # the previous decision is kept
        with self._moved:
            # a window whose first steps have passed meanwhile counts the following ones
            plan = windows.plan_window(
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
        self, order: windows.Order, path: FeaturePath, serving: windows.BuiltCache | None, unwanted: Callable[[], bool]
    ) -> None:
        """Wait until enough batches are sampled for a window like the last one; at most until that window ends.

        For windows longer than the lookahead, only the lookahead is sampled before the decision.
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

    def _boundary(self, order: windows.Order, path: FeaturePath, serving: windows.BuiltCache | None) -> Boundary:
        seen, job = self._notes.observed(), self._job
        if serving is None:
            previous = windows.nearest_action(path.window, None, job.parts)
        else:
            previous = serving.plan.nearest_action(job.part)
        with self._moved:
            now, pending, left = self._position, self._schedule.pending, self._schedule.ends - self._position
        lookahead = windows.Lookahead(
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
            **seen,
            rebuild_s=0.0 if serving is None else serving.rebuild_s,
            late_steps=self._late_steps,
            lookahead=lookahead,
            now=now,
            early=order.early,
            left=max(left, 0),
            pending=previous if pending is None else pending.plan.nearest_action(job.part),
        )

    # conditions to wait for; the lock is held

    def _when(self, found: Callable[[], Found | None]) -> Found:
        """Wait until ``found`` returns something other than None, and return it."""
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
            raise RunFailedError(f"the features of part {self._job.part} were requested while their pipeline closed.")

    def _until(self) -> int:
        """The step before which everything should be sampled."""
        if not self._path.runs_ahead:
            return 0 if self._due is None else self._due + 1
        until = self._position + self._path.depth + 1
        if self._path.caches:
            until = max(until, self._built_until, self._schedule.ends + self._path.ahead)
        return until if self._epochs.stop is None else min(until, self._epochs.stop)

    def _near(self) -> int:
        """Number of next steps whose batches themselves should be stored."""
        if self._path.runs_ahead:
            return self._path.depth + 1
        return 0 if self._due is None else 1

    def _claimed(self) -> int | None:
        """The next step to resolve; no other thread will resolve it."""
        step = self._position
        at_end = self._epochs.stop is not None and step >= self._epochs.stop
        if not self._path.runs_ahead or at_end or step - self._wanted >= self._path.depth:
            return None
        if self._waits_for_first and not self._schedule.ready:
            return None
        self._position, self._due = step + 1, step
        return step

    def _ordered(self) -> windows.Order | None:
        order, self._schedule.order = self._schedule.order, None
        return order

    def _turn(self, step: int) -> tuple[FeatureCache | None, int]:
        """The cache of a step, and the index of its window."""
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


PATIENCE_S = 0.5  # that close() waits for threads; daemon threads that are still blocked then are abandoned


class FeaturePipeline:
    """Batches with their features, in the order of steps; bitwise the same in every mode.

    Its threads sample ahead, build caches and resolve batches. Training takes them one by one and never waits for a
    rebuild, except for the first cache.

    Args:
        own: rows of the part, and its index.
        sample: draws the batch of a step; a pure function of it.
        fetcher: opens a client to other parts, one per thread; closing it must interrupt a thread that waits for a
            reply with an error.
        path: the mode and its settings.
        epoch_steps: steps of an epoch.
        decide: chooses a window if ``path.decides``; called in the builder's thread. If ``boundary.early``, None keeps
            the previous decision.
        watch: receives the replies of a step's misses, and returns whether links have changed, so that the current
            window is reconsidered; called in the resolver's thread.
        stop: the step after the run's last, if known; nothing is sampled beyond it.

    Raises:
        ConfigError: the cache exceeds memory, or the settings need a policy and there is none.

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
        """The current settings."""
        return self._path

    @property
    def serving(self) -> FeatureCache | None:
        """The current cache; None without one. It is immutable, and replaced as a whole."""
        return None if self._stages is None else self._stages.serving

    @property
    def held_bytes(self) -> int:
        """Bytes of the sampled batches that wait for their features."""
        return 0 if self._stages is None else self._stages.held_bytes

    def start(self, step: int, *, epoch_first: int = 0) -> None:
        """Start, or restart, at a step; a window begins there. Returns at once.

        Call it also if ``sample`` would draw differently: previously sampled batches are discarded.

        Args:
            step: the first that will be requested.
            epoch_first: first step of some epoch, if epochs do not begin at multiples of their length.
        """
        self.close()
        epochs = windows.Epochs(self._epoch_steps, epoch_first % self._epoch_steps, self._stop)
        self._stages = Stages(self._job, self._path, step, epochs, self._notes)

    def next(self, step: int) -> Resolved:
        """The batch of a step with its features; waits until it is ready.

        Raises:
            PlanError: it is not the next step, or the pipeline has not started.
            RunFailedError: a thread failed; message and cause give the reason.
        """
        return self._running().next(step)

    def apply_settings(self, path: FeaturePath) -> None:
        """Change the settings from the next resolved step on; batches that are ready are still delivered.

        If the plan of windows changes, a new one begins at once, and the current cache stays in use until the new one
        is ready.

        Raises:
            ConfigError: as in the constructor; nothing has changed then.
        """
        self._path = self._checked(path)
        if self._stages is not None:
            self._stages.apply_settings(path)

    def stepped(self, seconds: float, joules: float | None = None) -> None:
        """Report the end of a training step, for policies."""
        self._notes.stepped(StepTime(seconds, joules))

    def taken(self) -> Rows:
        """New rows of the tables ``resolved``, ``fetches`` and ``windows``, without the columns step and epoch."""
        return self._notes.taken()

    def check(self) -> None:
        """Raise the exception of a failed thread.

        Raises:
            RunFailedError: a thread has failed.
        """
        if self._stages is not None:
            self._stages.check()

    def close(self) -> None:
        """Stop all threads within a second; further calls do nothing."""
        stages, self._stages = self._stages, None
        if stages is not None:
            stages.stop(PATIENCE_S)

    def _running(self) -> Stages:
        if self._stages is None:
            raise PlanError("the pipeline has not started: call start(step) with the next step.")
        return self._stages

    def _checked(self, path: FeaturePath) -> FeaturePath:
        if path.decides and self._job.decide is None:
            raise ConfigError(f"policy {path.policy!r} decides about windows, but no decision function was given.")
        if path.caches:
            check_cache_memory(path.capacity, self._job.own.features * 4)
        return path
