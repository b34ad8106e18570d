"""GreenDyGNN: mini-batches whose remote features are fetched through a cache."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError, UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.backprop.reference import bring
from dtdg_lab.engine.capabilities import Fetched, ObservesSteps, Reconfigurable, ServesFeatures, StepOutcome
from dtdg_lab.engine.minibatch.blocks import TargetBlocks, block_shape
from dtdg_lab.engine.minibatch.neighbour_sampling import check_in_edges
from dtdg_lab.engine.minibatch.sampled_batches import (
    BatchSampler,
    SampledBatch,
    SeedBatches,
    fanouts_of,
    rounds_of,
    stretches_of,
)
from dtdg_lab.engine.minibatch.target_sequence import TargetRun, TargetSequence, add_gradients
from dtdg_lab.engine.strategy import (
    BuildContext,
    ReadRows,
    Step,
    StepMarks,
    StepResult,
    Strategy,
    check_per_vertex,
    loss_sum,
)
from dtdg_lab.network.emulated_network import KernelLinks, SlowableLinks
from dtdg_lab.records.events import Event
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts, RpcModel
from dtdg_lab.systems.feature_cache.costs.run_costs import RunFacts, run_costs, timed_fetches
from dtdg_lab.systems.feature_cache.events import FeatureFacts
from dtdg_lab.systems.feature_cache.pipeline.cache import check_cache_memory
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.feature_pipeline import FeaturePipeline
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.observations import FetchRow, StepTime
from dtdg_lab.systems.feature_cache.pipeline.resolving import Resolved
from dtdg_lab.systems.feature_cache.policies.builders import PathAndPolicy, PathSettings
from dtdg_lab.systems.feature_cache.policies.control import CacheControl
from dtdg_lab.systems.feature_cache.policies.delay_estimator import DelayEstimator
from dtdg_lab.systems.feature_cache.policies.interface import CachePolicy
from dtdg_lab.systems.feature_cache.rpc.server import agree_token
from dtdg_lab.systems.feature_cache.service import FeatureService, host_towards
from dtdg_lab.training.collective import together
from dtdg_lab.training.partition import partition_event


class RemotePart:
    """A part of this rank; its features are fetched on demand until :meth:`apply_settings` changes that.

    Args:
        sampler: sampler of its batches.
        service: feature service of the rank.
        stop: the step after the run's last.

    Attributes:
        number: index of the part.
        control: decides the windows of its cache.
        pipeline: delivers its batches with features.
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
        """Prepare a step; restart the pipeline unless the step follows the previous one."""
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
        """Record a fetch that only measures time."""
        row = FetchRow(self.number, reply.owner, "probe", len(reply.rows), reply.nbytes, reply.rtt_s)
        self._probes.append(row)

    def apply_settings(self, path: FeaturePath, policy: CachePolicy | None) -> None:
        """Use a path and a policy from the next step on; None keeps the current policy."""
        if policy is not None:
            self.control.policy = policy
        self.pipeline.apply_settings(path)

    def rows(self) -> ReadRows:
        """Return the new rows by table, and forget them."""
        rows, probes = self.pipeline.take_rows(), self._probes
        self._probes = []
        return {**rows, "fetches": [*probes, *rows["fetches"]], "cache_decisions": [*self.control.take_rows()]}

    def close(self) -> None:
        """Stop the pipeline; idempotent."""
        self._due = -1
        self.pipeline.close()


REMOTE = "remote"  # key in the state of a checkpoint
FACT_BATCHES = 8  # batches of a part from which the share of remote rows is estimated
MEMORIES = ("per_vertex", "weights", "none")


