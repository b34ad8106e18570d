"""GreenDyGNN: mini-batches whose remote features are fetched through a cache."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, LabError, NotAvailableError, UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.backprop.reference import bring
from dtdg_lab.engine.capabilities import Fetched, ObservesSteps, Reconfigurable, ServesFeatures, StepOutcome
from dtdg_lab.engine.minibatch_blocks import BlockShape, TargetBlocks, block_shape
from dtdg_lab.engine.minibatches import SeedBatches, fanouts_of, rounds_of, sampled_edges, stretches_of
from dtdg_lab.engine.sampled_blocks import BatchSampler, DglSampler, NeighbourSampler, SampledBatch, check_in_edges
from dtdg_lab.engine.strategy import BuildContext, RecordRows, Step, StepMarks, StepResult, Strategy, check_per_vertex
from dtdg_lab.engine.target_batches import TargetRun, TargetSequence, add_gradients
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import stored_once
from dtdg_lab.network.emulated_network import KernelLinks, Slowed
from dtdg_lab.network.patterns import LinkState
from dtdg_lab.records.events import Event
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts
from dtdg_lab.systems.feature_cache.costs.rpc_model import RpcModel
from dtdg_lab.systems.feature_cache.costs.run_costs import RunFacts, run_costs, timed_fetches
from dtdg_lab.systems.feature_cache.events import FeatureFacts
from dtdg_lab.systems.feature_cache.pipeline.cached_rows import check_cache_memory
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.feature_pipeline import FeaturePipeline
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace, OwnRows
from dtdg_lab.systems.feature_cache.pipeline.observations import FetchRow
from dtdg_lab.systems.feature_cache.pipeline.resolving import Resolved
from dtdg_lab.systems.feature_cache.policies.builders import PathAndPolicy, PathSettings
from dtdg_lab.systems.feature_cache.policies.control import CacheControl
from dtdg_lab.systems.feature_cache.policies.delay_estimator import DelayEstimator
from dtdg_lab.systems.feature_cache.policies.interface import CachePolicy
from dtdg_lab.systems.feature_cache.rpc.addresses import agree_token, exchange_addresses
from dtdg_lab.systems.feature_cache.rpc.client import FILES, FILES_EACH, FeatureClient
from dtdg_lab.systems.feature_cache.rpc.server import FeatureServer
from dtdg_lab.training.collective import together
from dtdg_lab.training.partition import partition_event

# What serves the features of a rank's parts to the others, and asks theirs.


CLIENTS = 2  # of each part: of what reads batches' rows, and of what builds its cache
SPARE_FILES = 256  # for whatever else the process opens
REMOTE = "remote"  # in the plan of a checkpoint
LOOKED_AT = 8  # batches of a part from which the share of remote rows is estimated


class FeatureService:
    """The server of a rank's parts, in a process of its own, and what asks all the others'.

    Args:
        graph: whose features are served.
        partition: of its nodes into P parts.
        parts: those of this rank.
        last: snapshots from this one on are not asked for.
        token: of the run.
        timeout_s: after which an owner is given up, and the process itself where it does not take an order.
        host: address at which others find this machine.

    Attributes:
        space: of all keys.
        own: rows of each of this rank's parts.
        addresses: where each part is served, once that is known.

    Raises:
        NotAvailableError: pyzmq is missing, the process cannot be started, or this one may not open enough files.
        RunFailedError: the process did not begin.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        partition: Partition,
        parts: range,
        *,
        last: int,
        token: bytes,
        timeout_s: float,
        host: str = "127.0.0.1",
    ) -> None:
        self.space = KeySpace(partition.owner, partition.parts, 1 if graph.static_features else last)
        self.own = {part: OwnRows(part, self.space, _rows_of(graph, partition.vertices(part), last)) for part in parts}
        self._token, self._timeout_s = token, timeout_s
        self.addresses: dict[int, str] = {}
        rows = {part: own.rows for part, own in self.own.items()}
        _room_for_files(len(parts), partition.parts)  # before the process starts, which inherits it
        keys = {part: self.space.of_part(part) for part in parts}
        self._server = FeatureServer(rows, keys, token, host=host, orders_s=timeout_s)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of features."""
        return 4 * next(iter(self.own.values())).features

    def connect(self, group: Group, *, device: str) -> None:
        """Learn where the others' parts are served; collective."""
        self.addresses = exchange_addresses(group, self._server.addresses, parts=self.space.parts, device=device)

    def fetcher(self, part: int, *, loopback: bool = False) -> FeatureClient:
        """Asks on behalf of one of this rank's parts; for one thread.

        With ``loopback`` it asks for the part's own rows, as a requester of its own whose link nothing slows.
        """
        return FeatureClient(
            self.space.parts if loopback else part,
            {part: self.addresses[part]} if loopback else self.addresses,
            self._token,
            self.own[part].features,
            self._timeout_s,
            parts_per_rank=len(self.own),
        )

    def set_links(self, links: LinkState) -> None:
        """Have replies of this rank's parts be as slow as these links; it holds when this returns."""
        self._server.set_links(links)

    @property
    def children(self) -> tuple[int, ...]:
        """Numbers of the processes that serve."""
        return (self._server.pid,)

    def check(self) -> None:
        """Raise what ended the serving process, if anything did."""
        self._server.check()

    def close(self) -> None:
        """End the serving process; a second call does nothing."""
        self._server.close()


