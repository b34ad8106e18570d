"""One part of a rank: its mini-batches, the pipeline of their features, and the control of its cache."""

from __future__ import annotations

from functools import partial

from dtdg_lab.engine.minibatch.sampled_batches import BatchSampler, SampledBatch
from dtdg_lab.engine.strategy import RecordRows
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.feature_pipeline import FeaturePipeline
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.observations import FetchRow
from dtdg_lab.systems.feature_cache.pipeline.resolving import Resolved
from dtdg_lab.systems.feature_cache.policies.control import CacheControl
from dtdg_lab.systems.feature_cache.policies.delay_estimator import DelayEstimator
from dtdg_lab.systems.feature_cache.policies.interface import CachePolicy
from dtdg_lab.systems.feature_cache.service import FeatureService


class RemotePart:
    """A part whose features are fetched on demand until :meth:`apply_settings` changes that.

    Args:
        sampler: of its batches.
        service: of features.
        stop: the step after the run's last.

    Attributes:
        number: of the part.
        control: decides the windows of its cache.
        pipeline: of its features.
    """

    def __init__(self, sampler: BatchSampler, service: FeatureService, stop: int) -> None:
        self.number, self.sampler = sampler.batches.part, sampler
        self._due = -1
        self._ready: SampledBatch | None = None
        self._probes: list[FetchRow] = []
        steps, parts = sampler.batches.per_epoch, service.space.parts
        self.control = CacheControl(
            self.number, parts, epoch_steps=steps, row_bytes=service.row_bytes, estimator=DelayEstimator(parts - 1)
        )
        self.pipeline = FeaturePipeline(
            service.own[self.number],
            sample=self._sample,
            fetcher=partial(service.fetcher, self.number),
            path=FeaturePath(mode="on_demand"),
            epoch_steps=steps,
            decide=self.control.decide,
            watch=self.control.watch,
            stop=stop,
        )

    def _sample(self, number: int) -> SampledBatch:
        """Return the batch of a step without its features."""
        ready = self._ready
        return ready if ready is not None and ready.number == number else self.sampler.sample(number)

    def begin(self, number: int) -> None:
        """Prepare a step; the pipeline restarts unless it is the one after the last."""
        if number != self._due:
            self.pipeline.start(number)
        self._due = number + 1
        if not self.pipeline.path.runs_ahead:
            self._ready = self.sampler.sample(number)

    def next(self, number: int) -> Resolved:
        """Return the batch of the prepared step with its features."""
        resolved = self.pipeline.next(number)
        self._ready = None
        return resolved

    def record_probe(self, reply: OwnerReply) -> None:
        """Record a fetch that was made to measure its time."""
        row = FetchRow(self.number, reply.owner, "probe", len(reply.rows), reply.nbytes, reply.rtt_s)
        self._probes.append(row)

    def apply_settings(self, path: FeaturePath, policy: CachePolicy | None) -> None:
        """Use a path and a policy from the next step on; None keeps the policy."""
        if policy is not None:
            self.control.policy = policy
        self.pipeline.apply_settings(path)

    def rows(self) -> RecordRows:
        """Return and forget new rows by table."""
        rows, probes = self.pipeline.take_rows(), self._probes
        self._probes = []
        return {**rows, "fetches": [*probes, *rows["fetches"]], "cache_decisions": [*self.control.take_rows()]}

    def close(self) -> None:
        """Stop the pipeline; further calls do nothing."""
        self._due = -1
        self.pipeline.close()