class RemoteFeatureStrategy(Strategy, Reconfigurable, ObservesSteps, ServesFeatures):
    """Each part trains one mini-batch per step: B of its nodes at L snapshots, with sampled neighbours.

    A batch is a pure function of seed, part and step, and features are the same under every cache policy: losses and
    gradients are equal bit by bit. A step's gradients are means over parts whose batch has labels. Every batch starts
    from a zero state.

    Args:
        context: the run's model, graph, task and settings; the model's memory is ``per_vertex``, ``weights`` or
            ``none``.
        parts: the parts of this rank.
        service: the feature service, connected to the others.

    References: GreenDyGNN sections II and V; DistDGL (Zheng et al. 2020).

    Differs from the paper: every rank has all edges, and only features are fetched (DistDGL also samples remotely).
    Sequences of snapshots are supported, by batches of L snapshots.
    """

    plan_kinds = ("partition", "features")
    fails_by_rank = True  # memory and fetches differ between ranks

    def __init__(self, context: BuildContext, parts: Sequence[RemotePart], service: FeatureService) -> None:
        self.context, self.parts, self.service = context, tuple(parts), service
        self._model, self._task, self._graph = context.model, context.task, context.sequence.graph
        self._settings, self._total = context.sequence.settings, service.space.parts
        self.epoch_steps = self.parts[0].sampler.batches.per_epoch
        self._epoch = 0
        self._costs: dict[tuple[int, int], CacheCosts] = {}
        self._applied: tuple[Any, ...] | None = None  # the settings in use
        self._link_policies: set[str] = set()  # policies that know the links
        self._built: tuple[tuple[Any, ...], list[PathAndPolicy]] | None = None  # settings, and paths built from them
        state = context.state.get(REMOTE, {})
        if state.get("parts") == self._total:
            for part in self.parts:
                if str(part.number) in state["control"]:
                    part.control.load_state_dict(state["control"][str(part.number)])
        self.apply_settings(context.config)

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return the steps of an epoch; later computations use its batches. Every epoch has the same number."""
        self._epoch = epoch
        numbers = tuple(part.number for part in self.parts)
        return tuple(Step(step, numbers, self._total) for step in range(self.epoch_steps))

    def compute(self, step: Step, marks: StepMarks) -> StepResult:
        """Add the gradients of a batch of each of this rank's parts, one part after another."""
        number = self._epoch * self.epoch_steps + step.iteration
        self.service.check()
        for part in self.parts:
            part.begin(number)  # all parts before waiting for any, so that first caches are built concurrently
        marks("batch")
        blocks = []
        for resolved in [part.next(number) for part in self.parts]:
            assert isinstance(resolved.sampled, SampledBatch)
            blocks.append(resolved.sampled.with_features(resolved.rows))
        return self._train(blocks, marks)

    def tried(self, marks: StepMarks) -> None:
        """Compute the first step with local features to measure its memory; record nothing."""
        blocks = []
        for part in self.parts:
            sampled = part.sampler.sample(0)
            times, vertices = np.divmod(sampled.keys, self._graph.num_nodes)  # time 0 if features never change
            blocks.append(sampled.with_features(np.asarray(self._graph.features[times, vertices])))
        marks("batch")
        self._train(blocks, marks)

    def _train(self, blocks: Sequence[TargetBlocks], marks: StepMarks) -> StepResult:
        runs = [
            TargetRun(self._model, TargetSequence(block, self._settings), self._task, block.batch.snapshots, "all")
            for block in blocks
        ]
        for run in runs:
            bring(run)
        marks("transfer")
        losses = [add_gradients(run) for run in runs]
        labelled = sum(run.num_labelled > 0 for run in runs)
        return StepResult(
            loss_sum(losses, self.context.device), labelled, sum(run.own * len(run.snapshots) for run in runs)
        )

    def rows(self) -> ReadRows:
        """Return the rows of ``resolved``, ``fetches``, ``windows`` and ``cache_decisions``, and forget them."""
        rows_of_parts = [part.rows() for part in self.parts]
        return {table: [row for rows in rows_of_parts for row in rows[table]] for table in rows_of_parts[0]}

    def fetched(self, rows: ReadRows) -> Fetched:
        """Return the bytes fetched for training, and the seconds that it waited for batches and first caches."""
        received = sum(row.bytes for row in rows["fetches"] if row.purpose != "probe")  # type: ignore[attr-defined]
        wait_s = sum(row.wait_s for row in rows["resolved"])  # type: ignore[attr-defined]
        return Fetched(received, wait_s + sum(row.exposed_s for row in rows["windows"]))  # type: ignore[attr-defined]

    def close(self) -> None:
        """Stop all pipelines and the server process; idempotent."""
        for part in self.parts:
            part.close()
        self.service.close()

    def slowable_links(self, group: Group) -> SlowableLinks:
        """Return the links of features, to be slowed down by their servers or by the kernel; collective."""
        if self.context.config["congestion_by"] == "emulated":
            return self.service
        links: KernelLinks | None = None
        try:
            with together(group, device=self.context.device):
                links = KernelLinks(self.service.addresses, leads=group.rank == 0)
        except BaseException:
            if links is not None:
                links.close()
            raise
        return links

    @property
    def children(self) -> tuple[int, ...]:
        """Process identifiers of the feature servers of this rank."""
        return self.service.children

    def on_step_end(self, outcome: StepOutcome) -> None:
        """Report the time and energy of a step to the parts' policies."""
        # parts share the processors of their rank
        starts = any(part.pipeline.is_starting(outcome.step) for part in self.parts)
        time = StepTime(outcome.seconds, outcome.readings, step=outcome.step, starts=starts)
        for part in self.parts:
            part.pipeline.stepped(time)

    @property
    def reads_energy(self) -> bool:
        """Whether a policy decides, and therefore gets the energy of the steps."""
        return any(part.pipeline.path.decides for part in self.parts)

    def probe_steps(self) -> Iterator[Callable[[StepMarks], Any]]:
        """Yield the first step, with local features."""
        yield self.tried

    def plan_events(self) -> list[Event]:
        """Return the partition and the facts of feature fetching."""
        config, space, part = self._config, self.service.space, self.parts[0]
        batches = [part.sampler.keys(number) for number in range(min(FACT_BATCHES, self.epoch_steps))]
        remote = sum(int((space.owners(keys) != part.number).sum()) for keys in batches)
        names = ("cache_bias", "cache_rows", "batch_size", "batch_length", "fanouts")
        features = FeatureFacts(
            parts=config.parts,
            rows=space.size,
            row_bytes=self.service.row_bytes,
            remote_share=remote / max(sum(map(len, batches)), 1),
            steps_per_epoch=self.epoch_steps,
            policy=config["cache_policy"],
            window=config["cache_window"],
            **{name: config[name] for name in names},
        )
        return [partition_event(self.context), features]

    def state_dict(self) -> dict[str, Any]:
        """Return the times of clean links and steps that each part of this rank has measured."""
        control = {str(part.number): part.control.state_dict() for part in self.parts}
        return {REMOTE: {"parts": self._total, "control": control}}

    def apply_settings(self, config: RunConfig) -> None:
        """Fetch features as a config says, from the next step on."""
        self._config = config
        if self._applied == self._settings_of(config):
            return
        for part, (path, policy) in zip(self.parts, self._paths(config), strict=True):
            if path.decides and not part.control.probed:
                # time a fetch on an unslowed link; its bytes do not count towards training
                part.control.probe(self._timed_fetches(part, loopback=True, note=lambda reply: None))
            part.apply_settings(path, policy)
        self._applied = self._settings_of(config)

    def validate_settings(self, config: RunConfig) -> str:
        """Return the reason why a config's feature path is impossible, empty if it is possible; ranks may differ."""
        try:
            if self._applied != self._settings_of(config):
                for path, _ in self._paths(config):
                    if path.caches:
                        check_cache_memory(path.capacity, self.service.row_bytes)
        except LabError as error:
            return str(error)
        return ""

    def _paths(self, config: RunConfig) -> list[PathAndPolicy]:
        """Return the path and policy of each part; built once for validation and use."""
        if self._built is None or self._built[0] != self._settings_of(config):
            build_path = catalogue.entry("features", config["cache_policy"]).load()
            settings = [
                PathSettings(config, part.number, self.epoch_steps, partial(self._costs_of, part, config))
                for part in self.parts
            ]
            paths = [build_path(of_part) for of_part in settings]
            if any(of_part.knows_links for of_part in settings):
                self._link_policies.add(config["cache_policy"])
            self._built = self._settings_of(config), paths
        return self._built[1]

    def _settings_of(self, config: RunConfig) -> tuple[Any, ...]:
        """Return the settings that paths are built from, including those of links if a policy knows the links."""
        kinds = ("features", "congestion") if config["cache_policy"] in self._link_policies else ("features",)
        return tuple(sorted((name, value) for kind in kinds for name, value in config.options.get(kind, {}).items()))

    def _costs_of(self, part: RemotePart, config: RunConfig) -> CacheCosts:
        """Return the costs of a part's steps, for policies with a cost model."""
        key = part.number, config["cache_rows"]
        if key not in self._costs:
            idle_w, max_w = config["power_idle_w"], config["power_max_w"]
            stall_w, space = idle_w / config.ranks, self.service.space
            facts = RunFacts(
                name=config.dataset,
                part=part.number,
                space=space,
                capacity=config["cache_rows"],
                row_bytes=self.service.row_bytes,
                base_s=self._base_s,
                rpc=self._rpc_model(part),
                busy_w=stall_w + (max_w - idle_w) / (os.cpu_count() or 1),
                stall_w=stall_w,
            )
            batches = (part.sampler.keys(number) for number in range(min(WINDOWS[-1], 2 * self.epoch_steps)))
            self._costs[key] = run_costs(facts, [keys[space.owners(keys) != part.number] for keys in batches])
        return self._costs[key]

    @cached_property
    def _base_s(self) -> float:
        """Seconds of a step with local features; the second of two is measured."""
        for _ in range(2):
            began_s = time.perf_counter()
            self.tried(StepMarks())
        duration_s = time.perf_counter() - began_s
        self.context.gradients.zero()
        return duration_s

    def _rpc_model(self, part: RemotePart) -> RpcModel:
        """Return the model of a fetch over clean links, from the fetches so far or else from new ones."""
        line = part.control.clean_line()
        if line is not None and line[1] > 0:
            return RpcModel(*line)
        return self._timed_fetches(part, note=part.record_probe)

    def _timed_fetches(
        self, part: RemotePart, *, note: Callable[[OwnerReply], None], loopback: bool = False
    ) -> RpcModel:
        space, row_bytes = self.service.space, self.service.row_bytes
        with self.service.fetcher(part.number, loopback=loopback) as fetcher:
            return timed_fetches(fetcher, part.number, space, row_bytes=row_bytes, note=note, loopback=loopback)


