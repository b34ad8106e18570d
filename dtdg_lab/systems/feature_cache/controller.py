"""Remote features in the training loop: partitions of a rank, changes and records."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError, UnsupportedError
from dtdg_lab.core.feature_store import WINDOWS
from dtdg_lab.core.plans import Partition
from dtdg_lab.engine.minibatch_blocks import BlockShape, block_shape
from dtdg_lab.engine.minibatches import SeedBatches, fanouts_of, rounds_of, sampled_edges, stretches_of
from dtdg_lab.engine.sampled_blocks import BatchSampler, DglSampler, NeighbourSampler
from dtdg_lab.engine.strategy import Unmarked
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.network.emulated_network import EmulatedNetwork
from dtdg_lab.systems.feature_cache.modes import FeaturePath, PathSettings, Way
from dtdg_lab.systems.feature_cache.pipeline import FeaturePipeline
from dtdg_lab.systems.feature_cache.policies.costs import CacheCosts, RpcModel
from dtdg_lab.systems.feature_cache.policies.delay_estimator import DelayEstimator
from dtdg_lab.systems.feature_cache.policy_inputs import CacheControl, RunFacts, run_costs, timed_fetches
from dtdg_lab.systems.feature_cache.service import FeatureService, RemotePart
from dtdg_lab.systems.feature_cache.store import check_cache_memory
from dtdg_lab.tasks.base import Task

if TYPE_CHECKING:
    from dtdg_lab.systems.feature_cache.strategy import RemoteFeatureStrategy

# Fetched features of a run: how they are fetched, live changes to that, and their events.


REMOTE = "remote"  # in the plan of a checkpoint
LOOKED_AT = 8  # batches of a part from which the share of remote rows is estimated


class FeatureController:
    """What the loop does beside steps where features are fetched.

    Args:
        strategy: that fetches them.
        config: the run's settings.
        zero: clears the gradients that a step tried leaves.
        state: of an earlier one, from a checkpoint, to be gone on with as far as it fits.
    """

    def __init__(
        self,
        strategy: RemoteFeatureStrategy,
        config: RunConfig,
        zero: Callable[[], None],
        state: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._strategy, self._zero = strategy, zero
        self._config: RunConfig | None = None
        self._costs: dict[tuple[int, int], CacheCosts] = {}
        self._made: tuple[tuple[Any, ...], list[Way]] | None = None  # ways, and what they were made of
        self._put_back(state.get(REMOTE, {}))
        self.apply_settings(config)

    def apply_settings(self, config: RunConfig) -> None:
        """Have features come as a config says, from the next step on."""
        before, self._config = self._config, config
        if before is not None and _asked(before) == _asked(config):
            return
        for part, way in zip(self._strategy.parts, self._ways(config), strict=True):
            if way[0].decides and not part.control.probed:
                part.control.probe(self._probe(part))
            part.apply_settings(*way)

    def validate_settings(self, config: RunConfig) -> str:
        """Why features cannot come as a config says; empty where they can. Ranks may differ: memory and fetches do."""
        try:
            if self._config is None or _asked(self._config) != _asked(config):
                for path, _ in self._ways(config):
                    if path.caches:
                        check_cache_memory(path.capacity, self._strategy.service.row_bytes)
        except LabError as error:
            return str(error)
        return ""

    def _ways(self, config: RunConfig) -> list[Way]:
        """Of each part; made once where it is first asked whether they can be made."""
        asked = _asked(config)
        if self._made is None or self._made[0] != asked:
            self._made = asked, [self._way(part, config) for part in self._strategy.parts]
        return self._made[1]

    def _way(self, part: RemotePart, config: RunConfig) -> Way:
        steps = self._strategy.epoch_steps
        links = EmulatedNetwork(config)  # as they will be
        settings = PathSettings(
            part=part.number,
            parts=config.parts,
            window=config["cache_window"],
            bias=config["cache_bias"],
            capacity=config["cache_rows"],
            depth=config["queue_depth"],
            epoch_steps=steps,
            seed=config.seed,
            policy_file=config["policy_file"],
            costs=partial(self._costs_of, part, config),
            links=links,
        )
        way: Way = catalogue.entry("features", config["cache_policy"]).load()(settings)
        return way

    # what a step costs, for policies that think by it

    def _costs_of(self, part: RemotePart, config: RunConfig) -> CacheCosts:
        at = part.number, config["cache_rows"]
        if at not in self._costs:
            idle_w, max_w = config["power_idle_w"], config["power_max_w"]
            stall_w = idle_w / config.ranks
            facts = RunFacts(
                name=config.dataset,
                part=part.number,
                space=self._strategy.service.space,
                capacity=config["cache_rows"],
                row_bytes=self._strategy.service.row_bytes,
                base_s=self._base_s,
                rpc=self._rpc(part),
                busy_w=stall_w + (max_w - idle_w) / (os.cpu_count() or 1),
                stall_w=stall_w,
            )
            count = min(WINDOWS[-1], 2 * self._strategy.epoch_steps)
            self._costs[at] = run_costs(facts, [self._remote_keys(part, number) for number in range(count)])
        return self._costs[at]

    @cached_property
    def _base_s(self) -> float:
        """Seconds of a step whose features are here, the second of two."""
        for _ in range(2):
            began_s = time.perf_counter()
            self._strategy.tried(Unmarked())
        took_s = time.perf_counter() - began_s
        self._zero()
        return took_s

    def _rpc(self, part: RemotePart) -> RpcModel:
        """The law of a fetch over clean links: by what was fetched so far, else by some fetches more."""
        found = part.control.clean_law()
        if found is not None and found[1] > 0:
            return RpcModel(*found)
        service = self._strategy.service
        fetcher = service.fetcher(part.number)
        try:
            return timed_fetches(fetcher, part.number, service.space, row_bytes=service.row_bytes, note=part.probed)
        finally:
            fetcher.close()

    def _probe(self, part: RemotePart) -> RpcModel:
        """The law of a fetch that no link slows: the part's own rows over the loopback. No bytes of training's."""
        service = self._strategy.service
        with service.loopback(part.number) as fetcher:
            return timed_fetches(
                fetcher, part.number, service.space, row_bytes=service.row_bytes, note=lambda _: None, loopback=True
            )

    def _remote_keys(self, part: RemotePart, number: int) -> NDArray[np.int64]:
        keys = part.sampler.sample(number).keys
        return keys[self._strategy.service.space.owners(keys) != part.number]

    # events

    def to_dict(self) -> dict[str, Any]:
        """The event ``features``."""
        config, service, part = self._config, self._strategy.service, self._strategy.parts[0]
        assert config is not None
        every = [part.sampler.sample(number).keys for number in range(min(LOOKED_AT, self._strategy.epoch_steps))]
        remote = sum(int((service.space.owners(keys) != part.number).sum()) for keys in every)
        names = ("cache_policy", "cache_window", "cache_bias", "cache_rows", "batch_size", "batch_length", "fanouts")
        return {
            "parts": config.parts,
            "rows": service.space.size,
            "row_bytes": service.row_bytes,
            "remote_share": remote / max(sum(map(len, every)), 1),
            "steps_per_epoch": self._strategy.epoch_steps,
            "policy": config["cache_policy"],
            "window": config["cache_window"],
            **{name: config[name] for name in names},
        }

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint's plan: what each part of this rank has found clean links and steps to be."""
        found = {str(part.number): part.control.state_dict() for part in self._strategy.parts}
        return {REMOTE: {"parts": self._strategy.service.space.parts, "control": found}}

    def _put_back(self, held: Mapping[str, Any]) -> None:
        if held.get("parts") != self._strategy.service.space.parts:
            return
        for part in self._strategy.parts:
            if str(part.number) in held["control"]:
                part.control.load_state_dict(held["control"][str(part.number)])


