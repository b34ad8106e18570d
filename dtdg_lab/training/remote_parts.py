"""The parts of a rank whose features are fetched: their batches, pipelines and what decides about their caches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.batching.sampling import sampled_edges
from dtdg_lab.batching.seed_batches import SeedBatches, fanouts_of, rounds_of, stretches_of
from dtdg_lab.control.delay_estimator import DelayEstimator
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.features.cache_control import CacheControl
from dtdg_lab.features.path import FeaturePath
from dtdg_lab.features.pipeline import FeaturePipeline
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel.dgl_sampler import DglSampler
from dtdg_lab.parallel.feature_service import FeatureService
from dtdg_lab.parallel.remote_feature import RemotePart
from dtdg_lab.parallel.sampled_batch import BatchSampler, NeighbourSampler
from dtdg_lab.parallel.target_blocks import BlockShape, block_shape
from dtdg_lab.tasks.task import Task


@dataclass(frozen=True, slots=True)
class MiniBatches:
    """What the mini-batches of all parts have in common.

    Attributes:
        config: the run's settings.
        graph: its data.
        train: the training part.
        trained: (N,) whose labels may be trained.
        partition: into P parts.
        shape: of the model's blocks.
    """

    config: RunConfig
    graph: DynamicGraph
    train: range
    trained: NDArray[np.bool_]
    partition: Partition
    shape: BlockShape

    @staticmethod
    def of(
        config: RunConfig, graph: DynamicGraph, train: range, *, task: Task, model: DynamicModel, partition: Partition
    ) -> MiniBatches:
        """Those of a config."""
        shape = block_shape(
            config.model, model.memory, config.hidden, config.layers, norm=config["norm"],
            **config.options.get("models", {}),
        )  # fmt: skip
        return MiniBatches(config, graph, train, np.asarray(task.trains()), partition, shape)

    @property
    def alike(self) -> bool:
        """Whether all training snapshots are the same, features included."""
        first = self.graph.snapshots[self.train.start]
        same = all(first is of or first.equals(of) for of in (self.graph.snapshots[t] for t in self.train))
        return self.graph.static_features and same

    def batches(self, part: int) -> SeedBatches:
        """Of one part."""
        counts = [int(self.trained[self.partition.vertices(each)].sum()) for each in range(self.partition.parts)]
        own = self.partition.vertices(part)
        size = self.config["batch_size"]
        return SeedBatches(
            self.config.seed, part, own[self.trained[own]].astype(np.int64), size,
            stretches_of(self.train, self.config["batch_length"]), rounds_of(counts, size), self.alike,
        )  # fmt: skip

    def sampler(self, part: int, draw: NeighbourSampler) -> BatchSampler:
        """Of one part."""
        fanouts = fanouts_of(self.config["fanouts"], self.config.layers)
        return BatchSampler(self.graph, self.batches(part), self.shape, fanouts, draw)


def neighbour_sampler(config: RunConfig, shape: BlockShape) -> NeighbourSampler:
    """What draws neighbours.

    Raises:
        UnsupportedError: DGL's sampler for layers of several hops, which must see one draw twice.
    """
    if config["sampler"] == "own":
        return sampled_edges
    if shape.layer_hops > 1:
        raise UnsupportedError(
            f"sampler='dgl' for layers of {shape.layer_hops} hops: both hops must see the neighbours of one draw, and "
            "DGL's does not repeat. Choose sampler='own'."
        )
    return DglSampler()


def remote_part(mini: MiniBatches, part: int, service: FeatureService, draw: NeighbourSampler) -> RemotePart:
    """One part, on demand until it is told otherwise.

    Args:
        mini: what its batches have in common with the others'.
        part: its number.
        service: of features.
        draw: neighbours.
    """
    sampler = mini.sampler(part, draw)
    steps = sampler.batches.per_epoch
    control = CacheControl(
        part, mini.partition.parts, epoch_steps=steps, row_bytes=service.row_bytes,
        estimator=DelayEstimator(mini.partition.parts - 1),
    )  # fmt: skip
    made = RemotePart(sampler, control)
    made.pipeline = FeaturePipeline(
        service.own[part], sample=made.sample, fetcher=lambda: service.fetcher(part),
        path=FeaturePath(mode="on_demand"), epoch_steps=steps, decide=control.decide,
        watch=control.watch,
        stop=mini.config.epochs * steps,
    )  # fmt: skip
    return made