def build(context: BuildContext) -> RemoteFeatureStrategy:
    """Start the servers and pipelines of a rank, and return its strategy; collective.

    Raises:
        LabError: the features or caches do not fit, or a server could not be started.
    """
    assert context.partition is not None
    token, config = agree_token(context.group), context.config
    with ExitStack() as undo:  # closes everything that was started if a later step fails
        with together(context.group, device=context.device):
            _check_model(context)
            samplers = _samplers(context, context.partition)
            service = FeatureService(
                context.sequence.graph,
                context.partition,
                context.parts,
                last=context.train.stop,
                token=token,
                timeout_s=config["fetch_timeout_s"],
                host=host_towards(context.group),
            )
            undo.callback(service.close)
            rows = min(config["cache_rows"], service.space.size)
            check_cache_memory(rows, service.row_bytes, caches=len(context.parts))
            parts = [RemotePart(sampler, service, config.epochs * sampler.batches.per_epoch) for sampler in samplers]
            for part in parts:
                undo.callback(part.close)
        service.connect(context.group, device=context.device)
        strategy = RemoteFeatureStrategy(context, parts, service)
        undo.pop_all()
    return strategy


def _check_model(context: BuildContext) -> None:
    """Raise if mini-batches cannot train the task or the model.

    Raises:
        UnsupportedError: the task needs all nodes at once, or the model's state needs nodes outside the batch.
    """
    check_per_vertex(context.task, "with mini-batches")
    if context.model.memory not in MEMORIES:
        raise UnsupportedError(
            f"a model with memory={context.model.memory!r} with mini-batches, which support {', '.join(MEMORIES)}. "
            "Choose system='adgnn-t' (halo_vertex), or another model."
        )


