"""GreenDyGNN: mini-batches whose remote features are fetched through a cache."""

from __future__ import annotations

import resource
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from dtdg_lab.core.errors import ClusterError, NotAvailableError, UnsupportedError
from dtdg_lab.core.feature_store import CachePolicy, LinkState, OwnerReply
from dtdg_lab.core.plans import Partition
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.backprop.reference import bring
from dtdg_lab.engine.minibatch_blocks import TargetBlocks
from dtdg_lab.engine.sampled_blocks import BatchSampler, SampledBatch
from dtdg_lab.engine.strategy import Step, StepMarks, StepResult
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import stored_once
from dtdg_lab.kernels.operators import OperatorSettings
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.systems.feature_cache.modes import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline import FeaturePipeline, Resolved
from dtdg_lab.systems.feature_cache.policy_inputs import CacheControl
from dtdg_lab.systems.feature_cache.rpc import FILES, FILES_EACH, FeatureClient, FeatureServer, exchange_addresses
from dtdg_lab.systems.feature_cache.store import KeySpace, OwnRows
from dtdg_lab.systems.hybrid_batches.strategy import TargetRun, TargetSequence, add_gradients
from dtdg_lab.tasks.base import Task

# What serves the features of a rank's parts to the others, and asks theirs.


CLIENTS = 2  # of each part: of what reads batches' rows, and of what builds its cache
SPARE_FILES = 256  # for whatever else the process opens


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
        self._token, self._timeout_s, self._per_rank = token, timeout_s, len(parts)
        self._addresses: dict[int, str] = {}
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
        self._addresses = exchange_addresses(group, self._server.addresses, parts=self.space.parts, device=device)

    @property
    def addresses(self) -> dict[int, str]:
        """Where each part is served, once that is known."""
        return dict(self._addresses)

    def fetcher(self, part: int) -> FeatureClient:
        """Asks on behalf of one of this rank's parts; for one thread."""
        return FeatureClient(
            part,
            self._addresses,
            self._token,
            self.own[part].features,
            self._timeout_s,
            parts_per_rank=self._per_rank,
        )

    def loopback(self, part: int) -> FeatureClient:
        """Asks for one of this rank's parts' own rows, as a requester of its own whose link nothing slows."""
        return FeatureClient(
            self.space.parts,
            {part: self._addresses[part]},
            self._token,
            self.own[part].features,
            self._timeout_s,
            parts_per_rank=self._per_rank,
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
            f"{own} of {parts} parts in one process need about {needed} open files for their connections, of which "
            f"{hard} are allowed. Set fewer parts or more ranks, or have the limit raised (ulimit -Hn)."
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


class RemoteFeatureStrategy:
    """Each step, each part trains one mini-batch: B of its nodes at L snapshots, with sampled neighbours.

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
        UnsupportedError: the task needs all nodes at once, or the model remembers what a batch does not hold.

    References: GreenDyGNN sections II and V; DistDGL (Zheng et al. 2020).

    Differs from the paper: the edges are on every rank and features alone are fetched (DistDGL samples remotely too);
    snapshots of a sequence are served as well, by batches of L snapshots.
    """

    def __init__(
        self,
        model: DynamicModel,
        parts: Sequence[RemotePart],
        task: Task,
        graph: DynamicGraph,
        *,
        service: FeatureService,
        settings: OperatorSettings,
    ) -> None:
        if not task.per_vertex:
            raise UnsupportedError(
                f"task={task.name!r} with mini-batches: its loss needs all nodes at once. Choose system='adgnn-t' "
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
            part.prepare(number)
        marks("batch")
        resolved = [part.next(number) for part in self.parts]
        return self._trained([_blocks(of.sampled, of.rows) for of in resolved], marks)

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