def _rows_of(graph: DynamicGraph, vertices: NDArray[np.int64], last: int) -> NDArray[np.float32]:
    """Rows of a part's nodes: once where they never change, else snapshot after snapshot."""
    if graph.static_features:
        once: NDArray[np.float32] = stored_once(graph.features)
        return np.ascontiguousarray((once if once.ndim == 2 else once[0])[vertices])
    return np.ascontiguousarray(graph.features[:last, vertices].reshape(last * len(vertices), -1))


def _room_for_files(own: int, parts: int) -> None:
    """Let this process open as many files as its parts' connections take.

    Raises:
        NotAvailableError: the system does not let it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    each = FILES + FILES_EACH * (parts - 1)
    needed = psutil.Process().num_fds() + (CLIENTS * own + 1) * each + SPARE_FILES  # one more measures fetches
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise NotAvailableError(
            f"{own} of {parts} parts in one process need about {needed} open files for their connections; "
            f"the limit is {hard}. Set fewer parts or more ranks, or have the limit raised (ulimit -Hn)."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def host_towards(group: Group) -> str:
    """The address of this machine from where the run's store is reached: loopback where all ranks are here.

    Raises:
        ClusterError: the store's machine is not known here or cannot be reached.
    """
    host = str(getattr(group.store, "host", "") or "127.0.0.1")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing: it asks which address would
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ClusterError(
            f"this machine finds no way to {host}, where the run's ranks meet: {error}. Give the first node by an IPv4 "
            "address that all nodes can reach, or mend this node's names and routes."
        ) from error


# Mini-batches of each part's nodes, whose features come from whichever part owns them.


class RemotePart:
    """One part: its mini-batches, the pipeline that brings their features, and what decides about its cache.

    Features are fetched on demand until its policy changes.

    Args:
        sampler: of its batches.
        service: of features.
        stop: the step after the run's last.

    Attributes:
        number: of the part.
        control: what the pipeline asks about windows.
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
        """The batch of a step, but for its features."""
        ready = self._ready
        return ready if ready is not None and ready.number == number else self.sampler.sample(number)

    def begin(self, number: int) -> None:
        """Be ready for a step; where it is not the one after the last, the pipeline restarts."""
        if number != self._due:
            self.pipeline.start(number)
        self._due = number + 1
        if not self.pipeline.path.runs_ahead:
            self._ready = self.sampler.sample(number)

    def next(self, number: int) -> Resolved:
        """The batch of the step begun with its features."""
        resolved = self.pipeline.next(number)
        self._ready = None
        return resolved

    def probed(self, reply: OwnerReply) -> None:
        """Note a fetch that was made to see how long one takes."""
        row = FetchRow(self.number, reply.owner, "probe", len(reply.rows), reply.nbytes, reply.rtt_s)
        self._probes.append(row)

    def apply_settings(self, path: FeaturePath, policy: CachePolicy | None) -> None:
        """Have features come so from the next step on."""
        if policy is not None:
            self.control.policy = policy
        self.pipeline.apply_settings(path)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """What was noted since this was last asked, by table."""
        taken = self.pipeline.taken()
        probes, self._probes = self._probes, []
        return {**taken, "fetches": probes + taken["fetches"], "cache_decisions": self.control.taken()}

    def close(self) -> None:
        """End the pipeline; a second call does nothing."""
        self._due = -1
        self.pipeline.close()


# The strategy.


MEMORIES = ("per_vertex", "weights", "none")


