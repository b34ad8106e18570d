"""A client that requests feature rows from all owners at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import NotAvailableError, PlanError, RunFailedError
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply
from dtdg_lab.systems.feature_cache.rpc.frames import COMING, REFUSED, USER, Reply, read_reply, request_frames

try:
    import zmq
    from zmq.utils.monitor import parse_monitor_message
except ImportError as error:
    raise NotAvailableError(
        f"serving features needs pyzmq, which cannot be imported: {error}. Run: pip install pyzmq."
    ) from error

POLL_MS = 50  # interval at which a waiting client checks if it was closed
SOCKETS_EACH = 3  # per owner: the connection, and both ends of its monitor
FILES, FILES_EACH = 5, 4  # open files of a client, in total and per owner
NEXT = "Resume the run from its last checkpoint; see that rank's log for the cause."


@dataclass(slots=True)
class _PendingRequest:
    """A pending request to an owner."""

    keys: int
    begin_s: float
    last_message_s: float  # time of its last message
    sent: int


class FeatureClient:
    """One connection to each owner, for one thread at a time; any thread may close it.

    Byte counts cover requests and replies, without the overhead of TCP and ZeroMQ. Received rows are not copied and are
    read-only.

    Args:
        part: the requesting part.
        addresses: address of each part's server; the own part's is ignored.
        token: token of the run.
        features: F, floats in a row.
        timeout_s: seconds without a message after which an owner is considered failed.
        parts_per_rank: consecutive parts per rank, for messages.

    Attributes:
        rpcs: number of requests that were answered with rows.
        bytes_sent: bytes of these requests.
        bytes_received: bytes of their replies.
        bytes_received: of these replies.

    Raises:
        NotAvailableError: no more connections can be opened, or (at import) pyzmq is not installed.
    """

    def __init__(
        self,
        part: int,
        addresses: Mapping[int, str],
        token: bytes,
        features: int,
        timeout_s: float = 10.0,
        *,
        parts_per_rank: int = 1,
    ) -> None:
        self.part, self.rpcs, self.bytes_sent, self.bytes_received = part, 0, 0, 0
        self._features, self._timeout_s, self._per_rank = features, timeout_s, parts_per_rank
        self._number = 0
        self._closed, self._busy = threading.Event(), threading.Lock()
        self._ended_connections: dict[int, str] = {}  # owners whose connection ended -> how
        self._context = zmq.Context()
        self._sockets: dict[int, Any] = {}
        self._monitors: dict[int, Any] = {}
        self._poller = zmq.Poller()
        self._context.max_sockets = max(self._context.max_sockets, SOCKETS_EACH * len(addresses))
        try:
            for owner, address in addresses.items():
                if owner != part:
                    self._connect(owner, address, token)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise NotAvailableError(
                f"part {part} cannot connect to the feature servers of {len(addresses)} parts: {error}. Raise the "
                "limit of open files (ulimit -n), or set fewer parts or more ranks."
            ) from error

    def __enter__(self) -> FeatureClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def fetch(self, keys_by_owner: Mapping[int, NDArray[np.int64]]) -> dict[int, OwnerReply]:
        """Request rows from all owners at once, one RPC each, and return when all have replied.

        Args:
            keys_by_owner: keys (k,) of the requested rows of each owner, at least one.

        Raises:
            PlanError: an owner has no address.
            RunFailedError: an owner timed out, exited or refused, or this client was closed.
        """
        with self._busy:
            self._check(keys_by_owner)
            pending: dict[int, _PendingRequest] = {}
            self._number += 1
            for owner, keys in keys_by_owner.items():
                pending[owner] = self._send(owner, keys)
            replies: dict[int, OwnerReply] = {}
            while pending:
                events = dict(self._poller.poll(self._poll_ms(pending)))
                for owner, socket in self._sockets.items():
                    if socket in events:
                        self._receive(owner, pending, replies)
                self._note_ended_connections(events)
                self._give_up_gone(pending)
                self._give_up_silent(pending)
            return {owner: replies[owner] for owner in keys_by_owner}

    def close(self) -> None:
        """Close the connections; a thread that waits for a reply gets an error. Idempotent."""
        self._closed.set()
        with self._busy:
            for monitor in self._monitors.values():
                monitor.close(linger=0)
            for socket in self._sockets.values():
                socket.close(linger=0)
            self._sockets, self._monitors = {}, {}
            if not self._context.closed:
                self._context.term()

    def _connect(self, owner: int, address: str, token: bytes) -> None:
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.plain_username, socket.plain_password = USER, token.hex().encode()
        socket.reconnect_ivl = -1  # never reconnect: after an owner's death, another process could receive the token
        ends = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        monitor = socket.get_monitor_socket(ends | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        socket.connect(address)
        self._sockets[owner], self._monitors[owner] = socket, monitor
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)

    def _check(self, keys_by_owner: Mapping[int, NDArray[np.int64]]) -> None:
        if self._closed.is_set():
            raise RunFailedError(f"the feature connections of part {self.part} are closed.")
        for owner in keys_by_owner:
            if owner not in self._sockets:
                raise PlanError(
                    f"part {self.part} cannot request from part {owner}: known are {sorted(self._sockets)}."
                )

    def _send(self, owner: int, keys: NDArray[np.int64]) -> _PendingRequest:
        frames = request_frames(self.part, self._number, self._timeout_s, keys)
        now_s = time.perf_counter()
        request = _PendingRequest(len(keys), now_s, now_s, len(frames[0]) + frames[1].nbytes)
        try:
            self._sockets[owner].send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            self._note_ended_connections(dict(self._poller.poll(0)))
            how = self._ended_connections.get(owner, "accepts no more requests")
            raise RunFailedError(f"{self._server(owner)} {how}. {NEXT}") from None
        return request

    def _receive(self, owner: int, pending: dict[int, _PendingRequest], replies: dict[int, OwnerReply]) -> None:
        """Receive a message from an owner without copying its frames."""
        frames = self._sockets[owner].recv_multipart(copy=False)
        now_s, waited = time.perf_counter(), pending.get(owner)
        reply = read_reply([frame.buffer for frame in frames])
        if waited is None or (reply is not None and reply.number != self._number):
            return  # a reply to an earlier request, which timed out
        waited.last_message_s = now_s
        if reply is None or not self._fits(reply, waited.keys):
            raise RunFailedError(
                f"{self._server(owner)} did not send the requested {waited.keys:,} rows of {self._features} floats. "
                f"Run the same version of this package and the same data on all ranks. {NEXT}"
            )
        if reply.kind == REFUSED:
            after_s = now_s - waited.begin_s
            raise RunFailedError(f"{self._server(owner)} refused after {after_s:.3f} s: {reply.refusal}")
        if reply.kind == COMING:
            return
        del pending[owner]
        self.rpcs += 1
        self.bytes_sent += waited.sent
        self.bytes_received += reply.nbytes
        replies[owner] = OwnerReply(owner, reply.rows, now_s - waited.begin_s, waited.sent + reply.nbytes)

    def _fits(self, reply: Reply, keys: int) -> bool:
        return reply.kind in (REFUSED, COMING) or reply.rows.shape == (keys, self._features)

    def _note_ended_connections(self, events: Mapping[Any, int]) -> None:
        """Record connections that have ended, as reported by their monitors."""
        for owner, monitor in self._monitors.items():
            if monitor in events:
                event = int(parse_monitor_message(monitor.recv_multipart())["event"])
                self._ended_connections.setdefault(owner, _end_reason(event))

    def _give_up_gone(self, pending: dict[int, _PendingRequest]) -> None:
        for owner, waited in pending.items():
            # messages sent before the end may still be in the queue
            if owner in self._ended_connections and not self._sockets[owner].poll(0):
                after_s = time.perf_counter() - waited.begin_s
                raise RunFailedError(
                    f"{self._server(owner)} {self._ended_connections[owner]}, {after_s:.1f} s after the request for "
                    f"{waited.keys:,} row(s). {NEXT}"
                )

    def _give_up_silent(self, pending: dict[int, _PendingRequest]) -> None:
        if self._closed.is_set():
            raise RunFailedError(
                f"the client of part {self.part} was closed during requests to parts {sorted(pending)}."
            )
        now_s = time.perf_counter()
        for owner, waited in pending.items():
            if now_s - waited.last_message_s > self._timeout_s and not self._sockets[owner].poll(0):
                raise RunFailedError(
                    f"{self._server(owner)} was silent for {now_s - waited.last_message_s:.1f} s after the request for "
                    f"{waited.keys:,} row(s): its process hangs or is unreachable. {NEXT} Raise fetch_timeout_s to "
                    "wait longer."
                )

    def _poll_ms(self, pending: dict[int, _PendingRequest]) -> int:
        left_s = min(waited.last_message_s for waited in pending.values()) + self._timeout_s - time.perf_counter()
        return max(1, min(POLL_MS, int(1e3 * left_s) + 1))

    def _server(self, owner: int) -> str:
        return f"the feature server of part {owner} (rank {owner // self._per_rank})"


def _end_reason(event: int) -> str:
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return "does not accept this run's token"
    return "has exited: its connection was closed"
