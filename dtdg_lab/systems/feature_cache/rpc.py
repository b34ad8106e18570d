"""Remote feature fetching: addresses, wire format, client and server handle."""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import secrets
import select
import struct
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.child_process import ChildProcess
from dtdg_lab.core.errors import NotAvailableError, PlanError, RunFailedError
from dtdg_lab.systems.feature_cache.actions import OwnerReply

if TYPE_CHECKING:
    from dtdg_lab.distributed.group import Group
    from dtdg_lab.network.patterns import LinkState

# Where each part's features are served, and the token that grants access, known to all ranks.


MOST_BYTES = 120  # of an address
TOKEN_BYTES = 32


def agree_token(group: Group) -> bytes:
    """A fresh secret of 32 bytes, the same on all ranks; collective."""
    return bytes.fromhex(group.broadcast_text(secrets.token_hex(TOKEN_BYTES)))


def exchange_addresses(group: Group, own: Mapping[int, str], *, parts: int, device: str = "cpu") -> dict[int, str]:
    """All parts' addresses, by part in ascending order; collective.

    Args:
        group: the ranks.
        own: address of each part that this rank serves.
        parts: P, of all ranks together.
        device: for the tensors that are sent.

    Raises:
        PlanError: on all ranks, if a part is served by no rank or by several, or an address is too long.
    """
    import torch  # not needed by the processes that serve features

    table = torch.zeros(parts, 1 + MOST_BYTES, dtype=torch.int64, device=device)
    sendable = [(part, address.encode()) for part, address in own.items() if len(address.encode()) <= MOST_BYTES]
    for index, (part, letters) in enumerate(sendable[:parts]):
        table[index, 0] = part + 1
        table[index, 1 : 1 + len(letters)] = torch.tensor(list(letters), dtype=torch.int64, device=device)
    rows = [row for row in group.gather_rows(table, [parts] * group.size).cpu().tolist() if row[0]]
    served = sorted(row[0] - 1 for row in rows)
    if served != list(range(parts)):
        raise PlanError(
            f"part(s) {served} have feature servers with addresses of at most {MOST_BYTES} bytes: each of the {parts} "
            "parts needs exactly one."
        )
    return {row[0] - 1: bytes(byte for byte in row[1:] if byte).decode() for row in sorted(rows)}


# Messages between feature servers and clients: a fixed header, then an array as raw bytes.
#
# A request is two frames, a header and the keys (k,) int64; a reply is a header and rows (k, F) float32, or a header
# and the text of a refusal. Nothing is unpickled: contents are checked against the header before they are read as
# numbers. Access is checked when a connection is made (see :mod:`dtdg_lab.systems.feature_cache.server_process`).


USER = b"dtdg-lab"  # user name that goes with a run's token
ROWS, REFUSED, COMING = 1, 2, 3  # kinds of replies: rows, refusal, keep-alive
MOST_TEXT = 300  # characters of a refusal

_MAGIC = b"DTf1"
_REQUEST = struct.Struct("<4sIQdQ")  # magic, requesting part, request number, timeout in seconds, keys
_REPLY = struct.Struct("<4sIQQQ")  # magic, kind, number of the request, rows, floats of each