class RemoteFeatureStrategy(Strategy, Reconfigurable, ObservesSteps, ServesFeatures):
    """Each step, each part trains one mini-batch: B of its nodes at L snapshots, with sampled neighbours.

    A batch is a pure function of seed, part and step, and features arrive unchanged whatever way they take: losses and
    gradients are the same bits under every cache policy. A step's gradients are means over parts whose batch has
    labels. Every batch begins from state zero.

    Args:
        context: what it is built from; the memory of its model is ``per_vertex``, ``weights`` or ``none``.
        parts: those of this rank.
        service: of features, connected to the others.

    References: GreenDyGNN sections II and V; DistDGL (Zheng et al. 2020).

    Differs from the paper: the edges are on every rank and features alone are fetched (DistDGL samples remotely too);
    snapshots of a sequence are served as well, by batches of L snapshots.
    """

    def __init__(
        self,
        context: BuildContext,
        parts: Sequence[RemotePart],
        service: FeatureService,
    ) -> None:
        self.context, self.parts, self.service = context, tuple(parts), service
        self._model, self._task, self._graph = context.model, context.task, context.sequence.graph
        self._settings, self._total = context.sequence.settings, service.space.parts
        self.epoch_steps = self.parts[0].sampler.batches.per_epoch
        self._epoch = 0
        self._costs: dict[tuple[int, int], CacheCosts] = {}
        self._asked: tuple[Any, ...] | None = None  # what features come by
        self._link_policies: set[str] = set()  # that have asked for the links
        self._made: tuple[tuple[Any, ...], list[PathAndPolicy]] | None = None  # ways, and what they were made of
        held = context.state.get(REMOTE, {})
        if held.get("parts") == self._total:
            for part in self.parts:
                if str(part.number) in held["control"]:
                    part.control.load_state_dict(held["control"][str(part.number)])
        self.apply_settings(context.config)

    def epoch(self, epoch: int) -> Sequence[Step]:
        """As many steps in every epoch; what is computed next is of this one."""
        self._epoch = epoch
        own = tuple(part.number for part in self.parts)
        return tuple(Step(number, own, self._total) for number in range(self.epoch_steps))

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Gradients of a batch of each of this rank's parts, one part after another."""
        number = self._epoch * self.epoch_steps + work.iteration
        self.service.check()
        for part in self.parts:
            part.begin(number)  # all before any is waited for: first caches are made side by side
        marks("batch")
        resolved = [part.next(number) for part in self.parts]
        blocks = []
        for of in resolved:
            assert isinstance(of.sampled, SampledBatch)
            blocks.append(of.sampled.with_features(of.rows))
        return self._trained(blocks, marks)

    def tried(self, marks: StepMarks) -> None:
        """Compute the first step with features that are here, for its memory; not noted down."""
        blocks = []
        for part in self.parts:
            sampled = part.sampler.sample(0)
            times, vertices = np.divmod(sampled.keys, self._graph.num_nodes)  # all at 0 where features never change
            blocks.append(sampled.with_features(np.asarray(self._graph.features[times, vertices])))
        marks("batch")
        self._trained(blocks, marks)

    def _trained(self, blocks: Sequence[TargetBlocks], marks: StepMarks) -> StepResult:
        runs = [
            TargetRun(self._model, TargetSequence(of, self._settings), self._task, of.batch.snapshots, "all")
            for of in blocks
        ]
        for run in runs:
            bring(run)
        marks("transfer")
        loss_sum = sum(float(add_gradients(run)) for run in runs)
        labelled = sum(run.num_labelled > 0 for run in runs)
        return StepResult(loss_sum, labelled, sum(run.own * len(run.snapshots) for run in runs))

    def rows(self) -> RecordRows:
        """Return and forget rows of ``resolved``, ``fetches``, ``windows`` and ``cache_decisions``."""
        every = [part.rows() for part in self.parts]
        return {table: [row for rows in every for row in rows[table]] for table in every[0]}

    def fetched(self, rows: RecordRows) -> Fetched:
        """Return the bytes fetched for training, and the seconds that it waited for batches and first caches."""
        received = sum(row.bytes for row in rows["fetches"] if row.purpose != "probe")  # type: ignore[attr-defined]
        wait_s = sum(row.wait_s for row in rows["resolved"])  # type: ignore[attr-defined]
        return Fetched(received, wait_s + sum(row.exposed_s for row in rows["windows"]))  # type: ignore[attr-defined]

    def close(self) -> None:
        """End all pipelines and what serves; a second call does nothing."""
        for part in self.parts:
            part.close()
        self.service.close()

    # around training

    plan_kinds = ("partition", "features")
    fails_by_rank = True  # memory and fetches differ

    def slowable_links(self, group: Group) -> Slowed:
        """The links over which features are fetched, slowed by their servers or by the kernel; collective."""
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
        """Numbers of the processes that serve features for this rank."""
        return self.service.children

    def on_step_end(self, outcome: StepOutcome) -> None:
        """Report to the parts' policies what the step took."""
        for part in self.parts:
            part.pipeline.stepped(outcome.seconds, outcome.energy_j)

    def probe_steps(self) -> Iterator[Callable[[StepMarks], Any]]:
        """The first step, with features that are here."""
        yield self.tried

    def plan_events(self) -> list[Event]:
        """The partition, and how features come."""
        config, space = self._config, self.service.space
        every = [self.parts[0].sampler.keys(number) for number in range(min(LOOKED_AT, self.epoch_steps))]
        remote = sum(int((space.owners(keys) != self.parts[0].number).sum()) for keys in every)
        names = ("cache_bias", "cache_rows", "batch_size", "batch_length", "fanouts")
        features = FeatureFacts(
            parts=config.parts,
            rows=space.size,
            row_bytes=self.service.row_bytes,
            remote_share=remote / max(sum(map(len, every)), 1),
            steps_per_epoch=self.epoch_steps,
            policy=config["cache_policy"],
            window=config["cache_window"],
            **{name: config[name] for name in names},
        )
        return [partition_event(self.context), features]

    def state_dict(self) -> dict[str, Any]:
        """What each part of this rank has found clean links and steps to be."""
        found = {str(part.number): part.control.state_dict() for part in self.parts}
        return {REMOTE: {"parts": self._total, "control": found}}

    def apply_settings(self, config: RunConfig) -> None:
        """Have features come as a config says, from the next step on."""
        self._config = config
        if self._asked == self._asked_of(config):
            return
        for part, way in zip(self.parts, self._ways(config), strict=True):
            if way[0].decides and not part.control.probed:
                with self.service.fetcher(part.number, loopback=True) as fetcher:
                    # the law of a fetch that no link slows; no bytes of training's
                    part.control.probe(self._timed(fetcher, part, note=lambda _: None, loopback=True))
            part.apply_settings(*way)
        self._asked = self._asked_of(config)

    def validate_settings(self, config: RunConfig) -> str:
        """Why features cannot come as a config says; empty where they can. Ranks may differ: memory and fetches do."""
        try:
            if self._asked != self._asked_of(config):
                for path, _ in self._ways(config):
                    if path.caches:
                        check_cache_memory(path.capacity, self.service.row_bytes)
        except LabError as error:
            return str(error)
        return ""

    def _ways(self, config: RunConfig) -> list[PathAndPolicy]:
        """Of each part; made once where it is first asked whether they can be made."""
        asked = self._asked_of(config)
        if self._made is None or self._made[0] != asked:
            make = catalogue.entry("features", config["cache_policy"]).load()
            costs = [partial(self._costs_of, part, config) for part in self.parts]
            given = [
                PathSettings(config, part.number, self.epoch_steps, of)
                for part, of in zip(self.parts, costs, strict=True)
            ]
            ways = [make(settings) for settings in given]
            if any(settings.knows_links for settings in given):
                self._link_policies.add(config["cache_policy"])
            self._made = self._asked_of(config), ways
        return self._made[1]

    def _asked_of(self, config: RunConfig) -> tuple[Any, ...]:
        """What the way that features come is made of; of the links only where a policy has asked for them."""
        kinds = ("features", "congestion") if config["cache_policy"] in self._link_policies else ("features",)
        return tuple(sorted((name, value) for kind in kinds for name, value in config.options.get(kind, {}).items()))

    # what a step costs, for policies that think by it

    def _costs_of(self, part: RemotePart, config: RunConfig) -> CacheCosts:
        at = part.number, config["cache_rows"]
        if at not in self._costs:
            idle_w, max_w = config["power_idle_w"], config["power_max_w"]
            stall_w, space = idle_w / config.ranks, self.service.space
            facts = RunFacts(
                name=config.dataset,
                part=part.number,
                space=space,
                capacity=config["cache_rows"],
                row_bytes=self.service.row_bytes,
                base_s=self._base_s,
                rpc=self._rpc(part),
                busy_w=stall_w + (max_w - idle_w) / (os.cpu_count() or 1),
                stall_w=stall_w,
            )
            every = (part.sampler.keys(number) for number in range(min(WINDOWS[-1], 2 * self.epoch_steps)))
            self._costs[at] = run_costs(facts, [keys[space.owners(keys) != part.number] for keys in every])
        return self._costs[at]

    @cached_property
    def _base_s(self) -> float:
        """Seconds of a step whose features are here, the second of two."""
        for _ in range(2):
            began_s = time.perf_counter()
            self.tried(StepMarks())
        duration_s = time.perf_counter() - began_s
        self.context.gradients.zero()
        return duration_s

    def _rpc(self, part: RemotePart) -> RpcModel:
        """The law of a fetch over clean links: by what was fetched so far, else by some fetches more."""
        found = part.control.clean_law()
        if found is not None and found[1] > 0:
            return RpcModel(*found)
        with self.service.fetcher(part.number) as fetcher:
            return self._timed(fetcher, part, note=part.probed)

    def _timed(
        self,
        fetcher: FeatureClient,
        part: RemotePart,
        *,
        note: Callable[[OwnerReply], None],
        loopback: bool = False,
    ) -> RpcModel:
        space, row_bytes = self.service.space, self.service.row_bytes
        return timed_fetches(fetcher, part.number, space, row_bytes=row_bytes, note=note, loopback=loopback)


