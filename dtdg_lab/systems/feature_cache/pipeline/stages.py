"""The threads of a pipeline: one samples ahead, one builds caches, one resolves batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from dtdg_lab.core.errors import PlanError, RunFailedError
from dtdg_lab.systems.feature_cache.pipeline.cache import BuiltCache, CacheBuilder, FeatureCache
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.fetching import Fetcher, OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.keys import OwnRows
from dtdg_lab.systems.feature_cache.pipeline.observations import Boundary, FeatureRecorder
from dtdg_lab.systems.feature_cache.pipeline.resolving import Resolved, Sampled, resolve
from dtdg_lab.systems.feature_cache.pipeline.sampled_ahead import Halted, SampledAhead
from dtdg_lab.systems.feature_cache.pipeline.window_plan import Epochs, nearest_action, plan_window
from dtdg_lab.systems.feature_cache.pipeline.window_schedule import Lookahead, Order, WindowSchedule
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision

Found = TypeVar("Found")
PROMPT_S = 0.1  # time for threads to exit by themselves


@dataclass(frozen=True, slots=True, eq=False)
class PathJob:
    """Constants of a pipeline; see :class:`FeaturePipeline`."""

    own_rows: OwnRows
    sample: Callable[[int], Sampled]
    fetcher: Callable[[], Fetcher]
    decide: Callable[[Boundary], CacheDecision | None] | None
    watch: Callable[[Sequence[OwnerReply], int], bool] | None = None

    @property
    def part(self) -> int:
        """The part that trains the batches."""
        return self.own_rows.part

    @property
    def parts(self) -> int:
        """Number of parts P."""
        return self.own_rows.space.parts


class Stages:
    """All threads of a pipeline between start and stop, and their shared state.

    Shared state is only accessed under one lock, ``_changed``, for short times. Sampling, fetching, copying and
    deciding run without it. Caches and batches are immutable, so they may be used after the lock is released.

    Args:
        job: constants of the pipeline.
        path: initial settings.
        first: first step.
        epochs: lengths of epochs.
        recorder: receives the records.

    Attributes:
        settled_from: the first step that training requests after the pipeline was filled for the first time: two caches
            are built, and all batches are sampled that windows and policies look at; None before.
    """

    def __init__(self, job: PathJob, path: FeaturePath, first: int, epochs: Epochs, recorder: FeatureRecorder) -> None:
        self._job, self._path, self._epochs, self._recorder = job, path, epochs, recorder
        self._changed = threading.Condition()
        self._position = self._next_training_step = first  # next step to resolve; next step of training
        self._due: int | None = None  # the step that the resolver is waiting for
        self._ready: dict[int, Resolved] = {}
        self._schedule = WindowSchedule(epochs)
        self._ahead = SampledAhead(job.sample, job.part, job.own_rows.space, first=first, changed=self._changed)
        self._built_until = 0  # steps before it are sampled for the cache being built
        self._late_steps = 0
        self._decision_cpu_s = 0.0  # of the last decision
        self._has_second = False  # the second cache is built
        self.settled_from: int | None = None
        self._waits_for_first = path.caches
        self._asked_at: float | None = None  # since when training is waiting
        self._exposed_s = 0.0
        self._stopping = False
        self._failure: RunFailedError | None = None
        self._threads: list[threading.Thread] = []
        self._fetchers: list[Fetcher] = []
        self._own_fetcher: Fetcher | None = None  # for the training thread
        with self._changed:
            self._schedule.begin(first, path, first=True)
            self._run_threads()

    # called by the training thread

    def next(self, step: int) -> Resolved:
        """Return the batch of a step; see :meth:`FeaturePipeline.next`."""
        start = time.perf_counter()
        with self._changed:
            self._raise_if_over()
            if step != self._next_training_step:
                raise PlanError(
                    f"step {step} was requested, but {self._next_training_step} is next. Call start({step}) first."
                )
            if self._epochs.stop is not None and step >= self._epochs.stop:
                raise PlanError(f"step {step} was requested, but the run stops at {self._epochs.stop}.")
            self._asked_at = start
            while step not in self._ready and (self._path.runs_ahead or self._position != step):
                self._raise_if_over()
                self._changed.wait()
            self._raise_if_over()
            resolved = self._ready.pop(step, None)
            self._position = max(self._position, step + 1)
            self._next_training_step, self._asked_at = step + 1, None
            exposed_s, self._exposed_s = self._exposed_s, 0.0
            self._changed.notify_all()
        if resolved is None:
            resolved = self._on_demand(step)
        wait_s = max(time.perf_counter() - start - exposed_s, 0.0)
        facts = replace(resolved.facts, wait_s=wait_s, exposed_s=exposed_s)
        self._recorder.delivered(facts)
        return replace(resolved, facts=facts)

    def apply_settings(self, path: FeaturePath) -> None:
        """Change the settings from the next resolved step on."""
        with self._changed:
            previous, self._path = self._path, path
            self._waits_for_first &= path.caches
            if not path.same_windows(previous):
                self._built_until, self._has_second, self.settled_from = 0, False, None
                self._schedule.begin(self._position, path, first=self._waits_for_first)
            self._run_threads()
            self._changed.notify_all()

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
        """Stop all threads: wait up to ``patience_s``, then interrupt threads that wait for an owner."""
        with self._changed:
            self._stopping = True
            self._ready.clear()
            self._changed.notify_all()
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
        resolved, replies = resolve(step, sampled, self._job.own_rows, self._own_fetcher.fetch)
        self._recorder.fetched(replies, "miss", step)
        self._recorder.resolved(resolved.facts)
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
                return  # stop() closed its connection
            failure = RunFailedError(f"the {name} of part {self._job.part}'s features failed: {error!r}")
            failure.__cause__ = error
            with self._changed:
                self._failure = self._failure or failure
                self._changed.notify_all()

    @contextmanager
    def _open_fetcher(self) -> Iterator[Fetcher]:
        with closing(self._job.fetcher()) as fetcher:
            self._fetchers.append(fetcher)
            yield fetcher

    def _sampling(self) -> None:
        while True:
            with self._changed:
                step = self._wait_for(self._next_to_sample)
                limit, near = self._path.ahead_bytes, self._store_ahead()
            self._ahead.sample(step, limit, near)

    def _resolving(self) -> None:
        with self._open_fetcher() as fetcher:
            while True:
                with self._changed:
                    step = self._wait_for(self._claim_step)
                sampled = self._ahead.take(step, self._is_over)
                with self._changed:
                    self._due = None
                    cache, window = self._cache_for(step)
                resolved, replies = resolve(
                    step, sampled, self._job.own_rows, fetcher.fetch, cache=cache, window=window
                )
                self._recorder.fetched(replies, "miss", step)
                self._recorder.resolved(resolved.facts)
                changed = self._job.watch is not None and self._job.watch(replies, step)
                with self._changed:
                    if changed and self._path.decides:
                        self._schedule.reconsider(self._position)
                    self._ready[step] = resolved
                    self._changed.notify_all()

    def _building(self) -> None:
        builder = CacheBuilder(self._job.part, self._job.own_rows.space, self._job.own_rows.features)
        with self._open_fetcher() as fetcher:
            while True:
                with self._changed:
                    order = self._wait_for(self._take_order)
                try:
                    built, replies = self._build(order, builder, fetcher)
                except Halted:
                    continue  # the request has changed, or the run ends before the window
                self._recorder.fetched(replies, "bulk", built.plan.first)
                del replies  # their rows are copied
                with self._changed:
                    self._has_second |= self._schedule.serving is not None
                    self._schedule.offer(order, built)
                    self._changed.notify_all()

    def _build(self, order: Order, builder: CacheBuilder, fetcher: Fetcher) -> tuple[BuiltCache, list[OwnerReply]]:
        def is_obsolete() -> bool:
            return self._is_over() or not self._schedule.current(order)

        with self._changed:
            path, serving = self._path, self._schedule.serving
            if is_obsolete():
                raise Halted
        decision = None
        if order.decided and self._job.decide is not None and self._job.parts > 1:
            if not order.early:
                self._ahead_of_decision(order, path, serving, is_obsolete)
            boundary, began_s = self._boundary(order, path, serving), time.thread_time()
            decision = self._job.decide(boundary)
            self._decision_cpu_s = time.thread_time() - began_s
            if order.early and decision is None:
                raise Halted  # the previous decision is kept
        with self._changed:
            # if the window's first steps have already passed, plan it from the current step
            plan = plan_window(
                order.number,
                max(order.first, self._position),
                path,
                part=self._job.part,
                parts=self._job.parts,
                epochs=self._epochs,
                decision=decision,
            )
            if is_obsolete() or plan.length < 1:
                raise Halted
            self._built_until = plan.first + plan.length
            self._changed.notify_all()
        batches = self._ahead.remote_keys(plan.first, plan.length, is_obsolete)
        return builder.build(plan, batches, fetcher.fetch, None if serving is None else serving.cache)

    def _ahead_of_decision(
        self, order: Order, path: FeaturePath, serving: BuiltCache | None, is_obsolete: Callable[[], bool]
    ) -> None:
        """Wait until enough batches are sampled for a window like the last one, at most until that window ends.

        If windows are longer than the lookahead, only the lookahead is sampled before the decision.
        """
        if not path.ahead:
            return
        needed_until = order.first + min(path.window if serving is None else serving.plan.length, path.ahead)
        if self._epochs.stop is not None:
            needed_until = min(needed_until, self._epochs.stop)
        with self._changed:
            while self._ahead.until < needed_until and self._position < order.first and not is_obsolete():
                self._changed.wait()
            if is_obsolete():
                raise Halted

    def _boundary(self, order: Order, path: FeaturePath, serving: BuiltCache | None) -> Boundary:
        counts, job = self._recorder.observed(), self._job
        if serving is None:
            previous = nearest_action(path.window, None, job.parts)
        else:
            previous = serving.plan.nearest_action(job.part)
        with self._changed:
            current_step, pending, ends = self._position, self._schedule.pending, self._schedule.ends
        lookahead = Lookahead(
            order.first,
            self._ahead.sampled_keys(order.first),
            job.own_rows.space,
            part=job.part,
            capacity=path.capacity,
            serving=None if serving is None else serving.cache,
        )
        return Boundary(
            part=job.part,
            parts=job.parts,
            number=order.number,
            step=order.first,
            steps_left=self._epochs.steps_left(order.first),
            previous=previous,
            **counts,
            rebuild_s=0.0 if serving is None else serving.rebuild_s,
            decision_cpu_s=self._decision_cpu_s,
            late_steps=self._late_steps,
            lookahead=lookahead,
            now=current_step,
            early=order.early,
            left=max(ends - current_step, 0),
            pending=previous if pending is None else pending.plan.nearest_action(job.part),
        )

    # conditions to wait for; the lock is held

    def _wait_for(self, condition: Callable[[], Found | None]) -> Found:
        """Wait until a condition returns a value other than None, and return it."""
        while True:
            if self._is_over():
                raise Halted
            value = condition()
            if value is not None:
                return value
            self._changed.wait()

    def _is_over(self) -> bool:
        return self._stopping or self._failure is not None

    def _raise_if_over(self) -> None:
        self.check()
        if self._stopping:
            raise RunFailedError(f"features of part {self._job.part} were requested while their pipeline was closing.")

    def _sample_until(self) -> int:
        """Return the step up to which batches should be sampled."""
        if not self._path.runs_ahead:
            return 0 if self._due is None else self._due + 1
        until = self._position + self._path.depth + 1
        if self._path.caches:
            until = max(until, self._built_until, self._schedule.ends + self._path.ahead)
        return until if self._epochs.stop is None else min(until, self._epochs.stop)

    def _next_to_sample(self) -> int | None:
        step = self._ahead.next_step(self._sample_until(), self._store_ahead())
        if step is None and self._has_second and self.settled_from is None:
            self.settled_from = self._next_training_step
        return step

    def _store_ahead(self) -> int:
        """Return the number of next steps whose whole batches should be stored."""
        if self._path.runs_ahead:
            return self._path.depth + 1
        return 0 if self._due is None else 1

    def _claim_step(self) -> int | None:
        """Claim the next step to resolve, so that no other thread resolves it."""
        step = self._position
        at_end = self._epochs.stop is not None and step >= self._epochs.stop
        if not self._path.runs_ahead or at_end or step - self._next_training_step >= self._path.depth:
            return None
        if self._waits_for_first and not self._schedule.ready:
            return None
        self._position, self._due = step + 1, step
        return step

    def _take_order(self) -> Order | None:
        order, self._schedule.order = self._schedule.order, None
        return order

    def _cache_for(self, step: int) -> tuple[FeatureCache | None, int]:
        """Return the cache of a step, and the index of its window."""
        swap = self._schedule.swap_at(step, self._path)
        if swap is not None:
            exposed_s = 0.0
            if self._waits_for_first and self._asked_at is not None:
                exposed_s = self._exposed_s = time.perf_counter() - self._asked_at
            self._waits_for_first, self._late_steps = False, swap.late_steps
            self._recorder.swapped(swap, exposed_s)
            self._changed.notify_all()
        serving = self._schedule.serving
        return (None, -1) if serving is None else (serving.cache, serving.plan.number)