@dataclass(frozen=True, slots=True)
class FeatureRequest:
    """A received request.

    Attributes:
        requester: the requesting part.
        number: of the request, counted by the requester.
        timeout_s: seconds of silence after which the requester gives up.
        keys: (k,) int64.
        nbytes: of its frames.
    """

    requester: int
    number: int
    timeout_s: float
    keys: NDArray[np.int64]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A received reply.

    Attributes:
        kind: ``ROWS``, ``REFUSED`` or ``COMING``.
        number: of the request.
        rows: (k, F) float32, read-only; (0, 0) unless the kind is ``ROWS``.
        described: reason of a refusal.
        nbytes: of its frames.
    """

    kind: int
    number: int
    rows: NDArray[np.float32]
    described: str
    nbytes: int


def request_frames(requester: int, number: int, timeout_s: float, keys: NDArray[np.int64]) -> list[Any]:
    """The frames of a request; the keys are not copied."""
    return [_REQUEST.pack(_MAGIC, requester, number, timeout_s, len(keys)), np.ascontiguousarray(keys, dtype="<i8")]


def read_request(frames: list[Any]) -> FeatureRequest | None:
    """Parse a request; None if it is malformed.

    Args:
        frames: buffers, without the sender's routing frame.
    """
    if len(frames) != 2 or len(frames[0]) != _REQUEST.size:
        return None
    magic, requester, number, timeout_s, count = _REQUEST.unpack(frames[0])
    if magic != _MAGIC or len(frames[1]) != 8 * count or not (math.isfinite(timeout_s) and timeout_s > 0):
        return None
    keys = _aligned(np.frombuffer(frames[1], dtype="<i8"))
    return FeatureRequest(requester, number, timeout_s, keys, len(frames[0]) + len(frames[1]))


def rows_frames(number: int, rows: NDArray[np.float32]) -> list[Any]:
    """The frames of a reply with rows (k, F), which are not copied."""
    return [_REPLY.pack(_MAGIC, ROWS, number, *rows.shape), rows]


def refusal_frames(number: int, described: str) -> list[Any]:
    """The frames of a reply that gives the reason of a refusal."""
    return [_REPLY.pack(_MAGIC, REFUSED, number, 0, 0), described[:MOST_TEXT].encode()]


def coming_frames(number: int) -> list[Any]:
    """The frames of a keep-alive: the reply is delayed by a slow link."""
    return [_REPLY.pack(_MAGIC, COMING, number, 0, 0), b""]


def rows_nbytes(rows: int, features: int) -> int:
    """Bytes of the frames of a reply with this number of rows."""
    return _REPLY.size + 4 * rows * features


def read_reply(frames: list[Any]) -> Reply | None:
    """Parse a reply; None if it is malformed.

    Args:
        frames: buffers; the rows are not copied.
    """
    if len(frames) != 2 or len(frames[0]) != _REPLY.size:
        return None
    magic, kind, number, count, features = _REPLY.unpack(frames[0])
    nbytes = len(frames[0]) + len(frames[1])
    if magic != _MAGIC or kind not in (ROWS, REFUSED, COMING):
        return None
    nothing = np.empty((0, 0), dtype=np.float32)
    if kind != ROWS:
        return Reply(kind, number, nothing, bytes(frames[1]).decode(errors="replace"), nbytes)
    if nbytes != rows_nbytes(count, features):
        return None
    rows = _aligned(np.frombuffer(frames[1], dtype="<f4")).reshape(count, features)
    return Reply(kind, number, rows, "", nbytes)


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """The array, copied if it is not aligned: small frames can start at any byte of the received buffer."""
    return array if array.flags.aligned else array.copy()


# Requests rows of features from other parts' servers, from all owners at once.


POLL_MS = 50  # interval at which a waiting client checks whether it was closed
SOCKETS_EACH = 3  # per owner: its own, and both ends of its monitor
FILES, FILES_EACH = 5, 4  # that a client keeps open, in total and per owner
NEXT = "Resume the run from its last checkpoint; see that rank's log for the cause."


@dataclass(slots=True)
class _Asked:
    """A pending request to an owner."""

    keys: int
    begin_s: float
    last_message_s: float  # time of its last message
    sent: int


class FeatureClient:
    """One connection to each owner, for one thread at a time; any thread may close it.

    Byte counts are those of requests and replies, without the overhead of TCP and ZeroMQ. Received rows are not copied
    and are read-only.

    Args:
        part: the requesting part.
        addresses: of each part's server; an address of the own part is ignored.
        token: of the run.
        features: F, floats in a row.
        timeout_s: seconds without a message after which an owner is considered failed.
        parts_per_rank: consecutive parts per rank, for messages.

    Attributes:
        rpcs: requests that were answered with rows.
        bytes_sent: of these requests.
        bytes_received: of these replies.

    Raises:
        NotAvailableError: pyzmq is not installed, or no more connections can be opened.
        PlanError: timeout or number of features is not above 0.
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
        if timeout_s <= 0 or features < 1:
            raise PlanError(f"timeout_s={timeout_s}, features={features}: both must be above 0.")
        zmq = import_zmq()
        self.part, self.rpcs, self.bytes_sent, self.bytes_received = part, 0, 0, 0
        self._features, self._timeout_s, self._per_rank = features, timeout_s, parts_per_rank
        self._number = 0
        self._closed, self._busy = threading.Event(), threading.Lock()
        self._gone: dict[int, str] = {}  # owners whose connection ended -> how
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
                f"part {part} cannot connect to the servers of {len(addresses)} parts' features: {error}. Raise the "
                "limit of open files (ulimit -n), or set fewer parts or more ranks."
            ) from error

    def __enter__(self) -> FeatureClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def fetch(self, wanted: Mapping[int, NDArray[np.int64]]) -> dict[int, OwnerReply]:
        """Request rows from all owners at once, one RPC each, and return when all have replied.

        Args:
            wanted: owner -> keys of the requested rows (k,), at least one.

        Raises:
            PlanError: no keys are given, or an owner has no address.
            RunFailedError: an owner timed out, exited or refused, or this client was closed.
        """
        with self._busy:
            self._check(wanted)
            asked: dict[int, _Asked] = {}
            self._number += 1
            for owner, keys in wanted.items():
                asked[owner] = self._ask(owner, keys)
            replies: dict[int, OwnerReply] = {}
            while asked:
                events = dict(self._poller.poll(self._patience_ms(asked)))
                for owner, socket in self._sockets.items():
                    if socket in events:
                        self._take(owner, asked, replies)
                self._note_ended_connections(events)
                self._give_up_gone(asked)
                self._give_up_silent(asked)
            return {owner: replies[owner] for owner in wanted}

    def close(self) -> None:
        """Close the connections; a thread that waits for a reply gets an error. Further calls do nothing."""
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
        zmq = import_zmq()
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.plain_username, socket.plain_password = USER, token.hex().encode()
        socket.reconnect_ivl = -1  # after an owner's death another process may listen there: do not send the token
        ends = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        monitor = socket.get_monitor_socket(ends | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        socket.connect(address)
        self._sockets[owner], self._monitors[owner] = socket, monitor
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)

    def _check(self, wanted: Mapping[int, NDArray[np.int64]]) -> None:
        if self._closed.is_set():
            raise RunFailedError(f"the feature connections of part {self.part} are closed.")
        for owner, keys in wanted.items():
            if owner not in self._sockets:
                raise PlanError(
                    f"part {self.part} cannot request from part {owner}: known are {sorted(self._sockets)}."
                )
            if not len(keys):
                raise PlanError(f"part {self.part} requests 0 rows from part {owner}: omit owners without keys.")

    def _ask(self, owner: int, keys: NDArray[np.int64]) -> _Asked:
        zmq = import_zmq()
        frames = request_frames(self.part, self._number, self._timeout_s, keys)
        now_s = time.perf_counter()
        asked = _Asked(len(keys), now_s, now_s, len(frames[0]) + frames[1].nbytes)
        try:
            self._sockets[owner].send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            self._note_ended_connections(dict(self._poller.poll(0)))
            how = self._gone.get(owner, "accepts no more requests")
            raise RunFailedError(f"{self._named(owner)} {how}. {NEXT}") from None
        return asked

    def _take(self, owner: int, asked: dict[int, _Asked], replies: dict[int, OwnerReply]) -> None:
        """Receive a message of an owner without copying its frames."""
        frames = self._sockets[owner].recv_multipart(copy=False)
        now_s, waited = time.perf_counter(), asked.get(owner)
        reply = read_reply([frame.buffer for frame in frames])
        if waited is None or (reply is not None and reply.number != self._number):
            return  # reply to an earlier request that timed out
        waited.last_message_s = now_s
        if reply is None or not self._fits(reply, waited.keys):
            raise RunFailedError(
                f"{self._named(owner)} did not send the {waited.keys:,} rows of {self._features} floats that were "
                f"requested. All ranks must run one version of this package, on the same data. {NEXT}"
            )
        if reply.kind == REFUSED:
            after_s = now_s - waited.begin_s
            raise RunFailedError(f"{self._named(owner)} refused after {after_s:.3f} s: {reply.described}")
        if reply.kind == COMING:
            return
        del asked[owner]
        self.rpcs += 1
        self.bytes_sent += waited.sent
        self.bytes_received += reply.nbytes
        replies[owner] = OwnerReply(owner, reply.rows, now_s - waited.begin_s, waited.sent + reply.nbytes)

    def _fits(self, reply: Reply, keys: int) -> bool:
        return reply.kind in (REFUSED, COMING) or reply.rows.shape == (keys, self._features)

    def _note_ended_connections(self, events: Mapping[Any, int]) -> None:
        """Find connections that have ended; the network reports this at once in most cases."""
        from zmq.utils.monitor import parse_monitor_message

        for owner, monitor in self._monitors.items():
            if monitor in events:
                described = int(parse_monitor_message(monitor.recv_multipart())["event"])
                self._gone.setdefault(owner, _ended(described))

    def _give_up_gone(self, asked: dict[int, _Asked]) -> None:
        for owner, waited in asked.items():
            # messages sent before the end may still be in the queue
            if owner in self._gone and not self._sockets[owner].poll(0):
                after_s = time.perf_counter() - waited.begin_s
                raise RunFailedError(
                    f"{self._named(owner)} {self._gone[owner]}, {after_s:.1f} s after the request for "
                    f"{waited.keys:,} row(s). {NEXT}"
                )

    def _give_up_silent(self, asked: dict[int, _Asked]) -> None:
        if self._closed.is_set():
            raise RunFailedError(f"part {self.part} was closed during requests to part(s) {sorted(asked)}.")
        now_s = time.perf_counter()
        for owner, waited in asked.items():
            if now_s - waited.last_message_s > self._timeout_s and not self._sockets[owner].poll(0):
                raise RunFailedError(
                    f"{self._named(owner)} was silent for {now_s - waited.last_message_s:.1f} s after the request for "
                    f"{waited.keys:,} row(s): its process hangs or is unreachable. {NEXT} A larger fetch_timeout_s "
                    "waits longer."
                )

    def _patience_ms(self, asked: dict[int, _Asked]) -> int:
        left_s = min(waited.last_message_s for waited in asked.values()) + self._timeout_s - time.perf_counter()
        return max(1, min(POLL_MS, int(1e3 * left_s) + 1))

    def _named(self, owner: int) -> str:
        return f"the feature server of part {owner} (rank {owner // self._per_rank})"