def build(of: BuildContext) -> RemoteFeatureStrategy:
    """Mini-batches whose remote features are fetched from the ranks that own them; collective.

    Raises:
        LabError: the features or caches do not fit, or no server could be started.
    """
    assert of.partition is not None
    token, config = agree_token(of.group), of.config
    with ExitStack() as undone:  # ends what runs already where the rest fails
        with together(of.group, device=of.device):
            _check_model(of)
            samplers = _samplers(of, of.partition)
            service = FeatureService(
                of.sequence.graph,
                of.partition,
                of.parts,
                last=of.train.stop,
                token=token,
                timeout_s=config["fetch_timeout_s"],
                host=host_towards(of.group),
            )
            undone.callback(service.close)
            rows = min(config["cache_rows"], service.space.size)
            check_cache_memory(rows, service.row_bytes, caches=len(of.parts))
            parts = [RemotePart(each, service, config.epochs * each.batches.per_epoch) for each in samplers]
            for part in parts:
                undone.callback(part.close)
        service.connect(of.group, device=of.device)
        strategy = RemoteFeatureStrategy(of, parts, service)
        undone.pop_all()
    return strategy


def _check_model(of: BuildContext) -> None:
    """Refuse tasks and models that mini-batches cannot train.

    Raises:
        UnsupportedError: the task needs all nodes at once, or the model remembers what a batch does not hold.
    """
    check_per_vertex(of.task, "with mini-batches")
    if of.model.memory not in MEMORIES:
        raise UnsupportedError(
            f"a model that remembers {of.model.memory} with mini-batches, which carry {', '.join(MEMORIES)}. Choose "
            "system='adgnn-t' (halo_vertex), or another model."
        )


