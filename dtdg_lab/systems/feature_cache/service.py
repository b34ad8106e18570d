"""What serves and fetches the features of a rank's partitions."""

from __future__ import annotations

import resource
import socket
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from dtdg_lab.core.errors import ClusterError, NotAvailableError
from dtdg_lab.core.feature_store import CachePolicy, LinkState, OwnerReply
from dtdg_lab.core.plans import Partition
from dtdg_lab.distributed.group import Group
from dtdg_lab.engine.sampled_blocks import BatchSampler, SampledBatch
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import stored_once
from dtdg_lab.systems.feature_cache.modes import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline import FeaturePipeline, Resolved
from dtdg_lab.systems.feature_cache.policy_inputs import CacheControl
from dtdg_lab.systems.feature_cache.rpc import FILES, FILES_EACH, FeatureClient, FeatureServer, exchange_addresses
from dtdg_lab.systems.feature_cache.store import KeySpace, OwnRows

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
        """Be ready for a step; where it is not the one after the last, the pipeline restarts."""
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