def _ended(event: int) -> str:
    zmq = import_zmq()
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return "does not accept this run's token"
    return "has exited: its connection was closed"


def import_zmq() -> Any:
    """The module ``zmq``.

    Raises:
        NotAvailableError: it is not installed.
    """
    try:
        import zmq
    except ImportError as error:
        raise NotAvailableError(
            f"serving features needs pyzmq, which cannot be imported: {error}. Install it: pip install pyzmq."
        ) from error
    return zmq


# Arrays in memory-mapped files, shared by two processes without copying.


def placed(array: NDArray[Any], files: contextlib.ExitStack) -> dict[str, Any]:
    """Put an array where a child process can map it: its own file if it is a whole memory map, else a file in memory.

    Args:
        array: of any shape and a plain type.
        files: closes the file in memory, which exists as long as a process maps it.

    Returns:
        JSON for :func:`opened`: ``shape``, ``dtype``, and ``path`` and ``offset``, or an ``fd`` to inherit.
    """
    described: dict[str, Any] = {"shape": array.shape, "dtype": array.dtype.str}
    # a view of a map has the map's offset: only the whole map lies at that offset
    if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap) and array.flags.c_contiguous:
        path, offset, mode = (getattr(array, name) for name in ("filename", "offset", "mode"))
        if path is not None and mode in ("r", "r+"):
            return {**described, "path": str(path), "offset": offset}
    if hasattr(os, "memfd_create"):
        file: Any = os.fdopen(os.memfd_create("features"), "wb")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the others)
    files.enter_context(file)
    np.ascontiguousarray(array).tofile(file)
    file.flush()
    return {**described, "fd": file.fileno()}


