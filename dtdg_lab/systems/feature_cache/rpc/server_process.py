"""The process that serves the features of one rank's parts at the speed of its links: an event loop, without torch."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import math
import os
import selectors
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import zmq
import zmq.asyncio
from numpy.typing import NDArray

from dtdg_lab.core.child_process import begin_child
from dtdg_lab.systems.feature_cache.rpc.frames import (
    USER,
    FeatureRequest,
    coming_frames,
    read_request,
    refusal_frames,
    rows_frames,
    rows_nbytes,
)
from dtdg_lab.systems.feature_cache.rpc.shared_arrays import open_array


@dataclass(slots=True, eq=False)
class ReplyOnLink:
    """A reply in transit."""

    left_s: float  # time at which its last byte enters the link
    done: asyncio.Future[None]
    timer: asyncio.TimerHandle | None = None


class LinkPace:
    """A link from an owner to a requester, in an event loop; it does not block other links.

    A reply of b bytes waits for earlier ones, takes b / rate to leave, and arrives after the delay. If the link changes
    meanwhile, the remaining bytes continue at the new rate and with the new delay.
    """

    def __init__(self) -> None:
        self._delay_s, self._bytes_per_s, self._free_s = 0.0, math.inf, 0.0
        self._in_transit: set[ReplyOnLink] = set()

    def change(self, delay_s: float, bytes_per_s: float) -> None:
        """Set the delay in seconds, and the rate in bytes per second (infinite for no limit)."""
        loop = asyncio.get_running_loop()
        now_s, scale = loop.time(), 0.0
        if math.isfinite(bytes_per_s) and math.isfinite(self._bytes_per_s):
            scale = self._bytes_per_s / bytes_per_s
        self._delay_s, self._bytes_per_s = delay_s, bytes_per_s
        self._free_s = now_s + scale * max(0.0, self._free_s - now_s)
        for reply in self._in_transit:
            if reply.left_s > now_s:
                reply.left_s = now_s + scale * (reply.left_s - now_s)
                self._arrive(reply, reply.left_s + delay_s)

    def start(self, nbytes: int) -> ReplyOnLink | None:
        """Put a reply on the link; return None if the link does not slow it down."""
        if not self._delay_s and math.isinf(self._bytes_per_s) and not self._in_transit:
            return None
        loop = asyncio.get_running_loop()
        self._free_s = max(self._free_s, loop.time()) + nbytes / self._bytes_per_s
        reply = ReplyOnLink(self._free_s, loop.create_future())
        self._in_transit.add(reply)
        self._arrive(reply, self._free_s + self._delay_s)
        return reply

    async def finish(self, reply: ReplyOnLink, within_s: float | None = None) -> bool:
        """Wait until a reply has arrived, at most ``within_s`` seconds; return True if it has."""
        await asyncio.wait([reply.done], timeout=within_s)
        if not reply.done.done():
            return False
        self._in_transit.discard(reply)
        return True

    def _arrive(self, reply: ReplyOnLink, due_s: float) -> None:
        if reply.timer is not None:
            reply.timer.cancel()
        reply.timer = asyncio.get_running_loop().call_at(due_s, _set, reply.done)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


GATHER_BYTES = 2 << 20  # bytes of rows copied before other requests get a turn
MOST_REQUESTER = 1 << 16
LEAST_BEAT_S = 0.02
BEATS = 3  # number of keep-alives of a slow reply within the requester's timeout


class PartServing:
    """Server of one part's rows; each request is answered in its own task.

    Args:
        rows: (K, F) float32.
        keys: (K,) int64 of the rows, ascending.
        socket: a bound ROUTER of ``zmq.asyncio``.

    Attributes:
        served: requesting part -> number of its requests answered with rows, and their bytes.
        dropped: number of malformed messages.
    """

    def __init__(self, rows: NDArray[np.float32], keys: NDArray[np.int64], socket: Any) -> None:
        self._rows, self._keys, self._socket = rows, keys, socket
        self._links: defaultdict[int, LinkPace] = defaultdict(LinkPace)
        self._tasks: set[asyncio.Task[None]] = set()
        self.served: dict[int, tuple[int, int]] = {}
        self.dropped = 0

    def set_link(self, requester: int, delay_s: float, bytes_per_s: float) -> None:
        """Set the link to a requester for later replies."""
        self._links[requester].change(delay_s, bytes_per_s)

    async def serve(self) -> None:
        """Serve until cancelled."""
        while True:
            sender, *content = await self._socket.recv_multipart(copy=False)
            request = read_request([frame.buffer for frame in content])
            if request is None or request.requester >= MOST_REQUESTER:
                self.dropped += 1
                continue
            task = asyncio.get_running_loop().create_task(self._answer(sender.bytes, request))
            self._tasks.add(task)
            task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # one failed request must not stop the others, but is reported
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a request could not be answered", "exception": task.exception(), "task": task}
            )

    async def _answer(self, sender: bytes, request: FeatureRequest) -> None:
        indices = self._indices(request.keys)
        if isinstance(indices, str):
            await self._socket.send_multipart([sender, *refusal_frames(request.number, indices)])
            return
        rows = await self._gather(indices)
        nbytes = rows_nbytes(*rows.shape)
        await self._pass_link(sender, request, nbytes)
        count, total = self.served.get(request.requester, (0, 0))
        # count before sending: a requester that has the rows must find them counted
        self.served[request.requester] = count + 1, total + request.nbytes + nbytes
        await self._socket.send_multipart([sender, *rows_frames(request.number, rows)], copy=False)

    def _indices(self, keys: NDArray[np.int64]) -> NDArray[np.int64] | str:
        """Return the row indices of keys (k,), or the reason of a refusal."""
        if not len(keys):
            return "a request for 0 rows. Omit owners without keys."
        if len(keys) > len(self._keys):
            return f"a request for {len(keys):,} rows, but the part has {len(self._keys):,}. Request each row once."
        indices = np.searchsorted(self._keys, keys)
        np.minimum(indices, len(self._keys) - 1, out=indices)
        unknown = np.flatnonzero(self._keys[indices] != keys)
        if len(unknown):
            first = ", ".join(map(str, keys[unknown[:3]].tolist()))
            return (
                f"no row for {len(unknown):,} of {len(keys):,} key(s), the first of them {first}. Use the same keys "
                "and owners on all ranks."
            )
        return indices

    async def _gather(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Copy the rows (k, F) in pieces."""
        width = self._rows.shape[1]
        rows = np.empty((len(indices), width), dtype=np.float32)
        piece = max(1, GATHER_BYTES // (4 * width))
        for begin in range(0, len(indices), piece):
            end = begin + piece
            # indices are valid; with any mode other than "raise", take writes to ``out`` directly
            np.take(self._rows, indices[begin:end], axis=0, out=rows[begin:end], mode="clip")
            if end < len(indices):
                await asyncio.sleep(0)
        return rows

    async def _pass_link(self, sender: bytes, request: FeatureRequest, nbytes: int) -> None:
        """Wait as long as the link delays a reply, and send keep-alives to the requester meanwhile."""
        link = self._links[request.requester]
        reply = link.start(nbytes)
        if reply is None:
            return
        within_s = max(LEAST_BEAT_S, request.timeout_s / BEATS)
        while not await link.finish(reply, within_s=within_s):
            await self._socket.send_multipart([sender, *coming_frames(request.number)])


def rate_of(rate: float | None) -> float:
    """Return bytes per second; None stands for infinity, which JSON lacks."""
    return math.inf if rate is None else float(rate)


LOOK_S = 0.5  # interval at which the child checks if its parent is alive
MOST_LINE = 1 << 24  # maximum bytes of a command
MOST_HEAD = 1 << 16  # maximum bytes of a message without its keys


class Serving:
    """The sockets of all parts, and their access control.

    Args:
        settings: ``host``, ``token`` in hexadecimal, and ``parts``: part -> its ``rows`` and ``keys``.

    Attributes:
        parts: server of each part.
        addresses: address of each part.
        refused: number of connections rejected because of their token.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._context = zmq.asyncio.Context()
        self._token = settings["token"].encode()
        self.refused = 0
        self.parts: dict[int, PartServing] = {}
        self.addresses: dict[int, str] = {}
        self._authentication = self._context.socket(zmq.REP)
        self._authentication.bind("inproc://zeromq.zap.01")  # ZeroMQ sends authentication requests here
        for number, arrays in settings["parts"].items():
            rows, keys = open_array(arrays["rows"]), open_array(arrays["keys"])
            socket = self._context.socket(zmq.ROUTER)
            socket.linger = 0
            socket.plain_server, socket.zap_domain = True, b"features"
            socket.maxmsgsize = MOST_HEAD + 16 * len(keys)  # a peer that announces more is disconnected
            port = socket.bind_to_random_port(f"tcp://{settings['host']}")
            self.parts[int(number)] = PartServing(rows, keys, socket)
            self.addresses[int(number)] = f"tcp://{settings['host']}:{port}"

    async def run(self) -> None:
        """Serve until cancelled."""
        await asyncio.gather(self._authenticate(), *(part.serve() for part in self.parts.values()))

    async def _authenticate(self) -> None:
        """Check tokens by RFC 27; a request is: version, request, domain, address, identity, mechanism, name, token."""
        while True:
            request = await self._authentication.recv_multipart()
            accepted = len(request) == 8 and request[5] == b"PLAIN" and request[6] == USER
            accepted = accepted and hmac.compare_digest(request[7], self._token)
            self.refused += not accepted
            status = (b"200", b"OK") if accepted else (b"400", b"no token of this run")
            await self._authentication.send_multipart([b"1.0", request[1], *status, b"", b""])

    def execute(self, command: dict[str, Any]) -> dict[str, Any]:
        """Execute one command, ``links`` or ``served``, and return its reply."""
        if command["do"] == "links":
            for number, row in command["rows"].items():
                for requester, (delay_s, rate) in enumerate(zip(row["delay_s"], row["bytes_per_s"], strict=True)):
                    self.parts[int(number)].set_link(requester, delay_s, rate_of(rate))
            return {"done": True}
        if command["do"] == "served":
            counts = [
                [owner, requester, *served]
                for owner, part in self.parts.items()
                for requester, served in part.served.items()
            ]
            dropped = self.refused + sum(part.dropped for part in self.parts.values())
            return {"served": counts, "dropped": dropped}
        return {"failed": f"unknown command {command['do']!r}"}

    def close(self) -> None:
        """Close all sockets without delay."""
        self._context.destroy(linger=0)


def report(answer: dict[str, Any]) -> None:
    """Send a line to the parent."""
    content = json.dumps(answer).encode() + b"\n"
    while content:
        content = content[os.write(1, content) :]


async def main() -> None:
    """Serve the parts given in the first line, until the commands end or the parent exits."""
    parent_lives = begin_child()
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader(limit=MOST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), os.fdopen(0, "rb", 0))
    try:
        serving = Serving(json.loads(await commands.readline()))
    except Exception as error:
        report({"failed": f"{type(error).__name__}: {error}"})
        raise
    work = [
        loop.create_task(task) for task in (serving.run(), _execute_commands(commands, serving), _watch(parent_lives))
    ]
    report({"addresses": serving.addresses})
    finished, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    for task in work:
        task.cancel()
    serving.close()
    for task in finished:
        task.result()  # raises the exception that ended it


async def _execute_commands(commands: asyncio.StreamReader, serving: Serving) -> None:
    while line := await commands.readline():
        try:
            answer = serving.execute(json.loads(line))
        except (KeyError, ValueError, TypeError) as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        report(answer)


async def _watch(parent_lives: Callable[[], bool]) -> None:
    while parent_lives():
        await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    # use select, which has microsecond timeouts: epoll rounds up to milliseconds, but delays of 5 ms must stay 5 ms
    with (
        contextlib.suppress(BrokenPipeError),
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner,
    ):
        runner.run(main())
    os._exit(0)  # do not wait for anything
