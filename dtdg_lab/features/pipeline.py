"""The feature path of a part: what samples, caches, fetches and hands over batches, ahead of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.core.feature_path import CacheDecision, Fetcher, OwnerReply
from dtdg_lab.features.boundary import Boundary, StepTime
from dtdg_lab.features.cache import FeatureCache
from dtdg_lab.features.cache_memory import check_cache_memory
from dtdg_lab.features.feature_notes import FeatureNotes, Row
from dtdg_lab.features.own_rows import OwnRows
from dtdg_lab.features.path import FeaturePath
from dtdg_lab.features.resolver import Resolved
from dtdg_lab.features.sampled import Sampled
from dtdg_lab.features.stages import PathJob, Stages
from dtdg_lab.features.window_plan import Epochs

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

    def steer(self, path: FeaturePath) -> None:
        """Go on by other settings from the next step that is resolved; batches that are ready are handed over.

        Where windows are planned otherwise than before, one begins at once, and the cache that serves goes on until
        the new one is there.

        Raises:
            ConfigError: as of the constructor; nothing has changed then.
        """
        self._path = self._checked(path)
        if self._stages is not None:
            self._stages.steer(path)

    def stepped(self, seconds: float, joules: float | None = None) -> None:
        """Tell that a step of training ended, for policies."""
        self._notes.stepped(StepTime(seconds, joules))

    def taken(self) -> dict[str, list[Row]]:
        """Rows of tables ``resolved``, ``fetches`` and ``windows`` since the last call, without step and epoch."""
        return self._notes.taken()

    def check(self) -> None:
        """Raise what went wrong in a thread.

        Raises:
            RunFailedError: as said.
        """
        if self._stages is not None:
            self._stages.check()

    def close(self) -> None:
        """Stop all threads, in less than a second; a second call does nothing."""
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
