"""The feature pipeline of a part: it samples, caches, fetches and delivers batches ahead of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dtdg_lab.core.errors import PlanError
from dtdg_lab.systems.feature_cache.pipeline.cache import FeatureCache, check_cache_memory
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.fetching import Fetcher, OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.keys import OwnRows
from dtdg_lab.systems.feature_cache.pipeline.observations import Boundary, FeatureRecorder, Rows, StepTime
from dtdg_lab.systems.feature_cache.pipeline.resolving import Resolved, Sampled
from dtdg_lab.systems.feature_cache.pipeline.stages import PathJob, Stages
from dtdg_lab.systems.feature_cache.pipeline.window_plan import Epochs
from dtdg_lab.systems.feature_cache.policies.interface import CacheDecision

PATIENCE_S = 0.5  # close() waits this long for threads, then abandons blocked daemon threads


class FeaturePipeline:
    """Batches with their features, in the order of steps; bitwise the same in every mode.

    Its threads sample ahead, build caches and resolve batches. Training requests batches one by one, and waits for no
    cache but the first.

    Args:
        own_rows: rows of the part.
        sample: draws the batch of a step; a pure function.
        fetcher: opens a client to other parts, one per thread. Closing the client must interrupt a thread that waits
            for a reply.
        path: the mode and its settings.
        epoch_steps: steps of an epoch.
        decide: chooses a window if ``path.decides``; called in the builder's thread. If ``boundary.early``, None keeps
            the previous decision.
        watch: receives the replies of a step's misses. Returns True if links have changed, so that the current window
            is reconsidered. Called in the resolver's thread.
        stop: the step after the run's last, if known; nothing is sampled beyond it.

    Raises:
        ConfigError: the cache exceeds memory.

    References: GreenDyGNN section V-A.
    """

    def __init__(
        self,
        own_rows: OwnRows,
        *,
        sample: Callable[[int], Sampled],
        fetcher: Callable[[], Fetcher],
        path: FeaturePath,
        epoch_steps: int,
        decide: Callable[[Boundary], CacheDecision | None] | None = None,
        watch: Callable[[Sequence[OwnerReply], int], bool] | None = None,
        stop: int | None = None,
    ) -> None:
        self._job = PathJob(own_rows, sample, fetcher, decide, watch)
        self._epoch_steps, self._stop, self._stages = epoch_steps, stop, None
        self._recorder = FeatureRecorder(own_rows.part, own_rows.space.parts)
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

    def start(self, step: int) -> None:
        """Start or restart at a step, with a new window; return at once.

        Call it also if ``sample`` would draw differently: batches sampled earlier are discarded.

        Args:
            step: the first step that will be requested.
        """
        self.close()
        epochs = Epochs(self._epoch_steps, self._stop)
        self._stages = Stages(self._job, self._path, step, epochs, self._recorder)

    def next(self, step: int) -> Resolved:
        """Wait for the batch of a step with its features, and return it.

        Raises:
            PlanError: it is not the next step, or the pipeline has not started.
            RunFailedError: a thread failed; message and cause give the reason.
        """
        return self._running().next(step)

    def apply_settings(self, path: FeaturePath) -> None:
        """Change the settings from the next resolved step on; batches that are ready are still delivered.

        If the plan of windows changes, a new one begins at once. The current cache stays in use until the new one is
        ready.

        Raises:
            ConfigError: as in the constructor; the settings are then unchanged.
        """
        self._path = self._checked(path)
        if self._stages is not None:
            self._stages.apply_settings(path)

    def is_starting(self, step: int) -> bool:
        """Return True for a step whose training shared its processors with filling the pipeline for the first time."""
        settled_from = None if self._stages is None else self._stages.settled_from
        return settled_from is None or step < settled_from

    def stepped(self, time: StepTime) -> None:
        """Report a training step that ended, for policies."""
        self._recorder.stepped(time)

    def take_rows(self) -> Rows:
        """Return new rows of ``resolved``, ``fetches`` and ``windows``, without the columns step and epoch."""
        return self._recorder.take_rows()

    def check(self) -> None:
        """Raise the exception of a failed thread.

        Raises:
            RunFailedError: a thread has failed.
        """
        if self._stages is not None:
            self._stages.check()

    def close(self) -> None:
        """Stop all threads within a second; idempotent."""
        stages, self._stages = self._stages, None
        if stages is not None:
            stages.stop(PATIENCE_S)

    def _running(self) -> Stages:
        if self._stages is None:
            raise PlanError("the pipeline has not started. Call start(step) with the next step.")
        return self._stages

    def _checked(self, path: FeaturePath) -> FeaturePath:
        if path.caches:
            check_cache_memory(path.capacity, self._job.own_rows.features * 4)
        return path