def _samplers(of: BuildContext, partition: Partition) -> list[BatchSampler]:
    """Of the mini-batches of each of this rank's parts.

    Raises:
        UnsupportedError: the model pulls along out-edges.
    """
    config, graph, size = of.config, of.sequence.graph, of.config["batch_size"]
    facts = of.model.facts
    check_in_edges(facts.directions, config.system)
    shape = block_shape(facts, norm=config["norm"])
    shape = replace(shape, neighbours=facts.sends_messages, weighted=graph.weighted)
    draw, fanouts = neighbour_sampler(config, shape), fanouts_of(config["fanouts"], config.layers)
    first = graph.snapshots[of.train.start]
    same = all(first is each or first.equals(each) for each in (graph.snapshots[t] for t in of.train))
    trained = np.asarray(of.task.trains())
    nodes = [partition.vertices(part) for part in range(partition.parts)]
    seeds = [own[trained[own]].astype(np.int64) for own in nodes]
    stretches, rounds = stretches_of(of.train, config["batch_length"]), rounds_of([len(own) for own in seeds], size)
    alike = graph.static_features and same
    return [
        BatchSampler(
            graph, SeedBatches(config.seed, part, seeds[part], size, stretches, rounds, alike), shape, fanouts, draw
        )
        for part in of.parts
    ]


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