def _asked(config: RunConfig) -> tuple[Any, ...]:
    """What the way that features come is made of; of the links only where a policy knows them beforehand."""
    rooms = ("features", "congestion") if config["cache_policy"] == "clairvoyant" else ("features",)
    return tuple(config[name] for room in rooms for name in catalogue.entry(room, catalogue.names(room)[0]).options)


# The parts of a rank whose features are fetched: their batches, pipelines and what decides about their caches.


@dataclass(frozen=True, slots=True)
class MiniBatches:
    """What the mini-batches of all parts have in common.

    Attributes:
        config: the run's settings.
        graph: its data.
        train: the training split.
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
            config.model,
            model.memory,
            config.hidden,
            config.layers,
            norm=config["norm"],
            **config.options.get("models", {}),
        )
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
            self.config.seed,
            part,
            own[self.trained[own]].astype(np.int64),
            size,
            stretches_of(self.train, self.config["batch_length"]),
            rounds_of(counts, size),
            self.alike,
        )

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
    """One part, fetched on demand until its policy changes.

    Args:
        mini: what its batches have in common with the others'.
        part: its number.
        service: of features.
        draw: neighbours.
    """
    sampler = mini.sampler(part, draw)
    steps = sampler.batches.per_epoch
    control = CacheControl(
        part,
        mini.partition.parts,
        epoch_steps=steps,
        row_bytes=service.row_bytes,
        estimator=DelayEstimator(mini.partition.parts - 1),
    )
    made = RemotePart(sampler, control)
    made.pipeline = FeaturePipeline(
        service.own[part],
        sample=made.sample,
        fetcher=lambda: service.fetcher(part),
        path=FeaturePath(mode="on_demand"),
        epoch_steps=steps,
        decide=control.decide,
        watch=control.watch,
        stop=mini.config.epochs * steps,
    )
    return made
