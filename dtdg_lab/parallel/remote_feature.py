"""Mini-batches of each part's vertices, whose features come from whichever part owns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.feature_path import CachePolicy, OwnerReply
from dtdg_lab.features.cache_control import CacheControl
from dtdg_lab.features.path import FeaturePath
from dtdg_lab.features.pipeline import FeaturePipeline
from dtdg_lab.features.resolver import Resolved
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.operator_settings import OperatorSettings
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel.feature_service import FeatureService
from dtdg_lab.parallel.grouped import bring
from dtdg_lab.parallel.layout import Computed, Marks, Work
from dtdg_lab.parallel.sampled_batch import BatchSampler, SampledBatch
from dtdg_lab.parallel.target_blocks import TargetBlocks
from dtdg_lab.parallel.target_run import TargetRun, add_gradients
from dtdg_lab.parallel.target_sequence import TargetSequence
from dtdg_lab.tasks.task import Task

MEMORIES = ("per_vertex", "weights", "none")


class RemotePart:
    """One part: its mini-batches, the pipeline that brings their features, and what decides about its cache.

    Args:
        sampler: of its batches.
        control: what the pipeline asks about windows.

    Attributes:
        number: of the part.
        pipeline: of its features; to be set before the first step, made with :meth:`sample`.
    """

    pipeline: FeaturePipeline

    def __init__(self, sampler: BatchSampler, control: CacheControl) -> None:
        self.number, self.sampler, self.control = sampler.batches.part, sampler, control
        self._due = -1
        self._ready: SampledBatch | None = None
        self._probes: list[tuple[Any, ...]] = []

    def sample(self, number: int) -> SampledBatch:
        """The batch of a step, but for its features."""
        ready = self._ready
        return ready if ready is not None and ready.number == number else self.sampler.sample(number)

    def prepare(self, number: int) -> None:
        """Sample the batch of a step, where that is not done ahead."""
        if not self.pipeline.path.runs_ahead:
            self._ready = self.sampler.sample(number)

    def begin(self, number: int) -> None:
        """Be ready for a step; where it is not the one after the last, the pipeline begins anew."""
        if number != self._due:
            self.pipeline.start(number)
        self._due = number + 1

    def next(self, number: int) -> Resolved:
        """The batch of the step begun with its features."""
        resolved = self.pipeline.next(number)
        self._ready = None
        return resolved

    def probed(self, reply: OwnerReply) -> None:
        """Note a fetch that was made to see how long one takes."""
        self._probes.append((self.number, reply.owner, "probe", len(reply.rows), reply.nbytes, reply.rtt_s))

    def steer(self, path: FeaturePath, policy: CachePolicy | None) -> None:
        """Have features come so from the next step on."""
        if policy is not None:
            self.control.policy = policy
        self.pipeline.steer(path)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """What was noted since this was last asked, by table."""
        taken = self.pipeline.taken()
        probes, self._probes = self._probes, []
        return {**taken, "fetches": probes + taken["fetches"], "cache_decisions": self.control.taken()}

    def close(self) -> None:
        """End the pipeline; a second call does nothing."""
        self._due = -1
        self.pipeline.close()


class RemoteFeatureLayout:
    """Each step, each part trains one mini-batch: B of its vertices at L snapshots, with sampled neighbours.

    A batch is a pure function of seed, part and step, and features arrive unchanged whatever way they take: losses and
    gradients are the same bits under every cache policy. A step's gradients are means over parts whose batch has
    labels. Every batch begins from state zero.

    Args:
        model: any whose memory is ``per_vertex``, ``weights`` or ``none``.
        parts: those of this rank.
        task: what is predicted.
        graph: of which batches that are only tried read features.
        service: of features.
        settings: of the operators.

    Raises:
        UnsupportedError: the task needs all vertices at once, or the model remembers what a batch does not hold.

    References: GreenDyGNN sections II and V; DistDGL (Zheng et al. 2020).

    Differs from the paper: the edges are on every rank and features alone are fetched (DistDGL samples remotely too);
    snapshots of a sequence are served as well, by batches of L snapshots.
    """

    def __init__(
        self, model: DynamicModel, parts: Sequence[RemotePart], task: Task, graph: DynamicGraph, *,
        service: FeatureService, settings: OperatorSettings,
    ) -> None:  # fmt: skip
        if not task.per_vertex:
            raise UnsupportedError(
                f"task={task.name!r} with mini-batches: its loss needs all vertices at once. Choose system='adgnn-t' "
                "(halo_vertex), or another task."
            )
        if model.memory not in MEMORIES:
            raise UnsupportedError(
                f"a model that remembers {model.memory} with mini-batches, which carry {', '.join(MEMORIES)}. Choose "
                "system='adgnn-t' (halo_vertex), or another model."
            )
        self._model, self.parts, self._task, self._graph = model, tuple(parts), task, graph
        self.service, self._settings, self._total = service, settings, service.space.parts
        self.epoch_steps = self.parts[0].sampler.batches.per_epoch
        self._epoch = 0

    def epoch(self, epoch: int) -> Sequence[Work]:
        """As many steps in every epoch; what is computed next is of this one."""
        self._epoch = epoch
        own = tuple(part.number for part in self.parts)
        return tuple(Work(number, own, self._total) for number in range(self.epoch_steps))

    def compute(self, work: Work, marks: Marks) -> Computed:
        """Gradients of a batch of each of this rank's parts, one part after another."""
        number = self._epoch * self.epoch_steps + work.iteration
        self.service.check()
        for part in self.parts:
            part.begin(number)  # all before any is waited for: first caches are made side by side
            part.prepare(number)
        marks("batch")
        resolved = [part.next(number) for part in self.parts]
        return self._trained([_blocks(of.sampled, of.rows) for of in resolved], marks)

    def tried(self, marks: Marks) -> None:
        """Compute the first step with features that are here, for its memory; not noted down."""
        blocks = []
        for part in self.parts:
            sampled = part.sampler.sample(0)
            times, vertices = np.divmod(sampled.keys, self._graph.num_nodes)  # all at 0 where features never change
            blocks.append(sampled.with_features(np.asarray(self._graph.features[times, vertices])))
        marks("batch")
        self._trained(blocks, marks)

    def _trained(self, blocks: Sequence[TargetBlocks], marks: Marks) -> Computed:
        runs = [
            TargetRun(self._model, TargetSequence(of, self._settings), self._task, of.batch.snapshots, "all")
            for of in blocks
        ]
        for run in runs:
            bring(run)
        marks("transfer")
        loss_sum = sum(float(add_gradients(run)) for run in runs)
        labelled = sum(run.num_labelled > 0 for run in runs)
        return Computed(loss_sum, labelled, sum(run.own * len(run.snapshots) for run in runs))

    def stepped(self, seconds: float, joules: float | None) -> None:
        """Tell the parts' policies what the step took."""
        for part in self.parts:
            part.pipeline.stepped(seconds, joules)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """``resolved``, ``fetches``, ``windows``, ``cache_decisions``: what was noted since this was last asked."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for part in self.parts:
            for table, rows in part.rows().items():
                found.setdefault(table, []).extend(rows)
        return found

    def close(self) -> None:
        """End all pipelines and what serves; a second call does nothing."""
        for part in self.parts:
            part.close()
        self.service.close()


def _blocks(sampled: Any, rows: Any) -> TargetBlocks:
    assert isinstance(sampled, SampledBatch)
    return sampled.with_features(rows)