def opened(described: dict[str, Any]) -> NDArray[Any]:
    """The array described by :func:`placed`, mapped read-only; a descriptor is closed.

    Raises:
        OSError: the file does not exist.
        ValueError: it is shorter than the array.
    """
    shape, dtype = tuple(described["shape"]), np.dtype(described["dtype"])
    count = int(np.prod(shape))
    if "path" in described:
        return np.memmap(described["path"], dtype, "r", described["offset"], shape) if count else np.empty(shape, dtype)
    try:
        if not count:
            return np.empty(shape, dtype)
        content = mmap.mmap(described["fd"], count * dtype.itemsize, prot=mmap.PROT_READ)
    finally:
        os.close(described["fd"])  # the map holds its own descriptor
    return np.frombuffer(content, dtype).reshape(shape)


# Serves the features of one rank's parts to the other parts, from a separate process.


GRACE_S = 0.3  # between asking a process to exit and killing it


class FeatureServer:
    """One child process with a socket per part; it exits with the process that started it.

    Features are in files that the child maps: the file of a ``np.memmap``, otherwise a copy in memory, made once. The
    child makes no further copy.

    Args:
        rows: part -> its rows (K, F) float32; F is the same for all.
        keys: part -> the keys of its rows (K,) int64, ascending.
        token: of the run; connections without it are rejected. See :func:`agree_token`.
        host: address of this machine to listen on. Except on loopback, features and token cross the network
            unencrypted, like gradients.
        timeout_s: seconds the child may take to start.
        orders_s: seconds it may take to reply to a command; None: the same.

    Attributes:
        addresses: of each part, for :class:`FeatureClient`.
        pid: of the process.

    Raises:
        NotAvailableError: pyzmq is missing, or the process cannot be started.
        PlanError: rows and keys are inconsistent.
        RunFailedError: the process could not listen, or did not start in time.
    """

    def __init__(
        self,
        rows: Mapping[int, NDArray[np.float32]],
        keys: Mapping[int, NDArray[np.int64]],
        token: bytes,
        *,
        host: str = "127.0.0.1",
        timeout_s: float = 30.0,
        orders_s: float | None = None,
    ) -> None:
        import_zmq()
        _check(rows, keys)
        self._parts, self._timeout_s = tuple(rows), timeout_s
        self._turn, self._closed = threading.Lock(), False
        self._answered = b""
        with contextlib.ExitStack() as files:
            described = {part: {"rows": placed(rows[part], files), "keys": placed(keys[part], files)} for part in rows}
            self._child = ChildProcess(
                "dtdg_lab.systems.feature_cache.server_process",
                purpose="serves features",
                advice="Free memory or processes, or run with fewer ranks on this machine.",
                fds=[array["fd"] for arrays in described.values() for array in arrays.values() if "fd" in array],
            )
        try:
            began = self._order({"host": host, "token": token.hex(), "parts": described})
        except RunFailedError:
            self.close()
            raise
        self._timeout_s = timeout_s if orders_s is None else orders_s
        self.addresses: dict[int, str] = {int(part): address for part, address in began["addresses"].items()}
        self.pid = self._child.pid

    def __enter__(self) -> FeatureServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def set_links(self, links: LinkState) -> None:
        """Delay replies of these parts according to their rows of ``links``; in effect when this returns.

        Raises:
            PlanError: the links are of fewer parts.
            RunFailedError: the process has exited or does not respond.
        """
        if links.parts <= max(self._parts):
            raise PlanError(f"links of {links.parts} parts: this server serves part(s) {sorted(self._parts)}.")
        rows = {
            part: {
                "delay_s": links.delay_s[part].tolist(),
                "bytes_per_s": [None if np.isinf(rate) else rate for rate in links.bytes_per_s[part].tolist()],
            }
            for part in self._parts
        }
        self._order({"do": "links", "rows": rows})

    def served(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Requests answered with rows so far, and the bytes of both, by (owner, requester).

        Raises:
            RunFailedError: the process has exited or does not respond.
        """
        counts = self._order({"do": "served"})["served"]
        return {(owner, requester): (rpcs, nbytes) for owner, requester, rpcs, nbytes in counts}

    def dropped(self) -> int:
        """Malformed messages and rejected connections so far.

        Raises:
            RunFailedError: the process has exited or does not respond.
        """
        return int(self._order({"do": "served"})["dropped"])

    def check(self) -> None:
        """Raise if the process has exited; takes microseconds.

        Raises:
            RunFailedError: it has exited.
        """
        if not self._closed and not self._child.is_alive:
            raise self._ended()

    def close(self) -> None:
        """End the process, whatever it is doing, within a second; further calls do nothing."""
        if self._closed:
            return
        self._closed = True
        self._child.wait(GRACE_S)
        with self._turn:  # a thread that waits for a reply has failed by now
            self._child.release()

    def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        """Send a command and wait for its reply."""
        with self._turn:
            if self._closed:
                raise self._ended()
            deadline_s = time.monotonic() + self._timeout_s
            try:
                self._write(json.dumps(order).encode() + b"\n", deadline_s)
                answer: dict[str, Any] = json.loads(self._line(deadline_s))
            except (OSError, EOFError, ValueError) as error:  # closed by another thread, or the process ended
                raise self._ended() from error
            if "failed" in answer:
                raise RunFailedError(
                    f"{self._named}: {answer['failed']}. Correct the cause, then start the run or resume it."
                )
            return answer

    def _write(self, content: bytes, deadline_s: float) -> None:
        while content:  # a ready pipe accepts this number of bytes without blocking
            self._await(self._child.orders, select.POLLOUT, deadline_s)
            content = content[self._child.orders.write(content[: select.PIPE_BUF]) or 0 :]

    def _line(self, deadline_s: float) -> bytes:
        while b"\n" not in self._answered:
            self._await(self._child.answers, select.POLLIN, deadline_s)
            if not (content := os.read(self._child.answers, 1 << 16)):
                raise EOFError("the end of its replies")
            self._answered += content
        line, self._answered = self._answered.split(b"\n", 1)
        return line

    def _await(self, pipe: int | IO[bytes], event: int, deadline_s: float) -> None:
        poll = select.poll()  # select does not support descriptors from 1024 on
        poll.register(pipe, event)
        if not poll.poll(max(0.0, 1e3 * (deadline_s - time.monotonic()))):
            raise RunFailedError(
                f"{self._named} (process {self._child.pid}) has not replied for {self._timeout_s:.1f} s: it hangs. "
                "Resume the run from its last checkpoint. A larger fetch_timeout_s waits longer."
            )

    def _ended(self) -> RunFailedError:
        """The reason why the process accepts no commands."""
        if self._closed:
            return RunFailedError(f"{self._named} was closed.")
        return RunFailedError(f"{self._named} {self._child.ended()} Resume the run from its last checkpoint.")

    @property
    def _named(self) -> str:
        return f"the feature server of part(s) {sorted(self._parts)}"


def _check(rows: Mapping[int, NDArray[np.float32]], keys: Mapping[int, NDArray[np.int64]]) -> None:
    if not rows or set(rows) != set(keys):
        raise PlanError(f"rows of parts {sorted(rows)} and keys of parts {sorted(keys)}: give both for each part.")
    for part, given in rows.items():
        names = keys[part]
        if given.ndim != 2 or given.dtype != np.float32 or names.shape != given.shape[:1] or names.dtype != np.int64:
            raise PlanError(
                f"part {part}: rows {given.dtype} {given.shape} and keys {names.dtype} {names.shape}; (K, F) float32 "
                "and (K,) int64 are needed."
            )
        if (names[1:] <= names[:-1]).any():
            raise PlanError(f"part {part}: keys must ascend and be distinct. Sort rows and keys together.")
    if len({given.shape[1] for given in rows.values()}) != 1:
        raise PlanError(f"rows of {[given.shape[1] for given in rows.values()]} floats: all parts need the same width.")
