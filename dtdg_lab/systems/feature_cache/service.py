"""The feature service of a rank: a server in its own process, and clients of all other servers."""

from __future__ import annotations

import resource
import socket

import numpy as np
import psutil
from numpy.typing import NDArray

from dtdg_lab.core.errors import ClusterError, NotAvailableError
from dtdg_lab.core.plans import Partition
from dtdg_lab.distributed.group import Group
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import stored_once
from dtdg_lab.network.links import LinkState
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace, OwnRows
from dtdg_lab.systems.feature_cache.rpc.client import FILES, FILES_EACH, FeatureClient
from dtdg_lab.systems.feature_cache.rpc.server import FeatureServer, exchange_addresses

CLIENTS = 2  # per part: one reads rows of batches, one builds its cache
SPARE_FILES = 256  # for all other files of the process


class FeatureService:
    """The server of a rank's parts in a child process, and the clients that request rows of all other parts.

    Args:
        graph: the graph whose features are served.
        partition: of its nodes into P parts.
        parts: the parts of this rank.
        last: first snapshot that is never requested.
        token: token of the run.
        timeout_s: seconds without a message after which an owner, or the child process, is considered failed.
        host: address of this machine for the other ranks.

    Attributes:
        space: the space of all keys.
        own: rows of each part of this rank.
        addresses: address of each part's server; empty before :meth:`connect`.

    Raises:
        NotAvailableError: pyzmq is missing, the process cannot start, or the limit of open files is too low.
        RunFailedError: the process did not start in time.
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
        self.own = {
            part: OwnRows(part, self.space, _part_rows(graph, partition.vertices(part), last)) for part in parts
        }
        self._token, self._timeout_s = token, timeout_s
        self.addresses: dict[int, str] = {}
        _raise_file_limit(len(parts), partition.parts)  # before the child starts, since it inherits the limit
        rows = {part: own_rows.rows for part, own_rows in self.own.items()}
        keys = {part: self.space.of_part(part) for part in parts}
        self._server = FeatureServer(rows, keys, token, host=host, orders_s=timeout_s)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of features."""
        return 4 * next(iter(self.own.values())).features

    def connect(self, group: Group, *, device: str) -> None:
        """Receive the addresses of all parts' servers; collective."""
        self.addresses = exchange_addresses(group, self._server.addresses, parts=self.space.parts, device=device)

    def fetcher(self, part: int, *, loopback: bool = False) -> FeatureClient:
        """Open a client for one of this rank's parts, for one thread.

        With ``loopback`` it requests the part's own rows, under a requester's number whose link is never slowed down.
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
        """Slow down the replies of this rank's parts like the links; in effect on return."""
        self._server.set_links(links)

    @property
    def children(self) -> tuple[int, ...]:
        """Process identifiers of the server."""
        return (self._server.pid,)

    def check(self) -> None:
        """Raise if the server process has exited."""
        self._server.check()

    def close(self) -> None:
        """End the server process; idempotent."""
        self._server.close()


def host_towards(group: Group) -> str:
    """Return this machine's address towards the run's store: loopback if all ranks are on this machine.

    Raises:
        ClusterError: the store's machine is unknown or cannot be reached.
    """
    host = str(getattr(group.store, "host", "") or "127.0.0.1")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing, but determines the local address
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ClusterError(
            f"this machine cannot reach {host}, where the run's ranks meet: {error}. Give the first node by an IPv4 "
            "address that all nodes can reach, or repair this node's name resolution and routes."
        ) from error


def _part_rows(graph: DynamicGraph, vertices: NDArray[np.int64], last: int) -> NDArray[np.float32]:
    """Return the rows of a part's nodes: once if they never change, otherwise snapshot after snapshot."""
    if graph.static_features:
        once: NDArray[np.float32] = stored_once(graph.features)
        return np.ascontiguousarray((once if once.ndim == 2 else once[0])[vertices])
    return np.ascontiguousarray(graph.features[:last, vertices].reshape(last * len(vertices), -1))


def _raise_file_limit(own_parts: int, parts: int) -> None:
    """Raise this process's limit of open files to the number that its parts' connections need.

    Raises:
        NotAvailableError: the system does not allow that many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files_per_client = FILES + FILES_EACH * (parts - 1)
    clients = CLIENTS * own_parts + 1  # one more to measure fetches
    needed = psutil.Process().num_fds() + clients * files_per_client + SPARE_FILES
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise NotAvailableError(
            f"{own_parts} of {parts} parts in one process need about {needed} open files for their connections, but "
            f"the limit is {hard}. Set fewer parts or more ranks, or raise the limit (ulimit -Hn)."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