def _samplers(context: BuildContext, partition: Partition) -> list[BatchSampler]:
    """Return the sampler of each of this rank's parts.

    Raises:
        UnsupportedError: the model aggregates along out-edges.
    """
    config, graph, train = context.config, context.sequence.graph, context.train
    facts = context.model.facts
    check_in_edges(facts.directions, config.system)
    shape = block_shape(facts, norm=config["norm"])
    shape = replace(shape, neighbours=facts.sends_messages, weighted=graph.weighted)
    fanouts = fanouts_of(config["fanouts"], config.layers)
    first = graph.snapshots[train.start]
    is_static = graph.static_features and all(
        first is snapshot or first.equals(snapshot) for snapshot in (graph.snapshots[t] for t in train)
    )
    trained = np.asarray(context.task.trains())
    nodes = [partition.vertices(part) for part in range(partition.parts)]
    seeds = [vertices[trained[vertices]].astype(np.int64) for vertices in nodes]
    stretches = stretches_of(train, config["batch_length"])
    rounds = rounds_of([len(vertices) for vertices in seeds], config["batch_size"])
    batches = [
        SeedBatches(config.seed, part, seeds[part], config["batch_size"], stretches, rounds, is_static)
        for part in context.parts
    ]
    return [BatchSampler(graph, of_part, shape, fanouts) for of_part in batches]
